"""Triangles of matrices."""

from __future__ import annotations

from numba import cuda

from .runtime.intrinsics import as_type
from .runtime.launch import start, strided_grid
from .runtime.shape import BLOCK
from .runtime.warp import split

__all__ = ["triangle"]


def _triangle(out, x, size, n, m, diagonal, upper):
    """A thread for each of ``size`` elements."""
    at = cuda.grid(1)
    while at < size:
        row, j = split(at, m)
        _, i = split(row, n)
        kept = j - i >= diagonal if upper else j - i <= diagonal
        out[at] = x[at] if kept else as_type(out, 0)
        at += cuda.gridsize(1)


def triangle(out, x, diagonal, upper):
    """out, x (b, n, m) C: x on and above (upper) or below the diagonal, else 0; out may be x."""
    _, n, m = x.shape
    if x.size:
        shape = x.size, n, m, diagonal, int(upper)
        start(_triangle, strided_grid(x.size), BLOCK, out, x, *shape)
