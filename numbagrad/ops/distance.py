"""Distances of vectors, and the losses made of them; exported by ``nn.functional``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import distances as kernels
from ..tape import grad_mode
from ..tensor import Tensor
from .autocasting import BOTH, GPU, raised
from .axes import DTYPE_WORDS
from .base import Op, as_operand, broadcast_shape, constant, contiguous, new_empty, zeros_like
from .elementwise import clamp, minimum, sqrt, where
from .index import index_add, index_select
from .moments import norm
from .reduction import reduced, reduction_of
from .remembered import remembered
from .row_distances import has_kernel, slopes
from .transpose import transpose
from .view import unsqueeze

__all__ = ["cosine_embedding_loss", "pairwise_distance", "pdist", "triplet_margin_loss"]


@remembered
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of ``x1 - x2 + eps`` along the last dimension; the tensors broadcast.

    >>> pairwise_distance(tensor([[3.0, 4.0]]), tensor([[0.0, 0.0]]), eps=0.0).tolist()
    [5.0]
    """
    return _distance("pairwise_distance", x1, x2, p, eps, keepdim)


def _distance(
    name: str, x1: Tensor, x2: Tensor, p: float, eps: float, keepdim: bool = False
) -> Tensor:
    """``pairwise_distance`` for the operation ``name``."""
    if machine.autocasting:
        x1, x2 = raised(x1, x2, on=BOTH if "margin" in name else GPU)
    as_operand(name, x1)
    as_operand(name, x2, 1)
    broadcast_shape(name, x1._array.shape, x2._array.shape)
    return norm(x1 - x2 + eps, p, -1, keepdim)


@remembered
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm of the difference of each two rows of a matrix (n, m): n (n - 1) / 2 numbers.

    In the order 0 and 1, 0 and 2, and so on. p: not negative; 0 counts the differences that are not
    zero. Differentiable to any order, for p over 1; the gradient is 0 where rows are equal.

    >>> pdist(tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).tolist()
    [5.0, 1.0, 4.242640495300293]
    """
    shape = as_operand("pdist", input)._array.shape
    if len(shape) != 2:
        raise ShapeError(f"pdist: pdist only supports 2D tensors, got: {len(shape)}D.")
    if not input._dtype.is_floating_point:
        raise DTypeError(
            f"pdist: pdist only supports floating-point dtypes, got "
            f"{DTYPE_WORDS[input._dtype.name]}. Convert with .float()."
        )
    if p < 0:
        raise ValueError(f"pdist: pdist only supports non-negative p values, got {p}.")
    if machine.autocasting:
        (input,) = raised(input)
    if p in (1.0, 2.0) and has_kernel(input):
        return PairDistances.apply(input, int(p))
    first, second = _pairs(input)
    differences = index_select(input, 0, first) - index_select(input, 0, second)
    return norm(differences, p if shape[1] else 2.0, -1)  # of nothing all norms are 0


def _pairs(x: Tensor) -> list[Tensor]:
    """The first and the second row of each pair of ``pdist``."""
    return [constant(i, dtypes.int64, x) for i in np.triu_indices(x._array.shape[0], 1)]


class PairDistances(Op, remembers=True):
    """The distances of order ``p``, 1 or 2, of each two rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: int) -> Tensor:
        n = x._array.shape[0]
        out = new_empty((n * (n - 1) // 2,), x._dtype, x._device)
        if out._array.size:
            arrays = [contiguous(v)._array for v in (x, transpose(x.detach(), 0, 1))]
            machine.launch(kernels.pdist, out._array, *arrays, p)
        ctx.p = p
        ctx.save(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, out = ctx.saved_tensors
        if grad_mode.enabled:
            first, second = _pairs(x)
            ends = index_select(x, 0, first), index_select(x, 0, second)
            each = slopes(unsqueeze(g, -1), *ends, out, ctx.p)
            return index_add(index_add(zeros_like(x), 0, first, each), 0, second, -each)
        gx = new_empty(x._array.shape, x._dtype, x._device)
        if gx._array.size:
            arrays = [contiguous(v)._array for v in (g, out, x)]
            machine.launch(kernels.pdist_grad, gx._array, *arrays, ctx.p)
        return gx


@remembered
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``1 - cos`` of the angle where target is 1, ``max(0, cos - margin)`` where it is -1.

    input1, input2 (n, d) with target (n), or (d) with a target without dimensions; sizes of 1 are
    broadcast.
    """
    if machine.autocasting:
        input1, input2 = raised(input1, input2, on=BOTH)
    reduction = reduction_of("cosine_embedding_loss", reduction, size_average, reduce)
    shapes = [tuple(t._array.shape) for t in (input1, input2, target)]
    first, second, last = map(len, shapes)
    if last > 1 or not first == second == last + 1:
        raise ShapeError(
            f"cosine_embedding_loss: 0D or 1D target tensor expected with 1D or 2D input tensors "
            f"of one size, got target {list(shapes[2])}, input {list(shapes[0])} and "
            f"{list(shapes[1])}."
        )
    rows = broadcast_shape("cosine_embedding_loss", *shapes[:2])[:-1]
    broadcast_shape("cosine_embedding_loss", rows, shapes[2])
    lengths = ((input1 * input1).sum(-1) + 1e-12) * ((input2 * input2).sum(-1) + 1e-12)
    cosine = (input1 * input2).sum(-1) / sqrt(lengths)
    apart = where(target.eq(-1), clamp(cosine - margin, 0), cosine * 0)
    return reduced(where(target.eq(1), 1 - cosine, apart), reduction)


@remembered
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, margin + |anchor - positive| - |anchor - negative|)`` (Balntas et al., 2016).

    (n, d) or (d) each. swap: the distance of positive and negative where it is the smaller one.
    """
    reduction = reduction_of("triplet_margin_loss", reduction, size_average, reduce)
    if not margin > 0:
        raise ValueError(f"triplet_margin_loss: margin must be greater than 0, got {margin}.")
    name = "triplet_margin_loss"
    near: Any = _distance(name, anchor, positive, p, eps)
    far: Any = _distance(name, anchor, negative, p, eps)
    if swap:
        far = minimum(far, _distance(name, positive, negative, p, eps))
    gap = margin + near - far
    return reduced(clamp(gap, 0), reduction)
