"""Matrix factorisations: LAPACK behind the manners of a kernel, outputs first.

The arrays are stacks of matrices, any strides. What may fail says so in an array ``info``. NumPy
takes a stack of small matrices in one call; SciPy's LAPACK takes half the time for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ShapeError

__all__ = ["cholesky", "cofactors", "det", "eigh", "inv", "lstsq", "pinv", "qr", "slogdet", "solve"]
__all__ += ["eigvalsh", "lu_factor", "matrix_exp", "order_of", "solve_triangular", "svd", "svdvals"]

Array = np.ndarray[Any, Any]

ALONE = 24
"""Rows from which matrices of a stack are taken one by one."""


def _one_by_one(x: Array) -> bool:
    """Whether SciPy's functions of one matrix are faster than NumPy's of a stack."""
    return x.size > 0 and (min(x.shape[-2:]) >= ALONE or x.size == x.shape[-2] * x.shape[-1])


def det(out: Array, x: Array) -> None:
    """Determinants. out (...); x (..., n, n)."""
    out[...] = np.linalg.det(x)


def cofactors(out: Array, x: Array) -> None:
    """The derivative of the determinant: its value times the inverse, turned, if there is one.

    For singular x from ``x = u diag(s) vh``: all but one of s multiplied. out, x (..., n, n).
    """
    try:
        out[...] = np.linalg.det(x)[..., None, None] * np.linalg.inv(x).swapaxes(-1, -2)
        return
    except np.linalg.LinAlgError:
        pass
    for place in np.ndindex(x.shape[:-2]):
        m = x[place]
        try:
            out[place] = np.linalg.det(m) * np.linalg.inv(m).T
        except np.linalg.LinAlgError:
            u, s, vh = np.linalg.svd(m)
            others = np.array([np.prod(np.delete(s, k)) for k in range(s.size)], s.dtype)
            out[place] = np.linalg.det(u) * np.linalg.det(vh) * (u * others) @ vh


def slogdet(sign: Array, logabsdet: Array, x: Array) -> None:
    """Signs and logarithms of determinants. sign, logabsdet (...); x (..., n, n)."""
    sign[...], logabsdet[...] = np.linalg.slogdet(x)


def solve_triangular(out: Array, x: Array, y: Array, upper: int, unit: int) -> None:
    """``x out = y`` for triangles, infinite where a number on the diagonal is 0.

    x (..., n, n), of which the other triangle and, with unit, the diagonal are not read; out, y
    (..., n, m).
    """
    from scipy.linalg import blas  # which takes 30 ms to import

    solve = blas.strsm if x.dtype == np.float32 else blas.dtrsm
    for place in np.ndindex(x.shape[:-2]):
        if y[place].size:  # BLAS's columns are our rows: out.T times x.T, of the other kind, is y.T
            out[place] = solve(1.0, x[place].T, y[place].T, side=1, lower=upper, diag=unit).T


def qr(q: Array, r: Array, x: Array) -> None:
    """``q r = x``. x (..., m, n); q (..., m, k), r (..., k, n): k is m, or the smaller of m, n."""
    k = min(x.shape[-2:])
    if q.shape[-1] > k or not _one_by_one(x):
        mode: Any = "complete" if q.shape[-1] > k else "reduced"
        q[...], r[...] = np.linalg.qr(x, mode)
        return
    from scipy.linalg import lapack

    narrow, room = x.dtype == np.float32, 64 * x.shape[-1]
    factor = lapack.sgeqrf if narrow else lapack.dgeqrf
    orthogonal = lapack.sorgqr if narrow else lapack.dorgqr
    for place in np.ndindex(x.shape[:-2]):
        packed, scales, _, _ = factor(x[place], lwork=room)
        r[place] = np.triu(packed[:k])
        q[place] = orthogonal(packed[:, :k], scales, lwork=room)[0]


def eigh(values: Array, vectors: Array, x: Array, upper: bool) -> None:
    """``x vectors = vectors values``, of symmetric x, one triangle of which is read.

    values (..., n), ascending; vectors, x (..., n, n).
    """
    values[...], vectors[...] = np.linalg.eigh(x, "U" if upper else "L")


def eigvalsh(values: Array, x: Array, upper: bool) -> None:
    """The values of ``eigh`` alone."""
    values[...] = np.linalg.eigvalsh(x, "U" if upper else "L")


def svdvals(s: Array, x: Array) -> None:
    """The values of ``svd`` alone."""
    s[...] = np.linalg.svd(x, compute_uv=False)


def svd(u: Array, s: Array, vh: Array, x: Array) -> None:
    """``u diag(s) vh = x``. x (..., m, n); s (..., k), k the smaller of m and n, descending.

    u (..., m, k or m), vh (..., k or n, n).
    """
    m, n = x.shape[-2:]
    full = u.shape[-1] > min(m, n) or vh.shape[-2] > min(m, n)
    u[...], s[...], vh[...] = np.linalg.svd(x, full)


def pinv(out: Array, x: Array, rcond: float) -> None:
    """Pseudo-inverses. x (..., m, n); out (..., n, m); rcond: singular values below that times the
    largest count as 0.
    """
    out[...] = np.linalg.pinv(x, rcond)


def lstsq(out: Array, rank: Array, x: Array, y: Array, rcond: float) -> None:
    """The shortest ``out`` that makes ``x out - y`` shortest, and the rank of x.

    x (..., m, n), y (..., m, k); out (..., n, k), rank (...) int64.
    """
    for at in np.ndindex(rank.shape):
        out[at], _, rank[at], _ = np.linalg.lstsq(x[at], y[at], rcond)


def lu_factor(out: Array, pivots: Array, order: Array, info: Array, x: Array) -> None:
    """Both triangles in ``out``; with which row each was exchanged, from 1 on; the rows' order.

    x, out (..., m, n); pivots (..., min(m, n)) int32; order (..., m) int64: x[order] = L U; info
    (...) int32: 0, or the first number on the diagonal of U that is 0, from 1 on.
    """
    from scipy.linalg import lapack

    factor = lapack.sgetrf if x.dtype == np.float32 else lapack.dgetrf
    for place in np.ndindex(x.shape[:-2]):
        if x[place].size:
            out[place], rows, info[place] = factor(x[place])
            pivots[place] = rows + 1
        else:
            info[place] = 0
    order_of(order, pivots)


def order_of(order: Array, pivots: Array) -> None:
    """The order of rows after exchanges. order (..., m) int64; pivots (..., k) int32, from 1 on.

    Raises ShapeError for pivots of other rows, which only their values tell.
    """
    n = order.shape[-1]
    if pivots.size and not 1 <= pivots.min() <= pivots.max() <= n:
        raise ShapeError(
            f"linalg.lu_solve, lu_unpack: Pivots given to lu_solve must all be greater or equal "
            f"to 1 and at most {n}, got {pivots.min()} to {pivots.max()}. Pass the result of "
            f"lu_factor."
        )
    order[...] = np.arange(n)
    for place in np.ndindex(order.shape[:-1]):
        mine = order[place]
        for i, j in enumerate(pivots[place]):
            mine[i], mine[j - 1] = mine[j - 1], mine[i]


def matrix_exp(out: Array, x: Array) -> None:
    """Exponentials of matrices. out, x (..., n, n)."""
    from scipy.linalg import expm

    out[...] = expm(x)


def _first_zero(x: Array) -> int:
    """The first number on the diagonal of the factor U of a matrix that is 0, from 1 on, or 0."""
    from scipy.linalg import lapack

    factor = lapack.sgetrf if x.dtype == np.float32 else lapack.dgetrf
    return int(factor(x)[2])


def inv(out: Array, info: Array, x: Array) -> None:
    """Inverses, NaN where there are none. out, x (..., n, n); info (...) int32 as ``lu_factor``."""
    if not _one_by_one(x):
        _each_if_any_fails(np.linalg.inv, out, info, x)
        return
    from scipy.linalg import lapack

    narrow, room = x.dtype == np.float32, 64 * x.shape[-1]
    factor = lapack.sgetrf if narrow else lapack.dgetrf
    invert = lapack.sgetri if narrow else lapack.dgetri
    for place in np.ndindex(info.shape):
        packed, pivots, wrong = factor(x[place].T)  # which is stored as LAPACK has it
        info[place] = _first_zero(x[place]) if wrong else 0
        out[place] = np.nan if wrong else invert(packed, pivots, lwork=room, overwrite_lu=1)[0].T


def solve(out: Array, info: Array, x: Array, y: Array) -> None:
    """``x out = y``, NaN where there is no solution.

    x (..., n, n); out, y (..., n, m); info (...) int32 as ``lu_factor``.
    """
    if not (_one_by_one(x) and y.size and x.shape[:-2] == y.shape[:-2]):
        _each_if_any_fails(np.linalg.solve, out, info, x, y)
        return
    from scipy.linalg import lapack

    solved = lapack.sgesv if x.dtype == np.float32 else lapack.dgesv
    for place in np.ndindex(info.shape):
        _, _, found, info[place] = solved(x[place], y[place])
        out[place] = np.nan if info[place] else found


def _each_if_any_fails(made: Callable[..., Array], out: Array, info: Array, *arrays: Array) -> None:
    """The whole stack in one call; where that fails, matrix by matrix, to learn which one did."""
    info[...] = 0
    try:
        out[...] = made(*arrays)
    except np.linalg.LinAlgError:
        for place in np.ndindex(info.shape):
            try:
                out[place] = made(*(v[place] for v in arrays))
            except np.linalg.LinAlgError:
                out[place], info[place] = np.nan, _first_zero(arrays[0][place])


def cholesky(out: Array, info: Array, x: Array) -> None:
    """Lower triangles L with ``L L.T = x``, NaN where x is not positive definite.

    out, x (..., n, n), of which only the lower triangle is read; info (...) int32: 0, or the size
    of the first leading part that is not positive definite, which one with a NaN is not.
    """
    from scipy.linalg import lapack

    info[...] = 0
    try:
        out[...] = np.linalg.cholesky(x)
        if not np.isnan(np.diagonal(out, axis1=-2, axis2=-1)).any():
            return
    except np.linalg.LinAlgError:
        pass
    factor = lapack.spotrf if x.dtype == np.float32 else lapack.dpotrf
    for place in np.ndindex(info.shape):
        if not x[place].size:
            continue
        found, info[place] = factor(x[place], lower=1, clean=1)
        if not info[place]:  # not every LAPACK stops at a NaN
            wrong = np.isnan(found.diagonal())
            info[place] = wrong.argmax() + 1 if wrong.any() else 0
        out[place] = np.nan if info[place] else found
