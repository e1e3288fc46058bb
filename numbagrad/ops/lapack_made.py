"""What ``ng.linalg`` has that is made of others: triangles, ranks, products of vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import lapack as kernels
from ..tensor import Tensor
from .base import Op, as_operand, broadcast_shape, full, new_empty
from .einsum import cross as _cross
from .elementwise import cast, maximum, mul, where
from .factorise import eigvalsh, svdvals
from .linalg import matmul
from .part import diagonal as _diagonal
from .reduce import sum as sum_
from .shape import stack, tril, triu
from .view import reshape

__all__ = [
    "cond",
    "cross",
    "diagonal",
    "matrix_rank",
    "solve_triangular",
    "tensorinv",
    "vecdot",
]


def cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The cross products of vectors of three along ``dim``.

    >>> cross(tensor([1.0, 0.0, 0.0]), tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    ranks = [as_operand("linalg.cross", v, i)._array.ndim for i, v in enumerate((x, y))]
    if ranks[0] != ranks[1]:
        raise ShapeError(
            f"linalg.cross: inputs must have the same number of dimensions, got {ranks[0]} and "
            f"{ranks[1]}."
        )
    return _cross(x, y, dim)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sums of the products of vectors along ``dim``; the other dimensions broadcast.

    >>> vecdot(tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([1.0, 1.0])).tolist()
    [3.0, 7.0]
    """
    dtypes_given = [as_operand("linalg.vecdot", v, i)._dtype for i, v in enumerate((x, y))]
    if dtypes_given[0] is not dtypes_given[1] or not dtypes_given[0].is_floating_point:
        raise DTypeError(
            f"linalg.vecdot: Expected floating point vectors of the same dtype, got "
            f"{dtypes_given[0]} and {dtypes_given[1]}. Convert them with .float()."
        )
    return sum_(mul(x, y), dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A view of the diagonals of matrices, in the last two dimensions unless told otherwise.

    >>> diagonal(tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [1.0, 4.0]
    """
    return _diagonal(as_operand("linalg.diagonal", A), offset, dim1, dim2)


def _matrix(name: str, x: Any, square: bool = False) -> Tensor:
    shape = as_operand(f"linalg.{name}", x)._array.shape
    if len(shape) < 2 or (square and shape[-1] != shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise ShapeError(
            f"linalg.{name}: A must be batches of {kind}, but got shape {list(shape)}."
        )
    if not x._dtype.is_floating_point:
        raise DTypeError(
            f"linalg.{name}: Expected a floating point tensor as input. Got {x._dtype}. Convert it "
            f"with .float()."
        )
    return x


def matrix_rank(
    A: Tensor,
    *,
    atol: Any = None,
    rtol: Any = None,
    hermitian: bool = False,
) -> Tensor:
    """How many singular values are greater than ``max(atol, rtol * the largest)``, int64.

    rtol: by default the larger side times the dtype's epsilon, or 0 where atol is more than 0.
    atol, rtol: numbers, or a tensor with one for each matrix. hermitian: A is symmetric, and so its
    eigenvalues are enough. No gradient.

    >>> matrix_rank(tensor([[1.0, 2.0], [2.0, 4.0]])).item()
    1
    """
    x = _matrix("matrix_rank", A, hermitian).detach()
    values = eigvalsh(x).abs() if hermitian else svdvals(x)
    if rtol is None:
        usual = max(x._array.shape[-2:], default=0) * float(np.finfo(x._dtype.numpy).eps)
        if isinstance(atol, Tensor):
            rtol = where(atol > 0, 0.0, usual)
        else:
            rtol = 0.0 if atol else usual
    if not values._array.shape[-1]:
        return cast(sum_(values, -1), dtypes.int64)
    limit = values.amax(-1, keepdim=True) * _column(rtol)
    if atol is not None:
        limit = maximum(limit, limit * 0 + _column(atol))
    return sum_(values > limit, -1)


def _column(value: Any) -> Any:
    return value.unsqueeze(-1) if isinstance(value, Tensor) else value


def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition numbers of matrices in a norm: ``norm(A, p) * norm(inv(A), p)``.

    p: None or 2 (the largest over the smallest singular value), -2 (the reverse), and for square
    matrices "fro", "nuc", 1, -1, inf or -inf. Infinite for a singular matrix.

    >>> cond(tensor([[2.0, 0.0], [0.0, 1.0]])).item()
    2.0
    """
    from .lapack import LinAlgError, inv, matrix_norm

    orders = (None, 2, -2, 1, -1, math.inf, -math.inf, "fro", "nuc")
    if p not in orders:
        raise ValueError(f"linalg.cond: p must be one of {orders}, got {p!r}.")
    x = _matrix("cond", A, square=p not in (None, 2, -2))
    *batch, n, m = x._array.shape
    if not n * m:
        return full(batch, 0, x._dtype, x._device)
    if p in (None, 2, -2):
        values = svdvals(x)
        largest, smallest = values.amax(-1), values.amin(-1)
        return smallest / largest if p == -2 else largest / smallest
    try:
        return matrix_norm(x, p) * matrix_norm(inv(x), p)
    except LinAlgError:
        if not batch:
            return full((), math.inf, x._dtype, x._device)
        each = reshape(x, (-1, n, m))
        return reshape(stack([cond(each[i], p) for i in range(len(each))]), tuple(batch))


class SolveTriangular(Op):
    """The matrix that a triangle times it is ``y``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, upper: bool, unit: bool) -> Tensor:
        out = new_empty(y._array.shape, y._dtype, y._device)
        arrays = out._array, x._array, y._array
        machine.launch(kernels.solve_triangular, *arrays, int(upper), int(unit))
        ctx.save(x, out)
        ctx.how = upper, unit
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, out = ctx.saved_tensors
        upper, unit = ctx.how
        gy = SolveTriangular.apply(x.mT, g, not upper, unit)
        if not ctx.needs_input_grad[0]:
            return None, gy
        gx = -matmul(gy, out.mT)
        return triu(gx, int(unit)) if upper else tril(gx, -int(unit)), gy


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The solution of ``A @ out == B`` for triangles, or of ``out @ A == B`` without ``left``.

    A (..., n, n), of which the other triangle is not looked at, nor with unitriangular the
    diagonal, which counts as ones; B (..., n, m), or (..., m, n) without ``left``. Gradients to the
    triangle and to B. Infinite or NaN where a number on the diagonal is 0. Raises ShapeError if
    sizes do not fit.

    >>> x = tensor([[2.0, 9.0], [1.0, 1.0]])
    >>> solve_triangular(x, tensor([[2.0], [3.0]]), upper=False).tolist()
    [[1.0], [2.0]]
    """
    x, y = _matrix("solve_triangular", A, square=True), _matrix("solve_triangular", B)
    if x._dtype is not y._dtype:
        raise DTypeError(
            f"linalg.solve_triangular: Expected A and B of the same dtype, got {x._dtype} and "
            f"{y._dtype}. Convert one of them."
        )
    n = x._array.shape[-1]
    if y._array.shape[-2 if left else -1] != n:
        raise ShapeError(
            f"linalg.solve_triangular: Incompatible shapes of A and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({list(x.shape)} and {list(y.shape)})."
        )
    if not left:
        x, y, upper = x.mT, y.mT, not upper
    shapes = x._array.shape[:-2], y._array.shape[:-2]
    batch = broadcast_shape("linalg.solve_triangular", *shapes)
    columns = y._array.shape[-1]
    x, y = x.expand((*batch, n, n)), y.expand((*batch, n, columns))
    out = SolveTriangular.apply(x, y, upper, unitriangular)
    return out if left else out.mT


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The tensor that ``tensordot(out, A, ind)`` is the identity: the inverse of A as a matrix
    whose rows are the first ``ind`` dimensions, reshaped.

    >>> tensorinv(tensor([[2.0]]), 1).tolist()
    [[0.5]]
    """
    from .lapack import inv

    shape = as_operand("linalg.tensorinv", A)._array.shape
    if ind <= 0:
        raise ShapeError(
            f"linalg.tensorinv: Expected a strictly positive integer for 'ind', got {ind}."
        )
    rows, columns = shape[:ind], shape[ind:]
    if math.prod(rows) != math.prod(columns):
        raise ShapeError(
            f"linalg.tensorinv: Expected the first {ind} dimensions to hold as many elements as "
            f"the others, got shape {list(shape)}."
        )
    n = math.prod(rows)
    return reshape(inv(reshape(A, (n, n))), (*columns, *rows))
