"""``record_function``: a part of a program with a name of its own in a profile."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from ..kernels import machine
from ..tape import grad_mode
from .events import Event, Timer

__all__ = ["record_function"]


class record_function:
    """Call what runs in the block, or in the function that it decorates, ``name`` in profiles.

    It has a row and an event of kind "region", whose time is in those of the kernels too. Inside of
    a compiled function, whose Python runs once, it does nothing. args: not shown.

    >>> with profiler.profile() as p, profiler.record_function("doubling"):
    ...     y = ng.ones(3) * 2
    >>> [e.name for e in p.events if e.kind == "region"]
    ['doubling']
    """

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self._starts: list[float] = []

    def __enter__(self) -> record_function:
        self._starts.append(time.perf_counter())
        return self

    def __exit__(self, *exception: Any) -> None:
        start, timer = self._starts.pop(), grad_mode.anomaly
        if isinstance(timer, Timer) and not machine.is_compiling():
            seconds = time.perf_counter() - start
            timer.events.append(Event(self.name, "region", None, start, seconds))

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)

        return called
