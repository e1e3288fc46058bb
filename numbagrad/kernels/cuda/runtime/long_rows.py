"""Softmax of rows that no block can hold: by pieces that it can, whose sums are joined.

Each piece is read twice, once for its largest element and its sum, once to be scaled. Start reading
at ``softmax``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from . import device
from .grids import tile_grid
from .held import GROUPS, Held, lanes_of, reader, writer
from .launch import made, start
from .maths import math
from .shape import BLOCK, WARPS
from .warp import block_max, block_sum, split

__all__ = ["softmax"]


def _pieces(real: Any, held: Held) -> Any:
    size, span, read = held.size, BLOCK * held.size, reader(real, held)

    def pieces(peaks, masses, x, tasks, k, m):
        """A block for each of ``tasks`` pieces, k to a row: its largest, and its sum."""
        shared = cuda.shared.array(WARPS, real)
        values = cuda.local.array(size, real)
        task = cuda.blockIdx.x
        while task < tasks:
            i, piece = split(task, k)
            first, end = i * m + piece * span, min(span, m - piece * span)
            read(values, x, first, cuda.threadIdx.x, end, real(-math.inf))
            peak = values[0]
            for q in range(1, size):
                peak = values[q] if values[q] > peak or values[q] != values[q] else peak
            peak = block_max(peak, shared)
            base = peak if peak != real(-math.inf) else real(0)  # inf - inf would be NaN
            total = real(0)
            for q in range(size):
                total += real(math.exp(values[q] - base))
            total = block_sum(total, shared)
            if cuda.threadIdx.x == 0:
                peaks[task], masses[task] = peak, total
            task += cuda.gridDim.x

    return pieces


def _join(real: Any) -> Any:
    def join(peaks, masses, n, k):
        """A block for each of n rows: the first of its k pieces gets what all of them have."""
        shared = cuda.shared.array(WARPS, real)
        i = cuda.blockIdx.x
        while i < n:
            peak = real(-math.inf)
            for j in range(cuda.threadIdx.x, k, BLOCK):
                value = peaks[i * k + j]
                peak = value if value > peak or value != value else peak
            peak = block_max(peak, shared)
            base = peak if peak != real(-math.inf) else real(0)
            total = real(0)
            for j in range(cuda.threadIdx.x, k, BLOCK):
                total += masses[i * k + j] * real(math.exp(peaks[i * k + j] - base))
            total = block_sum(total, shared)
            if cuda.threadIdx.x == 0:
                peaks[i * k], masses[i * k] = peak, total
            i += cuda.gridDim.x

    return join


def _spread(real: Any, held: Held, log: bool) -> Any:
    size, span, read, write = held.size, BLOCK * held.size, reader(real, held), writer(held)

    def spread(out, x, peaks, masses, tasks, k, m):
        """A block for each of ``tasks`` pieces: softmax, or its logarithm."""
        values = cuda.local.array(size, real)
        task = cuda.blockIdx.x
        while task < tasks:
            i, piece = split(task, k)
            first, end = i * m + piece * span, min(span, m - piece * span)
            read(values, x, first, cuda.threadIdx.x, end, real(0))
            peak, total = peaks[i * k], masses[i * k]
            shift = real(math.log(total)) if log else real(1) / total
            for q in range(size):
                if log:
                    values[q] = values[q] - peak - shift
                else:
                    values[q] = real(math.exp(values[q] - peak)) * shift
            write(out, values, first, cuda.threadIdx.x, end)
            task += cuda.gridDim.x

    return spread


def softmax(out: Any, x: Any, n: int, m: int, log: bool) -> None:
    """Softmax of n rows of m elements, or its logarithm. out, x C; out may be x."""
    lanes = lanes_of(m, out, x)
    held = Held(BLOCK, GROUPS if lanes > 1 else 2 * GROUPS, lanes)
    wide = np.dtype(np.float64 if x.itemsize == 8 else np.float32)
    k = -(-m // (BLOCK * held.size))
    peaks, masses = [device.empty((n * k,), wide, x.device) for _ in range(2)]
    tasks, size = n * k, x.itemsize
    grid = tile_grid(tasks)
    start(made(_pieces, size, held), grid, BLOCK, peaks, masses, x, tasks, k, m)
    if k > 1:
        start(made(_join, size), tile_grid(n), BLOCK, peaks, masses, n, k)
    start(made(_spread, size, held, log), grid, BLOCK, out, x, peaks, masses, tasks, k, m)
