"""ASGD."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..dtypes import float32
from ..kernels.cpu import step_sizes as kernels
from ..tensor import Tensor
from .optimizer import Optimizer, Update, counters, held, new_state, positive

__all__ = ["ASGD"]


class ASGD(Optimizer):
    """SGD that also keeps the average of each parameter (Polyak and Juditsky, 1992; Bottou's form).

    ``p = (1 - lambd eta) p - eta g`` with ``eta = lr / (1 + lambd lr step) ** alpha``. The state
    ``ax`` is p for t0 steps, then the average of p since. weight_decay adds ``weight_decay * p``
    to the gradient. maximize: climb instead. foreach, differentiable, capturable are accepted for
    PyTorch's sake.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> x.grad = ng.tensor([2.0])
    >>> ASGD([x], lr=0.25, lambd=0.0).step()
    >>> x
    tensor([0.5000], requires_grad=True)
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ):
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        """Raise ValueError for a negative rate or decay."""
        positive("ASGD", group, "lr", "weight_decay")

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """One launch."""

        def scalars() -> tuple:
            names = ("lr", "lambd", "alpha", "t0", "weight_decay")
            return *[float(group[name]) for name in names], -1.0 if group["maximize"] else 1.0

        states = self.states(params)
        steps = counters(params, states)
        for param, state in zip(params, states, strict=True):
            if "eta" not in state:
                new_state(state, "eta", (), float32, param, float(group["lr"]))
                new_state(state, "mu", (), float32, param, 1)
        etas, mus = [s["eta"] for s in states], [s["mu"] for s in states]
        averages = held("ax", params, states)
        return [Update(kernels.asgd, (params, steps, etas, mus, averages, grads), scalars)]
