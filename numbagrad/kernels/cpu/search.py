"""Binary search in sorted rows, and histograms."""

from __future__ import annotations

import numpy as np
from numba import prange

from ..inner import device
from ..intrinsics import load, stack, store
from ..machine import kernel
from ..order import rising

__all__ = ["histogram", "search"]


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
