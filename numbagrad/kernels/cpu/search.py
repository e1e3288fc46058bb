"""Binary search in sorted rows, and histograms."""

from __future__ import annotations

from numba import prange

from ..intrinsics import load
from ..machine import kernel
from ..order import rising

__all__ = ["histogram", "search"]


@kernel(grain=1 << 14)
def search(out, edges, values, right, rows):
    """out, values (m, k) C; edges (m or 1, n) C sorted: how many edges come before each value.

    Equal edges come before it if ``right``. rows: whether each row has its own edges.
    """
    m, k = values.shape
    n = edges.shape[1]
    for row in prange(m):
        base = row * n if rows else 0
        for i in range(k):
            value = rising(values[row, i])
            low, high = 0, n
            while low < high:
                middle = (low + high) // 2
                edge = rising(load(edges, base + middle))
                if edge < value or (right and edge == value):
                    low = middle + 1
                else:
                    high = middle
            out[row, i] = low


@kernel
def histogram(out, x, low, high):
    """out (bins,) C; x (n,) floating C: how many lie in each equal part of [low, high]."""
    bins = out.shape[0]
    out[:] = 0
    for i in range(x.shape[0]):
        value = x[i]
        if low <= value <= high:
            out[min(int((value - low) / (high - low) * bins), bins - 1)] += 1
