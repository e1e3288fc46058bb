"""Looking for the first element that is NaN, infinite, or outside of a range.

Each block finds the first of its elements, one more block the first of those. Positions travel as
negative float64s, which are exact up to 2 ** 53, because ``block_max`` gives the largest.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float64, int64

from .runtime import device
from .runtime.launch import start, strided_grid
from .runtime.maths import math
from .runtime.shape import BLOCK, WARPS
from .runtime.warp import block_max

__all__ = ["first_bad", "first_made", "first_outside"]


def _first_of_block(partial, x, n, only_nan):
    """partial: for each block minus the number of its first bad element, or -inf."""
    shared = cuda.shared.array(WARPS, float64)
    best = float64(-math.inf)
    i = cuda.grid(1)
    while i < n:
        value = x[i]
        if value != value:
            best = max(best, -float64(3 * i))
        elif only_nan == 0 and value - value != 0:
            best = max(best, -float64(3 * i + (1 if value > 0 else 2)))
        i += cuda.gridsize(1)
    best = block_max(best, shared)
    if cuda.threadIdx.x == 0:
        partial[cuda.blockIdx.x] = best


def _outside_of_block(partial, x, n, low, high):
    """partial: for each block minus the position of its first element outside, or -inf."""
    shared = cuda.shared.array(WARPS, float64)
    best = float64(-math.inf)
    i = cuda.grid(1)
    while i < n:
        if not (x[i] >= low and x[i] <= high):
            best = max(best, -float64(i))
        i += cuda.gridsize(1)
    best = block_max(best, shared)
    if cuda.threadIdx.x == 0:
        partial[cuda.blockIdx.x] = best


def _first(flag, partial, count, given, size):
    """One block: what ``first_made`` leaves for ``size`` entries of ``given``; size -1: none."""
    shared = cuda.shared.array(WARPS, float64)
    best = float64(-math.inf)
    for k in range(cuda.threadIdx.x, count, BLOCK):
        best = max(best, partial[k])
    best = block_max(best, shared)
    if cuda.threadIdx.x == 0:
        code = int64(-1)
        if best > -math.inf:
            code = int64(-best)
            if size >= 0:
                which = 0
                for j in range(size - 1, -1, -1):
                    which = j + 1 if given[j] >= 0 else which
                code = (given[which - 1] if which > 0 else code) * (size + 1) + which
        flag[0] = code


def _look(flag: Any, x: Any, only_nan: Any, given: Any, size: int) -> None:
    dense = x if x.c_contiguous else device.duplicate(x)
    blocks = strided_grid(x.size)
    partial = device.empty((blocks,), np.dtype(np.float64), x.device)
    start(_first_of_block, blocks, BLOCK, partial, dense, x.size, int(only_nan))
    start(_first, 1, BLOCK, flag, partial, blocks, given, size)


def first_bad(flag, x, only_nan):
    """flag (1,) int64: 3 times the position of the first bad element, plus its kind, or -1; x any
    shape and strides."""
    _look(flag, x, only_nan, flag, -1)


def first_made(flag, x, given, only_nan):
    """flag (1,) int64: -1 where x has no bad element; else ``code * (given.size + 1) + which``:
    which is 0 and code that of x, or the first of ``given`` (n,) that is one, counted from 1."""
    _look(flag, x, only_nan, given, given.size)


def first_outside(flag, x, low, high):
    """flag (1,) int64: position of the first element not in [low, high], or -1; x (n) C."""
    blocks = strided_grid(x.size)
    partial = device.empty((blocks,), np.dtype(np.float64), x.device)
    start(_outside_of_block, blocks, BLOCK, partial, x, x.size, low, high)
    start(_first, 1, BLOCK, flag, partial, blocks, flag, -1)
