"""Adafactor's update of matrices and of vectors, over lists of arrays (Shazeer and Stern, 2018).

A step depends on norms of a whole array, so an array is a task. Sums go along rows in the dtype of
the arrays and from row to row in float64.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from ..inner import device
from ..intrinsics import larger, load_at, plus, store_at
from ..lists import DATA_FIELD, list_kernel
from .optim import COUNTER, advance

__all__ = ["adafactor", "adafactor_vectors"]

GRAIN = 32768
ROW = 4096
"""Elements of a vector that are summed up at once."""


@device
def _squares(p, size, row, like):
    """The sum of the squares of ``size`` elements from the address ``p`` on."""
    total = 0.0
    for begin in range(0, size, row):
        part = like.dtype.type(0)
        for i in range(begin, min(begin + row, size)):
            x = load_at(p, i, like)
            part = plus(part, x * x)
        total += np.float64(part)
    return total


@device
def _rate(p, size, row, like, count, lr, eps2):
    """The step size relative to the size of the parameters."""
    root = math.sqrt(_squares(p, size, row, like) / size)
    return max(eps2, root) * min(lr, 1 / math.sqrt(count))


@device
def _factors(r, c, g, batches, n, m, weight, like):
    """Move the means of the squares of rows and columns, by ``weight``, towards those of g."""
    one = like.dtype.type
    new, old, rest = one(weight), one(1 - weight), one(weight / n)
    for b in range(batches):
        for j in range(b * m, b * m + m):
            store_at(c, j, old * load_at(c, j, like), like)
        for i in range(b * n, b * n + n):
            total = one(0)
            for j in range(m):
                x = load_at(g, i * m + j, like)
                total = plus(total, x * x)
            store_at(r, i, old * load_at(r, i, like) + new * (total / one(m)), like)
            for j in range(m):
                x = load_at(g, i * m + j, like)
                at = b * m + j
                store_at(c, at, load_at(c, at, like) + rest * x * x, like)


@device
def _scaled(r, b, n, eps1, like):
    """What the rows of matrix ``b`` are divided by: their mean, at least eps1."""
    total = 0.0
    for i in range(b * n, b * n + n):
        total += np.float64(load_at(r, i, like))
    return larger(like.dtype.type(total / n), like.dtype.type(eps1))


@device
def _length(r, c, g, batches, n, m, eps1, like):
    """The sum of the squares of the directions."""
    total, floor = 0.0, like.dtype.type(eps1 * eps1)
    for b in range(batches):
        mean = _scaled(r, b, n, eps1, like)
        for i in range(b * n, b * n + n):
            part, row = like.dtype.type(0), load_at(r, i, like) / mean
            for j in range(m):
                x = load_at(g, i * m + j, like)
                part = plus(part, x * x / larger(row * load_at(c, b * m + j, like), floor))
            total += np.float64(part)
    return total


@list_kernel(outputs=4, grain=GRAIN)
def adafactor(
    params, steps, rows, columns, grads, sizes, like,
    n, m, lr, beta2_decay, eps1, eps2, clip, decay, sign,
):  # fmt: skip
    """p -= alpha g / sqrt(v), v the outer product of means of the squares of rows and columns.

    Arrays of matrices n by m, each with its own factors; rows (b, n, 1), columns (b, 1, m).
    """
    one = like.dtype.type
    advance(steps, sizes)
    for t in prange(sizes.size):
        size = sizes[t]
        if size > 0:
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            r = load_at(rows[t] + DATA_FIELD, 0, sizes)
            c = load_at(columns[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            count = np.float64(load_at(load_at(steps[t] + DATA_FIELD, 0, sizes), 0, COUNTER))
            batches = size // (n * m)
            alpha = _rate(p, size, m, like, count, lr, eps2)
            _factors(r, c, g, batches, n, m, count**beta2_decay, like)
            length = math.sqrt(_length(r, c, g, batches, n, m, eps1, like) / size)
            step = one(sign * alpha / max(1.0, length / clip))
            kept, floor = one(1 - lr * decay), one(eps1 * eps1)
            for b in range(batches):
                mean = _scaled(r, b, n, eps1, like)
                for i in range(b * n, b * n + n):
                    row = load_at(r, i, like) / mean
                    for j in range(m):
                        v = larger(row * load_at(c, b * m + j, like), floor)
                        d = load_at(g, i * m + j, like) / math.sqrt(v)
                        store_at(p, i * m + j, load_at(p, i * m + j, like) * kept - step * d, like)


@list_kernel(outputs=3, grain=GRAIN)
def adafactor_vectors(
    params, steps, variances, grads, sizes, like,
    lr, beta2_decay, eps1, eps2, clip, decay, sign,
):  # fmt: skip
    """p -= alpha g / sqrt(v), v the means of the squares of g; arrays of any size."""
    one = like.dtype.type
    advance(steps, sizes)
    for t in prange(sizes.size):
        size = sizes[t]
        if size > 0:
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            v = load_at(variances[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            count = np.float64(load_at(load_at(steps[t] + DATA_FIELD, 0, sizes), 0, COUNTER))
            alpha = _rate(p, size, ROW, like, count, lr, eps2)
            weight, total = count**beta2_decay, 0.0
            new, old, floor = one(weight), one(1 - weight), one(eps1 * eps1)
            for begin in range(0, size, ROW):
                part = one(0)
                for i in range(begin, min(begin + ROW, size)):
                    x = load_at(g, i, like)
                    square = old * load_at(v, i, like) + new * x * x
                    store_at(v, i, square, like)
                    part = plus(part, x * x / larger(square, floor))
                total += np.float64(part)
            step = one(sign * alpha / max(1.0, math.sqrt(total / size) / clip))
            kept = one(1 - lr * decay)
            for i in range(size):
                d = load_at(g, i, like) / math.sqrt(larger(load_at(v, i, like), floor))
                store_at(p, i, load_at(p, i, like) * kept - step * d, like)
