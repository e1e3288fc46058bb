"""Where the largest of many numbers stands, in rows and in columns: the parts of argmax, argmin."""

from __future__ import annotations

import numpy as np

from .intrinsics import lesser, load, stack, store
from .order import lowest, raised
from .shares import LANES, LARGE, WIDE, inlined, lanes_of, parts_of, rows_of

__all__ = ["find"]

BLOCK = 256
"""Elements of a row whose highest is looked for before its place."""

SHORT = 32
"""Up to this length a row is searched element by element."""


@inlined
def find(values, indices, x, part, key):
    """One share of argmax (key rising) or argmin (key falling); the first of equals wins."""
    outer, k, inner = values.shape
    n = x.shape[1]
    tiles = -(-inner // lanes_of(x))
    tasks, parts = outer * k * tiles, parts_of(values, x)
    lanes, places = stack(WIDE, lowest(x)), stack(WIDE, np.int32(0))
    for task in range(tasks * part // parts, tasks * (part + 1) // parts):
        tile, piece = task % tiles, task // tiles
        first, last = inner * tile // tiles, inner * (tile + 1) // tiles
        row, end = rows_of(piece, n, k)
        start = (piece // k) * n
        if inner == 1:
            at = find_in_row(x, row, end, key)
            store(values, piece, load(x, at))
            store(indices, piece, at - start)
            continue
        for lane in range(last - first):
            lanes[lane] = key(load(x, row * inner + first + lane))
            places[lane] = 0
        j, long = 1, end - row  # within a piece, which is no longer than int32 counts
        # Four rows at once pay where accumulators leave the innermost cache.
        while x.size >= LARGE and last - first > LANES and j + 4 <= long:
            base, this = (row + j) * inner + first, np.int32(j)
            for lane in range(last - first):
                at = base + lane
                a, b = key(load(x, at)), key(load(x, at + inner))
                at += 2 * inner
                c, d = key(load(x, at)), key(load(x, at + inner))
                first_of = this + np.int32(1) if b > a else this
                second_of = this + np.int32(3 if d > c else 2)
                a, c = raised(a, b), raised(c, d)
                first_of = second_of if c > a else first_of
                a = raised(a, c)
                places[lane] = first_of if a > lanes[lane] else places[lane]
                lanes[lane] = raised(lanes[lane], a)
            j += 4
        for i in range(j, long):
            base, this = (row + i) * inner + first, np.int32(i)
            for lane in range(last - first):
                other = key(load(x, base + lane))
                places[lane] = this if other > lanes[lane] else places[lane]
                lanes[lane] = raised(lanes[lane], other)
        base = piece * inner + first
        for lane in range(last - first):
            at = row + places[lane]
            store(values, base + lane, load(x, at * inner + first + lane))
            store(indices, base + lane, at - start)


@inlined
def find_in_row(x, begin, end, key):
    """Position of the first highest key: find the block that holds it, then search that block."""
    best, at = lowest(x), begin
    if end - begin <= SHORT:
        for i in range(begin, end):
            this = key(load(x, i))
            at = i if this > best else at
            best = raised(best, this)
        return at
    for block in range(begin, end, BLOCK):
        high = lowest(x)
        for i in range(block, lesser(block + BLOCK, end)):
            high = raised(high, key(load(x, i)))
        if high > best:
            best, at = high, block
    place = np.int32(BLOCK)
    for i in range(lesser(BLOCK, end - at)):
        place = min(place, np.int32(i) if key(load(x, at + i)) == best else np.int32(BLOCK))
    return at + place
