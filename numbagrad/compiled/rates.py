"""How fast this machine moves bytes and multiplies: measured once in a process, on first use."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import config

from ..kernels.cpu import matmul
from ..kernels.intrinsics import wide
from ..kernels.machine import kernel, threads

__all__ = ["Rates", "cache_bytes", "rates"]

FLOPS = 32
"""Of one element of ``polynomial``."""


@dataclass(frozen=True)
class Rates:
    """Bytes a second (read and written) from memory and from cache; flops a second of a product of
    two 512 x 512 float32 matrices, and of a float32 loop."""

    memory: float
    cache: float
    products: float
    loops: float
    threads: int

    def __str__(self) -> str:
        return (
            f"{self.memory / 1e9:.3g} GB/s from memory, {self.cache / 1e9:.3g} GB/s from cache, "
            f"{self.products / 1e9:.3g} GFLOP/s in products, {self.loops / 1e9:.3g} GFLOP/s in "
            f"loops, {self.threads} thread{'s' if self.threads > 1 else ''}"
        )


def rates() -> Rates:
    """This machine's rates, with the number of threads that is set now."""
    return _measured(threads())


def cache_bytes() -> int:
    """Size of the second-level cache, or 1 MiB where the system does not tell."""
    try:
        return os.sysconf("SC_LEVEL2_CACHE_SIZE") or 2**20
    except (ValueError, OSError, AttributeError):
        return 2**20


@kernel
def copies(out, x, times):
    """out, x (n,) C; ``times`` passes over both. The sum keeps it from becoming a memcpy."""
    for t in range(times):
        for i in range(x.size):
            out[i] = x[i] + np.float32(t)


@kernel
def polynomial(out, x, times):
    """out, x (n,) C; FLOPS operations an element, ``times`` times."""
    wide()
    for _ in range(times):
        for i in range(x.size):
            a = x[i]
            value = a
            for _ in range(16):
                value = value * a + np.float32(0.5)
            out[i] = value


@functools.cache
def _measured(count: int) -> Rates:
    # 32 MiB, more than caches hold. As Python, without the JIT, these loops would take 15 s.
    many, some, few, times = (9, 9, 6, 1) if config.DISABLE_JIT else (23, 14, 11, 32)
    large = np.ones(2**many, np.float32)
    moved = _best(copies, (np.zeros_like(large), large, 1))
    near = np.ones(2**some, np.float32)
    kept = _best(copies, (np.zeros_like(near), near, times))
    square = np.ones((512, 512), np.float32)
    multiplied = _best(matmul.mm, (np.empty_like(square), square, square, 0, 0, 0))
    small = np.full(2**few, 0.5, np.float32)
    computed = _best(polynomial, (np.empty_like(small), small, times))
    return Rates(
        memory=2 * large.nbytes / moved,
        cache=2 * near.nbytes * times / kept,
        products=2 * 512**3 / multiplied,
        loops=small.size * times * FLOPS / computed,
        threads=count,
    )


def _best(run: Callable[..., None], args: tuple) -> float:
    """The shortest of a few runs in seconds, after one that loads code and touches memory."""
    run(*args)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        run(*args)
        seconds.append(time.perf_counter() - start)
    return min(seconds)
