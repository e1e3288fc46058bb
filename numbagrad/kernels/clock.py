"""The processor's own clock, for timing inside of compiled code: reading it takes about 10 ns.

Its rate is not told anywhere that all systems have; ``Clock`` compares it with Python's.
"""

from __future__ import annotations

import platform
import time

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils

from .inner import intrinsic
from .machine import kernel

__all__ = ["Clock", "ticks"]

# LLVM's "cycles" are the constant-rate counter on x86; on ARM only the other one may be read.
_COUNTER = (
    "llvm.readcyclecounter"
    if platform.machine().lower() in ("x86_64", "amd64", "x86")
    else "llvm.readsteadycounter"
)


@intrinsic
def _ticks(typing):
    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(64), [])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, _COUNTER), [])

    return types.int64(), generate


if config.DISABLE_JIT:

    def ticks():
        """What the clock says now."""
        return time.perf_counter_ns()
else:
    ticks = _ticks


@kernel
def _read(out):
    """out (1,) int64: the clock."""
    out[0] = ticks()


class Clock:
    """Turns ticks into what ``time.perf_counter`` says: two readings give the rate."""

    def __init__(self) -> None:
        self._first = self._now()

    def _now(self) -> tuple[int, float]:
        out = np.empty(1, np.int64)
        readings = []
        for _ in range(5):  # the first compiles; the one that took least is right
            before = time.perf_counter()
            _read(out)
            after = time.perf_counter()
            readings.append((after - before, int(out[0]), (before + after) / 2))
        _, at, seconds = min(readings)
        return at, seconds

    def seconds(self) -> tuple[float, float]:
        """(rate, offset) with ``seconds = rate * ticks + offset``; wait 1 ms first if need be."""
        at, seconds = self._now()
        while seconds - self._first[1] < 1e-3:
            at, seconds = self._now()
        rate = (seconds - self._first[1]) / (at - self._first[0])
        return rate, seconds - rate * at
