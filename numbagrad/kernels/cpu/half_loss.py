"""The gradient of cross entropy in float16 and bfloat16: exponentials in float32, rounded once.

``cross_entropy_grad`` of ``loss.py`` has its exponentials where the gradient will lie.
"""

from __future__ import annotations

from numba import prange

from ..half_type import sum_type
from ..intrinsics import lesser, load, stack, store
from ..machine import kernel
from ..simd_math import falling_exp
from .loss import BLOCK, NONE

__all__ = ["cross_entropy_grad_of_halves"]


@kernel(grain=16384, loads_halves=True)
def cross_entropy_grad_of_halves(
    gx, g, x, lse, norm, target, weight, weighted, ignore, smoothing, reduction
):
    """``cross_entropy_grad`` whose gx, g, x and weight may be halves."""
    n, c = x.shape
    one = sum_type(x.dtype).type
    whole = one(c)
    if weighted:
        whole = one(0)
        for j in range(c):
            whole += load(weight, j)
    sharp = one(1.0 - smoothing)
    smooth = one(smoothing / c if c > 0 else 0.0)
    rows = BLOCK // c if 0 < c < BLOCK else 1
    for task in prange((n + rows - 1) // rows):
        first, end = task * rows, lesser((task + 1) * rows, n)
        powers = stack(BLOCK, one(0))
        for begin in range(0, c, BLOCK):  # once, but for one row that is longer
            width = lesser(c - begin, BLOCK)
            for i in range(first, end):
                shift, to, at = load(lse, i), (i - first) * width, i * c + begin
                for j in range(width):
                    store(powers, to + j, load(x, at + j) - shift)
            for k in range((end - first) * width):
                store(powers, k, falling_exp(load(powers, k)))
            for i in range(first, end):
                t, to, at = target[i], (i - first) * width, i * c + begin
                if t == ignore or t < 0 or t >= c:
                    for j in range(width):
                        store(gx, at + j, one(0))
                    continue
                scale = load(g, i) if reduction == NONE else one(load(g, 0) / norm[0])
                own = sharp * load(weight, t) if weighted else sharp
                mass = scale * (own + smooth * whole)
                for j in range(width):
                    store(powers, to + j, mass * load(powers, to + j))
                if begin <= t < begin + width:
                    spot = to + t - begin
                    store(powers, spot, load(powers, spot) - scale * own)
                for j in range(width if smoothing > 0.0 else 0):
                    lost = scale * smooth * (load(weight, begin + j) if weighted else one(1))
                    store(powers, to + j, load(powers, to + j) - lost)
                for j in range(width):
                    store(gx, at + j, load(powers, to + j))
