"""The GPU: availability, memory, streams. ``ng.cuda`` has PyTorch's names.

Importing it costs nothing and needs no GPU; see docs/cuda.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import OutOfMemoryError
from ..kernels.backend import matmul_backend, set_matmul_backend
from ..kernels.cuda.runtime.device import (
    Stream,
    current_stream,
    default_stream,
    device_count,
    is_available,
    is_initialized,
    stream,
    synchronize,
)
from ..kernels.cuda.runtime.events import Event
from ..kernels.cuda.runtime.properties import (
    current_device,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_bf16_supported,
    mem_get_info,
    set_device,
)
from ..kernels.cuda.runtime.usage import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_summary,
    reset_peak_memory_stats,
)
from ..later import asked_for
from ..random import manual_seed
from ..random import manual_seed as manual_seed_all

if TYPE_CHECKING:
    from . import amp

__all__ = [
    "Event",
    "OutOfMemoryError",
    "Stream",
    "amp",
    "current_device",
    "current_stream",
    "default_stream",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "matmul_backend",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_summary",
    "reset_peak_memory_stats",
    "set_device",
    "set_matmul_backend",
    "stream",
    "synchronize",
]

__getattr__ = asked_for(__name__, {"amp": "amp"})


def __dir__() -> list[str]:
    return [*globals(), *__all__]
