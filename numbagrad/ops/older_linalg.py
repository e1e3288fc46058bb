"""Functions of matrices under PyTorch's older names, which ``ng.linalg`` has as others."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import ShapeError
from ..tensor import Tensor
from . import lapack, lapack_lu
from .argument_names import into
from .base import as_operand, full, normalize_dims, same_device
from .create import eye
from .lapack import matrix_exp as _matrix_exp
from .lapack_lu import lu_unpack
from .linalg import matmul

__all__ = [
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "frobenius_norm",
    "lu",
    "lu_solve",
    "lu_unpack",
    "matrix_exp",
    "nuclear_norm",
    "pinverse",
    "qr",
    "svd",
    "triangular_solve",
]


class TriangularSolution(NamedTuple):
    """What a triangle is solved to, and a copy of the matrix that it stands in."""

    solution: Tensor
    cloned_coefficient: Tensor


class OlderLU(NamedTuple):
    """Both triangles in one matrix, exchanges of rows, and where U has a 0."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class OlderSVD(NamedTuple):
    """The factors of ``U @ diag(S) @ V.T``."""

    U: Tensor
    S: Tensor
    V: Tensor


def pinverse(x: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverses of matrices, ``ng.linalg.pinv``.

    >>> pinverse(tensor([[2.0], [0.0]])).tolist()
    [[0.5, 0.0]]
    """
    return lapack.pinv(x, rcond)


def lu(x: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """Both triangles of matrices in one, and the exchanges of rows: ``ng.linalg.lu_factor``.

    get_infos: says also where U has a 0, which is an error otherwise, as ``lu_factor_ex`` does.

    >>> lu(tensor([[1.0, 2.0], [4.0, 4.0]]))[0].tolist()
    [[4.0, 4.0], [0.25, 1.0]]
    """
    if out is not None:
        return into("lu", lu, out, (x, pivot, get_infos), {})
    found = lapack_lu.lu_factor_ex(as_operand("lu", x), pivot=pivot, check_errors=not get_infos)
    return OlderLU(*found) if get_infos else tuple(found[:2])


def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    """The triangles of positive definite matrices, ``ng.linalg.cholesky``.

    >>> cholesky(tensor([[4.0]])).tolist()
    [[2.0]]
    """
    return lapack.cholesky(x, upper=upper)


def qr(x: Tensor, some: bool = True) -> Any:
    """``Q @ R == x``, ``ng.linalg.qr``; all columns of Q without ``some``.

    >>> [part.abs().tolist() for part in qr(tensor([[2.0]]))]
    [[[1.0]], [[2.0]]]
    """
    return lapack.qr(x, "reduced" if some else "complete")


def svd(x: Tensor, some: bool = True, compute_uv: bool = True) -> OlderSVD:
    """``U @ diag(S) @ V.T == x``; ``ng.linalg.svd`` gives V turned.

    some: only as many columns as there are values. Without compute_uv U and V are zeros.

    >>> svd(tensor([[2.0]])).S.tolist()
    [2.0]
    """
    if compute_uv:
        u, s, vh = lapack.svd(x, not some)
        return OlderSVD(u, s, vh.mT)
    s = lapack.svdvals(x)
    *batch, m, n = x._array.shape
    u, v = (full((*batch, k, k), 0, x._dtype, x._device) for k in (m, n))
    return OlderSVD(u, s, v)


def matrix_exp(x: Tensor) -> Tensor:
    """The exponentials of square matrices, ``ng.linalg.matrix_exp``.

    >>> matrix_exp(tensor([[0.0]])).tolist()
    [[1.0]]
    """
    return _matrix_exp(x)


def _checked(name: str, x: Tensor, input2: Tensor) -> None:
    for value, what in ((x, "b"), (input2, "u")):
        rank = as_operand(name, value)._array.ndim
        if rank < 2:
            raise ShapeError(
                f"{name}: {what} should have at least 2 dimensions, but has {rank} dimensions "
                f"instead. Use unsqueeze(-1) for a vector."
            )
    same_device(name, (x, input2))


def cholesky_solve(x: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """The solution of ``A @ out == x`` from the triangle ``input2`` that ``cholesky(A)`` gives.

    x (..., n, m), input2 (..., n, n). Gradients to both.

    >>> cholesky_solve(tensor([[4.0]]), tensor([[2.0]])).tolist()
    [[1.0]]
    """
    _checked("cholesky_solve", x, input2)
    half = lapack.solve_triangular(input2.mT if upper else input2, x, upper=False)
    return lapack.solve_triangular(input2 if upper else input2.mT, half, upper=True)


def cholesky_inverse(x: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A from the triangle ``x`` that ``cholesky(A)`` gives; x (..., n, n).

    >>> cholesky_inverse(tensor([[2.0]])).tolist()
    [[0.25]]
    """
    rank = as_operand("cholesky_inverse", x)._array.ndim
    if rank < 2:
        raise ShapeError(
            f"cholesky_inverse: The input tensor A must have at least 2 dimensions, got {rank}."
        )
    ones = eye(x._array.shape[-1], dtype=x._dtype, device=x._device)
    inverse = lapack.solve_triangular(x, ones, upper=upper)
    return matmul(inverse, inverse.mT) if upper else matmul(inverse.mT, inverse)


def lu_solve(x: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """The solution of ``A @ out == x``, ``ng.linalg.lu_solve``: x (..., n, m).

    >>> lu_solve(tensor([[4.0]]), *ng.linalg.lu_factor(tensor([[2.0]]))).tolist()
    [[2.0]]
    """
    return lapack_lu.lu_solve(LU_data, LU_pivots, x)


def triangular_solve(
    x: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> TriangularSolution:
    """The solution of ``A @ out == x`` for a triangle A, as ``ng.linalg.solve_triangular``.

    x (..., n, m), A (..., n, n), of which the other triangle is not read. transpose: of A turned.

    >>> triangular_solve(tensor([[4.0]]), tensor([[2.0]])).solution.tolist()
    [[2.0]]
    """
    for value, what in ((x, "b"), (A, "A")):
        rank = as_operand("triangular_solve", value)._array.ndim
        if rank < 2:
            raise ShapeError(
                f"triangular_solve: Expected {what} to have at least 2 dimensions, but it has "
                f"{rank} dimensions instead. Use unsqueeze(-1) for a vector."
            )
    solved = lapack.solve_triangular(
        A.mT if transpose else A, x, upper=upper != transpose, unitriangular=unitriangular
    )
    return TriangularSolution(solved, A.clone())


def frobenius_norm(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares over one or two dimensions.

    >>> frobenius_norm(tensor([[3.0, 4.0]]), 1).tolist()
    [5.0]
    """
    rank = as_operand("frobenius_norm", x)._array.ndim
    return lapack.vector_norm(x, 2, normalize_dims("frobenius_norm", dim, rank), keepdim)


def nuclear_norm(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum of the singular values of matrices, in the last two dimensions or those in ``dim``.

    >>> nuclear_norm(tensor([[3.0, 0.0], [0.0, 4.0]])).item()
    7.0
    """
    if isinstance(dim, bool):  # nuclear_norm(x, keepdim)
        dim, keepdim = None, dim
    rank = as_operand("nuclear_norm", x)._array.ndim
    dims = (-2, -1) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    if rank < 2 or len(dims) != 2:
        raise ShapeError(
            f"nuclear_norm: Expected two of at least 2 dimensions, but got dim={dims} of a tensor "
            f"with {rank} dimensions."
        )
    return lapack.matrix_norm(x, "nuc", dims, keepdim)


_METHODS = """cholesky cholesky_inverse cholesky_solve lu lu_solve matrix_exp pinverse qr svd
    triangular_solve""".split()
METHODS: dict[str, Any] = {name: globals()[name] for name in _METHODS}
