"""Batch normalisation: each channel shifted to mean 0 and scaled to variance 1 over a batch."""

from __future__ import annotations

from math import sqrt

from numba import prange

from ..inner import device
from ..machine import kernel
from .norm import dot_from, squares_from, sum_of, summing

__all__ = ["batch_norm", "batch_norm_grad"]


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
            unbiased = variance * (n * p) / max(n * p - 1, 1)
            running_mean[c] = (1 - momentum) * running_mean[c] + momentum * center
            running_var[c] = (1 - momentum) * running_var[c] + momentum * unbiased
        factor = scale * weight[c] if affine & 1 else scale
        apply_to_channel(out, x, c, center, factor, bias[c] if affine & 2 else x.dtype.type(0))


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
