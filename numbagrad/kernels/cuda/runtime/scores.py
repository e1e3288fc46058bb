"""Squares of attention scores in the registers of a block, and their gradients.

A block of threads makes a square of scores at a time, as ``matmul.py`` makes tiles of products,
with a small square of it in the registers of each thread. What these functions make is inlined
into the kernels of ``attention.py``. Start reading at ``scores``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..random import words_of
from .maths import math
from .tiles import multiplied
from .warp import barrier, inlined

__all__ = [
    "MASK",
    "OUT",
    "PLAIN",
    "G",
    "K",
    "Q",
    "V",
    "base_of",
    "cleared",
    "flag_of",
    "laid",
    "loaded",
    "score_grads",
    "scores",
    "turned",
]

_u64 = np.uint64

# Where strides stand in ``form``, behind the six sizes: batch, head, row; of the mask column too.
Q, K, V, G, OUT, MASK = 6, 9, 12, 15, 18, 21


@inlined
def base_of(form, at, b, h):
    """Where a head of an array begins."""
    return b * form[at] + h * form[at + 1]


@inlined
def flag_of(seed, first, p, keep, row, columns, j):
    """What the probability at column ``j`` of a row is multiplied by."""
    a, b, c, d = words_of(seed, first, row * ((columns + 3) // 4) + j // 4)
    rest = j % 4
    word = a if rest == 0 else b if rest == 1 else c if rest == 2 else d
    return keep if _u64(word) >= _u64(p * 4294967296.0) else keep * 0


def cleared(real: Any, each: int) -> Any:
    """Zeros into the square of each thread."""

    @inlined
    def clear(square):
        for i in range(each):
            for j in range(each):
                square[i, j] = real(0)

    return clear


def laid(across: int, each: int) -> Any:
    """The squares of all threads, into shared memory by rows."""

    @inlined
    def lay(shared, square, tx, ty):
        for i in range(each):
            for j in range(each):
                shared[ty + i * across, tx + j * across] = square[i, j]

    return lay


def turned(across: int, each: int) -> Any:
    """The squares of all threads, into shared memory by columns."""

    @inlined
    def turn(shared, square, tx, ty):
        for i in range(each):
            for j in range(each):
                shared[tx + j * across, ty + i * across] = square[i, j]

    return turn


def _rows_product(real: Any, tile: int, depth: int, each: int) -> Any:
    """``acc = x y^T`` of ``tile`` rows each, over ``e`` features."""
    across = tile // each
    threads = across * across
    loads, multiply = tile * depth // threads, multiplied(across, depth, each)
    clear = cleared(real, each)

    @inlined
    def product(acc, left, right, column, x, x_at, x_row, n, y, y_at, y_row, m, e, thread):
        tx, ty = thread % across, thread // across
        clear(acc)
        begin = 0
        while begin < e:
            for s in range(loads):
                at = thread + s * threads
                i, f = at // depth, begin + at % depth
                left[at % depth, i] = x[x_at + i * x_row + f] if i < n and f < e else real(0)
                right[at % depth, i] = y[y_at + i * y_row + f] if i < m and f < e else real(0)
            barrier()
            multiply(acc, left, right, column, tx, ty)
            barrier()
            begin += depth

    return product


def masked_score(real: Any) -> Any:
    """What becomes of a product of a query and a key, times the scale: ``finish`` of ``scores``."""

    @inlined
    def finish(value, mask, ints, bad, form, masked, causal, b, h, row, col):
        if causal and col > row:
            return real(-math.inf)
        if masked:
            at = base_of(form, MASK, b, h)
            value += mask[at + row * form[MASK + 2] + col * form[MASK + 3]]
        return value

    return finish


def plain_slope(real: Any) -> Any:
    """The gradient of a product from that of its score, ``g``: ``slope`` of ``score_grads``."""

    @inlined
    def slope(g, value, mask, ints, form, b, h, row, col):
        return g

    return slope


@inlined
def all_live(ints, form, b, h, i0, j0, tile):
    """Whether any score of a square is seen: ``live`` of the kernels."""
    return True


PLAIN = masked_score, plain_slope, all_live
"""How the kernels make scores of products where no formula says otherwise."""


def scores(real: Any, tile: int, depth: int, each: int, stage: Any) -> Any:
    """The scores of a square into ``acc``, -inf where hidden or outside."""
    across = tile // each
    product, finish = _rows_product(real, tile, depth, each), stage[0](real)

    @inlined
    def make(
        acc, left, right, column, q, k, mask, ints, bad, form, scale, masked, causal, b, h, i0, j0,
        thread,
    ):  # fmt: skip
        rows, columns = form[2], form[3]
        q_at, k_at = base_of(form, Q, b, h), base_of(form, K, b, h // (form[0] // form[1]))
        product(
            acc, left, right, column, q, q_at + i0 * form[Q + 2], form[Q + 2], rows - i0,
            k, k_at + j0 * form[K + 2], form[K + 2], columns - j0, form[4], thread,
        )  # fmt: skip
        for i in range(each):
            row = i0 + thread // across + i * across
            for j in range(each):
                col = j0 + thread % across + j * across
                value = real(-math.inf)
                if row < rows and col < columns:
                    value = acc[i, j] * real(scale)
                    value = finish(value, mask, ints, bad, form, masked, causal, b, h, row, col)
                acc[i, j] = value

    return make


def loaded(real: Any, tile: int, threads: int) -> Any:
    """``tile`` rows of an array, as many features from ``x0`` on, into shared memory."""

    @inlined
    def load(values, y, y_at, y_row, n, x0, width, thread):
        at = thread
        while at < tile * tile:
            i, f = at // tile, x0 + at % tile
            values[i, at % tile] = y[y_at + i * y_row + f] if i < n and f < width else real(0)
            at += threads

    return load


def score_grads(real: Any, tile: int, depth: int, each: int, stage: Any) -> Any:
    """Of a square: probabilities, as dropped, in ``acc``, gradients of scores in ``grads``."""
    across = tile // each
    product = _rows_product(real, tile, depth, each)
    finish, slope = stage[0](real), stage[1](real)

    @inlined
    def make(
        acc, grads, left, right, column, g, lost, lse, q, k, v, mask, ints, bad, form, seed, first,
        scale, factor, p, keep, masked, causal, b, h, i0, j0, thread,
    ):  # fmt: skip
        rows, columns = form[2], form[3]
        shared = h // (form[0] // form[1])
        product(
            grads, left, right, column,
            g, base_of(form, G, b, h) + i0 * form[G + 2], form[G + 2], rows - i0,
            v, base_of(form, V, b, shared) + j0 * form[V + 2], form[V + 2], columns - j0,
            form[5], thread,
        )  # fmt: skip
        product(
            acc, left, right, column,
            q, base_of(form, Q, b, h) + i0 * form[Q + 2], form[Q + 2], rows - i0,
            k, base_of(form, K, b, shared) + j0 * form[K + 2], form[K + 2], columns - j0,
            form[4], thread,
        )  # fmt: skip
        for i in range(each):
            row = i0 + thread // across + i * across
            number = (b * form[0] + h) * rows + row
            shift = lse[number] if row < rows else real(0)
            less = lost[number] if row < rows else real(0)
            for j in range(each):
                col = j0 + thread % across + j * across
                grad, weight = real(0), real(0)
                if row < rows and col < columns:
                    value = acc[i, j] * real(scale)
                    score = finish(value, mask, ints, bad, form, masked, causal, b, h, row, col)
                    whole = real(math.exp(score - shift))
                    flag = real(1)
                    if p > 0:
                        flag = real(flag_of(seed, first, p, keep, number, columns, col))
                    grad = whole * (flag * grads[i, j] - less)
                    grad = slope(grad, value, mask, ints, form, b, h, row, col) * real(factor)
                    weight = whole * flag
                grads[i, j] = grad
                acc[i, j] = weight

    return make
