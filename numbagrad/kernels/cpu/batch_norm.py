"""Batch normalisation: each channel shifted to mean 0 and scaled to variance 1 over a batch.

A channel of wide planes is a task. Where planes are narrow, as in (n, c), that would read memory
one number here and one there: the kernels named ``..._rows`` take whole rows of all channels.
"""

from __future__ import annotations

from math import sqrt

from numba import prange

from ..inner import device
from ..intrinsics import load, store
from ..machine import kernel
from .norm import dot_from, squares_from, sum_of, summing

__all__ = ["batch_norm", "batch_norm_grad", "batch_norm_rows", "batch_norm_rows_grad"]
__all__ += ["channel_affine"]

ROWS = 64
"""Rows that one task of ``..._rows`` takes; fixed, whatever the threads."""


@summing
def wide_sum_of(row):
    """The sum of a 1-D array in float64: what the mean is off by, far from 0, all results are."""
    total = 0.0
    for j in range(row.size):
        total += row[j]
    return total


@device
def mean_of_channel(x, c):
    """The mean of ``x[:, c]``, added in float64."""
    total = 0.0
    for i in range(x.shape[0]):
        total += wide_sum_of(x[i, c])
    return x.dtype.type(total / (x.shape[0] * x.shape[2]))


@device
def variance_of_channel(x, c, center):
    """The mean square of ``x[:, c] - center``."""
    total = 0.0
    for i in range(x.shape[0]):
        total += squares_from(x[i, c], center)
    return total / (x.shape[0] * x.shape[2])


@device
def apply_to_channel(out, x, c, center, scale, shift):
    """``out[:, c] = (x[:, c] - center) * scale + shift``."""
    for i in range(x.shape[0]):
        for j in range(x.shape[2]):
            out[i, c, j] = (x[i, c, j] - center) * scale + shift


@device
def track_statistics(running_mean, running_var, c, center, variance, momentum, count):
    """Move both by ``momentum`` towards the mean and the unbiased variance."""
    unbiased = variance * count / max(count - 1, 1)
    running_mean[c] = (1 - momentum) * running_mean[c] + momentum * center
    running_var[c] = (1 - momentum) * running_var[c] + momentum * unbiased


@kernel(outputs=5, grain=32768)
def batch_norm(
    out, mean, rstd, running_mean, running_var, x, weight, bias, momentum, eps, affine, track
):
    """Normalise by the batch's own mean and variance, then ``* weight + bias``.

    out, x (n, c, p): C; mean, rstd (c), for the gradient. track: move running_mean and running_var
    (c) by ``momentum`` towards the mean and the unbiased variance. affine: bit 1 if weight (c) is
    to be used, bit 2 if bias. What is not used may be any array of rank 1.
    """
    n, channels, p = x.shape
    for c in prange(0, channels):
        center = mean_of_channel(x, c)
        variance = variance_of_channel(x, c, center)
        scale = x.dtype.type(1 / sqrt(variance + eps))
        mean[c], rstd[c] = center, scale
        if track:
            track_statistics(running_mean, running_var, c, center, variance, momentum, n * p)
        factor = scale * weight[c] if affine & 1 else scale
        apply_to_channel(out, x, c, center, factor, bias[c] if affine & 2 else x.dtype.type(0))


@kernel(grain=32768)
def channel_affine(out, x, weight, bias):
    """``x * weight + bias``; out, x (n, c, p): C; weight, bias (c)."""
    n, channels, p = x.shape
    for row in prange(0, n * channels):
        scale, shift = weight[row % channels], bias[row % channels]
        for j in range(row * p, row * p + p):
            store(out, j, load(x, j) * scale + shift)


@device
def grad_of_channel(gx, gweight, gbias, g, x, c, center, scale, factor):
    """``batch_norm_grad`` of one channel; factor: its weight times ``scale``."""
    total, along = 0.0, 0.0
    for i in range(x.shape[0]):
        total += sum_of(g[i, c])
        along += dot_from(g[i, c], x[i, c], center)
    gweight[c], gbias[c] = along * scale, total
    count = x.shape[0] * x.shape[2]
    level = x.dtype.type(total / count)
    slope = x.dtype.type(along * scale * scale / count)
    for i in range(x.shape[0]):
        for j in range(x.shape[2]):
            gx[i, c, j] = factor * (g[i, c, j] - level - (x[i, c, j] - center) * slope)


@kernel(outputs=3, grain=32768)
def batch_norm_grad(gx, gweight, gbias, g, x, mean, rstd, weight, affine):
    """Gradients of ``batch_norm``; gweight, gbias (c) are written always."""
    for c in prange(0, x.shape[1]):
        scale = rstd[c]
        factor = scale * weight[c] if affine & 1 else scale
        grad_of_channel(gx, gweight, gbias, g, x, c, mean[c], scale, factor)


# -- rows of narrow planes -------------------------------------------------------------------------


@device
def share(sums, parts, n, p):
    """Let the first row of ``sums`` be the mean over n rows of ``parts`` sums and over the ``p``
    columns of a channel, for each of these."""
    columns = sums.shape[1]
    for begin in range(0, columns, p):
        total = 0.0
        for row in range(0, parts * columns, columns):
            for j in range(row + begin, row + begin + p):
                total += load(sums, j)
        for j in range(begin, begin + p):
            store(sums, j, total / (n * p))


@device
def sum_columns(sums, x, lines, squares, part):
    """``sums[part]``: the sums over ``ROWS`` rows of ``x``, or of the squares of ``x - lines[0]``,
    in float64."""
    columns = sums.shape[1]
    to, first, last = part * columns, part * ROWS, min(x.shape[0], (part + 1) * ROWS)
    for j in range(to, to + columns):
        store(sums, j, 0.0)
    for i in range(first, last):
        for j in range(columns):
            value = load(x, i * columns + j)
            if squares:
                value = (value - load(lines, j)) * (value - load(lines, j))
            store(sums, to + j, load(sums, to + j) + value)


@device
def apply_to_rows(out, x, lines, part):
    """``out = (x - lines[0]) * lines[1] + lines[2]`` in ``ROWS`` rows."""
    columns = lines.shape[1]
    for i in range(part * ROWS, min(x.shape[0], (part + 1) * ROWS)):
        for j in range(columns):
            away = load(x, i * columns + j) - load(lines, j)
            value = away * load(lines, columns + j) + load(lines, 2 * columns + j)
            store(out, i * columns + j, value)


@kernel(outputs=7, grain=1 << 17)
def batch_norm_rows(
    out, mean, rstd, running_mean, running_var, sums, lines, x, weight, bias, momentum, eps,
    affine, track,
):  # fmt: skip
    """``batch_norm`` for narrow planes, in three stages: sums, squares, result.

    sums (at least 1, and one for every ``ROWS`` rows, c p) of float64, lines (3, c p): room.
    """
    n, channels, p = x.shape
    columns, parts = channels * p, (n + ROWS - 1) // ROWS
    for stage in range(3):  # around one parallel loop, for each is compiled by itself
        for part in prange(0, parts):
            if stage < 2:
                sum_columns(sums, x, lines, stage, part)
            else:
                apply_to_rows(out, x, lines, part)
        if stage == 2:
            continue
        share(sums, parts, n, p)
        for c in range(channels):
            if stage == 0:
                mean[c] = load(sums, c * p)
                for j in range(c * p, c * p + p):
                    store(lines, j, mean[c])
                continue
            variance = load(sums, c * p)
            scale = x.dtype.type(1 / sqrt(variance + eps))
            rstd[c] = scale
            if track:
                moved = momentum, n * p
                track_statistics(running_mean, running_var, c, mean[c], variance, *moved)
            for j in range(columns + c * p, columns + c * p + p):
                store(lines, j, scale * weight[c] if affine & 1 else scale)
                store(lines, columns + j, bias[c] if affine & 2 else x.dtype.type(0))


@device
def sum_grads(totals, alongs, g, x, lines, part):
    """The sums over ``ROWS`` rows of ``g`` in ``totals[part]``, of its products with
    ``x - lines[0]`` in ``alongs[part]``."""
    columns = totals.shape[1]
    to, first, last = part * columns, part * ROWS, min(x.shape[0], (part + 1) * ROWS)
    for j in range(to, to + columns):
        store(totals, j, 0.0)
        store(alongs, j, 0.0)
    for i in range(first, last):
        row = i * columns
        for j in range(columns):
            value = load(g, row + j)
            store(totals, to + j, load(totals, to + j) + value)
            along = value * (load(x, row + j) - load(lines, j))
            store(alongs, to + j, load(alongs, to + j) + along)


@device
def grads_of_rows(gx, g, x, lines, part):
    """``gx`` of ``ROWS`` rows; lines: means, factors, levels and slopes of the columns."""
    columns = lines.shape[1]
    for i in range(part * ROWS, min(x.shape[0], (part + 1) * ROWS)):
        row = i * columns
        for j in range(columns):
            along = (load(x, row + j) - load(lines, j)) * load(lines, 3 * columns + j)
            away = load(g, row + j) - load(lines, 2 * columns + j) - along
            store(gx, row + j, load(lines, columns + j) * away)


@kernel(outputs=6, grain=1 << 17)
def batch_norm_rows_grad(
    gx, gweight, gbias, totals, alongs, lines, g, x, mean, rstd, weight, affine
):  # fmt: skip
    """``batch_norm_grad`` for narrow planes; totals, alongs, as sums, and lines (4, c p): room."""
    n, channels, p = x.shape
    columns, parts = channels * p, (n + ROWS - 1) // ROWS
    for c in range(channels):
        for j in range(c * p, c * p + p):
            store(lines, j, mean[c])
    for stage in range(2):
        for part in prange(0, parts):
            if stage == 0:
                sum_grads(totals, alongs, g, x, lines, part)
            else:
                grads_of_rows(gx, g, x, lines, part)
        if stage == 1:
            continue
        share(totals, parts, n, p)
        share(alongs, parts, n, p)
        for c in range(channels):
            level, along, scale = load(totals, c * p), load(alongs, c * p), rstd[c]
            gweight[c], gbias[c] = along * (n * p) * scale, level * (n * p)
            for j in range(columns + c * p, columns + c * p + p):
                store(lines, j, scale * weight[c] if affine & 1 else scale)
                store(lines, columns + j, level)
                store(lines, 2 * columns + j, along * scale * scale)
