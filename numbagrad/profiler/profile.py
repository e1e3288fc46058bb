"""``profile``: the block whose kernels are timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from ..autograd.anomaly import watching
from .events import Timer
from .report import Report
from .schedule import ProfilerAction

__all__ = ["profile"]

RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


class profile(Report):
    """Time every kernel that the block runs in this thread, eager or inside compiled functions.

    After the block, ``print(p)`` or Jupyter shows where the time went: for each name the calls,
    seconds, bytes, GB/s, GFLOP/s and the share of this machine's limit. ``p.averages()`` gives
    these as objects, ``p.events`` all of them, ``p.export_chrome_trace(path)`` a file. A compiled
    function is compiled once more, so that each group of its instructions is timed; a group costs
    10 ns more. Eager ops take their general path: 5 to 20 us more for each, outside of what is
    timed. Kernels on a GPU are waited for, and programs compiled for one are not looked into. What
    a first call compiles, or loads from the cache, is listed apart: a second one does not.

    schedule: which steps are recorded, ``step()`` telling where each begins; see
    ``profiler.schedule``. on_trace_ready: called with this object where it says so, and at the end.
    acc_events: keep the events of all rounds of a schedule, not the last one's. activities: any of
    CPU and CUDA; record_shapes, with_stack, with_flops: shapes, lines and flops are there in any
    case; use_cuda changes nothing. Raises ValueError for PyTorch's other options, of what is not
    written down.

    >>> from numbagrad import ones, profiler
    >>> x = ones(100, 100)
    >>> with profiler.profile() as p:
    ...     y = (x @ x).relu()
    >>> [e.name for e in p.events if e.kind in ("product", "loop")]
    ['mm', 'relu']
    """

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Any = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        for name, value in {
            "profile_memory": profile_memory,
            "with_modules": with_modules,
            "experimental_config": experimental_config,
            "execution_trace_observer": execution_trace_observer,
            "custom_trace_id_callback": custom_trace_id_callback,
            "post_processing_timeout_s": post_processing_timeout_s,
        }.items():
            if value:
                raise ValueError(
                    f"profile: {name} is not written down here, got {name}={value!r}. Leave it out."
                )
        for each in activities or ():
            if getattr(each, "name", each) not in ("CPU", "CUDA"):
                raise ValueError(f"profile: activities are CPU and CUDA, got {each!r}.")
        super().__init__([], 0.0)
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self._schedule, self._adds = schedule, acc_events or schedule is None
        self._action = ProfilerAction.NONE
        self._timer: Timer | None = None

    def _planned(self) -> ProfilerAction:
        if self._schedule is None:
            return ProfilerAction.RECORD
        return self._schedule(self.step_num)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, as at the start of the block."""
        self._go_on(self._planned())

    def stop(self) -> None:
        """End, as at the end of the block; what is being recorded is handed over."""
        self._go_on(ProfilerAction.NONE, over=True)

    def step(self) -> None:
        """The next step of the program begins: do what the schedule says."""
        self.step_num += 1
        self._go_on(self._planned())

    def _go_on(self, action: ProfilerAction, over: bool = False) -> None:
        before, self._action = self._action, action
        ends = before is ProfilerAction.RECORD_AND_SAVE or over
        if before not in RECORDING or (ends or action not in RECORDING):
            self._finish(before in RECORDING)
            if before in RECORDING and self.on_trace_ready is not None:
                self.on_trace_ready(self)
            if action is not ProfilerAction.NONE:
                self._watch()

    def _watch(self) -> None:
        self._timer = Timer()
        self._blocks = watching(self._timer, "profile"), self._timer.compilations.watch()
        for block in self._blocks:
            block.__enter__()
        self._start = time.perf_counter()

    def _finish(self, kept: bool) -> None:
        """Look away; keep what was seen if it is ``kept``."""
        if self._timer is None:
            return
        seconds = time.perf_counter() - self._start
        for block in reversed(self._blocks):
            block.__exit__(None, None, None)
        found = self._timer.finish()
        self._timer = None
        del self._blocks
        if kept:
            self.seconds = seconds + (self.seconds if self._adds else 0.0)
            self.events = [*self.events, *found] if self._adds else found
