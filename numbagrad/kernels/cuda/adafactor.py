"""Adafactor's update of matrices and of vectors, over lists of arrays (Shazeer and Stern, 2018).

A step depends on norms of a whole array, so an array is a block's, which goes over it four times.
Sums are float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float64

from .runtime import device
from .runtime.intrinsics import as_type, pointer_at
from .runtime.launch import start, strided_grid
from .runtime.lists import advance, pointers_to
from .runtime.maths import math
from .runtime.shape import BLOCK, WARPS
from .runtime.warp import block_sum, inlined

__all__ = ["adafactor", "adafactor_vectors"]


@inlined
def _at_least(x, floor):
    """The larger one, NaN if x is NaN."""
    return floor if x < floor else x


@inlined
def _rate(squares, size, count, lr, eps2):
    """The step size relative to the size of the parameters."""
    return max(eps2, math.sqrt(squares / size)) * min(lr, 1 / math.sqrt(count))


def _adafactor(
    pointers, sizes, count, like, counter,
    n, m, lr, beta2_decay, eps1, eps2, clip, decay, sign,
):  # fmt: skip
    """pointers: params, steps, factors of rows and of columns, gradients."""
    shared = cuda.shared.array(WARPS, float64)
    me = cuda.threadIdx.x
    kept, floor = as_type(like, 1 - lr * decay), float64(eps1 * eps1)
    t = cuda.blockIdx.x
    while t < count:
        size = sizes[t]
        p = pointer_at(pointers[t], like)
        taken = float64(pointer_at(pointers[count + t], counter)[0])
        r = pointer_at(pointers[2 * count + t], like)
        c = pointer_at(pointers[3 * count + t], like)
        g = pointer_at(pointers[4 * count + t], like)
        total = float64(0)
        for i in range(me, size, BLOCK):
            x = float64(p[i])
            total += x * x
        total = block_sum(total, shared)
        alpha = _rate(total, max(size, 1), taken, lr, eps2)
        weight = math.pow(taken, beta2_decay)
        batches = size // max(n * m, 1)
        for i in range(me, batches * n, BLOCK):
            row = float64(0)
            for j in range(m):
                x = float64(g[i * m + j])
                row += x * x
            r[i] = as_type(like, (1 - weight) * float64(r[i]) + weight * row / m)
        for at in range(me, batches * m, BLOCK):
            b = at // m
            column = float64(0)
            for i in range(b * n, b * n + n):
                x = float64(g[i * m + at - b * m])
                column += x * x
            c[at] = as_type(like, (1 - weight) * float64(c[at]) + weight * column / n)
        cuda.syncthreads()
        length = float64(0)
        for b in range(batches):
            mean = float64(0)
            for i in range(b * n + me, b * n + n, BLOCK):
                mean += float64(r[i])
            mean = _at_least(block_sum(mean, shared) / n, eps1)
            cuda.syncthreads()
            for k in range(b * n * m + me, (b + 1) * n * m, BLOCK):
                i = k // m
                x = float64(g[k])
                v = _at_least(float64(r[i]) / mean * float64(c[b * m + k - i * m]), floor)
                length += x * x / v
        length = math.sqrt(block_sum(length, shared) / max(size, 1))
        cuda.syncthreads()
        step = as_type(like, sign * alpha / max(1.0, length / clip))
        for b in range(batches):
            mean = float64(0)
            for i in range(b * n + me, b * n + n, BLOCK):
                mean += float64(r[i])
            mean = _at_least(block_sum(mean, shared) / n, eps1)
            cuda.syncthreads()
            for k in range(b * n * m + me, (b + 1) * n * m, BLOCK):
                i = k // m
                v = _at_least(float64(r[i]) / mean * float64(c[b * m + k - i * m]), floor)
                p[k] = p[k] * kept - step * as_type(like, float64(g[k]) / math.sqrt(v))
        cuda.syncthreads()
        t += cuda.gridDim.x


def _over(kernel: Any, lists: list[Any], sizes: Any, *scalars: Any) -> None:
    """Start ``kernel(pointers, sizes, count, like, counter, *scalars)``, a block for an array."""
    count, like, steps = len(sizes), lists[0][0], lists[1]
    table = device.table(np.array(sizes, np.int64))
    arguments = pointers_to(*lists), table, count, like, steps[0]
    start(kernel, strided_grid(count * BLOCK), BLOCK, *arguments, *scalars)


def adafactor(
    params, steps, rows, columns, grads, sizes, like,
    n, m, lr, beta2_decay, eps1, eps2, clip, decay, sign,
):  # fmt: skip
    """p -= alpha g / sqrt(v), v the outer product of means of the squares of rows and columns.

    Arrays of matrices n by m, each with its own factors; rows (b, n, 1), columns (b, 1, m).
    """
    advance(steps)
    scalars = n, m, lr, beta2_decay, eps1, eps2, clip, decay, sign
    _over(_adafactor, [params, steps, rows, columns, grads], sizes, *scalars)


def _adafactor_vectors(
    pointers, sizes, count, like, counter, lr, beta2_decay, eps1, eps2, clip, decay, sign
):
    """pointers: params, steps, means of squares, gradients."""
    shared = cuda.shared.array(WARPS, float64)
    me = cuda.threadIdx.x
    kept, floor = as_type(like, 1 - lr * decay), float64(eps1 * eps1)
    t = cuda.blockIdx.x
    while t < count:
        size = sizes[t]
        p = pointer_at(pointers[t], like)
        taken = float64(pointer_at(pointers[count + t], counter)[0])
        v = pointer_at(pointers[2 * count + t], like)
        g = pointer_at(pointers[3 * count + t], like)
        weight = math.pow(taken, beta2_decay)
        total, length = float64(0), float64(0)
        for i in range(me, size, BLOCK):
            x, d = float64(p[i]), float64(g[i])
            total += x * x
            v[i] = as_type(like, (1 - weight) * float64(v[i]) + weight * d * d)
            length += d * d / _at_least(float64(v[i]), floor)
        total = block_sum(total, shared)
        cuda.syncthreads()
        length = math.sqrt(block_sum(length, shared) / max(size, 1))
        cuda.syncthreads()
        alpha = _rate(total, max(size, 1), taken, lr, eps2)
        step = as_type(like, sign * alpha / max(1.0, length / clip))
        for i in range(me, size, BLOCK):
            root = math.sqrt(_at_least(float64(v[i]), floor))
            p[i] = p[i] * kept - step * as_type(like, float64(g[i]) / root)
        t += cuda.gridDim.x


def adafactor_vectors(
    params, steps, variances, grads, sizes, like,
    lr, beta2_decay, eps1, eps2, clip, decay, sign,
):  # fmt: skip
    """p -= alpha g / sqrt(v), v the means of the squares of g; arrays of any size."""
    advance(steps)
    scalars = lr, beta2_decay, eps1, eps2, clip, decay, sign
    _over(_adafactor_vectors, [params, steps, variances, grads], sizes, *scalars)
