"""What a twin launches, remembered for arguments of the same kind.

A twin is Python: it chooses kernels, grids and numbers from shapes, strides, dtypes and numbers,
and takes longer than the launches. Where it does nothing but launch kernels on its arguments, on
views of them, and on memory that it asks for on the way, a later call with arguments of the same
kind launches the same, with other addresses. Start reading at ``run``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

from ... import backend, precision
from . import device, launch
from .allocator import ROUND
from .array import DeviceArray
from .shape import SIMULATED

__all__ = ["Plan", "Watch", "forget", "plan_of", "run"]

MOST = 64
"""Kinds of arguments that are remembered of a kernel."""

MOST_KERNELS = 1024
"""Kernels that are remembered: those of a user's formulas may come and go."""

MOST_BYTES = 1 << 26
"""What calls that are remembered ask for at the most: it is theirs to the end, where Python would
give back some of it on the way, and kernels may do with less where there is not as much."""

PATIENCE = 2
"""How often a kernel may have had too many kinds, such as a number that is new in each call, before
it is left alone."""

_NUMBERS = (int, float, bool, str, type(None))


class _Launch:
    """One launch: its kernel, its numbers, and where its addresses come from.

    sources: (position, argument or ~(memory asked for), bytes from its first element).
    """

    def __init__(self, kernel: Any, grid: Any, block: Any, shared: int, args: tuple[Any, ...]):
        self.kernel, self.grid, self.block, self.shared = kernel, grid, block, shared
        self.kinds = [launch.kind_of(a) for a in args]
        self.values: list[Any] = [0 if type(a) is DeviceArray else a for a in args]
        self.sources: list[tuple[int, int, int]] = []
        self.launchers: dict[Any, Callable[..., None]] = {}
        self.kept: list[DeviceArray] = []

    def keep(self, position: int, table: DeviceArray) -> None:
        """Launch on this very ``table`` each time."""
        self.values[position] = table.pointer
        self.kept.append(table)

    def start(self, args: Sequence[Any], asked: list[DeviceArray], queue: Any) -> None:
        """Launch on the arrays of a call."""
        values = self.values.copy()
        for position, source, offset in self.sources:
            array = args[source] if source >= 0 else asked[~source]
            values[position] = array.pointer + offset
        launcher = self.launchers.get((get_ident(), queue))
        if launcher is None:
            if len(self.launchers) >= MOST:
                self.launchers.clear()
            launcher = launch.launcher_of(
                self.kernel, self.kinds, self.grid, self.block, self.shared, queue
            )
            self.launchers[get_ident(), queue] = launcher
        for table in self.kept:
            launch.note_memory(table.memory, queue)
        launcher(*values)


class Watch:
    """What is noted while Python runs.

    other: whether it did what cannot be done again so. checks: flags that the host looks at when it
    next waits, and what it then calls.
    """

    def __init__(self) -> None:
        self.launched: list[tuple[Any, Any, Any, int, tuple[Any, ...]]] = []
        self.asked: list[DeviceArray] = []
        self.checks: list[tuple[DeviceArray, Callable[[int], None]]] = []
        self.other = False


class Plan:
    """The launches of Python for arguments of one kind."""

    def __init__(self, launches: list[_Launch], asked: list[DeviceArray]):
        self.launches = launches
        self.asked = [DeviceArray(None, 0, a.shape, a.dtype, a.device) for a in asked]
        self.shared: list[tuple[list[int], list[int], int]] = []

    def share(self, places: Sequence[int]) -> None:
        """Let arrays that are asked for have one piece of memory, and live as long as each other:
        to ask takes as long as to launch."""
        if len(places) > 1:
            offsets, size = [], 0
            for k in places:
                offsets.append(size)
                size += -(-self.asked[k].nbytes // ROUND) * ROUND
            self.shared.append((list(places), offsets, size))

    def _memory(self) -> list[DeviceArray]:
        """Arrays as those that were asked for."""
        if not self.shared:
            return [device.another(like) for like in self.asked]
        asked: list[Any] = [None] * len(self.asked)
        for places, offsets, size in self.shared:
            memory = device.memory(size)
            for k, offset in zip(places, offsets, strict=True):
                asked[k] = self.asked[k].elsewhere(memory, memory.address + offset)
        return [
            device.another(a) if b is None else b for a, b in zip(self.asked, asked, strict=True)
        ]

    def run(self, args: Sequence[Any]) -> list[DeviceArray]:
        """Launch on the arrays of a call; the memory asked for, in the order it was."""
        queue = device.current_queue()
        for a in args:
            if a.__class__ is DeviceArray and a.memory.stream is not queue:
                launch.note_memory(a.memory, queue)
        asked = self._memory()
        for each in self.launches:
            each.start(args, asked, queue)
        return asked


class _Kinds:
    """The plans of one kernel."""

    def __init__(self) -> None:
        self.plans: dict[tuple[Any, ...], Plan | None] = {}  # None: it cannot be remembered
        self.strikes = 0

    def keep(self, key: tuple[Any, ...], plan: Plan | None) -> None:
        if len(self.plans) >= MOST:
            self.plans.clear()
            self.strikes += 1
        self.plans[key] = plan


_kernels: dict[Any, _Kinds] = {}


def forget() -> None:
    """Forget all launches, where what twins choose has changed."""
    _kernels.clear()


def _key(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What a twin's launches depend on, but for addresses; None for other arguments."""
    key: list[Any] = [precision.float32_products]
    memories: dict[int, tuple[int, int]] = {}
    for a in args:
        kind = a.__class__
        if kind is DeviceArray:
            pointer = a.pointer
            key += (a.shape, a.strides, a.dtype)
            first = memories.get(id(a.memory))
            if first is None:
                memories[id(a.memory)] = len(memories), pointer
                key.append(pointer & 15)
            else:  # where it lies from another argument in the same memory
                key += (first[0], pointer - first[1], pointer & 15)
        elif kind in _NUMBERS:
            key += (kind, a)
        else:
            return None
    return tuple(key)


def run(twin: Callable[..., None], args: tuple[Any, ...]) -> None:
    """Run ``twin``, or what it launched for arguments like these."""
    if SIMULATED or backend.products != "numba" or device.watch() is not None:
        twin(*args)
        return
    kinds = _kernels.get(twin)
    if kinds is None:
        if len(_kernels) >= MOST_KERNELS:
            _kernels.clear()
        kinds = _kernels[twin] = _Kinds()
    key = _key(args) if kinds.strikes < PATIENCE else None
    plan = None if key is None else kinds.plans.get(key, _unknown)
    if plan is None:
        twin(*args)
    elif plan is _unknown:
        kinds.keep(key, _watched(twin, args))  # type: ignore[arg-type]
    else:
        plan.run(args)


_unknown: Any = object()


def _watched(twin: Callable[..., None], args: tuple[Any, ...]) -> Plan | None:
    """Run ``twin``; how to do the same again, or None."""
    watch = Watch()
    with device.watching(watch):
        twin(*args)
    return None if watch.checks else plan_of(watch, args)


def plan_of(watch: Watch, args: Sequence[Any]) -> Plan | None:
    """How to do again what was noted while Python ran on ``args``, or None."""
    if watch.other or sum([a.nbytes for a in watch.asked]) > MOST_BYTES:
        return None
    places = {id(a.memory): ~k for k, a in reversed(list(enumerate(watch.asked)))}
    for k in reversed(range(len(args))):
        if type(args[k]) is DeviceArray:
            places[id(args[k].memory)] = k
    launches = []
    for kernel, grid, block, shared, given in watch.launched:
        each = _Launch(kernel, grid, block, shared, given)
        for position, a in enumerate(given):
            if type(a) is DeviceArray:
                source = places.get(id(a.memory))
                if source is None:
                    if not a.memory.lasting:
                        return None
                    each.keep(position, a)
                    continue
                array = args[source] if source >= 0 else watch.asked[~source]
                each.sources.append((position, source, a.pointer - array.pointer))
            elif type(a) not in _NUMBERS:
                return None
        launches.append(each)
    return Plan(launches, watch.asked)
