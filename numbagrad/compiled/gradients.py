"""The gradients that compiled calls leave in ``.grad``: memory that is written again and again.

A gradient is overwritten by the next call only while nobody but ``.grad`` holds it; else it gets
new memory, as without ``compile``. All compiled functions share these gradients.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

from ..kernels import blocks
from ..tensor import Tensor, wrap
from .bind import Bound
from .program import Buffer


class Slot:
    """The gradient of one tensor: ``grad[0]`` over ``array[0]``, each held once by this object."""

    def __init__(self, tensor: Tensor, shape: tuple[int, ...], dtype: Any, edge: Any):
        self.tensor = tensor
        self.shape, self.edge, self.dtype = shape, edge, dtype
        self.array = [blocks.lasting(shape, dtype)]
        self.grad = [self._wrapped()]
        self.users: list[tuple[weakref.ref[Bound], Buffer, int]] = []
        held = tensor._grad
        tensor._grad = self.grad[0]
        self.expected = self._count()
        tensor._grad = held

    def _wrapped(self) -> Tensor:
        grad = wrap(self.array[0], self.tensor._dtype)
        grad._edge = self.edge
        return grad

    def _count(self) -> tuple[int, int]:
        """References to the tensor and to the array."""
        return sys.getrefcount(self.grad[0]) - 1, sys.getrefcount(self.array[0]) - 1

    def used_by(self, bound: Bound, buffer: Buffer, number: int = -1) -> None:
        """Let ``bound`` know of new memory. number: that of the gradients it overwrites, if so."""
        self.users.append((weakref.ref(bound), buffer, number))
        self._tell()

    def _tell(self) -> None:
        for reference, buffer, number in self.users:
            bound = reference()
            if bound is not None:
                bound.arrays[buffer] = None  # the table has the address; no reference is kept
                bound.rebind(buffer, self.array[0])
                if number >= 0:
                    bound.guard(number, self.grad[0], self.array[0], self.expected)

    def renew(self) -> None:
        """Make ``.grad`` ours, with new memory if somebody else may hold the old."""
        grads, arrays = self._count()
        if self.tensor._grad is not self.grad[0]:
            grads += 1
        if (grads, arrays) != self.expected:
            self.array[0] = blocks.lasting(self.shape, self.dtype)
            self.grad[0] = self._wrapped()
            self._tell()
        self.grad[0]._counter = None  # as for the fresh tensor that it stands for
        self.tensor._grad = self.grad[0]


class Gradients:
    """The slots of all compiled functions, by tensor: functions that share a model share them."""

    def __init__(self) -> None:
        self._slots: weakref.WeakValueDictionary[int, Slot] = weakref.WeakValueDictionary()

    def slot(self, tensor: Tensor, shape: tuple[int, ...], dtype: Any, edge: Any) -> Slot:
        """The slot of ``tensor``, made on first need."""
        found = self._slots.get(id(tensor))
        kind = None if found is None else (found.shape, found.dtype)
        if found is None or found.tensor is not tensor or kind != (shape, dtype):
            found = self._slots[id(tensor)] = Slot(tensor, shape, dtype, edge)
        return found

    def holding(self, tensor: Tensor, grad: Tensor) -> Slot | None:
        """The slot of ``tensor`` if ``grad`` is its."""
        slot = self._slots.get(id(tensor))
        return slot if slot is not None and slot.grad[0] is grad else None


GRADIENTS = Gradients()
