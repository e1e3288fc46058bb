"""Random numbers inside of ``vmap``: refused, the same for all elements, or different ones.

The numbers do not depend on whether the function is run once for all elements or for each: a draw
takes counters for all of them, of which each has its own, or all have the first's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ..kernels import machine
from ..kernels.cpu.random import stagger
from .verbs import Batch

Take = Callable[[int], Any]


class Rule(Protocol):
    """What draws go through; see ``random.drawing``."""

    def begin(self, element: int) -> None:
        """An element begins to draw, or with its first one a batch."""

    def of_all(self, batch: Batch, take: Take, generator: Any, counters: int) -> Any:
        """The state of the generator for a draw of all elements."""

    def __call__(self, take: Take, generator: Any, counters: int) -> Any:
        """The state for a draw of the element that has begun."""


class Refused:
    """No draws."""

    def begin(self, element: int) -> None:
        """An element begins."""

    def of_all(self, batch: Batch, take: Take, generator: Any, counters: int) -> Any:
        """Raises RuntimeError."""
        self(take, generator, counters)

    def __call__(self, take: Take, generator: Any, counters: int) -> Any:
        raise RuntimeError(
            "vmap: a random operation was called; say with randomness='different' or 'same' "
            "whether the elements draw numbers of their own, or draw before."
        )


class _Counted:
    """Finds what the same draw of another element has taken, by its number."""

    def __init__(self) -> None:
        self.taken: dict[tuple[Any, int], Any] = {}
        self.counts: dict[Any, int] = {}
        self.element = 0

    def begin(self, element: int) -> None:
        """An element begins."""
        self.element = element
        self.counts.clear()

    def found(self, take: Take, generator: Any, counters: int) -> Any:
        """What the next draw of ``generator`` has taken."""
        number = self.counts.get(generator, 0)
        self.counts[generator] = number + 1
        key = generator, number
        if key not in self.taken:
            self.taken[key] = self.new(take, counters)
        return self.taken[key]

    def new(self, take: Take, counters: int) -> Any:
        """What a draw takes that no element has made yet."""
        raise NotImplementedError


class Same(_Counted):
    """Each element gets the draws of the first."""

    def new(self, take: Take, counters: int) -> Any:
        """The first element's."""
        return take(counters)

    def of_all(self, batch: Batch, take: Take, generator: Any, counters: int) -> Any:
        """One state for all."""
        with batch.beyond():
            return self.found(take, generator, counters)

    def __call__(self, take: Take, generator: Any, counters: int) -> Any:
        return self.found(take, generator, counters)


class Different(_Counted):
    """Each of ``size`` elements has counters of its own, one behind the other's."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = max(size, 1)

    def new(self, take: Take, counters: int) -> Any:
        """How many counters each element has, and all states."""
        first = take(self.size * counters)
        states = machine.empty((self.size, 2), np.dtype(np.int64))
        machine.launch(stagger, states, first, counters)
        return counters, states

    def of_all(self, batch: Batch, take: Take, generator: Any, counters: int) -> Any:
        """The states of the elements from that which has begun."""
        with batch.beyond():
            _, states = self.found(take, generator, counters)
            mine = machine.view(states, (batch.size, 2), (2, 1), 2 * self.element)
        return batch.enter(mine, 0)

    def __call__(self, take: Take, generator: Any, counters: int) -> Any:
        most, states = self.found(take, generator, counters)
        if counters > most:  # it draws more than the first did
            return take(counters)
        return machine.view(states, (2,), (1,), 2 * self.element)


def rule_of(randomness: str, size: int) -> Rule:
    """The rule of an argument of ``vmap``."""
    if randomness == "error":
        return Refused()
    return Same() if randomness == "same" else Different(size)
