"""Memory of large arrays, used again when nobody holds it any more: ``empty``.

The system gives fresh memory page by page as it is first written, which takes longer than most of
what is written, and malloc gives back what is freed at the end of its heap. So blocks are kept: a
block is free when nothing but the list of blocks refers to it, for every array and view over it
holds a reference. Of several free ones that is taken which was last given out: some of it may still
be in a cache.

Blocks lie in huge pages where the system has them, small ones side by side in a slab: a processor
remembers where a thousand or two of pages lie, and a step whose arrays take more than as many of
4 KB waits at each further one. An LSTM's eager step took 1.15 times as long.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import mmap
import os
import sys
import threading
from collections.abc import Iterator

import numpy as np

__all__ = ["LARGE", "Block", "empty", "kept_bytes", "lasting", "promised", "zeroed", "zeros"]

LARGE = 1 << 18
"""Bytes from which an array lies in a block. A reused one costs 0.8 us; fresh pages for as many
bytes take 170 until all are touched (a virtual machine on a Zen 3)."""

OWN = 4 << 20
"""Bytes from which a block has a mapping of its own; smaller ones are cut from a slab."""

SLAB = 16 << 20
"""Bytes of a slab. What nobody has written yet takes no memory, but for the rest of a huge page."""

HUGE_PAGE = 2 << 20
"""What slabs and large blocks are aligned to, so that all of them can lie in huge pages."""

SHIFT = 320
"""Bytes by which one block begins later in its page than another: a processor takes addresses that
are equal in their last 12 bits for the same at first."""

LIMIT = 512 << 20
"""Most bytes in blocks, free ones and others; arrays beyond that get memory of their own.
NUMBAGRAD_KEPT_MEMORY says another number of megabytes; 0 keeps nothing."""

getrefcount = sys.getrefcount
_lock = threading.Lock()


class Block(np.ndarray):
    """Memory in bytes. A type of its own: NumPy goes down to the first base of another type, so
    that an array over a block is the root of its views, as one with memory of its own is."""

    lies: tuple[mmap.mmap, int, int]
    """In what it lies, where its room begins there, and how many bytes that has."""


def _renew_lock() -> None:
    """In the child of a fork: another thread of the parent may have held it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)

_blocks: dict[int, list[Block]] = {}  # by their size
_slab: tuple[mmap.mmap, int, int] | None = None  # where its next block begins, and its end
_promised: dict[int, np.ndarray] = {}  # by the thread
_kept = 0
_numbers = itertools.count()


def _limit() -> int:
    told = os.environ.get("NUMBAGRAD_KEPT_MEMORY", "")
    if not told:
        return LIMIT
    if not told.isdecimal():
        raise ValueError(f"NUMBAGRAD_KEPT_MEMORY is {told!r}, must be a number of megabytes")
    return int(told) << 20


_limit_now = _limit()


def _free(blocks: list[Block]) -> Block | None:
    """The first block that nothing else refers to, which then comes first: behind it gather those
    that are held for long."""
    k = 0  # enumerate() would refer to a block too
    for block in blocks:
        if getrefcount(block) <= _ALONE:
            if k:
                blocks.insert(0, blocks.pop(k))
            return block
        k += 1
    return None


def _references_to_a_free_block() -> int:
    """What ``getrefcount`` says inside ``_free``, which differs between versions of Python."""
    for block in [Block(1, np.uint8)]:
        return getrefcount(block)
    raise AssertionError


def _mapped(room: int) -> tuple[mmap.mmap, int]:
    """Fresh memory, which a forked child gets a copy of, and where to begin in it."""
    if sys.platform == "win32":
        return mmap.mmap(-1, room), 0
    huge = hasattr(mmap, "MADV_HUGEPAGE")
    memory = mmap.mmap(
        -1, room + (HUGE_PAGE if huge else 0), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )
    if not huge:
        return memory, 0
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
    except OSError:  # a kernel without them
        return memory, 0
    return memory, -np.frombuffer(memory, np.uint8, 1).ctypes.data % HUGE_PAGE


def _made(size: int) -> Block:
    """A new block."""
    global _slab
    shift = next(_numbers) % 16 * SHIFT
    room = -(-(size + shift) // mmap.PAGESIZE) * mmap.PAGESIZE
    if size >= OWN:
        memory, start = _mapped(room)
    else:
        if _slab is None or _slab[1] + room > _slab[2]:
            memory, start = _mapped(SLAB)
            _slab = memory, start, start + SLAB
        memory, start, end = _slab
        _slab = memory, start + room, end
    block = Block(size, np.uint8, memory, start + shift)
    block.lies = memory, start, room
    return block


_ALONE = _references_to_a_free_block()


def empty(shape: tuple[int, ...], dtype: np.dtype, nbytes: int) -> np.ndarray:
    """An uninitialised C-contiguous array of ``nbytes``, at least ``LARGE``, in all."""
    if _promised:
        wanted = _promised.get(threading.get_ident())
        if wanted is not None and wanted.shape == shape and wanted.dtype == dtype:
            del _promised[threading.get_ident()]
            return wanted
    unit = 1 << nbytes.bit_length() - 4  # at most an eighth more than asked for
    size = -(-nbytes // unit) * unit
    with _lock:
        blocks = _blocks.get(size)
        found = None if blocks is None else _free(blocks)
        if found is None:
            found = _new_block(size)
        if found is not None:
            return np.ndarray(shape, dtype, found)
    return np.empty(shape, dtype)


@contextlib.contextmanager
def promised(array: np.ndarray) -> Iterator[None]:
    """Within, the first array of the shape and dtype of ``array`` that this thread asks ``empty``
    for is ``array``."""
    _promised[threading.get_ident()] = array
    try:
        yield
    finally:
        _promised.pop(threading.get_ident(), None)


def lasting(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """``empty`` of any size, for what is written again and again."""
    nbytes = dtype.itemsize * math.prod(shape)
    return np.empty(shape, dtype) if nbytes < LARGE else empty(shape, dtype, nbytes)


def zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Zeros. The system's fresh pages are zero already, but to write a block again is faster."""
    nbytes = dtype.itemsize * math.prod(shape)
    if nbytes < LARGE:
        return np.zeros(shape, dtype)
    return zeroed(empty(shape, dtype, nbytes))


def zeroed(array: np.ndarray) -> np.ndarray:
    """``array``, of zeros now. Of bfloat16, a dtype of words, NumPy has no 0."""
    (array.view(np.int16) if array.dtype.kind == "V" else array).fill(0)
    return array


def _new_block(size: int) -> Block | None:
    """A block that is kept from now on, or None where there would be too many."""
    global _kept
    if _kept + size > _limit_now:
        _give_back()
        if _kept + size > _limit_now:
            return None
    try:
        found = _made(size)
    except (MemoryError, OSError):
        _give_back()
        return None
    _blocks.setdefault(size, []).append(found)
    _kept += size
    return found


def _give_back() -> None:
    """Let go of all free blocks."""
    global _kept
    for size, blocks in list(_blocks.items()):
        used = []
        for block in blocks:
            if getrefcount(block) > _ALONE:
                used.append(block)
                continue
            _kept -= size
            if size < OWN and hasattr(mmap, "MADV_DONTNEED"):  # the slab may live on
                memory, start, room = block.lies
                with contextlib.suppress(OSError):  # of pages that the program has locked
                    memory.madvise(mmap.MADV_DONTNEED, start, room)
        if used:
            _blocks[size] = used
        else:
            del _blocks[size]


def kept_bytes() -> int:
    """Bytes in blocks, free ones and others."""
    return _kept
