"""The three verbs for a batch of elements: ``Batch`` stands behind them while Python runs once.

``empty`` gives an array of one element's shape that stands for those of all, ``view`` views of it.
``launch`` runs a kernel for all elements: as one where it is elementwise or ``rules`` knows how,
else one after the other. What depends on no element is computed once. Start reading at
``Batch.launch``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..kernels import machine
from ..kernels.cpu.reduce import amax
from ..kernels.cuda.runtime.array import DeviceArray
from ..kernels.loops import ElementwiseKernel
from ..kernels.product import GemmKernel
from ..ops.base import copy_kernel
from ..tape import close_fast_paths, open_fast_paths
from . import pointwise
from .again import Noted, key_of, known, remember
from .each import for_each
from .memory import Apart, Hidden, Memory
from .rules import RULES, dense

_new: Any = np.ndarray.__new__

LOOP = 16
"""As many elements are worth compiling a loop around a kernel that has no rule."""

_LOOPED = (machine.Kernel, GemmKernel)


class Batch:
    """Stands behind the verbs while a function is run once for ``size`` elements."""

    eager: bool  # while it stands, nobody records what is launched

    def __init__(self, size: int):
        self.size = size
        self.standings = 0
        self._stand_before(machine.recorder.current)
        self._noted: Noted | None = None
        self._changed: list[Memory] = []
        self._outside: dict[int, tuple[Any, Any]] = {}  # what all share: as it was
        self._recorded = self.position()
        # Fast paths take arrays as they are: not while there is one of ours. A recording, which
        # keeps some for its messages, sees to it that no tensor of its own is used outside.
        self._closes = self._recorded is None
        if self._closes:
            close_fast_paths()

    def __del__(self) -> None:
        if self._closes:
            open_fast_paths()

    def knows(self, array: Any) -> bool:
        """Whether ``array`` stands for those of our elements."""
        return type(array) is Hidden and array.memory.batch is self

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Let the batch stand behind the verbs, before what stands there."""
        before = self.outer
        self._stand_before(machine.recorder.current)
        self.standings += 1
        close_fast_paths()
        machine.recorder.current = self
        try:
            yield
        finally:
            machine.recorder.current = self.outer
            open_fast_paths()
            self.standings -= 1
            self._stand_before(before)

    def _stand_before(self, outer: Any) -> None:
        """outer: what the verbs of a launch go to."""
        self.outer = outer
        self.eager = outer is None or (type(outer) is Batch and outer.eager)

    @contextmanager
    def beyond(self) -> Iterator[None]:
        """A block in which the verbs do what they do around the batch."""
        machine.recorder.current = self.outer
        try:
            yield
        finally:
            machine.recorder.current = self

    # -- the verbs -------------------------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, device: Any) -> Hidden:
        """An array whose memory belongs to all elements until a launch writes what differs."""
        if self.outer is None and (device is None or device.type == "cpu"):
            whole: Any = np.empty(shape, dtype)
        else:
            machine.recorder.current = self.outer
            try:
                whole = machine.empty(shape, dtype, device)
            finally:
                machine.recorder.current = self
            if type(whole) is DeviceArray:
                raise Apart("an array on a GPU")
        array: Any = _new(Hidden, shape, dtype, whole)
        array.memory, array.at = Memory(self, whole, 0, True), 0
        return array

    def run(self, kernel: Any, *args: Any) -> None:
        """Launch what is known to be of no batch, or of one around this."""
        if self._noted is not None:
            self._noted.launches.append((kernel, args))
        if self.outer is None:
            kernel(*args)
        else:
            machine.launch(kernel, *args)

    def beside(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        """Memory for one launch, around the batch."""
        array = machine.empty(shape, dtype)
        if self._noted is not None:
            self._noted.made.append(array)
        return array

    def launched(self, kernel: Any, args: tuple[Any, ...]) -> bool:
        """Run ``kernel`` for all elements if that is known of such arguments; whether it was."""
        found = known.get(key_of(self, kernel, args))
        if found is not None:
            machine.recorder.current = self.outer
            try:
                found.run(self, args)
            finally:
                machine.recorder.current = self
        return found is not None

    def launch(self, kernel: Any, args: tuple[Any, ...]) -> None:
        """Run ``kernel`` for all elements."""
        machine.recorder.current = self.outer
        try:
            key = key_of(self, kernel, args) if self.eager else None
            if key is None:
                self._launch(kernel, args)
            else:
                self._launch_first(key, kernel, args)
        finally:
            machine.recorder.current = self

    def _launch_first(self, key: tuple[Any, ...], kernel: Any, args: tuple[Any, ...]) -> None:
        """Run ``kernel``, and remember how for arguments of the same layouts."""
        # Floats that no other place holds: they are told from one another by their identities.
        args = tuple([a * 1.0 if type(a) is float else a for a in args])
        shared = [type(a) is Hidden and a.memory.step == 0 for a in args]
        self._noted = noted = Noted()
        try:
            self._launch(kernel, args)
        finally:
            self._noted = None
        if noted.may_be_kept:
            remember(self, key, args, shared, noted)

    def _launch(self, kernel: Any, args: tuple[Any, ...]) -> None:
        outputs = getattr(kernel, "outputs", None)
        most = len(args) if outputs is None else outputs  # it may write all it was given
        lent = outputs is None and self.outer is None
        batched, mine, written, outside = False, [], [], []
        for k, arg in enumerate(args):
            if type(arg) is Hidden and (memory := arg.memory).batch is self:
                mine.append(k)
                batched = batched or memory.step != 0
                if k < most and (memory.ours or not lent):
                    written.append(memory)
            elif isinstance(arg, np.ndarray) or type(arg) is DeviceArray:
                self._look(arg)
                if k < most and not lent:
                    outside.append(arg)
            elif type(arg) is list:
                mine.append(k)
                for each in arg:
                    if self.knows(each):
                        batched = batched or each.memory.step != 0
                        if k < most and (each.memory.ours or not lent):
                            written.append(each.memory)
                    else:
                        self._look(each)
                        if k < most and not lent and isinstance(each, np.ndarray):
                            outside.append(each)
        if outside:
            self._keep_outside(outside, batched)
        for memory in written:
            if not memory.ours:
                self._keep(memory)
            elif batched and memory.step == 0:
                self.give_each(memory)
            memory.written = True
        given = list(args)
        for k in mine:
            given[k] = self._given(args[k])
        copies = self._lend(args, given) if lent else []
        if not batched:
            self.run(kernel, *given)
        elif type(kernel) is ElementwiseKernel:
            self._align(args, given)
            self.run(kernel, *given)
        else:
            rule = RULES.get(kernel)
            if rule is None or not rule(self, args, given):
                self._each(kernel, args, given)
        for copy, array in copies:
            if copy.tobytes() != array.tobytes():
                self._keep_outside([array], batched)
                array[...] = copy

    def pointwise(self, op: Any, args: tuple[Any, ...]) -> Any:
        """What an elementwise ``op`` gives for operands such as have come before, else None."""
        found = pointwise.known.get(pointwise.key_of(self, op, args))
        return None if found is None else found.run(self, args)

    def remember_pointwise(self, op: Any, args: tuple[Any, ...], out: Any) -> None:
        """Let ``pointwise`` know how ``out`` was made."""
        machine.recorder.current = self.outer
        try:
            pointwise.remember(self, op, args, out)
        finally:
            machine.recorder.current = self

    def _look(self, array: Any) -> None:
        """Refuse an argument of a launch that is none of ours, where there is a reason to."""
        if type(array) is Hidden:
            if not array.memory.batch.standings:
                array.refuse("running a kernel on it")
        elif type(array) is DeviceArray:
            raise Apart("an array on a GPU")

    def _lend(self, args: tuple[Any, ...], given: list[Any]) -> list[Any]:
        """Put copies of what was there before in its place, for a kernel that does not say what it
        writes; returns each copy with what it is of."""
        copies = []
        for k, arg in enumerate(args):
            mine = type(arg) is Hidden and arg.memory.batch is self and arg.memory.ours
            if isinstance(arg, np.ndarray) and not mine:
                copies.append((np.array(given[k]), given[k]))
                given[k] = copies[-1][0]
        return copies

    def _given(self, arg: Any) -> Any:
        """An argument of a launch for all elements: with one dim more where they differ."""
        if type(arg) is list:
            return [self._given(a) if self.knows(a) else a for a in arg]
        return self.whole(arg) if arg.memory.step else self._shared(arg)

    def given(self, arg: Any) -> Any:
        """The memory of an array in a launch for all elements."""
        return self._given(arg) if self.knows(arg) else arg

    def _align(self, args: tuple[Any, ...], given: list[Any]) -> None:
        """Let operands broadcast with the batch in front: dims of 1 follow it where they lack."""
        ranks = [a.ndim for a in args if isinstance(a, np.ndarray)]
        most = max(ranks)
        if min(ranks) == most:
            return
        for k, arg in enumerate(args):
            if self._differs(arg) and arg.ndim < most:
                given[k] = given[k][(slice(None), *(None,) * (most - arg.ndim))]

    def _each(self, kernel: Any, args: tuple[Any, ...], given: list[Any]) -> None:
        """One launch for each element, in order; or one of a loop around the kernel."""
        if type(kernel) in _LOOPED and (self._recorded is not None or self.size >= LOOP):
            mine = tuple([self._differs(arg) for arg in args])
            if self._may_be_cut(kernel, mine, given):
                looped = [dense(self, g) if own else g for own, g in zip(mine, given, strict=True)]
                self.run(for_each(kernel, mine), *looped)
                return
        columns = []
        for arg, whole in zip(args, given, strict=True):
            if type(arg) is list:
                lists = [self._ones(a, w) for a, w in zip(arg, whole, strict=True)]
                columns.append(list(map(list, zip(*lists, strict=True))))
            else:
                columns.append(self._ones(arg, whole))
        for each in zip(*columns, strict=True):
            self.run(kernel, *each)

    def _differs(self, arg: Any) -> bool:
        """Whether each element has an ``arg`` of its own."""
        return type(arg) is Hidden and arg.memory.batch is self and arg.memory.step != 0

    def _may_be_cut(self, kernel: Any, mine: tuple[bool, ...], given: list[Any]) -> bool:
        """Whether compiled code can take what one element has out of ``given``."""
        if any(type(g) is list for g in given) or not all(mine[: kernel.outputs]):
            return False
        if not all(g.flags.c_contiguous for g in given[: kernel.outputs]):
            return False
        return all(g.ndim > 1 for own, g in zip(mine, given, strict=True) if own)

    def _ones(self, arg: Any, whole: Any) -> list[Any]:
        """An argument for each element."""
        if not self._differs(arg):
            return [whole] * self.size
        if whole.ndim > 1 and type(whole) is np.ndarray:
            return list(whole)
        return [whole[b, ...] for b in range(self.size)]  # ... keeps what has no dims an array

    # -- arrays of one element and of all --------------------------------------------------------

    def enter(self, array: Any, dim: int) -> Hidden:
        """What one element has of ``array``, which has them all along ``dim``."""
        one = array[(slice(None),) * dim + (0, ...)].view(Hidden)
        one.memory, one.at = Memory(self, array, array.strides[dim], False), 0
        return one

    def whole(self, array: Hidden) -> Any:
        """``array`` of all elements, along a first dim."""
        memory, step = array.memory, array.itemsize
        whole, found = array.seen
        if whole is not memory.whole:
            whole, at = memory.whole, memory.place(array)
            shape, strides = (self.size, *array.shape), (memory.step, *array.strides)
            if type(whole) is np.ndarray and memory.ours and array.size and self.size:
                found = np.ndarray(shape, array.dtype, whole, at * step, strides)
            else:
                found = machine.view(whole, shape, tuple([s // step for s in strides]), at)
            array.seen = whole, found
        return found

    def _shared(self, array: Hidden) -> Any:
        at, step = array.memory.place(array), array.itemsize
        strides = tuple([s // step for s in array.strides])
        return machine.view(array.memory.whole, array.shape, strides, at)

    def give_each(self, memory: Memory) -> None:
        """Let what all elements shared be each one's own."""
        shared = memory.whole
        whole = machine.empty((self.size, *shared.shape), shared.dtype)
        if memory.written:
            self.run(copy_kernel, whole, shared)
        memory.whole, memory.step = whole, shared.nbytes
        memory.flat = type(whole) is np.ndarray

    # -- writing what was there before -----------------------------------------------------------

    def _keep(self, memory: Memory) -> None:
        """Note what an argument was before it is written."""
        if memory.step == 0 or not memory.writable:
            raise Apart("writing into what was there before")
        if memory.kept is None:
            memory.kept = machine.empty(memory.whole.shape, memory.whole.dtype)
            machine.launch(copy_kernel, memory.kept, memory.whole)
            self._changed.append(memory)

    def _keep_outside(self, arrays: list[Any], batched: bool) -> None:
        """Note what all elements share before it is written: once, by what they share too."""
        if batched:
            raise Apart("writing into what was there before")
        if self._noted is not None:
            self._noted.may_be_kept = False
        for array in arrays:
            if self._recorded is None and id(array) not in self._outside:
                kept = machine.empty(array.shape, array.dtype)
                machine.launch(copy_kernel, kept, array)
                self._outside[id(array)] = array, kept

    def restore(self) -> None:
        """Let the arguments, and what all share, be what they were; a recording forgets what it has
        noted since."""
        if self._recorded is not None:
            self.outer.go_back(self._recorded)
            return
        for memory in self._changed:
            machine.launch(copy_kernel, memory.whole, memory.kept)
        for array, kept in reversed(self._outside.values()):
            machine.launch(copy_kernel, array, kept)

    def forget(self) -> None:
        """Let go of what the arguments were: the batch would live until the collector comes."""
        self._changed.clear()
        self._outside.clear()

    # -- what ops tell ---------------------------------------------------------------------------

    def check(self, flag: Any, fail: Callable[[int], None]) -> None:
        """Look at the flags of all elements."""
        machine.recorder.current = self.outer
        try:
            if not self.knows(flag) or not flag.memory.step:
                machine.check(self._given(flag) if self.knows(flag) else flag, fail)
                return
            flags = dense(self, self.whole(flag)).reshape(1, -1, 1)
            if self.outer is None:  # which element fails shows when they are run by turns
                worst = flags.max(axis=1)[0]
            else:
                worst = machine.empty((1, 1, 1), flag.dtype)
                machine.launch(amax, worst, flags)
            machine.check(worst.reshape(1), fail)
        finally:
            machine.recorder.current = self

    def depends(self, read: Callable[[], Any], value: Any) -> None:
        """Python runs each time, but where this is recorded."""
        if self.outer is not None:
            self.outer.depends(read, value)

    def bind(self, array: Any) -> None:
        """No memory is used twice, but where this is recorded."""
        if self.outer is not None:
            self.outer.bind(array)

    def reading(self, name: str, array: Any) -> None:
        """Refuse to show what has as many values as there are elements."""
        if type(array) is Hidden:
            array.refuse(name)
        if self.outer is not None:
            self.outer.reading(name, array)

    def deciding(self, name: str, array: Any) -> bool:
        """As ``reading``; what is the same for all elements may decide."""
        if type(array) is Hidden:
            array.refuse(name)
        return self.outer is not None and self.outer.deciding(name, array)

    def unknown(self, array: Any) -> bool:
        """Never: what a mask selects differs from element to element, which ``deciding`` says."""
        return False

    def unchanged(self, options: Any) -> None:
        """Whatever it is: ``afterwards`` is refused."""

    def is_new(self, array: Any) -> bool:
        """Never: nobody has counted."""
        return False

    def accumulating(self, leaf: Any) -> None:
        """Refuse to add to the gradient of a tensor from outside."""
        if not self.knows(leaf):
            raise Apart("backward to what was there before")

    def rebasing(self, x: Any) -> None:
        """Refuse to change the history of a tensor from outside, which ``restore`` would leave."""
        if not self.knows(x._array):
            raise Apart("changing the history of what was there before")

    def outside(self, name: str, way_out: str) -> None:
        """Refuse what changes Python values: it may differ from element to element."""
        raise Apart(name)

    def afterwards(self, name: str, function: Any, options: Any) -> bool:
        """Refuse it, likewise."""
        raise Apart(name)

    records = True

    @property
    def compiles(self) -> bool:
        """Whether this is recorded."""
        return self.outer is not None and self.outer.compiles

    def position(self) -> int | None:
        """Where a recording around this is; None if nothing records."""
        return None if self.outer is None else self.outer.position()

    def go_back(self, position: int) -> None:
        """Let the recording around this forget what it has noted since."""
        self.outer.go_back(position)

    def __getattr__(self, name: str) -> Any:
        """What else a recording is told of; state that is made, resized or set is not for one."""
        if name.startswith("_") or name in _ALONE or self.outer is None:
            raise (AttributeError if name.startswith("_") else Apart)(name)
        return getattr(self.outer, name)


_ALONE = frozenset("adopt counts_from_start set_data set_sizes undo".split())
