"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..kernels import machine
from ..tensor import Tensor
from . import rules
from .optimizer import Optimizer, Update, counters, held, positive
from .rules import kernel_of

__all__ = ["Adam", "AdamW"]


class Adam(Optimizer):
    """Steps of about lr, whatever the gradient's scale (Kingma and Ba, 2015).

    ``p -= lr * m / (sqrt(v) + eps)``, m and v the running means of g and its square, corrected for
    their start at zero. weight_decay adds ``weight_decay * p`` to the gradient, or shrinks p by
    ``lr * weight_decay`` if decoupled_weight_decay. amsgrad: v never falls. maximize: climb
    instead. foreach, capturable, differentiable, fused are accepted for
    PyTorch's sake: all parameters of a dtype are one launch in any case.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> x.grad = ng.tensor([2.0])
    >>> Adam([x], lr=0.5).step()
    >>> x
    tensor([0.5000], requires_grad=True)
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ):
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        """Raise ValueError for a negative option or a beta outside of [0, 1)."""
        name = type(self).__name__
        positive(name, group, "lr", "eps", "weight_decay")
        for i, beta in enumerate(group["betas"]):
            if not 0 <= beta < 1:
                raise ValueError(f"{name}: Invalid beta parameter at index {i}: {beta}")

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """One launch; the kernel itself counts the steps."""

        def scalars() -> tuple:
            beta1, beta2 = group["betas"]
            return (
                -1.0 if group["maximize"] else 1.0,
                float(group["lr"]),
                float(beta1),
                float(beta2),
                float(group["eps"]),
                float(group["weight_decay"]),
                float(group["decoupled_weight_decay"]),
            )

        states = self.states(params)
        steps = counters(params, states)
        firsts = held("exp_avg", params, states)
        seconds = held("exp_avg_sq", params, states)
        kept = [firsts, seconds]
        rule: Any = rules.adam
        if machine.depends(lambda: bool(group["amsgrad"])):
            kept.append(held("max_exp_avg_sq", params, states))
            rule = rules.amsgrad
        return [Update(kernel_of(rule), (params, steps, *kept, grads), scalars)]


class AdamW(Adam):
    """Adam whose weight decay shrinks parameters by ``lr * weight_decay`` apart from the gradient
    (Loshchilov and Hutter, 2019).
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ):
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            decoupled_weight_decay=True,
        )
