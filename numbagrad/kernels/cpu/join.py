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
