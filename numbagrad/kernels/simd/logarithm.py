"""Logarithms: what begins with x = 2^k (1 + f)."""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int32

from ..intrinsics import bits_float32, bits_float64, float32_bits, float64_bits
from . import tabled
from .decorators import formula, piece
from .exponential import LN2_HIGH32, LN2_HIGH64, LN2_LOW32, LN2_LOW64
from .instructions import pick, polynomial
from .lanes import AVX512

_INF, _NAN = float("inf"), float("nan")
_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)
_SCALE, _PLACES = np.float32(2.0**23), np.float32(23.0)  # of numbers below the least normal one

# log(x) = e ln(2) + log(1 + f) with 1 + f in [sqrt(1/2), sqrt(2)). log(1 + f) = f - (h - rest)
# with h = f^2 / 2. In float32 the rest is f^3 p(f); in float64, where p would be long, it is
# s (h + s^2 r(s^2)) with s = f / (2 + f).

# 1 / ln(2), 1 / ln(10) and log10(2), each as a number and the rest of it; the last in 14 (38) bits
# and the rest, so that times e it is exact.
_LOG2E_HIGH32, _LOG2E_LOW32 = np.float32(1.4426950216293335), np.float32(1.925963033500011e-08)
_LOG2E_HIGH64, _LOG2E_LOW64 = 1.4426950408889634, 2.0355273740931033e-17
_LOG10E_HIGH32, _LOG10E_LOW32 = np.float32(0.4342944920063019), np.float32(-1.0103049952192578e-08)
_LOG10E_HIGH64, _LOG10E_LOW64 = 0.4342944819032518, 1.098319650216765e-17
_TWO_HIGH32, _TWO_LOW32 = (
    np.float32(0.301025390625),
    np.float32(4.605039066518657e-06),
)
_TWO_HIGH64, _TWO_LOW64 = 0.30102999566224753, 1.7336659603752853e-12


_TAIL_32 = polynomial(
    0.3333333171985349,
    -0.2500082091847429,
    0.20001225913951035,
    -0.16623360026642614,
    0.1420178167215593,
    -0.1316018414626198,
    0.12761410781546684,
    -0.07634277428731724,
)


@piece
def _tail_float32(f):
    """log(1 + f) as f - (h - rest)."""
    z = f * f
    p = _TAIL_32(f)
    return _HALF * z, (p * f) * z


_TAIL_64 = polynomial(
    0.666666666666667,
    0.3999999999989789,
    0.28571428626651413,
    0.22222211031785452,
    0.18182896202767404,
    0.1533149798030012,
    0.14619093866306984,
)


@piece
def _tail_float64(f):
    """log(1 + f) as f - (h - rest)."""
    s = f / (2.0 + f)
    z = s * s
    r = _TAIL_64(z)
    h = 0.5 * f * f
    return h, s * (h + z * r)


@piece
def _parts_float32(x):
    """e and f, h and the rest."""
    tiny = x < 2.0**-126
    bits = float32_bits(pick(tiny, x * _SCALE, x))
    k = int32(int32(bits - int32(0x3F3504F3)) >> int32(23))
    f = bits_float32(int32(bits - int32(k << int32(23)))) - _ONE
    e = float32(k) - pick(tiny, _PLACES, _ZERO)
    h, rest = _tail_float32(f)
    return e, f, h, rest


@piece
def parts_float64(x):
    """e and f, h and the rest."""
    tiny = x < 2.2250738585072014e-308
    bits = float64_bits(pick(tiny, x * 4503599627370496.0, x))
    k = (bits - 0x3FE6A09E667F3BCD) >> 52
    f = bits_float64(bits - (k << 52)) - 1.0
    e = float64(k) - pick(tiny, 52.0, 0.0)
    h, rest = _tail_float64(f)
    return e, f, h, rest


@piece
def _edges_float32(x, out):
    """The logarithm of x: ``out`` where x is positive and finite."""
    out = pick(x == 0.0, -_INF, out)
    out = pick(x == _INF, _INF, out)
    return pick((x < 0.0) | (x != x), _NAN, out)


@piece
def _edges_float64(x, out):
    """The logarithm of x: ``out`` where x is positive and finite."""
    out = pick(x == 0.0, -_INF, out)
    out = pick(x == _INF, _INF, out)
    return pick((x < 0.0) | (x != x), _NAN, out)


@formula
def log_float32(x):
    """Natural logarithm."""
    e, f, h, rest = _parts_float32(x)
    low = rest + e * LN2_LOW32
    return _edges_float32(x, e * LN2_HIGH32 + (f - (h - low)))


@formula
def log_float64(x):
    """Natural logarithm."""
    e, f, h, rest = parts_float64(x)
    low = rest + e * LN2_LOW64
    return _edges_float64(x, e * LN2_HIGH64 + (f - (h - low)))


@formula
def log2_float32(x):
    """Logarithm to base 2; exact for powers of 2."""
    e, f, h, rest = _parts_float32(x)
    low = (rest - h) * _LOG2E_HIGH32 + f * _LOG2E_LOW32
    return _edges_float32(x, e + (f * _LOG2E_HIGH32 + low))


@formula
def log2_float64(x):
    """Logarithm to base 2; exact for powers of 2."""
    e, f, h, rest = parts_float64(x)
    low = (rest - h) * _LOG2E_HIGH64 + f * _LOG2E_LOW64
    return _edges_float64(x, e + (f * _LOG2E_HIGH64 + low))


@formula
def log10_float32(x):
    """Logarithm to base 10."""
    e, f, h, rest = _parts_float32(x)
    low = (rest - h) * _LOG10E_HIGH32 + f * _LOG10E_LOW32
    low = low + e * _TWO_LOW32
    return _edges_float32(x, e * _TWO_HIGH32 + (f * _LOG10E_HIGH32 + low))


@formula
def log10_float64(x):
    """Logarithm to base 10."""
    e, f, h, rest = parts_float64(x)
    low = (rest - h) * _LOG10E_HIGH64 + f * _LOG10E_LOW64
    low = low + e * _TWO_LOW64
    return _edges_float64(x, e * _TWO_HIGH64 + (f * _LOG10E_HIGH64 + low))


# log1p(x): of u = 1 + x, with what the addition left out added to f. Where u needs no scaling f
# becomes x itself, elsewhere the logarithm is large beside the rounding of f. Below 2^-25 (2^-54)
# it is x.


@formula
def log1p_float32(x):
    """log(1 + x), accurate near 0."""
    u = _ONE + x
    left = pick(x < 1.0, x - (u - _ONE), _ONE - (u - x))
    bits = float32_bits(u)
    k = int32(int32(bits - int32(0x3F3504F3)) >> int32(23))
    f = bits_float32(int32(bits - int32(k << int32(23)))) - _ONE
    small = int32(127) - pick(k > 127, 127, k)
    f = f + left * bits_float32(int32(int32(small) << int32(23)))
    e = float32(k)
    h, rest = _tail_float32(f)
    low = rest + e * LN2_LOW32
    out = _edges_float32(u, e * LN2_HIGH32 + (f - (h - low)))
    return pick(abs(x) < 2.0**-25, x, out)


@piece
def log1p_of_sum(x, low):
    """log(1 + x + low) for a ``low`` that is little beside x."""
    u = 1.0 + x
    left = pick(x < 1.0, x - (u - 1.0), 1.0 - (u - x)) + low
    bits = float64_bits(u)
    k = (bits - 0x3FE6A09E667F3BCD) >> 52
    f = bits_float64(bits - (k << 52)) - 1.0
    small = 1023 - pick(k > 1023, 1023, k)
    f = f + left * bits_float64(small << 52)
    e = float64(k)
    h, rest = _tail_float64(f)
    low = rest + e * LN2_LOW64
    out = _edges_float64(u, e * LN2_HIGH64 + (f - (h - low)))
    return pick(abs(x) < 2.0**-54, x, out)


@formula
def log1p_float64(x):
    """log(1 + x), accurate near 0."""
    return log1p_of_sum(x, 0.0)


if AVX512:
    log_float32, log_float64 = tabled.log_float32, tabled.log_float64
    log2_float32, log2_float64 = tabled.log2_float32, tabled.log2_float64
    log10_float32, log10_float64 = tabled.log10_float32, tabled.log10_float64
