"""Grids of kernels that move memory.

A block that takes its tile and ends leaves its place to the next one, which begins to read at once:
a grid of many short blocks keeps more reads under way than one that fills the GPU and walks.
"""

from __future__ import annotations

from . import device
from .shape import BLOCK, SIMULATED, SIMULATED_GRID

__all__ = ["DEPTH", "WAVES", "power_of_two", "tile_grid"]

DEPTH = 1
"""Reads of 16 bytes that a thread has under way before it needs the first, of each array."""

WAVES = 256
"""Most blocks of a grid for each multiprocessor."""


def most_blocks() -> int:
    """Most blocks of a grid, each of which may take several tiles."""
    return SIMULATED_GRID if SIMULATED else WAVES * device.driver().multiprocessors


def tile_grid(tiles: int, rest: int = 0) -> int:
    """Blocks for so many tiles, a tile to a block at a time, and ``rest`` elements one by one."""
    return max(1, min(max(tiles, -(-rest // BLOCK)), most_blocks()))


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()
