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
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
from numba import float32, float64

from ..intrinsics import float32_bits, float64_bits
from .decorators import formula, piece
from .instructions import pick, times_plus
from .lanes import curves, lookup, scaled
from .tabled import falling_parts_float32
from .trigonometric import turns

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


def _around(name: str, of: Any, over: Any, width: float, points: int) -> Any:
    """What gives p(c), t and q(t) of a b up to 31.5 widths (15.5 in float64)."""
    single = of is float32
    count, bits_of = (32, float32_bits) if single else (16, float64_bits)
    number = np.float32 if single else float
    wide, per_width = number(width), number(1 / width)
    nearest = number(12582912.0 if single else 6755399441055744.0)  # 1.5 * 2^23 and 1.5 * 2^52
    rows = functools.cache(lambda: _rows(over, width, count, points))
    middle = lookup(f"{name}_middle_{of}", of, lambda: [row[0] for row in rows()])
    beside = curves(f"{name}_beside_{of}", of, lambda: [row[1:] for row in rows()])

    @piece
    def around(b):
        shifted = b * per_width + nearest
        t, k = b - (shifted - nearest) * wide, bits_of(shifted)
        return middle(k), t, beside(t, k)

    return around


def _odd(name: str, of: Any, over: Callable[[Decimal], Decimal], width: float, points: int) -> Any:
    """The function that is 1 and -1 from the last of the curves on."""
    around = _around(name, of, over, width, points)
    end: Any = np.float32(31.5 * width) if of is float32 else 15.5 * width

    @formula
    def function(x):
        """Error function, or hyperbolic tangent."""
        a = abs(x)
        b = pick(a > end, end, a)
        middle, t, beside = around(b)
        out = times_plus(b, middle, (b * t) * beside)
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


# 31 widths are 1, to half of one.
_around_atan = _around("atan", float32, _atan_over, 33 / 1024, 4)


@piece
def atan_near_float32(b):
    """Inverse tangent of 0 <= b <= 1."""
    middle, t, beside = _around_atan(b)
    return times_plus(b, middle, (b * t) * beside)


# erfcx(b) = exp(b^2) erfc(b) has the derivative 2 b erfcx(b) - 2 / sqrt(pi), and all others by it.


_ERFC_WIDTH, _ERFC_END = 0.328125, 10.25  # of which erfc is half the least number


@functools.cache
def _erfcx_series() -> list[list[Decimal]]:
    """Taylor's series of erfcx around the first 32 multiples of the width.

    Each begins with what the one before it gives there. That adds up to 10^48 times its rounding.
    """
    with localcontext(Context(prec=120)):
        slope = (2 * Decimal(turns(400)) / 2**400).sqrt()  # 2 / sqrt(pi)
        width, value, series = Decimal(_ERFC_WIDTH), Decimal(1), []
        for k in range(32):
            c = k * width
            row = [value, 2 * c * value - slope]
            for n in range(1, 70):
                row.append((2 * c * row[n] + 2 * row[n - 1]) / (n + 1))
            series.append(row)
            value = _along(row, width)
    return series


def _erfcx(b: Decimal) -> Decimal:
    """exp(b^2) erfc(b) from half a width below 0 to the end of the last curve."""
    width = Decimal(_ERFC_WIDTH)
    k = min(max(round(b / width), 0), 31)
    return _along(_erfcx_series()[k], b - k * width)


def _along(row: list[Decimal], t: Decimal) -> Decimal:
    total = Decimal(0)
    for a in reversed(row):
        total = total * t + a
    return total


_around_erfc = _around("erfc", float32, _erfcx, _ERFC_WIDTH, 7)


@formula
def erfc_float32(x):
    """1 - erf(x), accurate where that is small."""
    a = abs(x)
    b = pick(a > _ERFC_END, _ERFC_END, a)
    middle, t, curve = _around_erfc(b)
    beside, y = t * curve, b * b
    power, rest, n = falling_parts_float32(y, times_plus(b, b, -y))
    # power (1 + rest) (middle + beside), of whose largest part no bit is lost.
    most = power * middle
    less = times_plus(power, middle, -most) + power * (beside + rest * (middle + beside))
    out = pick(a > _ERFC_END, 0.0, _scaled(most + less, n))
    return pick(x < 0.0, _TWO - out, out)
