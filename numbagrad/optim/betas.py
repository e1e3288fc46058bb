"""Relatives of Adam: Adamax, NAdam, RAdam and Lion, each one launch over all parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..dtypes import float32
from ..kernels.cpu import step_sizes as kernels
from ..tensor import Tensor
from . import rules
from .optimizer import Optimizer, Update, counters, held, new_state, positive
from .rules import kernel_of

__all__ = ["Adamax", "Lion", "NAdam", "RAdam"]


class BetasOptimizer(Optimizer):
    """What the four share: options named lr, betas, eps, weight_decay and their checks."""

    def check(self, group: dict[str, Any]) -> None:
        """Raise ValueError for a negative option or a beta outside of [0, 1)."""
        name = type(self).__name__
        names = ("lr", "eps", "weight_decay", "momentum_decay")
        positive(name, group, *[option for option in names if option in group])
        for i, beta in enumerate(group["betas"]):
            if not 0 <= beta < 1:
                raise ValueError(f"{name}: Invalid beta parameter at index {i}: {beta}")


def _direction(group: dict[str, Any]) -> float:
    return -1.0 if group["maximize"] else 1.0


class Adamax(BetasOptimizer):
    """Adam with the largest recent gradient in place of its mean square (Kingma and Ba, 2015).

    ``p -= lr / (1 - beta1 ** step) * m / u``, u the maximum of ``beta2 * u`` and ``|g| + eps``.
    weight_decay adds ``weight_decay * p`` to the gradient. maximize: climb instead. foreach,
    differentiable, capturable are accepted for PyTorch's sake.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> x.grad = ng.tensor([2.0])
    >>> Adamax([x], lr=0.5, eps=0.0).step()
    >>> x
    tensor([0.5000], requires_grad=True)
    """

    def __init__(
        self,
        params: Any,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ):
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """One launch."""

        def scalars() -> tuple:
            beta1, beta2 = group["betas"]
            eps, decay = float(group["eps"]), float(group["weight_decay"])
            return _direction(group), float(group["lr"]), float(beta1), float(beta2), eps, decay

        states = self.states(params)
        steps = counters(params, states)
        firsts = held("exp_avg", params, states)
        largest = held("exp_inf", params, states)
        lists = (params, steps, firsts, largest, grads)
        return [Update(kernel_of(rules.adamax), lists, scalars)]


class NAdam(BetasOptimizer):
    """Adam with Nesterov's momentum, which grows to beta1 over the steps (Dozat, 2016).

    momentum_decay: how fast it grows. weight_decay adds ``weight_decay * p`` to the gradient, or
    shrinks p by ``lr * weight_decay`` if decoupled_weight_decay. maximize: climb instead. foreach,
    capturable, differentiable are accepted for PyTorch's sake.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> x.grad = ng.tensor([2.0])
    >>> NAdam([x], lr=0.5).step()
    >>> x.item() < 1.0
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ):
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """One launch; the kernel itself counts the steps and multiplies the momenta."""

        def scalars() -> tuple:
            beta1, beta2 = group["betas"]
            eps, decay = float(group["eps"]), float(group["weight_decay"])
            decoupled = bool(group["decoupled_weight_decay"])
            growth = float(group["momentum_decay"])
            numbers = float(group["lr"]), float(beta1), float(beta2), eps, decay
            return *numbers, decoupled, growth, _direction(group)

        states = self.states(params)
        steps = counters(params, states)
        for param, state in zip(params, states, strict=True):
            if "mu_product" not in state:
                new_state(state, "mu_product", (), float32, param, 1)
        products = [state["mu_product"] for state in states]
        firsts = held("exp_avg", params, states)
        seconds = held("exp_avg_sq", params, states)
        lists = (params, steps, products, firsts, seconds, grads)
        return [Update(kernels.nadam, lists, scalars)]


class RAdam(BetasOptimizer):
    """Adam that waits for its estimate of the variance to be worth something (Liu et al., 2020).

    Until then, some five steps, it is momentum without scaling. weight_decay adds
    ``weight_decay * p`` to the gradient, or shrinks p by ``lr * weight_decay`` if
    decoupled_weight_decay. maximize: climb instead. foreach, capturable, differentiable are
    accepted for PyTorch's sake.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> x.grad = ng.tensor([2.0])
    >>> RAdam([x], lr=0.25).step()
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
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ):
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
        }
        super().__init__(params, defaults)

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """One launch."""

        def scalars() -> tuple:
            beta1, beta2 = group["betas"]
            eps, decay = float(group["eps"]), float(group["weight_decay"])
            decoupled = float(bool(group["decoupled_weight_decay"]))
            numbers = float(group["lr"]), float(beta1), float(beta2), eps, decay
            return _direction(group), *numbers, decoupled

        states = self.states(params)
        steps = counters(params, states)
        firsts = held("exp_avg", params, states)
        seconds = held("exp_avg_sq", params, states)
        lists = (params, steps, firsts, seconds, grads)
        return [Update(kernel_of(rules.radam), lists, scalars)]


class Lion(BetasOptimizer):
    """Steps of exactly lr in each coordinate, along the sign of momentum (Chen et al., 2023).

    ``p -= lr * sign(beta1 * m + (1 - beta1) * g)``, then ``m = beta2 * m + (1 - beta2) * g``.
    weight_decay shrinks p by ``lr * weight_decay`` before. lr should be 3 to 10 times smaller than
    Adam's. maximize: climb instead. foreach is accepted for the sake of its peers. PyTorch has no
    Lion; this is the paper's.

    >>> import numbagrad as ng
    >>> x = ng.tensor([1.0], requires_grad=True)
    >>> x.grad = ng.tensor([-0.01])
    >>> Lion([x], lr=0.5).step()
    >>> x.tolist()
    [1.5]
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ):
        defaults = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults)

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """One launch."""

        def scalars() -> tuple:
            beta1, beta2 = group["betas"]
            rate, decay = float(group["lr"]), float(group["weight_decay"])
            return _direction(group), rate, float(beta1), float(beta2), decay

        firsts = held("exp_avg", params, self.states(params))
        return [Update(kernel_of(rules.lion), (params, firsts, grads), scalars)]
