"""Softmax and its family, with their gradients, and the sums over rows that others share.

Kernels named ``..._rows`` work along the last axis of an (n, m) array, those named ``..._axis``
along the middle axis of an (outer, m, inner) array, many columns at a time.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..expr import expr, symbol
from ..formula import Formula
from ..half_type import sum_type
from ..inner import device, inner, pasted
from ..intrinsics import larger, load, stack, store
from ..loops import ElementwiseKernel
from ..machine import kernel
from ..simd_math import exp, falling_exp, log

__all__ = [
    "LOGSUMEXP_GRAD",
    "log_softmax_axis",
    "log_softmax_axis_grad",
    "log_softmax_rows",
    "log_softmax_rows_grad",
    "logsumexp_axis",
    "logsumexp_rows",
    "logsumexp_with_softmax",
    "softmax_axis",
    "softmax_axis_grad",
    "softmax_rows",
    "softmax_rows_grad",
]

WIDTH = 256
"""Most columns of the middle-axis kernels that one task carries: their sums stay in the first
cache."""


TOGETHER = 64
"""Most short rows whose logarithms are taken by vectors; one by one they are half of the time."""


@device
def row_max(row):
    """Largest element of a 1-D array, NaN if there is one."""
    peak = sum_type(row.dtype).type(-np.inf)
    for i in range(row.size):
        peak = larger(peak, row[i])
    return peak


# Only these may be added up in any order, which is what lets LLVM vectorise them. In a whole kernel
# the permission would turn (x - peak) - log(total) into x - (peak + log(total)): 3 digits lost.
summing = inner(fastmath={"contract", "nsz", "reassoc"})


@summing
def sum_of(row):
    """The sum of a 1-D array."""
    total = sum_type(row.dtype).type(0)
    for j in range(row.size):
        total += row[j]
    return total


@summing
def dot_of(x, y):
    """The sum of the products of two 1-D arrays."""
    total = sum_type(x.dtype).type(0)
    for j in range(x.size):
        total += x[j] * y[j]
    return total


@summing
def sum_of_exp(row, peak):
    """The sum of ``exp(row - peak)``, where peak is the largest."""
    total = sum_type(row.dtype).type(0)
    for j in range(row.size):
        total += falling_exp(row[j] - peak)
    return total


@summing
def exp_with_sum(out, row, peak):
    """``exp(row - peak)`` into ``out``, and its sum."""
    total = sum_type(row.dtype).type(0)
    for j in range(row.size):
        power = exp(row[j] - peak)
        out[j] = power
        total += power
    return total


@summing
def falling_exp_with_sum(out, row, peak):
    """``exp_with_sum``, where peak is the largest: 0 for what would be no normal number."""
    total = sum_type(row.dtype).type(0)
    for j in range(row.size):
        power = falling_exp(row[j] - peak)
        out[j] = power
        total += power
    return total


@summing
def dot_from(x, y, center):
    """The sum of the products of ``x`` and ``y - center``."""
    total = sum_type(x.dtype).type(0)
    for j in range(x.size):
        total += x[j] * (y[j] - center)
    return total


@summing
def squares_from(x, center):
    """The sum of the squares of ``x - center``."""
    total = sum_type(x.dtype).type(0)
    for j in range(x.size):
        total += (x[j] - center) * (x[j] - center)
    return total


@kernel(grain=16384)
def softmax_rows(out, x):
    """Exponentials scaled to sum to one in each row. out (n, m) C; x (n, m) C; out may be x."""
    n, m = x.shape
    for i in prange(n):
        peak = row_max(x[i])
        total = exp_with_sum(out[i], x[i], peak)
        scale = x.dtype.type(1) / total
        for j in range(m):
            out[i, j] *= scale


@kernel(grain=32768, loads_halves=True)
def softmax_rows_grad(gx, g, out):
    """``out (g - sum(g out))`` in each row. gx, g, out (n, m) C; gx may be g."""
    n, m = out.shape
    for i in prange(n):
        total = dot_of(g[i], out[i])
        for j in range(m):
            gx[i, j] = out[i, j] * (g[i, j] - total)


@kernel(grain=16384, loads_halves=True)
def log_softmax_rows(out, x):
    """Logarithm of softmax in each row. out (n, m) C; x (n, m) C; out may be x."""
    n, m = x.shape
    rows = max(1, min(TOGETHER, TOGETHER * TOGETHER // max(m, 1)))
    for block in prange((n + rows - 1) // rows):
        first = block * rows
        zero = sum_type(x.dtype).type(0)
        peaks, shifts = stack(TOGETHER, zero), stack(TOGETHER, zero)
        count = min(rows, n - first)
        for i in range(count):
            peak = row_max(x[first + i])
            store(peaks, i, peak)
            store(shifts, i, sum_of_exp(x[first + i], peak))
        for i in range(count):
            store(shifts, i, log(load(shifts, i)))
        for i in range(count):
            peak, shift = load(peaks, i), load(shifts, i)
            for j in range(m):
                out[first + i, j] = (x[first + i, j] - peak) - shift


@kernel(grain=16384, loads_halves=True)
def log_softmax_rows_grad(gx, g, out):
    """``g - exp(out) sum(g)`` in each row. gx, g, out (n, m) C; gx may be g."""
    n, m = out.shape
    for i in prange(n):
        total = sum_of(g[i])
        for j in range(m):
            gx[i, j] = g[i, j] - falling_exp(load(out, i * m + j)) * total


@kernel(grain=16384, loads_halves=True)
def logsumexp_rows(out, x):
    """Logarithm of the sum of exponentials of each row. out (n) C; x (n, m) C."""
    n, m = x.shape
    for i in prange(n):
        peak = row_max(x[i]) if m else sum_type(x.dtype).type(-np.inf)
        # inf - inf would be NaN where the answer is the peak itself.
        out[i] = peak if np.isinf(peak) else log(sum_of_exp(x[i], peak)) + peak


@kernel(outputs=2, grain=16384)
def logsumexp_with_softmax(out, p, x):
    """``logsumexp_rows``, and the softmax of each row. out (n) C; p, x (n, m) C."""
    n, m = x.shape
    for i in prange(n):
        peak = row_max(x[i])
        if np.isinf(peak):
            out[i] = peak
            for j in range(m):
                p[i, j] = exp(x[i, j] - peak)
        else:
            total = falling_exp_with_sum(p[i], x[i], peak)
            out[i] = log(total) + peak
            scale = x.dtype.type(1) / total
            for j in range(m):
                p[i, j] *= scale


LOGSUMEXP_GRAD = ElementwiseKernel(
    Formula(
        "logsumexp_grad",
        ("g", "x", "lse"),
        expr("mul", symbol("g"), expr("exp", expr("sub", symbol("x"), symbol("lse")))),
    )
)
"""gx, x (n, m); g, lse (n, 1)."""


@pasted
def tasks_of(x):
    """How many tasks share the middle-axis kernels, of how many parts each of the outer ones."""
    outer, _, inner = x.shape
    parts = (inner + WIDTH - 1) // WIDTH
    return outer * parts, parts


@pasted
def columns_of(x, task, parts):
    """Where a task's first row begins in all of x (outer, m, inner), and its columns."""
    _, m, inner = x.shape
    o, part = task // parts, task % parts
    first, last = inner * part // parts, inner * (part + 1) // parts
    return o * m * inner + first, last - first


@inner
def columns_max(peak, x, begin, width):
    """Maximum of each of a task's columns, but for NaN, into ``peak``."""
    _, m, inner = x.shape
    for j in range(width):
        peak[j] = -np.inf
    for row in range(begin, begin + m * inner, inner):
        for j in range(width):
            value = load(x, row + j)
            peak[j] = value if value > peak[j] else peak[j]


# Results go through a line of their own: LLVM knows that it is not x, which ``out`` may be.


@kernel(grain=16384)
def softmax_axis(out, x):
    """Softmax along the middle axis. out, x (outer, m, inner) C; out may be x."""
    _, m, inner = x.shape
    tasks, parts = tasks_of(x)
    for task in prange(0, tasks):
        begin, width = columns_of(x, task, parts)
        zero, one = x.dtype.type(0), x.dtype.type(1)
        peak, total, line = stack(WIDTH, zero), stack(WIDTH, zero), stack(WIDTH, zero)
        columns_max(peak, x, begin, width)
        for j in range(width):
            total[j] = zero
        for row in range(begin, begin + m * inner, inner):
            for j in range(width):
                line[j] = exp(load(x, row + j) - peak[j])
                total[j] += line[j]
            for j in range(width):
                store(out, row + j, line[j])
        for j in range(width):
            total[j] = one / total[j]
        for row in range(begin, begin + m * inner, inner):
            for j in range(width):
                store(out, row + j, load(out, row + j) * total[j])


@kernel(grain=32768, loads_halves=True)
def softmax_axis_grad(gx, g, out):
    """Gradient of softmax along the middle axis. gx, g, out (outer, m, inner) C; gx may be g."""
    _, m, inner = out.shape
    tasks, parts = tasks_of(out)
    for task in prange(0, tasks):
        begin, width = columns_of(out, task, parts)
        zero = sum_type(out.dtype).type(0)
        total, line = stack(WIDTH, zero), stack(WIDTH, zero)
        for j in range(width):
            total[j] = zero
        for row in range(begin, begin + m * inner, inner):
            for j in range(width):
                total[j] += load(g, row + j) * load(out, row + j)
        for row in range(begin, begin + m * inner, inner):
            for j in range(width):
                line[j] = load(out, row + j) * (load(g, row + j) - total[j])
            for j in range(width):
                store(gx, row + j, line[j])


@kernel(grain=16384, loads_halves=True)
def log_softmax_axis(out, x):
    """Logarithm of softmax along the middle axis. out, x (outer, m, inner) C; out may be x."""
    _, m, inner = x.shape
    tasks, parts = tasks_of(x)
    for task in prange(0, tasks):
        begin, width = columns_of(x, task, parts)
        zero = sum_type(x.dtype).type(0)
        peak, total, line = stack(WIDTH, zero), stack(WIDTH, zero), stack(WIDTH, zero)
        columns_max(peak, x, begin, width)
        for j in range(width):
            total[j] = zero
        for row in range(begin, begin + m * inner, inner):
            for j in range(width):
                total[j] += falling_exp(load(x, row + j) - peak[j])
        for j in range(width):
            total[j] = log(total[j])
        for row in range(begin, begin + m * inner, inner):
            for j in range(width):
                line[j] = (load(x, row + j) - peak[j]) - total[j]
            for j in range(width):
                store(out, row + j, line[j])


@kernel(grain=16384, loads_halves=True)
def logsumexp_axis(out, x):
    """``logsumexp_rows`` along the middle axis. out (outer, inner) C; x (outer, m, inner) C."""
    _, m, inner = x.shape
    tasks, parts = tasks_of(x)
    for task in prange(0, tasks):
        begin, width = columns_of(x, task, parts)
        zero = sum_type(x.dtype).type(0)
        peak, total = stack(WIDTH, zero), stack(WIDTH, zero)
        columns_max(peak, x, begin, width)
        for j in range(width):
            # inf - inf would be NaN where the answer is the peak itself.
            peak[j] = zero if abs(peak[j]) == np.inf else peak[j]
            total[j] = zero
        for row in range(begin, begin + m * inner, inner):
            for j in range(width):
                total[j] += exp(load(x, row + j) - peak[j])
        to = task // parts * inner + inner * (task % parts) // parts
        for j in range(width):
            store(out, to + j, log(total[j]) + peak[j])


@kernel(grain=16384, loads_halves=True)
def log_softmax_axis_grad(gx, g, out):
    """Gradient of log_softmax, middle axis. gx, g, out (outer, m, inner) C; gx may be g."""
    _, m, inner = out.shape
    tasks, parts = tasks_of(out)
    for task in prange(0, tasks):
        begin, width = columns_of(out, task, parts)
        zero = sum_type(out.dtype).type(0)
        total, line = stack(WIDTH, zero), stack(WIDTH, zero)
        for j in range(width):
            total[j] = zero
        for row in range(begin, begin + m * inner, inner):
            for j in range(width):
                total[j] += load(g, row + j)
        for row in range(begin, begin + m * inner, inner):
            for j in range(width):
                line[j] = load(g, row + j) - falling_exp(load(out, row + j)) * total[j]
            for j in range(width):
                store(gx, row + j, line[j])
