"""Philox 4x32-10: the words of a counter, and the numbers that are made of them, as on the CPU."""

from __future__ import annotations

import numpy as np

from .runtime.warp import inlined

__all__ = ["double", "double_above", "single", "single_above", "two_doubles", "words_of"]

_u32, _u64, _f32, _f64 = np.uint32, np.uint64, np.float32, np.float64
_32 = _u64(32)


@inlined
def _words(key, start, i, trial):
    """The four words of attempt ``trial`` of counter ``i``: ten rounds of Philox 4x32."""
    seed, at = _u64(np.int64(key)), _u64(np.int64(start)) + _u64(i)
    c0, c1, c2, c3 = _u32(at & _u64(0xFFFFFFFF)), _u32(at >> _32), _u32(trial), _u32(0)
    k0, k1 = _u32(seed & _u64(0xFFFFFFFF)), _u32(seed >> _32)
    for _ in range(10):
        left = _u64(0xD2511F53) * _u64(c0)
        right = _u64(0xCD9E8D57) * _u64(c2)
        c0 = _u32(_u32(right >> _32) ^ c1 ^ k0)
        c1 = _u32(right & _u64(0xFFFFFFFF))
        c2 = _u32(_u32(left >> _32) ^ c3 ^ k1)
        c3 = _u32(left & _u64(0xFFFFFFFF))
        k0 = _u32((_u64(k0) + _u64(0x9E3779B9)) & _u64(0xFFFFFFFF))
        k1 = _u32((_u64(k1) + _u64(0xBB67AE85)) & _u64(0xFFFFFFFF))
    return c0, c1, c2, c3


@inlined
def words_of(key, start, i):
    """The four words of counter ``i`` of the call."""
    return _words(key, start, i, 0)


@inlined
def single(word):
    """float32 in [0, 1) from the upper 24 bits."""
    return _f32(np.int32(word >> _u32(8))) * _f32(2.0**-24)


@inlined
def single_above(word):
    """float32 in (0, 1]; small values keep their resolution, which the tails are made of."""
    return _f32(np.int32(word >> _u32(1))) * _f32(2.0**-31) + _f32(2.0**-32)


@inlined
def double(high, low):
    """float64 in [0, 1) from 53 bits of two words."""
    return _f64(np.int32(high >> _u32(5))) * 2.0**-27 + _f64(np.int32(low >> _u32(6))) * 2.0**-53


@inlined
def two_doubles(key, start, i, trial):
    """Two float64 in [0, 1) for attempt ``trial``, counted from 1, of counter ``i`` of the call."""
    a, b, c, d = _words(key, start, i, trial)
    return double(a, b), double(c, d)


@inlined
def double_above(high, low):
    """float64 in (0, 1]."""
    return 1.0 - double(high, low)
