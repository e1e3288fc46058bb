"""Which memory tensors have that outlive a call: their own, or that of other tensors."""

from __future__ import annotations

from typing import Any

from ..errors import RecordingError
from ..kernels.expr import symbol
from ..kernels.formula import Formula
from ..kernels.loops import ElementwiseKernel
from ..tensor import Tensor
from .record import Recorder
from .traced import Memory, Ref, root_of, traced

COPY = ElementwiseKernel(Formula("copy", ("x",), symbol("x")))


def like(array: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype."""
    return array.shape, array.dtype


class Settler:
    """Gives tensors that outlive the call memory of their own."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self.taken: set[Memory] = set()

    def __call__(self, tensor: Tensor, again: bool = False) -> Ref:
        """The memory of ``tensor``, or of a copy where it is shared, strided or not fresh."""
        ref = self.recorder.ref(tensor._array)
        size = tensor._array.size
        own = ref.memory.kind == "made" and ref.memory.size == size and ref.memory not in self.taken
        if not own or not tensor._array.flags.c_contiguous or again:
            device = ref.memory.device
            array = self.recorder.made("made", *like(tensor._array), device=device)
            self.recorder.launch(COPY, (array, tensor._array))
            ref = self.recorder.ref(array)
        self.taken.add(ref.memory)
        return ref


def stays(tensor: Tensor, recorder: Recorder, moving: set[int]) -> bool:
    """Whether a tensor is on memory that is in the same place at each call.

    moving: ids of what owns memory of gradients, which is elsewhere at some calls.
    """
    array = tensor._array
    if traced(array) or id(root_of(array)) in moving:
        return False
    return recorder.ref(array).memory.kind == "state"


def shared(tensor: Tensor, recorder: Recorder, moving: set[int], settle: Settler) -> Ref | None:
    """The memory that ``x.data = tensor`` lets x share; None for that of ``tensor`` itself."""
    if stays(tensor, recorder, moving):
        return None
    ref = recorder.ref(tensor._array)
    if ref.memory.kind == "state":
        raise RecordingError(
            "data: not possible inside a compiled function for the gradient that a tensor had "
            "before the call: a compiled call may move it. Set it to a clone of the gradient, or "
            "outside."
        )
    return settle(tensor) if ref.memory.kind == "constant" else ref
