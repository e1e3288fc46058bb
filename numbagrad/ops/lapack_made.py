"""What ``ng.linalg`` has that is made of others: triangles, ranks, products of vectors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..tensor import Tensor
from .base import as_operand
from .create import eye
from .einsum import cross as _cross
from .elementwise import cast, maximum, mul
from .factorise import eigvalsh, svdvals
from .moments import norm as _norm
from .part import diagonal as _diagonal
from .reduce import sum as sum_
from .shape import tril, triu
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
    return sum_(mul(as_operand("linalg.vecdot", x), as_operand("linalg.vecdot", y, 1)), dim)


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

    rtol: by default the larger side times the dtype's epsilon, or 0 where atol is given. hermitian:
    A is symmetric, and so its eigenvalues are enough. No gradient.

    >>> matrix_rank(tensor([[1.0, 2.0], [2.0, 4.0]])).item()
    1
    """
    x = _matrix("matrix_rank", A, hermitian).detach()
    values = eigvalsh(x).abs() if hermitian else svdvals(x)
    if rtol is None:
        size = max(x._array.shape[-2:], default=0) * float(np.finfo(x._dtype.numpy).eps)
        rtol = 0.0 if atol is not None else size
    if not values._array.shape[-1]:
        return cast(sum_(values, -1), dtypes.int64)
    limit = values.amax(-1, keepdim=True) * (_column(rtol))
    if atol is not None:
        least = _column(atol)
        least = least if isinstance(least, Tensor) else limit * 0 + least
        limit = maximum(limit, least)
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

    if p is None or p in (2, -2):
        values = svdvals(_matrix("cond", A))
        largest, smallest = values.amax(-1), values.amin(-1)
        return smallest / largest if p == -2 else largest / smallest
    x = _matrix("cond", A, square=True)
    try:
        inverse = inv(x)
    except LinAlgError:
        if len(x._array.shape) > 2:
            raise
        return _norm(x) * math.inf
    return matrix_norm(x, p) * matrix_norm(inverse, p)


def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The solution of ``A @ out == B`` for triangles, or of ``out @ A == B`` without ``left``.

    A (..., n, n), of which the other triangle is not looked at, nor with unitriangular the
    diagonal, which counts as ones; B (..., n, m), or (..., m, n) without ``left``. Gradients to the
    triangle and to B. Raises ShapeError if sizes do not fit.

    >>> x = tensor([[2.0, 9.0], [1.0, 1.0]])
    >>> solve_triangular(x, tensor([[2.0], [3.0]]), upper=False).tolist()
    [[1.0], [2.0]]
    """
    from .lapack import solve

    x, y = _matrix("solve_triangular", A, square=True), _matrix("solve_triangular", B)
    n = x._array.shape[-1]
    if y._array.shape[-2 if left else -1] != n:
        raise ShapeError(
            f"linalg.solve_triangular: Incompatible shapes of A and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({list(x.shape)} and {list(y.shape)})."
        )
    off = 1 if unitriangular else 0
    x = triu(x, off) if upper else tril(x, -off)
    if unitriangular:
        x = x + eye(n, dtype=x._dtype, device=x._device)
    return solve(x, y) if left else solve(x.mT, y.mT).mT


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
