"""Running sums and products along the middle axis of ``x (outer, n, inner)``.

float32 is accumulated in float64, integers in int64. Threads share rows or columns, never one
running sum, so the bits do not depend on their number.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import prange, types
from numba.extending import overload

from ..intrinsics import load, store
from ..machine import kernel

__all__ = ["cumprod", "cumsum"]

GRAIN = 1 << 15
LANES = 512
"""Most columns of a task: 4 KB of accumulators."""

inlined = numba.njit(forceinline=True, error_model="numpy", fastmath={"contract", "nsz", "arcp"})


def _wide(value):
    return np.float64(value) if isinstance(value, np.floating) else np.int64(value)


@overload(_wide)
def _wide_overload(value):
    if isinstance(value, types.Float):
        return lambda value: np.float64(value)
    return lambda value: np.int64(value)


@inlined
def _tiles(x):
    return -(-x.shape[2] // LANES)


@inlined
def _scan(out, x, task, first, step):
    """Do one of ``outer * _tiles(x)`` tasks: some columns of one outer index."""
    _, n, inner = x.shape
    tiles = _tiles(x)
    o, tile = task // tiles, task % tiles
    if inner == 1:
        acc = _wide(x.dtype.type(first))
        for i in range(o * n, o * n + n):
            acc = step(acc, _wide(load(x, i)))
            store(out, i, acc)
        return
    begin, end = inner * tile // tiles, inner * (tile + 1) // tiles
    lanes = np.full(end - begin, _wide(x.dtype.type(first)))
    for row in range(o * n, o * n + n):
        base = row * inner + begin
        for lane in range(end - begin):
            lanes[lane] = step(lanes[lane], _wide(load(x, base + lane)))
            store(out, base + lane, lanes[lane])


@inlined
def _plus(acc, value):
    return acc + value


@inlined
def _times(acc, value):
    return acc * value


@kernel(grain=GRAIN)
def cumsum(out, x):
    """out, x (outer, n, inner) C; out may be x."""
    for task in prange(x.shape[0] * _tiles(x)):
        _scan(out, x, task, 0, _plus)


@kernel(grain=GRAIN)
def cumprod(out, x):
    """out, x (outer, n, inner) C; out may be x."""
    for task in prange(x.shape[0] * _tiles(x)):
        _scan(out, x, task, 1, _times)
