"""Triangles of matrices."""

from __future__ import annotations

import numpy as np
from numba import prange

from ..machine import kernel


@kernel(grain=131072, moves=True)
def triangle(out, x, diagonal, upper):
    """out, x (b, n, m) C: x on and above (upper) or below the diagonal, else 0; out may be x."""
    b, n, m = x.shape
    zero = x.dtype.type(0)
    for row in prange(b * n):
        k = row // n
        i = row - k * n
        edge = min(max(i + diagonal + (0 if upper else 1), 0), m)
        for j in range(edge):
            out[k, i, j] = zero if upper else x[k, i, j]
        for at in range(edge, m):
            j = np.uintp(at)  # a signed one might be negative, which costs the SIMD form
            out[k, i, j] = x[k, i, j] if upper else zero
