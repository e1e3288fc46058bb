"""Functions that remember what they launched: called again, they only launch.

Of a function that is ``remembered`` the result depends on shapes, strides, dtypes and plain
arguments, and on the elements of tensors by way of kernels alone. After some calls with arguments
of the same kinds, one call is watched (``kernels/launches.py``); those that follow compare their
arguments with these and run the same kernels, in 0.7 us where the function takes up to ten times as
long. Whatever cannot be done so (a recording, a result that is a view, a value that Python looks
at) goes through the function. Arguments with a history are for ``taped_memory.py``, what lies on a
GPU for ``device_memory.py``. Start reading at ``remembered``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numba
import numpy as np

from .. import devices, dtypes
from ..kernels import machine
from ..kernels.thread_pool import when_threads_change
from ..tape import grad_mode, next_sequence, standing_behind
from ..tensor import Tensor
from .argument_names import PLAIN
from .plans import TENSORS, Plan, kinds_of, plan_of
from .wrapper import wrapped

if TYPE_CHECKING:
    from .device_memory import AwayMemory
    from .taped_memory import TapedMemory

__all__: list[str] = []  # nothing that users call

AFTER = int(os.environ.get("NUMBAGRAD_REMEMBER_AFTER", 16))
"""Calls of a kind before one is watched: what a script calls a few times compiles nothing. 0: none
is ever."""
MOST = 256
"""Kinds of calls that a function remembers."""
VAIN = 2048
"""Calls of kinds that came seldom, less four times those that changed from one plan to another,
after which a function only tries the last ones: its plain arguments are others each time."""
HOPELESS = 16
"""What a call counts for, in vain, whose kind cannot be remembered while no other is."""
TRIED = 4
"""Plans that are tried before arguments are looked at: one that does not fit takes 0.3 us."""

F = TypeVar("F", bound=Callable[..., Any])


class _Watcher:
    """Stands behind the verbs during one call, runs what they say and notes it.

    begun: nodes that the call records have larger numbers.
    """

    compiles = records = False

    def __init__(self, launches: Any):
        self.launches = launches
        self.begun = next_sequence()

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

    def freeing(self, node: Any) -> None:
        """Nothing: it is run back for real."""

    def _cannot(self, *_: Any) -> bool:
        self.launches.possible = False
        return False

    reading = deciding = unknown = depends = outside = undo = bind = warns = _cannot
    carrying = reading_options = setting = afterwards = is_new = unchanged = _cannot
    set_data = set_sizes = counts_from_start = adopt = accumulating = gradients = late = _cannot
    settled = freeze = _cannot


class Memory:
    """What a function remembers.

    last: by the names of keywords, the plans that are tried, one after the other; recorded: those
    where an argument has a history.
    plans: of a kind of call, how often it came, then its plan, or None where there is none.
    """

    def __init__(self, function: Callable[..., Any], writes: bool):
        self.function, self.writes = function, writes
        self.last: dict[tuple[Any, ...], tuple[Plan, ...]] = {}
        self.recorded: dict[tuple[Any, ...], tuple[Plan, ...]] = {}
        self.plans: dict[Any, Any] = {}
        self.vain = 0
        _memories.append(self)

    @functools.cached_property
    def away(self) -> AwayMemory:
        """What it launched on a GPU."""
        from .device_memory import AwayMemory

        return AwayMemory(self.function, self.writes)

    @functools.cached_property
    def taped(self) -> TapedMemory:
        """What it launched where an argument had a history; ``recorded`` is its ``last``."""
        from .taped_memory import TapedMemory

        return TapedMemory(self.function, self.recorded)

    def find(self, names: tuple[Any, ...], flat: tuple[Any, ...], args: Any, options: Any) -> Any:
        """What the function gives, by a plan that was not the last, or by itself."""
        if not (grad_mode.enabled and any([is_taped(a) for a in flat])):
            return self.look_up(names, flat, args, options)
        if self.writes:
            return self.function(*args, **options)
        return self.taped.look_up(names, flat, args, options)

    def kind_of(self, names: tuple[Any, ...], flat: tuple[Any, ...]) -> Any:
        """What calls must have in common for a plan; None where one of them can have none."""
        kinds = kinds_of(flat)
        return None if kinds is None else (names, *kinds)

    def look_up(self, names: Any, flat: tuple[Any, ...], args: Any, options: Any) -> Any:
        """``find`` where it is known whether an argument has a history."""
        function = self.function
        key = None if self.vain > VAIN else self.kind_of(names, flat)
        if key is None:
            return function(*args, **options)
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
        elif not self.last:
            self.vain += HOPELESS
        return function(*args, **options)

    def call(self, plan: Plan, flat: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
        """What a plan gives."""
        return plan(flat, grad_mode.enabled)

    def _watch(self, key: Any, names: Any, flat: tuple[Any, ...], args: Any, options: Any) -> Any:
        """Run the function, and make a plan of what it launches."""
        from ..kernels.launches import Launches

        self.plans[key] = None
        tensors = list({id(a): a for a in flat if type(a) in TENSORS}.values())
        launches = Launches([t._array for t in tensors])
        if not launches.possible or not all([t._device is devices.cpu for t in tensors]):
            return self.function(*args, **options)
        watcher = _Watcher(launches)
        try:
            with standing_behind(watcher):
                result = self.function(*args, **options)
        except BaseException:
            self.plans[key] = 0  # of others of this kind nothing is known
            raise
        plan = self.plan_of(watcher, flat, result, args)
        if plan is not None:
            self.plans[key] = plan
            self._first(names, plan)
            if not self.writes and any([r._base is not None for r in _several(result)]):
                again = self.call(plan, flat, args)  # no view of what nobody else has
                return result if type(again) is int else again
        return result

    def _first(self, names: tuple[Any, ...], plan: Plan) -> None:
        """Let a plan be the first that is tried."""
        others = [other for other in self.last.get(names, ()) if other is not plan]
        self.last[names] = (plan, *others[: TRIED - 1])

    def plan_of(self, seen: _Watcher, flat: Any, result: Any, args: Any) -> Plan | None:
        """How to do again what was watched, or None."""
        launches = seen.launches
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
        self.vain = 0
        if "away" in vars(self):
            self.away.plans.clear()


_memories: list[Memory] = []


def forget() -> None:
    """Let all functions forget what they launched: something has changed that they depend on."""
    for memory in _memories:
        memory.forget()


dtypes.when_default_changes.append(forget)
when_threads_change.append(forget)


def _several(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def is_taped(value: Any) -> bool:
    """Whether ``value`` is a tensor with a history."""
    return isinstance(value, Tensor) and value._edge is not None


def remembering() -> bool:
    """Whether anything is remembered in this process."""
    return AFTER > 0 and not numba.config.DISABLE_JIT


def remembered(function: F, writes: bool = False, spread: str = "") -> F:
    """``function``, which remembers what it launched.

    writes: it writes its first argument and returns that. spread: the parameter for a sequence of
    tensors and plain values.
    """
    if not remembering():
        return function
    call = wrapped(function, Memory(function, writes), spread)
    PLAIN[call] = function
    return call


def plainly(function: Any) -> Any:
    """``function`` as it was before it was ``remembered``, if it was."""
    return PLAIN.get(function, function)
