"""Putting arrays side by side."""

from __future__ import annotations

import numpy as np
from numba import prange

from ..machine import kernel


@kernel(grain=262144, moves=True)
def place(out, x, start):
    """out (n, w), x (n, v) C: columns start to start + v of out become x; out is kept elsewhere."""
    n, v = x.shape
    for i in prange(n):
        for j in range(v):
            # unsigned: a place that might be negative keeps LLVM from vectorising
            out[i, np.uintp(start + j)] = x[i, j]


@kernel(grain=262144, moves=True)
def place_four(out, a, b, c, d, start):
    """out (n, w), a b c d (n, any) C: columns from start on become those of a, b, c and d, one
    after the other; out is kept elsewhere."""
    n = out.shape[0]
    for i in prange(n):
        at = start
        for j in range(a.shape[1]):
            out[i, np.uintp(at + j)] = a[i, j]
        at += a.shape[1]
        for j in range(b.shape[1]):
            out[i, np.uintp(at + j)] = b[i, j]
        at += b.shape[1]
        for j in range(c.shape[1]):
            out[i, np.uintp(at + j)] = c[i, j]
        at += c.shape[1]
        for j in range(d.shape[1]):
            out[i, np.uintp(at + j)] = d[i, j]
