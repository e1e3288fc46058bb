"""asin, acos, atan and atan2, in radians."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import curves
from .decorators import formula, piece
from .instructions import pick, polynomial
from .lanes import AVX512

_ONE, _HALF = np.float32(1.0), np.float32(0.5)
_RIGHT_32, _RIGHT_REST_32 = np.float32(1.5707963267948966), np.float32(-4.371139000186241e-08)
_RIGHT_64, _RIGHT_REST_64 = 1.5707963267948966, 6.123233995736766e-17  # pi / 2
_ZERO_32 = np.float32(0.0)

# atan(t) = t + t^3 p(t^2) for 0 <= t <= 1; that of a larger number is pi / 2 - atan(1 / t).


_ATAN_32 = polynomial(
    -0.33333326899610444,
    0.19999671145353057,
    -0.1427983345242525,
    0.11058226555734499,
    -0.08811102311829136,
    0.06741621700251,
    -0.0446902788401121,
    0.02254014537041625,
    -0.007318083629340067,
    0.001113813436520429,
)


_ATAN_64 = polynomial(
    -0.33333333333333287,
    0.19999999999990445,
    -0.1428571428503654,
    0.11111111086444934,
    -0.09090908547212743,
    0.07692299711260477,
    -0.06666583718291273,
    0.05881716124893954,
    -0.052594336466157965,
    0.047449255853827574,
    -0.042863893722789245,
    0.038210028620477066,
    -0.032785365246215246,
    0.026151577846905767,
    -0.01861410295945823,
    0.011317571332104386,
    -0.0056123382010551765,
    0.0021515657806222763,
    -0.0005928862989117585,
    0.00010387055725956265,
    -8.654086320368117e-06,
)


def _by_power(curve: Any) -> Any:
    @piece
    def near(t):
        """Inverse tangent of 0 <= t <= 1."""
        z = t * t
        return t + t * (z * curve(z))

    return near


_near_32 = curves.atan_near_float32 if AVX512 else _by_power(_ATAN_32)
_near_64 = _by_power(_ATAN_64)


def _atan(one: Any, right: Any, rest: Any, near_of: Any) -> Any:
    @formula
    def atan(x):
        """Inverse tangent, in radians."""
        a = abs(x)
        near = near_of(pick(a > 1.0, one / a, a))
        return math.copysign(pick(a > 1.0, right - (near - rest), near), x)

    return atan


def _atan2(zero: Any, one: Any, right: Any, rest: Any, near_of: Any) -> Any:
    @formula
    def atan2(y, x):
        """The angle of the point (x, y), in radians; the signs of zeros count."""
        a, b = abs(y), abs(x)
        steep, back = a > b, math.copysign(one, x) < 0.0
        low, high = pick(steep, b, a), pick(steep, a, b)
        t = pick(high == 0.0, low, low / high)
        t = pick((a == b) & (a > 0.0), one, t)  # both infinite
        near = near_of(t)
        # From 0, pi / 2 or pi, forwards or backwards.
        first = pick(steep, one, pick(back, one + one, zero))
        turn = pick(steep != back, -near, near)
        return math.copysign(first * right + (turn + first * rest), y)

    return atan2


# asin(s) = s + s^3 p(s^2) up to 1 / 2; beyond it is pi / 2 - 2 asin(s), s^2 = (1 - |x|) / 2.


_ASIN_32 = polynomial(
    0.1666665999072535,
    0.07500504199041351,
    0.04451695383372582,
    0.031807724500574903,
    0.014438588653278966,
    0.037516472711907285,
)


_ASIN_64 = polynomial(
    0.1666666666666676,
    0.07499999999970804,
    0.04464285717460913,
    0.03038194270790345,
    0.02237221498434702,
    0.017351612072499262,
    0.013980819851144017,
    0.01139891776412719,
    0.010780223094106634,
    0.003706514565413834,
    0.021707206549612893,
    -0.020998747006698876,
    0.03262844215937949,
)


def _asin(one: Any, half: Any, right: Any, rest: Any, curve: Any) -> Any:
    @formula
    def asin(x):
        """Inverse sine, in radians; NaN beyond -1 and 1."""
        a = abs(x)
        far = a > 0.5
        z = pick(far, (one - a) * half, a * a)
        s = pick(far, math.sqrt(z), a)
        more = s * (z * curve(z))
        quarter = right * half
        steep = quarter + ((quarter - (s + s)) - ((more + more) - rest))
        return math.copysign(pick(far, steep, s + more), x)

    return asin


def _acos(one: Any, half: Any, right: Any, rest: Any, curve: Any) -> Any:
    @formula
    def acos(x):
        """Inverse cosine, in radians; NaN beyond -1 and 1."""
        a = abs(x)
        far = a > 0.5
        z = pick(far, (one - a) * half, a * a)
        s = pick(far, math.sqrt(z), x)
        more = s * (z * curve(z))
        twice = (s + more) + (s + more)
        back = (right + right) - (twice - (rest + rest))
        return pick(far, pick(x < 0.0, back, twice), right - (s + (more - rest)))

    return acos


_OF_32, _OF_64 = (_RIGHT_32, _RIGHT_REST_32), (_RIGHT_64, _RIGHT_REST_64)
atan_float32, atan_float64 = _atan(_ONE, *_OF_32, _near_32), _atan(1.0, *_OF_64, _near_64)
atan2_float32 = _atan2(_ZERO_32, _ONE, *_OF_32, _near_32)
atan2_float64 = _atan2(0.0, 1.0, *_OF_64, _near_64)
asin_float32, asin_float64 = (
    _asin(_ONE, _HALF, *_OF_32, _ASIN_32),
    _asin(1.0, 0.5, *_OF_64, _ASIN_64),
)
acos_float32, acos_float64 = (
    _acos(_ONE, _HALF, *_OF_32, _ASIN_32),
    _acos(1.0, 0.5, *_OF_64, _ASIN_64),
)
