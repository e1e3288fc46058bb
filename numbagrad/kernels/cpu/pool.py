"""Pooling: the largest number of each window with its place, the mean of each window.

All is three-dimensional: fewer dimensions are sizes of 1 in front. The windows are those of all
outputs along one axis, (o, 3): where a window starts and stops, both inside the input, and a
third number.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..inner import device, keep, pasted
from ..intrinsics import address, itemsize, load, stack, store
from ..machine import kernel
from ..vectors import VECTOR_BYTES
from ..windows import largest, sums

__all__ = ["avg_pool", "avg_pool_grad", "max_pool", "max_pool_grad"]


WIDE, LINE = 6, 1024
"""The least width of windows whose lines are looked at as a whole, and the longest such line."""


@pasted
def size_of(windows, i):
    """From where a window starts to where it stops."""
    return load(windows, 3 * i + 1) - load(windows, 3 * i)


@pasted
def regular(width):
    """From which to before which column windows are whole, alike and equally far apart; how far."""
    count, longest, begin = width.shape[0], size_of(width, 0), 0
    for j in range(1, count):
        if size_of(width, j) > longest:
            longest, begin = size_of(width, j), j
    end, apart = begin + 1, 1
    if end < count:
        apart = load(width, 3 * end) - load(width, 3 * begin)
    at = load(width, 3 * begin)
    while end < count and size_of(width, end) == longest:
        at += apart
        if load(width, 3 * end) != at or load(width, 3 * end + 2) != load(width, 3 * begin + 2):
            break
        end += 1
    return begin, end, apart


@pasted
def elements(windows, i):
    """How many elements a window has along its axis."""
    size, step = size_of(windows, i), load(windows, 3 * i + 2)
    return size if step == 1 else (size + step - 1) // step


@pasted
def max_windows(o, x, base, z, y, first, count, apart, out, at, depth, height, width):
    """``max_pool`` of ``count`` windows from column ``first`` on, as many elements in each.

    o: of that line of out; base: where the plane begins.
    """
    columns = x.shape[3]
    area = x.shape[2] * columns
    place = load(depth, 3 * z) * area + load(height, 3 * y) * columns + load(width, 3 * first)
    deep, high, wide = elements(depth, z), elements(height, y), elements(width, first)
    deep_step, high_step = load(depth, 3 * z + 2) * area, load(height, 3 * y + 2) * columns
    o, wide_step, size = o + first, load(width, 3 * first + 2), itemsize(x)
    if VECTOR_BYTES:  # a constant: only one of both is compiled
        to, to_places = address(out) + o * size, address(at) + o * 8
        start = address(x) + (base + place) * size
        largest(
            *(x, to, to_places, start, place, count, apart),
            *(deep, deep_step, high, high_step, wide, wide_step),
        )
    else:
        for k in range(count):
            best, best_at = load(x, base + place), place
            for iz in range(deep):
                for iy in range(high):
                    for ix in range(wide):
                        here = place + iz * deep_step + iy * high_step + ix * wide_step
                        value = load(x, base + here)
                        # No branch: half of them would be predicted wrongly.
                        larger = (value > best) | (value != value)
                        best = value if larger else best
                        best_at = here if larger else best_at
            store(out, o + k, best)
            store(at, o + k, best_at)
            place += apart


@pasted
def apart_enough(width):
    """Whether windows are wide and hardly overlap, so that lines are looked at as a whole."""
    count, total, longest, step = width.shape[0], 0, 0, 1
    for j in range(count):
        size = size_of(width, j)
        total, longest, step = total + size, max(longest, size), max(step, load(width, 3 * j + 2))
    span = load(width, 3 * count - 2) - load(width, 0)
    return step == 1 and longest >= WIDE and total <= 2 * span and span <= LINE


@device
def max_lines(o, x, base, z, y, out, at, depth, height, width, most, rows):
    """``max_pool`` of one line of out: first of each column of all its windows, in vectors.

    most, rows (LINE): room for the largest of each column and in which line of the window it is.
    """
    columns = x.shape[3]
    area, ow = x.shape[2] * columns, width.shape[0]
    left = load(width, 0)
    span = load(width, 3 * ow - 2) - left
    start = load(depth, 3 * z) * area + load(height, 3 * y) * columns + left
    deep, high = elements(depth, z), elements(height, y)
    deep_step, high_step = load(depth, 3 * z + 2) * area, load(height, 3 * y + 2) * columns
    for j in range(span):
        most[j], rows[j] = load(x, base + start + j), 0
    for row in range(1, deep * high):
        line = base + start + row // high * deep_step + row % high * high_step
        for j in range(span):
            value, before = load(x, line + j), most[j]
            larger = (value > before) | (value != value)
            most[j] = value if larger else before
            rows[j] = np.int32(row) if larger else rows[j]
    for k in range(ow):
        first = load(width, 3 * k) - left
        best, row, column = most[first], rows[first], first
        for j in range(first + 1, first + size_of(width, k)):
            value = most[j]
            if value != value:
                ahead = best == best or rows[j] >= row
            else:
                ahead = value > best or (value == best and rows[j] < row)
            if ahead:
                best, row, column = value, rows[j], j
        store(out, o + k, best)
        line = np.int64(row) // high * deep_step + np.int64(row) % high * high_step
        store(at, o + k, start + line + column)


@kernel(outputs=2, grain=16384)
def max_pool(out, at, x, depth, height, width):
    """The largest of each window, the first of equals, and where it stands in its plane.

    out, at (planes, od, oh, ow), x (planes, d, h, w): C. depth, height, width: the windows, their
    third number the step from one element to the next. The last NaN counts as the largest.
    """
    _, od, oh, ow = out.shape
    plane = x.shape[1] * x.shape[2] * x.shape[3]
    begin, end, apart = regular(width)
    whole = apart_enough(width)
    for p in prange(0, x.shape[0]):
        most, rows = stack(LINE, x.dtype.type(0)), stack(LINE, np.int32(0))
        for z in range(od):
            for y in range(oh):
                o, first = ((p * od + z) * oh + y) * ow, 0
                if whole:
                    max_lines(o, x, p * plane, z, y, out, at, depth, height, width, most, rows)
                    continue
                while first < ow:
                    count = end - first if begin <= first < end else 1
                    max_windows(
                        o, x, p * plane, z, y, first, count, apart, out, at, depth, height, width
                    )
                    first += count


@kernel(grain=16384)
def max_pool_grad(gx, g, at, depth, height, width):
    """Zeros, plus g at the places ``at`` of its plane, in order.

    gx (planes, d, h, w), g, at (planes, od, oh, ow): C. The windows are for the twin on a GPU: it
    looks through them for what belongs to an element.
    """
    planes = gx.shape[0]
    places, elements = g.size // max(planes, 1), gx.size // max(planes, 1)
    flat_gx = gx.reshape((planes, elements))
    flat_g, flat_at = g.reshape((planes, places)), at.reshape((planes, places))
    for p in prange(planes):
        for i in range(elements):
            flat_gx[p, i] = 0
        for j in range(places):
            flat_gx[p, flat_at[p, j]] += flat_g[p, j]


@device
def mean_windows(out, x, z, y, first, count, apart, depth, height, width):
    """``avg_pool`` of ``count`` windows of a plane from column ``first`` on, all alike."""
    size = x.dtype.type(depth[z, 2] * height[y, 2] * width[first, 2])
    if VECTOR_BYTES:  # a constant: only one of both is compiled
        columns = x.shape[2]
        place = (depth[z, 0] * x.shape[1] + height[y, 0]) * columns + width[first, 0]
        to = address(out) + ((z * out.shape[1] + y) * out.shape[2] + first) * x.itemsize
        shape = (
            *(size_of(depth, z), x.shape[1] * columns),
            *(size_of(height, y), columns, size_of(width, first)),
        )
        sums(x, to, address(x) + place * x.itemsize, count, apart, *shape)
    else:
        for j in range(first, first + count):
            total = x.dtype.type(0)
            for iz in range(depth[z, 0], depth[z, 1]):
                for iy in range(height[y, 0], height[y, 1]):
                    for ix in range(width[j, 0], width[j, 1]):
                        total += x[iz, iy, ix]
            out[z, y, j] = total
    for j in range(first, first + count):
        out[z, y, j] /= size


@kernel(grain=16384)
def avg_pool(out, x, depth, height, width):
    """The sum of each window over the product of its third numbers; shapes as for ``max_pool``."""
    _, od, oh, ow = out.shape
    begin, end, apart = regular(width)
    for p in prange(x.shape[0]):
        for z in range(od):
            for y in range(oh):
                first = 0
                while first < ow:
                    count = end - first if begin <= first < end else 1
                    given = z, y, first, count, apart, depth, height, width
                    mean_windows(out[p], x[p], *given)
                    first += count


@device
def spread_plane(p, begin, end, apart, parts, lines, gx, g, depth, height, width):
    """``avg_pool_grad`` of plane ``p``, of many windows at a time.

    parts (planes, ow), lines (planes, 1, 1, w): room, the latter for what all rows of a line's
    windows are given.
    """
    _, deep, high, wide = gx.shape
    _, od, oh, ow = g.shape
    for i in range(p * deep * high * wide, (p + 1) * deep * high * wide):
        store(gx, i, 0)
    for z in range(od):
        for y in range(oh):
            line, rows = ((p * od + z) * oh + y) * ow, depth[z, 2] * height[y, 2]
            for j in range(ow):
                parts[p, j] = load(g, line + j) / g.dtype.type(rows * width[j, 2])
            alone = size_of(depth, z) * size_of(height, y) == 1  # windows of one row
            to = ((p * deep + depth[z, 0]) * high + height[y, 0]) * wide if alone else p * wide
            if not alone:
                for j in range(wide):
                    store(lines, to + j, 0)
            first = 0
            while first < ow:
                count = end - first if begin <= first < end else 1
                start, stop, at = to + width[first, 0], to + width[first, 1], p * ow + first
                if alone:
                    add_windows(gx, start, stop, apart, parts, at, count)
                else:
                    add_windows(lines, start, stop, apart, parts, at, count)
                first += count
            if alone:
                continue
            for iz in range(depth[z, 0], depth[z, 1]):
                for iy in range(height[y, 0], height[y, 1]):
                    row = ((p * deep + iz) * high + iy) * wide
                    for j in range(wide):
                        store(gx, row + j, load(gx, row + j) + load(lines, to + j))


@device
def add_windows(to, start, stop, apart, parts, first, count):
    """Add ``parts[first]`` to elements ``start`` to ``stop`` of ``to``, and so on, so far apart.

    Each is added up from window to window.
    """
    if count < stop - start:
        for k in range(count):
            part = load(parts, first + k)
            for at in range(start + k * apart, stop + k * apart):
                store(to, at, load(to, at) + part)
        return
    for at in range(stop - 1, start - 1, -1):
        if apart == 1:
            for j in range(count):
                store(to, at + j, load(to, at + j) + load(parts, first + j))
        else:
            for j in range(count):
                store(to, at + j * apart, load(to, at + j * apart) + load(parts, first + j))


@kernel(grain=16384, allocates=True)
def avg_pool_grad(gx, g, depth, height, width):
    """The gradient of ``avg_pool``. gx (planes, d, h, w), g (planes, od, oh, ow): C.

    Windows side by side are added up first, then lines of them.
    """
    begin, end, apart = regular(width)
    parts = np.empty((g.shape[0], g.shape[3]), g.dtype)
    lines = np.empty((g.shape[0], 1, 1, gx.shape[3]), g.dtype)
    for p in prange(0, gx.shape[0]):
        spread_plane(p, begin, end, apart, parts, lines, gx, g, depth, height, width)
    keep(parts)
    keep(lines)
