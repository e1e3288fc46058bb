"""How much memory of the GPU is in use, for users. What hands it out is ``allocator.py``."""

from __future__ import annotations

from typing import Any

from . import device as doorway

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_summary",
    "reset_peak_memory_stats",
]


def _cache(device: Any = None) -> Any:
    """What hands out memory, or None before the GPU is used; device: 0, "cuda" or None."""
    if device is not None:
        doorway.check_named(device)
    return doorway._cache


def memory_allocated(device: Any = None) -> int:
    """Bytes of device memory in use by tensors."""
    cache = _cache(device)
    return 0 if cache is None else cache.allocated


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that were in use by tensors at one time."""
    cache = _cache(device)
    return 0 if cache is None else cache.peak_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Count the most bytes anew from what is in use now."""
    cache = _cache(device)
    if cache is not None:
        cache.peak_allocated, cache.peak_reserved = cache.allocated, cache.reserved


def memory_reserved(device: Any = None) -> int:
    """Bytes of device memory that numbagrad holds, in use or kept for reuse."""
    cache = _cache(device)
    return 0 if cache is None else cache.reserved


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that numbagrad held at one time."""
    cache = _cache(device)
    return 0 if cache is None else cache.peak_reserved


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A table of the memory in use, kept and free; it is short in any case."""
    _cache(device)
    doorway.driver()
    return str(doorway._cache.summary())


def empty_cache() -> None:
    """Give memory that no tensor uses back to the driver, for other programs."""
    cache = _cache()
    if cache is not None:
        cache.empty()
