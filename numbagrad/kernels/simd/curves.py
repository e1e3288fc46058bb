"""erf and tanh by curves that are picked within registers (``lanes.py``).

Both are odd and reach 1: of abs(x) below an end they are b (p(c) + t q(t)), where c is the nearest
multiple of a width to b = abs(x), t what is left, and p(b) the function over b. A loop takes half
of the time of two formulas of which one is picked, and less.
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
from .decorators import formula
from .instructions import pick, times_plus
from .lanes import curves, lookup


def _erf_over(b: Decimal) -> Decimal:
    """erf(b) / b = 2 / sqrt(pi) exp(-b^2) sum of (2 b^2)^n / (1 3 5 ... (2 n + 1)): Abramowitz and
    Stegun, 7.1.6."""
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
            slopes = [over(abs(c * Decimal(width) + t)) for t in at]
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
