"""Philox 4x32-10: the words of a counter, and the numbers that are made of them.

Reference: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
Philox is too long for LLVM to inline by itself, and without that no loop that draws is vectorised.
"""

from __future__ import annotations

import numpy as np

from ..inner import pasted

__all__ = [
    "double",
    "double_above",
    "double_at",
    "philox",
    "single",
    "single_above",
    "two_doubles",
    "word_at",
    "words_of",
]

_u32, _u64, _f32, _f64 = np.uint32, np.uint64, np.float32, np.float64
_32 = _u64(32)


@pasted
def philox(c0, c1, c2, c3, k0, k1):
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
    return philox(_u32(at), _u32(at >> _32), _u32(0), _u32(0), _u32(key), _u32(key >> _32))


@pasted
def word_at(key, start, i):
    """Word ``i`` of the call."""
    a, b, c, d = words_of(key, start, i >> 2)
    j = i & 3
    return a if j == 0 else b if j == 1 else c if j == 2 else d


@pasted
def single(word):
    """float32 in [0, 1) from the upper 24 bits."""
    return _f32(np.int32(word >> _u32(8))) * _f32(2.0**-24)


@pasted
def single_above(word):
    """float32 in (0, 1]; small values keep their resolution, which the tails are made of."""
    return _f32(np.int32(word >> _u32(1))) * _f32(2.0**-31) + _f32(2.0**-32)


@pasted
def double(high, low):
    """float64 in [0, 1) from 53 bits of two words."""
    return _f64(np.int32(high >> _u32(5))) * 2.0**-27 + _f64(np.int32(low >> _u32(6))) * 2.0**-53


@pasted
def two_doubles(key, start, i, trial):
    """Two float64 in [0, 1) for attempt ``trial``, counted from 1, of counter ``i`` of the call."""
    at = start + _u64(i)
    words = philox(_u32(at), _u32(at >> _32), _u32(trial), _u32(0), _u32(key), _u32(key >> _32))
    return double(words[0], words[1]), double(words[2], words[3])


@pasted
def double_above(high, low):
    """float64 in (0, 1]."""
    return 1.0 - double(high, low)


@pasted
def double_at(key, start, i):
    """The float64 in [0, 1) that element ``i`` of a call uses."""
    a, b, c, d = words_of(key, start, i >> 1)
    return double(c, d) if i & 1 else double(a, b)
