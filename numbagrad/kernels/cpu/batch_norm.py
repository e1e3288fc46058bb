"""Batch normalisation: each channel shifted to mean 0 and scaled to variance 1 over a batch.

A channel of wide planes is a task. Where planes are narrow, as in (n, c), that would read memory
one number here and one there: the kernels named ``..._rows`` take whole rows of all channels.
"""

from __future__ import annotations

from math import sqrt

from numba import prange

from ..half_type import sum_type
from ..inner import device, inner
from ..intrinsics import load, store
from ..machine import kernel
from .norm import dot_from, squares_from, sum_of, summing

__all__ = ["batch_norm", "batch_norm_grad", "batch_norm_rows", "batch_norm_rows_grad"]
__all__ += ["channel_affine", "channel_affine_grad", "move_statistics"]

inlined = inner(forceinline=True, fastmath={"contract", "nsz"})

ROWS = 64
"""Rows that one task of ``..._rows`` takes; fixed, whatever the threads."""

WIDTH = 256
"""Columns that one task of these takes where there are no more rows: from sums to results it all
stays in a cache."""


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


@kernel(outputs=2)
def move_statistics(running_mean, running_var, mean, variance, momentum):
    """Move both by ``momentum`` towards the mean and the unbiased variance; all (c)."""
    for c in range(mean.size):
        running_mean[c] = (1 - momentum) * running_mean[c] + momentum * mean[c]
        running_var[c] = (1 - momentum) * running_var[c] + momentum * variance[c]


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


@kernel(outputs=3, grain=32768)
def channel_affine_grad(gx, gweight, gbias, g, x, weight):
    """Gradients of ``channel_affine``."""
    for c in prange(0, x.shape[1]):
        scale, total, along = weight[c], 0.0, 0.0
        for i in range(x.shape[0]):
            total += sum_of(g[i, c])
            along += dot_from(g[i, c], x[i, c], x.dtype.type(0))
            for j in range(x.shape[2]):
                gx[i, c, j] = g[i, c, j] * scale
        gweight[c], gbias[c] = along, total


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
def share(sums, parts, n, p, begin, end):
    """Let the first row of ``sums`` be the mean over n rows of ``parts`` sums and over the ``p``
    columns of a channel, for the channels from ``begin`` to before ``end``."""
    columns = sums.shape[1]
    if p == 1:
        for row in range(columns, parts * columns, columns):
            for j in range(begin, end):
                store(sums, j, load(sums, j) + load(sums, row + j))
        for j in range(begin, end):
            store(sums, j, load(sums, j) / n)
        return
    for left in range(begin * p, end * p, p):
        total = 0.0
        for row in range(0, parts * columns, columns):
            for j in range(row + left, row + left + p):
                total += load(sums, j)
        for j in range(left, left + p):
            store(sums, j, total / (n * p))


@inlined
def add_rows(sums, x, lines, squares, to, row, rows, begin, end):
    """Add ``rows`` rows of some columns of ``x``, or of the squares of ``x - lines[0]``."""
    columns = sums.shape[1]
    for j in range(begin, end):
        total, at = load(sums, to + j), row * columns + j
        for k in range(rows):
            value = load(x, at + k * columns)
            if squares:
                value = (value - load(lines, j)) * (value - load(lines, j))
            total += value
        store(sums, to + j, total)


@device
def sum_columns(sums, x, lines, squares, part, begin, end):
    """``sums[part, begin:end]``: the sums over ``ROWS`` rows of ``x``, or of the squares of
    ``x - lines[0]``, in float64."""
    to, first, last = part * sums.shape[1], part * ROWS, min(x.shape[0], (part + 1) * ROWS)
    for j in range(to + begin, to + end):
        store(sums, j, 0.0)
    while first + 8 <= last:
        if squares:
            add_rows(sums, x, lines, True, to, first, 8, begin, end)
        else:
            add_rows(sums, x, lines, False, to, first, 8, begin, end)
        first += 8
    for i in range(first, last):
        add_rows(sums, x, lines, squares, to, i, 1, begin, end)


@device
def apply_to_rows(out, x, lines, part, begin, end):
    """``out = (x - lines[0]) * lines[1] + lines[2]`` in ``ROWS`` rows of some columns."""
    columns = lines.shape[1]
    for i in range(part * ROWS, min(x.shape[0], (part + 1) * ROWS)):
        for j in range(begin, end):
            away = load(x, i * columns + j) - load(lines, j)
            value = away * load(lines, columns + j) + load(lines, 2 * columns + j)
            store(out, i * columns + j, value)


@device
def spread(lines, at, values, p, begin, end):
    """From element ``at`` on ``lines`` hold the values of some channels for all their columns."""
    if p == 1:
        for c in range(begin, end):
            store(lines, at + c, values[c])
        return
    for c in range(begin, end):
        for j in range(at + c * p, at + c * p + p):
            store(lines, j, values[c])


@device
def spread_factors(lines, rstd, weight, affine, p, begin, end):
    """lines[1]: ``rstd``, times ``weight`` if that is to be used."""
    columns = lines.shape[1]
    spread(lines, columns, rstd, p, begin, end)
    if affine & 1 and p == 1:
        for c in range(begin, end):
            store(lines, columns + c, rstd[c] * weight[c])
    elif affine & 1:
        for c in range(begin, end):
            for j in range(columns + c * p, columns + c * p + p):
                store(lines, j, rstd[c] * weight[c])


@device
def use_sums(
    stage, mean, rstd, running_mean, running_var, sums, lines, x, weight, bias, momentum, eps,
    affine, track, begin, end,
):  # fmt: skip
    """The means of the channels from ``begin`` to before ``end``, and lines[0], by stage 0; by 1
    what comes of their variances, and lines[1] and lines[2]."""
    n, channels, p = x.shape
    columns = channels * p
    share(sums, (n + ROWS - 1) // ROWS, n, p, begin, end)
    if stage == 0:
        for c in range(begin, end):
            mean[c] = load(sums, c * p)
        spread(lines, 0, mean, p, begin, end)
        return
    for c in range(begin, end):
        rstd[c] = 1 / sqrt(load(sums, c * p) + eps)
    if track:
        for c in range(begin, end):
            moved = load(sums, c * p), momentum, n * p
            track_statistics(running_mean, running_var, c, mean[c], *moved)
    spread_factors(lines, rstd, weight, affine, p, begin, end)
    if affine & 2:
        spread(lines, 2 * columns, bias, p, begin, end)
    else:
        for j in range(2 * columns + begin * p, 2 * columns + end * p):
            store(lines, j, sum_type(x.dtype).type(0))


@device
def tiles_of(x):
    """How many channels of (n, c, p) one task takes, and how many tasks: of a few rows the columns
    are shared, of many the rows are, for then a tile would not stay in a cache."""
    n, channels, p = x.shape
    width = max(1, WIDTH // p)
    return (width, (channels + width - 1) // width) if n <= ROWS else (channels, 1)


@kernel(outputs=7, grain=1 << 17, loads_halves=True)
def batch_norm_rows(
    out, mean, rstd, running_mean, running_var, sums, lines, x, weight, bias, momentum, eps,
    affine, track,
):  # fmt: skip
    """``batch_norm`` for narrow planes, in three stages: sums, squares, result.

    sums (at least 1, and one for every ``ROWS`` rows, c p) of float64, lines (3, c p): room.
    """
    n, channels, p = x.shape
    parts = (n + ROWS - 1) // ROWS
    few = parts == 1
    width, tiles = tiles_of(x)
    for stages in range(1 if few else 3):  # around one parallel loop: each is compiled by itself
        for task in prange(0, tiles if few else parts):
            part, begin = (0, task * width) if few else (task, 0)
            end = min(channels, begin + width)
            for stage in range(0 if few else stages, 3 if few else stages + 1):
                if stage == 2:
                    apply_to_rows(out, x, lines, part, begin * p, end * p)
                    continue
                sum_columns(sums, x, lines, stage, part, begin * p, end * p)
                if few:
                    use_sums(
                        stage, mean, rstd, running_mean, running_var, sums, lines, x, weight,
                        bias, momentum, eps, affine, track, begin, end,
                    )  # fmt: skip
        if not few and stages < 2:
            use_sums(
                stages, mean, rstd, running_mean, running_var, sums, lines, x, weight, bias,
                momentum, eps, affine, track, 0, channels,
            )  # fmt: skip


@inlined
def add_grads(totals, alongs, g, x, lines, to, row, rows, begin, end):
    """Add ``rows`` rows of some columns."""
    columns = totals.shape[1]
    for j in range(begin, end):
        total, along = load(totals, to + j), load(alongs, to + j)
        center, at = load(lines, j), row * columns + j
        for k in range(rows):
            value = load(g, at + k * columns)
            total += value
            along += value * (load(x, at + k * columns) - center)
        store(totals, to + j, total)
        store(alongs, to + j, along)


@device
def sum_grads(totals, alongs, g, x, lines, part, begin, end):
    """The sums over ``ROWS`` rows of some columns of ``g`` in ``totals[part]``, of its products
    with ``x - lines[0]`` in ``alongs[part]``."""
    to, first, last = part * totals.shape[1], part * ROWS, min(x.shape[0], (part + 1) * ROWS)
    for j in range(to + begin, to + end):
        store(totals, j, 0.0)
        store(alongs, j, 0.0)
    while first + 4 <= last:
        add_grads(totals, alongs, g, x, lines, to, first, 4, begin, end)
        first += 4
    for i in range(first, last):
        add_grads(totals, alongs, g, x, lines, to, i, 1, begin, end)


@device
def grads_of_rows(gx, g, x, lines, part, begin, end):
    """``gx`` of ``ROWS`` rows of some columns; lines: means, factors, levels and slopes of them."""
    columns = lines.shape[1]
    for i in range(part * ROWS, min(x.shape[0], (part + 1) * ROWS)):
        row = i * columns
        for j in range(begin, end):
            along = (load(x, row + j) - load(lines, j)) * load(lines, 3 * columns + j)
            away = load(g, row + j) - load(lines, 2 * columns + j) - along
            store(gx, row + j, load(lines, columns + j) * away)


@device
def use_grads(gweight, gbias, totals, alongs, lines, x, rstd, weight, affine, begin, end):
    """``gweight`` and ``gbias`` of some channels, and lines[1:], by the sums."""
    n, channels, p = x.shape
    columns, parts = channels * p, (n + ROWS - 1) // ROWS
    share(totals, parts, n, p, begin, end)
    share(alongs, parts, n, p, begin, end)
    for c in range(begin, end):
        gbias[c] = load(totals, c * p) * (n * p)
        gweight[c] = load(alongs, c * p) * (n * p) * rstd[c]
    spread_factors(lines, rstd, weight, affine, p, begin, end)
    for c in range(begin, end):
        store(alongs, c * p, load(alongs, c * p) * rstd[c] * rstd[c])
    for c in range(begin if p > 1 else end, end):
        for j in range(c * p, c * p + p):
            store(alongs, j, load(alongs, c * p))
    for j in range(begin * p, end * p):
        store(lines, 2 * columns + j, load(totals, j))
        store(lines, 3 * columns + j, load(alongs, j))


@kernel(outputs=6, grain=1 << 17, loads_halves=True)
def batch_norm_rows_grad(
    gx, gweight, gbias, totals, alongs, lines, g, x, mean, rstd, weight, affine
):  # fmt: skip
    """``batch_norm_grad`` for narrow planes; totals, alongs, as sums, and lines (4, c p): room."""
    n, channels, p = x.shape
    parts = (n + ROWS - 1) // ROWS
    few = parts == 1
    width, tiles = tiles_of(x)
    spread(lines, 0, mean, p, 0, channels)
    for stage in range(1 if few else 2):
        for task in prange(0, tiles if few else parts):
            part, begin = (0, task * width) if few else (task, 0)
            end = min(channels, begin + width)
            if stage == 0:
                sum_grads(totals, alongs, g, x, lines, part, begin * p, end * p)
                if few:
                    others = rstd, weight, affine, begin, end
                    use_grads(gweight, gbias, totals, alongs, lines, x, *others)
            if few or stage == 1:
                grads_of_rows(gx, g, x, lines, part, begin * p, end * p)
        if not few and stage == 0:
            others = rstd, weight, affine, 0, channels
            use_grads(gweight, gbias, totals, alongs, lines, x, *others)
