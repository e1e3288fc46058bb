"""Attention and its gradients by blocks in shared memory: the matrix of all scores is never made.

A block of threads makes a square of scores at a time (``runtime/scores.py``). For the result and
the gradient of queries it goes along the keys, for the gradient of keys and values along the
queries, which makes the scores once more but needs no atomics: the sums have one order (Dao,
"FlashAttention-2", 2023). Features are cut into tiles too, each made by blocks of its own. Start
reading at ``_attention``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda

from .runtime import device
from .runtime.launch import made, start, strided_grid
from .runtime.maths import math
from .runtime.scores import (
    MASK,
    OUT,
    G,
    K,
    Q,
    V,
    base_of,
    cleared,
    flag_of,
    laid,
    loaded,
    score_grads,
    scores,
    turned,
)  # fmt: skip
from .runtime.shape import BLOCK, SQUARE, WIDE_SQUARE
from .runtime.tiles import multiplied
from .runtime.warp import shuffle_xor, split

__all__ = ["attention", "attention_grad", "attention_mask_grad"]

ON_THE_HOST = ("state",)
"""Parameters that are read on the host."""


def _attention(real: Any, tile: int, depth: int, each: int) -> Any:
    """The kernel: a block makes ``tile`` rows of ``tile`` features of one head."""
    across, pitch = tile // each, tile + 1
    threads = across * across
    lanes = threads // tile
    make_scores = scores(real, tile, depth, each)
    load, multiply = loaded(real, tile, threads), multiplied(across, tile, each)
    clear, turn = cleared(real, each), turned(across, each)

    def attention(
        out, lse, q, k, v, mask, form, seed, first, scale, p, keep, masked, causal, blocks,
    ):  # fmt: skip
        left = cuda.shared.array((depth, pitch), real)
        right = cuda.shared.array((depth, pitch), real)
        weights = cuda.shared.array((tile, pitch), real)
        values = cuda.shared.array((tile, pitch), real)
        peak = cuda.shared.array(tile, real)
        total = cuda.shared.array(tile, real)
        factor = cuda.shared.array(tile, real)
        acc = cuda.local.array((each, each), real)
        sums = cuda.local.array((each, each), real)
        column = cuda.local.array(each, real)
        thread = cuda.threadIdx.x
        tx, ty = thread % across, thread // across
        head, block = split(cuda.blockIdx.x, blocks)
        b, h = split(head, form[0])
        shared = h // (form[0] // form[1])
        i0, x0 = block * tile, cuda.blockIdx.y * tile
        rows, columns, width = form[2], form[3], form[5]
        end = min(columns, i0 + tile) if causal else columns
        clear(sums)
        if thread < tile:
            peak[thread], total[thread] = real(-math.inf), real(0)
        row, lane = thread // lanes, thread % lanes
        number = (b * form[0] + h) * rows + i0 + row
        j0 = 0
        while j0 < end:
            make_scores(
                acc, left, right, column, q, base_of(form, Q, b, h), k, base_of(form, K, b, shared),
                mask, base_of(form, MASK, b, h), form, scale, masked, causal, i0, j0, thread,
            )  # fmt: skip
            turn(weights, acc, tx, ty)
            v_at = base_of(form, V, b, shared) + j0 * form[V + 2]
            load(values, v, v_at, form[V + 2], columns - j0, x0, width, thread)
            cuda.syncthreads()
            # Of the lanes of a row only the first reads it, which writes it between two barriers.
            before = peak[row] if lane == 0 else real(-math.inf)
            best = before
            for c in range(lane, tile, lanes):
                value = weights[c, row]
                best = value if value > best or value != value else best
            apart = lanes // 2
            while apart > 0:
                other = shuffle_xor(best, apart)
                best = other if other > best or other != other else best
                apart //= 2
            shift = best if best != real(-math.inf) else real(0)
            mass = real(0)
            for c in range(lane, tile, lanes):
                weight = real(math.exp(weights[c, row] - shift))
                mass += weight
                if p > 0:
                    weight *= real(flag_of(seed, first, p, keep, number, columns, j0 + c))
                weights[c, row] = weight
            apart = lanes // 2
            while apart > 0:
                mass = mass + shuffle_xor(mass, apart)
                apart //= 2
            if lane == 0:
                less = real(math.exp(before - shift))
                factor[row], peak[row] = less, best
                total[row] = total[row] * less + mass
            cuda.syncthreads()
            for i in range(each):
                less = factor[ty + i * across]
                for j in range(each):
                    sums[i, j] *= less
            multiply(sums, weights, values, column, tx, ty)
            cuda.syncthreads()
            j0 += tile
        cuda.syncthreads()
        for i in range(each):
            row = ty + i * across
            mass = total[row]
            if i0 + row < rows:
                for j in range(each):
                    x = x0 + tx + j * across
                    if x < width:
                        at = base_of(form, OUT, b, h) + (i0 + row) * form[OUT + 2] + x
                        out[at] = sums[i, j] / mass if mass != real(0) else real(0)
        if cuda.blockIdx.y == 0 and thread < tile and i0 + thread < rows:
            mass = total[thread]
            value = real(math.inf)
            if mass != real(0):
                value = peak[thread] + real(math.log(mass))
            lse[head * rows + i0 + thread] = value

    return attention


def _grad_columns(real: Any, tile: int, depth: int, each: int) -> Any:
    """The kernel of the gradients of keys and values: a block makes ``tile`` rows of both."""
    across, pitch = tile // each, tile + 1
    threads = across * across
    make_grads = score_grads(real, tile, depth, each)
    load, multiply = loaded(real, tile, threads), multiplied(across, tile, each)
    clear, lay = cleared(real, each), laid(across, each)

    def grad_columns(
        gk, gv, g, lost, lse, q, k, v, mask, form, to, seed, first, scale, p, keep, masked, causal,
        blocks,
    ):  # fmt: skip
        """to: the strides of gk, then of gv."""
        left = cuda.shared.array((depth, pitch), real)
        right = cuda.shared.array((depth, pitch), real)
        weights = cuda.shared.array((tile, pitch), real)
        values = cuda.shared.array((tile, pitch), real)
        acc = cuda.local.array((each, each), real)
        grads = cuda.local.array((each, each), real)
        k_sums = cuda.local.array((each, each), real)
        v_sums = cuda.local.array((each, each), real)
        column = cuda.local.array(each, real)
        thread = cuda.threadIdx.x
        tx, ty = thread % across, thread // across
        head, block = split(cuda.blockIdx.x, blocks)
        b, shared = split(head, form[1])
        group = form[0] // form[1]
        j0, x0 = block * tile, cuda.blockIdx.y * tile
        clear(k_sums)
        clear(v_sums)
        for h in range(shared * group, (shared + 1) * group):
            i0 = j0 if causal else 0
            while i0 < form[2]:
                make_grads(
                    acc, grads, left, right, column, g, lost, lse, q, k, v, mask, form, seed, first,
                    scale, scale, p, keep, masked, causal, b, h, i0, j0, thread,
                )  # fmt: skip
                lay(weights, acc, tx, ty)
                at = base_of(form, G, b, h) + i0 * form[G + 2]
                load(values, g, at, form[G + 2], form[2] - i0, x0, form[5], thread)
                cuda.syncthreads()
                multiply(v_sums, weights, values, column, tx, ty)
                cuda.syncthreads()
                lay(weights, grads, tx, ty)
                at = base_of(form, Q, b, h) + i0 * form[Q + 2]
                load(values, q, at, form[Q + 2], form[2] - i0, x0, form[4], thread)
                cuda.syncthreads()
                multiply(k_sums, weights, values, column, tx, ty)
                cuda.syncthreads()
                i0 += tile
        for i in range(each):
            row = j0 + ty + i * across
            if row < form[3]:
                for j in range(each):
                    x = x0 + tx + j * across
                    if x < form[4]:
                        gk[base_of(to, 0, b, shared) + row * to[2] + x] = k_sums[i, j]
                    if x < form[5]:
                        gv[base_of(to, 3, b, shared) + row * to[5] + x] = v_sums[i, j]

    return grad_columns


def _grad_rows(real: Any, tile: int, depth: int, each: int) -> Any:
    """The kernel of the gradient of queries: a block makes ``tile`` rows of it."""
    across, pitch = tile // each, tile + 1
    threads = across * across
    make_grads = score_grads(real, tile, depth, each)
    load, multiply = loaded(real, tile, threads), multiplied(across, tile, each)
    clear, turn = cleared(real, each), turned(across, each)

    def grad_rows(
        gq, g, lost, lse, q, k, v, mask, form, to, seed, first, scale, p, keep, masked, causal,
        blocks,
    ):  # fmt: skip
        left = cuda.shared.array((depth, pitch), real)
        right = cuda.shared.array((depth, pitch), real)
        weights = cuda.shared.array((tile, pitch), real)
        values = cuda.shared.array((tile, pitch), real)
        acc = cuda.local.array((each, each), real)
        grads = cuda.local.array((each, each), real)
        sums = cuda.local.array((each, each), real)
        column = cuda.local.array(each, real)
        thread = cuda.threadIdx.x
        tx, ty = thread % across, thread // across
        head, block = split(cuda.blockIdx.x, blocks)
        b, h = split(head, form[0])
        shared = h // (form[0] // form[1])
        i0, x0 = block * tile, cuda.blockIdx.y * tile
        clear(sums)
        end = min(form[3], i0 + tile) if causal else form[3]
        j0 = 0
        while j0 < end:
            make_grads(
                acc, grads, left, right, column, g, lost, lse, q, k, v, mask, form, seed, first,
                scale, scale, p, keep, masked, causal, b, h, i0, j0, thread,
            )  # fmt: skip
            turn(weights, grads, tx, ty)
            at = base_of(form, K, b, shared) + j0 * form[K + 2]
            load(values, k, at, form[K + 2], form[3] - j0, x0, form[4], thread)
            cuda.syncthreads()
            multiply(sums, weights, values, column, tx, ty)
            cuda.syncthreads()
            j0 += tile
        for i in range(each):
            row = i0 + ty + i * across
            if row < form[2]:
                for j in range(each):
                    x = x0 + tx + j * across
                    if x < form[4]:
                        gq[base_of(to, 0, b, h) + row * to[2] + x] = sums[i, j]

    return grad_rows


def _mask_grad(real: Any, tile: int, depth: int, each: int) -> Any:
    """The kernel of the gradient of a mask: a block makes a square of it, or the part of a row or
    column of sums."""
    across, pitch = tile // each, tile + 1
    make_grads = score_grads(real, tile, depth, each)
    clear, lay = cleared(real, each), laid(across, each)

    def mask_grad(
        gmask, g, lost, lse, q, k, v, mask, form, seed, first, scale, p, keep, batch, mb, mh, ml, ms
    ):
        """m*: the sizes of gmask; batch: that of q."""
        left = cuda.shared.array((depth, pitch), real)
        right = cuda.shared.array((depth, pitch), real)
        square = cuda.shared.array((tile, pitch), real)
        acc = cuda.local.array((each, each), real)
        grads = cuda.local.array((each, each), real)
        sums = cuda.local.array((each, each), real)
        column = cuda.local.array(each, real)
        thread = cuda.threadIdx.x
        tx, ty = thread % across, thread // across
        rest, jb = split(cuda.blockIdx.x, (ms + tile - 1) // tile)
        rest, ib = split(rest, (ml + tile - 1) // tile)
        b0, h0 = split(rest, mh)
        b1 = b0 + 1 if mb > 1 else batch
        h1 = h0 + 1 if mh > 1 else form[0]
        i1 = ib * tile + 1 if ml > 1 else form[2]
        j1 = jb * tile + 1 if ms > 1 else form[3]
        clear(sums)
        for b in range(b0, b1):
            for h in range(h0, h1):
                i0 = ib * tile
                while i0 < i1:
                    j0 = jb * tile
                    while j0 < j1:
                        make_grads(
                            acc, grads, left, right, column, g, lost, lse, q, k, v, mask, form,
                            seed, first, scale, 1.0, p, keep, 1, 0, b, h, i0, j0, thread,
                        )  # fmt: skip
                        for i in range(each):
                            for j in range(each):
                                sums[i, j] += grads[i, j]
                        j0 += tile
                    i0 += tile
        lay(square, sums, tx, ty)
        cuda.syncthreads()
        if thread < tile:  # a thread for each column, or for each row where columns are summed
            first_row = (b0 * mh + h0) * ml
            i, j = ib * tile + thread, jb * tile + thread
            if ms > 1 and ml > 1:
                for r in range(tile):
                    if ib * tile + r < ml and j < ms:
                        gmask[(first_row + ib * tile + r) * ms + j] = square[r, thread]
            elif ms > 1:
                if j < ms:
                    total = real(0)
                    for r in range(tile):
                        total += square[r, thread]
                    gmask[first_row * ms + j] = total
            elif ml > 1:
                if i < ml:
                    total = real(0)
                    for c in range(tile):
                        total += square[thread, c]
                    gmask[first_row + i] = total
            elif thread == 0:
                total = real(0)
                for r in range(tile):
                    for c in range(tile):
                        total += square[r, c]
                gmask[first_row] = total

    return mask_grad


def _lost(real: Any) -> Any:
    """The kernel that sums the products of the rows of g and out, a thread for each row."""

    def lost_rows(lost, g, out, form, size):
        at = cuda.grid(1)
        while at < size:
            head, row = split(at, form[2])
            b, h = split(head, form[0])
            x = base_of(form, G, b, h) + row * form[G + 2]
            y = base_of(form, OUT, b, h) + row * form[OUT + 2]
            total = real(0)
            for i in range(form[5]):
                total += g[x + i] * out[y + i]
            lost[at] = total
            at += cuda.gridsize(1)

    return lost_rows


# -- launches --------------------------------------------------------------------------------------


def _square(array: Any) -> tuple[int, int, int]:
    return WIDE_SQUARE if array.itemsize == 8 else SQUARE


def _steps(array: Any, count: int = 3) -> tuple[int, ...]:
    return tuple([s // array.itemsize for s in array.strides[:count]])


@functools.lru_cache(maxsize=256)
def _numbers(*numbers: int) -> Any:
    return device.table(np.array(numbers, np.int64))


def _form(q: Any, k: Any, v: Any, g: Any, out: Any, mask: Any) -> Any:
    """heads, heads of keys, queries, keys, features of both; then strides."""
    sizes = q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3]
    steps = [_steps(a) for a in (q, k, v, g, out)]
    return _numbers(*sizes, *[n for s in steps for n in s], *_steps(mask, 4))


def _drawn(state: Any, p: float) -> tuple[int, int]:
    """Seed and first counter."""
    return (int(state[0]), int(state[1])) if p else (0, 0)


def _kept(p: float) -> float:
    return 1.0 / (1.0 - p) if p < 1 else 0.0


def _lost_of(g: Any, out: Any, form: Any) -> Any:
    b, h, rows, _ = g.shape
    lost = device.empty((b, h, rows), g.dtype, g.device)
    start(made(_lost, g.itemsize), strided_grid(lost.size), BLOCK, lost, g, out, form, lost.size)
    return lost


def attention(out, lse, q, k, v, mask, state, scale, p, masked, causal):
    """``out = softmax(scale q k^T + mask) v``; lse: the logarithms of the sums of exponentials.

    out (b, h, l, w), lse (b, h, l), q (b, h, l, e), k (b, g, s, e), v (b, g, s, w), rows of unit
    stride, g divides h; mask (b, h, l, s), any strides, or without ``masked`` any array of rank 4.
    state (2,): random numbers that drop probabilities with chance ``p``. causal: row i sees the
    columns up to i. A row that sees nothing becomes 0, its lse infinity.
    """
    if not out.size:
        return
    tile, depth, each = _square(q)
    form = _form(q, k, v, out, out, mask)
    blocks = -(-q.shape[2] // tile)
    grid = q.shape[0] * q.shape[1] * blocks, -(-v.shape[3] // tile)
    start(
        made(_attention, q.itemsize, tile, depth, each), grid, (tile // each) ** 2,
        out, lse, q, k, v, mask, form, *_drawn(state, p), float(scale), float(p), _kept(p),
        int(masked), int(causal), blocks,
    )  # fmt: skip


def attention_grad(gq, gk, gv, g, out, lse, q, k, v, mask, state, scale, p, masked, causal):
    """The gradients of ``attention`` with respect to q, k and v.

    gq, gk, gv: shaped as q, k, v; g as out; rows of unit stride. The rest as there.
    """
    if not q.size and not k.size:
        return
    shape = _square(q)
    tile, _, each = shape
    form, threads = _form(q, k, v, g, out, mask), (tile // each) ** 2
    numbers = *_drawn(state, p), float(scale), float(p), _kept(p), int(masked), int(causal)
    lost = _lost_of(g, out, form) if out.size else lse
    sources = g, lost, lse, q, k, v, mask, form
    blocks = -(-k.shape[2] // tile)
    if k.size:
        grid = k.shape[0] * k.shape[1] * blocks, -(-max(k.shape[3], v.shape[3]) // tile)
        to = _numbers(*_steps(gk), *_steps(gv))
        kernel = made(_grad_columns, q.itemsize, *shape)
        start(kernel, grid, threads, gk, gv, *sources, to, *numbers, blocks)
    blocks = -(-q.shape[2] // tile)
    if q.size:
        grid = q.shape[0] * q.shape[1] * blocks, -(-q.shape[3] // tile)
        kernel = made(_grad_rows, q.itemsize, *shape)
        start(kernel, grid, threads, gq, *sources, _numbers(*_steps(gq)), *numbers, blocks)


def attention_mask_grad(gmask, g, out, lse, q, k, v, mask, state, scale, p):
    """The gradient of ``attention`` with respect to a mask before it was broadcast.

    gmask: C, each of its four sizes that of mask (b, h, l, s), or 1. The rest as for
    ``attention_grad``.
    """
    if not gmask.size:
        return
    shape = _square(q)
    tile, _, each = shape
    form = _form(q, k, v, g, out, mask)
    lost = _lost_of(g, out, form) if out.size else lse
    mb, mh, ml, ms = gmask.shape
    grid = mb * mh * -(-ml // tile) * -(-ms // tile)
    start(
        made(_mask_grad, q.itemsize, *shape), grid, (tile // each) ** 2,
        gmask, g, lost, lse, q, k, v, mask, form, *_drawn(state, p), float(scale), float(p),
        _kept(p), q.shape[0], mb, mh, ml, ms,
    )  # fmt: skip
