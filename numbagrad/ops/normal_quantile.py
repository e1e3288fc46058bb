"""The inverses of the normal distribution function and of erf, as formulas.

Reference: Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied
Statistics 37, 1988 (PPND16): relative error about 1e-16.
"""

from __future__ import annotations

import math
from typing import Any

from .from_formula import Elementwise

__all__ = ["erfinv", "ndtri"]


def _centre(q: float) -> float:
    """The quantile of 0.5 + q, abs(q) <= 0.425."""
    r = 0.180625 - q * q
    above = 2.5090809287301226727e3 * r + 3.3430575583588128105e4
    above = (above * r + 6.7265770927008700853e4) * r + 4.5921953931549871457e4
    above = (above * r + 1.3731693765509461125e4) * r + 1.9715909503065514427e3
    above = (above * r + 1.3314166789178437745e2) * r + 3.3871328727963666080
    below = 5.2264952788528545610e3 * r + 2.8729085735721942674e4
    below = (below * r + 3.9307895800092710610e4) * r + 2.1213794301586595867e4
    below = (below * r + 5.3941960214247511077e3) * r + 6.8718700749205790830e2
    below = (below * r + 4.2313330701600911252e1) * r + 1.0
    return q * above / below


def _shoulder(r: float) -> float:
    """The quantile of 1 - exp(-r * r), r <= 5."""
    r = r - 1.6
    above = 7.74545014278341407640e-4 * r + 2.27238449892691845833e-2
    above = (above * r + 2.41780725177450611770e-1) * r + 1.27045825245236838258
    above = (above * r + 3.64784832476320460504) * r + 5.76949722146069140550
    above = (above * r + 4.63033784615654529590) * r + 1.42343711074968357734
    below = 1.05075007164441684324e-9 * r + 5.47593808499534494600e-4
    below = (below * r + 1.51986665636164571966e-2) * r + 1.48103976427480074590e-1
    below = (below * r + 6.89767334985100004550e-1) * r + 1.67638483018380384940
    below = (below * r + 2.05319162663775882187) * r + 1.0
    return above / below


def _tail(r: float) -> float:
    """The quantile of 1 - exp(-r * r), r > 5."""
    r = r - 5
    above = 2.01033439929228813265e-7 * r + 2.71155556874348757815e-5
    above = (above * r + 1.24266094738807843860e-3) * r + 2.65321895265761230930e-2
    above = (above * r + 2.96560571828504891230e-1) * r + 1.78482653991729133580
    above = (above * r + 5.46378491116411436990) * r + 6.65790464350110377720
    below = 2.04426310338993978564e-15 * r + 1.42151175831644588870e-7
    below = (below * r + 1.84631831751005468180e-5) * r + 7.86869131145613259100e-4
    below = (below * r + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1
    below = (below * r + 5.99832206555887937690e-1) * r + 1.0
    return above / below


def _quantile(q: float, least: float) -> float:
    """The quantile of 0.5 + q; least: the smaller of it and of what it leaves to 1."""
    r = math.sqrt(-math.log(least))
    far = _shoulder(r) if r <= 5 else _tail(r)
    far = math.copysign(math.inf if least == 0 else far, q)
    return _centre(q) if abs(q) <= 0.425 else far


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
