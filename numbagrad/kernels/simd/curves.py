"""erf, erfc and tanh by curves that are picked within registers (``lanes.py``).

erf and tanh are odd and reach 1: of abs(x) below an end they are b (p(c) + t q(t)), where c is the
nearest multiple of a width to b = abs(x), t what is left, and p(b) the function over b. A loop
takes half of the time of two formulas of which one is picked, and less. erfc of b is
exp(-b b) (p(c) + t q(t)).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import Context, Decimal, getcontext, localcontext
from typing import Any

import numpy as np
from numba import float32, float64

from ..intrinsics import float32_bits, float64_bits
from .decorators import formula, piece
from .instructions import pick, times_plus
from .lanes import curves, lookup, scaled
from .tabled import falling_parts_float32

_scaled, _TWO = scaled[float32], np.float32(2.0)


def _erf_over(signed: Decimal) -> Decimal:
    """erf(b) / b = 2 / sqrt(pi) exp(-b^2) sum of (2 b^2)^n / (1 3 5 ... (2 n + 1)): Abramowitz and
    Stegun, 7.1.6."""
    b = abs(signed)
    first = Decimal("1.12837916709551257389615890312154517168810125865799")
    term = total = first * (-b * b).exp()
    n = 0
    while term > total.scaleb(-25):
        n += 1
        term *= 2 * b * b / (2 * n + 1)
        total += term
    return total


def _tanh_over(b: Decimal) -> Decimal:
    e = (-2 * b).exp()
    return (1 - e) / (1 + e) / b


def _rows(over: Any, width: float, count: int, points: int) -> list[list[float]]:
    """The coefficients of p around each multiple of the width: it is right at Chebyshev's points.

    What goes through points is Newton's (Abramowitz and Stegun, 25.1.10).
    """
    with localcontext(Context(prec=50)):
        turns = [math.cos(math.pi * (2 * k + 1) / (2 * points)) for k in range(points)]
        at = [Decimal(width / 2 * turn) for turn in turns]
        rows = []
        for c in range(count):
            slopes = [over(c * Decimal(width) + t) for t in at]
            for order in range(1, points):
                for k in range(points - 1, order - 1, -1):
                    slopes[k] = (slopes[k] - slopes[k - 1]) / (at[k] - at[k - order])
            row = [Decimal(0)] * points
            for slope, t in zip(reversed(slopes), reversed(at), strict=True):
                row = [a - t * b for a, b in zip([Decimal(0), *row], row, strict=False)]
                row[0] += slope
            rows.append([float(a) for a in row])
    return rows


def _odd(name: str, of: Any, over: Callable[[Decimal], Decimal], width: float, points: int) -> Any:
    """The function up to 31.5 widths (15.5 in float64) from 0; 1 and -1 from there on."""
    single = of is float32
    count, bits_of = (32, float32_bits) if single else (16, float64_bits)
    number = np.float32 if single else float
    end, wide, per_width = number((count - 0.5) * width), number(width), number(1 / width)
    nearest = number(12582912.0 if single else 6755399441055744.0)  # 1.5 * 2^23 and 1.5 * 2^52
    rows = functools.cache(lambda: _rows(over, width, count, points))
    middle = lookup(f"{name}_middle_{of}", of, lambda: [row[0] for row in rows()])
    beside = curves(f"{name}_beside_{of}", of, lambda: [row[1:] for row in rows()])

    @formula
    def function(x):
        """Error function, or hyperbolic tangent."""
        a = abs(x)
        b = pick(a > end, end, a)
        shifted = b * per_width + nearest
        t, k = b - (shifted - nearest) * wide, bits_of(shifted)
        out = times_plus(b, middle(k), (b * t) * beside(t, k))
        return math.copysign(pick((a >= end) | (out > 1.0), 1.0, out), x)

    return function


erf_float32 = _odd("erf", float32, _erf_over, 0.125, 5)
erf_float64 = _odd("erf", float64, _erf_over, 0.390625, 14)
tanh_float32 = _odd("tanh", float32, _tanh_over, 0.287109375, 6)


def _atan_over(signed: Decimal) -> Decimal:
    """atan(b) / b = s / b^2 (1 + 2 / 3 s (1 + 4 / 5 s (...))) with s = b^2 / (1 + b^2): Euler."""
    square = signed * signed
    s, n = square / (1 + square), 0
    term = total = 1 / (1 + square)
    while term > total.scaleb(-25):
        n += 1
        term *= s * 2 * n / (2 * n + 1)
        total += term
    return total


_ATAN_WIDTH = 33 / 1024  # 31 of which are 1, to half of one


@functools.cache
def _atan_rows() -> list[list[float]]:
    return _rows(_atan_over, _ATAN_WIDTH, 32, 4)


_atan_middle = lookup("atan_middle_float32", float32, lambda: [row[0] for row in _atan_rows()])
_atan_beside = curves("atan_beside_float32", float32, lambda: [row[1:] for row in _atan_rows()])
_NEAREST = np.float32(12582912.0)  # 1.5 * 2^23
_ATAN_WIDE, _PER_ATAN_WIDE = np.float32(_ATAN_WIDTH), np.float32(1 / _ATAN_WIDTH)


@piece
def atan_near_float32(b):
    """Inverse tangent of 0 <= b <= 1."""
    shifted = b * _PER_ATAN_WIDE + _NEAREST
    t, k = b - (shifted - _NEAREST) * _ATAN_WIDE, float32_bits(shifted)
    return times_plus(b, _atan_middle(k), (b * t) * _atan_beside(t, k))


# erfcx(b) = exp(b^2) erfc(b) has the derivative 2 b erfcx(b) - 2 / sqrt(pi), and all others by it.


def _erfcx(width: float, count: int) -> Callable[[Decimal], Decimal]:
    """erfcx from -width to count times width, by Taylor's series around multiples of the width.

    Each begins with what the one before it gives there. That adds up to 10^48 times its rounding.
    """
    with localcontext(Context(prec=120)) as context:
        w, terms, root = Decimal(width), 70, context.sqrt(_pi())
        value, series = Decimal(1), []
        for k in range(count):
            c = k * w
            row = [value, 2 * c * value - 2 / root]
            for n in range(1, terms):
                row.append((2 * c * row[n] + 2 * row[n - 1]) / (n + 1))
            series.append(row)
            value = _along(row, w)

    def function(b: Decimal) -> Decimal:
        k = max(0, min(count - 1, round(b / Decimal(width))))
        return _along(series[k], b - k * Decimal(width))

    return function


def _along(row: list[Decimal], t: Decimal) -> Decimal:
    total = Decimal(0)
    for a in reversed(row):
        total = total * t + a
    return total


def _pi() -> Decimal:
    """By Machin's formula, in the precision that holds."""

    def arctan_of_inverse(n: int) -> Decimal:
        term = total = 1 / Decimal(n)
        k = 1
        while abs(term) > total.scaleb(-getcontext().prec):
            term /= -n * n
            k += 2
            total += term / k
        return total

    return 16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)


_ERFC_WIDTH, _ERFC_CURVES, _ERFC_END = 0.328125, 32, 10.25  # of which erfc is half the least number


@functools.cache
def _erfc_rows() -> list[list[float]]:
    over = _erfcx(_ERFC_WIDTH, _ERFC_CURVES)
    return _rows(over, _ERFC_WIDTH, _ERFC_CURVES, 7)


_erfc_middle = lookup("erfc_middle_float32", float32, lambda: [row[0] for row in _erfc_rows()])
_erfc_beside = curves("erfc_beside_float32", float32, lambda: [row[1:] for row in _erfc_rows()])
_WIDE, _PER_WIDE = np.float32(_ERFC_WIDTH), np.float32(1 / _ERFC_WIDTH)


@formula
def erfc_float32(x):
    """1 - erf(x), accurate where that is small."""
    a = abs(x)
    b = pick(a > _ERFC_END, _ERFC_END, a)
    shifted = b * _PER_WIDE + _NEAREST
    t, k = b - (shifted - _NEAREST) * _WIDE, float32_bits(shifted)
    middle, beside = _erfc_middle(k), t * _erfc_beside(t, k)
    y = b * b
    power, rest, n = falling_parts_float32(y, times_plus(b, b, -y))
    # power (1 + rest) (middle + beside), of whose largest part no bit is lost.
    most = power * middle
    less = times_plus(power, middle, -most) + power * (beside + rest * (middle + beside))
    out = pick(a > _ERFC_END, 0.0, _scaled(most + less, n))
    return pick(x < 0.0, _TWO - out, out)
