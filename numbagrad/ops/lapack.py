"""``ng.linalg``: what there is for matrices, through LAPACK; determinants and exponentials.

Matrices are the last two dimensions; those before are a stack.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..kernels import machine
from ..kernels.cpu import lapack as kernels
from ..tensor import Tensor
from .base import Op, new_empty, zeros_like
from .chains import matrix_power, multi_dot
from .create import eye
from .factorise import eigh, lstsq, pinv, qr, svd
from .householder import householder_product
from .join import cat
from .lapack_arguments import LinAlgError, matrix
from .lapack_lu import lu, lu_factor, lu_factor_ex, lu_solve
from .lapack_norm import cond, matrix_norm, matrix_rank, norm, vector_norm
from .lapack_solve import (
    SolveAgain,
    cholesky,
    cholesky_ex,
    inv,
    inv_ex,
    new_factors,
    solve,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
)
from .lapack_vectors import cross, diagonal, vander, vecdot
from .linalg import matmul
from .part import narrow
from .spectra import eigvalsh, svdvals

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
    "householder_product",
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


class Det(Op):
    """The determinant of a matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = new_empty(x._array.shape[:-2], x._dtype, x._device)
        machine.launch(kernels.det, out._array, x._array)
        ctx.save(x)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g.unsqueeze(-1).unsqueeze(-1) * Cofactors.apply(x)


class Cofactors(Op):
    """The derivative of the determinant; of singular matrices it has none itself, but NaN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = new_empty(x._array.shape, x._dtype, x._device)
        machine.launch(kernels.cofactors, out._array, x._array)
        ctx.save(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, out = ctx.saved_tensors
        along = (g * out).sum((-2, -1), keepdim=True) * out
        across = matmul(matmul(out, g.mT), out)
        return (along - across) / Det.apply(x).unsqueeze(-1).unsqueeze(-1)


class Slogdet(Op):
    """The sign of the determinant and the logarithm of its absolute value."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple:
        sign = new_empty(x._array.shape[:-2], x._dtype, x._device)
        logabsdet = new_empty(x._array.shape[:-2], x._dtype, x._device)
        known = new_factors(x)
        arrays = sign._array, logabsdet._array, *(v._array for v in known)
        machine.launch(kernels.slogdet, *arrays, x._array)
        ctx.save(x, *known)
        return sign, logabsdet

    @staticmethod
    def backward(ctx: Any, _: Tensor, g: Tensor) -> Tensor:
        x, *known = ctx.saved_tensors
        ones = eye(x._array.shape[-1], dtype=x._dtype, device=x._device).expand(x._array.shape)
        return g.unsqueeze(-1).unsqueeze(-1) * SolveAgain.apply(x, ones, *known, True)


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


def det(x: Tensor) -> Tensor:
    """The determinants of square matrices. Gradient: ``g out inv(x).T``, or the cofactors of
    singular ones.
    """
    return Det.apply(matrix("det", x, square=True))


def slogdet(x: Tensor) -> SlogdetResult:
    """The signs of determinants and the logarithms of their absolute values, sign and logabsdet."""
    return SlogdetResult(*Slogdet.apply(matrix("slogdet", x, square=True)))


def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of square matrices, ``1 + A + A @ A / 2 + ...``.

    A (..., n, n), floating. Gradient of any order, from matrices of twice the size.

    >>> matrix_exp(tensor([[0.0, 2.0], [0.0, 0.0]])).tolist()
    [[1.0, 2.0], [0.0, 1.0]]
    """
    x = matrix("matrix_exp", A, square=True)
    return MatrixExp.apply(x) if x._array.size else x.clone()
