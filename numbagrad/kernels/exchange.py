"""Functions of ours in the place of Numba's, for as long as our kernels compile.

An ``Exchange`` is a list of attributes and what stands there meanwhile: see ``quick_numba.py``.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Exchange", "Part"]

Part = tuple[Any, str, Any]
"""An object, one of its attributes, and what it is meanwhile."""


class Exchange:
    """Attributes with other values; blocks may be inside one another, and in threads.

    known: whether the version that the parts are written for is here. Otherwise nothing is
    exchanged, and ``make``, which imports what it takes them from, is not called. No two exchanges
    may have a part in common.
    """

    def __init__(self, known: Callable[[], bool], make: Callable[[], tuple[Part, ...]]):
        self._make = make
        self._known = known
        self._lock = threading.Lock()
        self._depth = 0
        self._before: list[Part] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew_lock)

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:
        """What is exchanged."""
        return self._make()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._depth == 0 and self._known():
                self._before[:] = [
                    (owner, name, vars(owner)[name]) for owner, name, _ in self.parts
                ]
                for owner, name, value in self.parts:
                    setattr(owner, name, value)
            self._depth += 1
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0:
                    while self._before:
                        setattr(*self._before.pop())

    def _renew_lock(self) -> None:
        """In the child of a fork: another thread of the parent may have held it."""
        self._lock = threading.Lock()
