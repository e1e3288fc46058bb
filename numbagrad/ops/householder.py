"""Orthogonal matrices as products of Householder's reflections: ``householder_product``.

A reflection is ``1 - tau v v.T``. LAPACK keeps the v as columns below a diagonal whose ones it does
not store. A product of k of them is ``1 - V T V.T`` with a triangle T, so that three products and
one triangular system take the place of k steps, and of their gradients (T. Joffrain, T. Low,
E. Quintana-Orti, R. van de Geijn, F. Van Zee, Accumulating Householder transformations, revisited,
ACM TOMS 32, 2006).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import DTypeError, GradError, ShapeError
from ..kernels import machine
from ..kernels.cpu import lapack as kernels
from ..tensor import Tensor
from .base import Op, as_operand, broadcast_shape, new_empty, same_device
from .create import eye
from .lapack_arguments import matrix
from .lapack_solve import SolveTriangular
from .linalg import matmul
from .part import diag_embed, narrow
from .shape import tril, triu

__all__ = ["geqrf", "orgqr", "ormqr"]


class Reflections(NamedTuple):
    """R above and on the diagonal and the reflections' vectors below; their factors."""

    a: Tensor
    tau: Tensor


class Geqrf(Op):
    """LAPACK's form of a QR factorisation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple:
        *batch, m, n = x._array.shape
        out = new_empty(x._array.shape, x._dtype, x._device)
        tau = new_empty((*batch, min(m, n)), x._dtype, x._device)
        machine.launch(kernels.geqrf, out._array, tau._array, x._array)
        return out, tau

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Tensor:
        raise GradError("geqrf: the derivative is not implemented. Use ng.linalg.qr.")


def geqrf(x: Tensor) -> Reflections:
    """The QR factorisation of matrices (..., m, n) as LAPACK has it: ``a`` and ``tau``.

    a (..., m, n): R on and above the diagonal, below it the vectors of the reflections whose
    product is Q; tau (..., min(m, n)): their factors. ``ng.linalg.householder_product(a, tau)`` is
    Q, ``ormqr`` multiplies by it. No gradient: see ``ng.linalg.qr``.

    >>> a, tau = geqrf(tensor([[3.0], [4.0]]))
    >>> a.abs()[0].tolist()
    [5.0]
    """
    return Reflections(*Geqrf.apply(matrix("geqrf", x)))


def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first n columns of ``H[0] @ H[1] @ ... @ H[k - 1]``, ``H[i] = 1 - tau[i] v[i] v[i].T``.

    A (..., m, n) with n <= m: v[i] is 0 above element i, 1 there, and column i of A below; tau
    (..., k) with k <= n, of the same batch. Differentiable to any order. Raises ShapeError if
    sizes do not fit.

    >>> householder_product(tensor([[1.0], [1.0]]), tensor([1.0])).tolist()
    [[0.0], [-1.0]]
    """
    return _columns("linalg.householder_product", A, tau)


def orgqr(x: Tensor, tau: Tensor) -> Tensor:
    """``ng.linalg.householder_product``.

    >>> orgqr(tensor([[1.0], [1.0]]), tensor([1.0])).tolist()
    [[0.0], [-1.0]]
    """
    return _columns("orgqr", x, tau)


def ormqr(
    x: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """``Q @ other`` with Q the product of all reflections of ``x`` and ``tau``, m by m.

    x (..., m, k) and tau (..., k) as of ``geqrf``; other (..., m, n), or (..., n, m) without
    ``left``: ``other @ Q``. transpose: by ``Q.mT``. Differentiable to any order.

    >>> a, tau = geqrf(tensor([[3.0], [4.0]]))
    >>> ormqr(a, tau, tensor([[3.0], [4.0]]), transpose=True).abs().round(decimals=3).tolist()
    [[5.0], [0.0]]
    """
    matrix("ormqr", x)
    matrix("ormqr", other)
    _alike("ormqr", x, other)
    vectors, triangle = _accumulated("ormqr", x, tau)
    m = x._array.shape[-2]
    if other._array.shape[-2 if left else -1] != m:
        raise ShapeError(
            f"ormqr: other.shape[{-2 if left else -1}] must be {m}, as many as x "
            f"{list(x._array.shape)} has rows, got other {list(other._array.shape)}."
        )
    broadcast_shape("ormqr", x._array.shape[:-2], other._array.shape[:-2])
    if not left:
        return ormqr(x, tau, other.mT, True, not transpose).mT
    middle = triangle.mT if transpose else triangle
    return other - matmul(vectors, matmul(middle, matmul(vectors.mT, other)))


def _columns(name: str, A: Tensor, tau: Tensor) -> Tensor:
    vectors, triangle = _accumulated(name, A, tau)
    m, n = A._array.shape[-2:]
    if n > m:
        raise ShapeError(
            f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1], got "
            f"{list(A._array.shape)}."
        )
    first = narrow(vectors, -2, 0, n)
    ones = eye(m, n, dtype=A._dtype, device=A._device)
    return ones - matmul(vectors, matmul(triangle, first.mT))


def _accumulated(name: str, x: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """V, the vectors with their ones, and the triangle T of ``1 - V T V.T``.

    ``(1 + diag(tau) triu(V.T V, 1)) T = diag(tau)``, whatever the length of the vectors.
    """
    matrix(name.removeprefix("linalg."), x)
    _alike(name, x, as_operand(name, tau, 1))
    shape, count = x._array.shape, tau._array.shape
    m, n = shape[-2:]
    if count[:-1] != shape[:-2] or not count or count[-1] > min(m, n):
        raise ShapeError(
            f"{name}: tau must have shape {[*shape[:-2], 'k']} with k up to {min(m, n)} for "
            f"matrices {list(shape)}, got {list(count)}."
        )
    k = count[-1]
    vectors = tril(narrow(x, -1, 0, k), -1) + eye(m, k, dtype=x._dtype, device=x._device)
    scale = tau.unsqueeze(-1)
    beside = triu(matmul(vectors.mT, vectors), 1) * scale
    return vectors, SolveTriangular.apply(beside, diag_embed(tau), True, True)


def _alike(name: str, x: Tensor, other: Tensor) -> None:
    same_device(name, (x, other))
    if x._dtype is not other._dtype:
        raise DTypeError(
            f"{name}: expected one dtype, got {x._dtype} and {other._dtype}. Convert one of them."
        )


METHODS: dict[str, Any] = {"geqrf": geqrf, "orgqr": orgqr, "ormqr": ormqr}
