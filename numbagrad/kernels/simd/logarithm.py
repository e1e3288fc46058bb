"""Logarithms: what begins with x = 2^k (1 + f)."""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int32, int64

from ..intrinsics import bits_float32, bits_float64, float32_bits, float64_bits
from .decorators import formula
from .exponential import LN2_HIGH32, LN2_HIGH64, LN2_LOW32, LN2_LOW64

# log(x) = k ln(2) + log(1 + f) with 1 + f in [sqrt(1/2), sqrt(2)). In float32 log(1 + f) =
# f - f^2 / 2 + f^3 p(f); in float64, where p would be long, with s = f / (2 + f) it is
# f - f^2 / 2 + s (f^2 / 2 + s^2 r(s^2)).


@formula
def log_float32(x):
    """Natural logarithm."""
    tiny = x < float32(1.17549435e-38)
    bits = float32_bits(x * float32(8388608.0) if tiny else x)
    k = int32(int32(bits - int32(0x3F3504F3)) >> int32(23))
    f = bits_float32(int32(bits - int32(k << int32(23)))) - float32(1.0)
    e = float32(k) - (float32(23.0) if tiny else float32(0.0))
    z = f * f
    p = float32(-0.07634277428731724)
    p = p * f + float32(0.12761410781546684)
    p = p * f + float32(-0.1316018414626198)
    p = p * f + float32(0.1420178167215593)
    p = p * f + float32(-0.16623360026642614)
    p = p * f + float32(0.20001225913951035)
    p = p * f + float32(-0.2500082091847429)
    p = p * f + float32(0.3333333171985349)
    low = e * float32(LN2_LOW32) + (p * f) * z
    out = e * float32(LN2_HIGH32) + (f + (low - float32(0.5) * z))
    out = float32(-np.inf) if x == float32(0.0) else out
    out = float32(np.inf) if x == float32(np.inf) else out
    return float32(np.nan) if x < float32(0.0) or x != x else out


@formula
def log_float64(x):
    """Natural logarithm."""
    tiny = x < float64(2.2250738585072014e-308)
    y = x * float64(4503599627370496.0) if tiny else x
    bits = float64_bits(y)
    k = (bits - int64(0x3FE6A09E667F3BCD)) >> int64(52)
    m = bits_float64(bits - (k << int64(52)))
    e = float64(k) - (float64(52.0) if tiny else float64(0.0))
    f = m - float64(1.0)
    s = f / (float64(2.0) + f)
    z = s * s
    r = float64(0.14619093866306984)
    r = r * z + float64(0.1533149798030012)
    r = r * z + float64(0.18182896202767404)
    r = r * z + float64(0.22222211031785452)
    r = r * z + float64(0.28571428626651413)
    r = r * z + float64(0.3999999999989789)
    r = r * z + float64(0.666666666666667)
    h = float64(0.5) * f * f
    low = s * (h + z * r) + e * float64(LN2_LOW64)
    out = e * float64(LN2_HIGH64) + (f - (h - low))
    out = float64(-np.inf) if x == float64(0.0) else out
    out = float64(np.inf) if x == float64(np.inf) else out
    return float64(np.nan) if x < float64(0.0) or x != x else out
