"""Matrix factorisations: NumPy's LAPACK behind the manners of a kernel, outputs first.

The arrays are stacks of matrices, any strides. A singular matrix raises numpy.linalg.LinAlgError.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["cholesky", "det", "eigh", "inv", "lstsq", "pinv", "qr", "slogdet", "solve"]
__all__ += ["solve_triangular", "svd"]

Array = np.ndarray[Any, Any]


def inv(out: Array, x: Array) -> None:
    """Inverses. out, x (..., n, n)."""
    out[...] = np.linalg.inv(x)


def det(out: Array, x: Array) -> None:
    """Determinants. out (...); x (..., n, n)."""
    out[...] = np.linalg.det(x)


def slogdet(sign: Array, logabsdet: Array, x: Array) -> None:
    """Signs and logarithms of determinants. sign, logabsdet (...); x (..., n, n)."""
    sign[...], logabsdet[...] = np.linalg.slogdet(x)


def solve(out: Array, x: Array, y: Array) -> None:
    """``x out = y``. x (..., n, n); out, y (..., n, m)."""
    out[...] = np.linalg.solve(x, y)


def solve_triangular(out: Array, x: Array, y: Array, upper: int, unit: int) -> None:
    """``x out = y`` for triangles, infinite where a number on the diagonal is 0.

    x (..., n, n), of which the other triangle and, with unit, the diagonal are not read; out, y
    (..., n, m).
    """
    from scipy.linalg import blas  # which takes 30 ms to import

    solve = blas.strsm if x.dtype == np.float32 else blas.dtrsm
    for place in np.ndindex(x.shape[:-2]):
        if y[place].size:  # BLAS's columns are our rows: x.T is a triangle of the other kind
            out[place] = solve(1.0, x[place].T, y[place], lower=upper, trans_a=1, diag=unit)


def cholesky(out: Array, x: Array) -> None:
    """Lower triangles L with ``L L.T = x``; of x only the lower triangle is read. (..., n, n)."""
    out[...] = np.linalg.cholesky(x)


def qr(q: Array, r: Array, x: Array) -> None:
    """``q r = x``. x (..., m, n); q (..., m, k), r (..., k, n): k is m, or the smaller of m, n."""
    mode: Any = "complete" if q.shape[-1] > min(x.shape[-2:]) else "reduced"
    q[...], r[...] = np.linalg.qr(x, mode)


def eigh(values: Array, vectors: Array, x: Array, upper: bool) -> None:
    """``x vectors = vectors values``, of symmetric x, one triangle of which is read.

    values (..., n), ascending; vectors, x (..., n, n).
    """
    values[...], vectors[...] = np.linalg.eigh(x, "U" if upper else "L")


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
