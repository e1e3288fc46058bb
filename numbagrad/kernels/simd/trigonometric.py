"""sin, cos and tan, for every finite argument.

x = 2^e m with a whole number m, so of 2^e times 2 / pi only the rest modulo 4 matters for where x
lies on the circle (Payne and Hanek, 1983), in as many parts as the argument closest to a multiple
of pi / 2 needs. For float32 that rest is one of four. For float64 it stands in a table by
exponents, which only angles of 2^20 and more read, on a way of their own (of float32 those of 2^40,
of tan 2^50); from others the multiple of pi / 2 is taken, in three parts (Cody and Waite, 1980).

sin and cos of those others are one polynomial from -pi / 2 to pi / 2 around a whole or half number
of half turns, where two up to pi / 4, of which one is picked, would be more work.
"""

from __future__ import annotations

import math
from typing import Any

from numba import float32, float64

from ..intrinsics import bits_float64, float64_bits
from .decorators import apart, formula, piece
from .division import inverse_28_bits
from .instructions import (
    fast_two_sum,
    fused,
    pick,
    polynomial,
    table,
    times_plus,
    two_product,
    two_sum,
)
from .opaque import rarely

_ROUND = 6755399441055744.0  # 1.5 * 2^52
_EIGHTS = 5.404319552844596e16  # 1.5 * 2^55: what is added to it is rounded to multiples of 8
_RIGHT, _RIGHT_REST = 1.5707963267948966, 6.123233995736766e-17  # pi / 2
_RIGHT_1, _RIGHT_2, _RIGHT_3 = 1.5707963267341256, 6.077100506506192e-11, 3.5215598651832e-27
"""pi / 2 in 33, 53 and 53 bits."""
_HALF_1, _HALF_2, _HALF_3 = 2 * _RIGHT_1, 2 * _RIGHT_2, 2 * _RIGHT_3
_TURNS = 0.6366197723675814  # 2 / pi
_HALVES, _HALVES_REST = _TURNS / 2, -1.9678676675182486e-17  # 1 / pi
_NEAR_32 = 2.0**40
"""The float32 below which half turns are found to 2^-13 of one, within what polynomials are for."""
_NEAR_EXPONENT = 20
_NEAR = 2.0**_NEAR_EXPONENT
"""The float64 below which so many quarter turns times the first part are exact."""
_PLACES = 1400
"""Binary places of 2 / pi: 971 for the largest exponent, and 4 parts of 53."""


def turns(places: int) -> int:
    """2 / pi times 2 ** places, by Machin's formula: pi = 16 arctan(1/5) - 4 arctan(1/239)."""
    one = 1 << places + 32

    def arctan(n: int) -> int:
        total, term, k = 0, one // n, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term //= n * n
            k += 2
        return total

    pi = 16 * arctan(5) - 4 * arctan(239)
    return (one * one * 2 // pi) >> 32


def _parts(value: int, places: int, bits: tuple[int, ...]) -> tuple[float, ...]:
    """value / 2 ** places as a sum of floats of so many bits."""
    sign, value = (-1, -value) if value < 0 else (1, value)
    parts = []
    for width in bits:
        drop = max(value.bit_length() - width, 0)
        parts.append(sign * math.ldexp(value >> drop, drop - places))
        value &= (1 << drop) - 1
    return tuple(parts)


def _rest(turns: int, e: int, places: int = _PLACES) -> int:
    """2 ** e * turns modulo 4, from -2 to 2, times 2 ** places."""
    rest = (turns << e if e >= 0 else turns >> -e) % (4 << places)
    return rest - (4 << places) if rest >> (places + 1) else rest


_EDGES = 50, 76, 102
"""Binary exponents from one of which to the next 2 / pi is the same two float64 for all float32: a
product with it is below 2^51, and a number of AVX-512 is picked faster than loaded."""


def _spans_float32() -> list[tuple[float, float]]:
    """2 / pi for float32 numbers below the first of ``2 ** _EDGES``, and from each of them on: of
    numbers from 2^e on, multiples of 4 / 2^(e - 23) say nothing."""
    places, spans = 256, []
    there = turns(places)
    for shift in (e - 23 for e in (0, *_EDGES)):
        whole, unit = _rest(there, shift, places), 1 << places + shift
        high = whole / unit
        spans.append((high, (whole - int(high * unit)) / unit))
    return spans


def _rows_float64() -> list[tuple[float, ...]]:
    """2 / pi for mantissas from 1 to 2 of each exponent from that of ``_NEAR`` on."""
    there, bits = turns(_PLACES), (53, 53, 53, 53)
    rows = []
    for e in range(_NEAR_EXPONENT, 1024):
        rest = _rest(there, e - 52) if e > 52 else there << e
        rows.append(_parts(rest, _PLACES - 52 if e > 52 else _PLACES, bits))
    return [*rows, (math.nan,) * 4]


(_HIGH_0, _LOW_0), (_HIGH_1, _LOW_1), (_HIGH_2, _LOW_2), (_HIGH_3, _LOW_3) = _spans_float32()
_EDGE_1, _EDGE_2, _EDGE_3 = (2.0**e for e in _EDGES)
_row_float64 = table("turns_float64", 4, _rows_float64)

# In float32 sin(r pi / 2) = r s(r^2) and cos(r pi / 2) = c(r^2), for |r| <= 9 / 16. In float64
# sin(y) = y + y^3 s(y^2) and cos(y) = 1 - y^2 / 2 + y^4 c(y^2), for |y| <= pi / 4.


_SINE_32 = polynomial(
    1.57079631360995,
    -0.6459627997974411,
    0.07967242854679706,
    -0.00458042383448223,
)


_COSINE_32 = polynomial(
    0.9999999998092415,
    -1.233700522206452,
    0.25366883674836305,
    -0.020857750539692316,
    0.0008990761294405745,
)


@piece
def _turned_float32(y):
    """The angle of a float32 in quarter turns from the nearest of them, and a number whose lowest
    bits say which that is."""
    a = abs(y)
    near, far = a < _EDGE_1, a < _EDGE_3
    high = pick(near, _HIGH_0, pick(a < _EDGE_2, _HIGH_1, pick(far, _HIGH_2, _HIGH_3)))
    low = pick(near, _LOW_0, pick(a < _EDGE_2, _LOW_1, pick(far, _LOW_2, _LOW_3)))
    shifted = fused(y, high, _ROUND)
    rest = fused(y, high, _ROUND - shifted)
    return fused(y, low, rest), float64_bits(shifted)


_HALF_WAVE_32 = polynomial(
    3.141592636851183,
    -5.167709678369041,
    2.5500695815144288,
    -0.5982410923692617,
    0.0775581007543804,
)


def _wave_float32(name: str, quarters: int, least: float) -> Any:
    """The function sin(x + quarters pi / 2); below ``least`` it is x, a zero's sign included."""
    start = quarters / 2

    @apart
    def wave_far(x):
        r, n = _turned_float32(x)
        n = n + quarters
        z = r * r
        out = pick(n & 1, _COSINE_32(z), _SINE_32(z) * r)
        return bits_float64(float64_bits(out) ^ ((n & 2) << 62))

    far = rarely(f"far_{name}_float32", wave_far)

    @formula
    def wave(x):
        """Sine or cosine of an angle in radians."""
        y = float64(x)
        shifted = fused(y, _HALVES, start) + _ROUND
        r = fused(y, _HALVES_REST, fused(y, _HALVES, start - (shifted - _ROUND)))
        out = r * _HALF_WAVE_32(r * r)
        out = bits_float64(float64_bits(out) ^ (float64_bits(shifted) << 63))
        if abs(x) >= _NEAR_32:
            out = far(y)
        return pick(abs(x) < least, x, float32(out))

    return wave


# tan(r pi / 2) = r p(r^2) / q(r^2) for |r| <= 9 / 16, to 2^-33: shorter than a sine and a cosine.

_OVER_32 = polynomial(1.5707963269150283, -0.43187550661211631, 0.010326593414826747)
_UNDER_32 = polynomial(1.0, -1.0974075091590113, 0.09741293567390574)


@piece
def _tangent_of_float32(r, n):
    """The tangent of r and n quarter turns."""
    z = r * r
    sine, cosine = _OVER_32(z) * r, _UNDER_32(z)
    odd = n & 1
    return pick(odd, -cosine, sine) * inverse_28_bits(pick(odd, sine, cosine))


@apart
def _tan_far_float32(x):
    r, n = _turned_float32(x)
    return _tangent_of_float32(r, n)


_rare_tan_float32 = rarely("far_tan_float32", _tan_far_float32)


@formula
def tan_float32(x):
    """Tangent of an angle in radians."""
    y = float64(x)
    shifted = fused(y, _HIGH_0, _ROUND)
    r = fused(y, _LOW_0, fused(y, _HIGH_0, _ROUND - shifted))
    out = _tangent_of_float32(r, float64_bits(shifted))
    if abs(x) >= _EDGE_1:
        out = _rare_tan_float32(y)
    return pick(abs(x) < 2.0**-12, x, float32(out))


_SINE_64 = polynomial(
    -0.16666666666666632,
    0.00833333333332242,
    -0.00019841269829812472,
    2.755731369359884e-06,
    -2.5050758387843935e-08,
    1.5896811973251093e-10,
)


_COSINE_64 = polynomial(
    0.0416666666666666,
    -0.001388888888887425,
    2.4801587289551234e-05,
    -2.755731437028513e-07,
    2.0875725508000016e-09,
    -1.135975516411926e-11,
)


@piece
def _near_float64(x):
    """The angle in radians from the nearest quarter turn as a sum of two, and a number whose lowest
    bits say which that is; for |x| below ``_NEAR``."""
    shifted = x * _TURNS + _ROUND
    n = shifted - _ROUND
    left = x - n * _RIGHT_1  # exact
    q, q_rest = two_product(n, _RIGHT_2)
    y, y_rest = fast_two_sum(left, -q)
    return y, (y_rest - q_rest) - n * _RIGHT_3, float64_bits(shifted)


@piece
def _far_float64(x):
    """As ``_near_float64``, for all other x."""
    bits = float64_bits(x)
    a, b, c, d = _row_float64(((bits >> 52) & 2047) - (1023 + _NEAR_EXPONENT))
    m = bits_float64((bits & -0x7FF0000000000001) | 0x3FF0000000000000)
    p, p_rest = two_product(m, a)
    q, q_rest = two_product(m, b)
    s, s_rest = two_product(m, c)
    # p is at most 2^54; each line of the sum is 2^53 times smaller than the one before.
    p = p - ((p + _EIGHTS) - _EIGHTS)
    u, u_rest = two_sum(p_rest, q)
    shifted = (p + u) + _ROUND
    v, v_rest = two_sum(p - (shifted - _ROUND), u)
    w, w_rest = two_sum(q_rest, s)
    t, t_rest = two_sum(u_rest, w)
    t = t + v_rest
    r = v + t
    rest = ((v - r) + t) + ((t_rest + w_rest) + (s_rest + m * d))
    # From quarter turns to radians, y + rest.
    y, y_rest = two_product(r, _RIGHT)
    return y, y_rest + (r * _RIGHT_REST + rest * _RIGHT), float64_bits(shifted)


@piece
def _waves_float64(y, rest):
    """Sine and cosine of y + rest, each as a sum of two."""
    z = y * y
    sine_rest = rest + (y * z) * _SINE_64(z)
    h = 0.5 * z
    near = 1.0 - h
    cosine_rest = ((1.0 - near) - h) + (z * z * _COSINE_64(z) - y * rest)
    return y, sine_rest, near, cosine_rest


@piece
def _wave_of_float64(y, rest, n):
    """The sine of y + rest and n quarter turns."""
    sine, sine_rest, cosine, cosine_rest = _waves_float64(y, rest)
    out = pick(n & 1, cosine + cosine_rest, sine + sine_rest)
    return bits_float64(float64_bits(out) ^ ((n & 2) << 62))


_SIXTH = -0.16666666666666666
_HALF_WAVE_64 = polynomial(
    0.008333333333333194,
    -0.00019841269841209148,
    2.7557319211124587e-06,
    -2.5052106871607483e-08,
    1.6058939644290328e-10,
    -7.642989847819647e-13,
    2.721157293644356e-15,
)


def _wave_float64(name: str, quarters: int, least: float) -> Any:
    """The function sin(x + quarters pi / 2); below ``least`` it is x, a zero's sign included."""
    start = quarters / 2

    @apart
    def wave_far(x):
        y, rest, n = _far_float64(x)
        return _wave_of_float64(y, rest, n + quarters)

    far = rarely(f"far_{name}_float64", wave_far)

    @formula
    def wave(x):
        """Sine or cosine of an angle in radians."""
        shifted = times_plus(x, _HALVES, start) + _ROUND
        n = (shifted - _ROUND) - start
        p = n * _HALF_1  # exact
        left = x - p
        lost = x - (left + p)
        q, q_rest = two_product(n, _HALF_2)
        y, y_rest = fast_two_sum(left, -q)
        rest = ((y_rest + lost) - q_rest) - n * _HALF_3
        z = y * y
        w = times_plus(z, _SIXTH, (z * z) * _HALF_WAVE_64(z))
        out = y + times_plus(y, w, rest * (1.0 - 0.405 * z))
        out = bits_float64(float64_bits(out) ^ (float64_bits(shifted) << 63))
        if abs(x) >= _NEAR:
            out = far(x)
        return pick(abs(x) < least, x, out)

    return wave


@piece
def _tangent_of_float64(y, rest, n):
    """The tangent of y + rest and n quarter turns."""
    sine, sine_rest, cosine, cosine_rest = _waves_float64(y, rest)
    odd = n & 1
    over, over_rest = pick(odd, -cosine, sine), pick(odd, -cosine_rest, sine_rest)
    under, under_rest = pick(odd, sine, cosine), pick(odd, sine_rest, cosine_rest)
    inverse = 1.0 / (under + under_rest)
    out = over * inverse
    missing = times_plus(-out, under, over) + (over_rest - out * under_rest)
    return out + missing * inverse


@apart
def _tan_far_float64(x):
    y, rest, n = _far_float64(x)
    return _tangent_of_float64(y, rest, n)


_rare_tan_float64 = rarely("far_tan_float64", _tan_far_float64)


@formula
def tan_float64(x):
    """Tangent of an angle in radians."""
    y, rest, n = _near_float64(x)
    out = _tangent_of_float64(y, rest, n)
    if abs(x) >= _NEAR:
        out = _rare_tan_float64(x)
    return pick(abs(x) < 2.0**-27, x, out)


sin_float32, cos_float32 = _wave_float32("sin", 0, 2.0**-12), _wave_float32("cos", 1, -1.0)
sin_float64, cos_float64 = _wave_float64("sin", 0, 2.0**-27), _wave_float64("cos", 1, -1.0)
