"""exp, exp2, log, log2 and log10 by tables that are read within registers (``lanes.py``).

exp and exp2 take x = (n / 16) ln(2) + r with a table of 2^(k / 16), the logarithms x = 2^e m and
m c = 1 + r with tables of c and -log(c) by the first bits of m (Tang, 1989 and 1990). Polynomials
of r are half as long as without tables, and few numbers are special cases: loops over float64 take
two thirds of the time.
"""

from __future__ import annotations

import functools
import math
from decimal import Context, Decimal
from typing import Any

import numpy as np
from numba import float32, float64, int32

from ..intrinsics import float32_bits, float64_bits
from .decorators import formula, piece
from .instructions import pick, polynomial, times_plus
from .lanes import exponent, lookup, mantissa, scaled

LOG2E32, LOG2E64 = np.float32(1.4426950408889634), 1.4426950408889634
LN2_32, LN2_64 = np.float32(0.6931471805599453), 0.6931471805599453
_LN2_REST32, _LN2_REST64 = np.float32(-1.904654299957768e-09), 2.3190468138462996e-17
_ROUND32, _ROUND64 = np.float32(786432.0), 422212465065984.0  # 1.5 * 2^19 and 1.5 * 2^48
"""Added, they round to sixteenths, and the lowest bits say which."""

_scaled_32, _scaled_64 = scaled[float32], scaled[float64]


def _powers() -> list[float]:
    """2^(k / 16)."""
    root = math.isqrt
    return [root(root(root(root(1 << 16 * 64 + k)))) * 2.0**-64 for k in range(16)]


_power_32 = lookup("powers_float32", float32, _powers)
_power_64 = lookup("powers_float64", float64, _powers)

# exp(r) = 1 + r + r^2 q(r) for |r| <= ln(2) / 32.

_CURVE_32 = polynomial(0.5000161604573359, 0.16666718475908615)
_CURVE_64 = polynomial(
    0.49999999999999606,
    0.1666666666441714,
    0.04166666669329416,
    0.008333471946602078,
    0.0013888593741207163,
    steady=True,
)


@piece
def _parts_float32(shifted, r):
    """t, 1 <= t < 2, and a small p: t + p is exp(r) by the power of 2 that the lowest bits say."""
    t = _power_32(float32_bits(shifted))
    return t, t * (_CURVE_32(r) * (r * r) + r)


@piece
def _parts_float64(shifted, r):
    """t, 1 <= t < 2, and a small p: t + p is exp(r) by the power of 2 that the lowest bits say."""
    t = _power_64(float64_bits(shifted))
    return t, t * (_CURVE_64(r) * (r * r) + r)


# n ln(2) goes in two fused steps: rounded alone it would lose what it is taken from.


@piece
def _exp_parts_float32(y):
    """t, p and n with exp(y) = (t + p) 2^floor(n)."""
    shifted = y * LOG2E32 + _ROUND32
    n = shifted - _ROUND32
    t, p = _parts_float32(shifted, times_plus(-n, _LN2_REST32, times_plus(-n, LN2_32, y)))
    return t, p, n


@piece
def _exp_parts_float64(y):
    """t, p and n with exp(y) = (t + p) 2^floor(n)."""
    shifted = y * LOG2E64 + _ROUND64
    n = shifted - _ROUND64
    t, p = _parts_float64(shifted, times_plus(-n, _LN2_REST64, times_plus(-n, LN2_64, y)))
    return t, p, n


@formula
def exp_float32(x):
    """e ** x."""
    y = pick(x > 89.5, 89.5, x)
    gone = x < -104.0  # not by underflow, which costs 100 times as much: -inf is common
    t, p, n = _exp_parts_float32(pick(gone, 0.0, y))
    return pick(gone, 0.0, _scaled_32(t + p, n))


@formula
def exp_float64(x):
    """e ** x."""
    y = pick(x > 710.0, 710.0, x)
    gone = x < -746.0
    t, p, n = _exp_parts_float64(pick(gone, 0.0, y))
    return pick(gone, 0.0, _scaled_64(t + p, n))


@formula
def falling_exp_float32(x):
    """e ** x for x <= 0; 0 where that is no normal number."""
    gone = x < -87.0
    t, p, n = _exp_parts_float32(pick(gone, -87.0, x))
    return pick(gone, 0.0, _scaled_32(t + p, n))


@formula
def falling_exp_float64(x):
    """e ** x for x <= 0; 0 where that is no normal number."""
    gone = x < -708.0
    t, p, n = _exp_parts_float64(pick(gone, -708.0, x))
    return pick(gone, 0.0, _scaled_64(t + p, n))


@piece
def exp_within_float32(x):
    """e ** x for |x| < 80."""
    t, p, n = _exp_parts_float32(x)
    return _scaled_32(t + p, n)


@piece
def exp_within_float64(x):
    """e ** x for |x| < 700."""
    t, p, n = _exp_parts_float64(x)
    return _scaled_64(t + p, n)


_CURVE_40 = polynomial(0.5000000007955666, 0.1666700653949949, 0.0416651112593855)


@piece
def exp_within_40_bits(x):
    """e ** x for -700 < x <= 0, to 2^-37 of it."""
    shifted = x * LOG2E64 + _ROUND64
    n = shifted - _ROUND64
    r = x - n * LN2_64
    t = _power_64(float64_bits(shifted))
    return _scaled_64(t + t * (_CURVE_40(r) * (r * r) + r), n)


@piece
def falling_parts_float32(y, low):
    """t, r and n with exp(-y - low) = t (1 + r) 2^floor(n), 1 <= t < 2, for 0 <= y < 110 and a low
    that is far smaller."""
    shifted = _ROUND32 - y * LOG2E32
    n = shifted - _ROUND32
    r = times_plus(-n, _LN2_REST32, times_plus(-n, LN2_32, -y)) - low
    return _power_32(float32_bits(shifted)), _CURVE_32(r) * (r * r) + r, n


@formula
def exp2_float32(x):
    """2 ** x."""
    y = pick(x > 129.0, 129.0, x)
    gone = x <= -150.0
    y = pick(gone, 0.0, y)
    shifted = y + _ROUND32
    n = shifted - _ROUND32
    t, p = _parts_float32(shifted, (y - n) * LN2_32)
    return pick(gone, 0.0, _scaled_32(t + p, n))


@formula
def exp2_float64(x):
    """2 ** x."""
    y = pick(x > 1025.0, 1025.0, x)
    gone = x <= -1075.0
    y = pick(gone, 0.0, y)
    shifted = y + _ROUND64
    n = shifted - _ROUND64
    t, p = _parts_float64(shifted, (y - n) * LN2_64)
    return pick(gone, 0.0, _scaled_64(t + p, n))


# log(x) = e log(2) - log(c) + log(1 + r), where 1 + r = m c. c is 1 for the first m and 1 / 2 for
# the last: just below 1 too all but r vanishes. log(2) and -log(c) are sums of two, the first so
# short that e log(2) - log(c) is exact. log(1 + r) = r + r^2 q(r).


def _inverses(count: int) -> list[float]:
    """1 / m in ten bits, in the middle of each of so many intervals."""
    middle = [round(1024 / (1 + (k + 0.5) / count)) / 1024 for k in range(count)]
    return [1.0, *middle[1:-1], 0.5]


@functools.cache
def _logarithms(count: int, base: int, places: int) -> list[tuple[float, float]]:
    """-log(c), to base 2 or 10 or natural (0), in so many binary places and a rest above 0."""
    context, parts = Context(prec=50), []
    unit = context.ln(Decimal(base)) if base else Decimal(1)
    for c in _inverses(count):
        exact = context.divide(-context.ln(Decimal(c)), unit)
        high = max(math.ceil(exact * 2**places) - 1, 0) / 2**places
        parts.append((high, float(context.subtract(exact, Decimal(high)))))
    return parts


def _columns(of: Any, base: int, count: int, places: int) -> list[Any]:
    """Lookups of c and of both parts of -log(c)."""

    def parts(k: int) -> Any:
        name = f"logarithms_{base}_{k}_{of}"
        return lookup(name, of, lambda: [row[k] for row in _logarithms(count, base, places)])

    return [lookup(f"inverses_{of}", of, lambda: _inverses(count)), parts(0), parts(1)]


_TAIL_32 = (-0.5000000000416925, 0.33333480685539885, -0.2500222504347877, 0.19423179442461336)
_TAIL_64 = (
    -0.5000000000000001,
    0.3333333333334899,
    -0.2500000000003112,
    0.19999999924779838,
    -0.16666665740698902,
    0.1428581634722444,
    -0.12502125563691635,
    0.11077330527533392,
    -0.08781521686758978,
)


_TWO_32 = {
    0: (0.693115234375, 3.1946184945309415e-05),
    2: (1 - 2.0**-14, 2.0**-14),
    10: (0.301025390625, 4.605038981195214e-06),
}
"""log(2) to each base, in 14 binary places and a rest above 0, which infinity times is no NaN."""
_TWO_64 = {
    0: (0.6931471805592082, 7.371002565167799e-13),
    2: (1 - 2.0**-40, 2.0**-40),
    10: (0.301029995663157, 8.241712586023572e-13),
}
"""The same in 40."""
_UNITS = {
    0: (1.0, 0.0),
    2: (1.4426950408889634, 2.0355273740931033e-17),
    10: (0.4342944819032518, 1.098319650216765e-17),
}
"""1 / log(base) and the rest of it."""


def _log_float32(base: int) -> Any:
    c_of, high_of, low_of = _columns(float32, base, 32, 14)
    two, two_rest = map(np.float32, _TWO_32[base])
    mantissa_of, exponent_of, one = mantissa[float32], exponent[float32], np.float32(1.0)
    unit = np.float32(_UNITS[base][0])
    unit_rest = np.float32(_UNITS[base][0] - float(unit))
    tail = polynomial(*(_UNITS[base][0] * c for c in _TAIL_32))

    @formula
    def log(x):
        """Logarithm."""
        m, e = mantissa_of(x), exponent_of(x)
        k = int32(float32_bits(m) >> int32(18))
        r = times_plus(m, c_of(k), -one)
        low = times_plus(e, two_rest, low_of(k)) + (r * r * tail(r) + r * unit_rest)
        return times_plus(e, two, high_of(k)) + (r * unit + low)

    return log


def _log_float64(base: int) -> Any:
    c_of, high_of, low_of = _columns(float64, base, 16, 40)
    two, two_rest = _TWO_64[base]
    mantissa_of, exponent_of = mantissa[float64], exponent[float64]
    unit, unit_rest = _UNITS[base]
    tail = polynomial(*(unit * c for c in _TAIL_64))

    @formula
    def log(x):
        """Logarithm."""
        m, e = mantissa_of(x), exponent_of(x)
        k = float64_bits(m) >> 48
        r = times_plus(m, c_of(k), -1.0)
        low = times_plus(e, two_rest, low_of(k)) + (r * r * tail(r) + r * unit_rest)
        return times_plus(e, two, high_of(k)) + (r * unit + low)

    return log


log_float32, log_float64 = _log_float32(0), _log_float64(0)
log2_float32, log2_float64 = _log_float32(2), _log_float64(2)
log10_float32, log10_float64 = _log_float32(10), _log_float64(10)
