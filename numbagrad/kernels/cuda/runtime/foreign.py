"""Arrays of other libraries on the same GPU: their memory, and the order of their work and ours.

Start reading at ``borrow``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import devices
from ....errors import DeviceError
from . import device
from .array import Borrowed, DeviceArray

__all__ = ["borrow", "lent_to_us", "order_after", "order_before"]


def order_after(number: int) -> None:
    """Let later work on another library's stream wait for what the current one has been given.

    number: its handle; 1 is the default stream, 2 that of the thread.
    """
    device.driver().wait(device.driver().known_stream(number), device.current_queue())


def order_before(number: int) -> None:
    """Let later work on the current stream wait for what another library's has been given."""
    device.driver().wait(device.current_queue(), device.driver().known_stream(number))


def borrow(value: Any) -> DeviceArray:
    """The memory of another library's array, through its ``__cuda_array_interface__``.

    A copy where it is read-only or repeats elements by a stride of 0. Work of ours waits for what
    its stream has been given. Raises DeviceError for masks, negative strides, and layouts that
    do not step by whole elements.
    """
    interface = value.__cuda_array_interface__
    shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
    address, read_only = interface["data"]
    if interface.get("mask") is not None:
        raise DeviceError("cuda: masked arrays are not supported; fill what is masked first.")
    other = interface.get("stream")
    if other == 0:
        raise DeviceError("cuda: stream 0 of an array is ambiguous; 1 is the default stream.")
    if other is not None:
        order_before(int(other))
    strides = interface.get("strides")
    return lent_to_us(value, address, shape, dtype, strides and tuple(strides), bool(read_only))


def lent_to_us(
    owner: Any,
    address: int,
    shape: tuple[int, ...],
    dtype: np.dtype,
    strides: tuple[int, ...] | None,
    read_only: bool,
) -> DeviceArray:
    """An array on memory that ``owner`` keeps, or a copy of it where that must not be written."""
    if strides is not None and any([s < 0 for s in strides]):
        raise DeviceError("cuda: arrays with negative strides are not supported; copy it first.")
    if address % dtype.itemsize or any([s % dtype.itemsize for s in strides or ()]):
        raise DeviceError("cuda: the array does not step by whole elements; copy it first.")
    memory = Borrowed(address, 0, owner)
    out = DeviceArray(memory, address, shape, dtype, devices.to_device("cuda"), strides)
    steps = zip(out.shape, out.strides, strict=True)
    memory.size = dtype.itemsize + sum([(n - 1) * s for n, s in steps]) if out.size else 0
    repeats = any([s == 0 and n > 1 for n, s in zip(out.shape, out.strides, strict=True)])
    return device.duplicate(out) if (read_only or repeats) and out.size else out
