"""Products of halves by ``wgmma``, with slices of the factors in a ring in shared memory.

As in ``ring.py`` copies of the next slices run while one is used. Four warps multiply it together
and read it where it lies. Start reading at ``grouped``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint32

from .pipeline import WAIT, address, asked_memory, commit, put2, take4
from .ring import BYTES, LANES, Shape, copier, finisher, placer
from .wgmma import DEPTH, LARGE, descriptor, multiplier, written

__all__ = ["ALIGN", "CAPABILITY", "group_kernel"]

CAPABILITY = 9, 0, "a"
"""What numba-cuda compiles for on a device of 9.0, and nothing else has the instruction."""

ALIGN = 1024
"""Of slices: 8 rows of 128 bytes, in which the order of pieces repeats."""


@functools.cache
def group_kernel(
    dtype: np.dtype, shape: Shape, epilogue: int, x_by_rows: bool, y_by_rows: bool
) -> Any:
    """The kernel; x_by_rows: k is the unit stride of x; y_by_rows: m is that of y."""
    rows, cols, stages, threads = shape.rows, shape.cols, shape.stages, shape.threads
    depth, tall = shape.depth, shape.rows // 64 * 128 // threads
    assert depth == DEPTH and shape.align == ALIGN and shape.across == 1
    size_x, each = BYTES * depth * rows, shape.slice_bytes
    total, wait = each * stages, WAIT[stages - 2]
    place_x, bring_x = copier(rows, depth, threads, x_by_rows, 64)
    place_y, bring_y = copier(cols, depth, threads, not y_by_rows, 64)
    multiply, settle = multiplier(dtype, tall, cols, not x_by_rows, y_by_rows)
    of_x, of_y = descriptor(not x_by_rows), descriptor(y_by_rows)
    count, numbers, parts = cols // 2, tall * cols // 2, cols // 64
    finish, tile_of = finisher(epilogue), placer(rows, cols)

    def grouped(
        out, x, y, bias, n, m, k, x_far, y_far, out_row, x_batch, y_batch, out_batch, paired
    ):
        """x_far, y_far: strides of the factors along the dimension whose stride is not 1.

        paired: whether four neighbours of out, from a multiple of 4 on, may be written at once.
        """
        acc = cuda.local.array(numbers, float32)
        n, m, k = int32(n), int32(m), int32(k)
        thread = int32(cuda.threadIdx.x)
        warp, lane = thread // int32(LANES), thread % int32(LANES)
        first_row, first_col = tile_of(n, m)
        base = uint32(uint32(asked_memory() + (ALIGN - 1)) // uint32(ALIGN) * uint32(ALIGN))
        put_x, at_x, far_x, inside_x, step_x = place_x(thread, first_row, n, x_far)
        put_y, at_y, far_y, inside_y, step_y = place_y(thread, first_col, m, y_far)
        put_x, put_y = uint32(base + put_x), uint32(base + size_x + put_y)
        at_x += address(x) + cuda.blockIdx.z * x_batch * BYTES
        at_y += address(y) + cuda.blockIdx.z * y_batch * BYTES
        more_x = int64(depth * BYTES if x_by_rows else depth * BYTES * x_far)
        more_y = int64(depth * BYTES * y_far if y_by_rows else depth * BYTES)
        from_x = int64(of_x + int64(uint32(base + warp // 4 * (tall * LARGE)) // uint32(16)))
        from_y = int64(of_y + int64(uint32(base + size_x) // uint32(16)))
        for i in range(numbers):
            acc[i] = float32(0)
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
            written()
            cuda.syncthreads()  # the slice is there, and all are done with the one before it
            multiply(acc, from_x + int64(here // uint32(16)), from_y + int64(here // uint32(16)))
            if left > int32(0):
                bring_x(uint32(put_x + to), at_x, far_x, inside_x, step_x, left)
                bring_y(uint32(put_y + to), at_y, far_y, inside_y, step_y, left)
            commit()
            settle(acc)
            at_x, at_y = at_x + more_x, at_y + more_y
            left = int32(left - depth)
            to = uint32(0) if to == uint32(total - each) else uint32(to + each)
            here = uint32(0) if here == uint32(total - each) else uint32(here + each)
            rounds = int32(rounds - 1)
        cuda.syncthreads()  # all are done with the slices: a warp takes its numbers out there
        apart = int32(4 * (64 + 8))
        mine = uint32(base + warp * (16 * apart))
        put = uint32(mine + lane // 4 * apart + lane % 4 * 8)
        take = uint32(mine + lane // 16 * apart + lane % 16 * 16)
        for i in range(tall):
            down = int32((warp // 4 * tall + i) * 64 + warp % 4 * 16)
            for part in range(parts):
                row = int32(first_row + down + lane // 16)
                col = int32(first_col + part * 64 + lane % 16 * 4)
                at = cuda.blockIdx.z * out_batch + row * out_row + col
                whole = paired and col + 4 <= m
                for j in range(8):
                    q = i * count + (part * 8 + j) * 4
                    put2(uint32(put + j * 32), acc[q], acc[q + 1])
                    put2(uint32(put + j * 32 + 8 * apart), acc[q + 2], acc[q + 3])
                cuda.syncthreads()
                for r in range(0, 16, 2):
                    v = take4(uint32(take + r * apart))
                    if row < n:
                        finish(out, at, bias, col, m, whole, v)
                    row, at = int32(row + 2), at + 2 * out_row
                cuda.syncthreads()

    grouped.launch_bounds = threads, 1  # type: ignore[attr-defined]
    grouped.capability = CAPABILITY  # type: ignore[attr-defined]
    return grouped
