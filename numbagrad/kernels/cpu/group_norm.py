"""Group normalisation: each group of channels of each sample to mean 0 and variance 1.

A group lies in one piece of memory: it is a task, whose channels are looked at one by one.
"""

from __future__ import annotations

from math import sqrt

from numba import prange

from ..half_type import sum_type
from ..inner import device
from ..intrinsics import load, store
from ..machine import kernel
from .norm import summing

__all__ = ["group_norm", "group_norm_grad"]

RUN = 4096
"""Numbers that are added in the dtype of x, halves in float32; runs of them in float64."""


@summing
def sum_within(x, first, last):
    """The sum of ``x`` between two places."""
    total = 0.0
    for begin in range(first, last, RUN):
        part = sum_type(x.dtype).type(0)
        for j in range(begin, min(last, begin + RUN)):
            part += load(x, j)
        total += part
    return total


@summing
def squares_within(x, first, last, center):
    """The sum of the squares of ``x - center`` between two places."""
    total = 0.0
    for begin in range(first, last, RUN):
        part = sum_type(x.dtype).type(0)
        for j in range(begin, min(last, begin + RUN)):
            part += (load(x, j) - center) * (load(x, j) - center)
        total += part
    return total


@summing
def along_within(g, x, first, last, center):
    """The sum of the products of ``g`` and ``x - center`` between two places."""
    total = 0.0
    for begin in range(first, last, RUN):
        part = sum_type(x.dtype).type(0)
        for j in range(begin, min(last, begin + RUN)):
            part += load(g, j) * (load(x, j) - center)
        total += part
    return total


@device
def apply_to_group(out, x, first, p, channels, channel, center, scale, weight, bias, affine):
    """``(x - center) * scale * weight + bias`` of ``channels`` runs of p from ``first`` on."""
    for c in range(channels):
        factor = scale * load(weight, channel + c) if affine & 1 else scale
        shift = load(bias, channel + c) if affine & 2 else sum_type(x.dtype).type(0)
        for j in range(first + c * p, first + c * p + p):
            store(out, j, (load(x, j) - center) * factor + shift)


@kernel(outputs=3, grain=32768, loads_halves=True)
def group_norm(out, mean, rstd, x, weight, bias, eps, affine):
    """Normalise each group by its own mean and variance, then ``* weight + bias`` by channels.

    out, x (n, c, p): C; mean, rstd (n, groups): C, for the gradient. affine: bit 1 if weight (c) is
    to be used, bit 2 if bias. What is not used may be any array. Where out and x are halves, all
    others are float32.
    """
    n, groups = mean.shape
    channels, p = x.shape[1] // groups, x.shape[2]
    size = channels * p
    for task in prange(0, n * groups):
        first = task * size
        center = sum_type(x.dtype).type(sum_within(x, first, first + size) / size)
        variance = squares_within(x, first, first + size, center) / size
        scale = sum_type(x.dtype).type(1 / sqrt(variance + eps))
        store(mean, task, center)
        store(rstd, task, scale)
        channel = task % groups * channels
        apply_to_group(out, x, first, p, channels, channel, center, scale, weight, bias, affine)


@device
def grad_of_group(gx, totals, alongs, g, x, first, p, channels, task, center, scale, weight, has):
    """``group_norm_grad`` of one group, whose first channel among all samples' is ``task``."""
    groups_channels, one = x.shape[1], sum_type(x.dtype).type(1)
    total, along = 0.0, 0.0
    for c in range(channels):
        begin, at = first + c * p, task * channels + c
        mine = sum_within(g, begin, begin + p)
        other = along_within(g, x, begin, begin + p, center) * scale
        store(totals, at, mine)
        store(alongs, at, other)
        factor = load(weight, at % groups_channels) if has else one
        total += mine * factor
        along += other * factor
    count = channels * p
    level = sum_type(x.dtype).type(total / count)
    slope = sum_type(x.dtype).type(along * scale / count)
    for c in range(channels):
        factor = (
            load(weight, (task * channels + c) % groups_channels)
            if has
            else sum_type(x.dtype).type(1)
        )
        for j in range(first + c * p, first + c * p + p):
            inner = load(g, j) * factor - level - (load(x, j) - center) * slope
            store(gx, j, scale * inner)


@kernel(outputs=3, grain=32768, loads_halves=True)
def group_norm_grad(gx, totals, alongs, g, x, mean, rstd, weight, affine):
    """Gradients of ``group_norm``: gx (n, c, p), and what those of bias and weight are sums of
    over samples, totals and alongs (n, c)."""
    n, groups = mean.shape
    channels, p = x.shape[1] // groups, x.shape[2]
    for task in prange(0, n * groups):
        center, scale = load(mean, task), load(rstd, task)
        grad_of_group(
            *(gx, totals, alongs, g, x, task * channels * p, p, channels, task, center, scale),
            *(weight, affine & 1),
        )
