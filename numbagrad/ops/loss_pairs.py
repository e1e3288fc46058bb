"""Losses of pairs of numbers, of one formula each: differences, and chances.

Each takes ``reduction``: "mean", "sum", or "none" for the losses one by one. size_average and
reduce are PyTorch's older words for it, see ``reduction``.
"""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..errors import DomainError, ShapeError
from ..kernels import formula as scalar
from ..kernels import machine
from ..kernels.cpu.finite import first_outside
from ..tensor import Tensor
from .autocasting import BOTH, CPU, raised
from .base import as_operand, broadcast_shape, contiguous
from .elementwise import cast
from .from_formula import Elementwise
from .reduction import reduced, reduction_of
from .remembered import remembered
from .warned import warn_user

__all__: list[str] = []  # PyTorch has the losses in nn.functional alone


class MseLoss(Elementwise):
    """(x - y) ** 2."""

    def formula(x, y):
        return (x - y) * (x - y)

    def grad_x(g, x, y):
        return 2 * g * (x - y)

    def grad_y(g, x, y):
        return 2 * g * (y - x)


class SmoothL1Loss(Elementwise):
    """Half the square over beta where x and y are nearer than beta, else linear."""

    def formula(x, y, beta):
        d = abs(x - y)
        return 0.5 * d * d / beta if d < beta else d - 0.5 * beta

    # Not through abs, whose second derivative is nothing at 0, where the square's is 2.

    def grad_x(g, x, y, beta):
        return g * (1 if x - y >= beta else -1 if x - y <= -beta else (x - y) / beta)

    def grad_y(g, x, y, beta):
        return g * (1 if y - x >= beta else -1 if y - x <= -beta else (y - x) / beta)


class HuberLoss(Elementwise):
    """Half the square where x and y are nearer than delta, else linear with slope delta."""

    def formula(x, y, delta):
        d = abs(x - y)
        return 0.5 * d * d if d < delta else delta * (d - 0.5 * delta)

    def grad_x(g, x, y, delta):
        return g * (delta if x - y >= delta else -delta if x - y <= -delta else x - y)

    def grad_y(g, x, y, delta):
        return g * (delta if y - x >= delta else -delta if y - x <= -delta else y - x)


class BinaryCrossEntropy(Elementwise):
    """-(y log(x) + (1 - y) log(1 - x)), the logarithms no less than -100."""

    def formula(x, y):
        return -(y * max(math.log(x), -100.0) + (1 - y) * max(math.log1p(-x), -100.0))

    def grad_x(g, x, y):
        return g * (x - y) / max(x * (1 - x), 1e-12)


class BinaryCrossEntropyWithLogits(Elementwise):
    """-(p y log(sigmoid(x)) + (1 - y) log(1 - sigmoid(x))), stable for every x."""

    def formula(x, y, p):
        rest = math.log1p(math.exp(-abs(x))) + max(-x, 0)
        return (1 - y) * x + (1 + (p - 1) * y) * rest

    def grad_x(g, x, y, p):
        return g * ((1 - y) - (1 + (p - 1) * y) * scalar.sigmoid(-x))


class KlDiv(Elementwise):
    """y (log(y) - x), 0 where y is 0, NaN where it is negative."""

    def formula(x, y):
        return 0 * x if y == 0 else y * (math.log(y) - x)

    def grad_x(g, y):
        return -g * y


def _warn_of_sizes(name: str, x: Any, y: Any) -> None:
    """Warn where input and target broadcast: a column less a row is a matrix, rarely meant."""
    if isinstance(x, Tensor) and isinstance(y, Tensor) and x._array.shape != y._array.shape:
        warn_user(
            f"{name}: Using a target size ({list(y._array.shape)}) that is different to the input "
            f"size ({list(x._array.shape)}). They broadcast, which is likely to be wrong. Reshape "
            f"one of them."
        )


def _weighed(name: str, losses: Tensor, input: Tensor, weight: Tensor, reduction: str) -> Tensor:
    """``losses * weight``, reduced; a mean divides by the sum of the weights."""
    if as_operand(name, weight, 2)._array.shape != input._array.shape:
        raise ShapeError(
            f"{name}: Weights and input must have the same size. Received weight "
            f"{list(weight._array.shape)} and input {list(input._array.shape)}: expand weight."
        )
    losses = losses * weight
    return losses.sum() / weight.sum() if reduction == "mean" else reduced(losses, reduction)


@remembered
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The squares of ``input - target``; reduction "mean", "sum" or "none".

    weight: a factor of each loss, of input's shape; a mean divides by the sum of them. Sizes that
    differ broadcast, with a warning.
    """
    if machine.autocasting:
        input, target = raised(input, target, on=CPU)
    _warn_of_sizes("mse_loss", input, target)
    reduction = reduction_of("mse_loss", reduction, size_average, reduce)
    losses = MseLoss.op(input, target)
    if weight is None:
        return reduced(losses, reduction)
    return _weighed("mse_loss", losses, input, weight, reduction)


@remembered
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The absolute values of ``input - target``; its gradient is 0 where they are equal.

    weight: as in ``mse_loss``.
    """
    if machine.autocasting:
        input, target = raised(input, target, on=BOTH)
    _warn_of_sizes("l1_loss", input, target)
    reduction = reduction_of("l1_loss", reduction, size_average, reduce)
    first, second = as_operand("l1_loss", input), as_operand("l1_loss", target, 1)
    broadcast_shape("l1_loss", first._array.shape, second._array.shape)
    losses = (input - target).abs()
    if weight is None:
        return reduced(losses, reduction)
    return _weighed("l1_loss", losses, input, weight, reduction)


@remembered
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """l1_loss, rounded off: half the square over beta where the two are nearer than beta."""
    if machine.autocasting:
        input, target = raised(input, target, on=CPU)
    reduction = reduction_of("smooth_l1_loss", reduction, size_average, reduce)
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta must not be negative, got {beta}.")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    _warn_of_sizes("smooth_l1_loss", input, target)
    return reduced(SmoothL1Loss.op(input, target, beta), reduction)


@remembered
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Half the square of the difference up to delta, then linear (Huber, 1964).

    weight: a factor of each loss, of input's shape; a mean divides by their number all the same.
    """
    if machine.autocasting:
        input, target = raised(input, target, on=CPU)
    reduction = reduction_of("huber_loss", reduction)
    if delta <= 0:
        raise ValueError(f"huber_loss: delta must be positive, got {delta}.")
    _warn_of_sizes("huber_loss", input, target)
    losses = HuberLoss.op(input, target, delta)
    if weight is None:
        return reduced(losses, reduction)
    each = _weighed("huber_loss", losses, input, weight, "none")
    return reduced(each, reduction)


@remembered
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``-(y log(x) + (1 - y) log(1 - x))`` of probabilities, the logarithms no less than -100.

    Raises ShapeError if the shapes differ, DomainError for an input outside of [0, 1]. Prefer
    binary_cross_entropy_with_logits: it is exact where a probability rounds to 0 or 1.
    """
    if machine.autocasting:
        input, target = raised(input, target, on=CPU)
    reduction = reduction_of("binary_cross_entropy", reduction, size_average, reduce)
    _equal_shapes("binary_cross_entropy", input, target)
    _check_chances("binary_cross_entropy", input)
    losses = BinaryCrossEntropy.op(input, target)
    return reduced(losses if weight is None else losses * weight, reduction)


def _check_chances(name: str, x: Tensor) -> None:
    """Raise if an element is not in [0, 1], or NaN."""
    x = contiguous(x.detach())
    array = (cast(x, dtypes.float32) if x._dtype.itemsize == 2 else x)._array
    bad = machine.empty((1,), dtypes.int64.numpy, x._device)
    machine.launch(first_outside, bad, array.reshape((array.size,)), 0.0, 1.0)

    def fail(position: int) -> None:
        raise DomainError(
            f"{name}: all elements of input should be between 0 and 1, element {position} (of "
            f"{list(array.shape)}, row by row) is not. Pass sigmoid of the logits, or use "
            f"{name}_with_logits."
        )

    machine.check(bad, fail)


@remembered
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """binary_cross_entropy of ``sigmoid(input)``, computed from the logits.

    weight: of each loss; pos_weight: of the losses of positives; both broadcast.
    Gradient: ``sigmoid(input) - target`` without weights. Raises ShapeError if the shapes differ.
    """
    if machine.autocasting:
        input, target = raised(input, target, on=CPU)
    name = "binary_cross_entropy_with_logits"
    reduction = reduction_of(name, reduction, size_average, reduce)
    _equal_shapes(name, input, target)
    positive = 1.0 if pos_weight is None else pos_weight
    losses = BinaryCrossEntropyWithLogits.op(input, target, positive)
    return reduced(losses if weight is None else losses * weight, reduction)


def _equal_shapes(name: str, x: Any, y: Any) -> None:
    shapes = as_operand(name, x)._array.shape, as_operand(name, y, 1)._array.shape
    if shapes[0] != shapes[1]:
        raise ShapeError(
            f"{name}: Target size ({list(shapes[1])}) must be the same as input size "
            f"({list(shapes[0])}). Reshape one of them."
        )


@remembered
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """``y (log(y) - x)``: the divergence of probabilities y from log-probabilities x.

    log_target: the target holds logarithms too. reduction "batchmean" divides the sum by the size
    of the first dimension, which makes it the mathematical divergence; "mean" does not.
    """
    if machine.autocasting:
        input, target = raised(input, target, on=BOTH)
    if reduction != "batchmean" or (size_average, reduce) != (None, None):
        reduction = reduction_of("kl_div", reduction, size_average, reduce)
    losses = target.exp() * (target - input) if log_target else KlDiv.op(input, target)
    if reduction == "batchmean":
        return losses.sum() / (input._array.shape[0] if input._array.ndim else 1)
    return reduced(losses, reduction)
