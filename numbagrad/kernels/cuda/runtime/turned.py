"""Copies of transposed matrices, by squares in shared memory, so that both sides go by rows.

Start reading at ``turned``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, int8, int16, int32, int64

from .array import DeviceArray
from .grids import tile_grid
from .launch import start
from .shape import BLOCK, WARP

__all__ = ["turn", "turned"]

SIDE = 2 * WARP
"""Rows and columns of a square of up to 4 bytes an element; half of it for 8."""

LEAST = WARP
"""Rows and columns from which a matrix is worth squares."""


@functools.lru_cache(maxsize=1024)
def turned(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, ...] | None:
    """(matrices, rows, columns, elements from matrix to matrix and from column to column).

    Of the array as rows of a contiguous one; None if its columns are not what lies together.
    """
    sizes: list[int] = []
    steps: list[int] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if steps and steps[-1] == stride * size:
            sizes[-1] *= size
            steps[-1] = stride
        else:
            sizes.append(size)
            steps.append(stride)
    if len(sizes) == 2:
        sizes, steps = [1, *sizes], [0, *steps]
    if len(sizes) != 3 or steps[1] != itemsize or min(sizes[1:]) < LEAST:
        return None
    return *sizes, steps[0] // itemsize, steps[2] // itemsize


@functools.cache
def _kernel(bits: Any, side: int) -> Any:
    high = BLOCK // WARP
    wide = side + 1  # so that a column of a square lies in different banks
    down, over, spots = side // high, side // WARP, side * wide

    def turned_copy(out, x, tiles, rows, columns, from_matrix, from_column):
        """A square to a block; x[matrix, row, column] lies at row, columns from_column apart."""
        square = cuda.shared.array(spots, bits)
        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        over_rows, over_columns = (rows + side - 1) // side, (columns + side - 1) // side
        tile = cuda.blockIdx.x
        while tile < tiles:
            rest = tile // over_rows
            matrix = rest // over_columns
            row, column = tile % over_rows * side, rest % over_columns * side
            here = matrix * from_matrix + column * from_column + row
            there = (matrix * rows + row) * columns + column
            if row + side <= rows and column + side <= columns:
                at = here + warp * from_column + lane
                for k in range(down):
                    for h in range(over):
                        square[(warp + k * high) * wide + lane + h * WARP] = x[at + h * WARP]
                    at += high * from_column
                cuda.syncthreads()
                at = there + warp * columns + lane
                for k in range(down):
                    for h in range(over):
                        out[at + h * WARP] = square[(lane + h * WARP) * wide + warp + k * high]
                    at += high * columns
            else:
                for k in range(down):
                    for h in range(over):
                        j, i = warp + k * high, lane + h * WARP
                        if row + i < rows and column + j < columns:
                            square[j * wide + i] = x[here + j * from_column + i]
                cuda.syncthreads()
                for k in range(down):
                    for h in range(over):
                        i, j = warp + k * high, lane + h * WARP
                        if row + i < rows and column + j < columns:
                            out[there + i * columns + j] = square[j * wide + i]
            cuda.syncthreads()
            tile += cuda.gridDim.x

    return turned_copy


def turn(out: Any, x: Any, plan: tuple[int, ...]) -> None:
    """out = x; out C, of the dtype and shape of x, which ``turned`` has taken apart."""
    matrices, rows, columns, from_matrix, from_column = plan
    side = SIDE // 2 if out.itemsize > 4 else SIDE
    tiles = matrices * -(-rows // side) * -(-columns // side)
    kernel = _kernel(_KINDS[out.itemsize], side)
    numbers = tiles, rows, columns, from_matrix, from_column
    start(kernel, tile_grid(tiles), BLOCK, _bits(out), _bits(x), *numbers)


_KINDS = {1: int8, 2: int16, 4: int32, 8: int64}


def _bits(a: DeviceArray) -> DeviceArray:
    """The same memory as whole numbers: what moves through integers arrives as it was."""
    kind = np.dtype(str(_KINDS[a.itemsize]))
    return DeviceArray(a.memory, a.pointer, a.shape, kind, a.device, a.strides)
