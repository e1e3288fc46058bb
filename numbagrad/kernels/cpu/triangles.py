"""Triangles: equations solved by substitution, and small matrices taken apart into them.

What is larger is for LAPACK, see ``lapack.py``, which calls these. Start at ``substitute``.
"""

from __future__ import annotations

import numpy as np

from ..inner import device, inner
from ..intrinsics import address
from ..machine import kernel
from ..product import gemm, gemm_kernel

__all__ = ["cholesky", "lu", "substitute"]

BLOCK = 16
"""Rows that are substituted one by one; beyond them products do the work."""

PANEL = 16
"""Columns that are eliminated one by one."""

FEW = 48
"""Columns, or rows, up to which all steps go along the rows."""

NEVER = 1 << 62

fused = inner(fastmath={"contract", "nsz"})
"""Decorator of loops whose products and sums are one instruction."""


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


@fused
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


@device
def exchange_rows(out, pivots, backwards):
    """Exchange rows as ``lu`` did, or put them back."""
    count, m = len(pivots), out.shape[1]
    for step in range(count):
        i = count - 1 - step if backwards else step
        if pivots[i] != i + 1:
            exchange(out[i], out[pivots[i] - 1], m)


@device
def exchange(row, other, m):
    """Exchange the elements of two rows."""
    for k in range(m):
        row[k], other[k] = other[k], row[k]


@gemm_kernel(grain=NEVER)
def substitute(out, minus, pivots, upper, unit, both):
    """``x out = y`` for triangles x, in place of y.

    out (b, n, m) C, y at first; minus (b or 1, n, n) C: -x, of which the other triangle and, with
    unit, the diagonal are not read. both: then the same with the other triangle of x, of which the
    diagonal is read if it was not. pivots (b, n or 0) int32 C: the rows that ``lu`` exchanged, with
    unit in y, without in what comes out.
    """
    for b in range(len(out)):
        factors = minus[b if len(minus) > 1 else 0]
        if unit:
            exchange_rows(out[b], pivots[b], False)
        solve_triangle(out[b], factors, upper, unit)
        if both:
            solve_triangle(out[b], factors, not upper, not unit)
        if not unit:
            exchange_rows(out[b], pivots[b], True)


# -- factors ---------------------------------------------------------------------------------------


@gemm_kernel(grain=NEVER, outputs=3, allocates=True)
def lu(out, pivots, info):
    """The factors of ``out``, in its place, with the largest number of a column as its pivot.

    out (b, m, n) C; pivots (b, min(m, n)) int32 C, info (b) int32 C as ``lapack.lu_factor`` has
    them.
    """
    (m, n), count = out.shape[1:], pivots.shape[1]
    panel = np.empty((PANEL if count > FEW else 0, m), out.dtype)
    for b in range(len(out)):
        x = out[b]
        if count <= FEW:
            info[b] = eliminate(x, pivots[b])
            continue
        info[b] = 0
        for begin in range(0, count, PANEL):
            end = min(begin + PANEL, count)
            wrong = eliminate_columns(x, panel, pivots[b], begin, end)
            info[b] = info[b] or wrong
            if n > end:
                update(x, panel, begin, end)


@fused
def eliminate(x, pivots):
    """Take apart a small matrix, along its rows; the first column without a pivot, from 1 on, or
    0."""
    (m, n), wrong = x.shape, 0
    for j in range(len(pivots)):
        best, found = abs(x[j, j]), j
        for i in range(j + 1, m):
            value = abs(x[i, j])
            if value > best:
                best, found = value, i
        pivots[j] = found + 1
        if found != j:
            exchange(x[j], x[found], n)
        pivot = x[j, j]
        if pivot == 0:
            wrong = wrong or j + 1
            continue
        upper = x[j, j + 1 :]
        for i in range(j + 1, m):
            row = x[i, j + 1 :]
            x[i, j] = factor = x[i, j] / pivot
            for k in range(n - j - 1):
                row[k] -= factor * upper[k]
    return wrong


@fused
def eliminate_columns(x, panel, pivots, begin, end):
    """``eliminate`` for the columns from ``begin`` to ``end`` alone.

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
            exchange(x[begin + j], x[begin + found], n)
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


@fused
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


@kernel(outputs=2, allocates=True)
def cholesky(out, info):
    """Triangles L with ``L L.T = x`` in place of x, of which only the lower triangle is read.

    out (b, n, n) C, zeros above the diagonal and NaN where x is not positive definite; info (b)
    int32 C: 0, or the size of the first leading part that is not.
    """
    n = out.shape[1]
    column = np.empty(n, out.dtype)
    for b in range(len(out)):
        x, info[b] = out[b], 0
        for j in range(n):
            pivot = x[j, j]
            if not pivot > 0:
                info[b] = j + 1
                x[:] = np.nan
                break
            x[j, j] = pivot = np.sqrt(pivot)
            for i in range(j + 1, n):
                x[j, i] = 0
                x[i, j] = column[i] = x[i, j] / pivot
            for i in range(j + 1, n):
                row, beside, factor = x[i, j + 1 :], column[j + 1 :], column[i]
                for k in range(i - j):
                    row[k] -= factor * beside[k]
