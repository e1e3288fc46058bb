"""Gradient norms over whole parameter lists, and the clipping that they are for.

The arrays are cut into chunks, a block takes one after the other, see ``runtime/lists.py``; norms
are added up in an order that depends on the sizes alone. Updates are rules: ``runtime/update.py``.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, float64

from .runtime import device
from .runtime.intrinsics import as_type, pointer_at
from .runtime.launch import start, strided_grid
from .runtime.lists import chunks_of, over, pointers_to
from .runtime.maths import math
from .runtime.shape import BLOCK, WARPS
from .runtime.warp import block_max, block_sum

__all__ = [
    "clip_norm",
    "clip_value",
    "norm_of_sums",
    "power_sums",
]


def _power_sums(pointers, count, chunks, k, like, partial, power):
    """partial (k,) float64: of each chunk the sum of ``|g| ** power``, or the maximum."""
    shared = cuda.shared.array(WARPS, float64)
    c = cuda.blockIdx.x
    while c < k:
        g = pointer_at(pointers[chunks[3 * c]], like)
        total = float64(0)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = abs(float64(g[i]))
            if power == math.inf:
                total = x if x > total or x != x else total
            elif power == 2.0:
                total += x * x
            else:
                total += math.pow(x, power)
        if power == math.inf:
            total = block_max(total, shared)
        else:
            total = block_sum(total, shared)
        if cuda.threadIdx.x == 0:
            partial[c] = total
        cuda.syncthreads()
        c += cuda.gridDim.x


def _join(out, partial, k, power, root):
    """One block: out[0] is the sum (or maximum) of k numbers; with root its 1 / power."""
    shared = cuda.shared.array(WARPS, float64)
    total = float64(0)
    for i in range(cuda.threadIdx.x, k, BLOCK):
        x = partial[i]
        if power == math.inf:
            total = x if x > total or x != x else total
        else:
            total += x
    if power == math.inf:
        total = block_max(total, shared)
    else:
        total = block_sum(total, shared)
    if cuda.threadIdx.x == 0:
        out[0] = math.pow(total, 1 / power) if root and power != math.inf else total


def power_sums(out, grads, sizes, like, power):
    """out (1,) float64: the sum over all arrays of ``|g| ** power``; the maximum if infinite."""
    chunks, k = chunks_of(sizes)
    partial = device.empty((max(k, 1),), np.dtype(np.float64), out.device)
    if k:
        arrays = pointers_to(grads), len(sizes), chunks, k, like, partial
        start(_power_sums, strided_grid(k * BLOCK), BLOCK, *arrays, power)
    start(_join, 1, BLOCK, out, partial, k, power, 0)


def norm_of_sums(out, sums, power):
    """out (1,); sums (n,) float64, one from each call of ``power_sums``."""
    start(_join, 1, BLOCK, out, sums, sums.size, power, 1)


def _clip_norm(pointers, count, chunks, k, like, norm, largest):
    ratio = largest / (float64(norm[0]) + 1e-6)
    factor = as_type(like, 1.0 if ratio > 1 else ratio)
    c = cuda.blockIdx.x
    while c < k:
        g = pointer_at(pointers[chunks[3 * c]], like)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            g[i] = factor * g[i]
        c += cuda.gridDim.x


def clip_norm(grads, norm, sizes, like, largest):
    """g *= min(1, largest / (norm + 1e-6)); norm (1,)."""
    over(_clip_norm, [grads], sizes, like, norm, largest)


def _clip_value(pointers, count, chunks, k, like, largest):
    high = as_type(like, largest)
    c = cuda.blockIdx.x
    while c < k:
        g = pointer_at(pointers[chunks[3 * c]], like)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = g[i]
            x = high if x > high else x
            g[i] = -high if x < -high else x
        c += cuda.gridDim.x


def clip_value(grads, sizes, like, largest):
    """g is moved into -largest .. largest; NaN stays."""
    over(_clip_value, [grads], sizes, like, largest)
