"""Triangles: equations solved by substitution, and small matrices taken apart into them.

What is larger is for LAPACK, see ``lapack.py``, which calls these. Start at ``substitute``.
"""

from __future__ import annotations

import numpy as np

from ..inner import device
from ..intrinsics import address
from ..machine import kernel
from ..product import gemm, gemm_kernel

__all__ = ["lu", "order_of", "substitute"]

BLOCK = 16
"""Rows that are substituted one by one; beyond them products do the work."""

PANEL = 32
"""Columns that are eliminated one by one."""

NEVER = 1 << 62


@device
def add_product(out, minus, to, from_, rows, size):
    """``out[to:to + rows] += minus[to:to + rows, from_:from_ + size] out[from_:from_ + size]``."""
    n, m = out.shape
    step = out.itemsize
    place = address(out) + to * m * step
    gemm(
        *(out, False, False, rows, m, size, address(minus) + (to * n + from_) * step, n),
        *(address(out) + from_ * m * step, m, place, m, place, m),
    )


@device
def solve_rows(out, minus, begin, end, upper, unit):
    """Substitute the rows of ``out`` in one block, whose triangle stands on the diagonal."""
    m = out.shape[1]
    for step in range(end - begin):
        i = end - 1 - step if upper else begin + step
        row = out[i]
        for j in range(i + 1, end) if upper else range(begin, i):
            factor, other = minus[i, j], out[j]
            for k in range(m):
                row[k] += factor * other[k]
        if not unit:
            pivot = -minus[i, i]
            for k in range(m):
                row[k] /= pivot


@device
def solve_triangle(out, minus, upper, unit):
    """``-minus out = out`` in place. Half of what is known, at each size, meets half of what is
    not: products of squares."""
    n, m = out.shape
    if m == 0:
        return
    for block in range((n + BLOCK - 1) // BLOCK):
        known = min(n, (block + 1) * BLOCK)
        if upper:
            solve_rows(out, minus, n - known, n - block * BLOCK, upper, unit)
        else:
            solve_rows(out, minus, block * BLOCK, known, upper, unit)
        size = BLOCK * ((block + 1) & -(block + 1))
        rows = min(size, n - known)
        if rows > 0 and upper:
            add_product(out, minus, n - known - rows, n - known, rows, size)
        elif rows > 0:
            add_product(out, minus, known, known - size, rows, size)


@gemm_kernel(grain=NEVER)
def substitute(out, minus, upper, unit, both):
    """``x out = y`` for triangles x, in place of y.

    out (b, n, m) C, y at first; minus (b or 1, n, n) C: -x, of which the other triangle and, with
    unit, the diagonal are not read. both: then the same with the other triangle of x, of which the
    diagonal is read if it was not.
    """
    for b in range(len(out)):
        factors = minus[b if len(minus) > 1 else 0]
        solve_triangle(out[b], factors, upper, unit)
        if both:
            solve_triangle(out[b], factors, not upper, not unit)


@gemm_kernel(grain=NEVER, outputs=4, allocates=True)
def lu(out, pivots, order, info):
    """The factors of ``out``, in its place, with the largest number of a column as its pivot.

    out (b, m, n) C; pivots (b, min(m, n)) int32 C, order (b, m) int64 C, info (b) int32 C as
    ``lapack.lu_factor`` has them.
    """
    (m, n), count = out.shape[1:], pivots.shape[1]
    panel = np.empty((min(PANEL, count), m), out.dtype)
    for b in range(len(out)):
        x, info[b] = out[b], 0
        for begin in range(0, count, PANEL):
            end = min(begin + PANEL, count)
            wrong = eliminate(x, panel, pivots[b], begin, end)
            info[b] = info[b] or wrong
            if n > end:
                update(x, panel, begin, end)
    exchange(order, pivots)


@device
def eliminate(x, panel, pivots, begin, end):
    """Take apart the columns from ``begin`` to ``end``; the first without a pivot, from 1 on, or 0.

    panel: room for these columns, as rows: all steps but exchanges go along them.
    """
    (m, n), size, wrong = x.shape, end - begin, 0
    for i in range(m - begin):
        row = x[begin + i]
        for k in range(size):
            panel[k, i] = row[begin + k]
    for j in range(size):
        column = panel[j]
        best, found = abs(column[j]), j
        for i in range(j + 1, m - begin):
            value = abs(column[i])
            if value > best:
                best, found = value, i
        pivots[begin + j] = begin + found + 1
        if found != j:
            for k in range(size):
                panel[k, j], panel[k, found] = panel[k, found], panel[k, j]
            row, other = x[begin + j], x[begin + found]
            for k in range(n):
                row[k], other[k] = other[k], row[k]
        pivot = column[j]
        if pivot == 0:
            wrong = wrong or begin + j + 1
            continue
        below = column[j + 1 :]
        for i in range(m - begin - j - 1):
            below[i] /= pivot
        for k in range(j + 1, size):
            factor, other = panel[k, j], panel[k, j + 1 :]
            for i in range(m - begin - j - 1):
                other[i] -= factor * below[i]
    for i in range(m - begin):
        row = x[begin + i]
        for k in range(size):
            row[begin + k] = panel[k, i]
    return wrong


@device
def update(x, panel, begin, end):
    """The rows beside the columns of a panel, and what is beyond both without their product."""
    (m, n), size = x.shape, end - begin
    for i in range(begin + 1, end):
        row = x[i, end:]
        for j in range(begin, i):
            factor, other = x[i, j], x[j, end:]
            for k in range(n - end):
                row[k] -= factor * other[k]
    if m == end:
        return
    for j in range(size):
        column = panel[j, size:]
        for i in range(m - end):
            column[i] = -column[i]
    step = x.itemsize
    place = address(x) + (end * n + end) * step
    gemm(
        *(x, True, False, m - end, n - end, size, address(panel) + size * step, m),
        *(address(x) + (begin * n + end) * step, n, place, n, place, n),
    )


@device
def exchange(order, pivots):
    """The order of rows after exchanges."""
    for b in range(len(order)):
        for i in range(order.shape[1]):
            order[b, i] = i
        for i in range(pivots.shape[1]):
            j = pivots[b, i] - 1
            order[b, i], order[b, j] = order[b, j], order[b, i]


@kernel
def order_of(order, pivots):
    """``exchange`` alone. order (b, m) int64 C; pivots (b, k) int32 C, from 1 on."""
    exchange(order, pivots)
