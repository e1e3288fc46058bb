"""Images read between their elements, at places given as coordinates.

All is three-dimensional: a depth of 1 stands before images. at (n, p, r) holds r = 2 or 3
coordinates of each of p places, the one along a row first; see ``taps.py`` for taps, padding and
corners. kx, ky, kz: how many times the weights are differentiated along each. Start reading at
``sample``. How work is cut depends on the sizes alone.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..bags_of_rows import sum_rows_at
from ..inner import device, inner, pasted
from ..intrinsics import address, itemsize, load, load_apart, stack, store, store_apart
from ..machine import kernel
from ..taps import LARGEST, ZEROS, tap_index, tap_inside, tap_weight
from ..vectors import VECTOR_BYTES
from .tiled_product import turned

__all__ = ["sample", "sample_input_grad", "sample_place_grad"]

POINTS = 64
"""Places that are read together: what is known of their taps stays in the nearest cache."""

TASK = 256
"""Places of one task, for which it reads all channels."""

CHANNELS = 16
"""Channels of one task that adds to an image; each task finds the weights anew."""

LINE = 256
"""Taps of so many places along one axis, at most four of each."""

TAPS = 1024
"""Taps of so many places: 16 of each, four along both dimensions of an image."""

SQUARE = 16
"""Elements and channels that are turned together, a multiple of the numbers in a vector."""

FEW = 8
"""So many channels are laid side by side, where a tap's are read as vectors."""

forced = inner(forceinline=True)
index_of, inside_of, weight_of = forced(tap_index), device(tap_inside), forced(tap_weight)


@device
def along(places, at, base, rank, count, size, taps, padding, corners):
    """places (taps, POINTS): where along an axis of ``size`` each place reads, -1 for nowhere.

    at: all coordinates; base: where those of this axis begin.
    """
    ts = stack(POINTS, 0.0)
    for p in range(count):
        store(ts, p, np.float64(load(at, base + p * rank)))
    for k in range(0, taps * POINTS, POINTS):
        for p in range(count):
            index = index_of(load_apart(ts, p, "0.0.2"), taps, k // POINTS)
            store_apart(places, k + p, index, "0.1.2")
        if padding == ZEROS:  # without a branch, half of which would be predicted wrongly
            for p in range(k, k + count):
                place = load(places, p)
                store(places, p, place if (place >= 0) & (place < size) else -1)
        else:
            for p in range(k, k + count):
                store(places, p, inside_of(load(places, p), size, padding, corners))


@device
def weigh(weights, at, base, rank, count, taps, order):
    """weights (taps, POINTS): of the taps along an axis; see ``along``."""
    ts = stack(POINTS, 0.0)
    for p in range(count):
        t = np.float64(load(at, base + p * rank))
        store(ts, p, t if t > -LARGEST and t < LARGEST else 0.0)  # NaN times nothing is NaN
    for k in range(0, taps * POINTS, POINTS):
        for p in range(count):
            weight = weight_of(load_apart(ts, p, "0.0.2"), taps, k // POINTS, order)
            store_apart(weights, k + p, weight, "0.1.2")


@device
def locate(offsets, at, first, count, rank, sizes, taps, padding, corners):
    """offsets (taps**rank, POINTS): where in its plane each place reads, -1 for nowhere.

    at: all coordinates; first: the first of the places. sizes: (d, h, w).
    """
    depth, height, width = sizes
    xs, ys, zs = stack(LINE, np.int64(0)), stack(LINE, np.int64(0)), stack(LINE, np.int64(0))
    base, layers = first * rank, 1
    along(xs, at, base, rank, count, width, taps, padding, corners)
    along(ys, at, base + 1, rank, count, height, taps, padding, corners)
    for p in range(count):
        store(zs, p, 0)
    if rank == 3:
        layers = taps
        along(zs, at, base + 2, rank, count, depth, taps, padding, corners)
    tap = 0
    for i in range(0, layers * POINTS, POINTS):
        for j in range(0, taps * POINTS, POINTS):
            for k in range(0, taps * POINTS, POINTS):
                for p in range(count):
                    x, y = load_apart(xs, k + p, "0.0.2"), load_apart(ys, j + p, "0.0.2")
                    z = load_apart(zs, i + p, "0.0.2")
                    offset = (z * height + y) * width + x
                    store_apart(offsets, tap + p, -1 if (x | y | z) < 0 else offset, "0.1.2")
                tap += POINTS


@device
def balance(weights, at, first, count, rank, taps, kx, ky, kz):
    """weights (taps**rank, POINTS): of what each place reads; see ``locate``."""
    dx, dy, dz = stack(LINE, 0.0), stack(LINE, 0.0), stack(LINE, 0.0)
    base, layers = first * rank, 1
    weigh(dx, at, base, rank, count, taps, kx)
    weigh(dy, at, base + 1, rank, count, taps, ky)
    for p in range(count):
        store(dz, p, 1.0)
    if rank == 3:
        layers = taps
        weigh(dz, at, base + 2, rank, count, taps, kz)
    tap = 0
    for i in range(0, layers * POINTS, POINTS):
        for j in range(0, taps * POINTS, POINTS):
            for k in range(0, taps * POINTS, POINTS):
                for p in range(count):
                    weight = load_apart(dz, i + p, "0.0.2") * load_apart(dy, j + p, "0.0.2")
                    weight *= load_apart(dx, k + p, "0.0.2")
                    store_apart(weights, tap + p, weight, "0.1.2")
                tap += POINTS


@pasted
def read(x, plane, offset):
    """The element of a plane, or 0 for an offset of -1. Without a branch, so that vectors do it."""
    value = np.float64(load_apart(x, plane + max(offset, 0), "0.0.2"))
    return value if offset >= 0 else 0.0


@device
def turn(rows, x, n, begin, end, channels, plane, deep, width):
    """rows (n, deep, width) from begin to end: image ``n`` of x (n, channels, plane), turned.

    deep, width: plane and channels, filled up to whole squares; what is there is undefined.
    """
    size = itemsize(x)
    source = address(x) + (n * channels * plane + begin) * size
    to = address(rows) + (n * deep + begin) * width * size
    turned(x, channels, end - begin, source, plane * size, to, width * size)


@device
def read_rows(sums, rows, n, count, deep, width, offsets, weights, taps, index, factors):
    """sums (count, width): what places read of image ``n`` of rows, see ``turn``.

    index, factors: room for the taps, those of a place side by side.
    """
    for tap in range(taps):
        for p in range(count):
            index[p * taps + tap] = load(offsets, tap * POINTS + p)
            factors[p * taps + tap] = load(weights, tap * POINTS + p)
    base = address(rows) + n * deep * width * itemsize(rows)
    sum_rows_at(
        *(rows, 0, count, address(sums), base, width, address(index), count * taps),
        *(0, 0, taps, address(factors), -1, 0),
    )


@device
def write_lines(out, sums, lines, n, first, count, channels, points, width):
    """``out[n]`` at the places from ``first`` on: sums (count, width), turned by way of lines."""
    size = itemsize(out)
    for begin in range(0, channels, SQUARE):
        many, source = min(SQUARE, channels - begin), address(sums) + begin * size
        turned(out, count, many, source, width * size, address(lines), POINTS * size)
        for c in range(many):
            line = (n * channels + begin + c) * points + first
            for p in range(count):
                store_apart(out, line + p, load_apart(lines, c * POINTS + p, "0.0.2"), "0.1.2")


@device
def read_lines(out, x, n, first, count, channels, plane, points, offsets, weights, taps):
    """``sample`` of the places from ``first`` on, a channel after the other."""
    total = stack(POINTS, 0.0)
    for line in range(n * channels, (n + 1) * channels):
        for p in range(count):
            store(total, p, 0.0)
        for tap in range(0, taps * POINTS, POINTS):
            for p in range(count):
                value = read(x, line * plane, load_apart(offsets, tap + p, "0.0.2"))
                value *= load_apart(weights, tap + p, "0.0.2")
                store_apart(total, p, load_apart(total, p, "0.1.2") + value, "0.1.2")
        for p in range(count):
            store(out, line * points + first + p, load(total, p))


@kernel(grain=8192, allocates=True)
def sample(out, x, at, taps, padding, corners, kx, ky, kz):
    """``out[n, c, p]`` is the weighted sum of what place ``at[n, p]`` reads of ``x[n, c]``.

    out (n, c, p), x (n, c, d, h, w), at (n, p, r): C. Many channels are first laid side by side.
    """
    images, channels, points = out.shape
    rank, sizes = at.shape[2], (x.shape[2], x.shape[3], x.shape[4])
    plane, blocks = sizes[0] * sizes[1] * sizes[2], (points + TASK - 1) // TASK
    beside = VECTOR_BYTES > 0 and channels >= FEW and points * taps**rank >= plane
    width = (channels + SQUARE - 1) // SQUARE * SQUARE if beside else 0
    deep = (plane + SQUARE - 1) // SQUARE * SQUARE
    strips = (plane + TASK - 1) // TASK if beside else 0
    rows = np.empty(images * deep * width, x.dtype)
    for task in prange(images * strips):
        if VECTOR_BYTES:  # a constant
            n, begin = task // strips, task % strips * TASK
            turn(rows, x, n, begin, min(begin + TASK, plane), channels, plane, deep, width)
    for task in prange(images * blocks):
        offsets, weights = stack(TAPS, np.int64(0)), stack(TAPS, 0.0)
        room = TAPS if beside else 0
        index, factors = np.empty(room, np.int64), np.empty(room, out.dtype)
        lines, sums = np.empty(room, out.dtype), np.empty(POINTS * width, out.dtype)
        n, begin = task // blocks, task % blocks * TASK
        for first in range(begin, min(begin + TASK, points), POINTS):
            place, count = n * points + first, min(POINTS, points - first)
            locate(offsets, at, place, count, rank, sizes, taps, padding, corners)
            balance(weights, at, place, count, rank, taps, kx, ky, kz)
            reads = (offsets, weights, taps**rank)
            if not beside:
                read_lines(out, x, n, first, count, channels, plane, points, *reads)
            elif VECTOR_BYTES:
                read_rows(sums, rows, n, count, deep, width, *reads, index, factors)
                write_lines(out, sums, lines, n, first, count, channels, points, width)


@device
def spread(sums, rows, offsets, weights, taps, count, channels):
    """sums (plane, channels): plus the rows (count, channels) of g at what their places read."""
    for p in range(count):
        for tap in range(p, taps * POINTS, POINTS):
            base, weight = load(offsets, tap) * channels, load(weights, tap)
            if base >= 0:
                for c in range(channels):
                    part = weight * load_apart(rows, p * channels + c, "0.0.2")
                    total = load_apart(sums, base + c, "0.1.2") + part
                    store_apart(sums, base + c, total, "0.1.2")


@kernel(grain=8192, allocates=True)
def sample_input_grad(gx, g, at, taps, padding, corners, kx, ky, kz):
    """The gradient of ``sample`` with respect to x: zeros, plus g where it was read, in order.

    gx (n, c, d, h, w), g (n, c, p), at (n, p, r): C.
    """
    images, channels, points = g.shape
    rank, sizes = at.shape[2], (gx.shape[2], gx.shape[3], gx.shape[4])
    plane, blocks = sizes[0] * sizes[1] * sizes[2], (channels + CHANNELS - 1) // CHANNELS
    for task in prange(images * blocks):
        offsets, weights = stack(TAPS, np.int64(0)), stack(TAPS, 0.0)
        rows = stack(TAPS, 0.0)
        n, begin = task // blocks, task % blocks * CHANNELS
        line, many = n * channels + begin, min(CHANNELS, channels - begin)
        sums = np.zeros(plane * many, gx.dtype)  # the channels of an element side by side
        for first in range(0, points, POINTS):
            place, count = n * points + first, min(POINTS, points - first)
            locate(offsets, at, place, count, rank, sizes, taps, padding, corners)
            balance(weights, at, place, count, rank, taps, kx, ky, kz)
            for c in range(many):
                for p in range(count):
                    store(rows, p * many + c, np.float64(load(g, (line + c) * points + first + p)))
            spread(sums, rows, offsets, weights, taps**rank, count, many)
        for first in range(0, plane, POINTS):
            for c in range(many):
                for i in range(first, min(first + POINTS, plane)):
                    store(gx, (line + c) * plane + i, load(sums, i * many + c))


@kernel(grain=8192)
def sample_place_grad(out, g, x, at, taps, padding, corners, kx, ky, kz):
    """The gradient of ``sample`` with respect to at, a coordinate after the other.

    out (n, p, r), g (n, c, p), x (n, c, d, h, w), at (n, p, r): C.
    """
    images, channels, points = g.shape
    rank, sizes = at.shape[2], (x.shape[2], x.shape[3], x.shape[4])
    plane, blocks = sizes[0] * sizes[1] * sizes[2], (points + TASK - 1) // TASK
    for task in prange(images * blocks):
        offsets, weights = stack(TAPS, np.int64(0)), stack(TAPS, 0.0)
        products, total = stack(TAPS, 0.0), stack(POINTS, 0.0)
        n, begin = task // blocks, task % blocks * TASK
        for first in range(begin, min(begin + TASK, points), POINTS):
            place, count = n * points + first, min(POINTS, points - first)
            locate(offsets, at, place, count, rank, sizes, taps, padding, corners)
            for tap in range(taps**rank * POINTS):
                store(products, tap, 0.0)
            for line in range(n * channels, (n + 1) * channels):
                for tap in range(0, taps**rank * POINTS, POINTS):
                    for p in range(count):
                        value = read(x, line * plane, load_apart(offsets, tap + p, "0.0.2"))
                        value *= np.float64(load_apart(g, line * points + first + p, "0.0.2"))
                        value += load_apart(products, tap + p, "0.1.2")
                        store_apart(products, tap + p, value, "0.1.2")
            for axis in range(rank):
                raised = (kx + (axis == 0), ky + (axis == 1), kz + (axis == 2))
                balance(weights, at, place, count, rank, taps, raised[0], raised[1], raised[2])
                for p in range(count):
                    store(total, p, 0.0)
                for tap in range(0, taps**rank * POINTS, POINTS):
                    for p in range(count):
                        part = load(weights, tap + p) * load(products, tap + p)
                        store(total, p, load(total, p) + part)
                for p in range(count):
                    store(out, (place + p) * rank + axis, load(total, p))
