"""Logarithm, sine and cosine where Box and Muller need them.

Series in a small variable, so that LLVM vectorises them; math.log and math.cos would be calls.
"""

from __future__ import annotations

import numpy as np

from ..inner import pasted
from ..intrinsics import bits_float32, bits_float64, float32_bits, float64_bits

__all__ = ["log_double", "log_single", "turn_double", "turn_single"]

_u32, _f32, _f64 = np.uint32, np.float32, np.float64


@pasted
def log_single(x):
    """Logarithm of a normal float32: its exponent, and the series of 2 artanh(s) of the rest."""
    bits = float32_bits(x)
    exponent = (bits - np.int32(0x3F3504F3)) >> np.int32(23)  # the rest lies around 1
    m = bits_float32(np.int32(bits - (exponent << np.int32(23))))
    s = (m - _f32(1)) / (m + _f32(1))
    z = s * s
    series = _f32(1) + z * (_f32(1 / 3) + z * (_f32(1 / 5) + z * (_f32(1 / 7) + z * _f32(1 / 9))))
    return _f32(np.int32(exponent)) * _f32(0.6931471805599453) + _f32(2) * s * series


@pasted
def log_double(x):
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
def _in_quarter(quarter, sine, cosine):
    """Cosine and sine of an angle, from those of what it has beyond so many quarters of a turn."""
    odd = quarter & _u32(1) != _u32(0)
    c = sine if odd else cosine
    s = cosine if odd else sine
    c = -c if quarter == _u32(1) or quarter == _u32(2) else c
    s = -s if quarter >= _u32(2) else s
    return c, s


@pasted
def turn_single(word):
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
    return _in_quarter(quarter, sine, cosine)


@pasted
def turn_double(high, low):
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
    return _in_quarter(quarter, sine, cosine)
