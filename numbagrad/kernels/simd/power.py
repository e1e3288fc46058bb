"""pow: x ** y = 2 ** (y log2(x)), with the special cases of C99 (annex F.9.4.4).

The logarithm needs as many more bits than the result as y log2(x) has before its point: in float32
it is float64, in float64 a sum of two. log2(m) = s p(s^2) with s = (m - 1) / (m + 1).
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64

from ..intrinsics import bits_float64, float32_bits, float64_bits
from .decorators import formula, piece
from .exponential import ROUND64, near_zero_float64, scaled_float64
from .instructions import pick, polynomial, two_product

_INF, _NAN = float("inf"), float("nan")
_HALF = np.float32(0.5)
_LN2 = 0.6931471805599453
_WHOLE32, _WHOLE64 = np.float32(2.0**23), 2.0**52
"""From here on all numbers are whole; smaller ones are rounded by adding it."""
_ROOT_BITS = 0x3FE6A09E667F3BCD  # sqrt(1 / 2)


@piece
def _signed_float32(x, y, out):
    """``out`` = abs(x) ** y as x ** y, for any sign of x."""
    size = abs(y)
    half = pick(size >= _WHOLE32 + _WHOLE32, 0.0, _HALF * size)
    size = pick(size >= _WHOLE32, 0.0, size)
    broken = (size + _WHOLE32) - _WHOLE32 != size  # and where y is NaN
    odd = (half + _WHOLE32) - _WHOLE32 != half
    signed = pick((float32_bits(x) < 0) & odd, -out, out)
    return pick(broken, pick((x < 0.0) & (x > -_INF), _NAN, out), signed)


@piece
def _signed_float64(x, y, out):
    """``out`` = abs(x) ** y as x ** y, for any sign of x."""
    size = abs(y)
    half = pick(size >= _WHOLE64 + _WHOLE64, 0.0, 0.5 * size)
    size = pick(size >= _WHOLE64, 0.0, size)
    broken = (size + _WHOLE64) - _WHOLE64 != size  # and where y is NaN
    odd = (half + _WHOLE64) - _WHOLE64 != half
    signed = pick((float64_bits(x) < 0) & odd, -out, out)
    return pick(broken, pick((x < 0.0) & (x > -_INF), _NAN, out), signed)


_LOG2_32 = polynomial(
    2.8853900817900864,
    0.9617966733417975,
    0.5770835849651513,
    0.4116727189977767,
    0.34073010658534336,
)


_EXP2_32 = polynomial(
    1.0,
    0.6931472061901338,
    0.24022651345779097,
    0.05550327842762002,
    0.009618003878650841,
    0.001340026196572658,
    0.00015476308465997386,
)


@formula
def pow_float32(x, y):
    """x ** y."""
    a = float64(abs(x))
    bits = float64_bits(a)
    k = (bits - _ROOT_BITS) >> 52
    m = bits_float64(bits - (k << 52))
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = _LOG2_32(z)
    log = float64(k) + s * p
    log = pick(a < _INF, log, a)  # and NaN
    log = pick(a == 0.0, -_INF, log)
    t = float64(y) * log
    t = pick((a == 1.0) | (y == 0.0), 0.0, t)
    t = pick(t > 160.0, 160.0, t)
    t = pick(t < -160.0, -160.0, t)
    shifted = t + ROUND64
    r = t - (shifted - ROUND64)
    e = _EXP2_32(r)
    out = float32(bits_float64(float64_bits(e) + (float64_bits(shifted) << 52)))
    return _signed_float32(x, y, out)


_LOG2_64 = polynomial(
    0.5770780163556176,
    0.4121985830920718,
    0.32059890225287196,
    0.26230770275335114,
    0.22198392925603336,
    0.1912566354387327,
    0.19037266198561784,
)


@piece
def _log2_float64(a):
    """log2 of a positive, finite number in two parts."""
    tiny = a < 2.2250738585072014e-308
    bits = float64_bits(pick(tiny, a * 4503599627370496.0, a))
    k = (bits - _ROOT_BITS) >> 52
    m = bits_float64(bits - (k << 52))
    e = float64(k) - pick(tiny, 52.0, 0.0)
    f = m - 1.0
    d = m + 1.0
    inverse = 1.0 / d
    s = f * inverse
    sd, sd_rest = two_product(s, d)
    s_rest = ((f - sd) - sd_rest - s * (m - (d - 1.0))) * inverse
    z, z_rest = two_product(s, s)
    z_rest = z_rest + 2.0 * (s * s_rest)
    p = _LOG2_64(z)
    # The first two terms, 2 / (3 ln(2)) and 2 / ln(2), in two parts.
    p = z * p
    q = 0.9617966939259756 + p
    q_rest = ((0.9617966939259756 - q) + p) + 5.0577616648125907e-17
    v, v_rest = two_product(z, q)
    v_rest = v_rest + (z * q_rest + z_rest * q)
    u = 2.8853900817779268 + v
    u_rest = ((2.8853900817779268 - u) + v) + (v_rest + 4.0710547481862066e-17)
    w, w_rest = two_product(s, u)
    w_rest = w_rest + (s * u_rest + s_rest * u)
    log = e + w
    return log, ((e - log) + w) + w_rest


@formula
def pow_float64(x, y):
    """x ** y."""
    a = abs(x)
    log, log_rest = _log2_float64(a)
    log = pick(a < _INF, log, a)  # and NaN
    log = pick(a == 0.0, -_INF, log)
    t, t_rest = two_product(y, log)
    t_rest = t_rest + y * log_rest
    t_rest = pick(abs(t) < 1100.0, t_rest, 0.0)
    unit = (a == 1.0) | (y == 0.0)
    t = pick(unit, 0.0, t)
    t_rest = pick(unit, 0.0, t_rest)
    t = pick(t > 1100.0, 1100.0, t)
    t = pick(t < -1100.0, -1100.0, t)
    shifted = t + ROUND64
    r = (t - (shifted - ROUND64)) + t_rest
    e = near_zero_float64(r * _LN2) + 1.0
    return _signed_float64(x, y, scaled_float64(e, float64_bits(shifted)))
