"""Which whole numbers among the arguments count, as a step or an epoch does: calls pass them.

A whole number belongs to the signature, for it may be a size, an index or a mode. One of which
several values were recorded is then taken as a float is; where its value decides something, or too
many conditions of it do, it belongs to the signature again, for good. Start at ``Counting``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..kernels.traced_float import Count

__all__ = ["Counting", "Decided"]

VALUES = 2
"""Values of one argument that are recorded before one more is taken for any."""


class Decided(Exception):
    """A number that was passed decides something by its value: it is not passed any more."""


class Counting:
    """What a compiled function knows of its whole numbers, by form and place of the arguments."""

    def __init__(self) -> None:
        self._recorded: dict[tuple[Any, int], set[int]] = {}
        self._passed: set[tuple[Any, int]] = set()
        self._deciding: set[tuple[Any, int]] = set()

    def marked(self, spec: Any, leaves: Iterable[Any]) -> list[Any]:
        """The arguments, with a ``Count`` for each number that calls pass."""
        if not self._passed:
            return list(leaves)
        return [
            Count(leaf) if type(leaf) is int and (spec, k) in self._passed else leaf
            for k, leaf in enumerate(leaves)
        ]

    def note(self, spec: Any, leaves: list[Any]) -> bool:
        """Note the numbers of which a recording is to be made; whether some are passed from now."""
        found = False
        for k, leaf in enumerate(leaves):
            place = spec, k
            if type(leaf) is not int or place in self._deciding:
                continue
            values = self._recorded.setdefault(place, set())
            if leaf not in values and len(values) >= VALUES:
                self._passed.add(place)
                found = True
            values.add(leaf)
        return found

    def decide(self, spec: Any, places: Iterable[int]) -> None:
        """Let numbers belong to the signature. Raises Decided if there are any."""
        decided = {(spec, k) for k in places}
        if decided:
            self._passed -= decided
            self._deciding |= decided
            raise Decided


def counts(leaves: list[Any]) -> set[int]:
    """The places of the numbers that are passed."""
    return {k for k, leaf in enumerate(leaves) if type(leaf) is Count}
