"""Rough inverses, what a division leaves, its floor, and the length of a vector of two."""

from __future__ import annotations

import math

import numpy as np
from numba import float32, float64

from .decorators import formula, piece
from .instructions import pick, times_plus, whole_rest
from .lanes import AVX512, near_inverse
from .root import sqrt_float64

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


@piece
def _by_float32(d):
    """1 / d of a float64 that is a normal float32, to 2^-46."""
    t = float64(_ONE / float32(d))
    return t + t * (1.0 - d * t)


@piece
def _by_one_step(d):
    """1 / d of a normal float64, to 2^-27 of it."""
    t = near_inverse(d)
    return t + t * (1.0 - d * t)


inverse_28_bits = _by_one_step if AVX512 else _by_float32


@piece
def _by_two_steps(d):
    """1 / d of a normal float64, to 2^-52 of it."""
    t = _by_one_step(d)
    return times_plus(t, times_plus(-d, t, 1.0), t)


@piece
def _by_division(d):
    """1 / d."""
    return 1.0 / d


inverse_float64 = _by_two_steps if AVX512 else _by_division


@piece
def _rest(x, y):
    """|x| modulo |y| in float64, exact for float32 numbers."""
    a, b = float64(abs(x)), float64(abs(y))
    r = whole_rest(a, b)
    r = pick(r < 0.0, r + b, r)
    return pick((b == math.inf) & (a < math.inf), a, r)


@formula
def mod_float32(x, y):
    """x - y floor(x / y), with the sign of y."""
    rest = float32(_rest(x, y))
    signed = math.copysign(rest, x)
    other = (x < 0.0) != (y < 0.0)
    return pick(rest == 0.0, math.copysign(rest, y), pick(other, signed + y, signed))


@formula
def mod_float64(x, y):
    """x - y floor(x / y), with the sign of y."""
    return x % y


@formula
def floordiv_float32(x, y):
    """floor(x / y), of the exact quotient."""
    rest = float32(_rest(x, y))
    signed = math.copysign(rest, x)
    borrowed = ((x < 0.0) != (y < 0.0)) & (rest != 0.0)
    quotient = x / y
    whole = (x - signed) / y - pick(borrowed, _ONE, _ZERO)
    near = np.floor(whole)
    near = pick(whole - near > 0.5, near + _ONE, near)
    near = pick(near == 0.0, math.copysign(_ZERO, quotient), near)
    return pick(y == 0.0, quotient, near)


@formula
def floordiv_float64(x, y):
    """floor(x / y), of the exact quotient."""
    return x // y


@formula
def hypot_float32(x, y):
    """sqrt(x x + y y) without overflow."""
    a, b = float64(x), float64(y)
    length = sqrt_float64(a * a + b * b)
    return float32(pick((abs(a) == math.inf) | (abs(b) == math.inf), math.inf, length))


@formula
def hypot_float64(x, y):
    """sqrt(x x + y y) without overflow."""
    a, b = abs(x), abs(y)
    most, least = pick(b > a, b, a), pick(b > a, a, b)
    r = least / most
    length = pick(most == 0.0, most + least, most * sqrt_float64(1.0 + r * r))
    return pick((a == math.inf) | (b == math.inf), math.inf, length)
