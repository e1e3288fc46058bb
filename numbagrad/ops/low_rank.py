"""Singular values of matrices of low rank, by random projections: ``svd_lowrank``."""

from __future__ import annotations

import operator

from ..errors import ShapeError
from ..tensor import Tensor
from .base import broadcast_shape
from .factorise import qr, svd
from .lapack_arguments import matrix
from .linalg import matmul
from .older_linalg import OlderSVD
from .random import randn
from .reduce import mean

__all__ = ["pca_lowrank", "svd_lowrank"]


def svd_lowrank(A: Tensor, q: int = 6, niter: int = 2, M: Tensor | None = None) -> OlderSVD:
    """U, S and V of which ``U @ diag(S) @ V.mT`` is near A (..., m, n), or A - M.

    q: how many singular values, some more than the rank that matters, at most min(m, n); U
    (..., m, q), S (..., q), V (..., n, q). niter: how often the columns are multiplied by
    ``A A.T`` first, which tells singular values apart. M: what is subtracted from A, (..., m, n) or
    a row of means. By N. Halko, P. Martinsson and J. Tropp, Finding structure with randomness,
    2011, algorithms 4.4 and 5.1; the random numbers are the default generator's. Raises ShapeError
    for a q that does not fit.

    >>> svd_lowrank(tensor([[3.0, 0.0], [0.0, 0.0]]), 1).S.round(decimals=4).tolist()
    [3.0]
    """
    return _low_rank("svd_lowrank", A, q, niter, M)


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> OlderSVD:
    """``svd_lowrank`` of m samples of n numbers each, less their mean unless ``center`` is False.

    The columns of V are the principal directions, ``S ** 2 / (m - 1)`` the variances along them,
    and ``A @ V`` projects the samples. q: by default min(6, m, n).

    >>> x = tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    >>> pca_lowrank(x, 1).V.abs().round(decimals=4).tolist()
    [[0.7071...], [0.7071...]]
    """
    least = min(matrix("pca_lowrank", A)._array.shape[-2:])
    q = min(6, least) if q is None else q
    centre = mean(A, -2, keepdim=True) if center else None
    return _low_rank("pca_lowrank", A, q, niter, centre)


def _low_rank(name: str, A: Tensor, q: int, niter: int, M: Tensor | None) -> OlderSVD:
    shape = matrix(name, A)._array.shape
    m, n = shape[-2:]
    q, niter = operator.index(q), operator.index(niter)
    if not 0 <= q <= min(m, n):
        raise ShapeError(
            f"{name}: q={q} must be non-negative and not greater than min(m, n)={min(m, n)} of A "
            f"{list(shape)}."
        )
    if niter < 0:
        raise ValueError(f"{name}: niter={niter} must be non-negative.")
    if M is not None:
        if broadcast_shape(name, shape, matrix(name, M)._array.shape) != shape:
            raise ShapeError(
                f"{name}: M {list(M._array.shape)} must broadcast to A {list(shape)}, for it is "
                f"subtracted from it."
            )
        A = A - M
    x = A.mT if m < n else A
    basis = qr(
        matmul(x, randn(*x._array.shape[:-2], min(m, n), q, dtype=x._dtype, device=x.device))
    )[0]
    for _ in range(niter):
        basis = qr(matmul(x, qr(matmul(x.mT, basis))[0]))[0]
    u, s, vh = svd(matmul(basis.mT, x), False)
    u, v = matmul(basis, u), vh.mT
    return OlderSVD(v, s, u) if m < n else OlderSVD(u, s, v)
