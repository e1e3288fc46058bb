"""Version counters that native code moves: those of all memory that a call writes, in one pass.

In Python ``counter.value += 1; counter.where = line`` takes 80 ns, and a step has one for each
parameter; ``table.move_counts`` takes 10. The slots of a counter lie at fixed distances from
its start, which are found by looking for a mark in a living one. Start reading at ``words``.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import numba

from ..tape import Counter

Move = tuple[Counter, int, Any]
"""A counter, how far it moves, and the line that it then names."""


def words(moves: list[Move]) -> list[int]:
    """What ``move_counts`` needs of each: addresses of value and line, amount, id of the line."""
    value, where = _distance("value"), _distance("where")
    assert value is not None and where is not None
    found = []
    for counter, by, line in moves:
        found += [id(counter) + value, by, id(counter) + where, id(line)]
    return found


WORDS = 4
"""Places of the table for each counter."""


@functools.cache
def native_counts() -> bool:
    """Whether native code can move counters; else Python does.

    It needs compiled code, objects that start at their id, and an interpreter lock.
    """
    known = sys.implementation.name == "cpython" and not numba.config.DISABLE_JIT
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    return known and locked and None not in (_distance("value"), _distance("where"))


@functools.cache
def _distance(name: str) -> int | None:
    """Bytes from the start of a counter to a slot; None if that is not one certain place."""
    counter, mark = Counter(), object()
    setattr(counter, name, mark)
    size = Counter.__basicsize__ // 8
    held = list((ctypes.c_ssize_t * size).from_address(id(counter)))
    return 8 * held.index(id(mark)) if held.count(id(mark)) == 1 else None
