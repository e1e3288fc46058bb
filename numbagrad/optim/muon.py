"""Muon: momentum whose direction is made orthogonal, for the weight matrices of a network."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..autograd.modes import no_grad
from ..kernels import machine
from ..ops.linalg import addmm, matmul
from ..tensor import Tensor
from . import rules
from .optimizer import Optimizer, Update, held, positive
from .rules import kernel_of

__all__ = ["Muon"]


class Muon(Optimizer):
    """SGD with momentum whose steps have all singular values near one (Jordan et al., 2024).

    ``b += (1 - momentum) * (g - b)``; the step is b, or g moved towards b by momentum if nesterov,
    put through ns_steps of a Newton-Schulz iteration with the polynomial ns_coefficients.
    weight_decay shrinks p by ``lr * weight_decay``. adjust_lr_fn: "original" (also None) multiplies
    the step by ``sqrt(max(1, rows / columns))``, "match_rms_adamw" by
    ``0.2 * sqrt(max(rows, columns))`` (Liu et al., 2025).

    Parameters must be matrices: give biases and embeddings to another optimiser. The iteration
    runs in the dtype of the parameter, where PyTorch rounds it to bfloat16, so that steps agree
    with PyTorch's to about 1 %.

    >>> import numbagrad as ng
    >>> x = ng.zeros(2, 2).requires_grad_()
    >>> x.grad = ng.tensor([[3.0, 0.0], [0.0, 1.0]])
    >>> Muon([x], lr=0.1, weight_decay=0.0).step()
    >>> x[0, 0].item() < 0 and x[1, 1].item() < 0
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ):
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)

    def check(self, group: dict[str, Any]) -> None:
        """Raise ValueError for options out of range and for parameters that are no matrices."""
        positive("Muon", group, "lr", "weight_decay", "momentum", "eps")
        if group["adjust_lr_fn"] not in (None, "original", "match_rms_adamw"):
            raise ValueError(
                f"Muon: Adjust learning rate function {group['adjust_lr_fn']} is not supported. "
                f"Use 'original' or 'match_rms_adamw'."
            )
        if not 0 <= group["ns_steps"] < 100:
            raise ValueError(f"Muon: Number of steps must be less than 100: {group['ns_steps']}.")
        if len(group["ns_coefficients"]) != 3:
            raise ValueError("Muon: ns_coefficients must be exactly 3 values.")
        for param in group["params"]:
            if param.dim() != 2:
                raise ValueError(
                    f"Muon only supports 2D parameters whereas we found a parameter with size: "
                    f"{param.size()}. Give it to another optimizer, AdamW say."
                )

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """The directions as products of matrices, then one launch for each shape's rate."""
        names = ("momentum", "nesterov", "ns_coefficients", "eps", "ns_steps")
        momentum, nesterov, coefficients, eps, count = machine.depends(
            lambda: tuple(group[name] for name in names)
        )
        buffers = held("momentum_buffer", params, self.states(params))
        by_shape: dict[tuple[int, ...], tuple[list[Tensor], list[Tensor]]] = {}
        with no_grad():
            for param, buffer, grad in zip(params, buffers, grads, strict=True):
                buffer.lerp_(grad, 1 - momentum)
                direction = grad.lerp(buffer, momentum) if nesterov else buffer
                moved, steps = by_shape.setdefault(tuple(param.shape), ([], []))
                moved.append(param)
                steps.append(orthogonal(direction, coefficients, count, eps))
        return [
            Update(kernel_of(rules.sgd), lists, _scalars(group, *shape))
            for shape, lists in by_shape.items()
        ]


def _scalars(group: dict[str, Any], rows: int, columns: int) -> Any:
    """What ``rules.sgd`` reads, so that only the step is scaled, not the decay."""

    def scalars() -> tuple:
        if group["adjust_lr_fn"] == "match_rms_adamw":
            factor = 0.2 * math.sqrt(max(rows, columns))
        else:
            factor = math.sqrt(max(1, rows / max(columns, 1)))
        return 1.0, float(group["lr"]) * factor, float(group["weight_decay"]) / factor

    return scalars


def orthogonal(
    x: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Tensor:
    """The matrix x with its singular values moved towards one, its singular vectors kept.

    Each step takes x to ``a x + (b s + c s s) x`` with ``s = x x.T`` (Jordan et al., 2024).
    """
    a, b, c = coefficients
    tall = x.size(0) > x.size(1)
    x = x.t() if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        square = matmul(x, x.t())
        x = addmm(x, addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.t() if tall else x
