"""Cross entropy of more classes than logits are kept for: a block of the classes at a time.

The first way over the blocks finds the logsumexp of each row as it goes (Milakov and Gimelshein,
"Online normalizer calculation for softmax", 2018); the second one makes the gradient of each block
from it. Between the two only a few numbers of each row remain, see ``ops/linear_loss.py``.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..intrinsics import larger
from ..machine import kernel
from ..simd_math import exp, falling_exp
from .loss import NONE, reduce_losses
from .norm import row_max, sum_of, sum_of_exp, summing

__all__ = ["add_classes", "class_grads", "loss_of_classes"]


@summing
def sum_below(row, peak, weight, weighted):
    """The sum of ``row - peak``, times weights."""
    total = row.dtype.type(0)
    if weighted:
        for j in range(row.size):
            total += (row[j] - peak) * weight[j]
    else:
        for j in range(row.size):
            total += row[j] - peak
    return total


@kernel(outputs=4, grain=16384)
def add_classes(peak, mass, own, rest, x, target, weight, weighted, first, smoothing):
    """Take in the classes from ``first`` on, 0 for the first block, whose logits are ``x``.

    peak, mass, own, rest (n): of each row the largest logit so far, the sum of exp(logit - peak),
    the target's logit, and, with ``smoothing``, the sum of logit - peak times weights; x (n, c) C;
    target (n) int64; weight, of all classes, used if ``weighted``.
    """
    n, c = x.shape
    one = x.dtype.type
    lowest, gone = one(-np.inf), one(first)
    if weighted and smoothing > 0.0:
        gone = sum_of(weight[:first])
    for i in prange(n):
        high = row_max(x[i])
        if first > 0:
            high = larger(high, peak[i])
        base = one(0) if high == lowest else high
        total = sum_of_exp(x[i], base)
        if first > 0:
            total += mass[i] * exp(peak[i] - base)
        if smoothing > 0.0:
            part = weight[first : first + c] if weighted else weight
            each = sum_below(x[i], base, part, weighted)
            if first > 0:
                before = one(0) if peak[i] == lowest else peak[i]
                each += rest[i] + (before - base) * gone
            rest[i] = each
        peak[i], mass[i] = high, total
        t = target[i] - first
        if t >= 0 and t < c:
            own[i] = x[i, t]


@kernel(outputs=5)
def loss_of_classes(
    out, losses, lse, norm, bad, peak, mass, own, rest, target, weight, weighted, ignore, smoothing,
    reduction, classes,
):  # fmt: skip
    """What ``cross_entropy`` gives, of what ``add_classes`` has found for so many classes.

    out (1), norm (1), losses, lse, peak, mass, own, rest (n), bad (1) int64: as in these two.
    """
    one = losses.dtype.type
    whole = one(classes)
    if weighted and smoothing > 0.0:
        whole = sum_of(weight)
    for i in range(target.size):
        t, base, high = target[i], peak[i], one(np.log(mass[i]))
        if base == one(-np.inf):
            base = one(0)
        lse[i] = high + base
        loss = one(0)
        if t < 0 or t >= classes:
            if t != ignore:
                loss = one(np.nan)
        elif t != ignore:
            loss = high - (own[i] - base)
            if weighted:
                loss *= weight[t]
            if smoothing > 0.0:
                spread = high * whole - rest[i]
                loss = loss * one(1.0 - smoothing) + spread * one(smoothing / classes)
        losses[i] = loss
    reduce_losses(out, losses, norm, bad, target, weight, weighted, ignore, reduction, classes)


@kernel(grain=16384)
def class_grads(
    gx, g, lse, norm, target, weight, weighted, ignore, first, classes, smoothing, reduction
):
    """The gradient of the cross entropy by the logits of a block of ``classes``, from ``first`` on.

    gx (n, c) C: these logits, and then their gradient; the rest as for ``cross_entropy_grad``.
    """
    n, c = gx.shape
    one = gx.dtype.type
    whole = one(classes)
    if weighted and smoothing > 0.0:
        whole = sum_of(weight)
    sharp, smooth = one(1.0 - smoothing), one(smoothing / classes)
    for i in prange(n):
        t, shift, row = target[i], lse[i], gx[i]
        if t == ignore or t < 0 or t >= classes:
            for j in range(c):
                row[j] = one(0)
            continue
        scale = g[i] if reduction == NONE else one(g[0] / norm[0])
        own = sharp * weight[t] if weighted else sharp
        mass = scale * (own + smooth * whole) if smoothing > 0.0 else scale * own
        for j in range(c):
            row[j] = mass * falling_exp(row[j] - shift)
        if smoothing > 0.0:
            for j in range(c):
                row[j] -= scale * smooth * (weight[first + j] if weighted else one(1))
        if t >= first and t < first + c:
            row[t - first] -= scale * own
