"""Numbers as integers of the same order, NaN above all, so that maxima and sorts need no floats.

LLVM vectorises an integer maximum without permission to ignore NaN, and integer keys compare in
one instruction. A float's bits are a sign and a magnitude that rises with its absolute value: the
key is that magnitude, negated for a negative number. It is made of integer operations only, so
that no fastmath flag of a caller can change it, and without constants that LLVM would hoist out of
a maximum, which would keep it from vectorising.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from .half_type import computed
from .inner import inner
from .intrinsics import bits_float32, bits_float64, float32_bits, float64_bits, larger

__all__ = [
    "bottom",
    "down",
    "falling",
    "from_falling",
    "from_rising",
    "lowered",
    "lowered_by_four",
    "lowest",
    "opposite",
    "raised",
    "raised_by_four",
    "rising",
    "to_least",
    "to_most",
    "up",
]

_INTEGER = {4: (np.int32, 0x7F800000), 8: (np.int64, 0x7FF0000000000000)}
"""By size of a float in bytes: the integer of its size, and the bits of infinity."""

_TO_BITS = {types.float32: float32_bits, types.float64: float64_bits}
_FROM_BITS = {types.float32: bits_float32, types.float64: bits_float64}


def rising(value):
    """The key of ``value``: larger for larger values, largest for NaN, one key for both zeros."""
    if isinstance(value, np.floating):
        key, infinity = _INTEGER[value.itemsize]
        bits = value.view(key)
        size = min(bits & np.iinfo(key).max, key(infinity + 1))
        return -size if bits < 0 and size <= infinity else size
    return np.uint8(value) if isinstance(value, np.bool_) else value


def from_rising(key, like):
    """The value whose key is ``key``; like: an array of the value's dtype."""
    if np.issubdtype(like.dtype, np.floating):
        integer, infinity = _INTEGER[like.dtype.itemsize]
        if key > infinity:
            return like.dtype.type(np.nan)
        return (key if key >= 0 else integer(-key | np.iinfo(integer).min)).view(like.dtype)
    return like.dtype.type(key)


def opposite(key):
    """The integer of the same width that turns the order of keys around."""
    return ~key


def falling(value):
    """A key that is larger for smaller values, and largest for NaN."""
    return rising(-value) if isinstance(value, np.floating) else opposite(rising(value))


def from_falling(key, like):
    """The value whose falling key is ``key``; like: an array of the value's dtype."""
    if np.issubdtype(like.dtype, np.floating):
        return -from_rising(key, like)
    return from_rising(opposite(key), like)


def lowest(like):
    """A key below that of each value of the array ``like``, or equal to the lowest."""
    return np.iinfo(np.asarray(rising(like.dtype.type(0))).dtype).min


# -- the most and the least of many: floats are compared as they are, others by their keys ---------


def bottom(like):
    """What ``raised`` and ``lowered`` begin with for values of the array ``like``."""
    if np.issubdtype(like.dtype, np.floating):
        return like.dtype.type(-np.inf)
    return lowest(like)


def raised(top, value):
    """``top``, or what stands for ``value`` if that is larger; NaN is the largest."""
    if isinstance(value, np.floating):
        return larger(value, top)
    return max(top, rising(value))


def lowered(top, value):
    """``top``, or what stands for ``value`` if that is smaller; NaN is the smallest."""
    return raised(top, -value if isinstance(value, np.floating) else falling(value))


def raised_by_four(top, a, b, c, d):
    """``raised`` by each of four: of floats two are looked at for NaN in one comparison."""
    return raised(raised(raised(raised(top, a), b), c), d)


def lowered_by_four(top, a, b, c, d):
    """``lowered`` by each of four."""
    return lowered(lowered(lowered(lowered(top, a), b), c), d)


def to_most(top, like):
    """The value that ``raised`` came to, of zeros any. like: an array of its dtype."""
    return top if np.issubdtype(like.dtype, np.floating) else from_rising(top, like)


def to_least(top, like):
    """The value that ``lowered`` came to."""
    return -top if np.issubdtype(like.dtype, np.floating) else from_falling(top, like)


@overload(rising)
def _rising(value):
    if isinstance(value, types.Float):
        key, infinity = _INTEGER[value.bitwidth // 8]
        bits_of, top = _TO_BITS[value], np.iinfo(key).max

        def of_float(value):
            bits = bits_of(value)
            size = min(key(bits & top), key(infinity + 1))
            return key(-size if bits < 0 and size <= infinity else size)

        return of_float
    if isinstance(value, types.Boolean):
        return lambda value: np.uint8(value)
    return lambda value: value


@overload(from_rising)
def _from_rising(key, like):
    if isinstance(like.dtype, types.Float):
        integer, infinity = _INTEGER[like.dtype.bitwidth // 8]
        value_of, bottom = _FROM_BITS[like.dtype], np.iinfo(integer).min
        nan = getattr(np, like.dtype.name)(np.nan)

        def to_float(key, like):
            value = value_of(integer(key if key >= 0 else -key | bottom))
            return nan if key > infinity else value

        return to_float
    if isinstance(like.dtype, types.Boolean):
        return lambda key, like: key != 0
    return lambda key, like: key


@overload(opposite)
def _opposite(key):
    integer = getattr(np, key.name)
    return lambda key: integer(~key)


@overload(falling)
def _falling(value):
    if isinstance(value, types.Float):
        return lambda value: rising(-value)
    return lambda value: opposite(rising(value))


@overload(from_falling)
def _from_falling(key, like):
    if isinstance(like.dtype, types.Float):
        return lambda key, like: -from_rising(key, like)
    return lambda key, like: from_rising(opposite(key), like)


@overload(lowest)
def _lowest(like):
    if isinstance(like.dtype, types.Float):
        key = _INTEGER[like.dtype.bitwidth // 8][0]
        least = key(np.iinfo(key).min)
    elif isinstance(like.dtype, types.Boolean):
        least = np.uint8(0)
    else:
        width = getattr(np, like.dtype.name)
        least = width(np.iinfo(width).min)
    return lambda like: least


@overload(bottom)
def _bottom(like):
    real = computed(like.dtype)
    if isinstance(real, types.Float):
        least = getattr(np, real.name)(-np.inf)
        return lambda like: least
    return lambda like: lowest(like)


@overload(raised)
def _raised(top, value):
    if isinstance(value, types.Float):
        # In the other order LLVM masks the store where ``top`` is in memory: 5 times slower.
        return lambda top, value: larger(value, top)

    def by_key(top, value):
        key = rising(value)
        return key if key > top else top

    return by_key


@overload(lowered)
def _lowered(top, value):
    if isinstance(value, types.Float):
        return lambda top, value: raised(top, -value)
    return lambda top, value: raised(top, falling(value))  # a whole number is its own key


@overload(raised_by_four)
def _raised_by_four(top, a, b, c, d):
    if not isinstance(a, types.Float):
        return lambda top, a, b, c, d: raised(raised(raised(raised(top, a), b), c), d)
    nan = getattr(np, a.name)(np.nan)

    def of_floats(top, a, b, c, d):
        odd = (a != a) | (b != b) | (c != c) | (d != d)
        first = a if a > b else b
        second = c if c > d else d
        most = first if first > second else second
        found = most if most > top else top  # a NaN on top stays
        return nan if odd else found

    return of_floats


@overload(lowered_by_four)
def _lowered_by_four(top, a, b, c, d):
    if not isinstance(a, types.Float):
        return lambda top, a, b, c, d: lowered(lowered(lowered(lowered(top, a), b), c), d)
    return lambda top, a, b, c, d: raised_by_four(top, -a, -b, -c, -d)


@overload(to_most)
def _to_most(top, like):
    if isinstance(computed(like.dtype), types.Float):
        return lambda top, like: top
    return lambda top, like: from_rising(top, like)


@overload(to_least)
def _to_least(top, like):
    if isinstance(computed(like.dtype), types.Float):
        return lambda top, like: -top
    return lambda top, like: from_falling(top, like)


@inner(forceinline=True)
def up(value):
    """``rising``, to be given to a compiled function."""
    return rising(value)


@inner(forceinline=True)
def down(value):
    """``falling``, to be given to a compiled function."""
    return falling(value)
