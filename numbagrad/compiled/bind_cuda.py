"""The launches of a compiled step on a GPU, with the memory that they work on.

A ``CudaBound`` stands where ``bind.Bound`` does for the CPU: ``run`` gets the arrays and numbers of
a call and says whether it has run. It starts one launch after the other on the current stream.
Start reading at ``CudaBound.run``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import RecordingError
from ..kernels import machine, store
from ..kernels.cuda.runtime import device
from ..kernels.cuda.runtime.array import DeviceArray
from ..kernels.cuda.runtime.elementwise import fill
from ..kernels.cuda.runtime.flags import keep_flag
from ..kernels.cuda.runtime.folds import grid_for
from ..kernels.cuda.runtime.grids import tile_grid
from ..kernels.cuda.runtime.launch import start, strided_grid
from ..kernels.cuda.runtime.shape import BLOCK
from ..kernels.cuda.runtime.teams import grid_of, team_for
from ..kernels.cuda.runtime.twins import run_twin
from .emit_cuda import FloatArgument, Hypers, Kept, Launch, Template, operands, place_of
from .emit_cuda_text import LoopKernel
from .program import Buffer, Operand
from .replay_cuda import Replay
from .template import DONE, FIRST_CHECK, OTHER_SHAPE, OVERLAP
from .traced import extent

_INT64 = np.dtype(np.int64)


class CudaCode:
    """Stands where ``bind.Code`` does: the kernels of one template are one compilation."""

    def __init__(self) -> None:
        self.variants = [self]


class WorkMemory:
    """Memory for work buffers on a GPU, shared by all programs of one compiled function.

    Each stream has its own: work on one stream is in order, on two it may overlap. graphs: how
    many these programs have been captured into.
    """

    def __init__(self) -> None:
        self._blocks: dict[Any, DeviceArray] = {}
        self.graphs = 0

    def reserve(self, nbytes: int, place: Any) -> DeviceArray:
        """At least ``nbytes`` for the current stream."""
        queue = device.current_queue()
        block = self._blocks.get(queue)
        if block is None or block.size < nbytes:
            block = self._blocks[queue] = device.empty((max(nbytes, 1),), np.dtype(np.uint8), place)
        return block


class CudaBound:
    """A template, ready to be called."""

    def __init__(self, template: Template, work: WorkMemory):
        self.template, self._work = template, work
        self.source = template.source
        self.table = None  # what the CPU's code gets first
        self._block: DeviceArray | None = None  # the work memory that ``_fixed`` lies in
        self._fixed: dict[int, Any] = {}  # arrays of operands that stay where they are
        self._given: dict[Buffer, Any] = {}  # arrays of this call
        self._counters: Sequence[Any] | None = None  # in device memory, if they are
        self._argument = {a.buffer: a for a in template.arguments}
        self._numbers: Sequence[Any] = ()
        self._hyper: list[Sequence[Any]] = []
        self._flags: dict[int, DeviceArray] = {}
        self._failure: Exception | None = None
        self._functions: dict[str, Any] = {}
        self._looks: list[Callable[[], None]] = []  # at flags, when the host next waits
        self._replay = Replay(template, self._start, self._look, work)
        steps = [(i, self._step(k, i)) for k, i in enumerate(template.launches)]
        # What runs on the host reads nothing of the device, so it may come first.
        self._first = [step for i, step in steps if i.kind == "host"]
        self._steps = [step for i, step in steps if i.kind != "host"]
        self._written = _merged([_bounds(b) for b in template.written if b.kind == "state"])
        used = {o.buffer for i in template.launches for o in operands(i.args)}
        self._used = _merged([_bounds(b) for b in used if b.kind == "state" and place_of(b)])
        self._inputs = [
            (k, a.buffer in template.written)
            for k, a in enumerate(template.arguments)
            if a.buffer.kind == "input" and a.buffer in used
        ]
        for b in used:
            if b.kind == "work" and b.memory is not None and place_of(b) is None:
                self._given[b] = np.empty(b.size, b.dtype)  # host memory, used in each call

    @property
    def how(self) -> str:
        """How the program is run, for ``explain``."""
        on = f"the GPU {self.template.device}: {len(self.template.launches)} launches, "
        replay = self._replay
        if replay.graph is not None:
            return f"{on}captured into a graph, replayed {replay.replays} times"
        return f"{on}started one by one" + (f" ({replay.why})" if replay.why else "")

    def count(self, moves: list[Any]) -> None:
        """Nothing: Python moves version counters."""

    def run(self, table: None, *given: Any) -> int:
        """Start everything for the arrays, floats and hyper-parameters of a call."""
        template = self.template
        for a, array in zip(template.arguments, given, strict=False):
            if a.shape is not None and (array.shape != a.shape or not array.flags.c_contiguous):
                return OTHER_SHAPE
        if self._overlap(given):
            return OVERLAP
        count = len(template.arguments)
        arrays, numbers = given[:count], given[count:]
        block = self._work.reserve(template.work, template.device)
        if block is not self._block:
            self._block = block
            self._fixed.clear()
        try:
            if self._first:
                self._run(self._first, arrays, numbers)
            self._replay.run(arrays, numbers, self._counted(arrays))
        except Exception as error:  # the caller drops gradients before ``fail`` raises it
            self._failure = error
            return FIRST_CHECK
        return DONE

    def _counted(self, arrays: Sequence[Any]) -> list[int]:
        """What the host has left for twins to read, in this call or in the forward pass."""
        found: list[int] = []
        if self.template.counters:
            held = {**self._given, **dict(zip(self._argument, arrays, strict=True))}
            for b in self.template.counters:
                found += held[b].reshape(-1).tolist() if b in held else ()
        return found

    def _start(self, arrays: Sequence[Any], numbers: Sequence[Any], counters: Any = None) -> None:
        """Start all launches on the arrays and numbers of a call, or of a graph.

        counters: those of the host in device memory; None: they are read on the host.
        """
        self._counters = counters
        try:
            self._run(self._steps, arrays, numbers)
        finally:
            self._counters = None

    def _run(
        self, steps: list[Callable[[], None]], arrays: Sequence[Any], numbers: Sequence[Any]
    ) -> None:
        self._numbers, rest = numbers, numbers[len(self.template.floats) :]
        self._hyper = []
        for _, kinds in self.template.hyper:
            self._hyper.append(rest[: len(kinds)])
            rest = rest[len(kinds) :]
        self._given.update(zip(self._argument, arrays, strict=True))
        try:
            for step in steps:
                step()
        finally:
            for b in self._argument:
                del self._given[b]

    def fail(self, status: int) -> None:
        """Raise what went wrong while launches were started, or was found by a look."""
        error, self._failure = self._failure, None
        assert error is not None, f"a compiled step on a GPU returned {status}"
        raise error

    # -- launches --------------------------------------------------------------------------------

    def _step(self, number: int, i: Launch) -> Callable[[], None]:
        """The function that runs a launch."""
        if i.kind == "loop":
            return self._loop_step(i)
        if i.kind in ("check", "watch"):
            return self._check_step(number, i)
        if i.kind == "look":
            return lambda: self._look_now(i)
        if i.kind == "twin":
            return lambda: run_twin(i.what, self._values(i.args, listed=True))
        return lambda: i.what(*self._values(i.args))

    def _loop_step(self, i: Launch) -> Callable[[], None]:
        kernel: LoopKernel = i.what
        function = _loaded(kernel.text, kernel.name)
        if kernel.form == "rows":
            tasks = kernel.kept * kernel.pieces
            grid = grid_of(team_for(-(-kernel.length // kernel.pieces)), tasks)
        elif kernel.form == "columns":
            grid = grid_for(-(-kernel.kept // kernel.columns) * kernel.pieces)
        else:
            grid = strided_grid(kernel.kept)
        if kernel.vector is None:
            return lambda: start(function, grid, BLOCK, *i.numbers, *self._values(i.args))
        wide, wide_grid = _loaded(kernel.vector[1], kernel.vector[0]), grid
        if kernel.form == "each":
            wide_grid = tile_grid(-(-kernel.kept // (kernel.lanes * BLOCK)))

        def by_vectors() -> None:
            values = self._values(i.args)
            together = 0
            for a in values:
                if type(a) is DeviceArray and a.strides[-1]:
                    together |= a.pointer
            if together % 16 or kernel.kept < kernel.lanes:
                start(function, grid, BLOCK, *i.numbers, *values)
            else:
                start(wide, wide_grid, BLOCK, *i.numbers, *values)

        return by_vectors

    def _check_step(self, number: int, i: Launch) -> Callable[[], None]:
        fail = i.what

        def check() -> None:
            kept = self._flags.get(number)
            if kept is None:
                kept = self._flags[number] = device.empty((1,), _INT64, self.template.device)
                fill(kept, -1)
                self._looks.append(lambda: device.check_later(kept, raise_once))
            if i.kind == "check":
                (flag,) = self._values(i.args)
                keep_flag(kept, flag)
            if not device.capturing():
                device.check_later(kept, raise_once)

        def raise_once(value: int) -> None:
            fill(self._flags[number], -1)
            fail(value)

        return check

    def _look_now(self, i: Launch) -> None:
        (flag,) = self._values(i.args)
        value = int(flag.get()[0])
        if value >= 0:
            i.what(value)

    def _look(self) -> None:
        """Have all flags looked at when the host next waits."""
        for look in self._looks:
            look()

    # -- memory ----------------------------------------------------------------------------------

    def _values(self, args: tuple[Any, ...], listed: bool = False) -> tuple[Any, ...]:
        """What the arguments of a launch are in this call."""
        values: list[Any] = []
        for a in args:
            if isinstance(a, Operand):
                values.append(self._array(a))
            elif isinstance(a, tuple):
                values.append([self._array(o) for o in a])
            elif isinstance(a, FloatArgument):
                values.append(self._numbers[a.index])
            elif isinstance(a, Kept):
                values.append(self._flags[a.launch])
            elif isinstance(a, Hypers):
                numbers = self._hyper[a.source]
                values.append(lambda numbers=numbers: numbers)
            else:
                values.append(a)
        return tuple(values)

    def _array(self, o: Operand) -> Any:
        """The array of an operand."""
        found = self._fixed.get(id(o))
        if found is not None:
            return found
        b = o.buffer
        if self._counters is not None and b in self.template.counters:
            first = self.template.counters[b] + o.view.offset
            return self._counters[first : first + o.view.size]
        if b in self._given:
            given = self._given[b]
            if type(given) is not DeviceArray:
                return _host_view(given, o, self._argument.get(b))
            argument = self._argument[b]
            return _seen(given.memory, given.pointer - argument.offset * b.dtype.itemsize, o, given)
        if b in self.template.constants:
            kept = device.table(self.template.constants[b])
            found = _seen(kept.memory, kept.pointer, o, kept)
        elif b.kind == "work":
            block = self._block
            assert block is not None
            found = _seen(block.memory, block.pointer + self.template.offsets[b], o, block)
        else:
            memory: Any = b.memory
            assert memory is not None and memory.array is not None, f"{b.name} has no memory"
            if memory.device is None:
                found = _host_view(memory.array, o, None)
            else:
                found = _seen(memory.array.memory, memory.start, o, memory.array)
        self._fixed[id(o)] = found
        return found

    def _overlap(self, given: tuple[Any, ...]) -> bool:
        """Whether an input shares memory with something that is written."""
        spans: list[tuple[int, int, bool]] = []
        for k, written in self._inputs:
            array = given[k]
            if type(array) is not DeviceArray or not array.size:
                continue
            low, high = extent(array)
            if _meets(self._written, low, high) or (written and _meets(self._used, low, high)):
                return True
            for other_low, other_high, other in spans:
                if (written or other) and low < other_high and other_low < high:
                    return True
            spans.append((low, high, written))
        return False


def _loaded(text: str, name: str) -> Any:
    return getattr(store.load_source(text, name), name)


def _seen(memory: Any, address: int, o: Operand, like: DeviceArray) -> DeviceArray:
    """The array of an operand whose buffer begins at ``address``."""
    step, view = o.dtype.itemsize, o.view
    strides = tuple([s * step for s in view.strides])
    at = address + view.offset * step
    return DeviceArray(memory, at, view.shape, o.dtype, like.device, strides)


def _host_view(array: np.ndarray, o: Operand, argument: Any) -> np.ndarray:
    """The same of host memory."""
    if not array.flags.c_contiguous or (argument is not None and argument.offset):
        raise RecordingError(
            "compile: an array of the CPU that is not contiguous, in a compiled step on a GPU. "
            "Pass a contiguous copy."
        )
    view = o.view
    return machine.view(array.reshape(-1), view.shape, view.strides, view.offset)


Span = tuple[int, int]


def _bounds(buffer: Buffer) -> Span:
    """First address, and the one past the last, of state."""
    memory: Any = buffer.memory
    if memory.device is None:
        return 0, 0
    return memory.start, memory.start + buffer.nbytes


def _merged(spans: list[Span]) -> list[Span]:
    """Spans in order that do not meet."""
    found: list[Span] = []
    for low, high in sorted(s for s in spans if s[0] < s[1]):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return found


def _meets(spans: list[Span], low: int, high: int) -> bool:
    """Whether ``low`` to ``high`` meets one of ``spans``."""
    at = bisect_right(spans, (high - 1, 1 << 70))
    return at > 0 and spans[at - 1][1] > low
