"""Numbers that kernels read from device memory, so that a graph serves another learning rate.

A ``DeviceNumber`` stands for an argument that would be passed by value: ``start`` launches a form
of the kernel that reads it when it runs. A launch function that looks at it on the host gets the
value of now, and the number is noted as ``looked``, for what is launched depends on it then. Start
reading at ``Numbers``.
"""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import device
from .array import DeviceArray

__all__ = ["DeviceNumber", "Numbers"]

_WORD = np.dtype(np.int64)
SLOTS = 64
"""Rows of page-locked memory that copies may be reading; then the host waits."""


class DeviceNumber:
    """A number in device memory, a float64 or an int64."""

    __slots__ = ("kind", "looked", "memory", "pointer", "value")

    def __init__(self, row: DeviceArray, at: int, kind: str):
        self.memory, self.pointer = row.memory, row.pointer + _WORD.itemsize * at
        self.kind = kind
        self.value: Any = 0
        self.looked = False

    def look(self) -> Any:
        """The value of now, which what is launched will depend on."""
        self.looked = True
        return self.value

    def __float__(self) -> float:
        return float(self.look())

    def __int__(self) -> int:
        return int(self.look())

    def __bool__(self) -> bool:
        return bool(self.look())

    def read(self) -> Any:
        """What a kernel reads, where device memory is host memory."""
        kind: Any = ctypes.c_double if self.kind == "float64" else ctypes.c_int64
        return kind.from_address(self.pointer).value

    def __repr__(self) -> str:
        return f"<{self.value} in device memory>"


def _looking(name: str) -> Callable[..., Any]:
    """An operator that takes the value of now."""
    turned = name.startswith("r")
    compute = getattr(operator, f"__{name[1:] if turned else name}__")

    def method(self: DeviceNumber, *others: Any) -> Any:
        values = [x.look() if type(x) is DeviceNumber else x for x in (self, *others)]
        return compute(*(values[::-1] if turned else values))

    return method


for _name in "add sub mul truediv pow radd rsub rmul rtruediv rpow neg abs lt le gt ge".split():
    setattr(DeviceNumber, f"__{_name}__", _looking(_name))


def _letter(kind: type) -> str:
    """How ``struct`` packs a number of this type."""
    return "d" if issubclass(kind, (float, np.floating)) else "q"


class Numbers:
    """A row of numbers for kernels of the current stream, written anew before they are started.

    each: in the place of every float, and of every value from number ``counted`` on, its
    DeviceNumber; other values, which are modes, stay what they are. Values pass through
    page-locked memory that is not written again before its copy is done, and the copy is in the
    order of the stream: what was started before never sees them. copies: how many there were.
    """

    def __init__(self, values: Sequence[Any], counted: int, place: Any):
        self.kinds, self.counted = tuple(map(type, values)), counted
        self.queue = device.current_queue()
        letters = [_letter(kind) for kind in self.kinds]
        self._moving = [k for k, x in enumerate(letters) if x == "d" or k >= counted]
        self._format = "=" + "".join([letters[k] for k in self._moving])
        self._row = device.empty((max(len(self._moving), 1),), _WORD, place)
        self.each: list[Any] = list(values)
        for at, k in enumerate(self._moving):
            kind = "float64" if letters[k] == "d" else "int64"
            self.each[k] = DeviceNumber(self._row, at, kind)
        self._slots: list[tuple[np.ndarray, Callable[[], bool]]] = []
        self._written = b""
        self.copies = 0

    def fits(self, values: Sequence[Any]) -> bool:
        """Whether ``values`` are of the same kinds, and the stream is the same."""
        return self.queue is device.current_queue() and self.kinds == tuple(map(type, values))

    def put(self, values: Sequence[Any]) -> None:
        """Let kernels that are started from here on read ``values``."""
        for k, value in enumerate(values):
            number = self.each[k]
            if type(number) is DeviceNumber:
                number.value = value
            else:
                self.each[k] = value
        content = struct.pack(self._format, *[values[k] for k in self._moving])
        if content == self._written:
            return
        driver = device.driver()
        slot = self._free_slot(driver)
        slot[:] = np.frombuffer(content, _WORD)
        driver.copy_in(self._row.pointer, slot, self.queue)
        self._slots.append((slot, driver.record(self.queue)))
        self._written = content
        self.copies += 1

    def _free_slot(self, driver: Any) -> np.ndarray:
        """Page-locked memory that no copy is reading."""
        if len(self._slots) >= SLOTS and not self._slots[0][1]():
            driver.synchronize(self.queue)
        if self._slots and self._slots[0][1]():
            return self._slots.pop(0)[0]  # the oldest: copies of a stream are done in order
        return device.pinned(np.zeros(len(self._moving), _WORD))

    def fixed(self) -> tuple[Any, ...]:
        """What launches depend on: numbers that were looked at, and modes."""
        return tuple(
            [
                (k, x.value if type(x) is DeviceNumber else x)
                for k, x in enumerate(self.each)
                if type(x) is not DeviceNumber or x.looked
            ]
        )
