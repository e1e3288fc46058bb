"""Bags of rows of a table: their sums, means and largest numbers, and the gradients.

A thread makes a number of the result. Where rows meet, a stable sort brings the entries together,
as in ``index.py``. Start reading at ``sum_bags``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float64, int64

from .runtime import device
from .runtime.intrinsics import as_type
from .runtime.launch import start, strided_grid
from .runtime.places import NOWHERE, check, slice_keys, sorted_pairs
from .runtime.shape import BLOCK
from .runtime.warp import inlined, split

__all__ = ["add_bags", "bag_dots", "largest_of_bags", "sum_bags"]

_INT64 = np.dtype(np.int64)


def _check_starts(bad, starts, count, n):
    """bad[0], if it is -1: n and the first place where a start is not where it may be."""
    shared = cuda.shared.array(BLOCK, int64)
    first = int64(NOWHERE)
    i = cuda.threadIdx.x
    while i < count:
        before = starts[i - 1] if i > 0 else 0
        wrong = starts[i] < before or starts[i] > n or (i == 0 and starts[i] != 0)
        if wrong and i < first:
            first = int64(i)
        i += BLOCK
    shared[cuda.threadIdx.x] = first
    cuda.syncthreads()
    if cuda.threadIdx.x == 0 and bad[0] < 0:
        for other in range(1, BLOCK):
            first = min(first, shared[other])
        if first < NOWHERE:
            bad[0] = n + first


def _check_all(bad: Any, index: Any, rows: int, starts: Any) -> None:
    check(bad, index, rows, False)
    if starts.size:
        start(_check_starts, 1, BLOCK, bad, starts, starts.size, index.size)


def _count(starts: Any, bags: int) -> int:
    """How many starts are those of bags: none, where all are of one size."""
    return bags if starts.size else 0


@inlined
def _begin(bag, starts, count, each):
    """Where a bag begins."""
    return starts[bag] if count else bag * each


@inlined
def _end(bag, starts, count, each, n):
    """Where a bag ends."""
    if count:
        return starts[bag + 1] if bag + 1 < count else n
    return (bag + 1) * each


def _sum_bags(out, bad, x, index, starts, factors, size, k, count, each, n, weighted, skip, mean):
    """A thread for each number of out."""
    if bad[0] >= 0:
        return
    i = cuda.grid(1)
    while i < size:
        bag, c = split(i, k)
        total, found = float64(0), 0
        for b in range(_begin(bag, starts, count, each), _end(bag, starts, count, each, n)):
            if index[b] != skip:
                value = float64(x[index[b] * k + c])
                total += value * factors[b] if weighted else value
                found += 1
        out[i] = as_type(out, total / max(1, found) if mean else total)
        i += cuda.gridsize(1)


def sum_bags(out, bad, x, index, starts, factors, skip, mean):
    """out (bags, k); x (v, k), index (n), factors (n) or of size 0: the sums of rows times factors.

    skip: an index whose row does not count, or -1. mean: whether to divide by how many do. All C.
    """
    _check_all(bad, index, x.shape[0], starts)
    if out.size:
        sizes = _count(starts, out.shape[0]), index.size // out.shape[0], index.size
        start(
            *(_sum_bags, strided_grid(out.size), BLOCK, out, bad, x, index, starts, factors),
            *(out.size, out.shape[1], *sizes, 1 if factors.size else 0, skip, 1 if mean else 0),
        )


def _bag_of_each(
    bag_of, shares, bad, index, starts, factors, bags, count, each, n, weighted, skip, mean
):
    """A thread for each bag: which bag an entry is in, and its factor or share."""
    if bad[0] >= 0:
        return
    bag = cuda.grid(1)
    while bag < bags:
        begin, end = _begin(bag, starts, count, each), _end(bag, starts, count, each, n)
        found = 0
        for b in range(begin, end):
            found += 1 if index[b] != skip else 0
        for b in range(begin, end):
            bag_of[b] = bag
            share = float64(1)
            if mean:
                share = float64(1) / max(1, found)
            shares[b] = float64(factors[b]) if weighted else share
        bag += cuda.gridsize(1)


def _add_bags(out, bad, g, keys, places, bag_of, shares, size, n, k, skip):
    """A thread for each column of each entry; the first of those that meet does them all."""
    if bad[0] >= 0:
        return
    i = cuda.grid(1)
    while i < size:
        entry, c = split(i, k)
        at = keys[entry]
        if at != skip and (entry == 0 or keys[entry - 1] != at):
            total = float64(out[at * k + c])
            while entry < n and keys[entry] == at:
                place = places[entry]
                total += shares[place] * float64(g[bag_of[place] * k + c])
                entry += 1
            out[at * k + c] = as_type(out, total)
        i += cuda.gridsize(1)


def add_bags(out, bad, g, index, starts, factors, skip, mean):
    """out (v, k), g (bags, k): what ``sum_bags`` read for a bag gets its row of g, times the factor
    or over how many there are. out is read too; entries are added in the order of index."""
    v, k = out.shape
    n, bags = index.size, g.shape[0]
    _check_all(bad, index, v, starts)
    if not n or not g.size:
        return
    bag_of = device.empty((n,), _INT64, index.device)
    shares = device.empty((n,), np.dtype(np.float64), index.device)
    how = 1 if factors.size else 0, skip, 1 if mean else 0
    start(
        *(_bag_of_each, strided_grid(bags), BLOCK, bag_of, shares, bad, index, starts, factors),
        *(bags, _count(starts, bags), n // bags, n, *how),
    )
    keys, places = sorted_pairs(slice_keys, bad, index, v, n, v)
    size = n * k
    start(
        *(_add_bags, strided_grid(size), BLOCK, out, bad, g, keys, places, bag_of, shares),
        *(size, n, k, skip),
    )


def _bag_dots(out, bad, g, x, index, starts, bags, k, count, each, n, skip):
    """A thread for each bag."""
    if bad[0] >= 0:
        return
    bag = cuda.grid(1)
    while bag < bags:
        for b in range(_begin(bag, starts, count, each), _end(bag, starts, count, each, n)):
            total = float64(0)
            if index[b] != skip:
                for c in range(k):
                    total += float64(g[bag * k + c]) * float64(x[index[b] * k + c])
            out[b] = as_type(out, total)
        bag += cuda.gridsize(1)


def bag_dots(out, bad, g, x, index, starts, skip):
    """out (n), g (bags, k), x (v, k): the product of each row that ``sum_bags`` reads and its bag's
    row of g; 0 for what does not count."""
    bags, k = g.shape
    _check_all(bad, index, x.shape[0], starts)
    if bags:
        sizes = bags, k, _count(starts, bags), index.size // bags, index.size, skip
        start(_bag_dots, strided_grid(bags), BLOCK, out, bad, g, x, index, starts, *sizes)


def _largest_of_bags(out, bad, rows, x, index, starts, size, k, count, each, n, skip):
    """A thread for each number of out."""
    if bad[0] >= 0:
        return
    i = cuda.grid(1)
    while i < size:
        bag, c = split(i, k)
        best, row = as_type(out, 0), int64(-1)
        for b in range(_begin(bag, starts, count, each), _end(bag, starts, count, each, n)):
            if index[b] != skip:
                value = x[index[b] * k + c]
                if row < 0 or value > best or (value != value and best == best):
                    best, row = value, index[b]
        out[i], rows[i] = best, row
        i += cuda.gridsize(1)


def largest_of_bags(out, bad, rows, x, index, starts, skip):
    """out (bags, k): the largest number of each column, NaN before all; rows (bags, k) int64: the
    first row of x that it is from. Of an empty bag 0, and -1."""
    _check_all(bad, index, x.shape[0], starts)
    if out.size:
        bags, k = out.shape
        sizes = out.size, k, _count(starts, bags), index.size // bags, index.size, skip
        start(
            *(_largest_of_bags, strided_grid(out.size), BLOCK),
            *(out, bad, rows, x, index, starts, *sizes),
        )
