"""Random numbers from a counter: Philox 4x32-10 and the distributions made of its words.

Element ``i`` of a call depends only on the seed, the counter at which the call starts, and ``i``,
so any number of threads, and another device, gives the same numbers. A call gets the seed and its
first counter as ``state``, an int64 array of two that ``take_counters`` fills: the position of the
generator is memory like any other, and a recorded step that runs again moves it on.

One counter gives four words of 32 bits: four single elements, or two double ones.

Reference: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
Start reading at ``_philox``, then ``uniform``.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..inner import device, pasted
from ..intrinsics import bits_float32, bits_float64, float32_bits, float64_bits, lesser
from ..machine import kernel
from ..simd.instructions import times_plus

_u32, _u64, _f32, _f64 = np.uint32, np.uint64, np.float32, np.float64
_32 = _u64(32)

BLOCK = 1 << 14  # numbers whose faults are counted together

# Places are computed unsigned: a signed one might be negative, and NumPy's rule for those keeps
# LLVM from vectorising inside of prange, which made these kernels 5 times slower.

# Philox is too long for LLVM to inline by itself, and without that no loop here is vectorised.


@pasted
def _philox(c0, c1, c2, c3, k0, k1):
    """Ten rounds of Philox 4x32 on a counter of four words with a key of two."""
    for _ in range(10):
        left = _u64(0xD2511F53) * _u64(c0)
        right = _u64(0xCD9E8D57) * _u64(c2)
        c0 = _u32(_u32(right >> _32) ^ c1 ^ k0)
        c1 = _u32(right)
        c2 = _u32(_u32(left >> _32) ^ c3 ^ k1)
        c3 = _u32(left)
        k0 = _u32(k0 + _u32(0x9E3779B9))
        k1 = _u32(k1 + _u32(0xBB67AE85))
    return c0, c1, c2, c3


@pasted
def words_of(key, start, i):
    """The four words of counter ``i`` of the call."""
    at = start + _u64(i)
    return _philox(_u32(at), _u32(at >> _32), _u32(0), _u32(0), _u32(key), _u32(key >> _32))


@pasted
def _word(key, start, i):
    """Word ``i`` of the call."""
    a, b, c, d = words_of(key, start, i >> 2)
    j = i & 3
    return a if j == 0 else b if j == 1 else c if j == 2 else d


@pasted
def _single(word):
    """float32 in [0, 1) from the upper 24 bits."""
    return _f32(np.int32(word >> _u32(8))) * _f32(2.0**-24)


@pasted
def _single_above(word):
    """float32 in (0, 1]; small values keep their resolution, which the tails are made of."""
    return _f32(np.int32(word >> _u32(1))) * _f32(2.0**-31) + _f32(2.0**-32)


@pasted
def _double(high, low):
    """float64 in [0, 1) from 53 bits of two words."""
    return _f64(np.int32(high >> _u32(5))) * 2.0**-27 + _f64(np.int32(low >> _u32(6))) * 2.0**-53


@pasted
def two_doubles(key, start, i, trial):
    """Two float64 in [0, 1) for attempt ``trial``, counted from 1, of counter ``i`` of the call."""
    at = start + _u64(i)
    words = _philox(_u32(at), _u32(at >> _32), _u32(trial), _u32(0), _u32(key), _u32(key >> _32))
    return _double(words[0], words[1]), _double(words[2], words[3])


@pasted
def _double_above(high, low):
    """float64 in (0, 1]."""
    return 1.0 - _double(high, low)


@pasted
def _double_at(key, start, i):
    """The float64 in [0, 1) that element ``i`` of a call uses."""
    a, b, c, d = words_of(key, start, i >> 1)
    return _double(c, d) if i & 1 else _double(a, b)


@kernel
def philox_block(out, counter, key):
    """out (4,), counter (4,), key (2,) int64: the words of one counter, for the published tests."""
    a, b, c, d = _philox(
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
        out[at] = floor + width * _single(a)
        out[at + _u64(1)] = floor + width * _single(b)
        out[at + _u64(2)] = floor + width * _single(c)
        out[at + _u64(3)] = floor + width * _single(d)
    for i in range(n & ~3, n):
        out[i] = floor + width * _single(_word(key, start, i))
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
        out[at] = low + width * _double(a, b)
        out[at + _u64(1)] = low + width * _double(c, d)
    if n & 1:
        out[n - 1] = low + width * _double_at(key, start, n - 1)
    if low + width * (1.0 - 2.0**-53) >= high and width > 0.0:
        for i in range(n):
            if out[i] >= high:
                out[i] = low


# -- logarithm, sine and cosine where Box and Muller need them -------------------------------------
# Series in a small variable, so that LLVM vectorises them; math.log and math.cos would be calls.


@pasted
def _log_single(x):
    """Logarithm of a normal float32: its exponent, and the series of 2 artanh(s) of the rest."""
    bits = float32_bits(x)
    exponent = (bits - np.int32(0x3F3504F3)) >> np.int32(23)  # the rest lies around 1
    m = bits_float32(np.int32(bits - (exponent << np.int32(23))))
    s = (m - _f32(1)) / (m + _f32(1))
    z = s * s
    series = _f32(1) + z * (_f32(1 / 3) + z * (_f32(1 / 5) + z * (_f32(1 / 7) + z * _f32(1 / 9))))
    return _f32(np.int32(exponent)) * _f32(0.6931471805599453) + _f32(2) * s * series


@pasted
def _log_double(x):
    """Logarithm of a normal float64."""
    bits = float64_bits(x)
    exponent = (bits - np.int64(0x3FE6A09E667F3BCD)) >> np.int64(52)
    m = bits_float64(bits - (exponent << np.int64(52)))
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = 1 / 21
    series = 1 / 19 + z * series
    series = 1 / 17 + z * series
    series = 1 / 15 + z * series
    series = 1 / 13 + z * series
    series = 1 / 11 + z * series
    series = 1 / 9 + z * series
    series = 1 / 7 + z * series
    series = 1 / 5 + z * series
    series = 1 / 3 + z * series
    return _f64(np.int32(exponent)) * 0.6931471805599453 + (2.0 * s + 2.0 * s * z * series)


@pasted
def _turn_single(word):
    """Cosine and sine of the angle that is ``word`` in units of 2**-32 turns."""
    shifted = _u32(word + _u32(0x20000000))
    quarter = shifted >> _u32(30)
    rest = np.int32(shifted & _u32(0x3FFFFFFF)) - np.int32(0x20000000)
    x = _f32(rest) * _f32(2.0**-30 * 1.5707963267948966)
    z = x * x
    sine = x * (_f32(1) + z * (_f32(-1 / 6) + z * (_f32(1 / 120) + z * _f32(-1 / 5040))))
    cosine = _f32(1) + z * (
        _f32(-1 / 2) + z * (_f32(1 / 24) + z * (_f32(-1 / 720) + z * _f32(1 / 40320)))
    )
    odd = quarter & _u32(1) != _u32(0)
    c = sine if odd else cosine
    s = cosine if odd else sine
    c = -c if quarter == _u32(1) or quarter == _u32(2) else c
    s = -s if quarter >= _u32(2) else s
    return c, s


@pasted
def _turn_double(high, low):
    """Cosine and sine of the angle that is ``high`` and ``low`` in units of 2**-64 turns."""
    shifted = _u32(high + _u32(0x20000000))
    quarter = shifted >> _u32(30)
    rest = np.int32(shifted & _u32(0x3FFFFFFF)) - np.int32(0x20000000)
    x = (_f64(rest) * 2.0**-30 + _f64(np.int32(low >> _u32(1))) * 2.0**-61) * 1.5707963267948966
    z = x * x
    sine = -1 / 1307674368000
    sine = 1 / 6227020800 + z * sine
    sine = -1 / 39916800 + z * sine
    sine = 1 / 362880 + z * sine
    sine = -1 / 5040 + z * sine
    sine = 1 / 120 + z * sine
    sine = -1 / 6 + z * sine
    sine = x + x * z * sine
    cosine = 1 / 20922789888000
    cosine = -1 / 87178291200 + z * cosine
    cosine = 1 / 479001600 + z * cosine
    cosine = -1 / 3628800 + z * cosine
    cosine = 1 / 40320 + z * cosine
    cosine = -1 / 720 + z * cosine
    cosine = 1 / 24 + z * cosine
    cosine = 1.0 + z * (-1 / 2 + z * cosine)
    odd = quarter & _u32(1) != _u32(0)
    c = sine if odd else cosine
    s = cosine if odd else sine
    c = -c if quarter == _u32(1) or quarter == _u32(2) else c
    s = -s if quarter >= _u32(2) else s
    return c, s


@kernel(grain=65536)
def normal(out, state, mean, std):
    """out (n,) float32, normal by Box and Muller; state (2,). One word an element."""
    key, start = _u64(state[0]), _u64(state[1])
    n = out.size
    mu, sigma = _f32(mean), _f32(std)
    for i in prange(0, n >> 2):
        at = _u64(4 * i)
        a, b, c, d = words_of(key, start, i)
        radius = sigma * np.sqrt(_f32(-2) * _log_single(_single_above(a)))
        cosine, sine = _turn_single(b)
        out[at] = times_plus(radius, cosine, mu)
        out[at + _u64(1)] = times_plus(radius, sine, mu)
        radius = sigma * np.sqrt(_f32(-2) * _log_single(_single_above(c)))
        cosine, sine = _turn_single(d)
        out[at + _u64(2)] = times_plus(radius, cosine, mu)
        out[at + _u64(3)] = times_plus(radius, sine, mu)
    for i in range(n & ~3, n):
        a, b, c, d = words_of(key, start, i >> 2)
        if i & 2:
            a, b = c, d
        radius = sigma * np.sqrt(_f32(-2) * _log_single(_single_above(a)))
        cosine, sine = _turn_single(b)
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
        radius = sigma * np.sqrt(-2.0 * _log_double(_double_above(a, b)))
        cosine, sine = _turn_double(c, d)
        out[at] = times_plus(radius, cosine, mu)
        out[at + _u64(1)] = times_plus(radius, sine, mu)
    if n & 1:
        a, b, c, d = words_of(key, start, n >> 1)
        radius = sigma * np.sqrt(-2.0 * _log_double(_double_above(a, b)))
        out[n - 1] = times_plus(radius, _turn_double(c, d)[0], mu)


@kernel(grain=65536)
def exponential(out, state, rate):
    """out (n,) float32 or float64, exponential; state (2,). Two words an element."""
    key, start = _u64(state[0]), _u64(state[1])
    scale = -1.0 / rate
    for i in prange(0, out.size):
        out[i] = scale * _log_double(1.0 - _double_at(key, start, i))


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
        out[i] = one if _u64(_word(key, start, i)) < limit else zero


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
            out[i] = one if _double_at(key, start, i) < p[i] else zero
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
        out[i] = x[i] * (keep if _u64(_word(key, start, i)) >= limit else drop)


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
            at = _double_at(key, start, row * k + i) * total
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
                time[j] = -_log_double(1.0 - _double_at(key, start, row * m + j)) / weight
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
