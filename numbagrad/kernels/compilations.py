"""What Numba compiles or finds on disk, from outside: for profiles, ``warmup`` and benchmarks.

Start reading at ``Compilations``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from numba.core import event

from . import store

__all__ = ["Compilation", "Compilations"]


class Compilation(NamedTuple):
    """One signature of a function. start: as of ``time.perf_counter``."""

    name: str
    start: float
    seconds: float


class Compilations(event.Listener):
    """Remembers what Numba compiles in the thread that made it; callees count with callers.

    found: in the order in which they ended. loaded: code that a file on disk had instead.
    seconds: of all of both.
    """

    def __init__(self) -> None:
        self.found: list[Compilation] = []
        self.loaded: list[Compilation] = []
        self.seconds = 0.0
        self._thread = threading.get_ident()
        self._started: list[float] = []

    @contextmanager
    def watch(self) -> Iterator[Compilations]:
        """Numba and our cache tell this object, while in the block."""
        store.listeners.append(self.on_load)
        try:
            with event.install_listener("numba:compile", self):
                yield self
        finally:
            store.listeners.remove(self.on_load)

    def on_load(self, name: str, start: float) -> None:
        """The code of ``name`` came from disk; looking for it began at ``start``."""
        if threading.get_ident() == self._thread and not self._started:
            self.loaded.append(Compilation(name, start, time.perf_counter() - start))
            self.seconds += self.loaded[-1].seconds

    def on_start(self, event: Any) -> None:
        """A compilation begins."""
        if threading.get_ident() == self._thread:
            self._started.append(time.perf_counter())

    def on_end(self, event: Any) -> None:
        """A compilation has ended."""
        if threading.get_ident() != self._thread or not self._started:
            return
        start = self._started.pop()
        if not self._started:
            name = event.data["dispatcher"].py_func.__name__
            self.found.append(Compilation(name, start, time.perf_counter() - start))
            self.seconds += self.found[-1].seconds
