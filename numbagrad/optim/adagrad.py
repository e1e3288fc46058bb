"""Adagrad."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..tensor import Tensor
from . import rules
from .optimizer import Optimizer, Update, counters, held, positive
from .rules import kernel_of

__all__ = ["Adagrad"]


class Adagrad(Optimizer):
    """``p -= lr * g / (sqrt(s) + eps)``, s the sum of the gradient's squares (Duchi et al., 2011).

    lr_decay divides lr by ``1 + steps_before * lr_decay``. initial_accumulator_value: where s
    starts. weight_decay adds ``weight_decay * p`` to the gradient. maximize: climb instead.
    foreach, differentiable, fused are accepted for PyTorch's sake.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> x.grad = ng.tensor([2.0])
    >>> Adagrad([x], lr=0.5).step()
    >>> x.tolist()
    [0.5]
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ):
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        """Raise ValueError for a negative option."""
        names = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
        positive("Adagrad", group, *names)

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """One launch."""

        def scalars() -> tuple:
            names = ("lr", "lr_decay", "eps", "weight_decay")
            return -1.0 if group["maximize"] else 1.0, *[float(group[name]) for name in names]

        states = self.states(params)
        steps = counters(params, states)
        sums = held("sum", params, states, float(group["initial_accumulator_value"]))
        return [Update(kernel_of(rules.adagrad), (params, steps, sums, grads), scalars)]
