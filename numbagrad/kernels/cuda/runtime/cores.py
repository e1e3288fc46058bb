"""Products of matrices on tensor cores: halves, and float32 rounded to tf32.

A block makes a tile of the result and goes along the summed dimension in steps, as in ``matmul``.
Factors lie in shared memory in words of 32 bits, two halves or one tf32 along the summed dimension;
a warp multiplies squares of 16 by 8 of its part by ``mma`` and adds in float32. Compute capability
8.0 and later.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, float32, uint32

from .intrinsics import MULTIPLY, half_bits, tf32_bits
from .shape import CORE_TILES
from .tiles import FEW
from .warp import inlined

__all__ = ["ADD", "BIAS", "NEW", "core_kernel"]

NEW, ADD, BIAS = 0, 1, 2
LANES = 32
APART = 4
"""Words between rows in shared memory: then the 32 reads of a fragment meet in no bank."""


@inlined
def _pair(x, at, apart, left):
    """A word of two halves, ``apart`` from one another; ``left``: how many there still are."""
    low = half_bits(x, at) if left > 0 else uint32(0)
    high = half_bits(x, at + apart) if left > 1 else uint32(0)
    return low | (high << uint32(16))


@inlined
def _single(x, at, apart, left):
    """A word of one tf32."""
    return tf32_bits(x[at]) if left > 0 else uint32(0)


def core_kernel(dtype: np.dtype, n: int, m: int, batch: int, epilogue: int) -> tuple[Any, ...]:
    """The kernel for products of ``dtype``, rows and columns of its tiles, and its threads."""
    for shape in CORE_TILES:
        rows, cols = 16 * shape[0] * shape[2], 8 * shape[1] * shape[3]
        if -(-n // rows) * -(-m // cols) * batch >= FEW:
            break
    return _made(dtype, shape, epilogue), rows, cols, LANES * shape[0] * shape[1]


@functools.cache
def _made(dtype: np.dtype, shape: tuple[int, ...], epilogue: int) -> Any:
    down, across, high, wide, depth = shape
    rows, cols = 16 * down * high, 8 * across * wide
    threads = LANES * down * across
    loads_x, loads_y = rows * depth // threads, cols * depth // threads
    width = depth + APART
    size_x, size_y = rows * width, cols * width
    each = 2 if dtype.itemsize == 2 else 1  # factors in a word
    word, multiply = _pair if each == 2 else _single, MULTIPLY[dtype]

    def cored(
        out, x, y, bias, n, m, k, x_row, x_step, y_step, y_col, out_row,
        x_batch, y_batch, out_batch, x_by_rows, y_by_rows,
    ):  # fmt: skip
        """x_row, x_step: strides of x along n and k; y_step, y_col: of y along k and m."""
        left = cuda.shared.array(size_x, uint32)
        right = cuda.shared.array(size_y, uint32)
        acc = cuda.local.array((high, wide, 4), float32)
        some_x = cuda.local.array(loads_x, uint32)
        some_y = cuda.local.array(loads_y, uint32)
        a = cuda.local.array((high, 4), uint32)
        thread = cuda.threadIdx.x
        warp, lane = thread // LANES, thread % LANES
        group, place = lane // 4, lane % 4
        part_row = warp // across * high * 16 + group
        part_col = warp % across * wide * 8
        first_row, first_col = cuda.blockIdx.x * rows, cuda.blockIdx.y * cols
        # The words that a thread brings lie apart by as much each time, along n or m, or along k.
        row = thread // depth if x_by_rows else thread % rows
        step = thread % depth if x_by_rows else thread // rows
        more_rows = threads // depth if x_by_rows else 0
        more_steps = 0 if x_by_rows else each * (threads // rows)
        put_x, more_x = row * width + step, more_rows * width + more_steps // each

        rows_left, steps_x = n - first_row - row, k - each * step
        at_x = cuda.blockIdx.z * x_batch + (first_row + row) * x_row + each * step * x_step
        far_x = more_rows * x_row + more_steps * x_step
        col = thread % cols if y_by_rows else thread // depth
        step = thread // cols if y_by_rows else thread % depth
        more_cols = 0 if y_by_rows else threads // depth
        more_down = each * (threads // cols) if y_by_rows else 0
        put_y, more_y = col * width + step, more_cols * width + more_down // each

        cols_left, steps_y = m - first_col - col, k - each * step
        at_y = cuda.blockIdx.z * y_batch + (first_col + col) * y_col + each * step * y_step
        far_y = more_cols * y_col + more_down * y_step
        for i in range(high):
            for j in range(wide):
                for c in range(4):
                    acc[i, j, c] = float32(0)
        begin = 0
        while begin < k + depth * each:  # a round brings one slice and multiplies the one before
            if begin < k:
                for s in range(loads_x):
                    there = steps_x - s * more_steps if s * more_rows < rows_left else 0
                    some_x[s] = word(x, at_x + s * far_x, x_step, there)
                for s in range(loads_y):
                    there = steps_y - s * more_down if s * more_cols < cols_left else 0
                    some_y[s] = word(y, at_y + s * far_y, y_step, there)
                at_x, at_y = at_x + depth * each * x_step, at_y + depth * each * y_step
                steps_x, steps_y = steps_x - depth * each, steps_y - depth * each
            if begin > 0:
                for w in range(0, depth, 8):
                    for i in range(high):
                        from_x = (part_row + i * 16) * width + w + place
                        a[i, 0] = left[from_x]
                        a[i, 1] = left[from_x + 8 * width]
                        a[i, 2] = left[from_x + 4]
                        a[i, 3] = left[from_x + 8 * width + 4]
                    for j in range(wide):
                        from_y = (part_col + j * 8 + group) * width + w + place
                        b0, b1 = right[from_y], right[from_y + 4]
                        for i in range(high):
                            c0, c1, c2, c3 = multiply(
                                a[i, 0], a[i, 1], a[i, 2], a[i, 3], b0, b1,
                                acc[i, j, 0], acc[i, j, 1], acc[i, j, 2], acc[i, j, 3],
                            )  # fmt: skip
                            acc[i, j, 0], acc[i, j, 1] = c0, c1
                            acc[i, j, 2], acc[i, j, 3] = c2, c3
            cuda.syncthreads()
            if begin < k:
                for s in range(loads_x):
                    left[put_x + s * more_x] = some_x[s]
                for s in range(loads_y):
                    right[put_y + s * more_y] = some_y[s]
            cuda.syncthreads()
            begin += depth * each
        base = cuda.blockIdx.z * out_batch
        for i in range(high):
            for j in range(wide):
                for c in range(4):
                    row = first_row + part_row + i * 16 + c // 2 * 8
                    col = first_col + part_col + j * 8 + place * 2 + c % 2
                    if row < n and col < m:
                        at = base + row * out_row + col
                        if epilogue == ADD:
                            out[at] = out[at] + acc[i, j, c]
                        elif epilogue == BIAS:
                            out[at] = acc[i, j, c] + bias[col]
                        else:
                            out[at] = acc[i, j, c]

    return cored
