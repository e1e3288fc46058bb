"""pow: x ** y = 2 ** (y log2(x)), with the special cases of C99 (annex F.9.4.4).

The logarithm needs as many more bits than the result as y log2(x) has before its point: in float32
it is float64, in float64 a sum of two. log2(m) = s p(s^2) with s = (m - 1) / (m + 1).
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int32, int64

from ..intrinsics import bits_float64, float32_bits, float64_bits
from .decorators import formula, piece
from .exponential import ROUND64, near_zero_float64, scaled_float64
from .instructions import two_product

_LN2 = 0.6931471805599453
_WHOLE32, _WHOLE64 = 2.0**23, 2.0**52
"""From here on all numbers are whole; smaller ones are rounded by adding it."""
_ROOT_BITS = 0x3FE6A09E667F3BCD  # sqrt(1 / 2)


@piece
def _signed_float32(x, y, out):
    """``out`` = abs(x) ** y as x ** y, for any sign of x."""
    size = abs(y)
    half = float32(0.5) * size
    even = size >= float32(2.0 * _WHOLE32)
    whole = size >= float32(_WHOLE32) or (size + float32(_WHOLE32)) - float32(_WHOLE32) == size
    even = even or (half + float32(_WHOLE32)) - float32(_WHOLE32) == half
    out = float32(np.nan) if x < float32(0.0) and x > float32(-np.inf) and not whole else out
    return -out if float32_bits(x) < int32(0) and whole and not even else out


@piece
def _signed_float64(x, y, out):
    """``out`` = abs(x) ** y as x ** y, for any sign of x."""
    size = abs(y)
    half = float64(0.5) * size
    even = size >= float64(2.0 * _WHOLE64)
    whole = size >= float64(_WHOLE64) or (size + float64(_WHOLE64)) - float64(_WHOLE64) == size
    even = even or (half + float64(_WHOLE64)) - float64(_WHOLE64) == half
    out = float64(np.nan) if x < float64(0.0) and x > float64(-np.inf) and not whole else out
    return -out if float64_bits(x) < int64(0) and whole and not even else out


@formula
def pow_float32(x, y):
    """x ** y."""
    a = float64(abs(x))
    bits = float64_bits(a)
    k = (bits - int64(_ROOT_BITS)) >> int64(52)
    m = bits_float64(bits - (k << int64(52)))
    s = (m - float64(1.0)) / (m + float64(1.0))
    z = s * s
    p = float64(0.34073010658534336)
    p = p * z + float64(0.4116727189977767)
    p = p * z + float64(0.5770835849651513)
    p = p * z + float64(0.9617966733417975)
    p = p * z + float64(2.8853900817900864)
    log = float64(k) + s * p
    log = log if a < float64(np.inf) else a  # and NaN
    log = float64(-np.inf) if a == float64(0.0) else log
    t = float64(y) * log
    t = float64(0.0) if a == float64(1.0) or y == float32(0.0) else t
    t = float64(160.0) if t > float64(160.0) else t
    t = float64(-160.0) if t < float64(-160.0) else t
    shifted = t + float64(ROUND64)
    r = t - (shifted - float64(ROUND64))
    e = float64(0.00015476308465997386)
    e = e * r + float64(0.001340026196572658)
    e = e * r + float64(0.009618003878650841)
    e = e * r + float64(0.05550327842762002)
    e = e * r + float64(0.24022651345779097)
    e = e * r + float64(0.6931472061901338)
    e = e * r + float64(1.0)
    out = float32(bits_float64(float64_bits(e) + (float64_bits(shifted) << int64(52))))
    return _signed_float32(x, y, out)


@piece
def _log2_float64(a):
    """log2 of a positive, finite number in two parts."""
    tiny = a < float64(2.2250738585072014e-308)
    bits = float64_bits(a * float64(4503599627370496.0) if tiny else a)
    k = (bits - int64(_ROOT_BITS)) >> int64(52)
    m = bits_float64(bits - (k << int64(52)))
    e = float64(k) - (float64(52.0) if tiny else float64(0.0))
    f = m - float64(1.0)
    d = m + float64(1.0)
    inverse = float64(1.0) / d
    s = f * inverse
    sd, sd_rest = two_product(s, d)
    s_rest = ((f - sd) - sd_rest - s * (m - (d - float64(1.0)))) * inverse
    z, z_rest = two_product(s, s)
    z_rest = z_rest + float64(2.0) * (s * s_rest)
    p = float64(0.19037266198561784)
    p = p * z + float64(0.1912566354387327)
    p = p * z + float64(0.22198392925603336)
    p = p * z + float64(0.26230770275335114)
    p = p * z + float64(0.32059890225287196)
    p = p * z + float64(0.4121985830920718)
    p = p * z + float64(0.5770780163556176)
    # The first two terms, 2 / (3 ln(2)) and 2 / ln(2), in two parts.
    p = z * p
    q = float64(0.9617966939259756) + p
    q_rest = ((float64(0.9617966939259756) - q) + p) + float64(5.0577616648125907e-17)
    v, v_rest = two_product(z, q)
    v_rest = v_rest + (z * q_rest + z_rest * q)
    u = float64(2.8853900817779268) + v
    u_rest = ((float64(2.8853900817779268) - u) + v) + (v_rest + float64(4.0710547481862066e-17))
    w, w_rest = two_product(s, u)
    w_rest = w_rest + (s * u_rest + s_rest * u)
    log = e + w
    return log, ((e - log) + w) + w_rest


@formula
def pow_float64(x, y):
    """x ** y."""
    a = abs(x)
    log, log_rest = _log2_float64(a)
    log = log if a < float64(np.inf) else a  # and NaN
    log = float64(-np.inf) if a == float64(0.0) else log
    t, t_rest = two_product(y, log)
    t_rest = t_rest + y * log_rest
    t_rest = t_rest if abs(t) < float64(1100.0) else float64(0.0)
    unit = a == float64(1.0) or y == float64(0.0)
    t = float64(0.0) if unit else t
    t_rest = float64(0.0) if unit else t_rest
    t = float64(1100.0) if t > float64(1100.0) else t
    t = float64(-1100.0) if t < float64(-1100.0) else t
    shifted = t + float64(ROUND64)
    r = (t - (shifted - float64(ROUND64))) + t_rest
    e = near_zero_float64(r * float64(_LN2)) + float64(1.0)
    return _signed_float64(x, y, scaled_float64(e, float64_bits(shifted)))
