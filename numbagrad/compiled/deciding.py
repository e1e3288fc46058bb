"""Captured tensors of ints and bools whose values decide what a recording runs: calls compare them.

``Deciding`` is the part of ``Recorder`` that knows of them. Start reading at ``Deciding.deciding``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import RecordingError
from ..kernels import machine
from ..kernels.loops import ElementwiseKernel
from ..kernels.traced_float import TracedFloat
from ..tape import show_location, user_location
from .traced import (
    Check,
    Launch,
    Memory,
    Ref,
    Traced,
    is_pure,
    refs_of,
    refuse,
    root_of,
    traced,
)

__all__ = ["Deciding"]


def _written(event: Launch) -> set[Memory]:
    """What a kernel that says so writes."""
    outputs = event.args[: getattr(event.kernel, "outputs", 0)]
    return {r.memory for r in refs_of(replace(event, args=outputs))}


class Deciding:
    """What decides, and what is known while a step is recorded."""

    events: list[Launch | Check]
    ref: Callable[[Any], Ref]
    decided: dict[Memory, Any]
    before: frozenset[int]
    lasting: set[int]
    later: bool
    _roots: dict[int, tuple[Any, Memory]]
    _first_writes: Callable[[], dict[Memory, Launch]]
    _memory_of: Callable[[Any], Memory]
    depends: Callable[[Callable[[], Any], Any], None]
    reading: Callable[[str, Any], None]

    def deciding(self, name: str, array: Any) -> bool:
        """Note that the program depends on the values of ``array``, which each call compares.

        Refuses, as ``reading``, what has none yet or is written here; floats, which change; and to
        decide what runs after the call, for that is when the values would be looked at.
        """
        if self.later or not self._may_decide(array):
            self.reading(name, array)
            return True
        memory = self._memory_of(array)
        if memory in self._first_writes():
            refuse(name)
        self.depends(array.tobytes, array.tobytes())
        self.decided.setdefault(memory, (name, user_location()))
        return True

    def _may_decide(self, array: Any) -> bool:
        """Whether ``array`` was there before, and each call can compare its elements."""
        state = id(root_of(array)) in self.before or id(root_of(array)) in self.lasting
        small = type(array) is np.ndarray and array.nbytes <= machine.MOST_COMPARED
        return state and small and array.dtype.kind in "biu"

    def unknown(self, array: Any) -> bool:
        """Whether the elements of ``array`` may be others in each call, and none may decide."""
        root = id(root_of(array))
        met = self._roots.get(root)
        if traced(array) or self.later or (met is not None and met[1] in self._first_writes()):
            return True
        return (root in self.before or root in self.lasting) and not self._may_decide(array)

    def settled(self, array: Any) -> Any:
        """The elements of ``array`` where they are the same in each call, for they are made of
        numbers of the program alone: a mask such as ``~eye(n, dtype=bool)``. None where they are
        not, or are many."""
        if type(array) is not Traced:
            return None
        needed: set[Memory] = {self._memory_of(array)}
        launches: list[Launch] = []
        for event in reversed(self.events):
            if not isinstance(event, Launch):
                continue
            if not (is_pure(event.kernel) or isinstance(event.kernel, ElementwiseKernel)):
                if not needed.isdisjoint([r.memory for r in refs_of(event)]):
                    return None  # which may write it, or draw
            elif not needed.isdisjoint(_written(event)):
                launches.append(event)
                needed |= {r.memory for r in refs_of(event)}
                if any(isinstance(a, (list, TracedFloat)) or callable(a) for a in event.args):
                    return None
        first = {m for event in launches for m in _written(event)}
        made = {m for m in needed if m.kind == "made" and m.device is None and m in first}
        constants = {m for m in needed if m.kind == "constant" and m not in first}
        nbytes = sum(m.size * m.dtype.itemsize for m in made)
        if needed != made | constants or nbytes > machine.MOST_COMPARED:
            return None
        memories = {m: m.array.reshape(-1) for m in constants}
        memories |= {m: np.empty(m.size, m.dtype) for m in made}

        def seen(ref: Any) -> Any:
            if not isinstance(ref, Ref):
                return ref
            return machine.view(memories[ref.memory], ref.shape, ref.strides, ref.offset)

        for event in reversed(launches):
            event.kernel(*map(seen, event.args))
        return seen(self.ref(array)).copy()

    def check_decided(self) -> None:
        """Raise if a value that decided something is written by the same recording."""
        written = self._first_writes()
        for memory, (name, where) in self.decided.items():
            if memory in written:
                raise RecordingError(
                    f"{name}: not possible inside a compiled function, at {show_location(where)}, "
                    f"for a tensor that the function also writes, at "
                    f"{show_location(written[memory].where)}: each call would be another program. "
                    f"Keep one of both out of the compiled function."
                )
