"""Elements picked and placed by index along the middle axis of ``(outer, n, inner)``."""

from __future__ import annotations

from numba import cuda

from .runtime import elementwise
from .runtime.launch import start, strided_grid
from .runtime.shape import BLOCK
from .runtime.warp import split

__all__ = ["pick", "place"]


def _pick(out, x, which, size, n, k, inner):
    """A thread for each of ``size`` elements."""
    at = cuda.grid(1)
    while at < size:
        rest, i = split(at, inner)
        o, _ = split(rest, k)
        out[at] = x[(o * n + which[at]) * inner + i]
        at += cuda.gridsize(1)


def pick(out, x, which):
    """out, which (outer, k, inner) C; x (outer, n, inner) C: out = x[o, which[o, j, i], i]."""
    if out.size:
        _, k, inner = out.shape
        shape = out.size, x.shape[1], k, inner
        start(_pick, strided_grid(out.size), BLOCK, out, x, which, *shape)


def _place(out, x, which, columns, n, k, inner):
    """A thread for each of ``columns`` columns, which adds in order."""
    at = cuda.grid(1)
    while at < columns:
        o, i = split(at, inner)
        for j in range(k):
            source = (o * k + j) * inner + i
            target = (o * n + which[source]) * inner + i
            out[target] = out[target] + x[source]
        at += cuda.gridsize(1)


def place(out, x, which):
    """out (outer, n, inner) C; x, which (outer, k, inner) C: zeros, plus x at its places."""
    elementwise.fill(out, 0)
    if x.size:
        outer, k, inner = x.shape
        columns = outer * inner
        shape = columns, out.shape[1], k, inner
        start(_place, strided_grid(columns), BLOCK, out, x, which, *shape)
