"""sinh and cosh."""

from __future__ import annotations

import math

import numpy as np
from numba import int32

from .decorators import formula, piece
from .exponential import exp_parts_float32, exp_parts_float64, scaled_float32, scaled_float64
from .instructions import pick, polynomial

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
