"""What a compiled function sets anew in each call: ``self.h = h.detach()``, say.

A first recording finds what was set (``Found``), and puts it back. The second takes what stands in
these slots for further arguments, and what it leaves there for further results; a call reads the
slots, runs the recording, and writes them. Where tensors end up who holds which is therefore as of
arguments and results. Start reading at ``recorded``.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ..errors import RecordingError, StateMadeError
from ..kernels import machine
from ..kernels.traced_float import Count, TracedFloat
from ..tables import shortened
from ..tensor import Tensor
from ..tree import LEAF, flatten, rebuild
from . import outside
from .carried_text import indented, reading, writing
from .guards import Writer
from .places import ABSENT, Place, containers
from .reasons import changed_guard
from .repeated import first_places
from .slots import Slot, as_now, may_change, remember, same_form
from .spaces import namespaces
from .trace import Found, Recording, record

MISS = object()
"""What a call returns when the entry is not for these arguments."""

_MOST = 5
"""Recordings until no new slot is found."""


@dataclass(frozen=True)
class Recorded:
    """A recording with what it was made of.

    leaves: of the arguments, then of the slots; those numbered in ``bound`` are taken as they are.
    places: Python values that it depends on. tied: whether calls pass none but the arguments.
    carried: None where there are no slots.
    """

    recording: Recording
    leaves: list[Any]
    bound: frozenset[int]
    places: list[Place]
    tied: bool
    carried: Carried | None

    def with_places(self, places: list[Place]) -> Recorded:
        """The same with these places, less those that are slots, and logs."""
        kept = {(id(place.holder), place.name) for place in self.places}
        found = [p for p in places if not p.loose or (id(p.holder), p.name) in kept]
        return replace(self, places=found if self.carried is None else self.carried.places(found))


def recorded(
    function: Callable[..., Any],
    leaves: list[Any],
    spec: Any,
    places: list[Place],
    objects: list[Any],
    slots: list[Slot],
    tied: bool = False,
) -> Recorded:
    """Record ``function``, taking ``slots``, and those that turn up, for arguments.

    tied: take all tensors among the arguments as they are.
    """
    bound: frozenset[int] = frozenset()
    slots = [slot for each in slots if (slot := as_now(each)) is not None]
    for _ in range(_MOST):
        carried = Carried(slots, len(leaves))
        every = [*leaves, *carried.leaves]
        if tied:
            bound = frozenset([k for k, leaf in enumerate(every) if isinstance(leaf, Tensor)])
        try:
            found = _recorded(function, every, spec, bound, places, objects, carried, tied)
        except Found as more:
            slots, bound = [*carried.slots, *more.slots], frozenset()
            continue
        recording = found.recording
        # Gradients of arguments are added to, or read. What the function also knows by itself is
        # then the argument, not a stand-in for it.
        state = {k for k in recording.looked_at if every[k]._grad is not None}
        state |= {k for k in needing(every) if id(every[k]) in recording.closed_over}
        state |= {k for k, j in first_places(every).items() if j in state}
        if state <= bound:
            carried.settle(recording)
            return found
        bound |= state
    raise RecordingError(
        f"compile: the compiled function does something else each time that it is run, such as to "
        f"set {', '.join([slot.name for slot in slots[-1:]])}, which a compiled call would not do. "
        f"Return what it sets."
    )


def _recorded(
    function: Callable[..., Any],
    every: list[Any],
    spec: Any,
    bound: frozenset[int],
    places: list[Place],
    objects: list[Any],
    carried: Carried,
    tied: bool,
) -> Recorded:
    modules = namespaces(function, places, objects)
    if not carried.slots:
        recording = record(function, every, spec, bound, places, objects, frozenset(), modules)
        return Recorded(recording, every, bound, _kept(places), tied, None)
    known = carried.places(places)
    run, form = carried.wrapped(function), carried.spec(spec)
    recording = record(run, every, form, bound, known, objects, carried.locations, modules)
    return Recorded(recording, every, bound, _kept(known), tied, carried)


def _kept(places: list[Place]) -> list[Place]:
    """The places at which calls look: not those that the function has changed as a log."""
    return [place for place in places if not place.loose or place.is_as_it_was()]


def needing(leaves: list[Any]) -> set[int]:
    """The places of the tensors among these that need a gradient."""
    return {k for k, t in enumerate(leaves) if isinstance(t, Tensor) and t._edge is not None}


class Carried:
    """Slots, what stands there while recording, and how a call puts it back.

    first: the number of the first leaf.
    """

    def __init__(self, slots: list[Slot], first: int):
        self.first = first
        self.slots = _apart(slots)
        self.values = [slot.read() for slot in self.slots]
        self.leaves: list[Any] = []
        self.specs, self.parts = [], []
        self.numbers: dict[int, Slot] = {}  # by leaf: where a number is counted
        for slot, value in zip(self.slots, self.values, strict=True):
            begin = len(self.leaves)
            if slot.number is not None:
                if type(value) not in (int, float):
                    kind = StateMadeError if value is None else RecordingError
                    raise kind(
                        f"compile: the compiled function sets {slot.name!r} to a number, where "
                        f"{shortened(repr(value), 40)} stands now. Let it be a number before each "
                        f"call, as it was."
                    )
                self.numbers[begin] = slot
                value = value if slot.number is float else Count(value)
            self.specs.append(flatten(value, self.leaves))
            self.parts.append(slice(begin, len(self.leaves)))
        self.then = list(map(_shown, self.values))
        self.written: list[tuple[Slot, bool]] = []  # and whether inside of the list there
        self.given_back: list[int] = []  # leaves to which a gradient goes

    @property
    def locations(self) -> frozenset[tuple[int, Any]]:
        """The slots by what tells them from others."""
        return frozenset([(id(held), slot.key) for slot in self.slots for held in slot.holders])

    def places(self, places: list[Place]) -> list[Place]:
        """``places`` without the slots."""
        kept = [p for p in places if not any([slot.stands_in(p) for slot in self.slots])]
        taken = self.locations
        return [replace(p, content=containers(p.value, taken)) if p.content else p for p in kept]

    def spec(self, spec: Any) -> Any:
        """The description of the arguments, and the leaves of the slots, for ``wrapped``."""
        args, kwargs = spec[1]
        carried = "tuple", (LEAF,) * len(self.leaves)
        return "tuple", (("tuple", (args, kwargs, carried)), ("dict", ()))

    def wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` of what is to stand in the slots too, with what it has put there."""

        def run(args: tuple, kwargs: dict[str, Any], leaves: tuple) -> Any:
            given = [
                [self._plain(k, each) for k, each in enumerate(leaves)][part] for part in self.parts
            ]
            values = [rebuild(s, list(p)) for s, p in zip(self.specs, given, strict=True)]
            for slot in self.slots:
                if slot.module is not None:
                    vars(slot.module)  # the recording notes what it holds when it is looked at
            try:
                self._write(values)
                returned = function(*args, **kwargs)
                left = [slot.read() for slot in self.slots]
            finally:
                self._write(self.values)
            machine.recorder.current.as_left = functools.partial(self._holding, left)
            return returned, self._set(values, left, given)

        return run

    @contextmanager
    def _holding(self, values: list[Any]) -> Iterator[None]:
        """A block in which ``values`` stand in the slots."""
        try:
            self._write(values)
            yield
        finally:
            self._write(self.values)

    def _plain(self, k: int, leaf: Any) -> Any:
        """Leaf ``k``; the value of a float, which calls compare."""
        if type(leaf) is not TracedFloat:
            return leaf
        if k in self.numbers:
            return leaf
        machine.recorder.current.pinned.add(self.first + k)
        return self.leaves[k]

    def _write(self, values: list[Any]) -> None:
        for slot, value in zip(self.slots, values, strict=True):
            slot.write(value)

    def _set(self, values: list[Any], left: list[Any], given: list[list[Any]]) -> tuple[Any, ...]:
        """What was set of what is ``left`` where ``values`` of the leaves ``given`` stood."""
        self.written = []
        found = []
        for k, (slot, value, new) in enumerate(zip(self.slots, values, left, strict=True)):
            untouched = _is_made_of(value, self.specs[k], given[k])
            if untouched and new is value:
                continue
            if slot.number is not None:
                if slot.seen is not None and type(new) is slot.number and new != slot.seen:
                    raise RecordingError(
                        f"compile: the compiled function sets {slot.name!r} to {slot.seen!r}, and "
                        f"run again to {new!r}: it is of a clock, or of something else, "
                        f"which a compiled call would not ask again. Set it outside."
                    )
                if type(getattr(new, "value", new)) is slot.number:
                    self.written.append((slot, False))
                    found.append(new)
                    continue
                raise RecordingError(
                    f"compile: the compiled function counts {slot.name!r}, and then sets it to "
                    f"{new!r}. Let it be {slot.number.__name__} in each call, as it was."
                )
            # A list that is changed and then replaced is written too: others may hold it.
            left_there = [] if untouched else [(value, True)]
            left_there += [] if new is value else [(new, False)]
            for each, inside in left_there:
                fits = may_change(self.values[k], each) and _is_plain(each)
                if not fits or (inside and not _is_open(each)):
                    raise RecordingError(
                        f"compile: the compiled function changes {slot.name!r} in a way that a "
                        f"compiled call would not repeat. Set it to tensors, as many in each call "
                        f"as before, or return them."
                    )
                self.written.append((slot, inside))
                found.append(each)
        return tuple(found)

    def settle(self, recording: Recording) -> None:
        """Let other recordings know the slots. Raises if backward leads to a graph used up."""
        written = {slot.location for slot, _ in self.written}
        for k, slot in self.numbers.items():
            if slot.location in written and self.first + k in recording.recorder.pinned:
                raise RecordingError(
                    f"compile: the compiled function counts {slot.name!r}, and the count decides "
                    f"something by its value (an index, a slice, a list), which a compiled call "
                    f"would not ask again. Decide outside, or count with a tensor that += changes."
                )
        self.given_back = [k for k in recording.input_grads if k >= self.first]
        self._check_graphs(self.leaves)
        remember(self.slots)
        for slot in self.slots:
            if slot.module is not None and slot.key not in slot.module._carried:
                vars(slot.module)["_carried"] = slot.module._carried | {slot.key}
                if slot.watched:
                    machine.changed()

    def _check_graphs(self, leaves: list[Any]) -> None:
        for k in self.given_back:
            edge = getattr(leaves[k - self.first], "_edge", None)
            if edge is outside.sealed():
                edge._run([])

    def call(
        self,
        run: Callable[[tuple], Any],
        needed: set[int],
        closed_over: frozenset[int],
        passing: bool = False,
    ) -> Callable[[tuple], Any]:
        """What a call does: ``run`` is the call of the recording.

        needed: leaves that need a gradient and must not be one of the tensors ``closed_over``, of
        which the recording uses the gradient by itself. passing: whether values go beside what is
        returned.
        """
        names: dict[str, Any] = {
            "run": run, "MISS": MISS, "ABSENT": ABSENT, "flatten": flatten,
            "same_form": same_form, "closed_over": closed_over, "check": self._check_graphs,
        }  # fmt: skip
        lines = ["def call(given):", "    leaves = [*given]"]
        for k, (slot, spec) in enumerate(zip(self.slots, self.specs, strict=True)):
            names |= {f"slot{k}": slot, f"spec{k}": spec}
            lines += indented(reading(names, k, slot, spec))
        ours = [k for k in needed if k >= self.first] if closed_over else []
        if ours or self.given_back:
            lines.append(f"    if len(leaves) != {self.first + len(self.leaves)}:")
            lines.append("        return MISS")
        for k in ours:
            lines += [f"    if id(leaves[{k}]) in closed_over:", "        return MISS"]
        if self.given_back:
            lines.append(f"    check(leaves[{self.first}:])")
        lines += ["    found = run(tuple(leaves))", "    if found is MISS:", "        return MISS"]
        result = "result, values" if passing else "result"
        lines.append(f"    {'(result, left), values' if passing else 'result, left'} = found")
        for k, (slot, inside) in enumerate(self.written):
            lines += indented(writing(names, k, slot, inside))
        exec("\n".join([*lines, f"    return {result}"]), names)
        self.values, self.leaves = [], []  # they are not needed any more
        return names["call"]

    def name_inputs(self, recording: Recording) -> None:
        """Let errors call what was in the slots by their names."""
        for each in recording.inputs:
            if each.leaf >= self.first:
                each.ref.memory.name = self._owner(each.leaf).name

    def _owner(self, leaf: int) -> Slot:
        ends = [part.stop for part in self.parts]
        return self.slots[bisect.bisect(ends, leaf - self.first)]

    def reason(self, guarded: Writer, leaves: list[Any]) -> str:
        """Why the recording is not for the arguments ``leaves`` and what is in the slots."""
        every = [*leaves]
        for slot, then in zip(self.slots, self.then, strict=True):
            value = slot.read()
            if _shown(value) != then and type(value) is not slot.number:
                return f"{self._called(slot)}: {_shown(value)}, was {then}"
            flatten(value, every)
        found = changed_guard(guarded, every)
        number = re.match(r"argument (\d+) ", found)
        if number is None or int(number[1]) < self.first:
            return found
        called = self._called(self._owner(int(number[1])))
        return f"{called}, shares memory with what it writes or closes over"

    def _called(self, slot: Slot) -> str:
        """What it is, for people."""
        sets = any([slot is each for each, _ in self.written])
        return f"{slot.name!r}, which {'the function sets' if sets else 'others set'}"


def _shown(value: Any) -> str:
    """What calls compare of a value, for people."""
    if isinstance(value, Tensor):
        grad = ", which requires grad" if value._edge is not None else ""
        layout = "" if value._array.flags.c_contiguous else f" by {list(value.stride())}"
        return f"{type(value).__name__} {list(value.shape)}{layout} of {value.dtype}{grad}"
    leaves: list[Any] = []
    spec = flatten(value, leaves)
    if spec == LEAF:
        return shortened(repr(value), 40)
    return f"{type(value).__name__} of {', '.join(map(_shown, leaves))}"


def _apart(slots: list[Slot]) -> list[Slot]:
    """The slots, each once, without those inside of others."""
    found = {slot.location: slot.now() for slot in slots}
    for slot in list(found.values()):
        if type(slot.holders[0]) is list and slot.read() is ABSENT:
            del found[slot.location]
    inside: dict[int, Slot] = {}  # by the id of a list or dict: the slot that holds it
    for slot in found.values():
        for container, _ in containers(slot.read()):
            other = inside.setdefault(id(container), slot)
            if other is not slot:
                raise RecordingError(
                    f"compile: the compiled function changes {other.name!r} and {slot.name!r}, "
                    f"which hold one {type(container).__name__}. Let each have its own."
                )
    return [slot for slot in found.values() if id(slot.holders[0]) not in inside]


def _is_made_of(value: Any, spec: Any, leaves: list[Any]) -> bool:
    """Whether a value that was put into a slot is made of the same parts still."""
    now: list[Any] = []
    form = flatten(value, now)
    return bool(same_form(form, spec) and all([x is y for x, y in zip(now, leaves, strict=True)]))


def _is_open(value: Any) -> bool:
    """Whether a value is a list or dict, and so is all in it that holds something, but for tuples,
    which are written whole."""
    if isinstance(value, (list, dict)):
        return all(map(_is_open, value.values() if isinstance(value, dict) else value))
    return _is_closed(value)


def _is_closed(value: Any) -> bool:
    """Whether a value is a tensor, a number and such, or a tuple of them."""
    return all(map(_is_closed, value)) if type(value) is tuple else flatten(value, []) is LEAF


def _is_plain(value: Any) -> bool:
    """Whether the tensors in a value that were made meanwhile are of no class of their own."""
    leaves: list[Any] = []
    flatten(value, leaves)
    recorder = machine.recorder.current
    known = recorder.others | recorder.arguments.keys()
    made = [t for t in leaves if isinstance(t, Tensor) and id(t) not in known]
    return all([type(t) is Tensor for t in made])
