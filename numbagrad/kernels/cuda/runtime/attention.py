"""The GPU's kernels of attention, and what launches of them are told.

Made for a stage of ``scores.py``, which says what becomes of products. Start reading at
``attention_kernel``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda

from . import device
from .launch import made, start, strided_grid
from .maths import math
from .scores import (
    OUT,
    PLAIN,
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
)
from .shape import BLOCK, SQUARE, WIDE_SQUARE
from .tiles import multiplied
from .warp import shuffle_xor, split


def attention_kernel(real: Any, tile: int, depth: int, each: int, stage: Any) -> Any:
    """The kernel: a block makes ``tile`` rows of ``tile`` features of one head."""
    across, pitch = tile // each, tile + 1
    threads = across * across
    lanes = threads // tile
    make_scores = scores(real, tile, depth, each, stage)
    live = stage[2]
    load, multiply = loaded(real, tile, threads), multiplied(across, tile, each)
    clear, turn = cleared(real, each), turned(across, each)

    def attention(
        out, lse, q, k, v, mask, ints, bad, form, seed, first, scale, p, keep, masked, causal,
        blocks,
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
            if not live(ints, form, b, h, i0, j0, tile):
                j0 += tile
                continue
            make_scores(
                acc, left, right, column, q, k, mask, ints, bad, form, scale, masked, causal, b, h,
                i0, j0, thread,
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


def grad_columns_kernel(real: Any, tile: int, depth: int, each: int, stage: Any) -> Any:
    """The kernel of the gradients of keys and values: a block makes ``tile`` rows of both."""
    across, pitch = tile // each, tile + 1
    threads = across * across
    make_grads, live = score_grads(real, tile, depth, each, stage), stage[2]
    load, multiply = loaded(real, tile, threads), multiplied(across, tile, each)
    clear, lay = cleared(real, each), laid(across, each)

    def grad_columns(
        gk, gv, g, lost, lse, q, k, v, mask, ints, bad, form, to, seed, first, scale, p, keep,
        masked, causal, blocks,
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
                if not live(ints, form, b, h, i0, j0, tile):
                    i0 += tile
                    continue
                make_grads(
                    acc, grads, left, right, column, g, lost, lse, q, k, v, mask, ints, bad, form,
                    seed, first, scale, scale, p, keep, masked, causal, b, h, i0, j0, thread,
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


def grad_rows_kernel(real: Any, tile: int, depth: int, each: int, stage: Any) -> Any:
    """The kernel of the gradient of queries: a block makes ``tile`` rows of it."""
    across, pitch = tile // each, tile + 1
    threads = across * across
    make_grads, live = score_grads(real, tile, depth, each, stage), stage[2]
    load, multiply = loaded(real, tile, threads), multiplied(across, tile, each)
    clear, turn = cleared(real, each), turned(across, each)

    def grad_rows(
        gq, g, lost, lse, q, k, v, mask, ints, bad, form, to, seed, first, scale, p, keep, masked,
        causal, blocks,
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
            if not live(ints, form, b, h, i0, j0, tile):
                j0 += tile
                continue
            make_grads(
                acc, grads, left, right, column, g, lost, lse, q, k, v, mask, ints, bad, form,
                seed, first, scale, scale, p, keep, masked, causal, b, h, i0, j0, thread,
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


def mask_grad_kernel(real: Any, tile: int, depth: int, each: int) -> Any:
    """The kernel of the gradient of a mask: a block makes a square of it, or the part of a row or
    column of sums."""
    across, pitch = tile // each, tile + 1
    make_grads = score_grads(real, tile, depth, each, PLAIN)
    clear, lay = cleared(real, each), laid(across, each)

    def mask_grad(
        gmask, g, lost, lse, q, k, v, mask, ints, bad, form, seed, first, scale, p, keep, batch,
        mb, mh, ml, ms,
    ):  # fmt: skip
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
                            acc, grads, left, right, column, g, lost, lse, q, k, v, mask, ints, bad,
                            form, seed, first, scale, 1.0, p, keep, 1, 0, b, h, i0, j0, thread,
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


def lost_kernel(real: Any) -> Any:
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


def steps(array: Any, count: int = 3) -> tuple[int, ...]:
    """The first ``count`` strides of an array, in elements."""
    return tuple([s // array.itemsize for s in array.strides[:count]])


@functools.lru_cache(maxsize=256)
def numbers_of(*numbers: int) -> Any:
    """Integers in the memory of the device."""
    return device.table(np.array(numbers, np.int64))


def form_of(q: Any, k: Any, v: Any, g: Any, out: Any, *more: int) -> Any:
    """heads, heads of keys, queries, keys, features of both; then strides; then what else."""
    sizes = q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3]
    return numbers_of(*sizes, *[n for a in (q, k, v, g, out) for n in steps(a)], *more)


def drawn(state: Any, p: float) -> tuple[Any, ...]:
    """Seed, first counter, the chance to be dropped, and what is kept is multiplied by."""
    return (
        *((int(state[0]), int(state[1])) if p else (0, 0)),
        float(p),
        1 / (1 - p) if p < 1 else 0.0,
    )


def lost_of(g: Any, out: Any, form: Any) -> Any:
    """The products of the rows of ``g`` and ``out``."""
    b, h, rows, _ = g.shape
    lost = device.empty((b, h, rows), g.dtype, g.device)
    if lost.size:
        kernel = made(lost_kernel, g.itemsize)
        start(kernel, strided_grid(lost.size), BLOCK, lost, g, out, form, lost.size)
    return lost


def square_of(array: Any) -> tuple[int, int, int]:
    """The square of scores that a block of threads makes, see ``shape.py``."""
    return WIDE_SQUARE if array.itemsize == 8 else SQUARE


def run(stage, out, lse, q, k, v, given, form, draws, scale, masked, causal):
    """Launch what makes ``out`` and ``lse``. given: three arrays for the stage; draws: of
    ``drawn``."""
    if not out.size:
        return
    seed, first, p, keep = draws
    tile, depth, each = square_of(q)
    blocks = -(-q.shape[2] // tile)
    grid = q.shape[0] * q.shape[1] * blocks, -(-v.shape[3] // tile)
    start(
        made(attention_kernel, q.itemsize, tile, depth, each, stage), grid, (tile // each) ** 2,
        out, lse, q, k, v, *given, form, seed, first, scale, p, keep, masked, causal, blocks,
    )  # fmt: skip


def run_grad(
    stage, gq, gk, gv, g, lost, lse, q, k, v, given, form, draws, scale, masked, causal
):  # fmt: skip
    """Launch what makes the gradients of q, k and v. given, draws: as in ``run``."""
    shape = square_of(q)
    tile, _, each = shape
    threads = (tile // each) ** 2
    seed, first, p, keep = draws
    numbers = seed, first, scale, p, keep, masked, causal
    sources = g, lost, lse, q, k, v, *given, form
    blocks = -(-k.shape[2] // tile)
    if k.size:
        grid = k.shape[0] * k.shape[1] * blocks, -(-max(k.shape[3], v.shape[3]) // tile)
        to = numbers_of(*steps(gk), *steps(gv))
        kernel = made(grad_columns_kernel, q.itemsize, *shape, stage)
        start(kernel, grid, threads, gk, gv, *sources, to, *numbers, blocks)
    blocks = -(-q.shape[2] // tile)
    if q.size:
        grid = q.shape[0] * q.shape[1] * blocks, -(-q.shape[3] // tile)
        kernel = made(grad_rows_kernel, q.itemsize, *shape, stage)
        start(kernel, grid, threads, gq, *sources, numbers_of(*steps(gq)), *numbers, blocks)
