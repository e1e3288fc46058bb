"""LU factors of matrices and what they solve; part of ``ng.linalg``. Start at ``lu_factor_ex``."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import lapack as kernels
from ..tensor import Tensor
from .base import Op, as_operand, broadcast_shape, new_empty, same_device
from .comparison import eq
from .create import arange, eye
from .elementwise import cast
from .gather import gather
from .join import cat
from .lapack_arguments import matrix
from .lapack_solve import solve_triangular
from .linalg import matmul
from .part import narrow
from .shape import tril, triu
from .sort import argsort

__all__ = ["lu", "lu_factor", "lu_factor_ex", "lu_solve", "lu_unpack"]


class LU(NamedTuple):
    """The factors of ``P @ L @ U``."""

    P: Tensor
    L: Tensor
    U: Tensor


class LUFactor(NamedTuple):
    """Both triangles in one matrix, and with which row each was exchanged, from 1 on."""

    LU: Tensor
    pivots: Tensor


class LUFactorEx(NamedTuple):
    """As ``LUFactor``; info: 0, or the first number on the diagonal that is 0, from 1 on."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class Lu(Op):
    """L without its ones, and U, in one matrix; the rows' order; where U has a 0.

    Gradient: that of ``L U`` solved for its factors, whose changes are triangles: of the square
    part ``L**-T (tril(L.T gL, -1) + triu(gU U.T)) U**-T``, put back in the order of rows.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple:
        *batch, m, n = x._array.shape
        out = new_empty(x._array.shape, x._dtype, x._device)
        pivots = new_empty((*batch, min(m, n)), dtypes.int32, x._device)
        order = new_empty((*batch, m), dtypes.int64, x._device)
        info = new_empty(batch, dtypes.int32, x._device)
        arrays = out._array, pivots._array, order._array, info._array
        machine.launch(kernels.lu_factor, *arrays, x._array)
        ctx.save(out, order)
        return out, pivots, order, info

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> Tensor:
        out, order = ctx.saved_tensors
        m, n = out._array.shape[-2:]
        k = min(m, n)
        square, gsquare = _corner(out, k), _corner(g, k)
        glower, gupper = tril(gsquare, -1), triu(gsquare)
        parts = []
        if m > n:  # the rows below are L2 = A2 inv(U)
            below = narrow(out, -2, k, m - k)
            gbelow = _over_upper(square, narrow(g, -2, k, m - k))
            gupper = gupper - triu(matmul(below.mT, gbelow))
            parts = [gbelow]
        if n > m:  # the columns beside are U2 = inv(L) A2
            beside = narrow(out, -1, k, n - k)
            gbeside = _under_lower(square, narrow(g, -1, k, n - k))
            glower = glower - tril(matmul(gbeside, beside.mT), -1)
            parts = [gbeside]
        lower = tril(square, -1) + eye(k, dtype=out._dtype, device=out._device)
        middle = tril(matmul(lower.mT, glower), -1) + triu(matmul(gupper, triu(square).mT))
        found = _under_lower(square, _over_upper(square, middle))
        found = cat([found, *parts], -2 if m > n else -1) if parts else found
        return _rows(found, argsort(order, -1))


def _corner(x: Tensor, k: int) -> Tensor:
    return narrow(narrow(x, -2, 0, k), -1, 0, k)


def _over_upper(square: Tensor, g: Tensor) -> Tensor:
    """``g inv(U).T`` for the upper triangle."""
    return solve_triangular(square.mT, g, upper=False, left=False)


def _under_lower(square: Tensor, g: Tensor) -> Tensor:
    """``inv(L).T g`` for the lower triangle, with ones on the diagonal."""
    return solve_triangular(square.mT, g, upper=True, unitriangular=True)


def _rows(x: Tensor, order: Tensor) -> Tensor:
    """The rows of matrices in another order."""
    return gather(x, -2, order.unsqueeze(-1).expand(x._array.shape))


def _factored(name: str, A: Tensor, pivot: bool) -> tuple:
    x = matrix(name, A)
    if not pivot:
        raise NotImplementedError(
            f"linalg.{name}: LU without pivoting is not implemented on the CPU. Use pivot=True."
        )
    return Lu.apply(x)


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorEx:
    """The factors of ``lu_factor``; info says where U has a 0, instead of an error.

    check_errors: raise LinAlgError there all the same.

    >>> lu_factor_ex(tensor([[1.0, 2.0], [2.0, 4.0]])).info.item()
    2
    """
    out, pivots, _, info = _factored("lu_factor_ex", A, pivot)
    if check_errors:
        _refuse_zeros("lu_factor_ex", info)
    return LUFactorEx(out, pivots, info)


def _refuse_zeros(name: str, info: Tensor) -> None:
    """Raise LinAlgError where the factor U of some matrix has a 0."""
    from .lapack import LinAlgError

    if machine.is_recording() or not info._array.size:
        return  # its values are not known yet
    first = int(info.max().item())
    if first:
        raise LinAlgError(
            f"linalg.{name}: U[{first},{first}] is zero and using it on lu_solve would result in "
            f"a division by zero. To factor it all the same use linalg.lu or linalg.lu_factor_ex."
        )


def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactor:
    """Both triangles of ``lu`` in one matrix, and the exchanges of rows (int32), for ``lu_solve``.

    A (..., m, n); LU as A; pivots (..., min(m, n)). Gradient through LU, if the first columns are
    independent. Raises LinAlgError where U has a 0 on its diagonal.

    >>> lu_factor(tensor([[1.0, 2.0], [4.0, 4.0]])).LU.tolist()
    [[4.0, 4.0], [0.25, 1.0]]
    """
    out, pivots, _, info = _factored("lu_factor", A, pivot)
    _refuse_zeros("lu_factor", info)
    return LUFactor(out, pivots)


def lu(A: Tensor, *, pivot: bool = True) -> LU:
    """``P @ L @ U == A``: an order of rows, a lower triangle with a diagonal of ones, an upper one.

    A (..., m, n), k the smaller of m and n: P (..., m, m), L (..., m, k), U (..., k, n). Gradient
    through L and U, if the first k columns are independent.

    >>> P, L, U = lu(tensor([[1.0, 2.0], [4.0, 4.0]]))
    >>> U.tolist()
    [[4.0, 4.0], [0.0, 1.0]]
    """
    out, _, order, _ = _factored("lu", A, pivot)
    return LU(_permutation(order, out), *_triangles(out))


def _permutation(order: Tensor, like: Tensor) -> Tensor:
    """The matrices that put rows in ``order`` (..., m) back, in the dtype of ``like``."""
    place = arange(order._array.shape[-1], device=order._device).unsqueeze(-1)
    return cast(eq(place, order.unsqueeze(-2)), like._dtype)


def _triangles(out: Tensor) -> tuple[Tensor, Tensor]:
    """The factors L and U that stand in one matrix."""
    m, n = out._array.shape[-2:]
    k = min(m, n)
    ones = eye(m, k, dtype=out._dtype, device=out._device)
    return tril(narrow(out, -1, 0, k), -1) + ones, triu(narrow(out, -2, 0, k))


def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> LU:
    """The factors of ``lu``, from those of ``lu_factor``.

    LU_data (..., m, n), LU_pivots (..., min(m, n)) int32. What is not to be unpacked comes as an
    empty tensor. Gradient through L and U.

    >>> lu_unpack(*ng.linalg.lu_factor(tensor([[1.0, 2.0], [4.0, 4.0]]))).U.tolist()
    [[4.0, 4.0], [0.0, 1.0]]
    """
    if as_operand("lu_unpack", LU_data)._array.ndim < 2:
        raise ShapeError(
            f"lu_unpack: Expected tensor with 2 or more dimensions. Got size: "
            f"{list(LU_data.shape)} instead."
        )
    rows = as_operand("lu_unpack", LU_pivots, 1)._array.shape
    same_device("lu_unpack", (LU_data, LU_pivots))
    *batch, m, n = LU_data._array.shape
    if unpack_pivots and LU_pivots._dtype is not dtypes.int32:
        raise DTypeError(
            f"lu_unpack: LU_pivots is expected to be of int32, got {LU_pivots._dtype}. Pass the "
            f"output of linalg.lu_factor."
        )
    if unpack_pivots and rows != (*batch, min(m, n)):
        raise ShapeError(
            f"lu_unpack: LU_pivots must be {[*batch, min(m, n)]} for LU_data "
            f"{list(LU_data.shape)}, got {list(rows)}. Pass the output of linalg.lu_factor."
        )
    nothing = new_empty((0,), LU_data._dtype, LU_data._device)
    lower, upper = _triangles(LU_data) if unpack_data else (nothing, nothing)
    if not unpack_pivots:
        return LU(nothing, lower, upper)
    order = new_empty((*batch, m), dtypes.int64, LU_pivots._device)
    machine.launch(kernels.order_of, order._array, LU_pivots._array)
    return LU(_permutation(order, LU_data), lower, upper)


def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """The solution of ``A @ out == B`` from the factors of ``lu_factor(A)``.

    LU (..., n, n), pivots (..., n) int32, B (..., n, m). left=False: of ``out @ A == B``, B
    (..., m, n). adjoint: of ``A.T`` instead. Gradients to LU and B.

    >>> LU, pivots = lu_factor(tensor([[2.0, 0.0], [0.0, 4.0]]))
    >>> lu_solve(LU, pivots, tensor([[2.0], [2.0]])).tolist()
    [[1.0], [0.5]]
    """
    factors, y = matrix("lu_solve", LU, square=True), matrix("lu_solve", B)
    same_device("linalg.lu_solve", (factors, as_operand("linalg.lu_solve", pivots, 1), y))
    n = factors._array.shape[-1]
    if pivots._dtype is not dtypes.int32:
        raise DTypeError(f"linalg.lu_solve: pivots should be of int32, got {pivots._dtype}.")
    if pivots._array.shape != factors._array.shape[:-1]:
        raise ShapeError(
            f"linalg.lu_solve: Number of pivots per batch should be same as the dimension of the "
            f"matrix, {list(factors.shape[:-1])}, got {list(pivots.shape)}."
        )
    if y._dtype is not factors._dtype:
        raise DTypeError(
            f"linalg.lu_solve: Expected LU and B of the same dtype, got {factors._dtype} and "
            f"{y._dtype}."
        )
    if y._array.shape[-2 if left else -1] != n:
        raise ShapeError(
            f"linalg.lu_solve: Incompatible shapes of LU {list(factors.shape)} and B "
            f"{list(y.shape)}: B must have {n} {'rows' if left else 'columns'}."
        )
    if not left:
        return lu_solve(LU, pivots, B.mT, adjoint=not adjoint).mT
    shapes = factors._array.shape[:-2], y._array.shape[:-2]
    batch = broadcast_shape("linalg.lu_solve", *shapes)
    y = y.expand((*batch, *y._array.shape[-2:]))
    order = new_empty(pivots._array.shape, dtypes.int64, pivots._device)
    machine.launch(kernels.order_of, order._array, pivots._array)
    order = order.expand((*batch, n))
    if adjoint:
        half = solve_triangular(factors.mT, y, upper=False)
        found = solve_triangular(factors.mT, half, upper=True, unitriangular=True)
        return _rows(found, argsort(order, -1))
    half = solve_triangular(factors, _rows(y, order), upper=False, unitriangular=True)
    return solve_triangular(factors, half, upper=True)
