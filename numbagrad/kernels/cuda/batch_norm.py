"""Batch normalisation: each channel shifted to mean 0 and scaled to variance 1 over a batch.

The sums of a channel are reductions of the rows (n c, p) of the images, in float64, and then of
those (n, c) by columns, cut by the shape alone. Start reading at ``batch_norm``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float64

from ..halves import arithmetic
from .reduce import MEAN, SUM
from .runtime import device
from .runtime.folds import PLAIN, PRODUCTS, SQUARES, Source, fold
from .runtime.intrinsics import as_type
from .runtime.launch import start, strided_grid
from .runtime.maths import math
from .runtime.shape import BLOCK
from .runtime.warp import split

__all__ = ["batch_norm", "batch_norm_grad", "batch_norm_rows", "batch_norm_rows_grad"]


def _over_channels(
    out: Any, x: Any, divisor: float, source: Source = PLAIN, y: Any = None, center: Any = None
) -> None:
    """out (c): sums over n and p of x (n, c, p), divided; y: shaped as x; center (c)."""
    n, c, p = x.shape
    if n == 1 or p == 1:
        outer, count, inner = (1, n, c) if p == 1 else (c, p, 1)
        other = None if y is None else y.reshape(outer, count, inner)
        columns = x.reshape(outer, count, inner)
        fold(MEAN, out.reshape(outer, 1, inner), columns, divisor, source, other, center)
        return
    rows = device.empty((n * c, 1, 1), np.dtype(np.float64), out.device)
    other = None if y is None else y.reshape(n * c, p, 1)
    fold(SUM, rows, x.reshape(n * c, p, 1), 0.0, source, other, center)
    fold(MEAN, out.reshape(1, 1, c), rows.reshape(1, n, c), divisor)


def _statistics(rstd, mean, variance, moved_mean, moved_var, c, ratio, momentum, eps, track):
    """A thread for each of ``c`` channels. ratio: of the unbiased variance to the variance."""
    at = cuda.grid(1)
    while at < c:
        spread = variance[at]
        rstd[at] = as_type(rstd, 1.0 / math.sqrt(spread + eps))
        if track:
            kept = 1.0 - momentum
            moved_mean[at] = as_type(
                moved_mean, kept * float64(moved_mean[at]) + momentum * float64(mean[at])
            )
            moved_var[at] = as_type(
                moved_var, kept * float64(moved_var[at]) + momentum * spread * ratio
            )
        at += cuda.gridsize(1)


def _apply(out, x, mean, rstd, weight, bias, size, c, p, affine):
    """A thread for each of ``size`` elements."""
    at = cuda.grid(1)
    while at < size:
        row, _ = split(at, p)
        _, channel = split(row, c)
        factor = rstd[channel]
        if affine & 1:
            factor *= weight[channel]
        value = (x[at] - mean[channel]) * factor
        if affine & 2:
            value += bias[channel]
        out[at] = value
        at += cuda.gridsize(1)


def batch_norm(
    out, mean, rstd, running_mean, running_var, x, weight, bias, momentum, eps, affine, track
):
    """Normalise by the batch's own mean and variance, then ``* weight + bias``.

    out, x (n, c, p): C; mean, rstd (c), for the gradient. track: move running_mean and running_var
    (c) by ``momentum`` towards the mean and the unbiased variance. affine: bit 1 if weight (c) is
    to be used, bit 2 if bias. What is not used may be any array of rank 1.
    """
    n, c, p = x.shape
    count = n * p
    variance = device.empty((c,), np.dtype(np.float64), out.device)
    _over_channels(mean, x, float(count))
    _over_channels(variance, x, float(count), SQUARES, center=mean)
    moved, ratio = (running_mean, running_var), count / max(count - 1, 1)
    options = c, ratio, momentum, eps, track
    start(_statistics, strided_grid(c), BLOCK, rstd, mean, variance, *moved, *options)
    if x.size:
        arrays = out, x, mean, rstd, weight, bias
        start(_apply, strided_grid(x.size), BLOCK, *arrays, x.size, c, p, affine)


def _grad_statistics(gweight, gbias, level, slope, total, along, rstd, c, count):
    """A thread for each of ``c`` channels, of ``count`` elements."""
    at = cuda.grid(1)
    while at < c:
        scale = float64(rstd[at])
        gweight[at] = as_type(gweight, along[at] * scale)
        gbias[at] = as_type(gbias, total[at])
        level[at] = as_type(level, total[at] / count)
        slope[at] = as_type(slope, along[at] * scale * scale / count)
        at += cuda.gridsize(1)


def _apply_grad(gx, g, x, mean, rstd, weight, level, slope, size, c, p, affine):
    """A thread for each of ``size`` elements."""
    at = cuda.grid(1)
    while at < size:
        row, _ = split(at, p)
        _, channel = split(row, c)
        factor = rstd[channel]
        if affine & 1:
            factor *= weight[channel]
        away = x[at] - mean[channel]
        gx[at] = factor * (g[at] - level[channel] - away * slope[channel])
        at += cuda.gridsize(1)


def batch_norm_grad(gx, gweight, gbias, g, x, mean, rstd, weight, affine):
    """Gradients of ``batch_norm``; gweight, gbias (c) are written always."""
    n, c, p = x.shape
    wide = np.dtype(np.float64)
    total, along = [device.empty((c,), wide, gx.device) for _ in range(2)]
    level, slope = [device.empty((c,), arithmetic(x.dtype), gx.device) for _ in range(2)]
    _over_channels(total, g, 1.0)
    _over_channels(along, x, 1.0, PRODUCTS, g, mean)
    sums = gweight, gbias, level, slope, total, along, rstd
    start(_grad_statistics, strided_grid(c), BLOCK, *sums, c, float(n * p))
    if x.size:
        arrays = gx, g, x, mean, rstd, weight, level, slope
        start(_apply_grad, strided_grid(x.size), BLOCK, *arrays, x.size, c, p, affine)


# For narrow planes, which the CPU reads in another order and needs room for.


def batch_norm_rows(
    out, mean, rstd, running_mean, running_var, sums, lines, x, weight, bias, momentum, eps,
    affine, track,
):  # fmt: skip
    """``batch_norm``; sums and lines are not touched."""
    moved = running_mean, running_var
    batch_norm(out, mean, rstd, *moved, x, weight, bias, momentum, eps, affine, track)


def batch_norm_rows_grad(
    gx, gweight, gbias, totals, alongs, lines, g, x, mean, rstd, weight, affine
):  # fmt: skip
    """``batch_norm_grad``; totals, alongs and lines are not touched."""
    batch_norm_grad(gx, gweight, gbias, g, x, mean, rstd, weight, affine)
