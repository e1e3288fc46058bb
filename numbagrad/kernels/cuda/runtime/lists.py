"""Lists of arrays in one launch: tables in device memory of where they are and how they are cut.

A parameter list changes rarely, and the allocator gives gradients the same addresses again and
again, so tables are kept by their content.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from . import device
from .array import DeviceArray
from .launch import note_use
from .shape import SIMULATED

__all__ = ["CHUNK", "chunks_of", "pointers_to"]

CHUNK = 32 if SIMULATED else 1 << 14
"""Elements that a block works on at a time."""


def pointers_to(*lists: Sequence[DeviceArray]) -> DeviceArray:
    """The addresses of all arrays, list after list."""
    for arrays in lists:
        for array in arrays:
            note_use(array)
    return device.table(np.array([a.pointer for arrays in lists for a in arrays], np.int64))


@functools.lru_cache(maxsize=256)
def _cut(sizes: tuple[int, ...]) -> tuple[DeviceArray, int]:
    rows: list[int] = []
    for t, size in enumerate(sizes):
        for begin in range(0, size, CHUNK):
            rows += [t, begin, min(begin + CHUNK, size)]
    return device.table(np.array(rows, np.int64)), len(rows) // 3


def chunks_of(sizes: Sequence[int]) -> tuple[DeviceArray, int]:
    """(k, 3) int64 table of all chunks, which array, first element, end; and k."""
    return _cut(tuple(sizes))
