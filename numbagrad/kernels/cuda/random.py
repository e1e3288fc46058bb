"""Random numbers from a counter: the same Philox 4x32-10 numbers as on the CPU.

A thread makes the four words of one counter, and from them four single elements or two double ones.
``state`` comes from the host: the seed, and the first counter of the call; a compiled step gives
numbers in device memory, so that its graph draws others each time. Start reading at
``philox.py``, then ``uniform``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from . import scan, sort
from .philox import double, double_above, single, single_above, words_of
from .runtime import device, elementwise
from .runtime.array import DeviceArray
from .runtime.grids import tile_grid
from .runtime.intrinsics import as_type, load4, store4
from .runtime.launch import start, strided_grid
from .runtime.maths import math
from .runtime.shape import BLOCK
from .runtime.warp import inlined, split
from .turns import log_double, log_single, turn_double, turn_single

__all__ = [
    "bernoulli",
    "bernoulli_each",
    "dropout",
    "exponential",
    "integers",
    "multinomial_again",
    "multinomial_once",
    "normal",
    "normal_double",
    "uniform",
    "uniform_double",
]

ON_THE_HOST = ("state",)
"""Parameters that are read on the host."""

_u32, _u64, _f32, _f64 = np.uint32, np.uint64, np.float32, np.float64
_32 = _u64(32)


def _each(kernel: Any, elements: int, out: Any, state: Any, *args: Any) -> None:
    """Start ``kernel(out, ..., n, seed, first)``, a thread for each counter of ``elements``."""
    n = out.size
    if n:
        grid = tile_grid(-(-n // (elements * BLOCK)))
        start(kernel, grid, BLOCK, out, *args, n, state[0], state[1])


def _fours(kernel: Any, out: Any, state: Any, *args: Any) -> None:
    """``_each`` of kernels that write by four where the addresses of all arrays allow it."""
    together = out.pointer
    for a in args:
        together |= a.pointer if isinstance(a, DeviceArray) else 0
    _each(kernel, 4, out, state, *args, 1 if together % 16 == 0 else 0)


@inlined
def _put(out, i, n, whole, a, b, c, d):
    """Write a counter's four elements, of those that there are."""
    at = 4 * i
    if whole and at + 3 < n:
        store4(out, at, a, b, c, d)
    else:
        out[at] = a
        if at + 1 < n:
            out[at + 1] = b
        if at + 2 < n:
            out[at + 2] = c
        if at + 3 < n:
            out[at + 3] = d


@inlined
def _between(word, floor, width, end):
    value = _f32(floor + width * single(word))
    # The sum can round up to high, which is not in the range.
    return floor if value >= end and width > _f32(0) else value


def _uniform(out, low, high, whole, n, seed, first):
    floor, width, end = _f32(low), _f32(high - low), _f32(high)
    i = cuda.grid(1)
    while 4 * i < n:
        a, b, c, d = words_of(seed, first, i)
        p, q = _between(a, floor, width, end), _between(b, floor, width, end)
        r, s = _between(c, floor, width, end), _between(d, floor, width, end)
        _put(out, i, n, whole, p, q, r, s)
        i += cuda.gridsize(1)


def uniform(out, state, low, high):
    """out (n,) float32 in [low, high); state (2,). One word an element."""
    _fours(_uniform, out, state, float(low), float(high))


def _uniform_double(out, low, high, n, seed, first):
    width = high - low
    i = cuda.grid(1)
    while 2 * i < n:
        a, b, c, d = words_of(seed, first, i)
        for j in range(2):
            if 2 * i + j < n:
                value = low + width * (double(a, b) if j == 0 else double(c, d))
                out[2 * i + j] = low if value >= high and width > 0.0 else value
        i += cuda.gridsize(1)


def uniform_double(out, state, low, high):
    """out (n,) float64 in [low, high); state (2,). Two words an element."""
    _each(_uniform_double, 2, out, state, float(low), float(high))


@inlined
def _pair(high, angle, mu, sigma):
    """Two normal numbers from two words."""
    radius = sigma * _f32(math.sqrt(_f32(-2) * log_single(single_above(high))))
    cosine, sine = turn_single(angle)
    return mu + radius * cosine, mu + radius * sine


def _normal(out, mean, std, whole, n, seed, first):
    mu, sigma = _f32(mean), _f32(std)
    i = cuda.grid(1)
    while 4 * i < n:
        a, b, c, d = words_of(seed, first, i)
        p, q = _pair(a, b, mu, sigma)
        r, s = _pair(c, d, mu, sigma)
        _put(out, i, n, whole, p, q, r, s)
        i += cuda.gridsize(1)


def normal(out, state, mean, std):
    """out (n,) float32, normal by Box and Muller; state (2,). One word an element."""
    _fours(_normal, out, state, float(mean), float(std))


def _normal_double(out, mean, std, n, seed, first):
    i = cuda.grid(1)
    while 2 * i < n:
        a, b, c, d = words_of(seed, first, i)
        radius = std * math.sqrt(-2.0 * log_double(double_above(a, b)))
        cosine, sine = turn_double(c, d)
        out[2 * i] = mean + radius * cosine
        if 2 * i + 1 < n:
            out[2 * i + 1] = mean + radius * sine
        i += cuda.gridsize(1)


def normal_double(out, state, mean, std):
    """out (n,) float64, normal by Box and Muller; state (2,). Two words an element."""
    _each(_normal_double, 2, out, state, float(mean), float(std))


def _exponential(out, rate, n, seed, first):
    scale = -1.0 / rate
    i = cuda.grid(1)
    while 2 * i < n:
        a, b, c, d = words_of(seed, first, i)
        out[2 * i] = scale * log_double(1.0 - double(a, b))
        if 2 * i + 1 < n:
            out[2 * i + 1] = scale * log_double(1.0 - double(c, d))
        i += cuda.gridsize(1)


def exponential(out, state, rate):
    """out (n,) float32 or float64, exponential; state (2,). Two words an element."""
    _each(_exponential, 2, out, state, float(rate))


@inlined
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


def _integers(out, low, span, n, seed, first):
    width = _u64(np.int64(span))
    i = cuda.grid(1)
    while 2 * i < n:
        a, b, c, d = words_of(seed, first, i)
        out[2 * i] = np.int64(low) + np.int64(_below(a, b, width))
        if 2 * i + 1 < n:
            out[2 * i + 1] = np.int64(low) + np.int64(_below(c, d, width))
        i += cuda.gridsize(1)


def integers(out, state, low, span):
    """out (n,) any dtype, whole numbers in [low, low + span); state (2,). Two words an element.

    span: int64, read as unsigned; 0 stands for all 2**64 numbers.
    """
    _each(_integers, 2, out, state, int(low), int(span))


def _bernoulli(out, p, whole, n, seed, first):
    limit = _u64(p * 4294967296.0)
    yes, no = as_type(out, 1), as_type(out, 0)
    i = cuda.grid(1)
    while 4 * i < n:
        a, b, c, d = words_of(seed, first, i)
        q, r = yes if _u64(a) < limit else no, yes if _u64(b) < limit else no
        s, t = yes if _u64(c) < limit else no, yes if _u64(d) < limit else no
        _put(out, i, n, whole, q, r, s, t)
        i += cuda.gridsize(1)


def bernoulli(out, state, p):
    """out (n,) any dtype: 1 with probability p, else 0; state (2,). One word an element."""
    _fours(_bernoulli, out, state, float(p))


def _bernoulli_each(out, p, bad, n, seed, first):
    i = cuda.grid(1)
    while 2 * i < n:
        a, b, c, d = words_of(seed, first, i)
        for j in range(2):
            at = 2 * i + j
            if at < n:
                drawn = double(a, b) if j == 0 else double(c, d)
                out[at] = as_type(out, 1 if drawn < p[at] else 0)
                if not (p[at] >= 0 and p[at] <= 1):
                    bad[0] = 0
        i += cuda.gridsize(1)


def bernoulli_each(out, bad, p, state):
    """out (n,) any dtype: 1 with probability p (n,); bad (1,) int64: -1, or 0 if an entry is
    outside [0, 1]."""
    elementwise.fill(bad, -1)
    _each(_bernoulli_each, 2, out, state, p, bad)


def _dropout(out, x, p, scale, whole, n, seed, first):
    limit = _u64(p * 4294967296.0)
    keep, drop = as_type(x, scale), as_type(x, 0)
    i = cuda.grid(1)
    while 4 * i < n:
        r0, r1, r2, r3 = words_of(seed, first, i)
        a, b = keep if _u64(r0) >= limit else drop, keep if _u64(r1) >= limit else drop
        c, d = keep if _u64(r2) >= limit else drop, keep if _u64(r3) >= limit else drop
        at = 4 * i
        if whole and at + 3 < n:
            e, f, g, h = load4(x, at)
            store4(out, at, e * a, f * b, g * c, h * d)
        else:
            out[at] = x[at] * a
            if at + 1 < n:
                out[at + 1] = x[at + 1] * b
            if at + 2 < n:
                out[at + 2] = x[at + 2] * c
            if at + 3 < n:
                out[at + 3] = x[at + 3] * d
        i += cuda.gridsize(1)


def dropout(out, x, state, p, scale):
    """out, x (n,): x * scale with probability 1 - p, else x * 0; state (2,); out may be x.

    The mask is never stored: the same state gives it again for the gradient.
    """
    _fours(_dropout, out, state, x, float(p), float(scale))


# -- draws by weight -------------------------------------------------------------------------------


def _refuse_entries(bad, p, size):
    """bad[0] = 0 if an entry of p is negative, inf or NaN."""
    i = cuda.grid(1)
    while i < size:
        if not (p[i] >= 0 and p[i] < math.inf):
            bad[0] = 0
        i += cuda.gridsize(1)


def _refuse_rows(bad, p, n, m, least):
    """bad[0] = 1 if a row has no positive weight, 2 if it has fewer than ``least``."""
    row = cuda.grid(1)
    while row < n:
        positive = 0
        for j in range(m):
            positive += 1 if p[row * m + j] > 0 else 0
        if positive < least and bad[0] != 0:
            bad[0] = 2 if positive else 1
        row += cuda.gridsize(1)


def _refuse(bad: Any, p: Any, least: int) -> None:
    n, m = p.shape
    elementwise.fill(bad, -1)
    start(_refuse_entries, strided_grid(p.size), BLOCK, bad, p, p.size)
    start(_refuse_rows, strided_grid(n), BLOCK, bad, p, n, m, least)


@inlined
def _double_at(seed, first, i):
    """The float64 in [0, 1) that element ``i`` of a call uses."""
    a, b, c, d = words_of(seed, first, i // 2)
    return double(c, d) if i % 2 else double(a, b)


def _draw_again(out, bad, sums, size, k, m, seed, first):
    """A thread for each of ``size`` draws: the first place whose running sum is beyond it."""
    if bad[0] >= 0:
        return
    i = cuda.grid(1)
    while i < size:
        row, _ = split(i, k)
        at = _double_at(seed, first, i) * sums[row * m + m - 1]
        low, high = 0, m - 1
        while low < high:
            middle = (low + high) // 2
            if sums[row * m + middle] > at:
                high = middle
            else:
                low = middle + 1
        out[i] = low
        i += cuda.gridsize(1)


def multinomial_again(out, bad, p, state):
    """out (n, k) int64: columns of p (n, m), drawn with replacement by weight; state (2,).

    bad (1,) int64: -1; 0 where an entry of p is negative, inf or NaN; 1 where a row sums to 0.
    """
    (n, m), k = p.shape, out.shape[1]
    _refuse(bad, p, 1)
    sums = device.empty((n, m, 1), np.dtype(np.float64), p.device)
    scan.cumsum(sums, p.reshape(n, m, 1), False)
    where = out.size, k, m, state[0], state[1]
    start(_draw_again, strided_grid(out.size), BLOCK, out, bad, sums, *where)


def _race(times, p, size, seed, first):
    """A thread for each column: when it finishes, after an exponential time of rate p."""
    i = cuda.grid(1)
    while i < size:
        weight = _f64(p[i])
        time = -log_double(1.0 - _double_at(seed, first, i))
        times[i] = time / weight if weight > 0 else math.inf
        i += cuda.gridsize(1)


def multinomial_once(out, bad, p, state):
    """out (n, k) int64: columns of p (n, m), drawn without replacement by weight; state (2,).

    A race: column j finishes after an exponential time of rate p[j]; the first k win. bad (1,):
    as for ``multinomial_again``, and 2 where fewer than k weights are positive.
    """
    _refuse(bad, p, out.shape[1])
    wide = np.dtype(np.float64)
    times, best = device.empty(p.shape, wide, p.device), device.empty(out.shape, wide, p.device)
    start(_race, strided_grid(p.size), BLOCK, times, p, p.size, state[0], state[1])
    sort.sort(best, out, times, False)
