"""The accelerator, whichever there is, under PyTorch's names: here a GPU, ``ng.cuda``."""

from __future__ import annotations

from typing import Any

from . import cuda
from .cuda import (
    current_stream,
    device_count,
    empty_cache,
    is_available,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    reset_peak_memory_stats,
)
from .devices import Device, to_device
from .errors import DeviceError

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "empty_cache",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "synchronize",
]


def current_accelerator(check_available: bool = False) -> Device | None:
    """The device of the GPU; None where there is none.

    check_available: changes nothing, for a GPU that is named here can be used.

    >>> device = current_accelerator() or ng.device("cpu")
    >>> ng.ones(2, device=device).sum().item()
    2.0
    """
    return Device("cuda") if is_available() else None


def _usable(name: str) -> None:
    if not is_available():
        raise DeviceError(
            f"accelerator.{name}: Cannot access accelerator device when none is available. Ask "
            f"ng.accelerator.is_available() first."
        )


def current_device_index() -> int:
    """The index of the GPU. Raises DeviceError where there is none."""
    _usable("current_device_index")
    return cuda.current_device()


def set_device_index(device: Any) -> None:
    """Accept the GPU there is, as ``ng.cuda.set_device``; a negative index changes nothing."""
    if isinstance(device, int) and device < 0:
        return
    _usable("set_device_index")
    cuda.set_device(device)


def synchronize(device: Any = None) -> None:
    """Wait until the GPU has done all it was given. Raises DeviceError where there is none."""
    _usable("synchronize")
    if device is not None and not isinstance(device, int):
        to_device(device)
    cuda.synchronize()


current_device_idx = current_device_index
set_device_idx = set_device_index
