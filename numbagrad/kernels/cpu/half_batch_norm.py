"""Batch normalisation of float16 and bfloat16: each channel in float32, rounded once.

A channel is copied to float32 before its sums are taken, three times over, from a cache; parameters
and statistics are float32. Start at ``batch_norm_of_halves``.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numba import prange

from ..inner import device, keep
from ..intrinsics import load, store
from ..machine import kernel
from .batch_norm import mean_of_channel, track_statistics, variance_of_channel
from .norm import dot_from, sum_of

__all__ = ["batch_norm_of_halves", "batch_norm_of_halves_grad"]


@device(allocates=True)
def channel_of(x, c):
    """``x[:, c:c + 1]`` in float32; x (n, c, p): C."""
    n, channels, p = x.shape
    found = np.empty((n, 1, p), np.float32)
    for i in range(n):
        first = (i * channels + c) * p
        for j in range(p):
            store(found, i * p + j, load(x, first + j))
    return found


@kernel(outputs=5, grain=32768, loads_halves=True, allocates=True)
def batch_norm_of_halves(
    out, mean, rstd, running_mean, running_var, x, weight, bias, momentum, eps, affine, track
):
    """``batch_norm`` whose out and x are halves; all others are float32."""
    n, channels, p = x.shape
    for c in prange(0, channels):
        given = channel_of(x, c)
        center = mean_of_channel(given, 0)
        variance = variance_of_channel(given, 0, center)
        scale = np.float32(1 / sqrt(variance + eps))
        mean[c], rstd[c] = center, scale
        if track:
            track_statistics(running_mean, running_var, c, center, variance, momentum, n * p)
        factor = scale * weight[c] if affine & 1 else scale
        shift = bias[c] if affine & 2 else np.float32(0)
        for i in range(n):
            first = (i * channels + c) * p
            for j in range(p):
                store(out, first + j, (load(given, i * p + j) - center) * factor + shift)
        keep(given)


@kernel(outputs=3, grain=32768, loads_halves=True, allocates=True)
def batch_norm_of_halves_grad(gx, gweight, gbias, g, x, mean, rstd, weight, affine):
    """``batch_norm_grad`` whose gx, g and x are halves; all others are float32."""
    n, channels, p = x.shape
    for c in prange(0, channels):
        above, given = channel_of(g, c), channel_of(x, c)
        scale, center, total, along = rstd[c], mean[c], 0.0, 0.0
        factor = scale * weight[c] if affine & 1 else scale
        for i in range(n):
            total += sum_of(above[i, 0])
            along += dot_from(above[i, 0], given[i, 0], center)
        gweight[c], gbias[c] = along * scale, total
        level = np.float32(total / (n * p))
        slope = np.float32(along * scale * scale / (n * p))
        for i in range(n):
            first = (i * channels + c) * p
            for j in range(p):
                away = (load(given, i * p + j) - center) * slope
                store(gx, first + j, factor * (load(above, i * p + j) - level - away))
        keep(above)
        keep(given)
