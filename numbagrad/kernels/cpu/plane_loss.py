"""Cross entropy of class indices for each place of a plane, as of the pixels of an image.

The logits of a place lie a plane apart: vectors go along the places, and nothing is turned.
Arguments are those of ``loss.py``, but for x and gx (b, c, p), C; target, losses and lse (b p).
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..half_type import sum_type
from ..inner import pasted
from ..intrinsics import larger, lesser, load, load_apart, stack, store, store_apart
from ..machine import kernel
from ..simd_math import falling_exp, log
from .loss import NONE, reduce_losses

__all__ = ["cross_entropy_of_planes", "cross_entropy_of_planes_grad"]

PLACES = 256
"""Places that are worked on together: a line of each class stays in the first cache."""


@pasted
def other_classes(rest, x, start, p, size, lse, at, high, weight, weighted, c, share):
    """rest[i]: ``share`` of the sum over classes of what the loss would be, times the weight."""
    for i in range(size):
        store(rest, i, sum_type(x.dtype).type(0))
    for j in range(c):
        for i in range(size):
            each = load(high, at + i) - (load(x, start + j * p + i) - load(lse, at + i))
            store(rest, i, load(rest, i) + (each * load(weight, j) if weighted else each))
    for i in range(size):
        store(rest, i, load(rest, i) * share)


@kernel(outputs=5, grain=16384, loads_halves=True)
def cross_entropy_of_planes(
    out, losses, lse, norm, bad, x, target, weight, weighted, ignore, smoothing, reduction
):
    """``cross_entropy`` of each place."""
    b, c, p = x.shape
    one = sum_type(x.dtype).type
    lowest = one(-np.inf)
    blocks = (p + PLACES - 1) // PLACES
    for task in prange(0, b * blocks):
        plane = task // blocks
        first = (task - plane * blocks) * PLACES
        size, at, start = lesser(p - first, PLACES), plane * p + first, plane * c * p + first
        rest = stack(PLACES, one(0))
        for i in range(size):
            store(lse, at + i, lowest)
            store(losses, at + i, one(0))
        for j in range(c):
            for i in range(size):
                value = load_apart(x, start + j * p + i, "0.0.2")
                peak = larger(load_apart(lse, at + i, "0.1.2"), value)
                store_apart(lse, at + i, peak, "0.1.2")
        for i in range(size):
            store(lse, at + i, one(0) if load(lse, at + i) == lowest else load(lse, at + i))
        for j in range(c):
            for i in range(size):
                value = load_apart(x, start + j * p + i, "1.0.3")
                power = falling_exp(value - load_apart(lse, at + i, "1.1.3"))
                total = load_apart(losses, at + i, "1.2.3") + power
                store_apart(losses, at + i, total, "1.2.3")
        for i in range(size):
            store(losses, at + i, log(load(losses, at + i)))
        if smoothing > 0.0:
            share = one(smoothing / c)
            other_classes(rest, x, start, p, size, lse, at, losses, weight, weighted, c, share)
        for i in range(size):
            t, high, peak = target[at + i], losses[at + i], lse[at + i]
            loss = one(0)
            if t < 0 or t >= c:
                loss = one(0) if t == ignore else one(np.nan)
            elif t != ignore:
                loss = high - (load(x, start + t * p + i) - peak)
                if weighted:
                    loss *= load(weight, t)
                if smoothing > 0.0:
                    loss = loss * one(1.0 - smoothing) + load(rest, i)
            losses[at + i] = loss
            lse[at + i] = peak + high
    reduce_losses(out, losses, norm, bad, target, weight, weighted, ignore, reduction, c)


@kernel(grain=16384, loads_halves=True)
def cross_entropy_of_planes_grad(
    gx, g, x, lse, norm, target, weight, weighted, ignore, smoothing, reduction
):
    """``cross_entropy_grad`` of each place."""
    b, c, p = x.shape
    one = sum_type(x.dtype).type
    whole = one(c)
    if weighted:
        whole = one(0)
        for j in range(c):
            whole += load(weight, j)
    sharp, smooth = one(1.0 - smoothing), one(smoothing / c if c > 0 else 0.0)
    blocks = (p + PLACES - 1) // PLACES
    for task in prange(0, b * blocks):
        plane = task // blocks
        first = (task - plane * blocks) * PLACES
        size, at, start = lesser(p - first, PLACES), plane * p + first, plane * c * p + first
        mass, level = stack(PLACES, one(0)), stack(PLACES, one(0))
        for i in range(size):
            t = target[at + i]
            inside = t != ignore and t >= 0 and t < c
            own = sharp * load(weight, t) if weighted and inside else sharp
            scale = load(g, at + i) if reduction == NONE else one(load(g, 0) / norm[0])
            store(mass, i, scale * (own + smooth * whole))
            store(level, i, scale * smooth if smoothing > 0.0 else one(0))
        for j in range(c):
            share = load(weight, j) if weighted else one(1)
            for i in range(size):
                value = load_apart(x, start + j * p + i, "0.0.5")
                power = falling_exp(value - load_apart(lse, at + i, "0.1.5"))
                spread = load_apart(level, i, "0.2.5") * share
                found = load_apart(mass, i, "0.3.5") * power - spread
                store_apart(gx, start + j * p + i, found, "0.4.5")
        for i in range(size):
            t = target[at + i]
            if t == ignore or t < 0 or t >= c:
                for j in range(c):
                    store(gx, start + j * p + i, one(0))
                continue
            scale = load(g, at + i) if reduction == NONE else one(load(g, 0) / norm[0])
            own = sharp * load(weight, t) if weighted else sharp
            place = start + t * p + i  # made again, for halves are rounded where they lie
            power = falling_exp(load(x, place) - load(lse, at + i))
            spread = load(level, i) * (load(weight, t) if weighted else one(1))
            store(gx, place, load(mass, i) * power - spread - scale * own)
