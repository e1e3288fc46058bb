"""Arrays of one element that stand for those of all, and the memory they lie in: ``Hidden``."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..errors import VmapError
from ..kernels.traced_array import TracedArray

if TYPE_CHECKING:
    from .verbs import Batch

_new: Any = np.ndarray.__new__
_at, _DATA = ctypes.c_size_t.from_address, object.__basicsize__  # as ``machine.address_of``


class Apart(BaseException):
    """Raised where a function has to be run for each element; says what it did.

    No ``Exception``: what a user's function catches is not this.
    """


class Memory:
    """Memory of every element: ``whole`` begins with that of the first, ``step`` bytes apart.

    A step of 0: all elements share it. own: what the first has, dense where it was made inside
    (``ours``); else it is of an argument, of which ``kept`` is a copy from before it was written.
    """

    writable = True
    written = shown = False
    kept: Any = None
    address: int | None = None

    def __init__(self, batch: Batch, whole: Any, step: int, ours: bool):
        self.batch, self.whole, self.step, self.own = batch, whole, step, whole
        self.ours = ours
        self.flat = type(whole) is np.ndarray and (ours or whole.flags.c_contiguous)

    def place(self, array: Any) -> int:
        """Where ``array`` begins: its first number, counted from that of the first element."""
        if array.at is None:
            if self.address is None:
                self.address = _at(id(self.own) + _DATA).value
            distance = _at(id(array) + _DATA).value - self.address
            if array.size and self.ours and not 0 <= distance < self.own.nbytes:
                raise Apart("copying an array behind the verbs")
            array.at = distance // array.itemsize if array.size else 0
        found: int = array.at
        return found


class Hidden(TracedArray):
    """An array of one element's shape, which stands for those of all elements.

    at: its first number, counted from that of its memory, or None: its address tells. seen: memory
    of all elements, and this array of all in it.
    """

    memory: Memory
    at: int | None = None
    seen: tuple[Any, Any] = (None, None)

    def __array_finalize__(self, parent: Any) -> None:
        if type(parent) is Hidden:
            self.memory = parent.memory

    def element_view(self, shape: Any, strides: Any, offset: int) -> Any:
        """``machine.view`` of this array."""
        memory = self.memory
        if self.at is None or not (memory.ours or memory.flat) or 0 in shape:
            return super().element_view(shape, strides, offset)
        at, step = self.at + offset, self.itemsize
        steps = [s * step for s in strides]
        found: Any = _new(Hidden, shape, self.dtype, memory.own, at * step, steps)
        found.memory, found.at = memory, at
        return found

    def refuse(self, what: str) -> NoReturn:
        """Raise: the function looks at values, or has kept what it made."""
        batch = self.memory.batch
        if batch.standings:
            raise Apart(what)
        raise VmapError(
            f"vmap: {what}: a tensor of shape {list(self.shape)} that was made inside of a vmapped "
            f"function is used outside of it. It has the shape of one element and stands for all "
            f"{batch.size}. Return it from the function, or pass chunk_size=1, which runs the "
            f"function for one element after the other."
        )
