"""The inverses of the normal distribution function and of erf, as formulas.

Reference: Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied
Statistics 37, 1988 (PPND16): relative error about 1e-16.
"""

from __future__ import annotations

import math
from typing import Any

from .from_formula import Elementwise
from .polynomial import polynomial

__all__ = ["erfinv", "ndtri"]


_above_centre = polynomial(
    (
        3.3871328727963666080,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    )
)
_below_centre = polynomial(
    (
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    )
)
_above_shoulder = polynomial(
    (
        1.42343711074968357734,
        4.63033784615654529590,
        5.76949722146069140550,
        3.64784832476320460504,
        1.27045825245236838258,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    )
)
_below_shoulder = polynomial(
    (
        1.0,
        2.05319162663775882187,
        1.67638483018380384940,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    )
)
_above_tail = polynomial(
    (
        6.65790464350110377720,
        5.46378491116411436990,
        1.78482653991729133580,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    )
)
_below_tail = polynomial(
    (
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    )
)
"""Powers, lowest first, of what is divided by what: for q from -0.425 to 0.425, up to r = 5, and
beyond."""


def _quantile(q: float, least: float) -> float:
    """The quantile of 0.5 + q; least: the smaller of it and of what it leaves to 1.

    One division: three would take a third of the time.
    """
    r = math.sqrt(-math.log(least))
    u, v, w = 0.180625 - q * q, r - 1.6, r - 5
    above = _above_shoulder(v) if r <= 5 else _above_tail(w)
    below = _below_shoulder(v) if r <= 5 else _below_tail(w)
    above = math.copysign(math.inf if least == 0 else above, q)
    above = q * _above_centre(u) if abs(q) <= 0.425 else above
    return above / (_below_centre(u) if abs(q) <= 0.425 else below)


class Ndtri(Elementwise):
    """Below what a normal number lies with the chance x: infinite at 0 and 1, NaN outside.

    >>> ng.special.ndtri(tensor([0.5])).tolist()
    [0.0]
    """

    result = "float"
    domain = (0.01, 0.99)

    def formula(x):
        return _quantile(x - 0.5, min(x, 1 - x))

    def grad_x(g, out):
        return g * math.sqrt(2 * math.pi) * math.exp(0.5 * out * out)


class Erfinv(Elementwise):
    """The inverse of erf: infinite at -1 and 1, NaN outside."""

    result = "float"
    domain = (-0.9, 0.9)

    def formula(x):
        return math.sqrt(0.5) * _quantile(0.5 * x, 0.5 * (1 - abs(x)))

    def grad_x(g, out):
        return g * (0.5 * math.sqrt(math.pi)) * math.exp(out * out)


ndtri: Any = Ndtri.function
erfinv: Any = Erfinv.function
