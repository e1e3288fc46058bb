"""Products of halves by ``wgmma``, with slices of the factors in a ring in shared memory.

As in ``ring.py`` copies of the next slices run while one is used. Four warps multiply it together
and read it where it lies. Start reading at ``grouped``; ``walker`` and ``writer`` also make the
products of ``parted.py``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint32

from .factors import matrix, patches_across, patches_along
from .pipeline import WAIT, address, asked_memory, commit, put2, take4
from .ring import BYTES, LANES, Shape, finish, placer
from .warp import pasted
from .wgmma import DEPTH, LARGE, descriptor, multiplier, written

__all__ = [
    "ALIGN", "CAPABILITY", "begin_of_slices", "group_kernel", "matrix_ending", "walker", "writer",
]  # fmt: skip

CAPABILITY = 9, 0, "a"
"""What numba-cuda compiles for on a device of 9.0, and nothing else has the instruction."""

ALIGN = 1024
"""Of slices: 8 rows of 128 bytes, in which the order of pieces repeats."""


@pasted
def begin_of_slices():
    """Where they begin in shared memory."""
    return uint32(uint32(asked_memory() + (ALIGN - 1)) // uint32(ALIGN) * uint32(ALIGN))


def walker(
    dtype: np.dtype, shape: Shape, x_by_rows: bool, y_by_rows: bool, patches: bool = False
) -> Any:
    """The function that goes along k; x_by_rows: k is the unit stride of x; y_by_rows: m of y.

    patches: y is made of patches.
    """
    rows, cols, stages, threads = shape.rows, shape.cols, shape.stages, shape.threads
    depth, tall, parts = shape.depth, shape.rows // 64 * 128 // threads, shape.parts
    assert depth == DEPTH and shape.align == ALIGN and shape.across == 1
    part_x, part_y, each = BYTES * depth * rows, BYTES * depth * cols, shape.slice_bytes
    size_x, total, wait = parts * part_x, each * stages, WAIT[stages - 2]
    begin_x, bring_x = matrix(rows, threads, x_by_rows, parts)
    if not patches:
        begin_y, bring_y = matrix(cols, threads, not y_by_rows, parts)
    else:
        begin_y, bring_y = (patches_across if y_by_rows else patches_along)(cols, threads, parts)
    apart = part_x, part_y
    multiply, settle = multiplier(dtype, tall, cols, not x_by_rows, y_by_rows, parts, apart)
    told_x, told_y = descriptor(not x_by_rows), descriptor(y_by_rows)
    numbers = tall * cols // 2

    @pasted
    def walk(sums, acc, base, given_x, given_y, k, first_row, first_col):
        """sums: those of this thread. acc: the same array, or where the products of one slice lie
        if the factors have parts. base: where the slices begin in shared memory. given: of both
        factors, see ``factors.py``.
        """
        of_x, x = begin_x(base, first_row, given_x)
        of_y, y = begin_y(uint32(base + size_x), first_col, given_y)
        group = int32(cuda.threadIdx.x) // int32(4 * LANES)
        from_x = int64(told_x + int64(uint32(base + group * (tall * LARGE)) // uint32(16)))
        from_y = int64(told_y + int64(uint32(base + size_x) // uint32(16)))
        for i in range(numbers):
            sums[i] = float32(0)
        left, to = k, uint32(0)
        for _ in range(stages - 1):
            x, y = bring_x(to, of_x, x, left), bring_y(to, of_y, y, left)
            commit()
            left, to = int32(left - depth), uint32(to + each)
        here, rounds = uint32(0), int32(uint32(k + depth - 1) // uint32(depth))
        while rounds > int32(0):
            wait()
            written()
            cuda.syncthreads()  # the slice is there, and all are done with the one before it
            multiply(acc, from_x + int64(here // uint32(16)), from_y + int64(here // uint32(16)))
            x, y = bring_x(to, of_x, x, left), bring_y(to, of_y, y, left)
            commit()
            settle(acc)
            if parts > 1:
                for i in range(numbers):
                    sums[i] += acc[i]
            left = int32(left - depth)
            to = uint32(0) if to == uint32(total - each) else uint32(to + each)
            here = uint32(0) if here == uint32(total - each) else uint32(here + each)
            rounds = int32(rounds - 1)

    return walk


def writer(shape: Shape, ending: Any) -> Any:
    """The function that gives what a thread has to ``ending(row, col, v, ...)``, four neighbours of
    a row at once, by way of shared memory."""
    tall, count, parts = shape.rows // 64 * 128 // shape.threads, shape.cols // 2, shape.cols // 64

    @pasted
    def write(sums, base, first_row, first_col, *rest):
        cuda.syncthreads()  # all are done with the slices: a warp takes its numbers out there
        thread = int32(cuda.threadIdx.x)
        warp, lane = thread // int32(LANES), thread % int32(LANES)
        apart = int32(4 * (64 + 8))
        mine = uint32(base + warp * (16 * apart))
        put = uint32(mine + lane // 4 * apart + lane % 4 * 8)
        take = uint32(mine + lane // 16 * apart + lane % 16 * 16)
        for i in range(tall):
            down = int32((warp // 4 * tall + i) * 64 + warp % 4 * 16)
            for part in range(parts):
                row = int32(first_row + down + lane // 16)
                col = int32(first_col + part * 64 + lane % 16 * 4)
                for j in range(8):
                    q = i * count + (part * 8 + j) * 4
                    put2(uint32(put + j * 32), sums[q], sums[q + 1])
                    put2(uint32(put + j * 32 + 8 * apart), sums[q + 2], sums[q + 3])
                cuda.syncthreads()
                for r in range(0, 16, 2):
                    ending(row, col, take4(uint32(take + r * apart)), *rest)
                    row = int32(row + 2)
                cuda.syncthreads()

    return write


@pasted
def matrix_ending(row, col, v, out, bias, first_out, n, m, out_row, paired, epilogue):
    """Write four numbers of a matrix; first_out: its first element."""
    if row < n:
        at = first_out + row * out_row + col
        finish(out, at, bias, col, m, paired and col + 4 <= m, v, epilogue)


@functools.cache
def group_kernel(
    dtype: np.dtype, shape: Shape, epilogue: int, x_by_rows: bool, y_by_rows: bool
) -> Any:
    """The kernel; x_by_rows: k is the unit stride of x; y_by_rows: m is that of y."""
    numbers = shape.rows * shape.cols // shape.threads
    walk, write = walker(dtype, shape, x_by_rows, y_by_rows), writer(shape, matrix_ending)
    tile_of = placer(shape.rows, shape.cols)

    def grouped(
        out, x, y, bias, n, m, k, x_far, y_far, out_row, x_batch, y_batch, out_batch, paired
    ):
        """x_far, y_far: strides of the factors along the dimension whose stride is not 1.

        paired: whether four neighbours of out, from a multiple of 4 on, may be written at once.
        """
        acc = cuda.local.array(numbers, float32)
        n, m, k = int32(n), int32(m), int32(k)
        first_row, first_col = tile_of(n, m)
        base, batch = begin_of_slices(), cuda.blockIdx.z
        at_x = address(x) + batch * x_batch * BYTES
        at_y = address(y) + batch * y_batch * BYTES
        x, y = (at_x, n, x_far, 0), (at_y, m, y_far, 0)
        walk(acc, acc, base, x, y, k, first_row, first_col)
        first_out = batch * out_batch
        write(
            acc, base, first_row, first_col, out, bias, first_out, n, m, out_row, paired, epilogue
        )

    grouped.launch_bounds = shape.threads, 1  # type: ignore[attr-defined]
    grouped.capability = CAPABILITY  # type: ignore[attr-defined]
    return grouped
