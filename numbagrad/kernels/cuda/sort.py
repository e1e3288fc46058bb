"""Sorting of rows: short ones by counting smaller elements, others by radix; both are stable.

Values become keys of the same order, NaN the greatest as in PyTorch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, int64

from ..halves import arithmetic, is_floating
from .runtime import device
from .runtime.intrinsics import float32_bits, float64_bits
from .runtime.launch import start, strided_grid
from .runtime.radix import sort_pairs
from .runtime.shape import BLOCK, SIMULATED
from .runtime.warp import inlined, split

__all__ = ["kth", "sort", "topk"]

SHORT = 12 if SIMULATED else 256
"""Up to this length an element's place is found by comparing it with all others."""


@inlined
def _bits_single(value):
    """A float32's bits as an int64 of the same order, NaN the largest, one key for both zeros."""
    bits = int64(float32_bits(value))
    size = bits & int64(0x7FFFFFFF)
    if size > int64(0x7F800000):
        return int64(0x7F800001)
    return -size if bits < 0 else size


@inlined
def _bits_double(value):
    """The same of a float64."""
    bits = int64(float64_bits(value))
    size = bits & int64(0x7FFFFFFFFFFFFFFF)
    if size > int64(0x7FF0000000000000):
        return int64(0x7FF0000000000001)
    return -size if bits < 0 else size


@inlined
def _itself(value):
    return int64(value)


_made: dict[Any, tuple[Any, Any]] = {}


def _kernels(x: Any) -> tuple[Any, Any]:
    """Kernels for short rows, and for the keys of long ones, for the dtype of ``x``."""
    key = str(arithmetic(x.dtype))
    found = _made.get(key)
    if found is not None:
        return found
    order = {"float32": _bits_single, "float64": _bits_double}.get(key, _itself)

    def sort_short(values, indices, x, size, n, k, descending):
        """A thread for each of ``size`` elements."""
        at = cuda.grid(1)
        while at < size:
            row, i = split(at, n)
            base = row * n
            key = order(x[at])
            place = int64(0)
            for j in range(n):
                other = order(x[base + j])
                before = other > key if descending else other < key
                place += 1 if before or (other == key and j < i) else 0
            if place < k:
                values[row * k + place] = x[at]
                indices[row * k + place] = i
            at += cuda.gridsize(1)

    def make_keys(keys, places, x, size, n, half, descending):
        """half: what is added so that keys, read as unsigned, keep their order."""
        at = cuda.grid(1)
        while at < size:
            key = order(x[at]) + int64(half)
            keys[at] = ~key if descending else key
            _, places[at] = split(at, n)
            at += cuda.gridsize(1)

    found = _made[key] = sort_short, make_keys
    return found


def _gather_first(values, indices, x, places, size, n, k):
    """A thread for each of ``size`` results."""
    at = cuda.grid(1)
    while at < size:
        row, i = split(at, k)
        place = places[row * n + i]
        indices[at] = place
        values[at] = x[row * n + place]
        at += cuda.gridsize(1)


def sort(values, indices, x, descending):
    """values, indices (m, k) C; x (m, n) C, k <= n: the first k of each sorted row. Stable."""
    n, k = x.shape[1], values.shape[1]
    if not values.size:
        return
    short, make_keys = _kernels(x)
    grid = strided_grid(x.size)
    if n <= SHORT:
        start(short, grid, BLOCK, values, indices, x, x.size, n, k, int(descending))
        return
    # A key of 32 bits or less is counted from the lowest; one of 64 bits wraps around to the same.
    bits = 64 if x.itemsize == 8 else 33 if is_floating(x.dtype) else 8 * x.itemsize
    half = -(1 << 63) if bits == 64 else (1 << (bits - 1))
    if x.dtype.kind in "ub":
        half = 0
    wide = np.dtype(np.int64)
    keys = device.empty(x.shape, wide, x.device)
    places = device.empty(x.shape, wide, x.device)
    start(make_keys, grid, BLOCK, keys, places, x, x.size, n, half, int(descending))
    _, places = sort_pairs(keys, places, bits)
    size = values.size
    start(_gather_first, strided_grid(size), BLOCK, values, indices, x, places, size, n, k)


def topk(values, indices, x, smallest):
    """values, indices (m, k) C; x (m, n) C, 0 < k <= n: the best k of each row, best first."""
    sort(values, indices, x, not smallest)


def _kth(out, order, x, rows, n, k, nan_wins):
    """A thread for each row."""
    row = cuda.grid(1)
    while row < rows:
        at = k
        if nan_wins:
            for i in range(n - 1, -1, -1):
                value = x[row * n + order[row * n + i]]
                if value != value:
                    at = i
        out[row] = order[row * n + at]
        row += cuda.gridsize(1)


def kth(out, x, k, nan_wins):
    """out (m, 1) C int64: where number k of each sorted row is, or nan_wins, its first NaN.

    x (m, n) C, n > k; of equal elements the first comes first.
    """
    rows, n = x.shape
    values = device.empty(x.shape, x.dtype, x.device)
    order = device.empty(x.shape, np.dtype(np.int64), x.device)
    sort(values, order, x, False)
    start(_kth, strided_grid(rows), BLOCK, out, order, x, rows, n, int(k), int(nan_wins))
