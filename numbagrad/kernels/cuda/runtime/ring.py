"""Products of halves on tensor cores, with slices of the factors in a ring in shared memory.

A block makes a tile of the result. Copies of the next slices run while it multiplies one: a slice
is used when its copies have ended, and what was used before it is overwritten by a later one. Rows
in shared memory are 16-byte pieces in an order that differs from row to row, so that eight rows of
a square, read at once, meet in no bank. Start reading at ``ringed``.

For factors that can be copied by 16 bytes; ``halves.py`` says what it is used for.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint32

from .intrinsics import MULTIPLY, load4, store4
from .pipeline import (
    WAIT,
    address,
    asked_memory,
    commit,
    copy16,
    fragment,
    fragment_turned,
    put2,
    take4,
)
from .warp import inlined, pasted

__all__ = ["ADD", "BIAS", "BYTES", "NEW", "Shape", "copier", "finish", "placer", "ring_kernel"]

NEW, ADD, BIAS = 0, 1, 2
LANES = 32
BYTES = 2
"""Of an element."""

GROUP = 8
"""Rows of tiles that neighbouring blocks share, so that they find slices in the L2 cache."""


@dataclass(frozen=True)
class Shape:
    """How a block works: warps down and across, the part of the tile of each, and its slices."""

    down: int
    across: int
    high: int
    wide: int
    depth: int
    stages: int
    cost: float
    """Nanoseconds that a multiprocessor of an H200 takes for a tile, for each step of k."""

    align: int = 0
    """Bytes of shared memory before the slices, so that they can begin at a multiple."""

    parts: int = 1
    """Matrices whose sum is a factor: see ``parts.py``."""

    @property
    def rows(self) -> int:
        return self.down * self.high

    @property
    def cols(self) -> int:
        return self.across * self.wide

    @property
    def threads(self) -> int:
        return LANES * self.down * self.across

    @property
    def slice_bytes(self) -> int:
        return BYTES * self.depth * (self.rows + self.cols) * self.parts

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return self.slice_bytes * self.stages + self.align


@functools.cache
def ring_kernel(
    dtype: np.dtype, shape: Shape, epilogue: int, x_by_rows: bool, y_by_rows: bool
) -> Any:
    """The kernel; x_by_rows: k is the unit stride of x; y_by_rows: m is that of y."""
    across, high, wide, depth = shape.across, shape.high, shape.wide, shape.depth
    stages, threads = shape.stages, shape.threads
    rows, cols = shape.rows, shape.cols
    size_x, each = BYTES * depth * rows, shape.slice_bytes
    total = each * stages
    tall, broad, steps = high // 16, wide // 8, depth // 16
    pairs = broad // 2
    multiply, wait = MULTIPLY[dtype], WAIT[stages - 2]
    place_x, bring_x = copier(rows, depth, threads, x_by_rows)
    place_y, bring_y = copier(cols, depth, threads, not y_by_rows)
    lane_x, squares_x = _reader(rows, depth, x_by_rows, False)
    lane_y, squares_y = _reader(cols, depth, not y_by_rows, True)
    count_x, count_y = steps if x_by_rows else tall, pairs if y_by_rows else steps
    lanes, tile_of = wide // 4, placer(rows, cols)

    def ringed(
        out, x, y, bias, n, m, k, x_far, y_far, out_row, x_batch, y_batch, out_batch, paired
    ):
        """x_far, y_far: strides of the factors along the dimension whose stride is not 1.

        paired: whether four neighbours of out, from a multiple of 4 on, may be written at once.
        """
        acc = cuda.local.array((tall, broad, 4), float32)
        a = cuda.local.array((2, tall, 4), uint32)
        b = cuda.local.array((2, pairs, 4), uint32)
        from_x = cuda.local.array(count_x, uint32)
        from_y = cuda.local.array(count_y, uint32)
        n, m, k = int32(n), int32(m), int32(k)
        thread = int32(cuda.threadIdx.x)
        warp, lane = thread // int32(LANES), thread % int32(LANES)
        first_row, first_col = tile_of(n, m)
        base = asked_memory()
        put_x, at_x, far_x, inside_x, step_x = place_x(thread, first_row, n, x_far)
        put_y, at_y, far_y, inside_y, step_y = place_y(thread, first_col, m, y_far)
        put_x, put_y = uint32(base + put_x), uint32(base + size_x + put_y)
        at_x += address(x) + cuda.blockIdx.z * x_batch * BYTES
        at_y += address(y) + cuda.blockIdx.z * y_batch * BYTES
        more_x = int64(depth * BYTES if x_by_rows else depth * BYTES * x_far)
        more_y = int64(depth * BYTES * y_far if y_by_rows else depth * BYTES)
        for w in range(count_x):
            from_x[w] = base + lane_x(lane, warp // across * high, w)
        for w in range(count_y):
            from_y[w] = base + size_x + lane_y(lane, warp % across * wide, w)
        for i in range(tall):
            for j in range(broad):
                for c in range(4):
                    acc[i, j, c] = float32(0)
        left, to = k, uint32(0)
        for _ in range(stages - 1):
            if left > int32(0):
                bring_x(uint32(put_x + to), at_x, far_x, inside_x, step_x, left)
                bring_y(uint32(put_y + to), at_y, far_y, inside_y, step_y, left)
            commit()
            at_x, at_y = at_x + more_x, at_y + more_y
            left, to = int32(left - depth), uint32(to + each)
        here, rounds = uint32(0), int32(uint32(k + depth - 1) // uint32(depth))
        while rounds > int32(0):
            wait()
            cuda.syncthreads()  # the slice is there, and all are done with the one before it
            squares_x(a, 0, from_x, here, 0)
            squares_y(b, 0, from_y, here, 0)
            if left > int32(0):
                bring_x(uint32(put_x + to), at_x, far_x, inside_x, step_x, left)
                bring_y(uint32(put_y + to), at_y, far_y, inside_y, step_y, left)
            commit()
            at_x, at_y = at_x + more_x, at_y + more_y
            left = int32(left - depth)
            to = uint32(0) if to == uint32(total - each) else uint32(to + each)
            for w in range(steps):
                if w + 1 < steps:
                    squares_x(a, (w + 1) % 2, from_x, here, w + 1)
                    squares_y(b, (w + 1) % 2, from_y, here, w + 1)
                q = w % 2
                for i in range(tall):
                    for j in range(broad):
                        # There and back, so that neighbours share a factor.
                        jj = j if i % 2 == 0 else broad - 1 - j
                        c0, c1, c2, c3 = multiply(
                            a[q, i, 0], a[q, i, 1], a[q, i, 2], a[q, i, 3],
                            b[q, jj // 2, jj % 2 * 2], b[q, jj // 2, jj % 2 * 2 + 1],
                            acc[i, jj, 0], acc[i, jj, 1], acc[i, jj, 2], acc[i, jj, 3],
                        )  # fmt: skip
                        acc[i, jj, 0], acc[i, jj, 1] = c0, c1
                        acc[i, jj, 2], acc[i, jj, 3] = c2, c3
            here = uint32(0) if here == uint32(total - each) else uint32(here + each)
            rounds = int32(rounds - 1)
        cuda.syncthreads()  # all are done with the slices: a warp takes its squares out there
        apart = int32(4 * (wide + 8))
        mine = uint32(base + warp * (16 * apart))
        put = uint32(mine + lane // 4 * apart + lane % 4 * 8)
        take = uint32(mine + lane // lanes * apart + lane % lanes * 16)
        row = int32(first_row + warp // across * high + lane // lanes)
        col = int32(first_col + warp % across * wide + lane % lanes * 4)
        at = cuda.blockIdx.z * out_batch + row * out_row + col
        whole = paired and col + 4 <= m
        for i in range(tall):
            for j in range(broad):
                put2(uint32(put + j * 32), acc[i, j, 0], acc[i, j, 1])
                put2(uint32(put + j * 32 + 8 * apart), acc[i, j, 2], acc[i, j, 3])
            cuda.syncthreads()
            for r in range(0, 16, LANES // lanes):
                v = take4(uint32(take + r * apart))
                if row < n:
                    finish(out, at, bias, col, m, whole, v, epilogue)
                row, at = int32(row + LANES // lanes), at + LANES // lanes * out_row
            cuda.syncthreads()

    return ringed


def placer(rows: int, cols: int) -> Any:
    """The function that says where the tile of a block begins."""

    @inlined
    def tile_of(n, m):
        """Neighbouring blocks make a group of rows of tiles, column by column."""
        tile, tiles = uint32(cuda.blockIdx.x), uint32(uint32(n + rows - 1) // uint32(rows))
        around = uint32(GROUP * (uint32(m + cols - 1) // uint32(cols)))
        top = uint32(tile // around * uint32(GROUP))
        there = uint32(min(tiles - top, GROUP))
        tile = uint32(tile % around)
        return int32((top + tile % there) * rows), int32(tile // there * cols)

    return tile_of


@inlined
def _finish_one(out, at, bias, col, m, v, epilogue):
    if col < m:
        if epilogue == ADD:
            out[at] = out[at] + v
        elif epilogue == BIAS:
            out[at] = v + bias[col]
        else:
            out[at] = v


@pasted
def finish(out, at, bias, col, m, whole, v, epilogue):
    """Write elements at to at + 3 of out, columns from col on; whole: all are there and aligned."""
    v0, v1, v2, v3 = v
    if whole:
        if epilogue == ADD:
            u = load4(out, at)
            store4(out, at, u[0] + v0, u[1] + v1, u[2] + v2, u[3] + v3)
        elif epilogue == BIAS:
            store4(
                out, at, v0 + bias[col], v1 + bias[col + 1], v2 + bias[col + 2],
                v3 + bias[col + 3],
            )  # fmt: skip
        else:
            store4(out, at, v0, v1, v2, v3)
    else:
        _finish_one(out, at, bias, col, m, v0, epilogue)
        _finish_one(out, at + 1, bias, col + 1, m, v1, epilogue)
        _finish_one(out, at + 2, bias, col + 2, m, v2, epilogue)
        _finish_one(out, at + 3, bias, col + 3, m, v3, epilogue)


def _order(elements: int) -> tuple[int, int]:
    """How the pieces of a row of so many elements change places: by its number, shifted, masked."""
    return (0, 7) if elements >= 64 else (1, 3)


def copier(span: int, depth: int, threads: int, along: bool, most: int = 1 << 30) -> Any:
    """Functions for the copies of a thread: where they begin, and all of a slice.

    along: k is the dimension of unit stride; most: elements of a row of shared memory, where longer
    ones are cut, and each column of pieces has its own rows.
    """
    length = depth if along else span
    pieces, held = length // 8, min(length, most) // 8  # of a row of the factor, of shared memory
    loads, apart = span * depth // 8 // threads, threads // pieces
    shift, mask = _order(8 * held)
    assert apart % 8 == 0 and loads, "pieces would change places"
    width = 16 * held

    @inlined
    def place(thread, first, size, far):
        """Offset in shared memory, offset in bytes of the factor, bytes from row to row; rows or
        elements of the thread that are there; its place along k."""
        row, piece = int32(thread // pieces), int32(thread % pieces)
        part = int32(piece // held * (depth * width))
        put = uint32(part + row * width + (piece % held ^ (row >> shift & mask)) * 16)
        if along:
            at = int64(first + row) * far * BYTES + piece * 16
            inside, step = int32(size - first - row), int32(piece * 8)
        else:
            at = int64(row) * far * BYTES + (first + piece * 8) * BYTES
            inside, step = int32(size - first - piece * 8), row
        return put, at, int64(far * (apart * BYTES)), inside, step

    @inlined
    def bring(to, at, far, inside, step, left):
        """A slice of which ``left`` steps along k are there."""
        there = step < left if along else inside > int32(0)
        for s in range(loads):
            if along:
                fits = int32(s * apart) < inside
            else:
                fits = int32(step + s * apart) < left
            copy16(uint32(to + s * apart * width), at, there and fits)
            at += far

    return place, bring


def _reader(span: int, depth: int, along: bool, right: bool) -> tuple[Any, Any]:
    """Functions for the fragments of a warp: where a lane reads, and those of 16 steps of k."""
    width = BYTES * (depth if along else span)
    shift, mask = _order(depth if along else span)

    @inlined
    def place(lane, first, w):
        """Offset in a slice of what the lane reads, of 16 steps or 16 rows w."""
        square, r = int32(lane // 8), int32(lane % 8)
        # The squares of the left factor go down first, those of the right one along k.
        across, up = (square // 2, square % 2) if right else (square % 2, square // 2)
        if along:
            row, piece = int32(first + across * 8 + r), int32(w * 2 + up)
        else:
            row, piece = int32(up * 8 + r), int32(first // 8 + w * 2 + across)
        return uint32(row * width + (piece ^ (row >> shift & mask)) * 16)

    @inlined
    def squares(found, q, places, here, w):
        """found[q]: the fragments of 16 steps w, of the slice at ``here``."""
        for i in range(found.shape[1]):
            if along:
                v = fragment(uint32(places[w] + here + i * 16 * width))
            else:
                v = fragment_turned(uint32(places[i] + here + w * 16 * width))
            found[q, i, 0], found[q, i, 1], found[q, i, 2], found[q, i, 3] = v

    return place, squares
