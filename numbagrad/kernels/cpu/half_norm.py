"""Softmax of float16 and bfloat16: its exponentials stay in float32 until they are scaled.

The kernels of ``norm.py`` keep them in the result, where halves would round them twice.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..inner import inner
from ..intrinsics import larger, load, stack, store
from ..machine import kernel
from ..simd_math import exp
from .norm import WIDTH, columns_max, columns_of, summing, tasks_of

__all__ = ["softmax_axis_of_halves", "softmax_rows_of_halves"]

LINE = 8192
"""Columns whose exponentials are kept; those beyond are taken a second time."""


@inner
def wide_row(line, x, row, width):
    """The first ``width`` elements of a row of x into ``line``, and the largest of all."""
    peak = np.float32(-np.inf)
    for j in range(width):
        value = load(x, row + j)
        line[j] = value
        peak = larger(peak, value)
    for j in range(width, x.shape[1]):
        peak = larger(peak, load(x, row + j))
    return peak


@summing
def sum_of_powers(line, x, row, width, peak):
    """``exp(line - peak)`` into ``line``, and the sum of those of all the row of x."""
    total = np.float32(0)
    for j in range(width):
        power = exp(line[j] - peak)
        line[j] = power
        total += power
    for j in range(width, x.shape[1]):
        total += exp(load(x, row + j) - peak)
    return total


@kernel(grain=16384, loads_halves=True)
def softmax_rows_of_halves(out, x):
    """Softmax of each row, rounded once. out, x (n, m) C, float16 or bfloat16."""
    n, m = x.shape
    for i in prange(n):
        line = stack(LINE, np.float32(0))
        row, width = i * m, min(m, LINE)
        peak = wide_row(line, x, row, width)
        scale = np.float32(1) / sum_of_powers(line, x, row, width, peak)
        for j in range(width):
            store(out, row + j, line[j] * scale)
        for j in range(width, m):
            store(out, row + j, exp(load(x, row + j) - peak) * scale)


@kernel(grain=16384, loads_halves=True)
def softmax_axis_of_halves(out, x):
    """Softmax along the middle axis, rounded once. out, x (outer, m, inner) C, of halves.

    The exponentials are taken twice. That gives the bits of ``softmax_axis``, which takes 2 to 17 %
    less of float32.
    """
    _, m, inner = x.shape
    tasks, parts = tasks_of(x)
    for task in prange(0, tasks):
        begin, width = columns_of(x, task, parts)
        zero, one = np.float32(0), np.float32(1)
        peak, total = stack(WIDTH, zero), stack(WIDTH, zero)
        columns_max(peak, x, begin, width)
        for j in range(width):
            total[j] = zero
        for row in range(begin, begin + m * inner, inner):
            for j in range(width):
                total[j] += exp(load(x, row + j) - peak[j])
        for j in range(width):
            total[j] = one / total[j]
        for row in range(begin, begin + m * inner, inner):
            for j in range(width):
                store(out, row + j, exp(load(x, row + j) - peak[j]) * total[j])
