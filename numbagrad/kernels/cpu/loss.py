"""Cross entropy and negative log likelihood of class indices, with their gradients.

A kernel cannot raise: a target that is no class is reported through ``bad``, its row's loss is
NaN, and nothing outside the arrays is touched.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..machine import device, kernel
from ..simd_math import exp, log
from .norm import row_max, sum_of_exp

__all__ = [
    "cross_entropy",
    "cross_entropy_grad",
    "nll",
    "nll_grad",
    "target_rows",
]

NONE, MEAN, SUM = 0, 1, 2


@device
def first_bad(target, classes, ignore):
    """Position of the first target that is neither a class nor ``ignore``; -1 if there is none."""
    for i in range(target.size):
        if target[i] != ignore and (target[i] < 0 or target[i] >= classes):
            return i
    return -1


@device
def reduce_losses(out, losses, target, weight, weighted, ignore, norm, reduction):
    """Add up ``losses`` in float64 and divide by the weight of the targets for a mean."""
    classes = weight.size
    total, mass = 0.0, 0.0
    for i in range(losses.size):
        if target[i] != ignore:
            total += losses[i]
            if weighted:
                inside = target[i] >= 0 and target[i] < classes
                mass += weight[target[i]] if inside else np.nan
            else:
                mass += 1.0
    # With nothing to average the mean is NaN, but the gradient of the ignored rows is 0.
    norm[0] = mass if reduction == MEAN and mass != 0.0 else 1.0
    if reduction == MEAN:
        out[0] = total / mass
    elif reduction == SUM:
        out[0] = total


@kernel(outputs=5, grain=16384)
def cross_entropy(
    out, losses, lse, norm, bad, x, target, weight, weighted, ignore, smoothing, reduction
):
    """Cross entropy of logits and class indices.

    out (1), written unless reduction is NONE; losses (n), lse (n): of each row the loss and the
    logsumexp; norm (1) what the sum was divided by; bad (1) int64 position of a wrong target or
    -1; x (n, c) C; target (n) int64; weight (c), used if ``weighted``; scalars ignore (int),
    smoothing (float), reduction.
    """
    n, c = x.shape
    smooth = x.dtype.type(smoothing / max(c, 1))
    for i in prange(n):
        t = target[i]
        peak = row_max(x[i])
        if np.isinf(peak) and peak < 0:
            peak = x.dtype.type(0)
        high = log(sum_of_exp(x[i], peak))
        lse[i] = high + peak
        loss = x.dtype.type(0)
        if t < 0 or t >= c:
            if t != ignore:
                loss = x.dtype.type(np.nan)
        elif t != ignore:
            # Not by way of lse, whose rounding is that of the peak.
            loss = high - (x[i, t] - peak)
            if weighted:
                loss *= weight[t]
            if smoothing > 0.0:
                rest = x.dtype.type(0)
                for j in range(c):
                    each = high - (x[i, j] - peak)
                    rest += each * weight[j] if weighted else each
                loss = loss * x.dtype.type(1.0 - smoothing) + rest * smooth
        losses[i] = loss
    bad[0] = first_bad(target, c, ignore)
    reduce_losses(out, losses, target, weight, weighted, ignore, norm, reduction)


@kernel(grain=16384)
def cross_entropy_grad(gx, g, x, lse, norm, target, weight, weighted, ignore, smoothing, reduction):
    """Gradient of ``cross_entropy``: ``g / norm (mass softmax(x) - target row)``.

    gx (n, c) C; g (1), or (n) if reduction is NONE; the rest as for ``cross_entropy``.
    """
    n, c = x.shape
    whole = x.dtype.type(c)
    if weighted:
        whole = x.dtype.type(0)
        for j in range(c):
            whole += weight[j]
    smooth = x.dtype.type(smoothing / max(c, 1))
    sharp = x.dtype.type(1.0 - smoothing)
    for i in prange(n):
        t = target[i]
        if t == ignore or t < 0 or t >= c:
            for j in range(c):
                gx[i, j] = 0
        else:
            scale = g[i] if reduction == NONE else x.dtype.type(g[0] / norm[0])
            own = sharp * weight[t] if weighted else sharp
            mass = scale * (own + smooth * whole)
            for j in range(c):
                gx[i, j] = mass * exp(x[i, j] - lse[i])
            gx[i, t] -= scale * own
            if smoothing > 0.0:
                for j in range(c):
                    gx[i, j] -= scale * smooth * (weight[j] if weighted else x.dtype.type(1))


@kernel
def target_rows(out, target, weight, weighted, ignore, smoothing):
    """The distribution that ``cross_entropy`` compares with, weighted; a row of zeros if ignored.

    out (n, c) C; target (n) int64, checked; weight (c).
    """
    n, c = out.shape
    for i in range(n):
        t = target[i]
        kept = t != ignore and t >= 0 and t < c
        for j in range(c):
            share = smoothing / c + (1.0 - smoothing if j == t else 0.0)
            if weighted:
                share *= weight[j]
            out[i, j] = share if kept else 0.0


@kernel(outputs=4)
def nll(out, losses, norm, bad, x, target, weight, weighted, ignore, reduction):
    """Negative log likelihood: minus the entry of each row that ``target`` names, reduced.

    x (n, c) C; the rest as for ``cross_entropy``.
    """
    n, c = x.shape
    for i in range(n):
        t = target[i]
        losses[i] = 0
        if t < 0 or t >= c:
            if t != ignore:
                losses[i] = np.nan
        elif t != ignore:
            losses[i] = -x[i, t] * weight[t] if weighted else -x[i, t]
    bad[0] = first_bad(target, c, ignore)
    reduce_losses(out, losses, target, weight, weighted, ignore, norm, reduction)


@kernel
def nll_grad(gx, g, norm, target, weight, weighted, ignore, reduction):
    """Gradient of ``nll``: ``-g weight / norm`` where ``target`` points, else 0. gx (n, c) C."""
    n, c = gx.shape
    for i in range(n):
        t = target[i]
        for j in range(c):
            gx[i, j] = 0
        if t != ignore and t >= 0 and t < c:
            scale = g[i] if reduction == NONE else gx.dtype.type(g[0] / norm[0])
            gx[i, t] = -scale * weight[t] if weighted else -scale
