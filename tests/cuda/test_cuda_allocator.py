"""The cache of device memory, with a driver that only counts."""

from __future__ import annotations

import gc
import itertools
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numbagrad.errors import OutOfMemoryError
from numbagrad.kernels.cuda.runtime.allocator import (
    LARGE_SEGMENT,
    ROUND,
    SMALL,
    SMALL_SEGMENT,
    BlockCache,
    megabytes,
)
from numbagrad.kernels.cuda.runtime.array import Memory

MIB = 1 << 20


class CountingDriver:
    """A device of ``total`` bytes. busy: streams whose work is not done."""

    def __init__(self, total=1 << 30):
        self.total = total
        self.given = {}
        self.busy = set()
        self.waits = 0
        self.next = 512

    def malloc(self, size):
        if sum(self.given.values()) + size > self.total:
            return None
        address, self.next = self.next, self.next + size + 512
        self.given[address] = size
        return address

    def free(self, address):
        del self.given[address]

    def memory_info(self):
        return self.total - sum(self.given.values()), self.total

    def record(self, stream):
        return lambda: stream not in self.busy

    def synchronize(self):
        self.waits += 1
        self.busy.clear()


def test_small_blocks_share_a_segment_and_come_back():
    driver = CountingDriver()
    cache = BlockCache(driver)
    first, second = cache.take(100, 0), cache.take(1000, 0)
    assert (first.size, second.size) == (ROUND, 2 * ROUND)
    assert second.address == first.address + ROUND
    assert list(driver.given.values()) == [SMALL_SEGMENT]
    assert cache.allocated == 3 * ROUND and cache.reserved == SMALL_SEGMENT
    cache.give(first)
    assert cache.take(300, 0).address == first.address
    assert cache.reuses == 2


def test_freed_neighbours_become_one():
    cache = BlockCache(CountingDriver())
    blocks = [cache.take(ROUND, 0) for _ in range(4)]
    for k in (0, 2, 1, 3):
        cache.give(blocks[k])
    assert cache.allocated == 0
    assert cache.empty() == SMALL_SEGMENT  # only a whole segment goes back
    assert cache.segments == 0


def test_blocks_that_wait_for_their_size_make_room_for_others():
    cache = BlockCache(CountingDriver())
    blocks = [cache.take(SMALL // 2, 0) for _ in range(4)]
    for block in blocks:
        cache.give(block)
    assert {cache.take(SMALL, 0).address for _ in range(2)} == {blocks[k].address for k in (0, 2)}
    assert cache.segments == 1


def test_sizes_of_segments():
    driver = CountingDriver()
    cache = BlockCache(driver)
    cache.take(SMALL + 1, 0)
    cache.take(25 * MIB, 0)
    assert sorted(driver.given.values()) == [LARGE_SEGMENT, 26 * MIB]


def test_a_large_free_block_is_not_cut_for_a_small_want():
    driver = CountingDriver()
    cache = BlockCache(driver)
    cache.give(cache.take(400 * MIB, 0))
    cache.take(30 * MIB, 0)
    assert cache.segments == 2


def test_streams_have_pools_of_their_own():
    cache = BlockCache(CountingDriver())
    cache.give(cache.take(ROUND, "a"))
    cache.take(ROUND, "b")
    assert cache.segments == 2


def test_memory_used_on_another_stream_waits_for_it():
    driver = CountingDriver()
    cache = BlockCache(driver)
    block = cache.take(ROUND, "a")
    driver.busy.add("b")
    cache.give(block, ("b",))
    assert cache.take(ROUND, "a").address != block.address
    driver.busy.clear()
    assert cache.take(ROUND, "a").address == block.address


def test_empty_gives_back_what_is_not_in_use():
    driver = CountingDriver()
    cache = BlockCache(driver)
    kept, gone = cache.take(ROUND, 0), cache.take(50 * MIB, 0)
    cache.give(gone)
    assert cache.empty() == 50 * MIB
    assert driver.waits and cache.reserved == SMALL_SEGMENT and kept.size == ROUND
    assert list(driver.given.values()) == [SMALL_SEGMENT]


def test_out_of_memory_first_empties_the_cache():
    driver = CountingDriver(total=100 * MIB)
    cache = BlockCache(driver)
    cache.give(cache.take(60 * MIB, 0))
    block = cache.take(90 * MIB, 0)
    assert block.size == 90 * MIB
    assert cache.reserved == 90 * MIB


def test_out_of_memory_names_sizes():
    cache = BlockCache(CountingDriver(total=100 * MIB))
    cache.take(40 * MIB, 0)
    with pytest.raises(OutOfMemoryError) as raised:
        cache.take(80 * MIB, 0)
    words = str(raised.value)
    for part in ("allocate 80.00 MiB", "100.00 MiB in all", "60.00 MiB are free", "use 40.00 MiB"):
        assert part in words
    assert cache.take(50 * MIB, 0).size == 50 * MIB  # and the cache is as it was


def test_summary_says_what_is_used():
    cache = BlockCache(CountingDriver(total=100 * MIB))
    cache.take(3 * MIB, 0)
    text = cache.summary()
    assert "in use by tensors" in text and "3.00 MiB" in text and "20.00 MiB" in text


def test_memory_returns_with_its_last_holder():
    cache = BlockCache(CountingDriver())
    memory = Memory(cache, 100, 0)
    assert cache.allocated == ROUND
    del memory
    gc.collect()
    assert cache.allocated == 0


def test_a_block_given_back_from_inside_the_cache_is_taken_in_later():
    cache = BlockCache(CountingDriver())
    block = cache.take(ROUND, 0)
    with cache._lock:  # as if a finaliser ran while this thread allocates
        cache.give(block)
        assert cache.allocated == ROUND
    cache.take(ROUND, 0)
    assert cache.allocated == ROUND


def test_threads_never_share_a_block():
    cache = BlockCache(CountingDriver())
    held = []

    def work():
        for _ in range(200):
            mine = [cache.take(ROUND, 0) for _ in range(3)]
            held.append(len({b.address for b in mine}))
            for block in mine:
                cache.give(block)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.take(ROUND, 0)
    assert set(held) == {3} and cache.allocated == ROUND


@given(
    st.lists(st.tuples(st.integers(1, 24 * MIB), st.integers(0, 1), st.integers(0, 9)), max_size=40)
)
@settings(deadline=None, max_examples=60)
def test_living_blocks_never_overlap(steps):
    """Random takes and gives: blocks lie in segments of the driver and apart from one another."""
    driver = CountingDriver(total=1 << 34)
    cache = BlockCache(driver)
    living = []
    for size, stream, which in steps:
        if which < 6 or not living:
            living.append(cache.take(size, stream))
        else:
            cache.give(living.pop(which % len(living)))
        spans = sorted((b.address, b.address + b.size) for b in living)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
        for low, high in spans:
            assert any(s <= low and high <= s + n for s, n in driver.given.items())
        assert cache.allocated == sum(b.size for b in living)
        assert cache.reserved == sum(driver.given.values())
    for block in living:
        cache.give(block)
    cache.empty()
    assert not driver.given and cache.reserved == cache.allocated == 0


def test_sizes_for_people():
    assert [megabytes(n) for n in (5, 2048, 3 * MIB, 5 << 30)] == [
        "5 bytes", "2.00 KiB", "3.00 MiB", "5.00 GiB",
    ]  # fmt: skip
