"""Sorting of rows: short ones by counting smaller elements, others by radix; both are stable.

Values become unsigned keys of the same order (``kernels/order.py``), NaN the greatest as in
PyTorch; a radix sort then moves (key, index) pairs once for each byte of the dtype, whatever the
data. ``topk`` keeps the best k of a row in a heap, ``kth`` looks only at what can be the element.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..inner import device, inner
from ..intrinsics import load, store
from ..machine import kernel
from ..order import lowest, opposite, rising, up

__all__ = ["kth", "sort", "topk"]

GRAIN = 1 << 14
SHORT = 48
"""Up to this length comparing all pairs, in vectors, beats the radix sort."""

BLOCK = 256
"""Elements of which ``topk`` first compares only the greatest with its heap."""

PARTS = 64
"""Most tasks of one parallel loop; each has its own buffers."""

SHARE = 1 << 12
"""Elements that are worth a task's buffers."""

inlined = inner(forceinline=True)


@inlined
def _parts(x):
    return min(x.shape[0], 1 + x.size // SHARE, PARTS)


@inlined
def _key(x, i, descending):
    """Key of element i, from 0 to 2**(bits of the dtype) - 1 as uint64."""
    key = np.uint64(np.int64(rising(load(x, i)))) - np.uint64(np.int64(lowest(x)))
    if descending:
        key = (~np.uint64(0) >> np.uint64(64 - 8 * x.itemsize)) - key
    return key


@device
def _sort_row(x, base, n, descending, keys, places, counts):
    """Sort n elements from ``base`` on; returns which half of keys and places (2, n) holds them."""
    for i in range(n):
        keys[0, i] = _key(x, base + i, descending)
        places[0, i] = i
    width = x.itemsize
    counts[:width] = 0
    for i in range(n):
        for digit in range(width):
            counts[digit, (keys[0, i] >> np.uint64(8 * digit)) & np.uint64(255)] += 1
    half = 0
    for digit in range(width):
        shift = np.uint64(8 * digit)
        count = counts[digit]
        if count[(keys[half, 0] >> shift) & np.uint64(255)] == n:
            continue  # all agree in this byte
        total = 0
        for value in range(256):
            count[value], total = total, total + count[value]
        for i in range(n):
            key = keys[half, i]
            byte = (key >> shift) & np.uint64(255)
            to = count[byte]
            count[byte] = to + 1
            keys[1 - half, to] = key
            places[1 - half, to] = places[half, i]
        half = 1 - half
    return half


@inlined
def _sort_short_row(values, indices, x, row, descending, keys):
    """An element's place is the number of smaller ones, and of equal ones before it."""
    n, k = x.shape[1], values.shape[1]
    base = row * n
    for i in range(n):
        key = rising(load(x, base + i))
        keys[i] = opposite(key) if descending else key
    for i in range(n):
        key, place = keys[i], np.int32(0)
        for j in range(n):
            place += np.int32(keys[j] < key)
        for j in range(i):
            place += np.int32(keys[j] == key)
        if place < k:
            store(indices, row * k + place, i)
            store(values, row * k + place, load(x, base + i))


@inlined(allocates=True)
def _sort_rows(values, indices, x, descending, part, parts):
    rows, n = x.shape
    k = values.shape[1]
    todo = range(rows * part // parts, rows * (part + 1) // parts)
    if n <= SHORT:
        short = np.full(SHORT, lowest(x))
        for row in todo:
            _sort_short_row(values, indices, x, row, descending, short)
        return
    keys = np.empty((2, n), np.uint64)
    places = np.empty((2, n), np.int64)
    counts = np.empty((8, 256), np.int64)
    for row in todo:
        half = _sort_row(x, row * n, n, descending, keys, places, counts)
        for i in range(k):
            place = places[half, i]
            store(indices, row * k + i, place)
            store(values, row * k + i, load(x, row * n + place))


@kernel(grain=GRAIN, outputs=2, allocates=True)
def sort(values, indices, x, descending):
    """values, indices (m, k) C; x (m, n) C, k <= n: the first k of each sorted row. Stable."""
    parts = _parts(x)
    for part in prange(0, parts):
        _sort_rows(values, indices, x, descending, part, parts)


@inlined
def _sink(keys, places, key, place, k):
    """Put (key, place) at the root of a heap of k whose root is the lowest key, latest place."""
    at = 0
    while 2 * at + 1 < k:
        child = 2 * at + 1
        other = child + 1
        if other < k and _worse(keys[other], places[other], keys[child], places[child]):
            child = other
        if not _worse(keys[child], places[child], key, place):
            break
        keys[at], places[at] = keys[child], places[child]
        at = child
    keys[at], places[at] = key, place


@inlined
def _worse(key, place, other_key, other_place):
    return key < other_key or (key == other_key and place > other_place)


@inlined
def _opposite(value):
    return opposite(rising(value))


@inlined(allocates=True)
def _top_rows(values, indices, x, part, parts, key_of):
    rows, n = x.shape
    k = values.shape[1]
    keys = np.full(k, lowest(x))
    places = np.empty(k, np.int64)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        base = row * n
        keys[:] = lowest(x)
        places[:] = n
        for block in range(0, n, BLOCK):
            end = min(block + BLOCK, n)
            high = lowest(x)
            for i in range(block, end):
                key = key_of(load(x, base + i))
                high = key if key > high else high
            if not _worse(keys[0], places[0], high, block):
                continue
            for i in range(block, end):
                key = key_of(load(x, base + i))
                if _worse(keys[0], places[0], key, i):
                    _sink(keys, places, key, i, k)
        for last in range(k - 1, -1, -1):  # the root is the worst: it goes last
            place = places[0]
            store(indices, row * k + last, place)
            store(values, row * k + last, load(x, base + place))
            _sink(keys, places, keys[last], places[last], last)


@kernel(grain=GRAIN, outputs=2, allocates=True)
def topk(values, indices, x, smallest):
    """values, indices (m, k) C; x (m, n) C, 0 < k <= n: the best k of each row, best first."""
    parts = _parts(x)
    for part in prange(0, parts):
        if smallest:
            _top_rows(values, indices, x, part, parts, _opposite)
        else:
            _top_rows(values, indices, x, part, parts, up)


@inlined
def _digit_of(counts, k):
    """In which of 256 groups element k of all is, its number there, and how many the group has."""
    for digit in range(256):
        many = counts[0, digit] + counts[1, digit] + counts[2, digit] + counts[3, digit]
        if k < many:
            return digit, k, many
        k -= many
    return 0, k, np.int64(0)


@inlined
def _place_of(keys, count, k):
    """Which of ``count`` keys is number k in their order; of equals the first comes first."""
    for i in range(count):
        key, place = keys[i], np.int32(0)
        for j in range(count):
            place += np.int32(keys[j] < key)
        for j in range(i):
            place += np.int32(keys[j] == key)
        if place == k:
            return i
    return 0


@device
def _kth_of_row(x, base, n, k, places, counts, short):
    """Where element k of the sorted row of n elements from ``base`` on is.

    The keys are looked at byte by byte from the highest: what has another byte than the element
    sought is left out. places (n + 1), counts (4, 256), short (SHORT): memory.
    """
    left, all_left = n, True
    for digit in range(x.itemsize - 1, -1, -1):
        if left <= SHORT:
            break
        shift = np.uint64(8 * digit)
        counts[:] = 0
        for j in range(left):
            i = j if all_left else places[j]
            byte = (_key(x, base + i, False) >> shift) & np.uint64(255)
            counts[j & 3, byte] += 1  # four tables, or equal bytes would wait for one another
        group, k, many = _digit_of(counts, k)
        if many == left:
            continue
        to = 0
        for j in range(left):
            i = j if all_left else places[j]
            byte = (_key(x, base + i, False) >> shift) & np.uint64(255)
            places[to] = i
            to += np.int64(byte == np.uint64(group))
        left, all_left = many, False
    if left <= SHORT:
        for j in range(left):
            short[j] = _key(x, base + (j if all_left else places[j]), False)
        k = _place_of(short, left, k)
    return k if all_left else places[k]


@inlined
def _first_nan(x, base, n):
    """Where the first NaN of a row is, or n."""
    found = False
    for i in range(n):
        value = load(x, base + i)
        found |= value != value
    if found:
        for i in range(n):
            value = load(x, base + i)
            if value != value:
                return i
    return n


@inlined(allocates=True)
def _kth_of_rows(out, x, k, nan_wins, part, parts):
    rows, n = x.shape
    places = np.empty(n + 1, np.int64)
    counts = np.empty((4, 256), np.int64)
    short = np.empty(SHORT, np.uint64)
    for row in range(rows * part // parts, rows * (part + 1) // parts):
        at = _first_nan(x, row * n, n) if nan_wins else n
        at = at if at < n else _kth_of_row(x, row * n, n, k, places, counts, short)
        store(out, row, at)


@kernel(grain=GRAIN, allocates=True)
def kth(out, x, k, nan_wins):
    """out (m, 1) C int64: where number k of each sorted row is, or nan_wins, its first NaN.

    x (m, n) C, n > k; of equal elements the first comes first.
    """
    parts = _parts(x)
    for part in prange(0, parts):
        _kth_of_rows(out, x, k, nan_wins, part, parts)
