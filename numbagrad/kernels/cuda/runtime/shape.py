"""How kernels are shaped: threads in a warp and a block, blocks in a grid.

The simulator starts a Python thread for each thread of a kernel, so there everything is tiny: a
warp of 4, two warps in a block, two blocks. Kernels are written against these names and must be
right for any powers of two.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")
"""Whether Numba's simulator stands in for a GPU in this process."""

WARP = 4 if SIMULATED else 32
"""Threads that run in step and exchange values."""

BLOCK = 8 if SIMULATED else 256
"""Threads of a block, unless a kernel says otherwise."""

WARPS = BLOCK // WARP
"""Warps of a block."""

FILL = 2 if SIMULATED else 8
"""Blocks for each multiprocessor that fill it, for kernels that walk the grid in strides."""

SIMULATED_GRID = 2
"""Most blocks of a walk in strides in the simulator."""

PART = 16 if SIMULATED else 1 << 13
"""Elements of a reduction that are worth a block of their own."""

PARTS = 3 if SIMULATED else 1056
"""Blocks that share one long reduction; fixed, so that the bits do not depend on the GPU. An H200
has 132 multiprocessors, for 4 or 8 of them each: 64 Mi float32 in 69.6 us, in 72.6 by 1024."""

TILES = ((8, 4, 2), (4, 4, 1)) if SIMULATED else ((128, 8, 8), (32, 16, 2))
"""Shapes of a matrix product, for large and small results: rows and columns of the result that a
block makes, how far it goes along the summed dimension between barriers, and rows and columns that
one of its threads makes."""

WIDE_TILES = ((8, 4, 2), (4, 4, 1)) if SIMULATED else ((64, 8, 4), (32, 16, 2))
"""The same for float64."""


@dataclass(frozen=True)
class Tile:
    """What a block of a product makes, by whom, and how long it takes."""

    rows: int
    cols: int
    depth: int
    """Steps that a team of threads goes between two barriers."""
    parts: int
    """Teams, each of which makes the whole tile from its share of the steps."""
    each_row: int
    each_col: int
    """Rows and columns of a thread: multiples of as many as there are in 16 bytes."""
    blocks: int
    """Blocks that should fit into a multiprocessor."""
    alone: float
    """Nanoseconds of a step on an H200, where a multiprocessor has one block."""
    full: float
    """The same for each block where it has many."""
    cores: int = 0
    """Steps of an instruction of the tensor cores, which then make it."""
    ahead: bool = False
    """Whether a slice is under way from memory while two are multiplied, not one."""

    @property
    def threads(self) -> int:
        return self.rows * self.cols // (self.each_row * self.each_col) * self.parts

    @property
    def large(self) -> bool:
        """Whether a thread's square of float32 leaves few registers for anything else."""
        return self.each_row * self.each_col == 64


if SIMULATED:
    SINGLES: tuple[Tile, ...] = (Tile(8, 8, 4, 1, 4, 4, 1, 9, 9), Tile(4, 4, 4, 2, 4, 4, 1, 4, 4))
    DOUBLES = SINGLES
    SQUARE_PATCHES: tuple[Tile, ...] = SINGLES
    PATCHES: tuple[Tile, ...] = SINGLES
else:
    SINGLES = (
        Tile(128, 128, 8, 1, 8, 8, 2, 97, 91.4, 0, True),
        Tile(64, 64, 8, 4, 8, 8, 2, 33, 29),
        Tile(32, 32, 8, 4, 4, 4, 2, 13.2, 10),
        Tile(16, 16, 4, 16, 4, 4, 2, 5.9, 6.5),
    )
    DOUBLES = (
        Tile(128, 128, 8, 1, 8, 8, 1, 104, 98.9, 4, True),
        Tile(64, 64, 8, 2, 4, 8, 1, 43, 41.6, 8, True),
        Tile(32, 32, 8, 4, 4, 8, 2, 12, 8, 4, True),
        Tile(16, 16, 4, 8, 2, 4, 2, 6.5, 5, 4, True),
    )
    SQUARE_PATCHES = (
        Tile(128, 128, 8, 1, 8, 8, 2, 105, 98, 0, True),
        Tile(64, 64, 8, 2, 4, 8, 2, 36, 33),
        *SINGLES[2:],
    )
    PATCHES = (
        *SQUARE_PATCHES,
        Tile(64, 128, 8, 1, 8, 8, 4, 70, 50, 0, True),
        Tile(32, 128, 8, 2, 4, 8, 2, 33, 29),
        Tile(16, 128, 8, 2, 4, 4, 4, 20, 18),
    )
"""Tiles of products in float32, and in float64, on tensor cores, from the largest.

The times of ``SINGLES`` and of the first two of ``DOUBLES`` are measured, the others guessed.
``PATCHES`` are those of convolutions in float32, ``SQUARE_PATCHES`` of the gradient of a weight:
the others have low ones, as a result has more places than channels. Their times are guessed."""

CORE_TILES = ((1, 2, 1, 1, 8),) if SIMULATED else ((2, 4, 4, 4, 16), (2, 2, 1, 2, 16))
"""Shapes of a product on tensor cores, for large and small results: rows and columns of warps in a
block, rows of 16 and columns of 8 that a warp makes, and words of the factors between barriers."""

SQUARE, WIDE_SQUARE = ((4, 4, 1), (4, 4, 1)) if SIMULATED else ((64, 16, 4), (32, 16, 2))
"""Shapes of a square of scores, for float32 and float64: its side, and the rest as in TILES. Two of
them and two slices fit into 48 KB of shared memory."""


@dataclass(frozen=True)
class CoreTile:
    """What a block of a convolution on tensor cores makes; the rest as in ``Tile``."""

    down: int
    across: int
    """Warps."""
    high: int
    wide: int
    """Rows of 16 and columns of 8 that a warp makes."""
    words: int
    """Of 32 bits, of each factor between two barriers: two halves, or one tf32."""
    blocks: int
    alone: float
    full: float
    parts: int = 1

    @property
    def rows(self) -> int:
        return 16 * self.down * self.high

    @property
    def cols(self) -> int:
        return 8 * self.across * self.wide

    @property
    def depth(self) -> int:
        return 2 * self.words

    @property
    def threads(self) -> int:
        return 32 * self.down * self.across

    @property
    def large(self) -> bool:
        """Whether the squares of a thread leave few registers for anything else."""
        return self.high * self.wide * self.blocks * self.threads >= 1 << 13


CORE_PATCHES: tuple[CoreTile, ...] = (
    (CoreTile(1, 2, 1, 1, 8, 1, 9, 9),)
    if SIMULATED
    else (
        CoreTile(2, 4, 4, 4, 16, 2, 30, 22),
        CoreTile(2, 2, 2, 4, 16, 3, 12, 8),
        CoreTile(1, 4, 4, 4, 16, 3, 18, 12),
        CoreTile(1, 4, 1, 4, 16, 4, 9, 5),
    )
)
"""Tiles of convolutions on tensor cores. The times are guessed, for halves; those of tf32 are twice
as long."""

LARGE_PRODUCT = 48 if SIMULATED else 1 << 24
"""Multiplications from which cuBLASLt makes a product where the user has chosen it, on a GPU 256^3:
a smaller one is over before Python has started the next, whoever makes it."""
