"""Moving tensors between the CPU and a GPU."""

from __future__ import annotations

from typing import Any

from .. import devices
from ..devices import Device
from ..errors import DeviceError
from ..kernels import machine
from ..tensor import Tensor, wrap
from .base import Op, contiguous


class Transfer(Op):
    """A copy on another device; the gradient is copied back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, device: Device) -> Tensor:
        ctx.home = x._device
        return copied(x, device)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return transfer(g, ctx.home)


def copied(x: Tensor, device: Device) -> Tensor:
    """A contiguous copy on ``device``, off the tape."""
    machine.reading("to", x._array)
    if device.type == "cpu":
        return wrap(x._array.get(), x._dtype)
    return wrap(machine.open_cuda().to_device(contiguous(x)._array, device), x._dtype)


def transfer(x: Tensor, device: Device) -> Tensor:
    """``x`` on ``device``: itself if it is there already."""
    here = x._device
    return x if here is device or here == device else Transfer.apply(x, device)


def cpu(x: Tensor) -> Tensor:
    """This tensor on the CPU: itself, or a copy that waits for the GPU."""
    return transfer(x, devices.cpu)


def cuda(x: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    """This tensor on the GPU; raises DeviceError, saying why, where there is none.

    The copy is asynchronous where the tensor is in page-locked memory (``pin_memory``).
    """
    if isinstance(device, int):
        device = f"cuda:{device}"
    return transfer(x, devices.to_device("cuda" if device is None else device))


def pin_memory(x: Tensor) -> Tensor:
    """A copy in page-locked host memory, from which copies to the GPU are asynchronous."""
    if x._device.type != "cpu":
        raise DeviceError(f"pin_memory: only tensors of the CPU can be pinned, not {x._device}.")
    return wrap(machine.open_cuda().pinned(contiguous(x)._array), x._dtype)


def is_pinned(x: Tensor) -> bool:
    """Whether the elements are in page-locked host memory."""
    if machine.away is None or x._device.type != "cpu":
        return False
    return machine.away.driver().is_pinned(x.data_ptr())


METHODS: dict[str, Any] = {
    "cpu": cpu,
    "cuda": cuda,
    "is_pinned": is_pinned,
    "pin_memory": pin_memory,
}
