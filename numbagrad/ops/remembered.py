"""Functions that remember what they launched: called again on a few numbers, they only launch.

Of a function that is ``remembered`` the result depends on shapes, strides, dtypes and plain
arguments, and on the elements of tensors by way of kernels alone. After some calls with arguments
of the same kinds, one call is watched (``kernels/replay.py``); those that follow compare their
arguments with these and run the same kernels, in 0.7 us where the function takes up to ten times as
long. Whatever cannot be done so (a history, a recording, a GPU, a result that is a view, a value
that Python looks at) goes through the function. Start reading at ``remembered``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

from .. import devices, dtypes
from ..dtypes import DType
from ..kernels import machine
from ..shaped import Size
from ..tape import grad_mode, standing_behind
from ..tensor import Tensor

__all__ = ["TENSORS", "forget", "remembered"]

AFTER = 8
"""Calls of a kind before one is watched: what a script calls once or twice compiles nothing."""
MOST = 256
"""Kinds of calls that a function remembers."""
VAIN = 2048
"""Calls that found nothing remembered, less four times those that did, after which a function does
not look any more."""
LARGE = 1 << 16
"""Bytes of a result from which on the time of Python matters little."""

TENSORS: list[type] = [Tensor]
"""The classes of tensors whose functions are those of ``Tensor``, at most two."""

_NAMES = ("_array", "_edge", "_base")
_PLAIN = (int, bool, str, type(None))

_new = object.__new__
empty = np.empty

F = TypeVar("F", bound=Callable[..., Any])


class _Plan:
    """How calls of a kind are run.

    words: for ``run``, the native function. shape, numpy, dtype: of the only result; made: those
    of several, and ``pack`` what makes one of them. kept: what must live as long as ``words``.
    """

    __slots__ = ("dtype", "kept", "made", "numpy", "pack", "run", "shape", "words")


class _Watcher:
    """Stands behind the verbs during one call, runs what they say and notes it."""

    compiles = records = False

    def __init__(self, launches: Any):
        self.launches = launches

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, device: Any) -> Any:
        """New memory."""
        if device is not None and device.type != "cpu":
            self.launches.possible = False
            return machine.open_cuda().empty(shape, dtype, device)
        array = empty(shape, dtype)
        self.launches.made(array)
        return array

    def launch(self, kernel: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Run ``kernel``."""
        if machine.away is not None and machine.away.run(kernel, args):
            self.launches.possible = False
            return
        kernel(*args)
        self.launches.note(kernel, args)

    def check(self, flag: np.ndarray, fail: Callable[[int], None]) -> None:
        """Look at a flag now, and at each call."""
        if flag[0] >= 0:
            fail(int(flag[0]))
        self.launches.look(flag)

    def _cannot(self, *_: Any) -> bool:
        self.launches.possible = False
        return False

    reading = deciding = depends = outside = undo = bind = _cannot
    set_data = set_sizes = counts_from_start = adopt = accumulating = gradients = _cannot


class _Memory:
    """What a function remembers.

    last: by the names of keywords, the plan that ran last. plans: of a kind of call, how often it
    came, then its plan, or None where there is none.
    """

    def __init__(self, function: Callable[..., Any], writes: bool):
        self.function, self.writes = function, writes
        self.last: dict[tuple[str, ...], _Plan] = {}
        self.plans: dict[Any, Any] = {}
        self.vain = 0

    def find(self, names: tuple[str, ...], flat: tuple[Any, ...], args: Any, options: Any) -> Any:
        """What the function gives, by a plan that was not the last, or by itself."""
        function = self.function
        if self.vain > VAIN:
            self.last.clear()
            return function(*args, **options)
        if grad_mode.enabled and any([_taped(a) for a in flat]):
            return function(*args, **options)
        self.vain += 1
        key = (names, *_kinds(flat))
        try:
            found = self.plans.get(key, 0)
        except TypeError:  # what cannot be hashed
            return function(*args, **options)
        if type(found) is int:
            if len(self.plans) >= MOST:
                self.plans.clear()
            self.plans[key] = found + 1
            if found + 1 >= AFTER:
                return self._watch(key, names, flat, args, options)
        elif found is not None:
            self.vain -= 5
            self.last[names] = found
            state, result = run(found, flat)
            if state == DONE:
                return result
        return function(*args, **options)

    def _watch(self, key: Any, names: Any, flat: tuple[Any, ...], args: Any, options: Any) -> Any:
        """Run the function, and make a plan of what it launches."""
        from ..kernels.replay import Launches

        self.plans[key] = None
        tensors = list({id(a): a for a in flat if type(a) in TENSORS}.values())
        known = all([type(a) in TENSORS or _is_plain(a) for a in flat])
        if not (known and tensors and all([t._device is devices.cpu for t in tensors])):
            return self.function(*args, **options)
        launches = Launches([t._array for t in tensors])
        if not launches.possible:
            del self.plans[key]  # tensors of one memory: the next may lie apart
            return self.function(*args, **options)
        with standing_behind(_Watcher(launches)):
            result = self.function(*args, **options)
        plan = _plan_of(launches, flat, result, self.writes)
        if plan is not None:
            self.plans[key] = self.last[names] = plan
        return result

    def forget(self) -> None:
        """Begin anew."""
        self.last.clear()
        self.plans.clear()


_memories: list[_Memory] = []


def forget() -> None:
    """Let all functions forget what they launched: something has changed that they depend on."""
    for memory in _memories:
        memory.forget()


dtypes.when_default_changes.append(forget)

DONE, TAPED = 1, 2  # as in ``kernels/replay.py``, which is not imported before it is needed


def _taped(value: Any) -> bool:
    return isinstance(value, Tensor) and value._edge is not None


def _kinds(flat: tuple[Any, ...]) -> list[Any]:
    """What a plan needs to know of arguments; of one that came before where that was."""
    kinds: list[Any] = []
    seen: dict[int, int] = {}
    for place, value in enumerate(flat):
        if type(value) not in TENSORS:
            kinds.append((type(value), value))
        elif (before := seen.setdefault(id(value), place)) != place:
            kinds.append(before)
        else:
            kinds.append((value._array.shape, value._array.strides, value._dtype))
    return kinds


def _is_plain(value: Any) -> bool:
    """Whether a plan can compare an argument: numbers, words, dtypes, and tuples of some."""
    if type(value) is slice:
        value = (value.start, value.stop, value.step)
    if type(value) in (tuple, Size):
        return all([type(v) in _PLAIN for v in value])
    return type(value) in (*_PLAIN, float, DType, type, type(...))


def run(plan: _Plan, flat: tuple[Any, ...]) -> tuple[int, Any]:
    """What ``replay`` says, and the result."""
    made = plan.made
    if len(made) == 2:
        (shape, numpy, dtype), (other_shape, other_numpy, other_dtype) = made
        pair = empty(shape, numpy), empty(other_shape, other_numpy)
        state = plan.run(plan.words, flat, pair, grad_mode.enabled)
        if state != DONE:
            return state, None
        return state, plan.pack((_wrapped(pair[0], dtype), _wrapped(pair[1], other_dtype)))
    arrays = tuple([empty(shape, numpy) for shape, numpy, _ in made])
    state = plan.run(plan.words, flat, arrays, grad_mode.enabled)
    if state != DONE:
        return state, None
    return state, plan.pack(tuple([_wrapped(a, m[2]) for a, m in zip(arrays, made, strict=True)]))


def _wrapped(array: np.ndarray, dtype: DType) -> Tensor:
    out = _new(Tensor)
    out._array = array
    out._dtype = dtype
    out._edge = out._counter = None
    return out


def _plan_of(launches: Any, flat: tuple[Any, ...], result: Any, writes: bool) -> _Plan | None:
    """How to do again what was watched, or None."""
    from ..kernels import replay

    several = isinstance(result, tuple)
    results = result if several else (result,)
    if writes:
        if result is not flat[0]:
            return None
        results = ()
    elif launches.written:
        return None
    if not all([type(r) is Tensor and r._edge is None and r._base is None for r in results]):
        return None
    arrays = [r._array for r in results]
    if any([type(a) is not np.ndarray or a.nbytes > LARGE or not a.size for a in arrays]):
        return None
    head = [len(flat), id(TENSORS[0]), id(TENSORS[-1]), *map(id, (*_NAMES, None))]
    found = launches.finish(head, [_record(a, k) for a, k in zip(flat, _kinds(flat))], arrays)
    if found is None:
        return None
    plan = _Plan()
    plan.words, plan.run = found.words, replay.replay()
    plain = [a for a in flat if type(a) not in TENSORS]
    plan.kept = (found, plain, [a._array.dtype for a in flat if type(a) in TENSORS])
    plan.made = [(r._array.shape, r._array.dtype, r._dtype) for r in results]
    plan.shape = None
    if not several and not writes:
        ((plan.shape, plan.numpy, plan.dtype),) = plan.made
    plan.pack = functools.partial(tuple.__new__, type(result)) if several else _first
    return plan


def _first(results: tuple[Tensor, ...]) -> Tensor | None:
    return results[0] if results else None


def _record(value: Any, kind: Any) -> list[int]:
    """What ``replay`` compares an argument with."""
    from ..kernels.replay import AGAIN, ARRAY, EQUAL, REAL, SAME, bits, bounds

    if type(kind) is int:
        return [AGAIN, kind, 0, 0]
    if type(value) in TENSORS:
        array = value._array
        _, before, after = bounds(array)
        return [ARRAY, id(array.dtype), array.ndim, before, after, *array.shape, *array.strides]
    if type(value) is float:
        return [REAL, id(value), id(float), bits(value)]
    if type(value) in (int, str, tuple, Size, slice):
        return [EQUAL, id(value), id(type(value)), 0]
    return [SAME, id(value), 0, 0]


def remembered(function: F, writes: bool = False, spread: int = -1) -> F:
    """``function``, which remembers what it launched.

    writes: it writes its first argument and returns that. spread: the place of an argument that is
    a sequence of tensors and plain values.
    """
    if numba.config.DISABLE_JIT:
        return function
    memory = _Memory(function, writes)
    _memories.append(memory)
    last = memory.last

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if machine.recording or machine.autocasting:
            return function(*args, **options)
        flat = args
        if spread >= 0 and len(args) > spread:
            parts = args[spread]
            if type(parts) is list or type(parts) is tuple:
                flat = (*args[:spread], *parts, type(parts), *args[spread + 1 :])
        names: tuple[str, ...] = ()
        if options:
            flat = (*flat, *options.values())
            names = tuple(options)
        plan = last.get(names)
        if plan is not None:
            shape = plan.shape
            if shape is not None:
                array = empty(shape, plan.numpy)
                state = plan.run(plan.words, flat, (array,), grad_mode.enabled)
                if state == DONE:
                    out = _new(Tensor)
                    out._array = array
                    out._dtype = plan.dtype
                    out._edge = out._counter = None
                    return out
            else:
                state, result = run(plan, flat)
                if state == DONE:
                    if writes:
                        x = args[0]
                        (x._counter or x._version_counter()).bump()
                        return x
                    return result
            if state == TAPED:
                return function(*args, **options)
        return memory.find(names, flat, args, options)

    return call  # type: ignore[return-value]
