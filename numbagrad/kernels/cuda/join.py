"""Putting arrays side by side."""

from __future__ import annotations

import numpy as np
from numba import cuda

from .runtime import elementwise
from .runtime.array import DeviceArray
from .runtime.launch import start as launch
from .runtime.launch import strided_grid
from .runtime.shape import BLOCK, SIMULATED
from .runtime.warp import split

__all__ = ["interleave", "place", "place_four"]

FEW = 16 if SIMULATED else 1 << 16
"""Up to so many elements one launch for four arrays is over before a second one is prepared."""


def place(out, x, start):
    """out (n, w), x (n, v) C: columns start to start + v of out become x; out is kept elsewhere."""
    n, v = x.shape
    elementwise.copy(out.element_view((n, v), (out.shape[1], 1), start), x)


def interleave(out, a, b, c, d):
    """out (n, w), w from 2 to 4; a b c d (n), of which the first w become its columns; all C."""
    n, w = out.shape
    for j, x in enumerate((a, b, c, d)[:w]):
        place(out, x.element_view((n, 1), (1, 1), 0), j)


def place_four(out, a, b, c, d, start):
    """out (n, w), a b c d (n, any) C: columns from start on become those of a, b, c and d, one
    after the other; out is kept elsewhere."""
    n, w = out.shape
    widths = [x.shape[1] for x in (a, b, c, d)]
    size = n * sum(widths)
    if size > FEW:
        for x, v in zip((a, b, c, d), widths, strict=True):
            if v:
                place(out, x, start)
            start += v
    elif size:
        words = [_as_words(x) for x in (out, a, b, c, d)]
        launch(_place_four, strided_grid(size), BLOCK, *words, size, sum(widths), *widths, w, start)


def _as_words(x):
    """``x`` as whole numbers of its size: what is moved is not looked at."""
    return DeviceArray(x.memory, x.pointer, x.shape, np.dtype(f"i{x.itemsize}"), x.device)


def _place_four(out, a, b, c, d, size, width, va, vb, vc, vd, w, start):
    at = cuda.grid(1)
    while at < size:
        row, column = split(at, width)
        to = row * w + start + column
        if column < va:
            out[to] = a[row * va + column]
        elif column < va + vb:
            out[to] = b[row * vb + column - va]
        elif column < va + vb + vc:
            out[to] = c[row * vc + column - va - vb]
        else:
            out[to] = d[row * vd + column - va - vb - vc]
        at += cuda.gridsize(1)
