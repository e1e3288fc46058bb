"""Random numbers from a counter: Philox 4x32-10 and the distributions made of its words.

Element ``i`` of a call depends only on the seed, the counter at which the call starts, and ``i``,
so any number of threads, and another device, gives the same numbers. A call gets the seed and its
first counter as ``state``, an int64 array of two that ``take_counters`` fills: the position of the
generator is memory like any other, and a recorded step that runs again moves it on.

One counter gives four words of 32 bits: four single elements, or two double ones.

Start reading at ``philox.py``, then ``uniform``.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..inner import device, pasted
from ..intrinsics import lesser
from ..machine import kernel
from ..simd.instructions import times_plus
from .philox import (
    double,
    double_above,
    double_at,
    philox,
    single,
    single_above,
    word_at,
    words_of,
)
from .turns import log_double, log_single, turn_double, turn_single

_u32, _u64, _f32, _f64 = np.uint32, np.uint64, np.float32, np.float64
_32 = _u64(32)

BLOCK = 1 << 14  # numbers whose faults are counted together

# Places are computed unsigned: a signed one might be negative, and NumPy's rule for those keeps
# LLVM from vectorising inside of prange, which made these kernels 5 times slower.


@kernel
def philox_block(out, counter, key):
    """out (4,), counter (4,), key (2,) int64: the words of one counter, for the published tests."""
    a, b, c, d = philox(
        _u32(counter[0]), _u32(counter[1]), _u32(counter[2]), _u32(counter[3]),
        _u32(key[0]), _u32(key[1]),
    )  # fmt: skip
    out[0], out[1], out[2], out[3] = a, b, c, d


@kernel(outputs=2)
def take_counters(taken, state, count):
    """taken, state (2,) int64: taken becomes state, and state moves on by count counters."""
    taken[0] = state[0]
    taken[1] = state[1]
    state[1] += count


@kernel
def stagger(states, taken, count):
    """states (n, 2), taken (2,) int64: each state is ``count`` counters after that before it, the
    first is ``taken``."""
    for i in range(states.shape[0]):
        states[i, 0] = taken[0]
        states[i, 1] = taken[1] + i * count


@kernel(grain=65536)
def uniform(out, state, low, high):
    """out (n,) float32 in [low, high); state (2,). One word an element."""
    key, start = _u64(state[0]), _u64(state[1])
    n = out.size
    floor, width = _f32(low), _f32(high - low)
    end = _f32(high)
    for i in prange(0, n >> 2):
        at = _u64(4 * i)
        a, b, c, d = words_of(key, start, i)
        out[at] = floor + width * single(a)
        out[at + _u64(1)] = floor + width * single(b)
        out[at + _u64(2)] = floor + width * single(c)
        out[at + _u64(3)] = floor + width * single(d)
    for i in range(n & ~3, n):
        out[i] = floor + width * single(word_at(key, start, i))
    if floor + width * _f32(1.0 - 2.0**-24) >= end and width > _f32(0):
        for i in range(n):  # the sum can round up to high, which is not in the range
            if out[i] >= end:
                out[i] = floor


@kernel(grain=65536)
def uniform_double(out, state, low, high):
    """out (n,) float64 in [low, high); state (2,). Two words an element."""
    key, start = _u64(state[0]), _u64(state[1])
    n = out.size
    width = high - low
    for i in prange(0, n >> 1):
        at = _u64(2 * i)
        a, b, c, d = words_of(key, start, i)
        out[at] = low + width * double(a, b)
        out[at + _u64(1)] = low + width * double(c, d)
    if n & 1:
        out[n - 1] = low + width * double_at(key, start, n - 1)
    if low + width * (1.0 - 2.0**-53) >= high and width > 0.0:
        for i in range(n):
            if out[i] >= high:
                out[i] = low


@kernel(grain=65536)
def normal(out, state, mean, std):
    """out (n,) float32, normal by Box and Muller; state (2,). One word an element."""
    key, start = _u64(state[0]), _u64(state[1])
    n = out.size
    mu, sigma = _f32(mean), _f32(std)
    for i in prange(0, n >> 2):
        at = _u64(4 * i)
        a, b, c, d = words_of(key, start, i)
        radius = sigma * np.sqrt(_f32(-2) * log_single(single_above(a)))
        cosine, sine = turn_single(b)
        out[at] = times_plus(radius, cosine, mu)
        out[at + _u64(1)] = times_plus(radius, sine, mu)
        radius = sigma * np.sqrt(_f32(-2) * log_single(single_above(c)))
        cosine, sine = turn_single(d)
        out[at + _u64(2)] = times_plus(radius, cosine, mu)
        out[at + _u64(3)] = times_plus(radius, sine, mu)
    for i in range(n & ~3, n):
        a, b, c, d = words_of(key, start, i >> 2)
        if i & 2:
            a, b = c, d
        radius = sigma * np.sqrt(_f32(-2) * log_single(single_above(a)))
        cosine, sine = turn_single(b)
        out[i] = times_plus(radius, sine if i & 1 else cosine, mu)


@kernel(grain=65536)
def normal_double(out, state, mean, std):
    """out (n,) float64, normal by Box and Muller; state (2,). Two words an element."""
    key, start = _u64(state[0]), _u64(state[1])
    mu, sigma = _f64(mean), _f64(std)
    n = out.size
    for i in prange(0, n >> 1):
        at = _u64(2 * i)
        a, b, c, d = words_of(key, start, i)
        radius = sigma * np.sqrt(-2.0 * log_double(double_above(a, b)))
        cosine, sine = turn_double(c, d)
        out[at] = times_plus(radius, cosine, mu)
        out[at + _u64(1)] = times_plus(radius, sine, mu)
    if n & 1:
        a, b, c, d = words_of(key, start, n >> 1)
        radius = sigma * np.sqrt(-2.0 * log_double(double_above(a, b)))
        out[n - 1] = times_plus(radius, turn_double(c, d)[0], mu)


@kernel(grain=65536)
def exponential(out, state, rate):
    """out (n,) float32 or float64, exponential; state (2,). Two words an element."""
    key, start = _u64(state[0]), _u64(state[1])
    scale = -1.0 / rate
    for i in prange(0, out.size):
        out[i] = scale * log_double(1.0 - double_at(key, start, i))


@pasted
def _below(high, low, span):
    """An integer in [0, span) from the 64 bits of two words; span 0 stands for 2**64.

    The bits, as a fraction of 2**64, times span: its bias is at most span / 2**64.
    """
    if span == _u64(0):
        return (_u64(high) << _32) | _u64(low)
    mask = _u64(0xFFFFFFFF)
    upper, lower = span >> _32, span & mask
    middle = _u64(high) * lower + ((_u64(low) * lower) >> _32)
    other = _u64(low) * upper + (middle & mask)
    return _u64(high) * upper + (middle >> _32) + (other >> _32)


@kernel(grain=65536)
def integers(out, state, low, span):
    """out (n,) any dtype, whole numbers in [low, low + span); state (2,). Two words an element.

    span: int64, read as unsigned; 0 stands for all 2**64 numbers.
    """
    key, start = _u64(state[0]), _u64(state[1])
    n = out.size
    width = _u64(span)
    if _u64(0) < width <= _u64(0xFFFFFFFF):
        for i in prange(0, n >> 1):  # the usual case, short enough to vectorise
            at = _u64(2 * i)
            a, b, c, d = words_of(key, start, i)
            left = (_u64(a) * width + ((_u64(b) * width) >> _32)) >> _32
            right = (_u64(c) * width + ((_u64(d) * width) >> _32)) >> _32
            out[at] = low + np.int64(left)
            out[at + _u64(1)] = low + np.int64(right)
    else:
        for i in prange(0, n >> 1):
            at = _u64(2 * i)
            a, b, c, d = words_of(key, start, i)
            out[at] = low + np.int64(_below(a, b, width))
            out[at + _u64(1)] = low + np.int64(_below(c, d, width))
    if n & 1:
        a, b, _, _ = words_of(key, start, n >> 1)
        out[n - 1] = low + np.int64(_below(a, b, width))


@kernel(grain=65536)
def bernoulli(out, state, p):
    """out (n,) any dtype: 1 with probability p, else 0; state (2,). One word an element."""
    key, start = _u64(state[0]), _u64(state[1])
    n = out.size
    limit = _u64(p * 4294967296.0)
    one, zero = out.dtype.type(1), out.dtype.type(0)
    for i in prange(0, n >> 2):
        at = _u64(4 * i)
        a, b, c, d = words_of(key, start, i)
        out[at] = one if _u64(a) < limit else zero
        out[at + _u64(1)] = one if _u64(b) < limit else zero
        out[at + _u64(2)] = one if _u64(c) < limit else zero
        out[at + _u64(3)] = one if _u64(d) < limit else zero
    for i in range(n & ~3, n):
        out[i] = one if _u64(word_at(key, start, i)) < limit else zero


@kernel(grain=65536, outputs=2, allocates=True)
def bernoulli_each(out, bad, p, state):
    """out (n,) any dtype: 1 with probability p (n,); bad (1,) int64: how many entries are
    outside [0, 1], less one."""
    key, start = _u64(state[0]), _u64(state[1])
    one, zero = out.dtype.type(1), out.dtype.type(0)
    wrong = np.zeros((out.size + BLOCK - 1) // BLOCK, np.int64)
    for b in prange(0, wrong.size):
        found = 0
        for i in range(b * BLOCK, lesser(out.size, (b + 1) * BLOCK)):
            out[i] = one if double_at(key, start, i) < p[i] else zero
            found += 0 if p[i] >= 0 and p[i] <= 1 else 1
        wrong[b] = found
    total = 0
    for b in range(wrong.size):
        total += wrong[b]
    bad[0] = total - 1


@kernel(grain=65536)
def dropout(out, x, state, p, scale):
    """out, x (n,): x * scale with probability 1 - p, else x * 0; state (2,); out may be x.

    The mask is never stored: the same state gives it again for the gradient.
    """
    key, start = _u64(state[0]), _u64(state[1])
    n = out.size
    limit = _u64(p * 4294967296.0)
    keep, drop = x.dtype.type(scale), x.dtype.type(0)
    for i in prange(0, n >> 2):
        at = _u64(4 * i)
        a, b, c, d = words_of(key, start, i)
        out[at] = x[at] * (keep if _u64(a) >= limit else drop)
        out[at + _u64(1)] = x[at + _u64(1)] * (keep if _u64(b) >= limit else drop)
        out[at + _u64(2)] = x[at + _u64(2)] * (keep if _u64(c) >= limit else drop)
        out[at + _u64(3)] = x[at + _u64(3)] * (keep if _u64(d) >= limit else drop)
    for i in range(n & ~3, n):
        out[i] = x[i] * (keep if _u64(word_at(key, start, i)) >= limit else drop)


@kernel(allocates=True)
def permutation(out, state):
    """out (n,) any integer dtype: 0 to n - 1 shuffled by Fisher and Yates; state (2,)."""
    key, start = _u64(state[0]), _u64(state[1])
    n = out.size
    partner = np.empty(n + 1, np.int64)
    for i in range((n + 1) >> 1):  # apart from the exchanges, so that it is vectorised
        a, b, c, d = words_of(key, start, i)
        left, right = _u64(2 * i + 1), _u64(2 * i + 2)
        partner[2 * i] = np.int64((_u64(a) * left + ((_u64(b) * left) >> _32)) >> _32)
        partner[2 * i + 1] = np.int64((_u64(c) * right + ((_u64(d) * right) >> _32)) >> _32)
    for i in range(n):
        out[i] = i
    for i in range(n - 1, 0, -1):
        j = partner[i]
        out[i], out[j] = out[j], out[i]


@kernel(outputs=2, allocates=True)
def multinomial_again(out, bad, p, state):
    """out (n, k) int64: columns of p (n, m), drawn with replacement by weight; state (2,).

    bad (1,) int64: -1; 0 where an entry of p is negative, inf or NaN; 1 where a row sums to 0.
    """
    key, start = _u64(state[0]), _u64(state[1])
    n, m = p.shape
    k = out.shape[1]
    bad[0] = -1
    sums = np.empty(m, np.float64)
    for row in range(n):
        total = 0.0
        last = 0
        for j in range(m):
            weight = _f64(p[row, j])
            if not (weight >= 0.0 and weight < np.inf):
                bad[0] = 0
                return
            total += weight
            sums[j] = total
            if weight > 0.0:
                last = j
        if not total > 0.0:
            bad[0] = 1
            return
        for i in range(k):
            at = double_at(key, start, row * k + i) * total
            low, high = 0, last
            while low < high:
                middle = (low + high) >> 1
                if sums[middle] > at:
                    high = middle
                else:
                    low = middle + 1
            out[row, i] = low


@kernel(outputs=2, allocates=True)
def multinomial_once(out, bad, p, state):
    """out (n, k) int64: columns of p (n, m), drawn without replacement by weight; state (2,).

    A race: column j finishes after an exponential time of rate p[j]; the first k win. bad (1,):
    as for ``multinomial_again``, and 3 where fewer than k weights are positive.
    """
    key, start = _u64(state[0]), _u64(state[1])
    n, m = p.shape
    k = out.shape[1]
    bad[0] = -1
    time = np.empty(m, np.float64)
    heap = np.empty(m, np.int64)
    for row in range(n):
        size = 0
        for j in range(m):
            weight = _f64(p[row, j])
            if not (weight >= 0.0 and weight < np.inf):
                bad[0] = 0
                return
            if weight > 0.0:
                time[j] = -log_double(1.0 - double_at(key, start, row * m + j)) / weight
                heap[size] = j
                size += 1
        if size < k:
            bad[0] = 2 if size else 1
            return
        for at in range(size // 2 - 1, -1, -1):
            _sift(heap, time, at, size)
        for i in range(k):
            out[row, i] = heap[0]
            size -= 1
            heap[0] = heap[size]
            _sift(heap, time, 0, size)


@device
def _sift(heap, time, at, size):
    """Let the entry at ``at`` sink until no child has an earlier time."""
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and time[heap[child + 1]] < time[heap[child]]:
            child += 1
        if time[heap[at]] <= time[heap[child]]:
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child
