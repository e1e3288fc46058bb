"""Functions that remember what they launched: called again on a few numbers, they only launch.

Of a function that is ``remembered`` the result depends on shapes, strides, dtypes and plain
arguments, and on the elements of tensors by way of kernels alone. After some calls with arguments
of the same kinds, one call is watched (``kernels/launches.py``); those that follow compare their
arguments with these and run the same kernels, in 0.7 us where the function takes up to ten times as
long. Whatever cannot be done so (a history, a recording, a GPU, a result that is a view, a value
that Python looks at) goes through the function. Start reading at ``remembered``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import CO_VARARGS, CO_VARKEYWORDS
from typing import Any, TypeVar

import numba
import numpy as np

from .. import devices, dtypes
from ..kernels import machine
from ..tape import grad_mode, standing_behind
from ..tensor import Tensor
from .argument_names import PLAIN, renamed
from .plans import GENERATED, LARGE, TENSORS, Plan, kinds_of, plan_of

__all__: list[str] = []  # nothing that users call

AFTER = 16
"""Calls of a kind before one is watched: what a script calls once or twice compiles nothing."""
MOST = 256
"""Kinds of calls that a function remembers."""
VAIN = 2048
"""Calls of kinds that came seldom, less four times those that changed from one plan to another,
after which a function only tries the last ones: its plain arguments are others each time."""
TRIED = 4
"""Plans that are tried before arguments are looked at: one that does not fit takes 0.3 us."""

F = TypeVar("F", bound=Callable[..., Any])


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
        array = np.empty(shape, dtype)
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

    def table(self, values: np.ndarray) -> None:
        """Note plain numbers that kernels look up."""
        self.launches.table(values)

    def _cannot(self, *_: Any) -> bool:
        self.launches.possible = False
        return False

    reading = deciding = depends = outside = undo = bind = _cannot
    set_data = set_sizes = counts_from_start = adopt = accumulating = gradients = _cannot


class Memory:
    """What a function remembers.

    last: by the names of keywords, ``call`` of the plans that are tried, one after the other.
    plans: of a kind of call, how often it came, then its plan, or None where there is none.
    """

    def __init__(self, function: Callable[..., Any], writes: bool):
        self.function, self.writes = function, writes
        self.last: dict[tuple[Any, ...], tuple[Callable[..., Any], ...]] = {}
        self.plans: dict[Any, Any] = {}
        self.vain = 0
        _memories.append(self)

    def find(self, names: tuple[Any, ...], flat: tuple[Any, ...], args: Any, options: Any) -> Any:
        """What the function gives, by a plan that was not the last, or by itself."""
        function = self.function
        if self.vain > VAIN or (grad_mode.enabled and any([_taped(a) for a in flat])):
            return function(*args, **options)
        kinds = kinds_of(flat)
        if kinds is None:
            return function(*args, **options)
        key = (names, *kinds)
        found = self.plans.get(key, 0)
        if type(found) is int:
            self.vain += 1
            if len(self.plans) >= MOST:
                self.plans.clear()
            self.plans[key] = found + 1
            if found + 1 >= AFTER:
                return self._watch(key, names, flat, args, options)
        elif found is not None:
            self.vain -= 4
            self._first(names, found)
            result = self.call(found, flat, args)
            if type(result) is not int:
                return result
        return function(*args, **options)

    def call(self, plan: Plan, flat: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
        """What a plan gives."""
        return plan.call(flat, grad_mode.enabled)

    def _watch(self, key: Any, names: Any, flat: tuple[Any, ...], args: Any, options: Any) -> Any:
        """Run the function, and make a plan of what it launches."""
        from ..kernels.launches import Launches

        self.plans[key] = None
        tensors = list({id(a): a for a in flat if type(a) in TENSORS}.values())
        # Of what is written a few elements are; but a replay keeps Python's lock.
        sizes = [t._array.nbytes for t in (tensors[1:] if self.writes else tensors)]
        here = all([t._device is devices.cpu for t in tensors])
        if not here or sum(sizes) > LARGE:
            return self.function(*args, **options)
        launches = Launches([t._array for t in tensors])
        if not launches.possible:
            return self.function(*args, **options)
        with standing_behind(_Watcher(launches)):
            result = self.function(*args, **options)
        plan = self.plan_of(launches, flat, result, args)
        if plan is not None:
            self.plans[key] = plan
            self._first(names, plan)
            if not self.writes and any([r._base is not None for r in _several(result)]):
                again = self.call(plan, flat, args)  # no view of what nobody else has
                return result if type(again) is int else again
        return result

    def _first(self, names: tuple[Any, ...], plan: Plan) -> None:
        """Let a plan be the first that is tried."""
        others = [call for call in self.last.get(names, ()) if call is not plan.call]
        self.last[names] = (plan.call, *others[: TRIED - 1])

    def plan_of(self, launches: Any, flat: Any, result: Any, args: Any) -> Plan | None:
        """How to do again what was watched, or None."""
        if self.writes:
            if result is not flat[0]:
                return None
            tail = "x = args[0]; (x._counter or x._version_counter()).bump(); return x"
            return plan_of(launches, flat, (), tail)
        if launches.written:
            return None
        if not isinstance(result, tuple):
            return plan_of(launches, flat, (result,), "return t0")
        results = ", ".join([f"t{k}" for k in range(len(result))])
        return plan_of(launches, flat, result, f"return make(({results},))", type(result))

    def forget(self) -> None:
        """Begin anew."""
        self.last.clear()
        self.plans.clear()


_memories: list[Memory] = []


def forget() -> None:
    """Let all functions forget what they launched: something has changed that they depend on."""
    for memory in _memories:
        memory.forget()


dtypes.when_default_changes.append(forget)

TAPED = 2  # as in ``kernels/replay.py``, which is not imported before it is needed


def _several(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def _taped(value: Any) -> bool:
    return isinstance(value, Tensor) and value._edge is not None


def remembered(function: F, writes: bool = False, spread: str = "") -> F:
    """``function``, which remembers what it launched.

    writes: it writes its first argument and returns that. spread: the parameter for a sequence of
    tensors and plain values.
    """
    if numba.config.DISABLE_JIT:
        return function
    memory = Memory(function, writes)
    code: Any = function.__code__
    positional, stars = code.co_argcount, (CO_VARARGS, CO_VARKEYWORDS)
    keywords = code.co_varnames[positional : positional + code.co_kwonlyargcount]
    place = code.co_varnames.index(spread) if spread else -1
    make = _wrapper(positional, keywords, *[bool(code.co_flags & s) for s in stars], place)
    call = make(function, memory, memory.last)
    count = sum([bool(code.co_flags & s) for s in stars], positional + len(keywords))
    made = call.__code__
    names = dict(zip(made.co_varnames[:count], code.co_varnames[:count], strict=True))
    call.__code__ = renamed(made, names)
    call.__defaults__ = function.__defaults__
    call.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(call, function)
    del call.__dict__["__wrapped__"]  # its own parameters are the same, and may be renamed
    PLAIN[call] = function
    return call


def plainly(function: Any) -> Any:
    """``function`` as it was before it was ``remembered``, if it was."""
    return PLAIN.get(function, function)


@functools.cache
def _wrapper(
    positional: int, keywords: tuple[str, ...], star: bool, double: bool, spread: int
) -> Any:
    """What makes the wrapper of functions with so many parameters, with these that are given by
    keyword only, and whether they take more: it has the same, so that calls in any form come to the
    same arguments and wrong ones raise as before."""
    first = [f"_{k}" for k in range(positional)]
    header = first + (["*_args"] if star else ["*"] if keywords else [])
    header += [*keywords] + (["**_options"] if double else [])
    args = f"({', '.join(first + (['*_args'] if star else []))},)"
    options = ", ".join([f"{k!r}: {k}" for k in keywords] + (["**_options"] if double else []))
    call = f"_function(*{args}, **{{{options}}})" if options else f"_function(*{args})"
    flat = ["*_parts" if k == spread else p for k, p in enumerate(first)]
    flat += (["*_args"] if star else []) + list(keywords)
    lines = [f"def call({', '.join(header)}):"]
    lines += [" if _machine.recording or _machine.autocasting:", f"  return {call}"]
    if spread >= 0:
        lines += [f" if type(_{spread}) is tuple or type(_{spread}) is list:"]
        lines += [f"  _parts = (*_{spread}, type(_{spread}))", f" else: _parts = (_{spread},)"]
    lines += [f" _flat = ({', '.join(flat)},)"]
    if double:
        lines += [" _names = tuple(_options)"]
        lines += [" if _names: _flat = (*_flat, *_options.values())"]
    names = "_names" if double else "()"
    lines += [
        f" _known, _taped = _last.get({names}), _grad_mode.enabled",
        " if _known is not None:",
        "  for _again in _known:",
        "   _result = _again(_flat, _taped)",
        "   if type(_result) is not int: return _result",
        f"   if _result == {TAPED}: return {call}",
        " elif _taped and _flat and getattr(_flat[0], '_edge', None) is not None:",
        f"  return {call}",
        f" return _memory.find({names}, _flat, {args}, {{{options}}})",
    ]
    text = "def make(_function, _memory, _last):\n " + "\n ".join(lines) + "\n return call"
    known: dict[str, Any] = {"_machine": machine, "_grad_mode": grad_mode}
    exec(compile(text, GENERATED, "exec"), known)
    return known["make"]
