"""How many threads kernels use: the layer that Numba's pool stands on, and its size."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable

import llvmlite.binding
import numba
import numpy as np

__all__ = ["set_threads", "threads", "when_threads_change"]


@functools.cache
def _choose_threading_layer() -> None:
    """Prefer tbb: its launches are the cheapest, it survives fork and concurrent callers.

    pip puts libtbb where the loader does not look, so it is loaded by hand, once, before Numba
    starts its threads. Not with one processor: at its end a process that has forked would wait for
    ever for tbb's task group, which has no other thread to run in.
    """
    if sys.platform.startswith("linux"):
        if len(os.sched_getaffinity(0)) == 1 and numba.config.THREADING_LAYER == "default":
            numba.config.THREADING_LAYER = "workqueue"
            return
        for name in (os.path.join(sys.prefix, "lib", "libtbb.so.12"), "libtbb.so.12"):
            try:
                ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
                break
            except OSError:
                continue


def threads() -> int:
    """Number of threads that kernels use; starts the thread pool on its first call."""
    return _counting_threads()()


@functools.cache
def _counting_threads() -> Callable[[], int]:
    """Numba's own way to count, past the lock that it takes to see whether there is a pool."""
    _choose_threading_layer()
    numba.get_num_threads()
    from numba.np.ufunc import parallel

    from .pieces import crew_places

    crew_places[2] = llvmlite.binding.address_of_symbol("get_num_threads")
    return parallel._get_num_threads


def set_threads(n: int) -> None:
    """Let kernels, and LAPACK, use ``n`` threads, from 1 to the number the process started with."""
    from . import machine
    from .blas_library import limit_threads

    _choose_threading_layer()
    most = numba.config.NUMBA_NUM_THREADS
    if not isinstance(n, (int, np.integer)) or not 1 <= n <= most:
        raise ValueError(
            f"set_num_threads: expected an int from 1 to {most}, the number this process started "
            f"with, got {n!r}. NUMBA_NUM_THREADS sets it before Python starts."
        )
    numba.set_num_threads(n)
    limit_threads(n)
    machine.changed()  # compiled steps choose by the number of threads
    for tell in when_threads_change:
        tell()


when_threads_change: list[Callable[[], None]] = []
"""Called when the number of threads has been set: by operations that keep what depends on it."""
