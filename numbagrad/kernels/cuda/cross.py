"""Vector products."""

from __future__ import annotations

from numba import cuda

from .runtime.intrinsics import as_type
from .runtime.launch import start, strided_grid
from .runtime.shape import BLOCK
from .runtime.warp import split

__all__ = ["cross"]


def _cross(out, x, y, size, inner):
    """A thread for each of ``size`` vectors."""
    at = cuda.grid(1)
    while at < size:
        o, column = split(at, inner)
        i = 3 * o * inner + column
        j, k = i + inner, i + 2 * inner
        a, b, c = x[i], x[j], x[k]
        d, e, f = y[i], y[j], y[k]
        out[i] = as_type(out, b * f - c * e)
        out[j] = as_type(out, c * d - a * f)
        out[k] = as_type(out, a * e - b * d)
        at += cuda.gridsize(1)


def cross(out, x, y):
    """out, x, y (outer, 3, inner) C: the vector products along the middle axis."""
    if out.size:
        vectors = out.size // 3
        start(_cross, strided_grid(vectors), BLOCK, out, x, y, vectors, out.shape[2])
