"""exp, exp2, expm1, sigmoid and tanh: what begins with x = n ln(2) + r."""

from __future__ import annotations

import math

import numpy as np
from numba import float32, float64, int32

from ..intrinsics import bits_float32, bits_float64, float32_bits, float64_bits
from . import curves, tabled
from .decorators import formula, piece
from .instructions import pick, polynomial
from .lanes import AVX512, scaled
from .tabled import LN2_32, LN2_64, LOG2E32, LOG2E64

# exp(r) = 1 + r + r^2 q(r) for |r| <= ln(2) / 2, after x = n ln(2) + r.
_HALF, _ONE, _TWO = np.float32(0.5), np.float32(1.0), np.float32(2.0)
LN2_HIGH32, LN2_LOW32 = np.float32(0.693359375), np.float32(-2.12194440e-4)
LN2_HIGH64, LN2_LOW64 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUND32, ROUND64 = np.float32(12582912.0), 6755399441055744.0  # 1.5 * 2^23 and 1.5 * 2^52
_ROUND32_BITS, _ROUND64_BITS = 0x4B400000, 0x4338000000000000


_CURVE_32 = polynomial(
    0.5000000026954542,
    0.16666576970142793,
    0.04166637514965372,
    0.008363181243424602,
    0.0013941122407833263,
)


@piece
def near_zero_float32(r):
    """exp(r) - 1 for |r| <= ln(2) / 2."""
    return (_CURVE_32(r) * r + _ONE) * r


@piece
def _reduced_float32(y):
    """Two numbers whose difference is r, and one whose lowest bits are n."""
    shifted = y * LOG2E32 + ROUND32
    n = shifted - ROUND32
    return y - n * LN2_HIGH32, n * LN2_LOW32, float32_bits(shifted)


@piece
def exp_parts_float32(y):
    """exp(r) - 1, and a number whose lowest bits are n."""
    high, low, n = _reduced_float32(y)
    return near_zero_float32(high - low), n


CURVE_64 = polynomial(
    0.5000000000000001,
    0.16666666666666674,
    0.04166666666662413,
    0.008333333333322198,
    0.001388888891721482,
    0.00019841269886625805,
    2.480152129434e-05,
    2.7557242292789278e-06,
    2.76200891637639e-07,
    2.511006749795799e-08,
)


@piece
def near_zero_float64(r):
    """exp(r) - 1 for |r| <= ln(2) / 2."""
    return (CURVE_64(r) * r + 1.0) * r


@piece
def reduced_float64(y):
    """Two numbers whose difference is r, and one whose lowest bits are n."""
    shifted = y * LOG2E64 + ROUND64
    n = shifted - ROUND64
    return y - n * LN2_HIGH64, n * LN2_LOW64, float64_bits(shifted)


@piece
def exp_parts_float64(y):
    """exp(r) - 1, and a number whose lowest bits are n."""
    high, low, n = reduced_float64(y)
    return near_zero_float64(high - low), n


# 2^n by an instruction, or in two steps: n reaches -151, below the smallest normal exponent, and
# 129.


_scaled_32, _scaled_64 = scaled[float32], scaled[float64]


@piece
def _by_instruction_float32(x, n):
    """x * 2^n."""
    return _scaled_32(x, bits_float32(n) - ROUND32)


@piece
def _by_instruction_float64(x, n):
    """x * 2^n."""
    return _scaled_64(x, bits_float64(n) - ROUND64)


@piece
def _in_steps_float32(x, n):
    """x * 2^n."""
    both = int32(n + int32(254 - _ROUND32_BITS))
    half = int32(both >> int32(1))
    rest = int32(both - half)
    x = x * bits_float32(int32(half << int32(23)))
    return x * bits_float32(int32(rest << int32(23)))


@piece
def _in_steps_float64(x, n):
    """x * 2^n."""
    both = n + (2046 - _ROUND64_BITS)
    half = both >> 1
    rest = both - half
    x = x * bits_float64(half << 52)
    return x * bits_float64(rest << 52)


scaled_float32 = _by_instruction_float32 if AVX512 else _in_steps_float32
scaled_float64 = _by_instruction_float64 if AVX512 else _in_steps_float64


@formula
def exp_float32(x):
    """e ** x."""
    y = pick(x > 89.5, 89.5, x)
    gone = x < -104.0  # not by underflow, which costs 100 times as much: -inf is common
    t, n = exp_parts_float32(pick(gone, 0.0, y))
    return pick(gone, 0.0, scaled_float32(t + _ONE, n))


@formula
def exp_float64(x):
    """e ** x."""
    y = pick(x > 710.0, 710.0, x)
    gone = x < -746.0
    t, n = exp_parts_float64(pick(gone, 0.0, y))
    return pick(gone, 0.0, scaled_float64(t + 1.0, n))


@formula
def falling_exp_float32(x):
    """e ** x for x <= 0; 0 where that is no normal number. Two thirds of the work of exp."""
    gone = x < -87.0
    t, n = exp_parts_float32(pick(gone, -87.0, x))
    power = bits_float32(int32(int32(n + int32(127 - _ROUND32_BITS)) << int32(23)))
    return pick(gone, 0.0, (t + _ONE) * power)


@formula
def falling_exp_float64(x):
    """e ** x for x <= 0; 0 where that is no normal number."""
    gone = x < -708.0
    t, n = exp_parts_float64(pick(gone, -708.0, x))
    power = bits_float64((n + (1023 - _ROUND64_BITS)) << 52)
    return pick(gone, 0.0, (t + 1.0) * power)


# exp2(x) = 2^n exp(r ln(2)) after x = n + r, which is exact.


@formula
def exp2_float32(x):
    """2 ** x."""
    y = pick(x > 129.0, 129.0, x)
    gone = x <= -150.0
    y = pick(gone, 0.0, y)
    shifted = y + ROUND32
    t = near_zero_float32((y - (shifted - ROUND32)) * LN2_32)
    out = scaled_float32(t + _ONE, float32_bits(shifted))
    return pick(gone, 0.0, out)


@formula
def exp2_float64(x):
    """2 ** x."""
    y = pick(x > 1025.0, 1025.0, x)
    gone = x <= -1075.0
    y = pick(gone, 0.0, y)
    shifted = y + ROUND64
    t = near_zero_float64((y - (shifted - ROUND64)) * LN2_64)
    out = scaled_float64(t + 1.0, float64_bits(shifted))
    return pick(gone, 0.0, out)


# expm1(x) = (2^n - 1 + 2^n r) + 2^n r^2 q(r), the larger part first; by halves because 2^128 is
# no float32. Below 2^-25 (2^-54) it is x: zeros keep their sign.


@formula
def expm1_float32(x):
    """e ** x - 1, accurate near 0."""
    y = pick(x > 89.0, 89.0, x)
    y = pick(y < -20.0, -20.0, y)
    high, low, n = _reduced_float32(y)
    r = high - low
    half = bits_float32(int32(int32(n - int32(_ROUND32_BITS - 126)) << int32(23)))
    whole = (half - _HALF) + half * high
    out = (whole + half * (r * r * _CURVE_32(r) - low)) * _TWO
    return pick(abs(x) < 2.0**-25, x, out)


@formula
def expm1_float64(x):
    """e ** x - 1, accurate near 0."""
    y = pick(x > 710.0, 710.0, x)
    y = pick(y < -40.0, -40.0, y)
    high, low, n = reduced_float64(y)
    r = high - low
    half = bits_float64((n - (_ROUND64_BITS - 1022)) << 52)
    whole = (half - 0.5) + half * high
    out = (whole + half * (r * r * CURVE_64(r) - low)) * 2.0
    return pick(abs(x) < 2.0**-54, x, out)


@piece
def exp_within_float32(x):
    """e ** x for |x| < 80: n is added to the exponent."""
    t, n = exp_parts_float32(x)
    return bits_float32(int32(float32_bits(t + _ONE) + int32(n << int32(23))))


@piece
def exp_within_float64(x):
    """e ** x for |x| < 700: n is added to the exponent."""
    t, n = exp_parts_float64(x)
    return bits_float64(float64_bits(t + 1.0) + (n << 52))


# sigmoid(-|x|) = 2^-n / (2^-n + exp(r)) after |x| = n ln(2) + r: the numerator is exact, and the
# small terms are added first.


@formula
def sigmoid_float32(x):
    """1 / (1 + exp(-x))."""
    a = abs(x)
    gone = a > 104.0
    t, n = exp_parts_float32(pick(gone, 0.0, a))
    c = scaled_float32(_ONE, int32(int32(_ROUND32_BITS) - int32(n - int32(_ROUND32_BITS))))
    low = pick(gone, 0.0, c / ((t + c) + _ONE))
    return pick(x >= 0.0, _ONE - low, low)


@formula
def sigmoid_float64(x):
    """1 / (1 + exp(-x))."""
    a = abs(x)
    gone = a > 746.0
    t, n = exp_parts_float64(pick(gone, 0.0, a))
    c = scaled_float64(1.0, 2 * _ROUND64_BITS - n)
    low = pick(gone, 0.0, c / ((t + c) + 1.0))
    return pick(x >= 0.0, 1.0 - low, low)


# tanh(x) = x + x^3 p(x^2) near 0, elsewhere 1 - 2 / (exp(2 |x|) + 1) with the sign of x.


_TANH_32 = polynomial(
    -0.33333329249884236,
    0.13332794531050637,
    -0.05385406760937575,
    0.02101007334057271,
    -0.006113181982431569,
)


@formula
def tanh_float32(x):
    """Hyperbolic tangent."""
    a = abs(x)
    z = x * x
    p = _TANH_32(z)
    near = a + a * z * p
    b = pick(a > 10.0, 10.0, a)
    far = _ONE - _TWO / (exp_within_float32(b + b) + _ONE)
    return math.copysign(pick(a > 0.625, far, near), x)


_TANH_64 = polynomial(
    -0.3333333333333333,
    0.13333333333333322,
    -0.053968253968236804,
    0.02186948853517636,
    -0.008863235500864878,
    0.0035921275230542593,
    -0.001455828542311811,
    0.0005899826806168326,
    -0.000238892948019201,
    9.605045744610961e-05,
    -3.709695668661929e-05,
    1.2225404639325165e-05,
    -2.445433331636799e-06,
)


@formula
def tanh_float64(x):
    """Hyperbolic tangent."""
    a = abs(x)
    z = x * x
    p = _TANH_64(z)
    near = a + a * z * p
    b = pick(a > 20.0, 20.0, a)
    far = 1.0 - 2.0 / (exp_within_float64(b + b) + 1.0)
    return math.copysign(pick(a > 0.625, far, near), x)


if AVX512:
    exp_float32, exp_float64 = tabled.exp_float32, tabled.exp_float64
    exp2_float32, exp2_float64 = tabled.exp2_float32, tabled.exp2_float64
    falling_exp_float32 = tabled.falling_exp_float32
    falling_exp_float64 = tabled.falling_exp_float64
    exp_within_float32 = tabled.exp_within_float32
    exp_within_float64 = tabled.exp_within_float64
    tanh_float32 = curves.tanh_float32
