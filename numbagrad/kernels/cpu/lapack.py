"""Matrix factorisations: LAPACK behind the manners of a kernel, outputs first.

The arrays are stacks of matrices, any strides. What may fail says so in an array ``info``. SciPy's
LAPACK takes half the time of NumPy's functions for each matrix. What loops and products do sooner
is in ``triangles.py`` and ``reflections.py``, eigenvalues in ``spectra.py``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ShapeError
from ..blas_library import one_thread
from ..lapack_library import load_lapack
from . import reflections, spectra, triangles

__all__ = ["cholesky", "cofactors", "det", "eigh", "inv", "lstsq", "pinv", "qr", "slogdet", "solve"]
__all__ += [
    "eigvalsh",
    "geqrf",
    "lu_factor",
    "lu_solved",
    "matrix_exp",
    "order_of",
    "solve_triangular",
]
__all__ += ["svd", "svdvals"]

Array = np.ndarray[Any, Any]

SMALL = 32
"""Rows up to which LAPACK finds no triangle sooner than a loop."""

NARROW = 64
"""Columns, or rows, up to which ``reflections.py`` makes an orthogonal factor sooner."""

LARGE = 1024
"""Rows from which threads of a BLAS gain more than ``triangles.py``, which takes half the time of
OpenBLAS on one thread for 128 to 512 rows."""


NOT_FINITE = "The input has elements that are not finite"

LITTLE = 2048
"""Elements below which nothing is compiled: SciPy or NumPy takes less than 0.1 ms for so many, and
the loops take a second or two to compile."""


def alone_below(size: int, at: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator: let BLAS use one thread where argument ``at`` has fewer rows, or columns.

    To wake others for the narrow products of a factorisation takes longer than they save: QR of 128
    rows and columns 0.46 ms on one thread of OpenBLAS, 1.23 on two, of 512 9.3 and 10.9.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(*args: Any) -> None:
            if min(args[at].shape[-2:]) >= size:
                function(*args)
                return
            with one_thread():
                function(*args)

        return run

    return decorate


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


def slogdet(sign: Array, logabsdet: Array, factors: Array, pivots: Array, x: Array) -> None:
    """Signs and logarithms of determinants. sign, logabsdet (...); factors, pivots, x as
    ``factor``."""
    factor(factors, pivots, np.empty(x.shape[:-2], np.int32), x)
    diagonal = np.diagonal(factors, axis1=-2, axis2=-1)
    turns = (pivots != np.arange(1, x.shape[-1] + 1)).sum(-1)
    sign[...] = np.sign(diagonal).prod(-1) * (1 - 2 * (turns % 2))
    with np.errstate(divide="ignore"):
        logabsdet[...] = np.log(np.abs(diagonal)).sum(-1)


def solve_triangular(out: Array, x: Array, y: Array, upper: int, unit: int) -> None:
    """``x out = y`` for triangles, infinite where a number on the diagonal is 0.

    x (..., n, n), of which the other triangle and, with unit, the diagonal are not read; out, y
    (..., n, m).
    """
    if x.shape[-1] < LARGE and x.size >= LITTLE:
        out[...] = y
        _substitute(out, _negative(x), upper, unit)
        return
    from scipy.linalg import blas  # which takes 30 ms to import

    solve = blas.strsm if x.dtype == np.float32 else blas.dtrsm
    for place in np.ndindex(x.shape[:-2]):
        if y[place].size:  # BLAS's columns are our rows: out.T times x.T, of the other kind, is y.T
            out[place] = solve(1.0, x[place].T, y[place].T, side=1, lower=upper, diag=unit).T


def _negative(x: Array) -> Array:
    """-x as ``substitute`` reads it; of one matrix that is repeated, of that."""
    if x.ndim > 2 and x.size and not any(x.strides[:-2]):
        x = x[(0,) * (x.ndim - 2)]
    minus = np.empty(x.shape, x.dtype)
    return np.negative(x, out=minus).reshape(_stacked(x))


def _stacked(x: Array) -> tuple[int, int, int]:
    """The shape with the stack in one dimension."""
    return math.prod(x.shape[:-2]), *x.shape[-2:]


def _substitute(
    out: Array, minus: Array, upper: int, unit: int, both: int = 0, pivots: Array | None = None
) -> None:
    """``triangles.substitute`` for a stack of any dimensions, any strides."""
    if not out.size:
        return
    room = np.ascontiguousarray(out)
    count = math.prod(out.shape[:-2])
    rows = np.empty((count, 0), np.int32) if pivots is None else pivots.reshape(count, -1)
    triangles.substitute(room.reshape(_stacked(out)), minus, rows, upper, unit, both)
    if room is not out:
        out[...] = room


@alone_below(1024, 2)
def qr(q: Array, r: Array, x: Array) -> None:
    """``q r = x``. x (..., m, n); q (..., m, k), r (..., k, n): k is m, or the smaller of m, n."""
    k = min(x.shape[-2:])
    if k <= NARROW and x.size >= LITTLE:
        rooms = [np.ascontiguousarray(a).reshape(_stacked(a)) for a in (q, r)]
        nothing = np.empty((len(rooms[0]), 0), x.dtype)
        reflections.qr(*rooms, nothing, _turned(x))
        for array, room in zip((q, r), rooms, strict=True):
            if not array.flags.c_contiguous:
                array[...] = room.reshape(array.shape)
        return
    if q.shape[-1] > k or not x.size:
        mode: Any = "complete" if q.shape[-1] > k else "reduced"
        q[...], r[...] = np.linalg.qr(x, mode)
        return
    from scipy.linalg import lapack

    narrow, room = x.dtype == np.float32, 64 * x.shape[-1]
    factored = lapack.sgeqrf if narrow else lapack.dgeqrf
    orthogonal = lapack.sorgqr if narrow else lapack.dorgqr
    for place in np.ndindex(x.shape[:-2]):
        packed, scales, _, _ = factored(x[place], lwork=room)
        r[place] = np.triu(packed[:k])
        q[place] = orthogonal(packed[:, :k], scales, lwork=room)[0]


def _turned(x: Array) -> Array:
    """A copy of the transposes of a stack, in one dimension."""
    return np.array(x.swapaxes(-1, -2), order="C").reshape(_stacked(x.swapaxes(-1, -2)))


def eigh(values: Array, vectors: Array, x: Array, upper: bool) -> None:
    """``x vectors = vectors values``, of symmetric x, one triangle of which is read.

    values (..., n), ascending; vectors, x (..., n, n).
    """
    vectors[...] = _eigen(values, x, upper, 1).swapaxes(-1, -2)


def eigvalsh(values: Array, x: Array, upper: bool) -> None:
    """The values of ``eigh`` alone."""
    _eigen(values, x, upper, 0)


def _eigen(values: Array, x: Array, upper: bool, vectors: int) -> Array:
    """``spectra.eigh``; the eigenvectors as rows, if they are asked for."""
    triangle: Any = "U" if upper else "L"
    if x.size >= LITTLE:
        count, n, _ = shape = _stacked(x)
        found = np.array(x, order="C")
        rows, info = np.empty((count, n), x.dtype), np.empty(count, np.int32)
        load_lapack()
        spectra.eigh(rows, info, found.reshape(shape), int(upper), vectors)
        if info.any():
            raise np.linalg.LinAlgError("Eigenvalues did not converge")
        values[...] = rows.reshape(values.shape)
    elif vectors:
        values[...], found = np.linalg.eigh(x, triangle)
        found = found.swapaxes(-1, -2)
    else:
        values[...] = found = np.linalg.eigvalsh(x, triangle)
    if not np.isfinite(values).all():
        raise np.linalg.LinAlgError(NOT_FINITE)
    return found


def svdvals(s: Array, x: Array) -> None:
    """The values of ``svd`` alone."""
    svd(None, s, None, x)


@alone_below(704, 3)
def svd(u: Array | None, s: Array, vh: Array | None, x: Array) -> None:
    """``u diag(s) vh = x``. x (..., m, n); s (..., k), k the smaller of m and n, descending.

    u (..., m, k or m), vh (..., k or n, n), or both None.
    """
    m, n = x.shape[-2:]
    if u is None or vh is None:
        full, u, vh = None, np.empty((0, 0, 0), x.dtype), np.empty((0, 0, 0), x.dtype)
    else:
        full = u.shape[-1] > min(m, n) or vh.shape[-2] > min(m, n)
    if not np.isfinite(x).all():  # LAPACK would write to the terminal
        raise np.linalg.LinAlgError(NOT_FINITE)
    if x.size < LITTLE:
        if full is None:
            found = np.linalg.svd(x, compute_uv=False)
        else:
            u[...], found, vh[...] = np.linalg.svd(x, full)
        s[...] = found.reshape(s.shape)
        return
    if m < n:  # LAPACK takes high matrices sooner
        x, u, vh, m, n = x.swapaxes(-1, -2), vh.swapaxes(-1, -2), u.swapaxes(-1, -2), n, m
    q = None
    if m >= 2 * n and n <= NARROW and not full:
        q, r = np.empty(x.shape, x.dtype), np.empty((*x.shape[:-2], n, n), x.dtype)
        q = q if full is not None else q[..., :0]
        qr(q, r, x)
        x = r
    turned = _turned(x)  # whose columns LAPACK takes for rows
    count, columns, rows = turned.shape
    right = np.empty((count, columns, columns if full else n), x.dtype)
    left = np.empty((count, rows if full else n, rows), x.dtype)
    found, info = np.empty((count, n), x.dtype), np.empty(count, np.int32)
    job = ord("N" if full is None else "A" if full else "S")
    load_lapack()
    spectra.svd(found, info, right, left, turned, job)
    if info.any():
        raise np.linalg.LinAlgError("SVD did not converge")
    s[...] = found.reshape(s.shape)
    if full is not None:
        left = left.reshape(*x.shape[:-2], *left.shape[1:]).swapaxes(-1, -2)
        right = right.reshape(*x.shape[:-2], *right.shape[1:]).swapaxes(-1, -2)
        u[...], vh[...] = left if q is None else q @ left, right


@alone_below(704, 1)
def pinv(out: Array, x: Array, rcond: float, atol: float) -> None:
    """Pseudo-inverses. x (..., m, n); out (..., n, m); singular values below atol, or below rcond
    times the largest, count as 0.
    """
    n, k = x.shape[-1], min(x.shape[-2:])
    if not x.size:
        return
    u, vh = np.empty((*x.shape[:-1], k), x.dtype), np.empty((*x.shape[:-2], k, n), x.dtype)
    s = np.empty((*x.shape[:-2], 1, k), x.dtype)
    svd(u, s, vh, x)
    kept = s > np.maximum(rcond * s[..., :1], atol)
    s = np.divide(1, s, out=np.zeros_like(s), where=kept)
    np.matmul(vh.swapaxes(-1, -2) * s, u.swapaxes(-1, -2), out=out)


@alone_below(384, 3)
def lstsq(out: Array, rank: Array, left: Array, x: Array, y: Array, rcond: float) -> None:
    """The shortest ``out`` that makes ``x out - y`` shortest, the rank of x, and what is left: the
    sums of the squares of ``x out - y`` where the rank is n.

    x (..., m, n), y (..., m, k); out (..., n, k), rank (...) int64, left (..., k).
    """
    (m, n), k = x.shape[-2:], y.shape[-1]
    if not (x.size and y.size):
        out[...], left[...] = 0, np.square(y).sum(-2)
        values = np.linalg.svd(x, compute_uv=False)
        rank[...] = (values > rcond * values[..., :1]).sum(-1)
        return
    tall = n <= NARROW and m >= 2 * n and x.size >= LITTLE
    if tall:  # the orthogonal factor leaves a square
        both = _turned(np.concatenate([x, y], -1))
        below, r = np.empty((len(both), k), x.dtype), np.empty((len(both), n, n + k), x.dtype)
        reflections.qr(np.empty((len(both), m, 0), x.dtype), r, below, both)
        left[...] = below.reshape(left.shape)
        r = r.reshape(*rank.shape, n, n + k)
        x, y = r[..., :n], r[..., n:]
        found = np.empty((*rank.shape, n, k + n), x.dtype)
        found[..., :k], found[..., k:] = y, np.eye(n, dtype=x.dtype)
        _substitute(found, _negative(x), 1, 0)
        out[...] = found[..., :k]
        rank[...] = n
        # No singular value is below one over the norm of the inverse.
        with np.errstate(over="ignore", invalid="ignore"):
            certain = _norm(x) * _norm(found[..., k:]) * rcond < 1
        if certain.all():
            return
    from scipy.linalg import lapack

    narrow = x.dtype == np.float32
    solved = lapack.sgelsy if narrow else lapack.dgelsy
    room = int((lapack.sgelsy_lwork if narrow else lapack.dgelsy_lwork)(*x.shape[-2:], k, rcond)[0])
    free = np.zeros(n, np.int32)
    for at in np.ndindex(rank.shape):
        if tall and certain[at]:
            continue
        high = np.zeros((max(x.shape[-2:]), k), x.dtype, "F")
        high[: y.shape[-2]] = y[at]
        _, found, _, rank[at], _ = solved(x[at], high, free.copy(), rcond, room)
        out[at] = found[:n]
    if not tall:
        left[...] = np.square(x @ out - y).sum(-2)


def _norm(x: Array) -> Array:
    """The root of the sum of the squares of matrices."""
    flat = x.reshape(*x.shape[:-2], -1)
    return np.sqrt(np.einsum("...i,...i", flat, flat))


def lu_factor(out: Array, pivots: Array, order: Array, info: Array, x: Array) -> None:
    """``factor``, and the rows' order (..., m) int64: x[order] = L U."""
    factor(out, pivots, info, x)
    order_of(order, pivots)


def factor(out: Array, pivots: Array, info: Array, x: Array) -> None:
    """Both triangles in ``out``; with which row each was exchanged, from 1 on.

    x, out (..., m, n); pivots (..., min(m, n)) int32; info (...) int32: 0, or the first number on
    the diagonal of U that is 0, from 1 on.
    """
    if not x.size:
        info[...] = 0
        return
    if pivots.shape[-1] < LARGE and x.size >= LITTLE:
        count = info.size
        shapes = _stacked(x), (count, pivots.shape[-1]), (count,)
        arrays = out, pivots, info
        rooms = [np.ascontiguousarray(a).reshape(s) for a, s in zip(arrays, shapes, strict=True)]
        np.copyto(rooms[0].reshape(x.shape), x)
        triangles.lu(*rooms)
        for array, room in zip(arrays, rooms, strict=True):
            if not array.flags.c_contiguous:
                array[...] = room.reshape(array.shape)
        return
    from scipy.linalg import lapack

    function = lapack.sgetrf if x.dtype == np.float32 else lapack.dgetrf
    for place in np.ndindex(x.shape[:-2]):
        out[place], rows, info[place] = function(x[place])
        pivots[place] = rows + 1


def lu_solved(out: Array, factors: Array, pivots: Array, y: Array, turned: int) -> None:
    """``x out = y``, or ``x.T out = y`` if turned, by what ``factor`` makes of x.

    factors (..., n, n); pivots (..., n); out, y (..., n, m).
    """
    n = factors.shape[-1]
    if n < LARGE and factors.size >= LITTLE:
        out[...] = y
        minus = _negative(factors.swapaxes(-1, -2) if turned else factors)
        _substitute(out, minus, 0, 1 - turned, 1, pivots)
        return
    from scipy.linalg import lapack

    function = lapack.sgetrs if out.dtype == np.float32 else lapack.dgetrs
    for place in np.ndindex(factors.shape[:-2]):
        if out[place].size:
            out[place], _ = function(factors[place], pivots[place] - 1, y[place], turned)


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
    for place in np.ndindex(order.shape[:-1]):
        mine = list(range(n))
        for i, j in enumerate(pivots[place].tolist()):
            mine[i], mine[j - 1] = mine[j - 1], mine[i]
        order[place] = mine


def matrix_exp(out: Array, x: Array) -> None:
    """Exponentials of matrices. out, x (..., n, n)."""
    from scipy.linalg import expm

    out[...] = expm(x)


def inv(out: Array, info: Array, x: Array) -> None:
    """Inverses, NaN where there are none. out, x (..., n, n); info (...) int32 as ``factor``."""
    ones = np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape)
    solve(out, info, np.empty(x.shape, x.dtype), np.empty(x.shape[:-1], np.int32), x, ones)


def solve(out: Array, info: Array, factors: Array, pivots: Array, x: Array, y: Array) -> None:
    """``x out = y``, NaN where there is no solution, and ``factor``.

    x (..., n, n); out, y (..., n, m).
    """
    factor(factors, pivots, info, x)
    lu_solved(out, factors, pivots, y, 0)
    if info.any():
        out[info != 0] = np.nan


def cholesky(out: Array, info: Array, x: Array) -> None:
    """Lower triangles L with ``L L.T = x``, NaN where x is not positive definite.

    out, x (..., n, n), of which only the lower triangle is read; info (...) int32: 0, or the size
    of the first leading part that is not positive definite, which one with a NaN is not.
    """
    n = x.shape[-1]
    if n <= SMALL and x.size >= LITTLE:
        rooms = [np.array(x, order="C").reshape(_stacked(x)), np.empty(info.size, np.int32)]
        triangles.cholesky(*rooms)
        out[...], info[...] = (r.reshape(a.shape) for r, a in zip(rooms, (out, info), strict=True))
        return
    from scipy.linalg import lapack

    function = lapack.spotrf if x.dtype == np.float32 else lapack.dpotrf
    for place in np.ndindex(info.shape):
        if not x[place].size:
            info[place] = 0
            continue
        found, info[place] = function(x[place], lower=1, clean=1)
        if not info[place]:  # not every LAPACK stops at a NaN
            wrong = np.isnan(found.diagonal())
            info[place] = wrong.argmax() + 1 if wrong.any() else 0
        out[place] = np.nan if info[place] else found


def geqrf(out: Array, tau: Array, x: Array) -> None:
    """The reflections that make matrices x (..., m, n) triangles, as LAPACK keeps them.

    out (..., m, n): the triangle, and below it the reflections' vectors; tau (..., min(m, n)).
    """
    from scipy.linalg import lapack

    function = lapack.sgeqrf if x.dtype == np.float32 else lapack.dgeqrf
    for at in np.ndindex(x.shape[:-2]):
        if x.shape[-1] and x.shape[-2]:
            out[at], tau[at], _, _ = function(x[at])
