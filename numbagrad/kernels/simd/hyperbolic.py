"""sinh, cosh and their inverses."""

from __future__ import annotations

import math

import numpy as np
from numba import float32, float64, int32

from .decorators import formula, piece
from .division import inverse_float64
from .exponential import (
    LN2_64,
    exp_parts_float32,
    exp_parts_float64,
    scaled_float32,
    scaled_float64,
)
from .instructions import FUSED, pick, polynomial, times_plus, two_product
from .logarithm import log1p_of_sum, log_float64
from .root import sqrt_float64

_ONE, _QUARTER = np.float32(1.0), np.float32(0.25)

# With e = exp(|x|) / 2, which is finite where exp(|x|) is not yet needed: cosh(x) = e + 1 / (4 e),
# and sinh(x) the difference from 1 on; below x + x^3 p(x^2).


_SINH_32 = polynomial(
    0.16666666497564578,
    0.008333350058471849,
    0.00019836159649793235,
    2.8169522010053787e-06,
)


_SINH_64 = polynomial(
    0.16666666666666669,
    0.008333333333333148,
    0.00019841269841431867,
    2.755731915707304e-06,
    2.505212313659418e-08,
    1.6057259775727957e-10,
    7.758748651306224e-13,
)


@piece
def _half_exp_float32(a):
    """exp(a) / 2 for a >= 0."""
    t, n = exp_parts_float32(pick(a > 90.5, 90.5, a))
    return scaled_float32(t + _ONE, int32(n - int32(1)))


@piece
def _half_exp_float64(a):
    """exp(a) / 2 for a >= 0."""
    t, n = exp_parts_float64(pick(a > 711.0, 711.0, a))
    return scaled_float64(t + 1.0, n - 1)


@formula
def cosh_float32(x):
    """Hyperbolic cosine."""
    e = _half_exp_float32(abs(x))
    return e + _QUARTER / e


@formula
def cosh_float64(x):
    """Hyperbolic cosine."""
    e = _half_exp_float64(abs(x))
    return e + 0.25 / e


@formula
def sinh_float32(x):
    """Hyperbolic sine."""
    a, z = abs(x), x * x
    e = _half_exp_float32(a)
    near = a + a * (z * _SINH_32(z))
    return math.copysign(pick(a > 1.0, e - _QUARTER / e, near), x)


@formula
def sinh_float64(x):
    """Hyperbolic sine."""
    a, z = abs(x), x * x
    e = _half_exp_float64(a)
    near = a + a * (z * _SINH_64(z))
    return math.copysign(pick(a > 1.0, e - 0.25 / e, near), x)


# The inverses of float32 are logarithms in float64, which loses nothing that float32 shows. Below
# 2^-12 they are x.


@formula
def asinh_float32(x):
    """Inverse hyperbolic sine."""
    a = float64(abs(x))
    out = log_float64(a + sqrt_float64(1.0 + a * a))
    return math.copysign(float32(pick(a < 2.0**-12, a, out)), x)


@formula
def acosh_float32(x):
    """Inverse hyperbolic cosine; NaN below 1."""
    a = float64(x)
    t = a - 1.0
    return float32(log_float64(pick(a < 1.0, math.nan, a) + sqrt_float64(t * (t + 2.0))))


@formula
def atanh_float32(x):
    """Inverse hyperbolic tangent; NaN beyond -1 and 1."""
    a = float64(abs(x))
    out = 0.5 * log_float64((1.0 + a) * inverse_float64(1.0 - a))
    out = pick(a == 1.0, math.inf, out)
    return math.copysign(float32(pick(a < 2.0**-12, a, out)), x)


# Those of float64 take a logarithm of a number and what its rounding left out, beyond 2^28 log(x).


@formula
def asinh_float64(x):
    """Inverse hyperbolic sine."""
    a = abs(x)
    large = a > 2.0**28
    b = pick(large, 1.0, a)
    z = b * b
    t = z / (1.0 + sqrt_float64(1.0 + z))
    v = b + t
    out = log1p_of_sum(pick(large, a, v), pick(large, -1.0, (b - v) + t))
    return math.copysign(out + pick(large, LN2_64, 0.0), x)


@formula
def _acosh_by_sums(x):
    """Inverse hyperbolic cosine; NaN below 1."""
    large = x > 2.0**28
    t = pick(large, 1.0, x) - 1.0
    u = t + 2.0
    p, rest = two_product(t, u)
    r = sqrt_float64(p)
    rest = times_plus(-r, r, p) + (rest + t * (t - (u - 2.0)))
    v = r + t
    low = ((r - v) + t) + rest * pick(t > 0.0, 0.5 / r, 0.0)
    out = log1p_of_sum(pick(large, x, v), pick(large, -1.0, low))
    return pick(x < 1.0, math.nan, out + pick(large, LN2_64, 0.0))


@formula
def _acosh_by_libm(x):
    """Inverse hyperbolic cosine; NaN below 1."""
    return math.acosh(x)


acosh_float64 = _acosh_by_sums if FUSED else _acosh_by_libm


@formula
def atanh_float64(x):
    """Inverse hyperbolic tangent; NaN beyond -1 and 1."""
    a = abs(x)
    d = 1.0 - a
    inverse = 1.0 / d
    v = (a + a) * inverse
    rest = times_plus(-v, d, a + a) - v * ((1.0 - d) - a)
    out = 0.5 * log1p_of_sum(v, pick(a < 1.0, rest * inverse, 0.0))
    return math.copysign(out, x)
