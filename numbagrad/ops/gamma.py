"""The logarithm of the gamma function, and its derivatives: ``lgamma`` and ``digamma``."""

from __future__ import annotations

import math
from typing import Any

from .pointwise import Elementwise

__all__ = ["digamma", "lgamma"]


class Digamma(Elementwise):
    """The derivative of lgamma; NaN at negative integers, -inf at 0.

    By ``psi(x) = psi(x + 8) - sum of 1 / (x + k)``, Stirling's series there, and the reflection
    ``psi(x) = psi(1 - x) - pi / tan(pi x)`` below 0 (Abramowitz and Stegun, 6.3). Its derivatives
    are those of these terms, which are as exact.
    """

    result = "float"
    domain = (-2.8, 4.0)

    def formula(x):
        y = x if x > 0 else 1 - x
        z = y + 8
        u = 1 / (z * z)
        tail = u * (1 / 132 - u * (691 / 32760 - u * (1 / 12 - u * (3617 / 8160))))
        tail = u * (1 / 12 - u * (1 / 120 - u * (1 / 252 - u * (1 / 240 - tail))))
        passed = 1 / y + 1 / (y + 1) + 1 / (y + 2) + 1 / (y + 3)
        passed = passed + 1 / (y + 4) + 1 / (y + 5) + 1 / (y + 6) + 1 / (y + 7)
        found = math.log(z) - 0.5 / z - tail - passed
        if x > 0:
            return found
        if x == 0:
            return math.copysign(math.inf, -x)
        r = x - round(x)  # tan has the period pi, and pi * x few digits
        return math.nan if r == 0 else found - math.pi / math.tan(math.pi * r)


digamma = Digamma.function


class Lgamma(Elementwise):
    """The logarithm of the absolute value of the gamma function; infinite at 0, -1, -2 ..."""

    result = "float"
    domain = (-2.8, 4.0)

    def formula(x):
        return math.lgamma(x)

    def grad_x(g, x):
        return g * digamma(x)


lgamma = Lgamma.function

METHODS: dict[str, Any] = {name: globals()[name] for name in __all__}

INPLACE: dict[str, Any] = {f"{name}_": globals()[name] for name in __all__}
