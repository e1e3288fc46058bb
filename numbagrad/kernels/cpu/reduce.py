"""Reductions along the middle axis of ``x (outer, n, inner)``; start reading at ``_fold``.

One form serves every case: a full reduction is (1, n, 1), a row (outer, n, 1), a column
(1, n, inner). ``out`` is (outer, pieces, inner): piece ``c`` holds the reduction of the c-th of
``pieces`` nearly equal parts of the middle axis, so that a long axis can be shared by threads;
reducing the pieces again gives the result. ``pieces`` depends on the shape alone, hence so do the
bits of the result. float32 is accumulated in float64; sums take four numbers at a time, which they
add up in float32 first: to widen each would cost as much as all the rest. Numbers beyond 8.5e37 may
so have an infinite mean.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from ..extremes import find
from ..half_type import sum_type
from ..intrinsics import added, lesser, load, plus, stack, store, widened
from ..machine import kernel
from ..order import (
    bottom,
    down,
    lowered,
    lowered_by_four,
    raised,
    raised_by_four,
    to_least,
    to_most,
    up,
)
from ..row_folds import by_lanes, least_row, most_row, number_row, product_row, sum_row
from ..shares import GRAIN, WIDE, inlined, is_deep, lanes_of, parts_of, rows_of

__all__ = [
    "abs_amax",
    "abs_amin",
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "mean",
    "nansum",
    "norm",
    "norm1",
    "norm2",
    "norm3",
    "prod",
    "squares",
    "sum",
]

GROUP = 256
"""Narrow rows are taken together up to this many accumulators."""


@inlined
def _fold(out, x, part, start, step, four, merge, finish, p, of_row):
    """Do one of ``parts_of(out, x)`` shares of the reduction.

    start(x): a neutral accumulator. step(acc, value, p): take in an element; four: how to take in
    four. merge(acc, other). finish(acc, x, p): the value to store. of_row: what comes of a
    row, see ``by_lanes``.
    """
    outer, k, inner = out.shape
    n = x.shape[1]
    tiles = -(-inner // lanes_of(x))
    tasks, parts = outer * k * tiles, parts_of(out, x)
    todo = range(tasks * part // parts, tasks * (part + 1) // parts)
    if inner == 1:
        for task in todo:
            i, end = rows_of(task, n, k)
            store(out, task, finish(of_row(x, i, end, start, step, four, merge, p), x, p))
        return
    # A narrow row is taken several rows at a time: the accumulators repeat it ``group`` times.
    group = GROUP // inner if 0 < inner < GROUP else 1
    lanes = stack(WIDE, start(x))
    for task in todo:
        first, last, piece = 0, inner, task
        if tiles > 1:
            tile, piece = task % tiles, task // tiles
            first, last = inner * tile // tiles, inner * (tile + 1) // tiles
        row, end = rows_of(piece, n, k)
        used = lesser(group, end - row)
        width = (last - first) * used
        for lane in range(width if used > 0 else last - first):
            lanes[lane] = start(x)
        apart = used * inner
        deep = used > 0 and is_deep(x, last - first)
        while deep and row + 8 * used <= end:  # an accumulator is read and written once
            base = row * inner + first
            for lane in range(width):
                at = base + lane
                a, b = load(x, at), load(x, at + apart)
                c, d = load(x, at + 2 * apart), load(x, at + 3 * apart)
                acc = four(step, lanes[lane], a, b, c, d, p)
                at += 4 * apart
                a, b = load(x, at), load(x, at + apart)
                c, d = load(x, at + 2 * apart), load(x, at + 3 * apart)
                lanes[lane] = four(step, acc, a, b, c, d, p)
            row += 8 * used
        while row + used <= end and used > 0:
            base = row * inner + first
            for lane in range(width):
                lanes[lane] = step(lanes[lane], load(x, base + lane), p)
            row += used
        base = row * inner
        for lane in range((end - row) * inner):
            lanes[lane] = step(lanes[lane], load(x, base + lane), p)
        for repeat in range(1, used):
            for lane in range(inner):
                lanes[lane] = merge(lanes[lane], lanes[repeat * inner + lane])
        base = piece * inner + first
        for lane in range(last - first):
            store(out, base + lane, finish(lanes[lane], x, p))


@inlined
def _each(step, acc, a, b, c, d, p):
    """Take in four elements, one after another."""
    return step(step(step(step(acc, a, p), b, p), c, p), d, p)


@inlined
def _added(step, acc, a, b, c, d, p):
    """Take in the sum of four elements."""
    return step(acc, added(added(a, b), added(c, d)), p)


@inlined
def _same(acc, x, p):
    return acc


@inlined
def _zero(x):
    return widened(sum_type(x.dtype).type(0))


@inlined
def _one(x):
    return widened(sum_type(x.dtype).type(1))


@inlined
def _add(acc, value, p):
    return acc + widened(value)


@inlined
def _plus(acc, other):
    return acc + other


@inlined
def _over(acc, x, p):
    return acc / p


@kernel(grain=GRAIN, loads_halves=True)
def sum(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) C."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _zero, _add, _added, _plus, _same, 0, sum_row)


@kernel(grain=GRAIN, loads_halves=True)
def mean(out, x, count):
    """out (outer, pieces, inner) C; x (outer, n, inner) C: the sum of x, divided by ``count``."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _zero, _add, _added, _plus, _over, count, sum_row)


@inlined
def _add_number(acc, value, p):
    wide = widened(value)
    return acc + (wide if wide == wide else widened(0.0))


@kernel(grain=GRAIN, loads_halves=True)
def nansum(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C: the sum of what is not NaN."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _zero, _add_number, _each, _plus, _same, 0, number_row)


@inlined
def _multiply(acc, value, p):
    return acc * widened(value)


@inlined
def _times(acc, other):
    return acc * other


@kernel(grain=GRAIN, loads_halves=True)
def prod(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) C."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _one, _multiply, _each, _times, _same, 0, product_row)


@inlined
def _truth(value):
    return np.uint8(1 if value else 0)


@inlined
def _false(x):
    return np.uint8(0)


@inlined
def _true(x):
    return np.uint8(1)


@inlined
def _or(acc, value, p):
    return np.uint8(acc | _truth(value))


@inlined
def _either(acc, other):
    return np.uint8(acc | other)


@inlined
def _and(acc, value, p):
    return np.uint8(acc & _truth(value))


@inlined
def _both(acc, other):
    return np.uint8(acc & other)


@inlined
def _count(acc, value, p):
    return acc + np.int64(_truth(value))


@inlined
def _none(x):
    return np.int64(0)


@inlined
def _is_set(acc, x, p):
    return acc != 0


@kernel(grain=GRAIN, loads_halves=True)
def any(out, x):
    """out (outer, pieces, inner) bool C; x (outer, n, inner) C. NaN counts as true."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _false, _or, _each, _either, _is_set, 0, by_lanes)


@kernel(grain=GRAIN, loads_halves=True)
def all(out, x):
    """out (outer, pieces, inner) bool C; x (outer, n, inner) C. NaN counts as true."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _true, _and, _each, _both, _is_set, 0, by_lanes)


@kernel(grain=GRAIN, loads_halves=True)
def count_nonzero(out, x):
    """out (outer, pieces, inner) int64 C; x (outer, n, inner) C. Pieces are joined by ``sum``."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _none, _count, _each, _plus, _same, 0, by_lanes)


@inlined
def _bottom(x):
    return bottom(x)


@inlined
def _higher(acc, other):
    return raised(acc, other)


@inlined
def _keep_high(acc, value, p):
    return raised(acc, value)


@inlined
def _keep_low(acc, value, p):
    return lowered(acc, value)


@inlined
def _keep_far(acc, value, p):
    return raised(acc, abs(value))


@inlined
def _keep_near(acc, value, p):
    return lowered(acc, abs(value))


@inlined
def _highest(step, acc, a, b, c, d, p):
    return raised_by_four(acc, a, b, c, d)


@inlined
def _lowest(step, acc, a, b, c, d, p):
    return lowered_by_four(acc, a, b, c, d)


@inlined
def _farthest(step, acc, a, b, c, d, p):
    return raised_by_four(acc, abs(a), abs(b), abs(c), abs(d))


@inlined
def _nearest(step, acc, a, b, c, d, p):
    return lowered_by_four(acc, abs(a), abs(b), abs(c), abs(d))


@inlined
def _high(acc, x, p):
    return to_most(acc, x)


@inlined
def _low(acc, x, p):
    return to_least(acc, x)


@kernel(grain=GRAIN, loads_halves=True)
def amax(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) C, n > 0. NaN if there is one."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _bottom, _keep_high, _highest, _higher, _high, 0, most_row)


@kernel(grain=GRAIN, loads_halves=True)
def amin(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) C, n > 0. NaN if there is one."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _bottom, _keep_low, _lowest, _higher, _low, 0, least_row)


@kernel(grain=GRAIN, loads_halves=True)
def abs_amax(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C, n > 0: the infinity norm."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _bottom, _keep_far, _farthest, _higher, _high, 0, by_lanes)


@kernel(grain=GRAIN, loads_halves=True)
def abs_amin(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C, n > 0: least magnitude."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _bottom, _keep_near, _nearest, _higher, _low, 0, by_lanes)


@inlined
def _add_size(acc, value, p):
    return acc + abs(widened(value))


@inlined
def _add_square(acc, value, p):
    return acc + widened(value) * widened(value)


@inlined
def _add_cube(acc, value, p):
    size = abs(widened(value))
    return acc + size * size * size


@inlined
def _add_power(acc, value, p):
    return acc + abs(widened(value)) ** p


@inlined
def _square_root(acc, x, p):
    return math.sqrt(acc)


@inlined
def _cube_root(acc, x, p):
    return acc ** (1.0 / 3.0)


@inlined
def _root(acc, x, p):
    return acc ** (1.0 / p)


@kernel(grain=GRAIN, loads_halves=True)
def norm1(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C: sum of magnitudes."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _zero, _add_size, _each, _plus, _same, 0, by_lanes)


@kernel(grain=GRAIN, loads_halves=True)
def norm2(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C: root of the sum of squares."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _zero, _add_square, _each, _plus, _square_root, 0, by_lanes)


@kernel(grain=GRAIN, loads_halves=True)
def norm3(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C: root of the sum of cubes."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _zero, _add_cube, _each, _plus, _cube_root, 0, by_lanes)


@kernel(grain=GRAIN, loads_halves=True)
def norm(out, x, p):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C: p-norm, p float, not 0."""
    for part in prange(0, parts_of(out, x)):
        _fold(out, x, part, _zero, _add_power, _each, _plus, _root, p, by_lanes)


@inlined
def _fold_squares(out, x, center, divisor, part):
    outer, k, inner = out.shape
    n = x.shape[1]
    tiles = -(-inner // lanes_of(x))
    tasks, parts = outer * k * tiles, parts_of(out, x)
    lanes = stack(WIDE, 0.0)
    for task in range(tasks * part // parts, tasks * (part + 1) // parts):
        tile, piece = task % tiles, task // tiles
        first, last = inner * tile // tiles, inner * (tile + 1) // tiles
        row, end = rows_of(piece, n, k)
        middle = (piece // k) * inner + first
        if inner == 1:
            acc, c = 0.0, load(center, middle)
            for i in range(row, end):
                d = np.float64(load(x, i)) - c
                acc = plus(acc, d * d)
            store(out, piece, acc / divisor)
            continue
        for lane in range(last - first):
            lanes[lane] = 0.0
        deep = is_deep(x, last - first)
        while deep and row + 4 <= end:
            base = row * inner + first
            for lane in range(last - first):
                at, c = base + lane, load(center, middle + lane)
                d, e = np.float64(load(x, at)) - c, np.float64(load(x, at + inner)) - c
                at += 2 * inner
                f, g = np.float64(load(x, at)) - c, np.float64(load(x, at + inner)) - c
                lanes[lane] += (d * d + e * e) + (f * f + g * g)
            row += 4
        for j in range(row, end):
            base = j * inner + first
            for lane in range(last - first):
                d = np.float64(load(x, base + lane)) - load(center, middle + lane)
                lanes[lane] += d * d
        base = piece * inner + first
        for lane in range(last - first):
            store(out, base + lane, lanes[lane] / divisor)


@kernel(grain=GRAIN, loads_halves=True)
def squares(out, x, center, divisor):
    """out (outer, pieces, inner) C; x (outer, n, inner) C; center (outer, 1, inner) C.

    The sum of (x - center)**2, divided by ``divisor``.
    """
    for part in prange(0, parts_of(out, x)):
        _fold_squares(out, x, center, divisor, part)


@kernel(grain=GRAIN, outputs=2)
def argmax(values, indices, x):
    """values, indices (outer, pieces, inner) C; x (outer, n, inner) C, n > 0.

    The first of equals; the first NaN before all. Indices count along the whole middle axis.
    """
    for part in prange(0, parts_of(values, x)):
        find(values, indices, x, part, up)


@kernel(grain=GRAIN, outputs=2)
def argmin(values, indices, x):
    """values, indices (outer, pieces, inner) C; x (outer, n, inner) C, n > 0.

    The first of equals; the first NaN before all. Indices count along the whole middle axis.
    """
    for part in prange(0, parts_of(values, x)):
        find(values, indices, x, part, down)
