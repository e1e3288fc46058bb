"""Lists of arrays in one launch: tables in device memory of where they are and how they are cut.

A parameter list changes rarely, and the allocator gives gradients the same addresses again and
again, so tables are kept by their content.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import cuda

from . import device
from .array import DeviceArray
from .grids import tile_grid
from .intrinsics import as_type, pointer_at
from .launch import note_use, start
from .shape import BLOCK, SIMULATED

__all__ = ["CHUNK", "advance", "chunks_of", "over", "pointers_to"]

CHUNK = 32 if SIMULATED else 1 << 12
"""Elements that a block works on at a time: Adam over 64 Mi at 98 % of a copy, 94 % by 16384."""

SMALL_CHUNK = 16 if SIMULATED else 4 * BLOCK
"""The same for lists that would not fill a GPU: one load of each array by each thread."""

FEW = 64 if SIMULATED else 1 << 20
"""Up to so many elements a list is small."""


def pointers_to(*lists: Sequence[DeviceArray]) -> DeviceArray:
    """The addresses of all arrays, list after list."""
    device.once()  # the addresses are others in each call
    for arrays in lists:
        for array in arrays:
            note_use(array)
    return device.table(np.array([a.pointer for arrays in lists for a in arrays], np.int64))


@functools.lru_cache(maxsize=256)
def _cut(sizes: tuple[int, ...]) -> tuple[DeviceArray, int]:
    rows: list[int] = []
    chunk = SMALL_CHUNK if sum(sizes) <= FEW else CHUNK
    for t, size in enumerate(sizes):
        for begin in range(0, size, chunk):
            rows += [t, begin, min(begin + chunk, size)]
    return device.table(np.array(rows, np.int64)), len(rows) // 3


def chunks_of(sizes: Sequence[int]) -> tuple[DeviceArray, int]:
    """(k, 3) int64 table of all chunks, which array, first element, end; and k."""
    return _cut(tuple(sizes))


def over(kernel: Any, lists: list[Any], sizes: Any, like: Any, *scalars: Any) -> None:
    """Start ``kernel(pointers, count, chunks, k, like, *scalars)``."""
    chunks, k = chunks_of(sizes)
    if k:
        arrays = pointers_to(*lists), len(sizes), chunks, k, like
        start(kernel, tile_grid(k), BLOCK, *arrays, *scalars)


def _count_steps(pointers, count, like):
    """Add one to each of ``count`` float32 counters."""
    for t in range(cuda.threadIdx.x, count, BLOCK):
        step = pointer_at(pointers[t], like)
        step[0] = step[0] + as_type(like, 1)


def advance(steps: Any) -> None:
    """Add one to each step counter."""
    start(_count_steps, 1, BLOCK, pointers_to(steps), len(steps), steps[0])
