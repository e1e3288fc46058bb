"""``profile``: the block whose kernels are timed."""

from __future__ import annotations

import time
from typing import Any

from numba.core import event as numba_event

from ..errors import RecordingError
from ..kernels import machine
from ..tape import grad_mode, show_location, standing_behind, user_location
from .events import Compilations, Timer
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
    a first call compiles is listed apart: for the rest profile a second one.

    >>> from numbagrad import ones, profiler
    >>> x = ones(100, 100)
    >>> with profiler.profile() as p:
    ...     y = (x @ x).relu()
    >>> [e.name for e in p.events if e.kind != "compile"]
    ['mm', 'relu']
    """

    def __init__(self) -> None:
        super().__init__([], 0.0)

    def __enter__(self) -> profile:
        if machine.is_recording() and grad_mode.anomaly is None:
            raise RecordingError(
                "profile: not possible inside a compiled function, at "
                f"{show_location(user_location())}: call the compiled function inside profile."
            )
        self._timer = Timer()
        self._listener = Compilations(self._timer)
        self._held = grad_mode.anomaly
        self._inside = standing_behind(self._timer)
        self._inside.__enter__()
        grad_mode.anomaly = self._timer
        machine.watched_by(1)
        numba_event.register("numba:compile", self._listener)
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.seconds += time.perf_counter() - self._start
        numba_event.unregister("numba:compile", self._listener)
        grad_mode.anomaly = self._held
        self._inside.__exit__(None, None, None)
        machine.watched_by(-1)
        self.events += self._timer.finish()
        del self._timer, self._listener, self._held, self._inside
