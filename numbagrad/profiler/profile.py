"""``profile``: the block whose kernels are timed."""

from __future__ import annotations

import time
from typing import Any

from ..autograd.anomaly import watching
from .events import Timer
from .report import Report

__all__ = ["profile"]


class profile(Report):
    """Time every kernel that the block runs in this thread, eager or inside compiled functions.

    After the block, ``print(p)`` or Jupyter shows where the time went: for each name the calls,
    seconds, bytes, GB/s, GFLOP/s and the share of this machine's limit. ``p.averages()`` gives
    these as objects, ``p.events`` all of them, ``p.export_chrome_trace(path)`` a file. A compiled
    function is compiled once more, so that each group of its instructions is timed; a group costs
    10 ns more. Eager ops take their general path: 5 to 20 us more for each, outside of what is
    timed. Kernels on a GPU are waited for, and programs compiled for one are not looked into. What
    a first call compiles, or loads from the cache, is listed apart: a second one does not.

    >>> from numbagrad import ones, profiler
    >>> x = ones(100, 100)
    >>> with profiler.profile() as p:
    ...     y = (x @ x).relu()
    >>> [e.name for e in p.events if e.kind in ("product", "loop")]
    ['mm', 'relu']
    """

    def __init__(self) -> None:
        super().__init__([], 0.0)

    def __enter__(self) -> profile:
        self._timer = Timer()
        self._blocks = watching(self._timer, "profile"), self._timer.compilations.watch()
        for block in self._blocks:
            block.__enter__()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.seconds += time.perf_counter() - self._start
        for block in reversed(self._blocks):
            block.__exit__(None, None, None)
        self.events += self._timer.finish()
        del self._timer, self._blocks
