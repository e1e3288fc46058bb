"""What functions and ops launched on a GPU, done again for arguments of the same kinds.

The GPU's side of ``remembered.py`` and ``op_memory.py``: of the same functions, on the same terms.
The second call of a kind is watched, by ``_DeviceWatcher`` for what it says to the verbs and by
``again.py`` for what is launched; those that follow ask for memory, launch, and make their results,
without the checks, sizes and views in between. Start reading at ``AwayMemory.call``.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from ..dtypes import DType
from ..kernels import machine
from ..kernels.cuda.runtime.array import DeviceArray
from ..kernels.cuda.runtime.shape import SIMULATED
from ..kernels.loops import ElementwiseKernel
from ..tape import grad_mode, standing_behind
from ..tensor import Tensor
from .device_kinds import kind_of
from .plans import TENSORS, is_constant

__all__: list[str] = []  # nothing that users call

MOST = 256
"""Kinds of calls that are remembered of a function."""

PATIENCE = 4
"""How often there may be more, before the function is left alone."""

_new = object.__new__
_absent: Any = object()


class _DeviceWatcher:
    """Stands behind the verbs during one call, and runs what they say.

    possible: whether the call can be done again; written: arrays that it wrote.
    """

    compiles = records = False

    def __init__(self) -> None:
        self.possible = True
        self.written: list[DeviceArray] = []

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, device: Any) -> Any:
        """New memory."""
        if device is None or device.type == "cpu":
            self.possible = False
            return np.empty(shape, dtype)
        return machine.away.empty(shape, dtype, device)

    def launch(self, kernel: Any, args: tuple[Any, ...]) -> None:
        """Run ``kernel``."""
        if not machine.away.run(kernel, args):
            self.possible = False
            kernel(*args)
            return
        if not isinstance(kernel, (machine.Kernel, ElementwiseKernel)):
            self.possible = False
            return
        self.written += [a for a in args[: kernel.outputs] if type(a) is DeviceArray]

    def check(self, flag: Any, fail: Callable[[int], None]) -> None:
        """Look at a flag later, at each call."""
        if type(flag) is DeviceArray:
            machine.away.check_later(flag, fail)
        elif flag[0] >= 0:
            fail(int(flag[0]))
        else:
            self.possible = False

    def _cannot(self, *_: Any) -> bool:
        self.possible = False
        return False

    reading = deciding = depends = outside = undo = bind = warns = table = _cannot
    carrying = reading_options = passes = afterwards = is_new = unchanged = _cannot
    set_data = set_sizes = counts_from_start = adopt = accumulating = gradients = late = _cannot


@dataclass(frozen=True)
class _View:
    """An array on the memory of an argument or, ``~source``, of what was asked for.

    offset: in bytes, from the first element of that.
    """

    source: int
    offset: int
    like: DeviceArray

    def of(self, args: Sequence[DeviceArray], asked: Sequence[DeviceArray]) -> DeviceArray:
        """The array of one call."""
        like, source = self.like, self.source
        array = args[source] if source >= 0 else asked[~source]
        if not self.offset and array.shape == like.shape and array.strides == like.strides:
            return array
        return like.elsewhere(array.memory, array.pointer + self.offset)


class _Places:
    """Where the arrays of a watched call lie."""

    def __init__(self, args: Sequence[DeviceArray], asked: Sequence[DeviceArray]):
        self.args, self.asked = args, asked
        self.of_memory = {id(a.memory): ~k for k, a in reversed(list(enumerate(asked)))}
        self.of_memory |= {id(a.memory): k for k, a in reversed(list(enumerate(args)))}

    def view(self, array: Any) -> _View | None:
        """``array`` as it is found in other calls, or None."""
        if type(array) is not DeviceArray:
            return None
        source = self.of_memory.get(id(array.memory))
        if source is None:
            return None
        first = self.args[source] if source >= 0 else self.asked[~source]
        like = DeviceArray(None, 0, array.shape, array.dtype, array.device, array.strides)
        return _View(source, array.pointer - first.pointer, like)

    def value(self, value: Any) -> Any:
        """``value`` with views for arrays; ``_absent`` if it is another in each call."""
        if type(value) is DeviceArray:
            return self.view(value) or _absent
        if type(value) is tuple:
            found = tuple([self.value(v) for v in value])
            return _absent if any([v is _absent for v in found]) else found
        return value if is_constant(value) else _absent


def _given(value: Any, args: Sequence[DeviceArray], asked: Sequence[DeviceArray]) -> Any:
    """What ``_Places.value`` stands for, in one call."""
    if type(value) is _View:
        return value.of(args, asked)
    return tuple([_given(v, args, asked) for v in value]) if type(value) is tuple else value


def _views(value: Any) -> Iterator[_View]:
    """The views in a note."""
    if type(value) is _View:
        yield value
    elif type(value) is tuple:
        for v in value:
            yield from _views(v)


@dataclass(frozen=True)
class _Check:
    """A flag, and the function, with what its cells hold, that is called with what a kernel left
    there."""

    flag: _View
    code: CodeType
    known: dict[str, Any]
    cells: tuple[Any, ...]

    def later(self, args: Sequence[DeviceArray], asked: Sequence[DeviceArray]) -> None:
        """Have the host look at the flag of a call."""

        def fail(found: int) -> None:
            cells = tuple([CellType(value) for value in given])
            FunctionType(self.code, self.known, "fail", None, cells)(found)

        given = _given(self.cells, args, asked)

        machine.away.check_later(self.flag.of(args, asked), fail)


class DevicePlan:
    """How to do a call again.

    results: their dtypes, and where they are; None for a function that writes its first argument.
    notes, saved: of an op what its node notes, and which arguments (k) and results (~k) it saves.
    kept: arguments whose identity is a part of the kind.
    """

    def __init__(self, launches: Any, results: list[tuple[DType, _View]] | None, make: Any):
        self.launches, self.results, self.make = launches, results, make
        self.checks: list[_Check] = []
        self.notes: dict[str, Any] = {}
        self.saved: tuple[int | None, ...] = ()
        self.kept: tuple[Any, ...] = ()

    def note(self, op: Any, watch: Any, flat: Any, arrays: list[DeviceArray], result: Any) -> bool:
        """Note what else is to be done again; whether all of it can be."""
        self.kept = tuple([a for a in flat if type(a) not in TENSORS])
        places = _Places(arrays, watch.asked)
        held = {~view.source for _, view in self.results or []}
        checked = all([self._note_check(places, flag, fail) for flag, fail in watch.checks])
        if not checked or (op is not None and not self._note_node(places, op, flat, result)):
            return False
        noted = {~v.source for v in _views(tuple(self.notes.values())) if v.source < 0} - held
        late = {~c.flag.source for c in self.checks} - held - noted
        rest = set(range(len(watch.asked))) - held - noted - late
        self.launches.share(sorted(noted))
        self.launches.share(sorted(rest))
        return True

    def _note_check(self, places: _Places, flag: DeviceArray, fail: Any) -> bool:
        """Note a flag that is to be looked at."""
        if type(fail) is not FunctionType or fail.__defaults__:
            return False
        cells = places.value(tuple([c.cell_contents for c in fail.__closure__ or ()]))
        view = places.view(flag)
        if cells is _absent or view is None:
            return False
        self.checks.append(_Check(view, fail.__code__, fail.__globals__, cells))
        return True

    def _note_node(self, places: _Places, op: Any, flat: Any, result: Any) -> bool:
        """Note what a node saves, and what else it holds."""
        held: dict[int, int | None] = {id(None): None}
        held |= {id(v): k for k, v in enumerate(flat) if isinstance(v, Tensor)}
        held |= {id(v): ~k for k, v in enumerate(_several(result))}
        if not all([id(v) in held for v in op._to_save]):
            return False
        self.saved = tuple([held[id(v)] for v in op._to_save])
        notes = {k: v for k, v in vars(op).items() if k not in ("_needs", "_to_save")}
        self.notes = {name: places.value(value) for name, value in notes.items()}
        return not any([value is _absent for value in self.notes.values()])

    def run(self, ctx: Any, flat: tuple[Any, ...], args: list[DeviceArray]) -> Any:
        """What the function gives for arguments such as were watched; args: their arrays."""
        asked = self.launches.run(args)
        for check in self.checks:
            check.later(args, asked)
        if self.results is None:
            x = flat[0]
            (x._counter or x._version_counter()).bump()
            return x
        tensors = []
        for dtype, view in self.results:
            out = _new(Tensor)
            out._array = array = view.of(args, asked)
            out._dtype, out._device = dtype, array.device
            out._counter = out._edge = None
            if not array.c_contiguous:
                out._flat = False
            tensors.append(out)
        if ctx is not None:
            for name, value in self.notes.items():
                setattr(ctx, name, _given(value, args, asked))
            if self.saved:
                ctx._to_save = tuple(
                    [None if k is None else flat[k] if k >= 0 else tensors[~k] for k in self.saved]
                )
        return tensors[0] if self.make is None else self.make(tensors)


def forget() -> None:
    """Forget all calls, where what twins choose has changed."""
    for memory in list(_memories):
        memory.plans.clear()


_memories: weakref.WeakSet[AwayMemory] = weakref.WeakSet()


class AwayMemory:
    """What a function launched on a GPU, by the kinds of its arguments."""

    def __init__(self, function: Callable[..., Any], writes: bool):
        self.function, self.writes = function, writes
        self.plans: dict[Any, DevicePlan | bool] = {}  # False: seen once; True: it has no plan
        self.strikes = 0
        _memories.add(self)

    def call(
        self, first: Any, flat: tuple[Any, ...], args: tuple[Any, ...], options: Any, op: Any = None
    ) -> Any:
        """``function(*args, **options)``; flat: the same arguments one by one.

        first: the names of keywords, or what of an op's inputs needs gradients. op: its node.
        """
        if SIMULATED or machine.recorder.current is not None or self.strikes >= PATIENCE:
            return self.function(*args, **options)
        found = kind_of(flat)
        if found is None:
            return self.function(*args, **options)
        kind, arrays, taped = found
        if op is None and ((taped and grad_mode.enabled) or (self.writes and not _alone(flat[0]))):
            return self.function(*args, **options)
        key = (first, *kind)
        plan = self.plans.get(key)
        if plan.__class__ is DevicePlan:
            return plan.run(op, flat, arrays)
        if plan is False:
            return self._watch(key, op, flat, arrays, args, options)
        if plan is None:
            if len(self.plans) >= MOST:
                self.plans.clear()
                self.strikes += 1
            self.plans[key] = False
        return self.function(*args, **options)

    def _watch(
        self, key: Any, op: Any, flat: Any, arrays: list[DeviceArray], args: Any, options: Any
    ) -> Any:
        """Call the function, and make a plan of what it launches."""
        from ..kernels.cuda.runtime import again

        self.plans[key] = True
        if machine.away.watch() is not None:
            return self.function(*args, **options)
        watcher, watch = _DeviceWatcher(), again.Watch()
        with standing_behind(watcher), machine.away.watching(watch):
            result = self.function(*args, **options)
        launches = again.plan_of(watch, arrays) if watcher.possible else None
        plan = None
        if launches is not None:
            plan = self._plan(launches, _Places(arrays, watch.asked), watcher, flat, result)
            if plan is not None and not plan.note(op, watch, flat, arrays, result):
                plan = None
        if plan is None:
            return result
        self.plans[key] = plan
        bases = [] if self.writes else [r._base for r in _several(result)]
        if op is None and any([b is not None for b in bases]):
            return plan.run(None, flat, arrays)  # no view of what nobody else has
        return result

    def _plan(
        self, launches: Any, places: _Places, watcher: _DeviceWatcher, flat: Any, result: Any
    ) -> DevicePlan | None:
        own = {id(a.memory) for a in places.args}
        if self.writes:
            return DevicePlan(launches, None, None) if result is flat[0] else None
        if any([id(a.memory) in own for a in watcher.written]):
            return None
        results = _several(result)
        found: list[tuple[DType, _View]] = []
        memories: set[int] = set()
        for r in results:
            view = places.view(r._array) if type(r) is Tensor and r._edge is None else None
            if view is None or view.source >= 0 or view.source in memories:
                return None
            memories.add(view.source)
            found.append((r._dtype, view))
        make = None
        if isinstance(result, tuple):
            make = functools.partial(tuple.__new__, type(result))
        return DevicePlan(launches, found, make)


def _several(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def _alone(x: Any) -> bool:
    """Whether what is written into ``x`` changes nobody's history."""
    return type(x) in TENSORS and x._base is None


# -- where functions begin -------------------------------------------------------------------------


def elsewhere(
    memory: Any, names: tuple[Any, ...], flat: tuple[Any, ...], args: tuple[Any, ...], options: Any
) -> Any:
    """A remembered function whose first argument is no tensor on the CPU, while a GPU is in use."""
    on_host = False
    for a in flat:
        if isinstance(a, Tensor):
            if a._array.__class__ is DeviceArray:
                return memory.away.call(names, flat, args, options)
            on_host = True
    if on_host:
        for again in memory.last.get(names, ()):
            result = again(flat, grad_mode.enabled)
            if type(result) is not int:
                return result
        return memory.find(names, flat, args, options)
    return memory.function(*args, **options)  # where it makes tensors the default device decides
