"""RMSprop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..kernels import machine
from ..tensor import Tensor
from . import rules
from .optimizer import Optimizer, Update, counters, held, positive
from .rules import kernel_of

__all__ = ["RMSprop"]


class RMSprop(Optimizer):
    """``p -= lr * g / (sqrt(v) + eps)``, v the running mean of the squared gradient (Hinton, 2012).

    alpha: how much of v is kept. centered: the variance in place of the mean square. momentum:
    steps add up as in SGD. weight_decay adds ``weight_decay * p`` to the gradient. maximize: climb
    instead. foreach, capturable, differentiable are accepted for PyTorch's sake.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> x.grad = ng.tensor([2.0])
    >>> RMSprop([x], lr=0.5, alpha=0.0).step()
    >>> x.tolist()
    [0.5]
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ):
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        """Raise ValueError for a negative option."""
        positive("RMSprop", group, "lr", "eps", "momentum", "weight_decay", "alpha")

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """One launch."""

        def scalars() -> tuple:
            return -1.0 if group["maximize"] else 1.0, *[float(group[name]) for name in names]

        states = self.states(params)
        steps = counters(params, states)
        kept = [held("square_avg", params, states)]
        centered = machine.depends(lambda: bool(group["centered"]))
        if centered:
            kept.append(held("grad_avg", params, states))
        names = ["lr", "alpha", "eps", "weight_decay"]
        rule: Any = rules.rmsprop_centered if centered else rules.rmsprop
        if machine.depends(lambda: group["momentum"] > 0):
            kept.append(held("momentum_buffer", params, states))
            names.append("momentum")
            rule = rules.rmsprop_centered_momentum if centered else rules.rmsprop_momentum
        return [Update(kernel_of(rule), (params, steps, *kept, grads), scalars)]
