"""How a thread multiplies two slices in shared memory, by fused multiply-adds.

A slice has a row for each step. ``squares`` makes three functions of a tile, which
``product.tiled`` puts together; ``double.core_squares`` makes the same for tensor cores.
"""

from __future__ import annotations

from typing import Any

from .shape import Tile
from .shared import copy16
from .warp import inlined, pasted

__all__ = ["APART", "repeated", "squares"]

APART = 4
"""Elements between rows in shared memory: what a warp stores by columns meets in no bank twice."""


def repeated(step: Any, count: int) -> Any:
    """``step(i, ...)`` to ``step(i + count - 1, ...)``: LLVM leaves long loops as they are.

    An array in registers has to be indexed by constants.
    """
    if count == 1:
        return step
    first, second = repeated(step, count // 2), repeated(step, count - count // 2)

    @pasted
    def both(i, *args):
        first(i, *args)
        second(i + count // 2, *args)

    return both


def squares(real: Any, tile: Tile) -> tuple[Any, Any, Any]:
    """Where a thread has its square and what it reads, where the words of its square lie, and how
    it adds the product of its team's share of a slice.

    Rows and columns of a thread are words of 16 bytes that lie apart, so that neighbours read
    neighbouring words.
    """
    vector = 128 // real.bitwidth
    depth, each_row, each_col = tile.depth, tile.each_row, tile.each_col
    down, across = tile.rows // each_row * vector, tile.cols // each_col * vector
    left_row, right_row = tile.rows + APART, tile.cols + APART
    words = each_col // vector
    lanes = min(tile.cols // each_col, 8)  # of a warp, in a row
    warps = tile.cols // each_col // lanes

    @inlined
    def first(member):
        """Row and column of a thread's first number, and what it reads first of both slices."""
        tx = member % lanes + member // 32 % warps * lanes
        ty = member % 32 // lanes + member // 32 // warps * (32 // lanes)
        return ty * vector, tx * vector, ty * vector, tx * vector

    @pasted
    def place(q, i, j):
        """Row and column in the tile of the ``q``-th word of a square that begins at i, j."""
        return i + q // words // vector * down + q // words % vector, j + q % words * across

    @pasted
    def multiply(step, acc, row, column, shared, left, right):
        for h in range(each_row // vector):
            copy16(row, h * vector, shared, left + step * left_row + h * down)
        for h in range(each_col // vector):
            copy16(column, h * vector, shared, right + step * right_row + h * across)
        for i in range(each_row):
            for j in range(each_col):
                acc[i * each_col + j] += row[i] * column[j]

    return first, place, repeated(multiply, depth)
