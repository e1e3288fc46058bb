"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from ..errors import StateMadeError
from ..kernels import machine
from ..tape import grad_mode
from ..tensor import Tensor
from . import rules
from .optimizer import Optimizer, Update, held, positive
from .rules import kernel_of

__all__ = ["SGD"]


class SGD(Optimizer):
    """``p -= lr * b`` with ``b = momentum * b + (1 - dampening) * g`` and
    ``g = grad + weight_decay * p``; nesterov: ``p -= lr * (g + momentum * b)``.

    The first b is g. maximize: climb instead. foreach, differentiable, fused are accepted for
    PyTorch's sake: all parameters of a dtype are one launch in any case.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> x.grad = ng.tensor([2.0])
    >>> SGD([x], lr=0.25).step()
    >>> x.tolist()
    [0.5]
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ):
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        """Raise ValueError for a negative option, or nesterov without momentum."""
        positive("SGD", group, "lr", "momentum", "weight_decay")
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """One launch; two where some momentum is new and dampening would scale its first value."""

        def plain() -> tuple:
            sign = -1.0 if group["maximize"] else 1.0
            return sign, float(group["lr"]), float(group["weight_decay"])

        if not machine.depends(lambda: bool(group["momentum"])):
            return [Update(kernel_of(rules.sgd), (params, grads), plain)]

        def later() -> tuple:
            dampening = float(group["dampening"])
            return *plain(), float(group["momentum"]), dampening, float(bool(group["nesterov"]))

        def first() -> tuple:
            return *plain(), float(group["momentum"]), 0.0, float(bool(group["nesterov"]))

        states = self.states(params)
        old = [state.get("momentum_buffer") is not None for state in states]
        if machine.depends(lambda: group["dampening"] == 0) or all(old):
            chosen = [([True] * len(params), later)]
        else:
            if machine.is_recording() and grad_mode.anomaly is None:
                raise StateMadeError(
                    "SGD: the first step with dampening differs from the others and cannot be "
                    "recorded. Take one step before you compile."
                )
            chosen = [([not o for o in old], first), (old, later)]
        updates = []
        for rows, scalars in chosen:
            ps = list(itertools.compress(params, rows))
            if ps:
                buffers = held("momentum_buffer", ps, list(itertools.compress(states, rows)))
                lists = (ps, buffers, list(itertools.compress(grads, rows)))
                updates.append(Update(kernel_of(rules.momentum_sgd), lists, scalars))
        return updates
