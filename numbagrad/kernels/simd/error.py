"""The error function and its complement."""

from __future__ import annotations

import math

import numpy as np
from numba import float32, float64

from ..intrinsics import bits_float64, float64_bits
from . import curves, tabled
from .decorators import formula, piece
from .division import inverse_28_bits
from .exponential import (
    CURVE_64,
    LN2_64,
    LOG2E64,
    ROUND64,
    exp_within_float64,
    reduced_float64,
    scaled_float64,
)
from .instructions import FUSED, pick, polynomial, times_plus, two_product
from .lanes import AVX512

_ONE = np.float32(1.0)

# erf(x) = x + x p(x^2) for |x| < 1.1875 (1.25 in float64). Elsewhere in float32 1 - q(|x|)^8, where
# q is a fit of erfc^(1/8): a third of the work of an exponential and a division, and what the power
# makes of its rounding is small beside the 1. In float64 1 - exp(c(|x|)), where c is a fit of
# log(erfc). Bounds are numbers of float32 too: compared to others, all of x would become float64.


_NEAR_32 = polynomial(
    0.12837915366480454,
    -0.3761254870633928,
    0.11282785450574273,
    -0.026823447287943725,
    0.005136096239379333,
    -0.0007594714536990088,
    6.609213985256821e-05,
)


_FAR_32 = polynomial(
    1.0013240382291233,
    -0.14683403898637098,
    -0.058794886646864594,
    -0.01341788891680344,
    0.013802144194100965,
    -0.0026660795803275135,
    0.0001678055221985229,
    steady=True,
)


@formula
def erf_float32(x):
    """Error function."""
    a = abs(x)
    z = x * x
    p = _NEAR_32(z)
    near = a + a * p
    b = pick(a > 3.9375, 3.9375, a)
    q = _FAR_32(b)
    q = q * q
    q = q * q
    far = _ONE - q * q
    return math.copysign(pick(a >= 1.1875, far, near), x)


_NEAR_64 = polynomial(
    0.1283791670955126,
    -0.37612638903183754,
    0.11283791670955126,
    -0.026866170645131252,
    0.005223977625442187,
    -0.0008548327023450815,
    0.00012055332981787746,
    -1.492565035833759e-05,
    1.6462114364090405e-06,
    -1.6365844655816848e-07,
    1.4807192282041551e-08,
    -1.2290549066996606e-09,
    9.422702253524843e-11,
    -6.710962147773291e-12,
    4.460976847027224e-13,
    -2.7738693125981594e-14,
    1.6027426463283473e-15,
    -8.299333131326682e-17,
    3.437890896100315e-18,
    -8.291830412449146e-20,
)


_FAR_64 = polynomial(
    -14.112437402148188,
    -7.266099588365198,
    -0.9667530547410782,
    -0.005225658216366031,
    0.0008736873279436745,
    -0.0001472978045675964,
    2.4386287351229386e-05,
    -3.8896241838951895e-06,
    5.857003018699369e-07,
    -8.046262850336508e-08,
    9.711073490679872e-09,
    -7.917733016614981e-10,
    -1.693760055984071e-10,
    -8.85970260771885e-11,
    -4.373220493976285e-11,
    1.5827460536454447e-11,
    1.7446345754935002e-11,
    8.365125169718522e-12,
    2.178352144499359e-12,
    3.28915886859806e-13,
    2.2488526672100392e-14,
)


@formula
def erf_float64(x):
    """Error function."""
    a = abs(x)
    z = x * x
    p = _NEAR_64(z)
    near = a + a * p
    b = pick(a > 6.0, 6.0, a) - 3.5
    c = _FAR_64(b)
    far = 1.0 - exp_within_float64(c)
    return math.copysign(pick(a >= 1.25, far, near), x)


# erfc(a) = exp(-a^2) t p(t) with t = 1 / (a + 3), for all a >= 0, to 2^-28 of it. In float64, where
# a^2 is exact, with an exponential to 2^-34.

_TAIL = polynomial(
    0.5641106715073709,
    1.6979765228052273,
    4.633398952255593,
    15.495550444810807,
    0.11561662769561076,
    290.95053343323686,
    -953.4266401508455,
    3489.4761257298574,
    -5718.196363421897,
    3272.4209657069578,
)


_CURVE = polynomial(
    0.5000000067666197,
    0.1666666586925446,
    0.04166629500679741,
    0.008333497015586302,
    0.00139446551292924,
    0.00019790365694077948,
)


@piece
def _falling_exp(x):
    """e ** x for -700 < x <= 0."""
    shifted = x * LOG2E64 + ROUND64
    r = x - (shifted - ROUND64) * LN2_64
    e = (_CURVE(r) * r + 1.0) * r + 1.0
    return bits_float64(float64_bits(e) + (float64_bits(shifted) << 52))


if AVX512:
    erf_float32, erf_float64 = curves.erf_float32, curves.erf_float64
    _falling_exp = tabled.exp_within_40_bits


@formula
def erfc_float32(x):
    """1 - erf(x), accurate where that is small."""
    a = abs(x)
    b = float64(pick(a > 10.25, 10.25, a))
    t = inverse_28_bits(b + 3.0)
    out = _falling_exp(-b * b) * (t * _TAIL(t))
    out = pick(a > 10.25, 0.0, out)
    return float32(pick(x < 0.0, 2.0 - out, out))


if AVX512:
    erfc_float32 = curves.erfc_float32


# In float64 exp(-a^2) q(s) / (1 + a) with s = (a - 3.5) / (a + 3.5), where q changes little near 0.
# Most roundings are kept, beside the exponent or exp(r) - 1, for there are many one after another.


_MIDDLE, _MIDDLE_REST = 0.6988214502400243, 4.713089007417684e-17
_TILT, _BEND = -0.21463711248519332, 0.11128744263401713
_REST_OF_SLOPE = polynomial(
    -0.031909714805635876,
    -0.010330895625555732,
    0.021273196321018182,
    -0.015923282446857184,
    0.007428546162671932,
    -0.0019738174260207,
    -6.856281991913125e-06,
    0.00022814994022595975,
    -6.309329216458357e-05,
    -1.4718702232633603e-05,
    1.1316939676135448e-05,
    4.068437657627578e-07,
    -1.7237894851215268e-06,
    6.909357895520869e-08,
    2.7157578527483393e-07,
    -1.1836125449685233e-08,
    -4.389045505776002e-08,
    -2.1177711346144226e-09,
    5.336164669782283e-09,
    1.1933410145611422e-09,
)


@formula
def _erfc_by_sums(x):
    """1 - erf(x), accurate where that is small."""
    a = abs(x)
    gone = a > 27.25  # half of the least number
    b = pick(gone, 0.0, a)
    d, e = 1.0 + b, b + 3.5
    both = 1.0 / (d * e)
    w = both * e
    beside = times_plus(-w, d, 1.0) - w * pick(b < 1.0, b - (d - 1.0), 1.0 - (d - b))
    t, m = both * d, b - 3.5
    s = m * t
    low_s = (times_plus(-s, e, m) + ((b - (m + 3.5)) - s * (b - (e - 3.5)))) * t
    slope = (_REST_OF_SLOPE(s) * s + _BEND) * s + _TILT
    v = s * slope + (_MIDDLE_REST + low_s * (s * 0.2 - 0.21))
    c = _MIDDLE + v
    q, left = two_product(w, c)
    left = left + w * ((_MIDDLE - c) + v)
    y, low_y = two_product(b, b)
    high, low, n = reduced_float64(-y)
    low = low + low_y
    r = high - low
    left = left + (q + q * r) * (beside + ((high - r) - low))
    left = left + q * (r * r * CURVE_64(r))
    out = pick(gone, 0.0, scaled_float64(q + (q * r + left), n))
    return pick(x < 0.0, 2.0 - out, out)


@formula
def _erfc_by_libm(x):
    """1 - erf(x), accurate where that is small."""
    return math.erfc(x)


# Where no instruction rounds x y + z once, a call of libm would, for each rest of a rounding.
erfc_float64 = _erfc_by_sums if FUSED else _erfc_by_libm
