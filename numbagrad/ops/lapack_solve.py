"""``ng.linalg``: inverses, solutions of equations, and Cholesky's triangles.

Each comes in two forms: one that raises LinAlgError where there is no result, and one named
``_ex`` that returns NaN there and says so by a number.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import lapack as kernels
from ..tensor import Tensor
from .base import Op, as_operand, broadcast_shape, new_empty, same_device
from .lapack_arguments import LinAlgError, equation, matrix, of_batch, of_each
from .linalg import matmul
from .shape import tril, triu
from .transpose import movedim
from .view import reshape

__all__ = [
    "cholesky",
    "cholesky_ex",
    "inv",
    "inv_ex",
    "solve",
    "solve_ex",
    "solve_triangular",
    "tensorinv",
    "tensorsolve",
]

REASONS = {
    kernels.inv: "The diagonal element {} is zero, the inversion could not be completed because "
    "the input matrix is singular.",
    kernels.solve: "The solver failed because the input matrix is singular.",
    kernels.cholesky: "The factorization could not be completed because the input is not "
    "positive-definite (the leading minor of order {} is not positive-definite).",
}


@functools.cache
def _raising(kernel: Any, name: str) -> Any:
    """``kernel``, which raises LinAlgError in the name of an op where its info is not 0."""

    @functools.wraps(kernel)
    def run(out: Any, info: Any, *arrays: Any) -> None:
        kernel(out, info, *arrays)
        if not info.any():
            return
        first = next(place for place, value in np.ndenumerate(info) if value)
        where = f"(Batch element {', '.join(map(str, first))}): " if first else ""
        raise LinAlgError(f"linalg.{name}: {where}{REASONS[kernel].format(info[first])}")

    return run


def _result(kernel: Any, raising: str | None, shape: tuple, *inputs: Tensor) -> tuple:
    """What ``kernel`` makes of matrices, and info: one number for each matrix."""
    x = inputs[0]
    out = new_empty(shape, x._dtype, x._device)
    info = new_empty(x._array.shape[:-2], dtypes.int32, x._device)
    call = kernel if raising is None else _raising(kernel, raising)
    machine.launch(call, out._array, info._array, *(v._array for v in inputs))
    return out, info


def new_factors(x: Tensor) -> tuple[Tensor, Tensor]:
    """Room for the LU factors of square matrices, and for the exchanges of their rows."""
    shape = x._array.shape
    pivots = new_empty(shape[:-1], dtypes.int32, x._device)
    return new_empty(shape, x._dtype, x._device), pivots


class Inv(Op):
    """The inverses of matrices, and info. raising: the op that raises where there is none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, raising: str | None) -> tuple:
        out, info = _result(kernels.inv, raising, x._array.shape, x)
        ctx.save(out)
        return out, info

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any = None) -> Tensor:
        turned = ctx.saved_tensors[0].mT
        return -matmul(matmul(turned, g), turned)


class Solve(Op):
    """The matrices that ``x`` times them is ``y``, and info."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, raising: str | None) -> tuple:
        known = new_factors(x)
        out, info = _result(kernels.solve, raising, y._array.shape, *known, x, y)
        ctx.save(x, out, *known)
        return out, info

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any = None) -> tuple:
        x, out, *known = ctx.saved_tensors
        gy = SolveAgain.apply(x, g, *known, True)
        return (-matmul(gy, out.mT) if ctx.needs_input_grad[0] else None), gy


class SolveAgain(Op):
    """``Solve`` with a matrix whose LU factors and exchanges are known. turned: with x.T."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, factors: Tensor, pivots: Tensor, turned: bool
    ) -> Tensor:
        out = new_empty(y._array.shape, y._dtype, y._device)
        arrays = factors._array, pivots._array, y._array
        machine.launch(kernels.lu_solved, out._array, *arrays, int(turned))
        ctx.save(x, out, factors, pivots)
        ctx.turned = turned
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, out, *known = ctx.saved_tensors
        gy = SolveAgain.apply(x, g, *known, not ctx.turned)
        if not ctx.needs_input_grad[0]:
            return None, gy
        return -(matmul(out, gy.mT) if ctx.turned else matmul(gy, out.mT)), gy


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


class Cholesky(Op):
    """The lower triangles L with ``L L.T = x``, and info (gradient: Murray, 2016, eq. 10)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, raising: str | None) -> tuple:
        out, info = _result(kernels.cholesky, raising, x._array.shape, x)
        ctx.save(out)
        return out, info

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any = None) -> Tensor:
        (out,) = ctx.saved_tensors
        product = matmul(out.mT, tril(g))
        middle = (tril(product) + tril(product, -1)) * 0.5  # half the diagonal
        half = SolveTriangular.apply(out.mT, middle, True, False)
        full = SolveTriangular.apply(out.mT, half.mT, True, False)
        return (full + full.mT) * 0.5


# -- functions -------------------------------------------------------------------------------------


class InvEx(NamedTuple):
    """Inverses, and 0 or the first number on the diagonal of the factor U that is 0, from 1 on."""

    inverse: Tensor
    info: Tensor


class CholeskyEx(NamedTuple):
    """Triangles, and 0 or the size of the first leading part that is not positive definite."""

    L: Tensor
    info: Tensor


class SolveEx(NamedTuple):
    """Solutions, and info as for ``inv_ex``."""

    result: Tensor
    info: Tensor


def inv(x: Tensor) -> Tensor:
    """The inverses of square matrices. Gradient: ``-out.T g out.T``.

    Raises LinAlgError, a RuntimeError, for a singular matrix.
    """
    return Inv.apply(matrix("inv", x, square=True), "inv")[0]


def inv_ex(A: Tensor, *, check_errors: bool = False) -> InvEx:
    """The inverses of square matrices, NaN for singular ones, which info names.

    check_errors: raise LinAlgError for those. Gradient as of ``inv``.

    >>> inv_ex(tensor([[2.0]])).inverse.tolist()
    [[0.5]]
    """
    x = matrix("inv_ex", A, square=True)
    return InvEx(*Inv.apply(x, "inv_ex" if check_errors else None))


def solve(x: Tensor, y: Tensor, *, left: bool = True) -> Tensor:
    """The solution of ``x @ out == y``; left=False: of ``out @ x == y``.

    y (..., n, m), or one vector (n), or a stack of vectors beside a stack of matrices. Raises
    LinAlgError, a RuntimeError, for a singular matrix.
    """
    return _solved("solve", x, y, left, "solve")[0]


def _solved(name: str, A: Tensor, B: Tensor, left: bool, raising: str | None) -> tuple:
    x, y, vector = equation(name, A, B, left)
    out, info = Solve.apply(x, y, raising)
    out = out if left else out.mT
    return out.squeeze(-1) if vector else out, info


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveEx:
    """The solution of ``A @ out == B``, NaN for singular matrices, which info names.

    B (..., n, m), or one vector (n), or a stack of vectors beside a stack of matrices. left=False:
    of ``out @ A == B``. check_errors: raise LinAlgError for singular ones. Gradient as of
    ``solve``.

    >>> solve_ex(tensor([[2.0]]), tensor([4.0])).result.tolist()
    [2.0]
    """
    raising = "solve_ex" if check_errors else None
    out, info = _solved("solve_ex", A, B, left, raising)
    return SolveEx(out, of_each(info, A._array.shape[:-2]))


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
    x, y = matrix("solve_triangular", A, square=True), matrix("solve_triangular", B)
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
    out = SolveTriangular.apply(of_batch(x, batch), of_batch(y, batch), upper, unitriangular)
    return out if left else out.mT


def cholesky(x: Tensor, *, upper: bool = False) -> Tensor:
    """The lower (or upper) triangle L of a symmetric positive definite x, ``L @ L.T == x``.

    Raises LinAlgError where x is not positive definite.
    """
    return _triangle("cholesky", x, upper, "cholesky")[0]


def _triangle(name: str, A: Tensor, upper: bool, raising: str | None) -> tuple:
    x = matrix(name, A, square=True)
    out, info = Cholesky.apply(x.mT if upper else x, raising)
    return out.mT if upper else out, info


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:
    """The triangles of ``cholesky``, NaN for what is not positive definite, which info names.

    check_errors: raise LinAlgError for those. Gradient as of ``cholesky``.

    >>> cholesky_ex(tensor([[4.0]])).L.tolist()
    [[2.0]]
    """
    raising = "cholesky_ex" if check_errors else None
    return CholeskyEx(*_triangle("cholesky_ex", A, upper, raising))


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The tensor that ``tensordot(out, A, ind)`` is the identity: the inverse of A as a matrix
    whose rows are the first ``ind`` dimensions, reshaped.

    >>> tensorinv(tensor([[2.0]]), 1).tolist()
    [[0.5]]
    """
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


def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """The tensor for which ``tensordot(A, out, out.dim()) == B``.

    The first dimensions of A are those of B, the others those of the result, with as many elements
    in all. dims: dimensions of A that are moved behind the others first. Raises LinAlgError for a
    singular A.

    >>> tensorsolve(tensor([[2.0]]), tensor([6.0])).tolist()
    [3.0]
    """
    x, y = as_operand("linalg.tensorsolve", A), as_operand("linalg.tensorsolve", B, 1)
    same_device("linalg.tensorsolve", (x, y))
    if dims is not None:
        dims = tuple(dims)
        x = movedim(x, dims, tuple(range(-len(dims), 0)))
    rows, columns = x._array.shape[: y._array.ndim], x._array.shape[y._array.ndim :]
    n = math.prod(columns)
    if math.prod(rows) != n or math.prod(y._array.shape) != n:
        raise ShapeError(
            f"linalg.tensorsolve: Expected self to satisfy the requirement "
            f"prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got {n} != "
            f"{math.prod(rows)} for A {list(x.shape)} and B {list(y.shape)}."
        )
    return reshape(solve(reshape(x, (n, n)), reshape(y, (n,))), columns)
