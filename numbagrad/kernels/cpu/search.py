"""Binary search in sorted rows, and histograms."""

from __future__ import annotations

import numpy as np
from numba import prange

from ..inner import device
from ..intrinsics import load, stack, store
from ..machine import kernel
from ..order import rising

__all__ = ["histogram", "histogram_between", "search"]


LANES = 64
"""Values that are looked up side by side, each step for all of them: the steps depend on the number
of edges alone, so there is no branch for a processor to guess."""


@device
def _search_lanes(lows, keys, edges, base, n, right):
    """How many of n edges from ``base`` on come before each of ``keys``, into ``lows``."""
    for lane in range(LANES):
        lows[lane] = 0
    length = n
    while length > 0:
        half = (length + 1) // 2
        at = base + half - 1
        for lane in range(LANES):
            edge = rising(load(edges, at + lows[lane]))
            before = edge <= keys[lane] if right else edge < keys[lane]
            lows[lane] += half if before else 0
        length -= half


@kernel(grain=1 << 14)
def search(out, edges, values, right, rows):
    """out, values (m, k) C; edges (m or 1, n) C sorted: how many edges come before each value.

    Equal edges come before it if ``right``. rows: whether each row has its own edges.
    """
    m, k = values.shape
    n = edges.shape[1]
    blocks = (k + LANES - 1) // LANES
    for task in prange(m * blocks):
        row, first = task // blocks, task % blocks * LANES
        lows, keys = stack(LANES, np.int64(0)), stack(LANES, rising(load(values, 0)))
        count = min(LANES, k - first)
        for lane in range(LANES):
            keys[lane] = rising(load(values, row * k + first + min(lane, count - 1)))
        _search_lanes(lows, keys, edges, row * n if rows else 0, n, right)
        for lane in range(count):
            store(out, row * k + first + lane, lows[lane])


@kernel
def histogram(out, x, low, high):
    """out (bins,) C; x (n,) floating C: how many lie in each equal part of [low, high]."""
    bins = out.shape[0]
    out[:] = 0
    for i in range(x.shape[0]):
        value = x[i]
        if low <= value <= high:
            out[min(int((value - low) / (high - low) * bins), bins - 1)] += 1


@kernel
def histogram_between(out, x, weight, edges, weighted, even):
    """out (bins,) float64 C; x, weight (n,) floating C; edges (bins + 1,) C sorted: the sum of the
    weights between each two edges, how many there are unless ``weighted``; weight is then unread.

    even: whether the edges are about equally far apart: then where a number lies is worked out, and
    at most the neighbours are looked at.
    """
    bins, n = out.shape[0], x.shape[0]
    out[:] = 0
    low, high = np.float64(edges[0]), np.float64(edges[bins])
    scale, last = bins / (high - low), np.float64(bins - 1)
    places, keys = stack(LANES, np.int64(0)), stack(LANES, rising(edges[0]))
    for first in range(0, n, LANES):
        count = min(LANES, n - first)
        if even:
            for lane in range(count):
                guess = (np.float64(load(x, first + lane)) - low) * scale
                places[lane] = np.int64(min(max(guess, 0.0), last))
        else:
            for lane in range(LANES):
                keys[lane] = rising(load(x, first + min(lane, count - 1)))
            _search_lanes(places, keys, edges, 0, bins + 1, True)
            for lane in range(count):
                places[lane] -= 1
        for lane in range(count):
            value = np.float64(load(x, first + lane))
            if low <= value <= high:
                place = max(0, min(places[lane], bins - 1))
                while place > 0 and value < np.float64(load(edges, place)):
                    place -= 1
                while place < bins - 1 and np.float64(load(edges, place + 1)) <= value:
                    place += 1
                out[place] += np.float64(load(weight, first + lane)) if weighted else 1.0
