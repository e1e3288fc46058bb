"""Cross entropy of more classes than logits are kept for: a block of the classes at a time.

A row belongs to a warp, or to a block where it is long; of the gradient, each logit to a thread.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from ..halves import arithmetic
from . import reduce
from .loss import NONE, reduce_losses
from .runtime import device
from .runtime.intrinsics import as_type
from .runtime.launch import made, start, strided_grid
from .runtime.maths import math
from .runtime.shape import BLOCK, WARPS
from .runtime.teams import Team, exponentials, grid_of, team_for
from .runtime.warp import split

__all__ = ["add_classes", "class_grads", "loss_of_classes"]


def _adding(real: Any, team: Team) -> Any:
    width, count, total_of = team.width, team.count, team.sum
    peak_of, mass_of = exponentials(real, team)

    def add_rows(peak, mass, own, rest, x, target, weight, gone, n, c, weighted, first, smoothing):
        """gone: one number, the sum of the weights before ``first``."""
        shared = cuda.shared.array(WARPS, real)
        lane = cuda.threadIdx.x % width
        begin = cuda.blockIdx.x * count
        while begin < n:
            i = begin + cuda.threadIdx.x // width
            row = i * c
            end = c if i < n else 0
            before = peak[i] if first > 0 and i < n else real(-math.inf)
            high = peak_of(x, row, 1, lane, end, shared)
            high = before if before > high or before != before else high
            base = real(0) if high == real(-math.inf) else high
            total = mass_of(x, row, 1, lane, end, base, shared)
            each = real(0)
            if smoothing > 0.0:
                for j in range(lane, end, width):
                    value = x[row + j] - base
                    each += value * weight[first + j] if weighted else value
                each = total_of(each, shared)
            if lane == 0 and i < n:
                if first > 0:
                    total += mass[i] * real(math.exp(before - base))
                    moved = (real(0) if before == real(-math.inf) else before) - base
                    each += rest[i] + moved * (gone[0] if weighted else real(first))
                peak[i], mass[i] = high, total
                if smoothing > 0.0:
                    rest[i] = each
                t = target[i] - first
                if t >= 0 and t < c:
                    own[i] = x[row + t]
            begin += cuda.gridDim.x * count

    return add_rows


def add_classes(peak, mass, own, rest, x, target, weight, weighted, first, smoothing):
    """Take in the classes from ``first`` on, 0 for the first block, whose logits are ``x``.

    peak, mass, own, rest (n): of each row the largest logit so far, the sum of exp(logit - peak),
    the target's logit, and, with ``smoothing``, the sum of logit - peak times weights; x (n, c) C;
    target (n) int64; weight, of all classes, used if ``weighted``.
    """
    n, c = x.shape
    team = team_for(c)
    gone = _sum_of_weights(weight[:first], weighted and smoothing > 0.0 and first > 0, weight)
    arrays = peak, mass, own, rest, x, target, weight, gone
    options = n, c, weighted, first, smoothing
    start(made(_adding, x.itemsize, team), grid_of(team, n), BLOCK, *arrays, *options)


def _loss_of_classes(
    losses, lse, peak, mass, own, rest, target, weight, whole, n, c, weighted, ignore, smoothing
):
    """A thread for each of ``n`` rows. whole: one number, the sum of the weights."""
    i = cuda.grid(1)
    while i < n:
        t, base, high = target[i], peak[i], as_type(losses, math.log(mass[i]))
        if base == as_type(losses, -math.inf):
            base = as_type(losses, 0)
        lse[i] = high + base
        loss = as_type(losses, 0)
        if t < 0 or t >= c:
            if t != ignore:
                loss = as_type(losses, math.nan)
        elif t != ignore:
            loss = high - (own[i] - base)
            if weighted:
                loss *= weight[t]
            if smoothing > 0.0:
                spread = high * (whole[0] if weighted else as_type(losses, c)) - rest[i]
                loss = loss * as_type(losses, 1.0 - smoothing)
                loss += spread * as_type(losses, smoothing / c)
        losses[i] = loss
        i += cuda.gridsize(1)


def _sum_of_weights(weight: Any, asked: bool, spare: Any) -> Any:
    """One number on the device, ``spare`` where it is not asked for."""
    if not asked:
        return spare
    whole = device.empty((1, 1, 1), arithmetic(weight.dtype), weight.device)
    reduce.sum(whole, weight.reshape(1, weight.size, 1))
    return whole


def loss_of_classes(
    out, losses, lse, norm, bad, peak, mass, own, rest, target, weight, weighted, ignore, smoothing,
    reduction, classes,
):  # fmt: skip
    """What ``cross_entropy`` gives, of what ``add_classes`` has found for so many classes.

    out (1), norm (1), losses, lse, peak, mass, own, rest (n), bad (1) int64: as in these two.
    """
    n = target.size
    whole = _sum_of_weights(weight, weighted and smoothing > 0.0, norm)
    arrays = losses, lse, peak, mass, own, rest, target, weight, whole
    options = n, classes, weighted, ignore, smoothing
    start(_loss_of_classes, strided_grid(n), BLOCK, *arrays, *options)
    reduce_losses(out, losses, norm, bad, target, weight, weighted, ignore, reduction, classes)


def _class_grads(
    gx, g, lse, norm, target, weight, whole, size, c, weighted, ignore, first, classes, smoothing,
    reduction,
):  # fmt: skip
    """A thread for each of ``size`` logits. whole: one number, the sum of the weights."""
    at = cuda.grid(1)
    while at < size:
        i, j = split(at, c)
        t = target[i]
        value = as_type(gx, 0)
        if t != ignore and t >= 0 and t < classes:
            scale = g[i] if reduction == NONE else as_type(gx, g[0] / norm[0])
            sharp = as_type(gx, 1.0 - smoothing)
            smooth = as_type(gx, smoothing / classes)
            own = sharp * weight[t] if weighted else sharp
            mass = own
            if smoothing > 0.0:
                mass += smooth * (whole[0] if weighted else as_type(gx, classes))
            value = scale * mass * as_type(gx, math.exp(gx[at] - lse[i]))
            if smoothing > 0.0:
                value -= scale * smooth * (weight[first + j] if weighted else as_type(gx, 1))
            if first + j == t:
                value -= scale * own
        gx[at] = value
        at += cuda.gridsize(1)


def class_grads(
    gx, g, lse, norm, target, weight, weighted, ignore, first, classes, smoothing, reduction
):
    """The gradient of the cross entropy by the logits of a block of ``classes``, from ``first`` on.

    gx (n, c) C: these logits, and then their gradient; the rest as for ``cross_entropy_grad``.
    """
    size, c = gx.size, gx.shape[1]
    whole = _sum_of_weights(weight, weighted and smoothing > 0.0, norm)
    arrays = gx, g, lse, norm, target, weight, whole
    options = size, c, weighted, ignore, first, classes, smoothing, reduction
    if size:
        start(_class_grads, strided_grid(size), BLOCK, *arrays, *options)
