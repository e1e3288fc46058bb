"""Tiles of a product: which shape is used, and the step that all products share."""

from __future__ import annotations

from typing import Any

from .shape import TILES, WIDE_TILES
from .warp import inlined

__all__ = ["FEW", "MOST", "multiplied", "tile_for"]

FEW = 132
"""With fewer large tiles than this the small ones are used: they keep more of a GPU busy."""

MOST = 65535
"""Blocks that a grid has at most in its second and in its third dimension."""


def tile_for(itemsize: int, n: int, m: int, batch: int) -> tuple[int, int, int]:
    """The shape of tiles for a result (batch, n, m), as in ``shape.TILES``.

    Small where the result is narrower than half a large tile, which would be mostly empty.
    """
    large, small = WIDE_TILES if itemsize == 8 else TILES
    size = large[0]
    enough = 2 * min(n, m) >= size and -(-n // size) * -(-m // size) * batch >= FEW
    return large if enough else small


def multiplied(across: int, depth: int, each: int) -> Any:
    """The function that adds the product of two slices in shared memory to a thread's square."""

    @inlined
    def multiply(acc, left, right, column, tx, ty):
        """acc (each, each); left, right: a row for each of ``depth`` steps; column: (each)."""
        for step in range(depth):
            for j in range(each):
                column[j] = right[step, tx + j * across]
            for i in range(each):
                factor = left[step, ty + i * across]
                for j in range(each):
                    acc[i, j] += factor * column[j]

    return multiply
