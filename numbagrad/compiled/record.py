"""Running Python with a recorder behind the verbs: what a compiled function is made from.

While ``record`` runs a function, ``empty`` gives arrays whose memory is never touched, ``view``
gives views of them, and ``launch`` writes down what would have run. Nothing is executed, so a
recording that raises has changed nothing. Start reading at ``Recorder``.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FunctionType
from typing import Any

import numpy as np

from ..errors import RecordingError
from ..graph_walk import origin
from ..kernels import machine
from ..kernels.blocks import Block
from ..kernels.cuda.runtime import array as on_device
from ..kernels.cuda.runtime.array import DeviceArray
from ..kernels.forks import held_during_forks
from ..kernels.lists import ListKernel
from ..kernels.loops import ElementwiseKernel
from ..kernels.strides import meet
from ..kernels.traced_array import TracedArray, beneath
from ..kernels.traced_float import TracedFloat, ask_in_closure
from ..tape import grad_mode, show_location, standing_behind, user_location
from ..tensor import Tensor
from .asked import Asked, noting_reads
from .before import Before, note_covering
from .deciding import Deciding
from .held import Held
from .settings import Settings
from .traced import Check, Launch, Memory, Ref, Traced, extent, refuse, root_of, traced
from .watch import watching

recording_alone = threading.RLock()
"""Held while a step is recorded: one thread at a time; and during a fork, for the child would have
a lock that nobody releases and the modes of a recording that nobody ends."""

held_during_forks(recording_alone)

_addresses = itertools.count(1 << 60, 1 << 40)
"""Where traced memory of a GPU would lie: nowhere, each far from the others."""


class Recorder(Deciding):
    """Stands behind the verbs while a function is recorded."""

    compiles = records = True

    def __init__(self) -> None:
        self.events: list[Launch | Check] = []
        self.written: set[Memory] = set()  # by some launch
        self.reads: list[tuple[Callable[[], Any], Any]] = []  # what ``depends`` was told
        self.as_left: Callable[[], AbstractContextManager[None]] = nullcontext
        self.pinned: set[int] = set()  # float arguments whose value decided something
        self.conditions: dict[str, Any] = {}  # expressions of others, and what came out of them
        self._roots: dict[int, tuple[np.ndarray, Memory]] = {}
        self._extents: dict[tuple[int, int, Any], Memory] = {}  # state by first and last address
        self.decided: dict[Memory, Any] = {}  # by whose values Python decided, and where
        self.later = False  # whether this is recorded to run after the call
        self.frozen: set[Memory] = set()  # what may not be written any more
        self.parted: set[int] = set()  # ids of vectors whose parts become gradients
        self.adopted: list[Callable[[], None]] = []  # how to take back state made meanwhile
        self.start = 0  # nodes with larger numbers are made by the function
        self.freed: list[tuple[Any, Any]] = []  # others that it has run back, what they had saved
        self.newborn: dict[int, Before] = {}  # that state, by the id of its array
        self.lasting: set[int] = set()  # ids of arrays that outlive the step
        self.before: frozenset[int] = frozenset()  # ids of arrays that lived before
        self.grads_read: set[int] = set()  # ids of tensors whose ``.grad`` was looked at first
        self.grads_written: set[int] = set()  # ids of tensors whose ``.grad`` was set first
        self.grads_set: set[int] = set()  # ids of tensors whose ``.grad`` was set
        self.arrays_read: set[int] = set()  # ids of tensors whose array was looked at first
        self.edges_read: set[int] = set()  # ids of tensors whose history was asked for
        self.arrays_set: set[int] = set()  # ids of tensors that were given an array
        self.edges_set: set[int] = set()  # ids of tensors that were given a history, or lost it
        self.others: frozenset[int] = frozenset()  # ids of tensors that lived before
        self.arguments: dict[int, tuple[int, Tensor]] = {}  # by id of a stand-in: which, for whom
        self.from_start: set[int] = set()  # arguments that begin where their memory does
        self.held = Held()  # what objects held before
        self.asked = Asked()  # by which names they were asked for something
        self.settings = Settings()  # options of optimisers that are set
        self.covering: dict[int, DeviceArray] = {}  # by the id of a GPU's memory: the whole of it

    @property
    def python_kernels(self) -> list[Any]:
        """Functions that no one compiles: each call runs them as they are."""
        kernels = [e.kernel for e in self.events if isinstance(e, Launch)]
        return [kernel for kernel in kernels if isinstance(kernel, FunctionType)]

    # -- the verbs -------------------------------------------------------------------------------

    def empty(self, shape: tuple[int, ...], dtype: np.dtype, device: Any) -> Any:
        """An array without values."""
        host = device is None or device.type == "cpu"
        return self.made("made", shape, dtype, device=None if host else device)

    def made(
        self, kind: str, shape: tuple[int, ...], dtype: Any, position: int = -1, device: Any = None
    ) -> Any:
        """A traced C-contiguous array with memory of its own."""
        if device is not None:
            start = next(_addresses)
            memory = Memory(kind, np.dtype(dtype), math.prod(shape), start, None, position)
            memory.device = device
            held = on_device.Traced(memory, refuse)
            return DeviceArray(held, start, tuple(shape), memory.dtype, device)
        array = np.ndarray.__new__(Traced, shape, dtype)
        start = machine.address_of(array)
        array.memory = Memory(kind, array.dtype, array.size, start, position=position)
        return array

    def stand_in(self, array: Any, position: int) -> Any:
        """A traced array of the layout of an argument."""
        device = array.device if type(array) is DeviceArray else None
        if array.flags.c_contiguous:
            return self.made("input", array.shape, array.dtype, position, device)
        low, high = extent(array)
        step = array.itemsize
        whole = self.made("input", ((high - low) // step,), array.dtype, position, device)
        strides = tuple([s // step for s in array.strides])
        offset = (machine.address_of(array) - low) // step
        return whole.element_view(array.shape, strides, offset)

    def _passed_as_float(self, kernel: Any, args: tuple[Any, ...]) -> bool:
        """Whether a whole number would be none: launches on a GPU get the numbers of a call as
        floats, which formulas on floats alone take for what they are."""
        if machine.away is None or not isinstance(kernel, ElementwiseKernel):
            return machine.away is not None
        given = [a for a in args[kernel.outputs :] if isinstance(a, (np.ndarray, DeviceArray))]
        return "f" not in [a.dtype.kind for a in given]

    def launch(self, kernel: Any, args: tuple[Any, ...]) -> None:
        """Write down a launch."""
        where, op = origin(2)
        if not isinstance(kernel, (ElementwiseKernel, ListKernel)):
            ask_in_closure(getattr(kernel, "function", kernel))
        taken: list[Any] = []
        for arg in args:
            if type(arg) is list:
                taken.append([self.ref(a) for a in arg])
            elif isinstance(arg, (np.ndarray, DeviceArray)):
                taken.append(self.ref(arg))
            elif isinstance(arg, np.generic):
                taken.append(arg.item())
            elif type(arg) in (float, int, bool, TracedFloat):
                traced_int = type(arg) is TracedFloat and type(arg.value) is int
                if traced_int and self._passed_as_float(kernel, args):
                    arg = arg.asked()
                taken.append(arg)
            elif callable(arg) and isinstance(kernel, ListKernel):
                self.settings.reading(arg)
                taken.append(arg)
            else:
                raise RecordingError(
                    f"launch: a recorded kernel takes arrays and numbers, not "
                    f"{type(arg).__name__}, at {show_location(where)}."
                )
        found = Launch(kernel, tuple(taken), where, op)
        if machine.away is not None and not isinstance(kernel, ElementwiseKernel):
            self._need_twin(found)
        self.events.append(found)
        for arg in taken[: getattr(kernel, "outputs", len(taken))]:
            refs = [r for r in (arg if type(arg) is list else [arg]) if isinstance(r, Ref)]
            self.written.update([r.memory for r in refs])
            if isinstance(kernel, ElementwiseKernel) and any(
                0 not in r.shape and meet(r.shape, r.strides) for r in refs
            ):
                raise RecordingError(
                    f"in-place: more than one element of the written-to tensor refers to a single "
                    f"memory location, at {show_location(where)}: in a compiled function the order "
                    f"of such writes is not kept. Please clone() the tensor before."
                )
            if self.frozen and any([r.memory in self.frozen for r in refs]):
                raise RecordingError(
                    f"x[mask][k]: one of the rows that a mask selects cannot be written inside a "
                    f"compiled function, at {show_location(where)}: the others would not be "
                    f"written with it. Write into a clone() of it, or into x."
                )

    def freeing(self, node: Any) -> None:
        """Note what a node from before has saved, which is about to be forgotten."""
        if node._sequence <= self.start:
            self.freed.append((node, node._saved))

    def freeze(self, array: Any) -> None:
        """Refuse to write ``array`` from now on."""
        self.frozen.add(self.ref(array).memory)

    def is_new(self, array: Any) -> bool:
        """Whether ``array`` is memory of this recording that no launch has written yet."""
        memory = self.known_memory(array)
        return memory is not None and memory.kind == "made" and memory not in self.written

    def own_constants(self, copy: Any, returned: dict[int, Tensor]) -> None:
        """Give constants that are written, or that several results show, memory of their own, into
        which each call copies them."""
        owned = {memory: event.where for memory, event in self._first_writes().items()}
        shown: set[Memory] = set()
        for tensor in returned.values():
            if id(tensor) not in self.others:
                memory = self._memory_of(tensor._array)
                if memory in shown:
                    owned.setdefault(memory, None)
                shown.add(memory)
        copies = []
        for memory, where in owned.items():
            if memory.kind != "constant":
                continue
            constant = dataclasses.replace(memory)
            memory.kind, memory.array = "made", None
            whole = [Ref(m, (m.size,), (1,), 0) for m in (memory, constant)]
            copies.append(Launch(copy, tuple(whole), where, "tensor"))
        self.events[:0] = copies

    def _first_writes(self) -> dict[Memory, Launch]:
        """Memory with the first launch that may write to it.

        Of a function that says nothing about outputs every array may be written.
        """
        first: dict[Memory, Launch] = {}
        for event in self.events:
            if isinstance(event, Launch):
                for arg in event.args[: getattr(event.kernel, "outputs", len(event.args))]:
                    for ref in arg if isinstance(arg, list) else [arg]:
                        if isinstance(ref, Ref):
                            first.setdefault(ref.memory, event)
        return first

    def _need_twin(self, launch: Launch) -> None:
        """Raise if a launch is for a GPU and cannot be there."""
        from ..kernels.cuda.runtime.twins import is_cuda, needed_twin

        refs = [r for a in launch.args for r in (a if isinstance(a, list) else [a])]
        if any(isinstance(r, Ref) and r.memory.device is not None for r in refs):
            if not is_cuda(launch.kernel):
                needed_twin(launch.kernel)

    def ref(self, array: Any) -> Ref:
        """``array`` by its memory."""
        memory, step = self._memory_of(array), array.itemsize
        # Nothing lies anywhere: its address, which differs in each process, would be in the text.
        distance = machine.address_of(array) - memory.start if array.size else 0
        outside = not 0 <= distance < max(memory.size, 1) * memory.dtype.itemsize
        if outside or distance % step or array.dtype != memory.dtype:
            raise RecordingError(
                "launch: an array was copied or changed behind the verbs empty, view and launch, "
                f"at {show_location(user_location())}. Use tensor operations instead."
            )
        strides = tuple([s // step for s in array.strides])
        return Ref(memory, array.shape, strides, distance // step)

    def known_memory(self, array: Any) -> Memory | None:
        """The memory of ``array``, if the recording has met it."""
        if traced(array):
            return self._memory_of(array)
        found = self._roots.get(id(root_of(array)))
        return None if found is None else found[1]

    def _memory_of(self, array: Any) -> Memory:
        if type(array) is DeviceArray:
            return self._memory_on_device(array)
        root = array
        while True:
            if type(root) is Traced and root.memory is not None:
                return root.memory
            if isinstance(root, TracedArray):
                root.refuse("using it in a compiled function")
            if (base := beneath(root)) is None:
                break
            root = base
        found = self._roots.get(id(root))
        if found is not None:
            return found[1]
        low, high = np.lib.array_utils.byte_bounds(root) if root.size else (0, 0)
        foreign = root.base is not None and type(root.base) is not Block
        known = id(root) in self.before or id(root) in self.lasting or foreign
        size = (high - low) // root.itemsize
        memory = Memory("state" if known else "constant", root.dtype, size, low)
        if known and size:  # several arrays, that do not know of each other, on one buffer
            memory = self._extents.setdefault((low, high, root.dtype), memory)
        # A constant may be changed by Python later, but never after the launch that reads it.
        if memory.array is None:
            memory.array = root if known else root.copy("K")
        self._roots[id(root)] = (root, memory)
        return memory

    def _memory_on_device(self, array: DeviceArray) -> Memory:
        root = array.memory
        if root.traced:
            return root.memory
        found = self._roots.get(id(root))
        if found is not None:
            return found[1]
        known = id(root) in self.before or id(root) in self.lasting
        size = root.asked // array.itemsize
        memory = Memory("state" if known else "constant", array.dtype, size, root.address)
        memory.device = array.device
        whole = self.covering.get(id(root))
        if whole is None or whole.dtype != array.dtype:
            whole = DeviceArray(root, root.address, (size,), array.dtype, array.device)
        memory.array = whole
        self._roots[id(root)] = (root, memory)
        return memory

    # -- what ops tell ---------------------------------------------------------------------------

    def check(self, flag: np.ndarray, fail: Callable[[int], None]) -> None:
        """Write down a flag to look at."""
        self.events.append(Check(self.ref(flag), fail, *origin(2)))

    def position(self) -> int:
        """How far the recording is, for ``go_back``."""
        return len(self.events)

    def go_back(self, position: int) -> None:
        """Forget the launches since."""
        del self.events[position:]

    def accumulating(self, leaf: Any) -> None:
        """Nothing: gradients that leaves get are found when the recording ends."""

    def depends(self, read: Callable[[], Any], value: Any) -> None:
        """Note a Python value that the recording depends on."""
        self.settings.reading(read)
        self.reads.append((read, value))

    def bind(self, array: np.ndarray) -> None:
        """Note that an array outlives the step."""
        self.lasting.add(id(root_of(array)))

    def adopt(self, tensor: Tensor, undo: Callable[[], None]) -> None:
        """Note state made for real meanwhile; ``undo`` takes it back if the recording fails."""
        self.bind(tensor._array)
        note_covering(self.covering, tensor._array)
        self.newborn[id(root_of(tensor._array))] = Before.of(tensor, None)
        self.adopted.append(undo)

    def carrying(self, container: dict[str, Any], name: str) -> None:
        """Note that an entry of an optimiser's dict is about to be set, a count of steps say."""
        self.held.note_entry(container, name)

    def setting(self, options: Any, name: str, value: Any) -> None:
        """Note that an option is about to be set to a number."""
        self.settings.note(options, name, value)

    def reading_options(self, options: dict[str, Any]) -> None:
        """Note that a user's optimiser is about to read its numbers: each call passes them."""
        self.settings.check_now(options)
        self.held.note_options(options)

    def undo(self, function: Callable[[], None]) -> None:
        """Call ``function`` if the recording fails."""
        self.adopted.append(function)

    def set_data(self, tensor: Tensor) -> None:
        """Refuse to set the ``.data`` of an argument."""
        if id(tensor) in self.arguments:
            raise RecordingError(
                f"data: not possible for an argument of a compiled function, at "
                f"{show_location(user_location())}: a compiled call would not do it. Write into "
                f"it, x.copy_(y), or return y."
            )

    def counts_from_start(self, name: str, tensor: Tensor) -> None:
        """Note that elements are counted from where the memory of ``tensor`` begins.

        For an argument that is where the argument does, or there is nothing to go by.
        """
        if id(tensor) not in self.arguments:
            return
        position, leaf = self.arguments[id(tensor)]
        if leaf.storage_offset():
            raise RecordingError(
                f"{name}: not possible inside a compiled function, at "
                f"{show_location(user_location())}, with a storage_offset for an argument that is "
                f"a view and begins {leaf.storage_offset()} elements after its memory. Pass the "
                f"tensor that it is a view of, or a clone."
            )
        self.from_start.add(position)

    def set_sizes(self, name: str, tensor: Tensor) -> None:
        """Refuse to give a tensor that the recording did not make other sizes."""
        if id(tensor) in self.arguments or id(tensor) in self.others:
            raise RecordingError(
                f"{name}: not possible for a tensor that a compiled function did not make, at "
                f"{show_location(user_location())}: a compiled call would not do it. Use "
                f"{name.removesuffix('_')}, which gives a view, or call it outside."
            )

    def reading(self, name: str, array: np.ndarray) -> None:
        """Refuse to show values, unless they are constants made from Python values."""
        root = root_of(array)
        if traced(array) or id(root) in self.before or id(root) in self.lasting:
            refuse(name)
        met = self._roots.get(id(root))
        if met is not None and met[1] in self._first_writes():
            refuse(name)

    def check_extents(self) -> None:
        """Raise if state overlaps other state that is written, without being known as its view:
        what is written through one would not be seen through the other."""
        written, reached = self._first_writes(), 0
        last: Memory | None = None  # that reaches furthest
        for key in sorted(self._extents, key=lambda key: key[:2]):
            memory, (start, end, _) = self._extents[key], key
            event = written.get(memory) or (last and written.get(last))
            if last is not None and start < reached and event:
                raise RecordingError(
                    f"compile: two tensors lie on one buffer, {last.size} {last.dtype} from "
                    f"{last.start:#x} and {memory.size} {memory.dtype} from {start:#x}, and one of "
                    f"them is written, at {show_location(event.where)}. As their arrays are not "
                    f"views of one array, a compiled call would not see that through the other: "
                    f"make one tensor of the whole buffer and take views of it."
                )
            if end > reached:
                reached, last = end, memory

    def written_arguments(self) -> list[int]:
        """The places of the arguments on the host that may be written."""
        inputs = [m for m in self._first_writes() if m.kind == "input" and m.device is None]
        return [m.position for m in inputs if m.position >= 0]

    def outside(self, name: str, way_out: str) -> None:
        """Refuse what would happen in the recording only."""
        line = show_location(user_location())
        raise RecordingError(
            f"{name}: not possible inside a compiled function, at {line}: it changes Python "
            f"values, which a compiled call does not run. {way_out}"
        )

    def afterwards(
        self, name: str, function: Callable[..., Any], options: Iterable[Any], *values: Any
    ) -> bool:
        """Let each call end with ``function`` of ``values``, which runs as Python."""
        self.settings.put_off(name, function, options, values)
        return True

    def late(self, name: str, options: Any, read: Callable[[], Any]) -> Any:
        """What stands for ``read()`` if calls change ``options`` in the end, else None."""
        return self.settings.late(name, options, read)

    def unchanged(self, options: Any) -> None:
        """Raise if calls change ``options`` in the end."""
        self.settings.check_now(options)

    def traced_float(self, index: int, value: float) -> TracedFloat:
        """The stand-in of float argument ``index``."""
        number = float(value) if type(value) is float else int(value)
        return TracedFloat(f"f{index}", number, lambda: self.pinned.add(index), self._decide)

    def _decide(self, text: str, found: Any) -> None:
        self.conditions.setdefault(text, found)


@contextmanager
def recording_with(recorder: Recorder) -> Iterator[None]:
    """Let ``recorder`` stand behind the verbs of this thread.

    Meanwhile nobody looks for NaN, and what is saved is not packed: that happens at each call. What
    an autocast around the call keeps of weights are not those of the recording.
    """
    reading = noting_reads(recorder.asked)
    with recording_alone, standing_behind(recorder), watching(), reading:
        held, grad_mode.anomaly = grad_mode.anomaly, None
        saving, grad_mode.saving = grad_mode.saving, None
        cast = grad_mode.autocast
        if cast is not None:
            grad_mode.autocast = cast.apart()
        try:
            yield
        finally:
            grad_mode.anomaly, grad_mode.saving, grad_mode.autocast = held, saving, cast
