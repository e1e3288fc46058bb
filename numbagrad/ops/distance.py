"""Distances of vectors, and the losses made of them; exported by ``nn.functional``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .autocasting import raised
from .axes import DTYPE_WORDS
from .base import as_operand, broadcast_shape
from .elementwise import clamp, minimum, sqrt, where
from .from_data import tensor
from .index import index_select
from .linalg import _operands, matmul
from .moments import norm
from .norm import normalize
from .pointwise import Elementwise
from .reduce import sum
from .reduction import reduced, reduction_of
from .remembered import remembered
from .view import broadcast_tensors

__all__ = ["cdist", "cosine_embedding_loss", "pairwise_distance", "pdist", "triplet_margin_loss"]


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
        x1, x2 = raised(x1, x2)
    as_operand(name, x1)
    as_operand(name, x2, 1)
    broadcast_shape(name, x1._array.shape, x2._array.shape)
    return norm(x1 - x2 + eps, p, -1, keepdim)


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
    first, second = [tensor(i, device=input._device) for i in np.triu_indices(shape[0], 1)]
    differences = index_select(input, 0, first) - index_select(input, 0, second)
    return norm(differences, p if shape[1] else 2.0, -1)  # of nothing all norms are 0


@remembered
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between ``x1`` and ``x2`` along ``dim``; lengths are at least eps.

    Both broadcast; dim is one of their common shape.

    >>> cosine_similarity(tensor([[3.0, 4.0]]), tensor([[4.0, -3.0], [3.0, 4.0]])).tolist()
    [0.0, 1.0]
    """
    as_operand("cosine_similarity", x1)
    as_operand("cosine_similarity", x2, 1)
    place = dim if dim < 0 else dim - max(x1.dim(), x2.dim())
    lengths = [x.shape[place] if -place <= x.dim() else 1 for x in (x1, x2)]
    if lengths[0] == lengths[1] and -place <= min(x1.dim(), x2.dim()):
        dim = place  # and each vector is normalised once, however often it is repeated
    else:
        x1, x2 = broadcast_tensors(x1, x2)
    return sum(normalize(x1, 2.0, dim, eps) * normalize(x2, 2.0, dim, eps), dim)


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

    input1, input2 (n, d) with target (n), or (d) with a target without dimensions.
    """
    if machine.autocasting:
        input1, input2 = raised(input1, input2)
    reduction = reduction_of("cosine_embedding_loss", reduction, size_average, reduce)
    shapes = [tuple(t._array.shape) for t in (input1, input2, target)]
    if len(shapes[2]) > 1 or shapes[0] != shapes[1] or len(shapes[0]) != len(shapes[2]) + 1:
        raise ShapeError(
            f"cosine_embedding_loss: 0D or 1D target tensor expected with 1D or 2D input tensors "
            f"of one size, got target {list(shapes[2])}, input {list(shapes[0])} and "
            f"{list(shapes[1])}."
        )
    if shapes[2] and shapes[2][0] != shapes[0][0]:
        raise ShapeError(
            f"cosine_embedding_loss: target tensor size {list(shapes[2])} must match the number "
            f"of rows of the inputs, {shapes[0][0]}."
        )
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


@remembered
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """The p-norm of each row of ``x1`` (..., n, k) less each of ``x2`` (..., m, k): (..., n, m).

    compute_mode: for p 2, whether the squares are ``|x|^2 + |y|^2 - 2 x y``, a product of matrices,
    which is fast and needs no memory for the differences but loses digits where rows are near each
    other: never, always, or where there are more than 25 rows, which is also None's. The gradient
    is 0 where rows are equal.
    """
    if compute_mode not in COMPUTE_MODES:
        raise ValueError(
            f"cdist: {compute_mode} is not a valid value for compute_mode; use one of "
            f"{', '.join(map(repr, COMPUTE_MODES))}."
        )
    _operands("cdist", x1, x2)
    sizes: Sequence[tuple[int, ...]] = x1._array.shape, x2._array.shape
    if min(len(sizes[0]), len(sizes[1])) < 2 or sizes[0][-1] != sizes[1][-1]:
        raise ShapeError(
            f"cdist: X1 and X2 must have at least two dimensions and the same number of columns. "
            f"Got {list(sizes[0])} and {list(sizes[1])}."
        )
    rows = max(sizes[0][-2], sizes[1][-2])
    if p == 2.0 and rows > COMPUTE_MODES[compute_mode] and x1._dtype.is_floating_point:
        return _by_product(x1, x2)
    return (x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p, -1)


class Apart(Elementwise):
    """sqrt(x + y - 2 z), 0 where rounding makes a square negative; gradient 0 where that is 0."""

    result = "float"

    def formula(x, y, z):
        return math.sqrt(max(x + y - 2 * z, 0))

    def grad_x(g, out):
        return 0 if out == 0 else 0.5 * g / out

    def grad_y(g, out):
        return 0 if out == 0 else 0.5 * g / out

    def grad_z(g, out):
        return 0 if out == 0 else -g / out


def _by_product(x: Tensor, y: Tensor) -> Tensor:
    """Euclidean distances of rows, from their lengths and products."""
    x_square, y_square = (x * x).sum(-1, keepdim=True), (y * y).sum(-1).unsqueeze(-2)
    return Apart.op(x_square, y_square, matmul(x, y.transpose(-2, -1)))


COMPUTE_MODES = {
    "use_mm_for_euclid_dist_if_necessary": 25,
    "use_mm_for_euclid_dist": -1,
    "donot_use_mm_for_euclid_dist": math.inf,
    None: 25,
}
"""What ``cdist`` accepts: from more rows than this on a product of matrices is taken."""
