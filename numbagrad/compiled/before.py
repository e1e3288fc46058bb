"""Living tensors before and after a recording: what it did to them, and how that is taken back."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import RecordingError
from ..kernels.cuda.runtime.array import DeviceArray
from ..tape import Counter
from ..tensor import Tensor
from .traced import Launch, Memory, place_of, refs_of, root_of, traced

if TYPE_CHECKING:
    from .record import Recorder


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
        met = id(self.tensor)
        if met in recorder.arrays_set or met in recorder.edges_set:
            return True
        ours = isinstance(self.array, (np.ndarray, DeviceArray))
        return ours and recorder.known_memory(self.array) is not None

    def restore(self, recorder: Recorder) -> None:
        """Make the tensor what it was, in what this recording has changed."""
        t = self.tensor
        if id(t) in recorder.grads_set:
            t._grad = self.grad
        if not self.concerns(recorder):
            return
        if self.edge is None and t._edge is not None and t.is_leaf:
            t._leaf_edge = t._edge  # what a call turns on again, and where results may lead to
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
    """Let the attributes of tensors that were watched be as quick to read as before.

    To ask for the ``__dict__`` of an object makes CPython 3.11 read it the long way ever after, 65
    ns instead of 11, unless it gets another. Nothing here runs Python between copy and assignment,
    so that no other thread's change is lost.
    """
    grads, arrays = recorder.grads_read | recorder.grads_set, recorder.arrays_set
    seen = grads | arrays | recorder.arrays_read | recorder.edges_read
    tensors = [b.tensor for b in before if id(b.tensor) in seen]
    dicts = map(dict, map(vars, tensors))
    deque(map(setattr, tensors, itertools.repeat("__dict__"), dicts), maxlen=0)


@dataclass
class Effects:
    """What a recorded function does to tensors beside writing their memory, and to modules."""

    grads: list[tuple[Tensor, Tensor | None]] = field(default_factory=list)
    arrays: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    bumps: list[tuple[Tensor, int, Any]] = field(default_factory=list)  # versions, line
    needs: list[tuple[Tensor, bool]] = field(default_factory=list)  # requires_grad
    argument_needs: list[tuple[int, bool]] = field(default_factory=list)  # of which argument
    modes: list[tuple[Any, str, bool]] = field(default_factory=list)  # of modules, as of train()


def effects_since(before: list[Before], recorder: Recorder) -> Effects:
    """Compare living tensors with what they were."""
    found = Effects()
    for b in before:
        t = b.tensor
        if id(t) in recorder.grads_set:
            grad = t.__dict__.get("_grad")
            if grad is not b.grad or id(t) not in recorder.grads_read:  # another may be there
                found.grads.append((t, grad))
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
            found.needs.append((t, t._edge is not None))
    return found


def put_in_order(before: list[Before], effects: Effects, recorder: Recorder) -> None:
    """Sort tensors and effects as their memory is met: the collector's order would differ from run
    to run, and so would the text of the program, which names its cache file."""
    met: dict[Memory, int] = {}
    for event in recorder.events:
        if isinstance(event, Launch):
            for ref in refs_of(event):
                met.setdefault(ref.memory, len(met))

    def place(*tensors: Tensor | None) -> list[int]:
        memories = [None if t is None else recorder.known_memory(t._array) for t in tensors]
        return [-1 if m is None else met.get(m, -1) for m in memories]

    for found in effects.grads, effects.arrays:
        found.sort(key=lambda effect: place(*effect))
    before.sort(key=lambda b: place(b.tensor, b.grad))


def roots_of(before: list[Before]) -> dict[int, list[Before]]:
    """Living tensors by the id of what owns their memory."""
    found: dict[int, list[Before]] = {}
    for b in before:
        if isinstance(b.array, (np.ndarray, DeviceArray)):
            found.setdefault(id(root_of(b.array)), []).append(b)
    return found


def note_covering(found: dict[int, DeviceArray], array: Any) -> None:
    """Note ``array`` if it is all of a piece of a GPU's memory."""
    if type(array) is not DeviceArray or array.memory.traced or not array.c_contiguous:
        return
    if array.nbytes == array.memory.asked:
        found.setdefault(id(array.memory), array)


def bases_of_parts(effects: Effects, results: list[Any], recorder: Recorder) -> set[int]:
    """The ids of vectors that gradients are parts of, which nobody else sees: the calls' gradients
    have memory of their own."""
    grads = [t for _, t in effects.grads if t is not None and traced(t._array)]
    refs = [recorder.ref(t._array) for t in grads]
    seen = {recorder.ref(t._array).memory for t in results if isinstance(t, Tensor)}
    ends: dict[Memory, int] = {}
    for ref in sorted(refs, key=lambda r: r.offset):
        reach = sum([(n - 1) * s for n, s in zip(ref.shape, ref.strides, strict=True)])
        if ref.memory.kind != "made" or ref.offset < ends.get(ref.memory, 0):
            seen.add(ref.memory)
        ends[ref.memory] = max(ends.get(ref.memory, 0), ref.offset + reach + 1)
    pairs = zip(grads, refs, strict=True)
    return {id(t._base) for t, ref in pairs if t._base is not None and ref.memory not in seen}
