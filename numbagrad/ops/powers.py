"""Powers that cost less than ``x ** y``: ``BY_EXPONENT``."""

from __future__ import annotations

import math

from .formulas import Cube, Square
from .from_formula import Elementwise

__all__: list[str] = []  # nothing that users call


class PowHalf(Elementwise):
    """x ** 0.5. Its gradient reads x, as that of a power does: the result may be changed."""

    result = "float"

    def formula(x):
        return math.sqrt(x)

    def grad_x(g, x):
        return g / (2 * math.sqrt(x))


class PowMinusHalf(Elementwise):
    """x ** -0.5, likewise."""

    result = "float"

    def formula(x):
        return 1 / math.sqrt(x)

    def grad_x(g, x):
        return -0.5 * g / (x * math.sqrt(x))


class PowMinusOne(Elementwise):
    """x ** -1, likewise."""

    result = "float"

    def formula(x):
        return 1 / x

    def grad_x(g, x):
        return -g / (x * x)


BY_EXPONENT = {
    2: Square.op, 3: Cube.op, 0.5: PowHalf.op, -0.5: PowMinusHalf.op, -1: PowMinusOne.op
}  # fmt: skip
