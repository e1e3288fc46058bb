"""More of ``ng.linalg``: exponentials, equations of tensors, and forms that do not raise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import lapack as kernels
from ..tensor import Tensor
from .base import Op, as_operand, new_empty, same_device, zeros_like
from .factorise import _matrix, powers
from .linalg import matmul
from .part import narrow
from .shape import cat, tril
from .view import movedim, reshape

__all__ = [
    "cholesky_ex",
    "inv_ex",
    "matrix_exp",
    "solve_ex",
    "tensorsolve",
    "vander",
]


class MatrixExp(Op):
    """The exponential of square matrices.

    Gradient: the corner of the exponential of a matrix of twice the size (Najfeld and Havel, 1995).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = new_empty(x._array.shape, x._dtype, x._device)
        machine.launch(kernels.matrix_exp, out._array, x._array)
        ctx.save(x)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        n = x._array.shape[-1]
        turned = x.mT
        above = cat([turned, g], -1)
        below = cat([zeros_like(turned), turned], -1)
        found = MatrixExp.apply(cat([above, below], -2))
        return narrow(narrow(found, -2, 0, n), -1, n, n)


def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of square matrices, ``1 + A + A @ A / 2 + ...``.

    A (..., n, n), floating. Gradient of any order, from matrices of twice the size.

    >>> matrix_exp(tensor([[0.0, 2.0], [0.0, 0.0]])).tolist()
    [[1.0, 2.0], [0.0, 1.0]]
    """
    x = _matrix("matrix_exp", A, square=True)
    return MatrixExp.apply(x) if x._array.size else x.clone()


def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """The tensor for which ``tensordot(A, out, out.dim()) == B``.

    The first dimensions of A are those of B, the others those of the result, with as many elements
    in all. dims: dimensions of A that are moved behind the others first. Raises LinAlgError for a
    singular A.

    >>> tensorsolve(tensor([[2.0]]), tensor([6.0])).tolist()
    [3.0]
    """
    from .lapack import solve

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


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers ``x ** 0`` to ``x ** (N - 1)`` along a new last dimension.

    N: how many, by default as many as the last dimension of x has. (``ng.vander`` decreases.)

    >>> vander(tensor([2, 3, 4])).tolist()
    [[1, 2, 4], [1, 3, 9], [1, 4, 16]]
    """
    if not as_operand("linalg.vander", x)._array.ndim:
        x = reshape(x, (1,))
    count = x._array.shape[-1] if N is None else N
    if count < 1:
        raise ShapeError(f"linalg.vander: N must be greater than 1, got {count}.")
    return powers(x, range(count))


# -- forms that say by a number what failed --------------------------------------------------------


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


class InverseOrNot(Op):
    """Inverses, NaN where there is none, and info."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple:
        out = new_empty(x._array.shape, x._dtype, x._device)
        info = new_empty(x._array.shape[:-2], dtypes.int32, x._device)
        machine.launch(kernels.inv_ex, out._array, info._array, x._array)
        ctx.save(out)
        return out, info

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any = None) -> Tensor:
        turned = ctx.saved_tensors[0].mT
        return -matmul(matmul(turned, g), turned)


class SolutionOrNot(Op):
    """Solutions, NaN where there is none, and info."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple:
        out = new_empty(y._array.shape, y._dtype, y._device)
        info = new_empty(x._array.shape[:-2], dtypes.int32, x._device)
        machine.launch(kernels.solve_ex, out._array, info._array, x._array, y._array)
        ctx.save(x, out)
        return out, info

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any = None) -> tuple:
        x, out = ctx.saved_tensors
        gy = SolutionOrNot.apply(x.mT, g)[0]
        return (-matmul(gy, out.mT) if ctx.needs_input_grad[0] else None), gy


class CholeskyOrNot(Op):
    """Lower triangles, NaN where there is none, and info."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple:
        out = new_empty(x._array.shape, x._dtype, x._device)
        info = new_empty(x._array.shape[:-2], dtypes.int32, x._device)
        machine.launch(kernels.cholesky_ex, out._array, info._array, x._array)
        ctx.save(out)
        return out, info

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any = None) -> Tensor:
        (out,) = ctx.saved_tensors
        product = matmul(out.mT, tril(g))
        middle = (tril(product) + tril(product, -1)) * 0.5  # half the diagonal
        half = SolutionOrNot.apply(out.mT, middle)[0]
        full = SolutionOrNot.apply(out.mT, half.mT)[0]
        return (full + full.mT) * 0.5


def _refuse(name: str, info: Tensor, words: str, check_errors: bool) -> None:
    """Raise LinAlgError where some info is not 0, if asked to."""
    from .lapack import LinAlgError

    if not check_errors or machine.is_recording() or not info._array.size:
        return
    first = int(info.max().item())
    if first:
        raise LinAlgError(f"linalg.{name}: {words.format(first)}")


def inv_ex(A: Tensor, *, check_errors: bool = False) -> InvEx:
    """The inverses of square matrices, NaN for singular ones, which info names.

    check_errors: raise LinAlgError for those. Gradient as of ``inv``.

    >>> inv_ex(tensor([[2.0]])).inverse.tolist()
    [[0.5]]
    """
    out, info = InverseOrNot.apply(_matrix("inv_ex", A, square=True))
    words = (
        "The diagonal element {} is zero, the inversion could not be completed because the input "
        "matrix is singular."
    )
    _refuse("inv_ex", info, words, check_errors)
    return InvEx(out, info)


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:
    """The triangles of ``cholesky``, NaN for what is not positive definite, which info names.

    check_errors: raise LinAlgError for those. Gradient as of ``cholesky``.

    >>> cholesky_ex(tensor([[4.0]])).L.tolist()
    [[2.0]]
    """
    x = _matrix("cholesky_ex", A, square=True)
    out, info = CholeskyOrNot.apply(x.mT if upper else x)
    words = (
        "The factorization could not be completed because the input is not positive-definite (the "
        "leading minor of order {} is not positive-definite)."
    )
    _refuse("cholesky_ex", info, words, check_errors)
    return CholeskyEx(out.mT if upper else out, info)


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveEx:
    """The solution of ``A @ out == B``, NaN for singular matrices, which info names.

    B (..., n, m), or one vector (n), or a stack of vectors beside a stack of matrices. left=False:
    of ``out @ A == B``. check_errors: raise LinAlgError for singular ones. Gradient as of
    ``solve``.

    >>> solve_ex(tensor([[2.0]]), tensor([4.0])).result.tolist()
    [2.0]
    """
    from .lapack import broadcast_shape

    x, y = _matrix("solve_ex", A, square=True), as_operand("linalg.solve_ex", B, 1)
    same_device("linalg.solve_ex", (x, y))
    if x._dtype is not y._dtype:
        raise DTypeError(
            f"linalg.solve_ex: Expected A and B of the same dtype, got {x._dtype} and {y._dtype}."
        )
    n = x._array.shape[-1]
    vector = y._array.ndim == 1 or y._array.shape == x._array.shape[:-1]
    if vector:
        y = y.unsqueeze(-1)
    if not left:
        x, y = x.mT, y.mT
    if y._array.ndim < 2 or y._array.shape[-2] != n:
        raise ShapeError(
            f"linalg.solve_ex: Incompatible shapes of A {list(A.shape)} and B {list(B.shape)}: B "
            f"must have {n} {'rows' if left else 'columns'}."
        )
    batch = broadcast_shape("linalg.solve_ex", x._array.shape[:-2], y._array.shape[:-2])
    x, y = x.expand((*batch, n, n)), y.expand((*batch, *y._array.shape[-2:]))
    out, info = SolutionOrNot.apply(x, y)
    words = "The solver failed because the input matrix is singular."
    _refuse("solve_ex", info, words, check_errors)
    out = out if left else out.mT
    return SolveEx(out.squeeze(-1) if vector else out, info)
