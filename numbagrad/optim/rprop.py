"""Rprop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..tensor import Tensor
from . import rules
from .optimizer import Optimizer, Update, counters, held, positive
from .rules import kernel_of

__all__ = ["Rprop"]


class Rprop(Optimizer):
    """Steps by the signs of whole-batch gradients, each element at its own pace.

    An element's step grows by etas[1] while its gradient keeps its sign. Where that turns it
    shrinks by etas[0], and the element rests for this step. lr: the first step; step_sizes: the
    shortest and the longest (Riedmiller and Braun, 1993). maximize: climb instead. capturable,
    foreach, differentiable are accepted for PyTorch's sake.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> x.grad = ng.tensor([1000.0])
    >>> Rprop([x], lr=0.25).step()
    >>> x
    tensor([0.7500], requires_grad=True)
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ):
        defaults = {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        """Raise ValueError for a negative rate, or etas that are not on both sides of 1."""
        positive("Rprop", group, "lr")
        low, high = group["etas"]
        if not 0.0 < low < 1.0 < high:
            raise ValueError(f"Rprop: Invalid eta values: {low}, {high}. They stand around 1.")

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """One launch."""

        def scalars() -> tuple:
            values = [float(value) for value in (*group["etas"], *group["step_sizes"])]
            return -1.0 if group["maximize"] else 1.0, *values

        states = self.states(params)
        steps = counters(params, states)
        before = held("prev", params, states)
        lengths = held("step_size", params, states, lambda: float(group["lr"]))
        lists = (params, steps, before, lengths, grads)
        return [Update(kernel_of(rules.rprop), lists, scalars)]
