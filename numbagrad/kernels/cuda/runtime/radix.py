"""A stable radix sort of (key, place) pairs in rows: how sorting and ordered sums are made.

Keys are unsigned, moved by ``BITS`` of them at a time, least first. For each digit of a pass: count
it in each tile of a row, turn the counts into first places, move the pairs. Within a tile the rank
of a pair is the number of pairs before it with the same digit, so equal keys keep their order and
nothing depends on which block runs first. Start reading at ``sort_pairs``.
"""

from __future__ import annotations

import numpy as np
from numba import cuda, int64, uint64

from . import device
from .array import DeviceArray
from .launch import start, strided_grid
from .shape import BLOCK, SIMULATED

__all__ = ["sort_pairs"]

BITS = 2 if SIMULATED else 8
DIGITS = 1 << BITS

TILE = 2 * BLOCK if SIMULATED else 16 * BLOCK
"""Pairs of a tile: a block goes over them BLOCK at a time."""


def _count(counts, keys, rows, n, tiles, shift):
    """counts (rows, DIGITS, tiles): how often each digit is in each tile."""
    seen = cuda.shared.array(BLOCK, int64)
    task = cuda.blockIdx.x
    while task < rows * tiles:
        row, tile = task // tiles, task % tiles
        end = min((tile + 1) * TILE, n)
        for first in range(0, DIGITS, BLOCK):  # a thread counts one digit
            digit = first + cuda.threadIdx.x
            total = 0
            for base in range(tile * TILE, end, BLOCK):
                i = base + cuda.threadIdx.x
                if i < end:
                    key = uint64(keys[row * n + i])
                    seen[cuda.threadIdx.x] = int64((key >> uint64(shift)) & uint64(DIGITS - 1))
                cuda.syncthreads()
                for other in range(min(BLOCK, end - base)):
                    total += 1 if seen[other] == digit else 0
                cuda.syncthreads()
            if digit < DIGITS:
                counts[(row * DIGITS + digit) * tiles + tile] = total
        task += cuda.gridDim.x


def _first_places(counts, rows, length):
    """counts (rows, length) becomes the sum of what is before, in each row. A block for a row."""
    sums = cuda.shared.array(BLOCK, int64)
    row = cuda.blockIdx.x
    while row < rows:
        begin = row * length + length * cuda.threadIdx.x // BLOCK
        end = row * length + length * (cuda.threadIdx.x + 1) // BLOCK
        total = int64(0)
        for i in range(begin, end):
            total += counts[i]
        sums[cuda.threadIdx.x] = total
        cuda.syncthreads()
        total = int64(0)
        for other in range(cuda.threadIdx.x):
            total += sums[other]
        for i in range(begin, end):
            here = counts[i]
            counts[i] = total
            total += here
        cuda.syncthreads()
        row += cuda.gridDim.x


def _move(new_keys, new_places, keys, places, counts, rows, n, tiles, shift):
    """Each pair to its place."""
    digits = cuda.shared.array(BLOCK, int64)
    nexts = cuda.shared.array(DIGITS, int64)
    me = cuda.threadIdx.x
    task = cuda.blockIdx.x
    while task < rows * tiles:
        row, tile = task // tiles, task % tiles
        end = min((tile + 1) * TILE, n)
        for digit in range(me, DIGITS, BLOCK):
            nexts[digit] = counts[(row * DIGITS + digit) * tiles + tile]
        for base in range(tile * TILE, end, BLOCK):
            i = base + me
            digit = int64(-1)
            if i < end:
                key = uint64(keys[row * n + i])
                digit = int64((key >> uint64(shift)) & uint64(DIGITS - 1))
            digits[me] = digit
            cuda.syncthreads()
            rank, last = int64(0), True
            if i < end:
                for other in range(me):
                    rank += 1 if digits[other] == digit else 0
                for other in range(me + 1, BLOCK):
                    last = last and digits[other] != digit
                to = row * n + nexts[digit] + rank
                new_keys[to] = keys[row * n + i]
                new_places[to] = places[row * n + i]
            cuda.syncthreads()
            if i < end and last:  # one thread for each digit that occurred
                nexts[digit] += rank + 1
            cuda.syncthreads()
        task += cuda.gridDim.x


def sort_pairs(
    keys: DeviceArray, places: DeviceArray, bits: int
) -> tuple[DeviceArray, DeviceArray]:
    """keys, places (m, n) int64 C, with keys of ``bits`` bits read as unsigned, in rising order.

    Both may be overwritten; the result is in them, or in memory of its own.
    """
    rows, n = keys.shape
    tiles = -(-n // TILE)
    wide = np.dtype(np.int64)
    counts = device.empty((rows, DIGITS, tiles), wide, keys.device)
    other_keys = device.empty(keys.shape, wide, keys.device)
    other_places = device.empty(keys.shape, wide, keys.device)
    grid = strided_grid(rows * tiles * BLOCK)
    for shift in range(0, bits, BITS):
        start(_count, grid, BLOCK, counts, keys, rows, n, tiles, shift)
        start(_first_places, strided_grid(rows * BLOCK), BLOCK, counts, rows, DIGITS * tiles)
        pairs = other_keys, other_places, keys, places
        start(_move, grid, BLOCK, *pairs, counts, rows, n, tiles, shift)
        keys, other_keys = other_keys, keys
        places, other_places = other_places, places
    return keys, places
