"""Generators of Python and NumPy: what they draw while a function is recorded no call would draw.

Their numbers would be the same ones in every call, so a recording that moved one is refused. Start
reading at ``check_undrawn``.
"""

from __future__ import annotations

import pickle
import random
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ..errors import RecordingError

__all__ = ["DrawError", "check_undrawn", "generators_of"]


class DrawError(RecordingError):
    """A generator has moved while a function was recorded."""


class Held:
    """A generator, what it is called, and the state in which it was found."""

    def __init__(self, called: str, read: Callable[[], Any], write: Callable[[Any], Any]):
        self.called, self._read, self._write = called, read, write
        self._state = read()
        self._bytes = pickle.dumps(self._state)

    def moved(self) -> bool:
        """Whether numbers were drawn."""
        return pickle.dumps(self._read()) != self._bytes

    def put_back(self) -> None:
        """Let it draw again what was drawn; not where that may have been another thread."""
        if self.moved() and threading.active_count() == 1:
            self._write(self._state)


def generators_of(values: Iterable[Any]) -> list[Held]:
    """The global generators, and those among ``values``."""
    found = [Held("random", random.getstate, random.setstate)]
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is None:
        return found
    found.append(Held("numpy.random", numpy_random.get_state, numpy_random.set_state))
    for value in {id(value): value for value in values}.values():
        if isinstance(value, random.Random):
            found.append(Held("a random.Random", value.getstate, value.setstate))
        elif isinstance(value, numpy_random.RandomState):
            found.append(Held("a RandomState of NumPy", value.get_state, value.set_state))
        elif isinstance(value, numpy_random.Generator):
            read = partial(getattr, value.bit_generator, "state")
            write = partial(setattr, value.bit_generator, "state")
            found.append(Held("a Generator of NumPy", read, write))
    return found


def cause_of(error: BaseException, generators: list[Held]) -> DrawError | None:
    """Why one of our errors may have come up, as that a list that was shuffled is no index: what
    was drawn is there, and nothing that it is made of."""
    ours = type(error).__module__ == RecordingError.__module__
    if ours and not isinstance(error, RecordingError):
        try:
            check_undrawn(generators)
        except DrawError as drawn:
            return drawn
    return None


def check_undrawn(generators: list[Held]) -> None:
    """Raise DrawError if one has moved: the function drew from it, or another thread did."""
    for held in generators:
        if held.moved():
            raise DrawError(
                f"compile: the compiled function draws random numbers from {held.called}; every "
                f"call would use those of the recording. Draw with ng.rand and its kin, or before "
                f"the call, and pass them as arguments: a float may be another in each call."
            )
