"""Orthogonal factors of narrow matrices by Householder's reflections, which products put together.

What is wider is for LAPACK, see ``lapack.py``, which calls this. Start at ``qr``.
"""

from __future__ import annotations

import math

import numpy as np

from ..inner import device, inner
from ..intrinsics import address
from ..product import gemm, gemm_kernel
from .triangles import NEVER, solve_triangle

__all__ = ["qr"]

summing = inner(fastmath={"contract", "nsz", "reassoc"})


@gemm_kernel(grain=NEVER, outputs=3, allocates=True)
def qr(q, r, x):
    """``q r = x.T`` as LAPACK has it, with the same signs; x is lost.

    x (b, n, m) C; r (b, k, n) C: k columns are reflected if there are, all others turned with them;
    q (b, m, c) C: the first c columns of the orthogonal factor, none for 0.
    """
    (n, m), columns = x.shape[1:], q.shape[2]
    count = min(r.shape[1], m, n)
    scales = np.empty(count, x.dtype)
    minus = np.empty((count if columns else 0, count), x.dtype)
    inner = np.empty((count if columns else 0, columns), x.dtype)
    for b in range(len(x)):
        reflect(x[b], scales)
        for i in range(r.shape[1]):
            for j in range(n):
                r[b, i, j] = x[b, j, i] if j >= i else 0
        if columns:
            for j in range(count):
                x[b, j, :j], x[b, j, j] = 0, 1
            join(q[b], x[b], scales, minus, inner)


@summing
def reflect(x, scales):
    """Reflect the first columns of a matrix, stored as rows, onto the axes one after another.

    A row has its number on the diagonal of R, what stands above, and its vector v beside: scales
    are those of ``1 - scale v v.T``, where v is 1 on the diagonal.
    """
    n, m = x.shape
    for j in range(len(scales)):
        scales[j] = scale = onto_axis(x[j, j:])
        vector = x[j, j + 1 :]
        for k in range(j + 1, n):
            row = x[k, j + 1 :]
            total = x[k, j]
            for i in range(m - j - 1):
                total += vector[i] * row[i]
            total *= scale
            x[k, j] -= total
            for i in range(m - j - 1):
                row[i] -= total * vector[i]


@summing
def onto_axis(column):
    """Make a column its length, with the sign that cancels nothing, and the vector that reflects
    it there; its scale, 0 where there is nothing beside the first number."""
    first, rest = column[0], column[1:]
    largest = column.dtype.type(0)
    for i in range(len(rest)):
        largest = max(largest, abs(rest[i]))
    if largest == 0:
        return largest
    largest = max(largest, abs(first))
    total = (first / largest) * (first / largest)
    for i in range(len(rest)):
        part = rest[i] / largest
        total += part * part
    length = -math.copysign(largest * math.sqrt(total), first)
    for i in range(len(rest)):
        rest[i] /= first - length
    column[0] = length
    return (length - first) / length


@device
def join(q, vectors, scales, minus, inner):
    """The first columns of the product of reflections, ``1 - V T V.T``.

    The triangle T is the inverse of the upper half of ``V.T V`` with 1 / scale on its diagonal
    (Joffrain and others, 2006).
    """
    (count, columns), m = inner.shape, len(q)
    q[:] = 0
    for i in range(columns):
        q[i, i] = 1
    if count == 0:
        return
    place = address(vectors)
    gemm(
        *(q, False, True, count, count, m, place, m, place, m),
        *(0, 0, address(minus), count),
    )
    for i in range(count):
        for j in range(count):
            minus[i, j] = -minus[i, j]
        minus[i, i] = -1 / scales[i]
        for j in range(columns):
            inner[i, j] = -vectors[i, j]
    solve_triangle(inner, minus, True, False)
    to = address(q)
    gemm(
        *(q, True, False, m, columns, count, place, m, address(inner), columns),
        *(to, columns, to, columns),
    )
