"""Losses made of formulas: margins, rankings, counts and normal distributions.

Exported by ``nn.functional``. What they are made of fuses in a compiled function. size_average and
reduce: see ``reduction``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..errors import ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .activation import logsigmoid, relu, softplus
from .autocasting import BOTH, raised
from .base import as_operand, broadcast_shape
from .create import arange
from .distance import pairwise_distance
from .elementwise import clamp, exp, log, minimum, where
from .gather import gathered
from .reduction import reduced, reduction_of
from .remembered import remembered

__all__ = [
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_soft_margin_loss",
    "poisson_nll_loss",
    "soft_margin_loss",
    "triplet_margin_with_distance_loss",
]


def _operands(name: str, *tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors, which broadcast, in the width that losses are computed in."""
    for position, tensor in enumerate(tensors):
        as_operand(name, tensor, position)
    broadcast_shape(name, *(t._array.shape for t in tensors))
    return raised(*tensors, on=BOTH) if machine.autocasting else tensors


@remembered
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, -target (input1 - input2) + margin)``: target is 1 where input1 is to be larger, -1
    where input2 is.

    Three tensors with the same number of dimensions, which broadcast.
    """
    reduction = reduction_of("margin_ranking_loss", reduction, size_average, reduce)
    input1, input2, target = _operands("margin_ranking_loss", input1, input2, target)
    if not input1.dim() == input2.dim() == target.dim():
        shapes = ", ".join(str(list(t.shape)) for t in (input1, input2, target))
        raise ShapeError(
            f"margin_ranking_loss: all tensors should have the same number of dimensions, got "
            f"{shapes}."
        )
    return reduced(clamp(-target * (input1 - input2) + margin, 0), reduction)


@remembered
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``input`` where target is 1, ``max(0, margin - input)`` where it is -1.

    The tensors broadcast. input: distances, as a rule.
    """
    reduction = reduction_of("hinge_embedding_loss", reduction, size_average, reduce)
    input, target = _operands("hinge_embedding_loss", input, target)
    apart = where(target.ne(1), clamp(margin - input, 0), 0)
    return reduced(apart + where(target.ne(-1), input, 0), reduction)


@remembered
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``log(1 + exp(-target input))``, target 1 or -1; the tensors broadcast."""
    reduction = reduction_of("soft_margin_loss", reduction, size_average, reduce)
    input, target = _operands("soft_margin_loss", input, target)
    return reduced(softplus(-target * input), reduction)


@remembered
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of counts: ``exp(input) - target input``.

    log_input: without it input is the rate itself, ``input - target log(input + eps)``. full: with
    Stirling's approximation of ``log(target!)`` where target is over 1.
    """
    reduction = reduction_of("poisson_nll_loss", reduction, size_average, reduce)
    input, target = _operands("poisson_nll_loss", input, target)
    loss = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        large = where(target.gt(1), target, target * 0 + 2)
        rest = large * log(large) - large + 0.5 * log(2 * math.pi * large)
        loss = loss + where(target.gt(1), rest, rest * 0)
    return reduced(loss, reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of normal numbers: ``(log(var) + (input - target)^2 / var) / 2``.

    var: a number, or a tensor as input, without its last dimension, or with one of size 1; at
    least ``eps`` is used, the gradient goes on as if it were not. full: with ``log(2 pi) / 2``.
    Raises ValueError for a negative variance, which compiled functions do not look for.
    """
    as_operand("gaussian_nll_loss", input)
    reduction = reduction_of("gaussian_nll_loss", reduction)
    given = var if isinstance(var, Tensor) else input.detach() * 0 + float(var)
    input, target = _operands("gaussian_nll_loss", input, target)
    (given,) = _operands("gaussian_nll_loss", given)
    shape, other = tuple(input.shape), tuple(given.shape)
    if other != shape:
        if other == shape[:-1]:
            given = given.unsqueeze(-1)
        elif len(other) != len(shape) or [
            b for a, b in zip(shape, other, strict=True) if a != b
        ] != [1]:
            raise ValueError(
                f"gaussian_nll_loss: var is of incorrect size: {list(other)} for an input of "
                f"{list(shape)}."
            )
    held = given.detach()
    if not machine.is_recording() and bool(held.lt(0).any()):
        raise ValueError("gaussian_nll_loss: var has negative entries.")
    given = given + (clamp(held, eps) - held)
    loss = 0.5 * (log(given) + (input - target) ** 2 / given)
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


@remembered
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``sum_j max(0, margin - input[target] + input[j])^p / classes`` over the other classes.

    input (n, classes) with target (n), or (classes) with a target without dimensions; p: 1 or 2;
    weight (classes): of the true class.
    """
    reduction = reduction_of("multi_margin_loss", reduction, size_average, reduce)
    if p not in (1, 2):
        raise ValueError(f"multi_margin_loss: only p == 1 and p == 2 are supported, got {p}.")
    as_operand("multi_margin_loss", target, 1)
    (input,) = _operands("multi_margin_loss", input)
    if input.dim() == 1 and tuple(target.shape) == (1,):
        target = target.reshape(())
    if input.dim() not in (1, 2) or tuple(input.shape[:-1]) != tuple(target.shape):
        raise ShapeError(
            f"multi_margin_loss: expected input (n, classes) and target (n), got "
            f"{list(input.shape)} and {list(target.shape)}."
        )
    classes = input.shape[-1]
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ShapeError(
            f"multi_margin_loss: weight must be of size {classes}, got {list(weight.shape)}."
        )
    true = target.unsqueeze(-1)
    gap = relu(margin - gathered("multi_margin_loss", input, -1, true) + input)
    gap = gap if p == 1 else gap * gap
    if weight is not None:
        gap = gap * weight[target].unsqueeze(-1)
    others = where(arange(classes, device=input.device).ne(true), gap, 0.0)
    return reduced(others.sum(-1) / classes, reduction)


@remembered
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Cross entropy of ``sigmoid(input)`` and target, the mean over the last dimension.

    input, target (..., classes) of one shape; weight: of each class, broadcasts.
    """
    reduction = reduction_of("multilabel_soft_margin_loss", reduction, size_average, reduce)
    input, target = _operands("multilabel_soft_margin_loss", input, target)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if loss._array.shape[-1:] != input._array.shape[-1:]:
        raise ShapeError(
            f"multilabel_soft_margin_loss: input and target must have as many classes. Received "
            f"input {list(input._array.shape)}, target {list(target._array.shape)}."
        )
    if weight is not None:
        loss = loss * weight
    return reduced(loss.mean(-1), reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, margin + d(anchor, positive) - d(anchor, negative))`` for a distance of your own.

    distance_function: of two batches, a number for each pair; by default ``pairwise_distance``.
    swap: the distance of positive and negative where it is the smaller one.
    """
    name = "triplet_margin_with_distance_loss"
    reduction = reduction_of(name, reduction)
    if not margin > 0:
        raise ValueError(f"{name}: margin must be greater than 0, got {margin}.")
    distance: Any = pairwise_distance if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced(clamp(margin + near - far, 0), reduction)
