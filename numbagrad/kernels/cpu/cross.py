"""Vector products."""

from __future__ import annotations

from numba import prange

from ..intrinsics import load, store
from ..machine import kernel

__all__ = ["cross"]


@kernel(grain=131072)
def cross(out, x, y):
    """out, x, y (outer, 3, inner) C: the vector products along the middle axis."""
    outer, _, inner = out.shape
    for o in prange(0, outer):
        first = 3 * o * inner
        for i in range(first, first + inner):
            j, k = i + inner, i + 2 * inner
            a, b, c = load(x, i), load(x, j), load(x, k)
            d, e, f = load(y, i), load(y, j), load(y, k)
            store(out, i, b * f - c * e)
            store(out, j, c * d - a * f)
            store(out, k, a * e - b * d)
