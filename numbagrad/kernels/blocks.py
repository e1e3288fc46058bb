"""Memory of large arrays, used again when nobody holds it any more: ``empty``.

The system gives fresh memory page by page as it is first written, which takes longer than most of
what is written, and malloc gives back what is freed at the end of its heap. So blocks are kept: a
block is free when nothing but the list of blocks refers to it, for every array and view over it
holds a reference. Of several free ones the first is taken: it was used last time too, and some of
it may still be in a cache.
"""

from __future__ import annotations

import os
import sys
import threading

import numpy as np

__all__ = ["LARGE", "empty", "kept_bytes"]

LARGE = 1 << 18
"""Bytes from which an array lies in a block. A reused one costs 1.5 us, fresh pages for as many
bytes 60."""

ALIGNED = 64
"""Bytes of a cache line, and of the widest vector."""

LIMIT = 512 << 20
"""Most bytes in blocks, free ones and others; arrays beyond that get memory of their own.
NUMBAGRAD_KEPT_MEMORY says another number of megabytes; 0 keeps nothing."""

getrefcount = sys.getrefcount
_lock = threading.Lock()


def _renew_lock() -> None:
    """In the child of a fork: another thread of the parent may have held it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)

_blocks: dict[int, list[tuple[np.ndarray, int]]] = {}  # by size: bytes, where the first line begins
_kept = 0


def _limit() -> int:
    told = os.environ.get("NUMBAGRAD_KEPT_MEMORY", "")
    if not told:
        return LIMIT
    if not told.isdecimal():
        raise ValueError(f"NUMBAGRAD_KEPT_MEMORY is {told!r}, must be a number of megabytes")
    return int(told) << 20


_limit_now = _limit()


def _free(blocks: list[tuple[np.ndarray, int]]) -> tuple[np.ndarray, int] | None:
    """The first block that nothing else refers to."""
    for found in blocks:
        block, _ = found
        if getrefcount(block) <= _ALONE:
            return found
    return None


def _references_to_a_free_block() -> int:
    """What ``getrefcount`` says inside ``_free``, which differs between versions of Python."""
    for found in [(np.empty(0, np.uint8), 0)]:
        block, _ = found
        return getrefcount(block)
    raise AssertionError


_ALONE = _references_to_a_free_block()


def empty(shape: tuple[int, ...], dtype: np.dtype, nbytes: int) -> np.ndarray:
    """An uninitialised C-contiguous array of ``nbytes``, at least ``LARGE``, in all.

    It begins at a cache line.
    """
    unit = 1 << nbytes.bit_length() - 4  # at most an eighth more than asked for
    size = -(-(nbytes + ALIGNED) // unit) * unit
    with _lock:
        blocks = _blocks.get(size)
        found = None if blocks is None else _free(blocks)
        if found is None:
            found = _new_block(size)
        if found is not None:
            return np.ndarray(shape, dtype, *found)
    return np.empty(shape, dtype)


def _new_block(size: int) -> tuple[np.ndarray, int] | None:
    """A block that is kept from now on, or None where there would be too many."""
    global _kept
    if _kept + size > _limit_now:
        _give_back()
        if _kept + size > _limit_now:
            return None
    try:
        block = np.empty(size, np.uint8)
    except MemoryError:
        _give_back()
        return None
    found = block, -block.ctypes.data % ALIGNED
    _blocks.setdefault(size, []).append(found)
    _kept += size
    return found


def _give_back() -> None:
    """Let go of all free blocks."""
    global _kept
    for size, blocks in list(_blocks.items()):
        used = []
        for found in blocks:
            block, _ = found
            if getrefcount(block) > _ALONE:
                used.append(found)
        _kept -= size * (len(blocks) - len(used))
        if used:
            _blocks[size] = used
        else:
            del _blocks[size]


def kept_bytes() -> int:
    """Bytes in blocks, free ones and others."""
    return _kept
