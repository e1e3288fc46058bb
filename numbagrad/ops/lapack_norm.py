"""``ng.linalg``: norms of vectors and matrices, ranks, condition numbers."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..errors import DimError
from ..tensor import Tensor
from .base import as_operand, full
from .comparison import ne
from .elementwise import cast, masked_fill, maximum, where
from .lapack_arguments import matrix
from .lapack_solve import inv_ex
from .moments import norm as _norm
from .reduce import sum as sum_
from .spectra import eigvalsh, svdvals

__all__ = ["cond", "matrix_norm", "matrix_rank", "norm", "vector_norm"]


def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The norm of all elements, or of the vectors along ``dim``. dtype: of what x is taken as."""
    return _norm(_taken_as("vector_norm", x, dtype), ord, dim, keepdim)


def _taken_as(name: str, x: Tensor, dtype: Any) -> Tensor:
    return x if dtype is None else cast(as_operand(name, x), dtype)


def matrix_norm(
    x: Tensor,
    ord: Any = "fro",
    dim: tuple[int, int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """The norm of matrices: "fro"; 1, -1, inf, -inf: of the sums of columns or of rows; 2, -2,
    "nuc": the largest, smallest or sum of the singular values. dtype: of what x is taken as.
    """
    x = _taken_as("matrix_norm", x, dtype)
    if ord == "fro":
        return _norm(x, 2, tuple(dim), keepdim)
    if ord in (2, -2, "nuc"):
        values = svdvals(as_operand("matrix_norm", x).movedim(tuple(dim), (-2, -1)))
        out = values.sum(-1) if ord == "nuc" else _extreme(values, -1, ord)
        if keepdim:
            for d in sorted(d % x._array.ndim for d in dim):
                out = out.unsqueeze(d)
        return out
    if not isinstance(ord, (int, float)) or abs(ord) not in (1, math.inf):
        raise ValueError(
            f"linalg.matrix_norm: Order {ord!r} not supported; use 'fro', 'nuc', 1, -1, 2, -2, inf "
            f"or -inf."
        )
    rows, columns = (d % x._array.ndim for d in dim)
    summed, rest = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = x.abs().sum(summed, keepdim=True)
    out = _extreme(sums, rest, ord, True)
    return out if keepdim else out.squeeze((rows, columns))


def _extreme(values: Tensor, dim: int, ord: float, keepdim: bool = False) -> Tensor:
    """The largest of no negative values along ``dim``, 0 of none; the smallest for ``ord`` < 0."""
    if values._array.shape[dim]:
        return values.amax(dim, keepdim) if ord > 0 else values.amin(dim, keepdim)
    if ord < 0:
        raise DimError(
            f"linalg.matrix_norm: Expected reduction dim to have non-zero size for order {ord}, "
            f"which is the smallest of them. Received {list(values._array.shape)} at dim {dim}."
        )
    return values.sum(dim, keepdim)


def norm(
    x: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """vector_norm of one dim or of all elements, matrix_norm of two. dtype: of what x is taken as.

    Raises DimError for an order without ``dim`` and more than two dimensions.
    """
    x = _taken_as("norm", x, dtype)
    if ord is None:
        return _norm(x, 2, dim, keepdim)
    if isinstance(dim, int) or (dim is not None and len(dim) == 1):
        return _norm(x, ord, dim, keepdim)
    if dim is None and as_operand("norm", x)._array.ndim == 1:
        return _norm(x, ord, 0, keepdim)
    if dim is None and x._array.ndim != 2:
        raise DimError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
            f"{x._array.ndim}D. Pass dim=(-2, -1) for the norms of matrices."
        )
    return matrix_norm(x, ord, (-2, -1) if dim is None else dim, keepdim)


def matrix_rank(
    A: Tensor,
    tol: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
) -> Tensor:
    """How many singular values are greater than ``max(atol, rtol * the largest)``, int64.

    rtol: by default the larger side times the dtype's epsilon, or 0 where atol is more than 0.
    atol, rtol: numbers, or a tensor with one for each matrix. tol: atol with an rtol of 0, as in
    older code. hermitian: A is symmetric, and so its
    eigenvalues are enough. No gradient.

    >>> matrix_rank(tensor([[1.0, 2.0], [2.0, 4.0]])).item()
    1
    """
    x = matrix("matrix_rank", A, square=hermitian).detach()
    if tol is not None:
        if atol is not None or rtol is not None:
            raise TypeError("linalg.matrix_rank: tol stands for atol and rtol; pass it alone.")
        atol, rtol = tol, 0.0
    values = eigvalsh(x).abs() if hermitian else svdvals(x)
    if rtol is None:
        usual = max(x._array.shape[-2:], default=0) * dtypes.finfo(x._dtype).eps
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
    orders = (None, 2, -2, 1, -1, math.inf, -math.inf, "fro", "nuc")
    if p not in orders:
        raise ValueError(f"linalg.cond: p must be one of {orders}, got {p!r}.")
    x = matrix("cond", A, square=p not in (None, 2, -2))
    *batch, n, m = x._array.shape
    if not n * m:
        return full(batch, 0, x._dtype, x._device)
    if p in (None, 2, -2):
        values = svdvals(x)
        largest, smallest = values.amax(-1), values.amin(-1)
        return smallest / largest if p == -2 else largest / smallest
    inverse, info = inv_ex(x)
    singular = ne(info, 0)
    inverse = masked_fill(inverse, singular.unsqueeze(-1).unsqueeze(-1), 0.0)
    return masked_fill(matrix_norm(x, p) * matrix_norm(inverse, p), singular, math.inf)
