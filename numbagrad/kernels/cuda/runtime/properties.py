"""What is known of the one GPU, under the names by which PyTorch's programs ask."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import device

__all__ = [
    "DeviceProperties",
    "current_device",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "is_bf16_supported",
    "mem_get_info",
    "set_device",
]


class DeviceProperties(NamedTuple):
    """Name, compute capability, bytes of memory and multiprocessors of a GPU."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int


def _driver(given: Any) -> Any:
    """The driver, if ``given`` (None, 0, "cuda", a device) names the GPU there is."""
    if given is not None:
        device.check_named(given)
    return device.driver()


def current_device() -> int:
    """The index of the GPU: 0, for a process uses one."""
    device.driver()
    return 0


def set_device(device: Any) -> None:
    """Accept the GPU there is; any other raises DeviceError, which tells how to choose one."""
    _driver(device)


def get_device_name(device: Any = None) -> str:
    """The name of the GPU."""
    return _driver(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of the GPU: (9, 0) for an H100."""
    return _driver(device).capability


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What is known of the GPU."""
    found = _driver(device)
    major, minor = found.capability
    total = found.memory_info()[1]
    return DeviceProperties(found.name, major, minor, total, found.multiprocessors)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Bytes of device memory that the driver has free, and in all."""
    return _driver(device).memory_info()


def is_bf16_supported() -> bool:
    """Whether products of bfloat16 run on tensor cores: from compute capability 8.0 on."""
    return device.is_available() and device.driver().capability >= (8, 0)
