"""Sequences of numbers."""

from __future__ import annotations

import numpy as np

from ..machine import kernel


@kernel
def arange(out, start, step):
    """out (n,) any dtype: start + i * step, in the arithmetic of start and step."""
    for i in range(out.size):
        out[i] = start + i * step


@kernel
def linspace(out, start, end):
    """out (n,) any dtype: n numbers from start to end, each half counted from its own end."""
    n = out.size
    step = (end - start) / np.float64(max(n - 1, 1))
    for i in range(n):
        out[i] = start + step * i if 2 * i < n else end - step * (n - 1 - i)
