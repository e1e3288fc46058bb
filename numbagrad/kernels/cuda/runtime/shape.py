"""How kernels are shaped: threads in a warp and a block, blocks in a grid.

The simulator starts a Python thread for each thread of a kernel, so there everything is tiny: a
warp of 4, two warps in a block, two blocks. Kernels are written against these names and must be
right for any powers of two.
"""

from __future__ import annotations

import os

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

PARTS = 3 if SIMULATED else 1024
"""Blocks that share one long reduction; fixed, so that the bits do not depend on the GPU."""

TILES = ((8, 4, 2), (4, 4, 1)) if SIMULATED else ((128, 8, 8), (32, 16, 2))
"""Shapes of a matrix product, for large and small results: rows and columns of the result that a
block makes, how far it goes along the summed dimension between barriers, and rows and columns that
one of its threads makes."""

WIDE_TILES = ((8, 4, 2), (4, 4, 1)) if SIMULATED else ((64, 8, 4), (32, 16, 2))
"""The same for float64."""

CORE_TILES = ((1, 2, 1, 1, 8),) if SIMULATED else ((2, 4, 4, 4, 16), (2, 2, 1, 2, 16))
"""Shapes of a product on tensor cores, for large and small results: rows and columns of warps in a
block, rows of 16 and columns of 8 that a warp makes, and words of the factors between barriers."""

SQUARE, WIDE_SQUARE = ((4, 4, 1), (4, 4, 1)) if SIMULATED else ((64, 16, 4), (32, 16, 2))
"""Shapes of a square of scores, for float32 and float64: its side, and the rest as in TILES. Two of
them and two slices fit into 48 KB of shared memory."""

LARGE_PRODUCT = 48 if SIMULATED else 1 << 24
"""Multiplications from which cuBLASLt makes a product where the user has chosen it, on a GPU 256^3:
a smaller one is over before Python has started the next, whoever makes it. Not measured on
hardware yet."""
