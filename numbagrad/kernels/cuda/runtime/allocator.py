"""Blocks of device memory, kept for reuse: asking the driver costs 100 us and stops the device.

Memory is taken from the driver in segments and handed out in blocks. A freed block first waits for
one who wants as much again, as a training loop does; when others need room it joins its free
neighbours in the pool of its stream. Work on one stream is ordered, so a block can be reused there
at once, while a kernel that reads it is still running. Start reading at ``BlockCache.take``.
"""

from __future__ import annotations

import bisect
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ....errors import OutOfMemoryError

ROUND = 512
"""Bytes that every block is a multiple of; also its alignment."""

SMALL = 1 << 20
"""Up to this size a block is cut from a segment of ``SMALL_SEGMENT`` bytes."""

SMALL_SEGMENT = 2 << 20
LARGE_SEGMENT = 20 << 20
"""Least size of a segment for a larger block of up to half of it."""

LARGE_ROUND = 2 << 20
"""Segments for still larger blocks are multiples of this."""


class MemoryDriver(Protocol):
    """What the cache needs of a driver."""

    def malloc(self, size: int) -> int | None:
        """The address of ``size`` bytes, or None if there are not so many."""

    def free(self, address: int) -> None:
        """Give back what ``malloc`` returned."""

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and in all."""

    def record(self, stream: Any) -> Callable[[], bool]:
        """Mark this point of ``stream``; the result says whether the device has passed it."""

    def synchronize(self) -> None:
        """Wait until the device is idle."""


class Block:
    """Part of a segment, whose address it has. before, after: its neighbours in the segment."""

    __slots__ = ("address", "after", "before", "free", "segment", "size", "stream")

    def __init__(self, address: int, size: int, stream: Any, segment: int, free: bool = False):
        self.address, self.size, self.stream, self.segment = address, size, stream, segment
        self.free = free
        self.before: Block | None = None
        self.after: Block | None = None


class _Pool:
    """The free blocks of one stream, by size."""

    def __init__(self) -> None:
        self.keys: list[tuple[int, int]] = []
        self.blocks: dict[tuple[int, int], Block] = {}

    def add(self, block: Block) -> None:
        key = block.size, block.address
        bisect.insort(self.keys, key)
        self.blocks[key] = block

    def remove(self, block: Block) -> None:
        key = block.size, block.address
        del self.keys[bisect.bisect_left(self.keys, key)]
        del self.blocks[key]

    def smallest(self, size: int, largest: int) -> Block | None:
        """The smallest block of at least ``size`` and at most ``largest`` bytes."""
        at = bisect.bisect_left(self.keys, (size, 0))
        if at < len(self.keys) and self.keys[at][0] <= largest:
            return self.blocks[self.keys[at]]
        return None


class BlockCache:
    """Device memory by block, reused per stream."""

    def __init__(self, driver: MemoryDriver):
        self._driver = driver
        self._lock = threading.Lock()
        self._returned: deque[tuple[Block, tuple[Any, ...]]] = deque()
        self._recent: dict[tuple[int, Any], list[Block]] = {}  # by size and stream
        self._closed = False
        self._pools: dict[tuple[Any, bool], _Pool] = {}
        self._waiting: list[tuple[Block, list[Callable[[], bool]]]] = []
        self._small_segments: set[int] = set()
        self._allocated = self.reserved = 0
        self.peak_allocated = self.peak_reserved = 0
        self.segments = self.requests = self.reuses = 0

    def take(self, size: int, stream: Any) -> Block:
        """A block of at least ``size`` bytes for work on ``stream``.

        Raises OutOfMemoryError, naming the sizes, when the driver has no more even after every
        unused segment went back to it.
        """
        rounded = -(-size // ROUND) * ROUND or ROUND
        with self._lock:
            if self._returned or self._waiting:
                self._collect()
            self.requests += 1
            recent = self._recent.get((rounded, stream))
            if recent:
                block = recent.pop()
                self.reuses += 1
            else:
                block = self._found(rounded, stream, size)
            self._allocated = allocated = self._allocated + block.size
            if allocated > self.peak_allocated:
                self.peak_allocated = allocated
            return block

    def give(self, block: Block, streams: tuple[Any, ...] = ()) -> None:
        """Take ``block`` back. streams: others than its own that have worked on it.

        A finaliser calls this, perhaps while this very thread is inside the cache: the block is
        taken in by the next call.
        """
        if not self._closed:
            self._returned.append((block, streams))

    def close(self) -> None:
        """Ignore what comes back from now on: the process ends, and the driver with it."""
        self._closed = True

    @property
    def allocated(self) -> int:
        """Bytes in use by tensors."""
        if self._lock.acquire(blocking=False):  # else this very thread is inside
            try:
                self._collect()
            finally:
                self._lock.release()
        return self._allocated

    def empty(self) -> int:
        """Give every segment that is not in use back to the driver; the number of bytes."""
        with self._lock:
            return self._empty()

    def summary(self) -> str:
        """A table of what is used, kept and left."""
        free, total = self._driver.memory_info()
        rows = [
            ("in use by tensors", self.allocated),
            ("  at most so far", self.peak_allocated),
            ("held from the driver", self.reserved),
            ("  at most so far", self.peak_reserved),
            ("free on the device", free),
            ("of the device", total),
        ]
        lines = [f"{name:<22}{megabytes(size):>14}" for name, size in rows]
        lines.append(f"{'segments':<22}{self.segments:>14}")
        lines.append(f"{'requests':<22}{self.requests:>14}")
        lines.append(f"{'  served by reuse':<22}{self.reuses:>14}")
        return "\n".join(lines)

    # -- inside; the lock is held ------------------------------------------------------------------

    def _found(self, rounded: int, stream: Any, requested: int) -> Block:
        """A block that is in nobody's hands, cut to ``rounded`` bytes."""
        block = self._from_pool(rounded, stream)
        if block is None and self._recent:
            self._settle()
            block = self._from_pool(rounded, stream)
        if block is None:
            block = self._new_segment(rounded, stream, requested)
        else:
            self.reuses += 1
        self._split(block, rounded)
        block.free = False
        return block

    def _settle(self) -> None:
        """Put the blocks that wait for their size into the pools."""
        recent, self._recent = self._recent, {}
        for blocks in recent.values():
            for block in blocks:
                self._release(block)

    def _empty(self) -> int:
        self._collect()
        if self._waiting:
            self._driver.synchronize()
            self._collect()
        self._settle()
        pools = self._pools.values()
        free = [block for pool in pools for block in pool.blocks.values()]
        whole = [block for block in free if block.before is None and block.after is None]
        if whole:
            self._driver.synchronize()  # what was launched last may still use them
        for block in whole:
            self._pool(block).remove(block)
            self._driver.free(block.address)
        given = sum([block.size for block in whole])
        self.segments -= len(whole)
        self.reserved -= given
        return given

    def _pool(self, block: Block) -> _Pool:
        return self._pool_of(block.stream, self._is_small_segment(block))

    def _pool_of(self, stream: Any, small: bool) -> _Pool:
        return self._pools.setdefault((stream, small), _Pool())

    def _is_small_segment(self, block: Block) -> bool:
        return block.segment in self._small_segments

    def _from_pool(self, size: int, stream: Any) -> Block | None:
        small = size <= SMALL
        pool = self._pool_of(stream, small)
        # A block more than twice too large, and beyond a segment, would be cut to pieces that fit
        # nothing else: better a new segment.
        largest = SMALL_SEGMENT if small else max(2 * size, LARGE_SEGMENT)
        block = pool.smallest(size, largest)
        if block is not None:
            pool.remove(block)
        return block

    def _new_segment(self, size: int, stream: Any, requested: int) -> Block:
        if size <= SMALL:
            whole = SMALL_SEGMENT
        elif size <= LARGE_SEGMENT // 2:
            whole = LARGE_SEGMENT
        else:
            whole = -(-size // LARGE_ROUND) * LARGE_ROUND
        address = self._driver.malloc(whole)
        if address is None:
            self._empty()
            address = self._driver.malloc(whole)
        if address is None:
            free, total = self._driver.memory_info()
            raise OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {megabytes(requested)}. The GPU has "
                f"{megabytes(total)} in all, of which {megabytes(free)} are free; numbagrad's "
                f"tensors use {megabytes(self._allocated)}, and {megabytes(self.reserved)} are "
                f"held for reuse or in use. Use smaller batches, delete tensors, or look for "
                f"others on this GPU."
            )
        if size <= SMALL:
            self._small_segments.add(address)
        else:
            self._small_segments.discard(address)
        self.segments += 1
        self.reserved += whole
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return Block(address, whole, stream, address)

    def _split(self, block: Block, size: int) -> None:
        """Cut what ``block`` has too much into a free block of its own."""
        least = ROUND if self._is_small_segment(block) else SMALL
        rest = block.size - size
        if rest < least:
            return
        tail = Block(block.address + size, rest, block.stream, block.segment, True)
        tail.before, tail.after = block, block.after
        if block.after is not None:
            block.after.before = tail
        block.after = tail
        block.size = size
        self._pool(tail).add(tail)

    def _release(self, block: Block) -> None:
        """Put ``block`` into its pool, joined with its free neighbours."""
        pool = self._pool(block)
        before, after = block.before, block.after
        if before is not None and before.free:
            pool.remove(before)
            before.size += block.size
            before.after = after
            if after is not None:
                after.before = before
            block = before
        if after is not None and after.free:
            pool.remove(after)
            block.size += after.size
            block.after = after.after
            if after.after is not None:
                after.after.before = block
        block.free = True
        pool.add(block)

    def _collect(self) -> None:
        """Take in what was given back, except where another stream still works on it."""
        while self._returned:
            block, streams = self._returned.popleft()
            self._allocated -= block.size
            if streams:
                self._waiting.append((block, [self._driver.record(s) for s in streams]))
            else:
                self._keep(block)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for block, events in waiting:
                events = [passed for passed in events if not passed()]
                if events:
                    self._waiting.append((block, events))
                else:
                    self._keep(block)

    def _keep(self, block: Block) -> None:
        """Let ``block`` wait for one who wants as much."""
        key = block.size, block.stream
        recent = self._recent.get(key)
        if recent is None:
            self._recent[key] = [block]
        else:
            recent.append(block)


def megabytes(size: int) -> str:
    """A number of bytes for people."""
    if size < 1024:
        return f"{size} bytes"
    power = min((size.bit_length() - 1) // 10, 3)
    return f"{size / 1024**power:.2f} {('', 'KiB', 'MiB', 'GiB')[power]}"
