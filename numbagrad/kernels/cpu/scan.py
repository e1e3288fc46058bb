"""Running sums, products and extremes along the middle axis of ``x (outer, n, inner)``.

float32 is accumulated in float64, integers in int64. Threads share rows or columns, never one
running sum, so the bits do not depend on their number.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from ..half_type import sum_type
from ..inner import device, inner, pasted
from ..intrinsics import larger, load, stack, store, widened
from ..machine import kernel
from ..pieces import thread_count
from ..simd_math import exp, log

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp", "recurrence"]

GRAIN = 1 << 15
LANES = 512
"""Most columns of a task: 4 KB of accumulators."""

FEWEST = 64
"""Fewest columns of a task that there is for the sake of a thread. Of what waits for memory alone,
two threads in one row take longer than one: each fetches ahead what the other is writing."""

AHEAD = 32
"""Numbers of a row that are looked at for an extreme that none of them may be."""

ABREAST = 8
"""Rows of a recurrence that go on together."""

TOGETHER = 64
"""Elements of a row whose exponentials and logarithms are taken by vectors."""

SPREAD = 300.0
"""How much larger than the first of them float32 may be: float64 loses what it does not show."""

inlined = inner(forceinline=True, fastmath={"contract", "nsz"})


@pasted
def _tiles(x):
    return -(-x.shape[2] // LANES)


@pasted
def _scan(out, x, task, tiles, first, step, reverse):
    """Do one of ``outer * tiles`` tasks: some columns of one outer index."""
    _, n, inner = x.shape
    o, tile = task // tiles, task % tiles
    if inner == 1:
        acc = widened(sum_type(x.dtype).type(first))
        for j in range(n):
            i = o * n + (n - 1 - j if reverse else j)
            acc = step(acc, widened(load(x, i)))
            store(out, i, acc)
        return
    begin, end = inner * tile // tiles, inner * (tile + 1) // tiles
    lanes = stack(LANES, widened(sum_type(x.dtype).type(first)))
    for lane in range(end - begin):
        lanes[lane] = widened(sum_type(x.dtype).type(first))
    for j in range(n):
        base = (o * n + (n - 1 - j if reverse else j)) * inner + begin
        for lane in range(end - begin):
            lanes[lane] = step(lanes[lane], widened(load(x, base + lane)))
            store(out, base + lane, lanes[lane])


@inlined
def _plus(acc, value):
    return acc + value


@inlined
def _times(acc, value):
    return acc * value


@kernel(grain=GRAIN, loads_halves=True)
def cumsum(out, x, reverse):
    """out, x (outer, n, inner) C; out may be x. From the end if ``reverse``."""
    tiles = _tiles(x)
    for task in prange(0, x.shape[0] * tiles):
        if reverse:
            _scan(out, x, task, tiles, 0, _plus, True)
        else:
            _scan(out, x, task, tiles, 0, _plus, False)


@kernel(grain=GRAIN, loads_halves=True)
def cumprod(out, x):
    """out, x (outer, n, inner) C; out may be x."""
    tiles = _tiles(x)
    for task in prange(0, x.shape[0] * tiles):
        _scan(out, x, task, tiles, 1, _times, False)


@inlined
def _recur(out, a, b, driven, start, reverse, begin, apart, step, n, width):
    """``recurrence`` of ``width`` sequences from element ``begin`` on, ``apart`` from one another;
    step: from one element of a sequence to the next."""
    lanes = stack(LANES, 0.0)
    for lane in range(width):
        lanes[lane] = np.float64(start)
    for j in range(n):
        row = begin + (n - 1 - j if reverse else j) * step
        for lane in range(width):
            at, acc = row + lane * apart, lanes[lane]
            store(out, at, acc)
            acc *= load(a, at)
            if driven:
                acc += load(b, at)
            lanes[lane] = acc


@kernel(grain=GRAIN)
def recurrence(out, a, b, driven, start, reverse):
    """out, a, b (outer, n, inner) C: out[0] = start, out[j] = a[j-1] out[j-1] + b[j-1].

    b is read only if ``driven``. From the end if ``reverse``.
    """
    outer, n, inner = a.shape
    tiles = _tiles(a)
    tasks = (outer + ABREAST - 1) // ABREAST if inner == 1 else outer * tiles
    for task in prange(0, tasks):
        if inner == 1:  # each product waits for the one before it: of several rows none does
            first, last = task * ABREAST, min(outer, (task + 1) * ABREAST)
            while first + ABREAST <= last:
                _recur(out, a, b, driven, start, reverse, first * n, n, 1, n, ABREAST)
                first += ABREAST
            for o in range(first, last):
                _recur(out, a, b, driven, start, reverse, o * n, n, 1, n, 1)
        else:
            o, tile = task // tiles, task % tiles
            left, right = inner * tile // tiles, inner * (tile + 1) // tiles
            begin = o * n * inner + left
            _recur(out, a, b, driven, start, reverse, begin, 1, inner, n, right - left)


@device
def _logs_of_columns(out, x, o, begin, width):
    """``logcumsumexp`` of some columns of one outer index."""
    _, n, inner = x.shape
    most, total, line = stack(LANES, -np.inf), stack(LANES, 0.0), stack(LANES, 0.0)
    for lane in range(width):
        most[lane], total[lane] = -np.inf, 0.0  # the sum is total * exp(most)
    at = o * n * inner + begin
    for _ in range(n):
        for lane in range(width):
            value, before, mass = np.float64(load(x, at + lane)), most[lane], total[lane]
            apart = 0.0 if value == before else abs(value - before)
            less, above = exp(-apart), value > before
            mass = mass * less + 1.0 if above else mass + less
            most[lane], total[lane] = value if above else before, mass
            line[lane] = log(mass)
        for lane in range(width):
            store(out, at + lane, most[lane] + line[lane])
        at += inner


@device
def _logs_of_row(out, x, first, last, spread):
    """``logcumsumexp`` of the elements from ``first`` to ``last``, some at a time.

    Exponentials are taken below the largest element up to the end of some, which for the first of
    them loses as much as it is larger than theirs. Where that is more than ``spread``, one by one.
    """
    powers, logs = stack(TOGETHER, 0.0), stack(TOGETHER, 0.0)
    most, total = -np.inf, 0.0
    for begin in range(first, last, TOGETHER):
        count = min(TOGETHER, last - begin)
        high, low = most, max(most, np.float64(load(x, begin)))
        for k in range(count):
            high = larger(high, np.float64(load(x, begin + k)))
        if not high - low <= spread:  # -inf and NaN too
            for k in range(count):
                value = np.float64(load(x, begin + k))
                apart = 0.0 if value == most else abs(value - most)
                less, above = math.exp(-apart), value > most
                total = total * less + 1.0 if above else total + less
                most = value if above else most
                store(out, begin + k, most + math.log(total))
            continue
        total *= math.exp(most - high)
        for k in range(count):
            powers[k] = exp(np.float64(load(x, begin + k)) - high)
        for k in range(count):
            total += powers[k]
            powers[k] = total
        for k in range(count):
            logs[k] = log(powers[k])
        for k in range(count):
            store(out, begin + k, high + logs[k])
        most = high


@kernel(grain=GRAIN, loads_halves=True)
def logcumsumexp(out, x):
    """out, x (outer, n, inner) C floating: logarithms of running sums of exponentials."""
    outer, n, inner = x.shape
    tiles = max(_tiles(x), min(inner // FEWEST, thread_count() // max(1, outer)))
    spread = SPREAD if x.itemsize < 8 else 1.0
    for task in prange(0, outer * tiles):
        o, tile = task // tiles, task % tiles
        if inner == 1:
            _logs_of_row(out, x, o * n, (o + 1) * n, spread)
        else:
            begin, end = inner * tile // tiles, inner * (tile + 1) // tiles
            _logs_of_columns(out, x, o, begin, end - begin)


@inlined
def _most(value, before):
    return value >= before or value != value


@inlined
def _least(value, before):
    return value <= before or value != value


@inlined
def _extreme(values, indices, x, task, tiles, leads):
    """Do one of ``outer * tiles`` tasks. leads: whether a value takes the place of another."""
    _, n, inner = x.shape
    if inner == 1:
        base = task * n
        most, place = load(x, base), np.int64(0)
        for first in range(0, n, AHEAD):
            last, found = min(n, first + AHEAD), False
            for j in range(first, last):
                found |= leads(load(x, base + j), most)
            if not found:  # as mostly
                for j in range(first, last):
                    store(values, base + j, most)
                    store(indices, base + j, place)
                continue
            rising = leads(load(x, base + first), most)
            for j in range(first + 1, last):
                rising &= leads(load(x, base + j), load(x, base + j - 1))
            if rising:  # each waits for the one before it otherwise
                for j in range(first, last):
                    store(values, base + j, load(x, base + j))
                    store(indices, base + j, j)
                most, place = load(x, base + last - 1), last - 1
                continue
            for j in range(first, last):
                value = load(x, base + j)
                if leads(value, most):
                    most, place = value, j
                store(values, base + j, most)
                store(indices, base + j, place)
        return
    o, tile = task // tiles, task % tiles
    begin, end = inner * tile // tiles, inner * (tile + 1) // tiles
    zero = x.dtype.type(0)
    most, place = stack(LANES, zero + zero), stack(LANES, np.int64(0))  # of bools ints
    base = o * n * inner + begin
    for lane in range(end - begin):
        most[lane], place[lane] = load(x, base + lane), 0
    for j in range(n):
        for lane in range(end - begin):
            value, before = load(x, base + lane), most[lane]
            later = leads(value, before)
            most[lane] = value if later else before
            place[lane] = j if later else place[lane]
            store(values, base + lane, most[lane])
            store(indices, base + lane, place[lane])
        base += inner


@kernel(grain=GRAIN, outputs=2, loads_halves=True)
def cummax(values, indices, x):
    """values, indices, x (outer, n, inner) C. The last of equals, as in PyTorch; NaN stays."""
    tiles = _tiles(x)
    for task in prange(0, x.shape[0] * tiles):
        _extreme(values, indices, x, task, tiles, _most)


@kernel(grain=GRAIN, outputs=2, loads_halves=True)
def cummin(values, indices, x):
    """values, indices, x (outer, n, inner) C. The last of equals, as in PyTorch; NaN stays."""
    tiles = _tiles(x)
    for task in prange(0, x.shape[0] * tiles):
        _extreme(values, indices, x, task, tiles, _least)
