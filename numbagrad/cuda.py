"""The GPU: availability, memory, streams. ``ng.cuda`` has PyTorch's names.

Importing it costs nothing and needs no GPU; see docs/cuda.md.
"""

from __future__ import annotations

from .errors import OutOfMemoryError
from .kernels.backend import matmul_backend, set_matmul_backend
from .kernels.cuda.runtime.device import (
    Stream,
    current_stream,
    device_count,
    device_name,
    empty_cache,
    is_available,
    max_memory_allocated,
    memory_allocated,
    memory_reserved,
    memory_summary,
    reset_peak_memory_stats,
    stream,
    synchronize,
)

__all__ = [
    "OutOfMemoryError",
    "Stream",
    "current_stream",
    "device_count",
    "device_name",
    "empty_cache",
    "is_available",
    "matmul_backend",
    "max_memory_allocated",
    "memory_allocated",
    "memory_reserved",
    "memory_summary",
    "reset_peak_memory_stats",
    "set_matmul_backend",
    "stream",
    "synchronize",
]
