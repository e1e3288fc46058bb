"""Cross entropy and negative log likelihood of class indices, with their gradients.

A kernel cannot raise: a target that is no class is reported through ``bad``, its row's loss is
NaN, and nothing outside the arrays is touched.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..half_type import sum_type
from ..inner import pasted
from ..intrinsics import larger, lesser, load, load_apart, plus, stack, store, store_apart
from ..machine import kernel
from ..simd_math import falling_exp, log

__all__ = [
    "cross_entropy",
    "cross_entropy_grad",
    "cross_entropy_with_grad",
    "cross_entropy_with_grad_by_columns",
    "nll",
    "nll_grad",
    "target_rows",
]

NONE, MEAN, SUM = 0, 1, 2

BLOCK = 2048
"""Elements of the rows that are worked on together: they stay in the first cache."""


@pasted
def reduce_losses(out, losses, norm, bad, target, weight, weighted, ignore, reduction, classes):
    """Add up ``losses`` in float64, divide by the weight of targets for a mean; fill ``bad``."""
    total, mass, wrong = 0.0, 0.0, -1
    for i in range(target.size):
        t = target[i]
        if t != ignore:
            inside = t >= 0 and t < classes
            if wrong < 0 and not inside:
                wrong = i
            total += losses[i]
            if weighted:
                mass += load(weight, t) if inside else np.nan
            else:
                mass += 1.0
    bad[0] = wrong
    # With nothing to average the mean is NaN, but the gradient of the ignored rows is 0.
    norm[0] = mass if reduction == MEAN and mass != 0.0 else 1.0
    if reduction == MEAN:
        out[0] = sum_type(out.dtype).type(total / mass)
    elif reduction == SUM:
        out[0] = sum_type(out.dtype).type(total)


@kernel(outputs=5, grain=16384, loads_halves=True)
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
    one = sum_type(x.dtype).type
    lowest = one(-np.inf)
    rows = BLOCK // c if 0 < c < BLOCK else 1
    for task in prange((n + rows - 1) // rows):
        first, end = task * rows, lesser((task + 1) * rows, n)
        powers = stack(BLOCK, one(0))
        for i in range(first, end):
            peak = lowest
            for j in range(c):
                peak = larger(peak, load(x, i * c + j))
            store(lse, i, one(0) if peak == lowest else peak)
            store(losses, i, one(0))
        for begin in range(0, c, BLOCK):  # once, but for one row that is longer
            width = lesser(c - begin, BLOCK)
            for i in range(first, end):
                peak, to, at = load(lse, i), (i - first) * width, i * c + begin
                for j in range(width):
                    store(powers, to + j, load(x, at + j) - peak)
            for k in range((end - first) * width):
                store(powers, k, falling_exp(load(powers, k)))
            for i in range(first, end):
                total, to = load(losses, i), (i - first) * width
                for j in range(width):
                    total = plus(total, load(powers, to + j))
                store(losses, i, total)
        for i in range(first, end):
            t, row, peak = target[i], i * c, lse[i]
            high = one(np.log(losses[i]))  # one a row: libm costs no more, and nothing to compile
            loss = one(0)
            if t < 0 or t >= c:
                if t != ignore:
                    loss = one(np.nan)
            elif t != ignore:
                # Not by way of lse, whose rounding is that of the peak.
                loss = high - (load(x, row + t) - peak)
                if weighted:
                    loss *= load(weight, t)
                if smoothing > 0.0:
                    rest = one(0)
                    for j in range(c):
                        each = high - (load(x, row + j) - peak)
                        rest += each * load(weight, j) if weighted else each
                    loss = loss * one(1.0 - smoothing) + rest * one(smoothing / c)
            losses[i] = loss
            lse[i] = high + peak
    reduce_losses(out, losses, norm, bad, target, weight, weighted, ignore, reduction, c)


@kernel(grain=16384)
def cross_entropy_grad(gx, g, x, lse, norm, target, weight, weighted, ignore, smoothing, reduction):
    """Gradient of ``cross_entropy``: ``g / norm (mass softmax(x) - target row)``.

    gx (n, c) C; g (1), or (n) if reduction is NONE; the rest as for ``cross_entropy``.
    """
    n, c = x.shape
    one = x.dtype.type
    whole = one(c)
    if weighted:
        whole = one(0)
        for j in range(c):
            whole += weight[j]
    sharp = one(1.0 - smoothing)
    smooth = one(smoothing / c if c > 0 else 0.0)
    rows = BLOCK // c if 0 < c < BLOCK else 1
    for task in prange((n + rows - 1) // rows):
        first, end = task * rows, lesser((task + 1) * rows, n)
        for begin in range(0, c, BLOCK):
            width = lesser(c - begin, BLOCK)
            for i in range(first, end):
                shift, at = load(lse, i), i * c + begin
                for j in range(width):
                    store(gx, at + j, load(x, at + j) - shift)
            at = first * c + begin  # rows lie side by side, or there is one
            for k in range(at, at + (end - first) * width):
                store(gx, k, falling_exp(load(gx, k)))
        for i in range(first, end):
            t, row = target[i], i * c
            if t == ignore or t < 0 or t >= c:
                for j in range(c):
                    store(gx, row + j, one(0))
                continue
            scale = g[i] if reduction == NONE else one(g[0] / norm[0])
            own = sharp * weight[t] if weighted else sharp
            mass = scale * (own + smooth * whole)
            for j in range(c):
                store(gx, row + j, mass * load(gx, row + j))
            gx[i, t] -= scale * own
            if smoothing > 0.0:
                for j in range(c):
                    gx[i, j] -= scale * smooth * (weight[j] if weighted else one(1))


@pasted
def count_targets(target, classes, ignore):
    """How many targets count, and the position of the first that is no class, or -1."""
    mass, wrong = 0, -1
    for i in range(target.size):
        if target[i] != ignore:
            mass += 1
            if wrong < 0 and (target[i] < 0 or target[i] >= classes):
                wrong = i
    return mass, wrong


@kernel(outputs=6, grain=16384)
def cross_entropy_with_grad(
    out, losses, lse, norm, bad, gx, x, target, weight, weighted, ignore, smoothing, reduction
):
    """``cross_entropy`` and its gradient for ``g = 1``, in one pass: for compiled steps.

    Without weights or smoothing, reduction MEAN or SUM. Exponentials are taken once, and they and
    the logarithms of whole blocks at a time, so that short rows are vectorised too. gx (n, c) C;
    the rest as for ``cross_entropy``.
    """
    n, c = x.shape
    one = x.dtype.type
    lowest = one(-np.inf)
    mass, wrong = count_targets(target, c, ignore)
    bad[0] = wrong
    norm[0] = mass if reduction == MEAN and mass > 0 else 1
    share = one(1) / norm[0]
    rows = BLOCK // c if 0 < c < BLOCK else 1
    for b in prange((n + rows - 1) // rows):
        first, end = b * rows, lesser((b + 1) * rows, n)
        for i in range(first, end):
            row, peak = i * c, lowest
            for j in range(c):
                peak = larger(peak, load(x, row + j))
            if peak == lowest:
                peak = one(0)
            for j in range(c):
                store(gx, row + j, load(x, row + j) - peak)
            lse[i] = peak
        for k in range(first * c, end * c):
            store(gx, k, falling_exp(load(gx, k)))
        for i in range(first, end):
            row, t, total = i * c, target[i], one(0)
            for j in range(c):
                total = plus(total, load(gx, row + j))
            losses[i] = total
            scale = share / total if t != ignore and t >= 0 and t < c else one(0)
            for j in range(c):
                store(gx, row + j, load(gx, row + j) * scale)
            if t != ignore and t >= 0 and t < c:
                store(gx, row + t, load(gx, row + t) - share)
        for i in range(first, end):
            store(losses, i, log(load(losses, i)))
        for i in range(first, end):
            t, high, peak = target[i], losses[i], lse[i]
            own = load(x, i * c + t) - peak if t >= 0 and t < c else one(np.nan)
            losses[i] = one(0) if t == ignore else high - own
            lse[i] = peak + high
    total = 0.0
    for i in range(n):
        total += losses[i]
    out[0] = total / mass if reduction == MEAN else total


@kernel(outputs=6, grain=16384)
def cross_entropy_with_grad_by_columns(
    out, losses, lse, norm, bad, gx, x, target, weight, weighted, ignore, smoothing, reduction
):
    """``cross_entropy_with_grad`` of logits stored by columns: vectors along the batch, so that a
    few classes cost no more than many. gx, x (c, n) C.
    """
    c, n = x.shape
    one = x.dtype.type
    lowest = one(-np.inf)
    mass, wrong = count_targets(target, c, ignore)
    bad[0] = wrong
    norm[0] = mass if reduction == MEAN and mass > 0 else 1
    share = one(1) / norm[0]
    rows = BLOCK // c // 32 * 32 if 0 < c < BLOCK // 32 else 32
    for b in prange((n + rows - 1) // rows):
        first, end = b * rows, lesser((b + 1) * rows, n)
        for i in range(first, end):
            store(lse, i, lowest)
            store(losses, i, one(0))
        for j in range(c):
            for i in range(first, end):
                peak = load_apart(lse, i, "0.1.2")
                store_apart(lse, i, larger(peak, load_apart(x, j * n + i, "0.0.2")), "0.1.2")
        for i in range(first, end):
            store(lse, i, one(0) if load(lse, i) == lowest else load(lse, i))
        for j in range(c):
            for i in range(first, end):
                power = falling_exp(load_apart(x, j * n + i, "1.0.4") - load_apart(lse, i, "1.1.4"))
                store_apart(gx, j * n + i, power, "1.2.4")
                store_apart(losses, i, load_apart(losses, i, "1.3.4") + power, "1.3.4")
        for j in range(c):
            for i in range(first, end):
                scale = share / load_apart(losses, i, "2.1.2")
                store_apart(gx, j * n + i, load_apart(gx, j * n + i, "2.0.2") * scale, "2.0.2")
        for i in range(first, end):
            store(losses, i, log(load(losses, i)))
        for i in range(first, end):
            t, high, peak = target[i], losses[i], lse[i]
            inside = t >= 0 and t < c
            own = load(x, t * n + i) - peak if inside else one(np.nan)
            losses[i] = one(0) if t == ignore else high - own
            lse[i] = peak + high
            if t != ignore and inside:
                store(gx, t * n + i, load(gx, t * n + i) - share)
            else:
                for j in range(c):
                    store(gx, j * n + i, one(0))
    total = 0.0
    for i in range(n):
        total += losses[i]
    out[0] = total / mass if reduction == MEAN else total


cross_entropy_with_grad.turned = lambda: cross_entropy_with_grad_by_columns


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


@kernel(outputs=4, loads_halves=True)
def nll(out, losses, norm, bad, x, target, weight, weighted, ignore, reduction):
    """Negative log likelihood: minus the entry of each row that ``target`` names, reduced.

    x (b, c, p) C, of which a row is along c; losses, target (b p); the rest as for
    ``cross_entropy``.
    """
    c, p = x.shape[1], x.shape[2]
    one = sum_type(losses.dtype).type
    i = 0
    for plane in range(x.shape[0]):
        for place in range(p):
            t = target[i]
            losses[i] = one(0)
            if t < 0 or t >= c:
                if t != ignore:
                    losses[i] = one(np.nan)
            elif t != ignore:
                own = load(x, (plane * c + t) * p + place)
                losses[i] = -own * load(weight, t) if weighted else -own
            i += 1
    reduce_losses(out, losses, norm, bad, target, weight, weighted, ignore, reduction, c)


@kernel(loads_halves=True)
def nll_grad(gx, g, norm, target, weight, weighted, ignore, reduction):
    """Gradient of ``nll``: ``-g weight / norm`` where ``target`` points, else 0. gx (b, c, p) C."""
    b, c, p = gx.shape
    one = sum_type(gx.dtype).type
    for i in range(gx.size):
        store(gx, i, one(0))
    i = 0
    for plane in range(b):
        for place in range(p):
            t = target[i]
            if t != ignore and t >= 0 and t < c:
                scale = load(g, i) if reduction == NONE else one(load(g, 0) / norm[0])
                gx[plane, t, place] = -scale * load(weight, t) if weighted else -scale
            i += 1
