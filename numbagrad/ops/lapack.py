"""``ng.linalg``: inverses, determinants, solutions, norms of matrices, through LAPACK.

Matrices are the last two dimensions; those before are a stack.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import lapack as kernels
from ..tensor import Tensor
from .base import Op, as_operand, broadcast_shape, new_empty
from .chains import matrix_power, multi_dot
from .factorise import eigh, eigvalsh, lstsq, pinv, qr, svd, svdvals
from .lapack_further import (
    cholesky_ex,
    inv_ex,
    matrix_exp,
    solve_ex,
    tensorsolve,
    vander,
)
from .lapack_lu import lu, lu_factor, lu_factor_ex, lu_solve
from .lapack_made import (
    cond,
    cross,
    diagonal,
    matrix_rank,
    solve_triangular,
    tensorinv,
    vecdot,
)
from .linalg import matmul
from .moments import norm as _norm
from .shape import tril

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "inv_ex",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]


class SlogdetResult(NamedTuple):
    """What ``slogdet`` returns."""

    sign: Tensor
    logabsdet: Tensor


class LinAlgError(np.linalg.LinAlgError, RuntimeError):
    """A matrix is singular, or not positive definite: the result does not exist."""


def _square(name: str, x: Any) -> Tensor:
    shape = as_operand(name, x)._array.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(
            f"linalg.{name}: A must be batches of square matrices, but got shape {list(shape)}."
        )
    if not x._dtype.is_floating_point:
        raise DTypeError(
            f"linalg.{name}: Expected a floating point tensor as input. Got {x._dtype}."
        )
    return x


def _launch(name: str, kernel: Any, *arrays: Any) -> None:
    machine.launch(_explaining(name, kernel), *arrays)


@functools.cache
def _explaining(name: str, kernel: Any) -> Any:
    """``kernel`` with errors that name the op."""

    @functools.wraps(kernel)
    def run(*arrays: Any) -> None:
        try:
            kernel(*arrays)
        except np.linalg.LinAlgError as error:
            words = {
                "cholesky": "the input is not positive-definite",
                "solve": "The solver failed because the input matrix is singular",
            }
            reason = words.get(name, "The inversion could not be completed because it is singular")
            raise LinAlgError(f"linalg.{name}: {reason} ({error}).") from None

    return run


class Inv(Op):
    """The inverse of a matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = new_empty(x._array.shape, x._dtype, x._device)
        _launch("inv", kernels.inv, out._array, x._array)
        ctx.save(out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        turned = ctx.saved_tensors[0].mT
        return -matmul(matmul(turned, g), turned)


class Det(Op):
    """The determinant of a matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = new_empty(x._array.shape[:-2], x._dtype, x._device)
        _launch("det", kernels.det, out._array, x._array)
        ctx.save(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, out = ctx.saved_tensors
        return (g * out).unsqueeze(-1).unsqueeze(-1) * inv(x).mT


class Slogdet(Op):
    """The sign of the determinant and the logarithm of its absolute value."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple:
        sign = new_empty(x._array.shape[:-2], x._dtype, x._device)
        logabsdet = new_empty(x._array.shape[:-2], x._dtype, x._device)
        _launch("slogdet", kernels.slogdet, sign._array, logabsdet._array, x._array)
        ctx.save(x)
        return sign, logabsdet

    @staticmethod
    def backward(ctx: Any, _: Tensor, g: Tensor) -> Tensor:
        return g.unsqueeze(-1).unsqueeze(-1) * inv(ctx.saved_tensors[0]).mT


class Solve(Op):
    """The matrix that ``x`` times it is ``y``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        out = new_empty(y._array.shape, y._dtype, y._device)
        _launch("solve", kernels.solve, out._array, x._array, y._array)
        ctx.save(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, out = ctx.saved_tensors
        gy = Solve.apply(x.mT, g)
        return (-matmul(gy, out.mT) if ctx.needs_input_grad[0] else None), gy


class Cholesky(Op):
    """The lower triangle L with ``L L.T = x`` (gradient: Murray, 2016, eq. 10)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = new_empty(x._array.shape, x._dtype, x._device)
        _launch("cholesky", kernels.cholesky, out._array, x._array)
        ctx.save(out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (out,) = ctx.saved_tensors
        product = matmul(out.mT, tril(g))
        # Phi: the lower triangle with half the diagonal.
        middle = (tril(product) + tril(product, -1)) * 0.5
        half = Solve.apply(out.mT, middle)
        full = Solve.apply(out.mT, half.mT)
        return (full + full.mT) * 0.5


# -- functions -------------------------------------------------------------------------------------


def inv(x: Tensor) -> Tensor:
    """The inverses of square matrices. Gradient: ``-out.T g out.T``.

    Raises LinAlgError, a RuntimeError, for a singular matrix.
    """
    return Inv.apply(_square("inv", x))


def det(x: Tensor) -> Tensor:
    """The determinants of square matrices. Gradient: ``g out inv(x).T``."""
    return Det.apply(_square("det", x))


def slogdet(x: Tensor) -> SlogdetResult:
    """The signs of determinants and the logarithms of their absolute values, sign and logabsdet."""
    return SlogdetResult(*Slogdet.apply(_square("slogdet", x)))


def solve(x: Tensor, y: Tensor) -> Tensor:
    """The solution of ``x @ out == y``; y (..., n, m), or one vector (n)."""
    _square("solve", x)
    as_operand("solve", y, 1)
    if x._dtype is not y._dtype:
        raise DTypeError(
            f"linalg.solve: Expected A and B of the same dtype, got {x._dtype} and {y._dtype}."
        )
    n = x._array.shape[-1]
    vector = y._array.ndim == 1
    if vector:
        y = y.unsqueeze(-1)
    if y._array.ndim < 2 or y._array.shape[-2] != n:
        raise ShapeError(
            f"linalg.solve: Incompatible shapes of A {list(x._array.shape)} and B "
            f"{list(y._array.shape)}: B must have {n} rows."
        )
    batch = broadcast_shape("linalg.solve", x._array.shape[:-2], y._array.shape[:-2])
    out = Solve.apply(x.expand((*batch, n, n)), y.expand((*batch, *y._array.shape[-2:])))
    return out.squeeze(-1) if vector else out


def cholesky(x: Tensor, *, upper: bool = False) -> Tensor:
    """The lower (or upper) triangle L of a symmetric positive definite x, ``L @ L.T == x``.

    Raises LinAlgError where x is not positive definite.
    """
    out = Cholesky.apply(_square("cholesky", x))
    return out.mT if upper else out


def vector_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The norm of all elements, or of the vectors along ``dim``."""
    return _norm(x, ord, dim, keepdim)


def matrix_norm(
    x: Tensor, ord: Any = "fro", dim: tuple[int, int] = (-2, -1), keepdim: bool = False
) -> Tensor:
    """The norm of matrices: "fro"; 1, -1, inf, -inf: of the sums of columns or of rows; 2, -2,
    "nuc": the largest, smallest or sum of the singular values.
    """
    if ord == "fro":
        return _norm(x, 2, tuple(dim), keepdim)
    if ord in (2, -2, "nuc"):
        values = svdvals(as_operand("matrix_norm", x).movedim(tuple(dim), (-2, -1)))
        out = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord > 0 else values.amin(-1)
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
    out = sums.amax(rest, keepdim=True) if ord > 0 else sums.amin(rest, keepdim=True)
    return out if keepdim else out.squeeze((rows, columns))


def norm(x: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False) -> Tensor:
    """vector_norm of one dim or of all elements, matrix_norm of two."""
    if ord is None:
        return _norm(x, 2, dim, keepdim)
    if isinstance(dim, int) or (dim is not None and len(dim) == 1):
        return _norm(x, ord, dim, keepdim)
    if dim is None and as_operand("norm", x)._array.ndim == 1:
        return _norm(x, ord, 0, keepdim)
    return matrix_norm(x, ord, (-2, -1) if dim is None else dim, keepdim)
