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

BLOCK = 8
"""Columns that are reflected one by one."""

SMALLEST, SMALLEST_DOUBLE = 1e-30, 1e-290
"""Sums of squares from which none that was lost matters."""

summing = inner(fastmath={"contract", "nsz", "reassoc"})
"""Decorator of loops whose sums LLVM may reorder."""


@gemm_kernel(grain=NEVER, outputs=4, allocates=True)
def qr(q, r, left, x):
    """``q r = x.T`` as LAPACK has it, with the same signs; x is lost.

    x (b, n, m) C; r (b, k, n) C: k columns are reflected if there are, all others turned with them;
    q (b, m, c) C: the first c columns of the orthogonal factor, none for 0; left (b, l) C: of the
    last l columns the sums of squares below their k numbers in r.
    """
    (n, m), columns = x.shape[1:], q.shape[2]
    count = min(r.shape[1], m, n)
    scales = np.empty(count, x.dtype)
    vectors = np.empty((min(count, BLOCK), m), x.dtype)
    room = np.empty(count * max(count, BLOCK, columns) + BLOCK * n, x.dtype)
    minus = np.empty(count * max(count, BLOCK), x.dtype)
    for b in range(len(x)):
        for begin in range(0, count, BLOCK):
            end = min(begin + BLOCK, count)
            reflect(x[b], scales, begin, end)
            if end < n:
                turn(x[b], scales[begin:end], begin, end, vectors, minus, room)
        for i in range(r.shape[1]):
            for j in range(n):
                r[b, i, j] = x[b, j, i] if j >= i and i < m else 0
        for i in range(left.shape[1]):
            below = x[b, n - left.shape[1] + i, count:]
            left[b, i] = sum_of_products(below, below)
        if columns:
            for j in range(count):
                x[b, j, :j], x[b, j, j] = 0, 1
            join(q[b], x[b], scales, minus, room)


@summing
def sum_of_products(x, y):
    """The sum of the products of numbers, as many as y has."""
    total = y.dtype.type(0)
    for i in range(len(y)):
        total += x[i] * y[i]
    return total


@summing
def reflect(x, scales, begin, end):
    """Reflect some columns of a matrix, stored as rows, onto the axes one after another.

    A row has its number on the diagonal of R, what stands above, and its vector v beside: scales
    are those of ``1 - scale v v.T``, where v is 1 on the diagonal.
    """
    m = x.shape[1]
    for j in range(begin, end):
        scales[j] = scale = onto_axis(x[j, j:])
        vector = x[j, j + 1 :]
        for k in range(j + 1, end):
            row = x[k, j + 1 :]
            total = scale * (x[k, j] + sum_of_products(vector, row))
            x[k, j] -= total
            for i in range(m - j - 1):
                row[i] -= total * vector[i]


@summing
def onto_axis(column):
    """Make a column its length, with the sign that cancels nothing, and the vector that reflects
    it there; its scale, 0 where there is nothing beside the first number."""
    first, rest, unit = column[0], column[1:], column.dtype.type(1)
    total, least = (
        sum_of_products(rest, rest),
        SMALLEST if column.itemsize == 4 else SMALLEST_DOUBLE,
    )
    if not (total > least and total + first * first < math.inf):
        unit -= unit  # squares may be too small or too large: in units of the largest number
        for i in range(len(rest)):
            unit = max(unit, abs(rest[i]))
        if unit == 0:
            return unit
        unit = max(unit, abs(first))
        total = column.dtype.type(0)
        for i in range(len(rest)):
            part = rest[i] / unit
            total += part * part
    part = first / unit
    length = -math.copysign(unit * math.sqrt(total + part * part), first)
    for i in range(len(rest)):
        rest[i] /= first - length
    column[0] = length
    return (length - first) / length


@device
def turn(x, scales, begin, end, vectors, minus, room):
    """Let the reflections of some columns turn those that follow: ``1 - V T.T V.T``."""
    (n, m), size = x.shape, end - begin
    width, rest = m - begin, n - end
    for j in range(size):
        row, found = vectors[j, j + 1 :], x[begin + j, begin + j + 1 :]
        vectors[j, :j], vectors[j, j] = 0, 1
        for i in range(len(found)):
            row[i] = found[i]
    known = minus[: size * size].reshape((size, size))
    inverse_triangle(known, vectors, width, scales)
    inner = room[: size * rest].reshape((size, rest))
    others = address(x) + (end * m + begin) * x.itemsize
    gemm(
        *(x, False, True, size, rest, width, address(vectors), m, others, m),
        *(0, 0, address(inner), rest),
    )
    solve_triangle(inner, known, False, False)
    for i in range(size):
        for j in range(rest):
            inner[i, j] = -inner[i, j]
    gemm(
        *(x, True, False, rest, width, size, address(inner), rest, address(vectors), m),
        *(others, m, others, m),
    )


@device
def join(q, vectors, scales, minus, room):
    """The first columns of the product of reflections, ``1 - V T V.T``."""
    (m, columns), count = q.shape, len(scales)
    q[:] = 0
    for i in range(columns):
        q[i, i] = 1
    if count == 0:
        return
    known = minus[: count * count].reshape((count, count))
    inverse_triangle(known, vectors, m, scales)
    inner = room[: count * columns].reshape((count, columns))
    for i in range(count):
        for j in range(columns):
            inner[i, j] = -vectors[i, j]
    solve_triangle(inner, known, True, False)
    to = address(q)
    gemm(
        *(q, True, False, m, columns, count, address(vectors), m, address(inner), columns),
        *(to, columns, to, columns),
    )


@device
def inverse_triangle(minus, vectors, width, scales):
    """Minus the inverse of T, in its upper half, and of ``T.T``, in its lower one.

    It is that half of ``V.T V``, with 1 / scale on its diagonal (Joffrain and others, 2006).
    """
    count, m, place = len(scales), vectors.shape[1], address(vectors)
    if count > BLOCK:
        gemm(
            *(minus, False, True, count, count, width, place, m, place, m),
            *(0, 0, address(minus), count),
        )
    for i in range(count):
        for j in range(i):
            if count <= BLOCK:
                minus[i, j] = sum_of_products(vectors[i], vectors[j, :width])
            minus[i, j] = minus[j, i] = -minus[i, j]
        minus[i, i] = -1 / scales[i]
