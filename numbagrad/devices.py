"""Where tensors live: the device objects and their availability."""

from __future__ import annotations

import threading
from typing import Any

from .errors import DeviceError

__all__ = ["Device", "get_default_device", "mixed", "place_of", "set_default_device", "to_device"]


class Device:
    """A place for tensors: ``ng.device("cpu")``; compares equal by type and index.

    Inside ``with ng.device("cuda"):`` it is the default device of this thread.
    """

    __slots__ = ("index", "type")

    def __init__(self, type: str, index: int | None = None):
        name, _, number = str(type).partition(":")
        if name not in ("cpu", "cuda"):
            raise DeviceError(f"device: expected 'cpu' or 'cuda', got {type!r}.")
        if ":" in str(type) and not number.isdecimal():
            raise DeviceError(
                f"device: Invalid device string: {type!r}. Write '{name}' or '{name}:0'."
            )
        self.type = name
        self.index = int(number) if number else index

    def __repr__(self) -> str:
        suffix = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{suffix})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Device) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __enter__(self) -> Device:
        found = to_device(self)
        default.left.append(default.device)
        default.device = found
        return self

    def __exit__(self, *exception: Any) -> None:
        default.device = default.left.pop()


cpu = Device("cpu")


class _Default(threading.local):
    device: Device = cpu

    def __init__(self) -> None:
        self.left: list[Device] = []


default = _Default()
"""Per thread: where new tensors are made, and the places that ``with`` blocks return to."""

_cuda: Device | None = None

open_cuda: Any = None
"""What opens the doorway to the GPU, or raises DeviceError; set by ``kernels/machine.py``."""


def to_device(value: Any) -> Device:
    """``value`` (a Device or its name) as a device that can be used here.

    Raises DeviceError, saying why, for a GPU that is not there.
    """
    global _cuda
    device = value if isinstance(value, Device) else Device(value)
    if device.type == "cpu":
        return cpu
    if device is _cuda:
        return device
    if device.index not in (None, 0):
        raise DeviceError(
            f"device: {device} is not available: numbagrad uses one GPU in a process. Choose it "
            f"with CUDA_VISIBLE_DEVICES={device.index} and use device='cuda'."
        )
    open_cuda()
    if _cuda is None:
        _cuda = Device("cuda", 0)
    return _cuda


def place_of(device: Any, x: Any = None) -> Device:
    """``device``, by default that of the tensor ``x``, by default the default device."""
    if device is not None:
        return to_device(device)
    return default.device if x is None else x._device


def get_default_device() -> Device:
    """Where this thread makes new tensors, the CPU until changed."""
    return default.device


def set_default_device(device: Any) -> None:
    """Make ``device`` (None: the CPU) the place of tensors that this thread makes.

    It holds for creating functions, random numbers and parameters of modules that are not told a
    ``device``; not for ``from_numpy``, ``load`` or generators.
    Raises DeviceError, saying why, for a GPU that is not there.

    >>> set_default_device("cpu"); get_default_device()
    device(type='cpu')
    """
    default.device = cpu if device is None else to_device(device)


def mixed(name: str, first: Any, second: Any) -> DeviceError:
    """The error of an operation ``name`` on tensors of two devices."""
    return DeviceError(
        f"{name}: expected all tensors to be on the same device, but found at least two, {first} "
        f"and {second}. Move them with .to(device)."
    )
