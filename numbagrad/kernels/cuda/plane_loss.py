"""Cross entropy of class indices for each place of a plane, as of the pixels of an image.

Neighbouring threads work on neighbouring places, whose logits lie side by side. Arguments are those
of ``loss.py``, but for x and gx (b, c, p), C; target, losses and lse (b p).
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
from .runtime.shape import BLOCK
from .runtime.warp import split

__all__ = ["cross_entropy_of_planes", "cross_entropy_of_planes_grad"]


def _planes_kernel(real: Any) -> Any:
    def plane_losses(losses, lse, x, target, weight, n, c, p, weighted, ignore, smoothing):
        """A thread for each of ``n`` places."""
        i = cuda.grid(1)
        while i < n:
            plane, place = split(i, p)
            begin = plane * c * p + place
            peak = real(-math.inf)
            for j in range(c):
                value = real(x[begin + j * p])
                peak = value if value > peak or value != value else peak
            peak = real(0) if peak == -math.inf else peak
            total = real(0)
            for j in range(c):
                total += real(math.exp(real(x[begin + j * p]) - peak))
            high, t, loss = real(math.log(total)), target[i], real(0)
            if t < 0 or t >= c:
                if t != ignore:
                    loss = real(math.nan)
            elif t != ignore:
                loss = high - (real(x[begin + t * p]) - peak)
                if weighted:
                    loss *= weight[t]
                if smoothing > 0.0:
                    rest = real(0)
                    for j in range(c):
                        each = high - (real(x[begin + j * p]) - peak)
                        rest += each * weight[j] if weighted else each
                    loss = loss * real(1.0 - smoothing) + rest * real(smoothing / c)
            losses[i] = as_type(losses, loss)
            lse[i] = peak + high
            i += cuda.gridsize(1)

    return plane_losses


def cross_entropy_of_planes(
    out, losses, lse, norm, bad, x, target, weight, weighted, ignore, smoothing, reduction
):
    """``cross_entropy`` of each place."""
    b, c, p = x.shape
    n = b * p
    if n:
        kernel = made(_planes_kernel, arithmetic(x.dtype).itemsize)
        options = n, c, p, weighted, ignore, smoothing
        start(kernel, strided_grid(n), BLOCK, losses, lse, x, target, weight, *options)
    reduce_losses(out, losses, norm, bad, target, weight, weighted, ignore, reduction, c)


def _grad_kernel(real: Any) -> Any:
    def plane_grads(
        gx, g, x, lse, norm, target, weight, mass, size, c, p, weighted, ignore, smoothing, how
    ):
        """A thread for each of ``size`` logits. mass: one number, the sum of the weights."""
        at = cuda.grid(1)
        while at < size:
            row, place = split(at, p)
            plane, j = split(row, c)
            i = plane * p + place
            t, value = target[i], real(0)
            if t != ignore and t >= 0 and t < c:
                scale = real(g[i]) if how == NONE else real(g[0]) / real(norm[0])
                sharp, smooth = real(1.0 - smoothing), real(smoothing / c)
                own = sharp * real(weight[t]) if weighted else sharp
                whole = real(mass[0]) if weighted else real(c)
                power = real(math.exp(real(x[at]) - lse[i]))
                value = scale * (own + smooth * whole) * power
                if j == t:
                    value -= scale * own
                if smoothing > 0.0:
                    value -= scale * smooth * (real(weight[j]) if weighted else real(1))
            gx[at] = as_type(gx, value)
            at += cuda.gridsize(1)

    return plane_grads


def cross_entropy_of_planes_grad(
    gx, g, x, lse, norm, target, weight, weighted, ignore, smoothing, reduction
):
    """``cross_entropy_grad`` of each place."""
    _, c, p = x.shape
    mass = norm
    if weighted:
        mass = device.empty((1, 1, 1), arithmetic(x.dtype), x.device)
        reduce.sum(mass, weight.reshape(1, c, 1))
    if x.size:
        kernel = made(_grad_kernel, arithmetic(x.dtype).itemsize)
        options = x.size, c, p, weighted, ignore, smoothing, reduction
        start(
            *(kernel, strided_grid(x.size), BLOCK, gx, g, x, lse, norm, target, weight, mass),
            *options,
        )
