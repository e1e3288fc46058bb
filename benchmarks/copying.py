"""Copies of memory on several threads: the limit of whatever reads and writes each number once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

Copy = Callable[[np.ndarray, np.ndarray], None]


def by_loop(threads: int) -> Copy:
    """``copy(y, x)`` of contiguous vectors, each element once, the threads side by side."""
    import numba

    options: Any = {"nogil": True, "parallel": threads > 1}

    @numba.njit(**options)
    def copy(y, x):
        for t in numba.prange(threads):
            begin, end = t * x.size // threads, (t + 1) * x.size // threads
            y[begin:end] = x[begin:end]

    return copy


def by_memcpy(threads: int) -> Copy:
    """The same by C's memcpy, which writes past the caches what is larger than they are."""
    import numba

    memcpy = ctypes.CDLL(None).memcpy
    memcpy.argtypes, memcpy.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t], None
    options: Any = {"nogil": True, "parallel": threads > 1}

    @numba.njit(**options)
    def copy(y, x):
        for t in numba.prange(threads):
            begin, end = t * x.size // threads, (t + 1) * x.size // threads
            part_y, part_x = y[begin:end], x[begin:end]
            memcpy(part_y.ctypes, part_x.ctypes, (end - begin) * x.itemsize)

    return copy
