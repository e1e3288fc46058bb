"""The logarithm of the absolute value of the gamma function.

For a = abs(x) below 7 it is u (u - 1) p(u - 1/2) + log(q), where u is what a has behind the point,
the first term lgamma(1 + u), and q what the recurrence makes of it: 1 / a below 1. Above it is
Stirling's series, and below 0 -log(a sin(pi u) / pi) less the same of a (Abramowitz and Stegun,
6.1.15, 6.1.17, 6.1.41). No digit is lost around the zeros at 1 and 2, some of float64 around those
between -2 and -10. In float32 it is that of float64, half the time of libm's.
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64

from .decorators import formula, piece
from .exponential import LN2_HIGH64, LN2_LOW64
from .instructions import pick, polynomial
from .logarithm import parts_float64

_INF = float("inf")
_LEFT = 0.4189385332046727  # (log(2 pi) - 1) / 2


_NEAR = polynomial(
    0.4831289505409809,
    -0.14595989591430594,
    0.06291140107456485,
    -0.03130848750105327,
    0.01679709863121395,
    -0.009425622444829649,
    0.005446457842219553,
    -0.0032120742206072908,
    0.0019229162321227923,
    -0.001164411377219605,
    0.0007115202752051298,
    -0.00043803516132580534,
    0.00027130273545114005,
    -0.0001685717945035172,
    0.00010541715222185904,
    -6.793733027397047e-05,
    4.281642862794779e-05,
    -2.148770252062576e-05,
    1.3584275459130943e-05,
    -1.8527803997032962e-05,
    1.1820969445467145e-05,
)


_SINE = polynomial(
    1.0,
    -1.6449340668482264,
    0.8117424252833393,
    -0.19075182412149616,
    0.02614784780555096,
    -0.0023460808954639607,
    0.0001484278414189103,
    -6.972099660851199e-06,
    2.4502943624559793e-07,
)
"""sin(pi u) / (pi u) in powers of u^2."""


_STIRLING = polynomial(
    0.08333333333333333,
    -0.0027777777777604957,
    0.0007936507800219683,
    -0.0005952340412006908,
    0.0008411713778742415,
    -0.0018742720343858988,
    0.004740686775340597,
)
"""In powers of a^-2."""


@piece
def _lgamma(x):
    a = abs(x)
    n = np.floor(a)
    u = a - n
    below, far = x < 0.0, n >= 7.0
    q = pick(n >= 2.0, a - 1.0, 1.0)
    q = q * pick(n >= 3.0, a - 2.0, 1.0)
    q = q * pick(n >= 4.0, a - 3.0, 1.0)
    q = q * pick(n >= 5.0, a - 4.0, 1.0)
    q = q * pick(n >= 6.0, a - 5.0, 1.0)
    q = pick(n == 0.0, pick(below, 1.0, a), q)  # of x > -1 the logarithm of a leaves again
    e, f, h, rest = parts_float64(pick(far, a, q))
    low = rest + e * LN2_LOW64
    # Of a large a 1 less: a log(a) - a would lose digits, and overflow.
    logarithm = (e * LN2_HIGH64 - pick(far, 1.0, 0.0)) + (f - (h - low))
    inverse = 1.0 / a
    series = _LEFT + inverse * _STIRLING(inverse * inverse)
    times = pick(far, a - 0.5, pick(n == 0.0, -1.0, 1.0))
    out = times * logarithm + pick(far, series, u * (u - 1.0) * _NEAR(u - 0.5))
    r = pick(u > 0.5, 1.0 - u, u)
    e, f, h, rest = parts_float64(r * _SINE(r * r) * pick(n == 0.0, 1.0, a))
    low = rest + e * LN2_LOW64
    out = pick(below, -(e * LN2_HIGH64 + (f - (h - low))) - out, out)
    return pick((a == _INF) | ((x <= 0.0) & (u == 0.0)), _INF, out)


@formula
def lgamma_float32(x):
    """Logarithm of the absolute value of the gamma function."""
    return float32(_lgamma(float64(x)))


@formula
def lgamma_float64(x):
    """Logarithm of the absolute value of the gamma function."""
    return _lgamma(x)
