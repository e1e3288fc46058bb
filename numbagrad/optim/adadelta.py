"""Adadelta."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..tensor import Tensor
from . import rules
from .optimizer import Optimizer, Update, counters, held, positive
from .rules import kernel_of

__all__ = ["Adadelta"]


class Adadelta(Optimizer):
    """Steps in the units of the parameters, which need no learning rate (Zeiler, 2012).

    ``p -= lr * g * sqrt(u + eps) / sqrt(v + eps)``, v and u the running means, kept by rho, of the
    squares of the gradient and of the steps. weight_decay adds ``weight_decay * p`` to the
    gradient. maximize: climb instead. foreach, capturable, differentiable are accepted for
    PyTorch's sake.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> x.grad = ng.tensor([2.0])
    >>> Adadelta([x], rho=0.0, eps=0.25).step()
    >>> x.item() < 1.0
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ):
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        """Raise ValueError for a negative option or a rho above 1."""
        positive("Adadelta", group, "lr", "rho", "eps", "weight_decay")
        if group["rho"] > 1:
            raise ValueError(f"Adadelta: Invalid rho value: {group['rho']}. It must be <= 1.")

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """One launch."""

        def scalars() -> tuple:
            names = ("lr", "rho", "eps", "weight_decay")
            return -1.0 if group["maximize"] else 1.0, *[float(group[name]) for name in names]

        states = self.states(params)
        steps = counters(params, states)
        seconds = held("square_avg", params, states)
        deltas = held("acc_delta", params, states)
        lists = (params, steps, seconds, deltas, grads)
        return [Update(kernel_of(rules.adadelta), lists, scalars)]
