"""Softmax and its family, and layer normalisation, with their gradients.

Kernels named ``..._rows`` work along the last axis of an (n, m) array, those named ``..._axis``
along the middle axis of an (outer, m, inner) array, many columns at a time.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numba import prange

from ..expr import expr, symbol
from ..formula import Formula
from ..half_type import sum_type
from ..inner import device, inner, pasted
from ..intrinsics import larger, load, stack, store, wide
from ..loops import ElementwiseKernel
from ..machine import kernel
from ..simd_math import exp, falling_exp, log

__all__ = [
    "LOGSUMEXP_GRAD",
    "layer_norm",
    "layer_norm_grad",
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


@kernel(outputs=3, grain=32768, loads_halves=True)
def layer_norm(out, mean, rstd, x, weight, bias, eps, affine):
    """Rows of ``x`` shifted to mean 0 and scaled to variance 1, then ``* weight + bias``.

    out (n, m) C; mean, rstd (n) C, for the gradient; x (n, m) C; weight, bias (m) C. affine: bit 1
    if weight is to be used, bit 2 if bias is; an unused one may be any array of rank 1.
    """
    n, m = x.shape
    for i in prange(n):
        center = sum_of(x[i]) / sum_type(x.dtype).type(m)
        scale = sum_type(x.dtype).type(1 / sqrt(squares_from(x[i], center) / m + eps))
        mean[i], rstd[i] = center, scale
        # In one pass each: halves would be rounded in each of several.
        if affine == 3:
            for j in range(m):
                out[i, j] = (x[i, j] - center) * scale * weight[j] + bias[j]
        elif affine == 2:
            for j in range(m):
                out[i, j] = (x[i, j] - center) * scale + bias[j]
        elif affine == 1:
            for j in range(m):
                out[i, j] = (x[i, j] - center) * scale * weight[j]
        else:
            for j in range(m):
                out[i, j] = (x[i, j] - center) * scale


LINE = 1024
"""Most columns of a layer norm's gradient at a time. Short pieces of rows, 256 columns each, come
from memory slower: 2048 rows of 768 take 3.4 ms instead of 3.9, 512 of 1024 a fifth less."""

ROWS, FEW_ROWS = 64, 16
"""Rows whose gradients of weight and bias one task sums; fixed, whatever the threads. Of fewer than
``4 * ROWS`` long rows it has ``FEW_ROWS``: two threads take 180 us for 64 rows of 4000, not 290."""


@summing
def sums_along(g, x, weight, row, center, affine):
    """The sums of a row of ``g``, times weight if affine is odd, and of its products with
    ``x - center``."""
    total, along = sum_type(x.dtype).type(0), sum_type(x.dtype).type(0)
    if affine & 1:
        for j in range(x.shape[1]):
            value = load(g, row + j) * load(weight, j)
            total += value
            along += value * (load(x, row + j) - center)
    else:
        for j in range(x.shape[1]):
            value = load(g, row + j)
            total += value
            along += value * (load(x, row + j) - center)
    return total, along


@inner
def layer_norm_grad_rows(gx, sums, g, x, mean, rstd, weight, affine, part, rows):
    """Gradients of the rows of a part, and what they add to those of weight and bias.

    By columns, so that these stay in a near cache, and four rows at once. These are added in
    the dtype of x first: to widen each to float64 takes as long as all the rest, and beside float64
    LLVM takes half as many lanes for float32.
    """
    wide()
    n, m = x.shape
    first, last = part * rows, min(n, (part + 1) * rows)
    kind = sum_type(x.dtype).type
    zero, one, count = kind(0), kind(1), kind(m)
    totals, alongs = stack(ROWS, zero), stack(ROWS, zero)
    for i in range(first, last):
        total, along = sums_along(g, x, weight, i * m, mean[i], affine)
        totals[i - first], alongs[i - first] = total / count, along * rstd[i] / count
    # LLVM knows that these are none of the arrays, which it need not compare then.
    line0, line1 = stack(LINE, zero), stack(LINE, zero)
    line2, line3 = stack(LINE, zero), stack(LINE, zero)
    factor = stack(LINE, one)
    by_weight, by_bias = stack(LINE, 0.0), stack(LINE, 0.0)
    four_by_weight, four_by_bias = stack(LINE, zero), stack(LINE, zero)
    for begin in range(0, m, LINE):
        width = min(LINE, m - begin)
        for j in range(width):
            factor[j] = load(weight, begin + j) if affine & 1 else one
            by_weight[j], by_bias[j] = 0.0, 0.0
        for i in range(first, last, 4):
            # Rows beyond the last are the last once more, and count nothing.
            i1, i2, i3 = min(i + 1, last - 1), min(i + 2, last - 1), min(i + 3, last - 1)
            row0, row1 = i * m + begin, i1 * m + begin
            row2, row3 = i2 * m + begin, i3 * m + begin
            for j in range(width):
                u0, v0 = (load(x, row0 + j) - mean[i]) * rstd[i], load(g, row0 + j)
                u1, v1 = (load(x, row1 + j) - mean[i1]) * rstd[i1], load(g, row1 + j)
                u2, v2 = (load(x, row2 + j) - mean[i2]) * rstd[i2], load(g, row2 + j)
                u3, v3 = (load(x, row3 + j) - mean[i3]) * rstd[i3], load(g, row3 + j)
                f = factor[j]
                line0[j] = rstd[i] * (v0 * f - totals[i - first] - u0 * alongs[i - first])
                line1[j] = rstd[i1] * (v1 * f - totals[i1 - first] - u1 * alongs[i1 - first])
                line2[j] = rstd[i2] * (v2 * f - totals[i2 - first] - u2 * alongs[i2 - first])
                line3[j] = rstd[i3] * (v3 * f - totals[i3 - first] - u3 * alongs[i3 - first])
                v1 = v1 if i + 1 < last else zero
                v2 = v2 if i + 2 < last else zero
                v3 = v3 if i + 3 < last else zero
                four_by_weight[j] = (v0 * u0 + v1 * u1) + (v2 * u2 + v3 * u3)
                four_by_bias[j] = (v0 + v1) + (v2 + v3)
            for j in range(width):
                by_weight[j] += four_by_weight[j]
                by_bias[j] += four_by_bias[j]
            for j in range(width):
                store(gx, row0 + j, line0[j])
            for j in range(width):
                store(gx, row1 + j, line1[j])
            for j in range(width):
                store(gx, row2 + j, line2[j])
            for j in range(width):
                store(gx, row3 + j, line3[j])
        for j in range(width):
            sums[part, 0, begin + j], sums[part, 1, begin + j] = by_weight[j], by_bias[j]


@kernel(outputs=3, grain=32768, allocates=True, loads_halves=True)
def layer_norm_grad(gx, gweight, gbias, g, x, mean, rstd, weight, affine):
    """Gradients of ``layer_norm``, the sums over rows accumulated in float64, four rows at a time.

    gx (n, m) C; gweight, gbias (m) C, written always; the rest as for ``layer_norm``.
    """
    n, m = x.shape
    rows = ROWS if n >= 4 * ROWS or m < LINE else FEW_ROWS
    parts = (n + rows - 1) // rows
    sums = np.empty((parts, 2, m))
    for part in prange(0, parts):
        layer_norm_grad_rows(gx, sums, g, x, mean, rstd, weight, affine, part, rows)
    for part in range(1, parts):
        for j in range(m):
            sums[0, 0, j] += sums[part, 0, j]
            sums[0, 1, j] += sums[part, 1, j]
    for j in range(m):
        gweight[j] = sums[0, 0, j] if parts else 0.0
        gbias[j] = sums[0, 1, j] if parts else 0.0
