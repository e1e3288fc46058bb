"""Layer normalisation and its gradient."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numba import prange

from ..half_type import sum_type
from ..inner import inner
from ..intrinsics import load, stack, store, wide
from ..machine import kernel
from .norm import squares_from, sum_of, summing

__all__ = ["layer_norm", "layer_norm_grad"]


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
