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
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numba.core.typing.typeof import typeof_impl

from .. import devices
from ..errors import RecordingError
from ..kernels import machine
from ..kernels.blocks import Block
from ..kernels.cuda.runtime import array as on_device
from ..kernels.cuda.runtime.array import DeviceArray
from ..kernels.halves import HALVES
from ..kernels.lists import ListKernel
from ..kernels.loops import ElementwiseKernel
from ..kernels.traced_float import TracedFloat
from ..tape import (
    Counter,
    Location,
    grad_mode,
    origin,
    show_location,
    standing_behind,
    user_location,
)
from ..tensor import Tensor

recording_alone = threading.RLock()
"""Held while a step is recorded: one thread at a time."""

# What NumPy may do with a traced array: make views of it.
_VIEWS = frozenset(
    getattr(np, name)
    for name in "transpose broadcast_to expand_dims squeeze moveaxis swapaxes reshape shape ndim "
    "size".split()
)


@dataclass(eq=False)
class Memory:
    """A piece of memory that a recording meets.

    kind: "input" (an argument's), "state" (lives before and after the call), "constant" (made from
    Python values while recording) or "made" (by ``empty``). start: its address while recording;
    size: in elements. array: the whole of it, for state and constants. device: None on the host.
    """

    kind: str
    dtype: np.dtype
    size: int
    start: int
    array: Any = None
    position: int = -1  # of an input
    name: str = ""
    device: Any = None


@dataclass(frozen=True)
class Ref:
    """An array argument of a launch: elements of ``memory`` at ``offset + index . strides``."""

    memory: Memory
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments: Refs, lists of Refs, numbers, TracedFloats, a callable."""

    kernel: Any
    args: tuple[Any, ...]
    where: Location | None
    op: str


@dataclass(frozen=True)
class Check:
    """The place of a flag, and the function that raises when it is not negative."""

    flag: Ref
    fail: Callable[[int], None]
    where: Location | None
    op: str


class Traced(np.ndarray):
    """An array whose elements do not exist yet: looking at them is an error."""

    memory: Memory | None = None
    __numba_array_subtype_dispatch__ = True  # Numba asks what it is instead of taking the memory

    def __array_finalize__(self, parent: Any) -> None:
        self.memory = getattr(parent, "memory", None)

    def element_view(self, shape: Any, strides: Any, offset: int) -> Traced:
        """``machine.view`` of this array."""
        step = self.itemsize
        found = (
            np.ndarray.__new__(
                Traced, shape, self.dtype, _whole(self), 0, [s * step for s in strides]
            )
            if 0 in shape
            else _placed(self, shape, strides, offset)
        )
        found.memory = self.memory
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> NoReturn:
        refuse(f"numpy.{ufunc.__name__}")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in _VIEWS:
            return super().__array_function__(function, types, args, kwargs)
        refuse(f"numpy.{function.__name__}")

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if not isinstance(found, np.ndarray):
            refuse("reading an element")
        return found

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        refuse("writing an element")


@typeof_impl.register(Traced)
def _typeof_traced(array: Traced, context: Any) -> NoReturn:
    refuse("calling compiled code on an array; launch(kernel, out, x) can be recorded")


def _refusing(name: str) -> Callable[..., NoReturn]:
    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(name)

    return method


for _name in """
    item tolist tobytes copy astype fill sort argsort nonzero dot __bool__ __int__ __float__
    __index__ __iter__ __contains__
""".split():
    setattr(Traced, _name, _refusing(_name.strip("_")))


def _whole(array: Any) -> Any:
    """What owns the memory of ``array``: an array, on a GPU the memory itself."""
    if type(array) is DeviceArray:
        return array.memory
    while isinstance(base := getattr(array, "base", None), np.ndarray):
        array = base
    return array


def place_of(array: Any) -> devices.Device:
    """The device of an array."""
    return array.device if type(array) is DeviceArray else devices.cpu


def _placed(array: Traced, shape: Any, strides: Any, offset: int) -> Traced:
    root, step = _whole(array), array.itemsize
    start = machine.address_of(array) - machine.address_of(root) + offset * step
    return np.ndarray.__new__(Traced, shape, array.dtype, root, start, [s * step for s in strides])


def traced(array: Any) -> bool:
    """Whether ``array`` is one of a recording, on the host or on a GPU."""
    return type(array) is Traced or (type(array) is DeviceArray and array.memory.traced)


def extent(array: Any) -> tuple[int, int]:
    """The first address of an array's elements, and the one past the last."""
    if type(array) is not DeviceArray:
        return np.lib.array_utils.byte_bounds(array)
    low = high = array.pointer
    for n, s in zip(array.shape, array.strides, strict=True):
        low, high = low + min(0, (n - 1) * s), high + max(0, (n - 1) * s)
    return low, high + array.itemsize


_addresses = itertools.count(1 << 60, 1 << 40)
"""Where traced memory of a GPU would lie: nowhere, each far from the others."""


def refuse(what: str) -> NoReturn:
    """Raise because Python looked at, or changed, values that are only computed later."""
    line = show_location(user_location(2))
    raise RecordingError(
        f"{what}: not possible inside a compiled function, at {line}: while a step is recorded its "
        f"tensors have no values yet. Return the tensor and look at it outside, or keep this line "
        f"out of the compiled function; ng.where(condition, x, y) chooses between values."
    )


def _is_half_of_the_host(arg: Any) -> bool:
    if type(arg) is list:
        return any(map(_is_half_of_the_host, arg))
    return type(arg) is Ref and arg.memory.device is None and arg.memory.dtype in HALVES


class Recorder:
    """Stands behind the verbs while a function is recorded."""

    def __init__(self) -> None:
        self.events: list[Launch | Check] = []
        self.reads: list[tuple[Callable[[], Any], Any]] = []  # what ``depends`` was told
        self.pinned: set[int] = set()  # float arguments whose value decided something
        self._roots: dict[int, tuple[np.ndarray, Memory]] = {}
        self.adopted: list[Callable[[], None]] = []  # how to take back state made meanwhile
        self.newborn: dict[int, Before] = {}  # that state, by the id of its array
        self.lasting: set[int] = set()  # ids of arrays that outlive the step
        self.before: frozenset[int] = frozenset()  # ids of arrays that lived before
        self.grads_read: set[int] = set()  # ids of tensors whose ``.grad`` was looked at first
        self.grads_written: set[int] = set()  # ids of tensors whose ``.grad`` was set first
        self.grads_set: set[int] = set()  # ids of tensors whose ``.grad`` was set
        self.touched: set[int] = set()  # ids of tensors whose ``.data`` was set
        self.others: frozenset[int] = frozenset()  # ids of tensors that lived before
        self.arguments: set[int] = set()  # ids of those that stand in for arguments
        self.covering: dict[int, DeviceArray] = {}  # by the id of a GPU's memory: the whole of it

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

    def launch(self, kernel: Any, args: tuple[Any, ...]) -> None:
        """Write down a launch."""
        where, op = origin(2)
        taken: list[Any] = []
        for arg in args:
            if type(arg) is list:
                taken.append([self.ref(a) for a in arg])
            elif isinstance(arg, (np.ndarray, DeviceArray)):
                taken.append(self.ref(arg))
            elif isinstance(arg, np.generic):
                taken.append(arg.item())
            elif type(arg) in (float, int, bool, TracedFloat):
                taken.append(arg)
            elif callable(arg) and isinstance(kernel, ListKernel):
                taken.append(arg)
            else:
                raise RecordingError(
                    f"launch: a recorded kernel takes arrays and numbers, not "
                    f"{type(arg).__name__}, at {show_location(where)}."
                )
        if any([_is_half_of_the_host(a) for a in taken]):
            raise RecordingError(
                f"compile: float16 and bfloat16 can be compiled on a GPU only, at "
                f"{show_location(where)}. Convert with .float(), or do this part outside of the "
                f"compiled function."
            )
        found = Launch(kernel, tuple(taken), where, op)
        if machine.away is not None and not isinstance(kernel, ElementwiseKernel):
            self._need_twin(found)
        self.events.append(found)

    def own_constants(self, copy: Any) -> None:
        """Give constants that are written memory of their own, into which each call copies them."""
        copies = []
        for memory, event in self._written_constants().items():
            constant = dataclasses.replace(memory)
            memory.kind, memory.array = "made", None
            whole = [Ref(m, (m.size,), (1,), 0) for m in (memory, constant)]
            copies.append(Launch(copy, tuple(whole), event.where, "tensor"))
        self.events[:0] = copies

    def _written_constants(self) -> dict[Memory, Launch]:
        """Constants with the first launch that may write to them.

        Of a function that says nothing about outputs every array may be written.
        """
        first: dict[Memory, Launch] = {}
        for event in self.events:
            if isinstance(event, Launch):
                for arg in event.args[: getattr(event.kernel, "outputs", len(event.args))]:
                    for ref in arg if isinstance(arg, list) else [arg]:
                        if isinstance(ref, Ref) and ref.memory.kind == "constant":
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
        distance = machine.address_of(array) - memory.start
        outside = array.size and not 0 <= distance < max(memory.size, 1) * memory.dtype.itemsize
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
        found = self._roots.get(id(_whole(array)))
        return None if found is None else found[1]

    def _memory_of(self, array: Any) -> Memory:
        if type(array) is DeviceArray:
            return self._memory_on_device(array)
        root = array
        while True:
            if type(root) is Traced and root.memory is not None:
                return root.memory
            if not isinstance(root.base, np.ndarray):
                break
            root = root.base
        found = self._roots.get(id(root))
        if found is not None:
            return found[1]
        low, high = np.lib.array_utils.byte_bounds(root) if root.size else (0, 0)
        foreign = root.base is not None and type(root.base) is not Block
        known = id(root) in self.before or id(root) in self.lasting or foreign
        size = (high - low) // root.itemsize
        memory = Memory("state" if known else "constant", root.dtype, size, low)
        # A constant may be changed by Python later, but never after the launch that reads it.
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

    def depends(self, read: Callable[[], Any], value: Any) -> None:
        """Note a Python value that the recording depends on."""
        self.reads.append((read, value))

    def bind(self, array: np.ndarray) -> None:
        """Note that an array outlives the step."""
        self.lasting.add(id(_whole(array)))

    def adopt(self, tensor: Tensor, undo: Callable[[], None]) -> None:
        """Note state made for real meanwhile; ``undo`` takes it back if the recording fails."""
        self.bind(tensor._array)
        note_covering(self.covering, tensor._array)
        self.newborn[id(_whole(tensor._array))] = Before.of(tensor, None)
        self.adopted.append(undo)

    def undo(self, function: Callable[[], None]) -> None:
        """Call ``function`` if the recording fails."""
        self.adopted.append(function)

    def set_data(self, tensor: Tensor) -> None:
        """Note that the ``.data`` of a tensor is set; refuse it for an argument."""
        if id(tensor) in self.arguments:
            raise RecordingError(
                f"data: not possible for an argument of a compiled function, at "
                f"{show_location(user_location())}: a compiled call would not do it. Write into "
                f"it, x.copy_(y), or return y."
            )
        self.touched.add(id(tensor))

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
        root = _whole(array)
        if traced(array) or id(root) in self.before or id(root) in self.lasting:
            refuse(name)
        met = self._roots.get(id(root))
        if met is not None and met[1] in self._written_constants():
            refuse(name)

    def outside(self, name: str) -> None:
        """Refuse what would happen in the recording only."""
        line = show_location(user_location())
        raise RecordingError(
            f"{name}: not possible inside a compiled function, at {line}: it changes Python "
            f"values, which a compiled call does not run. Call it after the compiled step."
        )

    def traced_float(self, index: int, value: float) -> TracedFloat:
        """The stand-in of float argument ``index``."""
        return TracedFloat(f"f{index}", value, lambda: self.pinned.add(index))


class _WatchedGrad:
    """Takes the place of ``Tensor._grad`` while a step is recorded: notes whose is looked at."""

    def __get__(self, tensor: Any, owner: Any) -> Any:
        if tensor is None:
            return None
        recorder = machine.recorder.current
        if recorder is not None and id(tensor) not in recorder.grads_written:
            recorder.grads_read.add(id(tensor))
        return tensor.__dict__.get("_grad")

    def __set__(self, tensor: Any, grad: Any) -> None:
        recorder = machine.recorder.current
        if recorder is not None:
            recorder.grads_set.add(id(tensor))
            if id(tensor) not in recorder.grads_read:
                recorder.grads_written.add(id(tensor))
        tensor.__dict__["_grad"] = grad


@contextmanager
def watching_grads() -> Iterator[None]:
    """Let the recorder of this thread know which gradients are looked at."""
    Tensor._grad = _WatchedGrad()  # type: ignore[assignment]
    try:
        yield
    finally:
        Tensor._grad = None


def refuse_requires_grad() -> NoReturn:
    """Raise because a tensor from outside was made to need a gradient, or not to."""
    raise RecordingError(
        "requires_grad_: not possible inside a compiled function for a tensor that it did not "
        "make: a compiled call would not do it. Change requires_grad before the call."
    )


# -- tensors before and after ----------------------------------------------------------------------


@dataclass(frozen=True)
class Before:
    """A living tensor as it was before a recording."""

    tensor: Tensor
    array: Any
    dtype: Any
    edge: Any
    grad: Any
    counter: Counter | None
    version: int
    where: Any
    flat: bool

    @staticmethod
    def of(t: Tensor, grad: Tensor | None) -> Before:
        """Note the parts of ``t`` that a function can change; grad: its gradient."""
        c = t._counter
        version, where = (c.value, c.where) if c is not None else (0, None)
        return Before(t, t._array, t._dtype, t._edge, grad, c, version, where, t._flat)

    def concerns(self, recorder: Recorder) -> bool:
        """Whether the recording has met the tensor's memory: other threads go on meanwhile."""
        t = self.tensor
        met = traced(t._array) or id(t) in recorder.touched
        ours = isinstance(self.array, (np.ndarray, DeviceArray))
        return met or (ours and recorder.known_memory(self.array) is not None)

    def restore(self, recorder: Recorder) -> None:
        """Make the tensor what it was, in what this recording has changed."""
        t = self.tensor
        if id(t) in recorder.grads_set:
            t._grad = self.grad
        if not self.concerns(recorder):
            return
        for name, value in (
            ("_array", self.array),
            ("_dtype", self.dtype),
            ("_edge", self.edge),
            ("_flat", self.flat),
            ("_device", place_of(self.array)),
        ):
            if getattr(t, name) is not value:
                setattr(t, name, value)
        counter = t._counter
        if self.counter is not None:
            self.counter.value, self.counter.where = self.version, self.where
        elif counter is not None:
            counter.value = 0


def renew_dicts(before: list[Before], recorder: Recorder) -> None:
    """Let the attributes of tensors whose gradients were watched be as quick to read as before.

    To ask for the ``__dict__`` of an object makes CPython 3.11 read it the long way ever after, 65
    ns instead of 11, unless it gets another. Nothing here runs Python between copy and assignment,
    so that no other thread's change is lost.
    """
    seen = recorder.grads_read | recorder.grads_set
    tensors = [b.tensor for b in before if id(b.tensor) in seen]
    dicts = map(dict, map(vars, tensors))
    deque(map(setattr, tensors, itertools.repeat("__dict__"), dicts), maxlen=0)


@dataclass
class Effects:
    """What a recorded function does to tensors beside writing their memory."""

    grads: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)
    arrays: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    bumps: list[tuple[Tensor, int, Any]] = field(default_factory=list)  # versions, line


def effects_since(before: list[Before], recorder: Recorder) -> Effects:
    """Compare living tensors with what they were."""
    found = Effects()
    for b in before:
        t = b.tensor
        if id(t) in recorder.grads_set and t.__dict__.get("_grad") is not b.grad:
            found.grads.append((t, t.__dict__.get("_grad")))
        if not b.concerns(recorder):
            continue
        if t._array is not b.array:
            if place_of(t._array) != place_of(b.array):
                raise RecordingError(
                    "data: a compiled function moved a tensor that it did not make to another "
                    "device. Move it before the call."
                )
            found.arrays.append((t, t.data))
        counter = t._counter
        if counter is not None and counter.value != b.version:
            found.bumps.append((t, counter.value - b.version, counter.where))
        if t._edge is not b.edge and not (t.is_leaf and (b.edge is None or b.array is t._array)):
            raise RecordingError(
                "in-place: a compiled function changed the history of a tensor that it did not "
                "make and that is not a leaf. Change a clone, or pass detach() of it."
            )
        if (t._edge is None) != (b.edge is None):
            refuse_requires_grad()
    return found


@contextmanager
def recording_with(recorder: Recorder) -> Iterator[None]:
    """Let ``recorder`` stand behind the verbs of this thread.

    Meanwhile nobody looks for NaN, and what is saved is not packed: that happens at each call.
    """
    with recording_alone, standing_behind(recorder), watching_grads():
        held, grad_mode.anomaly = grad_mode.anomaly, None
        saving, grad_mode.saving = grad_mode.saving, None
        try:
            yield
        finally:
            grad_mode.anomaly, grad_mode.saving = held, saving


def roots_of(before: list[Before]) -> dict[int, list[Before]]:
    """Living tensors by the id of what owns their memory."""
    found: dict[int, list[Before]] = {}
    for b in before:
        if isinstance(b.array, (np.ndarray, DeviceArray)):
            found.setdefault(id(_whole(b.array)), []).append(b)
    return found


def note_covering(found: dict[int, DeviceArray], array: Any) -> None:
    """Note ``array`` if it is all of a piece of a GPU's memory."""
    if type(array) is not DeviceArray or array.memory.traced or not array.c_contiguous:
        return
    if array.nbytes == array.memory.asked:
        found.setdefault(id(array.memory), array)
