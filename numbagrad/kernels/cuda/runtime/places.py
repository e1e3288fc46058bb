"""Places that an index names: whether they are there, and which of its entries meet in one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, int64

from . import device
from .launch import start, strided_grid
from .radix import sort_pairs
from .shape import BLOCK

__all__ = ["NOWHERE", "check", "slice_keys", "sorted_pairs"]

NOWHERE = (1 << 63) - 1
_INT64 = np.dtype(np.int64)


def _first_bad(out, index, n, low, high, last):
    """out[block]: the first position whose index is not in [low, high); last: -1 if none."""
    shared = cuda.shared.array(BLOCK, int64)
    first = int64(NOWHERE)
    i = cuda.grid(1)
    while i < n:
        if (index[i] < low or index[i] >= high) and i < first:
            first = int64(i)
        i += cuda.gridsize(1)
    shared[cuda.threadIdx.x] = first
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        for other in range(1, BLOCK):
            first = min(first, shared[other])
        out[cuda.blockIdx.x] = -1 if last and first == NOWHERE else first


def _least(out, x, n):
    """out[0]: the least of n numbers, -1 if it is NOWHERE."""
    if cuda.grid(1) == 0:
        first = int64(NOWHERE)
        for i in range(n):
            first = min(first, x[i])
        out[0] = -1 if first == NOWHERE else first


def check(bad: Any, index: Any, m: int, wrap: bool) -> None:
    """bad[0]: the position of the first index that is not in [0, m), or [-m, m) with wrap."""
    n, low = index.size, -m if wrap else 0
    if n <= 16 * BLOCK:
        start(_first_bad, 1, BLOCK, bad, index, n, low, m, 1)
        return
    blocks = min(strided_grid(n), 256)
    partial = device.empty((blocks,), _INT64, bad.device)
    start(_first_bad, blocks, BLOCK, partial, index, n, low, m, 0)
    start(_least, 1, 1, bad, partial, blocks)


def slice_keys(keys, places, bad, index, j, m):
    """keys: the place that each entry of index means; places: 0 to j - 1."""
    i = cuda.grid(1)
    while i < j:
        at = index[i] if bad[0] < 0 else 0
        keys[i] = at + m if at < 0 else at
        places[i] = i
        i += cuda.gridsize(1)


def sorted_pairs(kernel: Any, bad: Any, index: Any, limit: int, *shape: int) -> tuple[Any, Any]:
    """Keys and places of the entries of ``index``, sorted by key."""
    n = index.size
    keys = device.empty((1, n), _INT64, index.device)
    places = device.empty((1, n), _INT64, index.device)
    start(kernel, strided_grid(n), BLOCK, keys, places, bad, index, *shape)
    return sort_pairs(keys, places, max(limit - 1, 1).bit_length())
