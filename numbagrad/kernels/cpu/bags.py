"""Bags of rows of a table: their sums, means and largest numbers, and the gradients.

A bag is a piece of the flat ``index``: with ``starts`` it ends where the next one starts, the last
with the index, which a start more may say; without any all are of one size. Every kernel checks
first: ``bad`` (1,) int64 becomes -1, the position of the first index out of range, or those of the
index and that of the first start that is before another, or behind the end; then nothing was read.
Start at ``sum_bags``.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..bags_of_rows import largest_rows_at, sum_rows_at
from ..inner import device
from ..intrinsics import address
from ..machine import kernel
from ..vectors import VECTOR_BYTES
from .index import first_bad

__all__ = ["add_bags", "bag_dots", "largest_of_bags", "sum_bags"]

GRAIN = 65536
"""Elements of the largest array from which a second thread pays."""

TOGETHER = 32
"""Bags in a task."""

WIDTH = 64
"""Columns that one thread owns where rows of bags meet, as in ``index.py``."""


@device
def wrong(index, rows, starts):
    """What ``bad`` becomes."""
    found = first_bad(index, rows, False)
    if found >= 0:
        return found
    before = 0
    for i in range(starts.size):
        if starts[i] < before or starts[i] > index.size or (i == 0 and starts[0] > 0):
            return index.size + i
        before = starts[i]
    return -1


@device
def bounds(bag, bags, each, index, starts):
    """Where in index a bag begins, and where it ends; each: what all hold without starts."""
    if starts.size == 0:
        return bag * each, (bag + 1) * each
    return starts[bag], starts[bag + 1] if bag + 1 < bags else index.size


@kernel(grain=GRAIN, outputs=2)
def sum_bags(out, bad, x, index, starts, factors, skip, mean):
    """out (bags, k); x (v, k), index (n), factors (n) or of size 0: the sums of rows times factors.

    skip: an index whose row does not count, or -1. mean: whether to divide by how many do. All C.
    """
    bags, k = out.shape
    each = index.size // max(1, bags)
    bad[0] = wrong(index, x.shape[0], starts)
    if bad[0] >= 0:
        return
    weighted = factors.size > 0
    by, count = address(factors) if weighted else 0, bags if starts.size else 0
    for task in prange((bags + TOGETHER - 1) // TOGETHER):
        first, last = task * TOGETHER, min(bags, (task + 1) * TOGETHER)
        if VECTOR_BYTES:  # a constant
            sum_rows_at(
                *(x, first, last, address(out), address(x), k, address(index), index.size),
                *(address(starts), count, each, by, skip, mean),
            )
            continue
        for bag in range(first, last):
            begin, end = bounds(bag, bags, each, index, starts)
            found = 0
            for c in range(k):
                out[bag, c] = 0
            for i in range(begin, end):
                if index[i] != skip:
                    found += 1
                    for c in range(k):
                        value = x[index[i], c]
                        out[bag, c] += value * factors[i] if weighted else value
            if mean and found > 1:
                for c in range(k):
                    out[bag, c] /= found


@kernel(grain=GRAIN, outputs=2)
def add_bags(out, bad, g, index, starts, factors, skip, mean):
    """out (v, k), g (bags, k): what ``sum_bags`` read for a bag gets its row of g, times the factor
    or over how many there are. out is read too; entries are added in the order of index."""
    bags, k = g.shape
    each = index.size // max(1, bags)
    bad[0] = wrong(index, out.shape[0], starts)
    if bad[0] >= 0:
        return
    weighted, one = factors.size > 0, g.dtype.type(1)
    for block in prange((k + WIDTH - 1) // WIDTH):
        first = block * WIDTH
        last = min(first + WIDTH, k)
        for bag in range(bags):
            begin, end = bounds(bag, bags, each, index, starts)
            share = one
            if mean:
                found = 0
                for i in range(begin, end):
                    found += 1 if index[i] != skip else 0
                share = one / max(1, found)
            for i in range(begin, end):
                if index[i] != skip:
                    row, by = np.uintp(index[i]), factors[i] if weighted else share
                    for j in range(first, last):
                        c = np.uintp(j)  # a signed one might be negative: no SIMD form then
                        out[row, c] += by * g[np.uintp(bag), c]


@kernel(grain=GRAIN, outputs=2, reassoc=True)
def bag_dots(out, bad, g, x, index, starts, skip):
    """out (n), g (bags, k), x (v, k): the product of each row that ``sum_bags`` reads and its bag's
    row of g; 0 for what does not count."""
    bags, k = g.shape
    each = index.size // max(1, bags)
    bad[0] = wrong(index, x.shape[0], starts)
    if bad[0] >= 0:
        return
    for bag in prange(0, bags):
        begin, end = bounds(bag, bags, each, index, starts)
        for i in range(begin, end):
            row, total = np.uintp(index[i]), g.dtype.type(0)
            if index[i] != skip:
                for c in range(k):
                    total += g[np.uintp(bag), np.uintp(c)] * x[row, np.uintp(c)]
            out[i] = total


@kernel(grain=GRAIN, outputs=3)
def largest_of_bags(out, bad, rows, x, index, starts, skip):
    """out (bags, k): the largest number of each column, NaN before all; rows (bags, k) int64: the
    first row of x that it is from. Of an empty bag 0, and -1."""
    bags, k = out.shape
    each = index.size // max(1, bags)
    bad[0] = wrong(index, x.shape[0], starts)
    if bad[0] >= 0:
        return
    count = bags if starts.size else 0
    for task in prange((bags + TOGETHER - 1) // TOGETHER):
        first, last = task * TOGETHER, min(bags, (task + 1) * TOGETHER)
        if VECTOR_BYTES:  # a constant
            largest_rows_at(
                *(x, first, last, address(out), address(rows), address(x), k, address(index)),
                *(index.size, address(starts), count, each, skip),
            )
        for bag in range(first, last):
            b = np.uintp(bag)
            if VECTOR_BYTES:
                for j in range(k):
                    c = np.uintp(j)
                    rows[b, c] = index[rows[b, c]] if rows[b, c] >= 0 else -1
                continue
            begin, end = bounds(bag, bags, each, index, starts)
            fresh = True
            for c in range(k):
                out[b, c], rows[b, c] = 0, -1
            for i in range(begin, end):
                if index[i] != skip:
                    for c in range(k):
                        value, best = x[index[i], c], out[b, c]
                        if fresh or value > best or (value != value and best == best):
                            out[b, c], rows[b, c] = value, index[i]
                    fresh = False
