"""The gradient of a bias that was added to every row: sums of columns."""

from __future__ import annotations

import numpy as np
from numba import prange

from ..machine import kernel

__all__ = ["column_sum"]

CHUNK = 16384
"""Elements that one task sums; fixed, so that the result does not depend on the threads."""


@kernel(grain=65536, allocates=True)
def column_sum(out, x):
    """Sums over rows, accumulated in float64. out (m) C; x (n, m) C."""
    n, m = x.shape
    rows = max(4, CHUNK // max(m, 1) // 4 * 4)
    chunks = (n + rows - 1) // rows
    partial = np.zeros((max(chunks, 1), m))
    for c in prange(chunks):
        stop = min(n, (c + 1) * rows)
        fours = (stop - c * rows) // 4 * 4 + c * rows
        # Pairs first, in the dtype of x: a quarter of the conversions, and no loss worth naming.
        for i in range(c * rows, fours, 4):
            for j in range(m):
                partial[c, j] += (x[i, j] + x[i + 1, j]) + (x[i + 2, j] + x[i + 3, j])
        for i in range(fours, stop):
            for j in range(m):
                partial[c, j] += x[i, j]
    for c in range(1, chunks):
        for j in range(m):
            partial[0, j] += partial[c, j]
    for j in range(m):
        out[j] = partial[0, j]
