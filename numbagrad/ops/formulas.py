"""The elementwise operations: each a scalar formula with, where it is better, its gradient.

``g`` is the incoming gradient and ``out`` the result; the names a gradient uses decide what is
saved. A gradient that is not written is derived. The functions that users call are in
``elementwise.py``. ``comparison.py`` and ``activation.py`` have formulas beside their functions.
"""

from __future__ import annotations

import math

from ..kernels import formula as scalar
from .factor_last import FactorLast
from .from_formula import Elementwise

# -- arithmetic ------------------------------------------------------------------------------------


class Add(Elementwise):
    """x + y."""

    def formula(x, y):
        return x + y


class AddScaled(Elementwise):
    """x + alpha * y."""

    def formula(x, y, alpha):
        return x + alpha * y


class Sub(Elementwise):
    """x - y."""

    def formula(x, y):
        return x - y


class Mul(Elementwise):
    """x * y."""

    def formula(x, y):
        return x * y

    def twice(g, x):
        return g * x * 2


class Div(Elementwise):
    """x / y; integers divide to the default float."""

    result = "float"

    def formula(x, y):
        return x / y


class FloorDivide(Elementwise):
    """The largest integer not above x / y."""

    def formula(x, y):
        return x // y


class TruncDivide(Elementwise):
    """The integer x / y without what is behind its point; of integers."""

    def formula(x, y):
        floor = x // y if y != -1 else -x  # the least number has no opposite, and stays
        return floor + 1 if floor < 0 and floor * y != x else floor


class Remainder(Elementwise):
    """x - y * floor(x / y), with the sign of y."""

    def formula(x, y):
        return x % y


class Neg(Elementwise):
    """-x."""

    def formula(x):
        return -x


class Pow(Elementwise):
    """x ** y."""

    def formula(x, y):
        return x**y


class Square(Elementwise):
    """x * x."""

    def formula(x):
        return x * x


class Cube(Elementwise):
    """x * x * x."""

    def formula(x):
        return x * x * x


class Reciprocal(Elementwise):
    """1 / x."""

    result = "float"

    def formula(x):
        return 1 / x

    def grad_x(g, out):
        return -g * out * out


class Abs(Elementwise):
    """Absolute value; gradient 0 at 0."""

    def formula(x):
        return abs(x)


class Sign(Elementwise):
    """-1, 0 or 1."""

    def formula(x):
        return scalar.sign(x)


class Maximum(Elementwise):
    """The larger one; NaN if either is; ties share the gradient."""

    def formula(x, y):
        return max(x, y)


class Minimum(Elementwise):
    """The smaller one; NaN if either is; ties share the gradient."""

    def formula(x, y):
        return min(x, y)


class Lerp(Elementwise):
    """x + weight * (y - x), from the nearer end: with weight 1 it is y."""

    def formula(x, y, weight):
        near = abs(weight) < 0.5
        return (x if near else y) + (weight if near else weight - 1) * (y - x)


class Addcmul(Elementwise):
    """x + value * y * z."""

    kind = FactorLast

    def formula(x, y, z, value=1):
        return x + value * y * z


class Addcdiv(Elementwise):
    """x + value * y / z."""

    kind = FactorLast

    def formula(x, y, z, value=1):
        return x + value * y / z


# -- exponentials, logarithms, roots ---------------------------------------------------------------


class Exp(Elementwise):
    """e ** x."""

    result = "float"

    def formula(x):
        return math.exp(x)

    def grad_x(g, out):
        return g * out


class Expm1(Elementwise):
    """e ** x - 1, accurate near 0."""

    result = "float"

    def formula(x):
        return math.expm1(x)

    def grad_x(g, out):
        return g * (out + 1)


class Log(Elementwise):
    """Natural logarithm."""

    result = "float"

    def formula(x):
        return math.log(x)


class Log2(Elementwise):
    """Logarithm to base 2."""

    result = "float"

    def formula(x):
        return math.log2(x)


class Log10(Elementwise):
    """Logarithm to base 10."""

    result = "float"

    def formula(x):
        return math.log10(x)


class Log1p(Elementwise):
    """log(1 + x), accurate near 0."""

    result = "float"

    def formula(x):
        return math.log1p(x)


class Sqrt(Elementwise):
    """Square root; gradient inf at 0."""

    result = "float"

    def formula(x):
        return math.sqrt(x)

    def grad_x(g, out):
        return g / (2 * out)


class Rsqrt(Elementwise):
    """1 / sqrt(x)."""

    result = "float"

    def formula(x):
        return 1 / math.sqrt(x)

    def grad_x(g, out):
        return -0.5 * g * out * out * out


# -- trigonometry ----------------------------------------------------------------------------------


class Sin(Elementwise):
    """Sine of an angle in radians."""

    result = "float"

    def formula(x):
        return math.sin(x)


class Cos(Elementwise):
    """Cosine of an angle in radians."""

    result = "float"

    def formula(x):
        return math.cos(x)


class Tan(Elementwise):
    """Tangent of an angle in radians."""

    result = "float"

    def formula(x):
        return math.tan(x)

    def grad_x(g, out):
        return g * (1 + out * out)


class Asin(Elementwise):
    """Inverse sine, in radians."""

    result = "float"

    def formula(x):
        return math.asin(x)


class Acos(Elementwise):
    """Inverse cosine, in radians."""

    result = "float"

    def formula(x):
        return math.acos(x)


class Atan(Elementwise):
    """Inverse tangent, in radians."""

    result = "float"

    def formula(x):
        return math.atan(x)


class Atan2(Elementwise):
    """The angle of the point (y, x), in radians."""

    result = "float"

    def formula(x, y):
        return math.atan2(x, y)


class Sinh(Elementwise):
    """Hyperbolic sine."""

    result = "float"

    def formula(x):
        return math.sinh(x)


class Cosh(Elementwise):
    """Hyperbolic cosine."""

    result = "float"

    def formula(x):
        return math.cosh(x)


class Tanh(Elementwise):
    """Hyperbolic tangent."""

    result = "float"

    def formula(x):
        return math.tanh(x)

    def grad_x(g, out):
        return g * (1 - out * out)


class Erf(Elementwise):
    """Error function."""

    result = "float"

    def formula(x):
        return math.erf(x)


class Sigmoid(Elementwise):
    """1 / (1 + exp(-x)), stable for every x."""

    result = "float"

    def formula(x):
        return scalar.sigmoid(x)

    def grad_x(g, out):
        return g * out * (1 - out)


class Logit(Elementwise):
    """log(x / (1 - x)), the inverse of sigmoid; NaN outside of [0, 1], as its gradient."""

    result = "float"

    def formula(x):
        return math.log(x / (1 - x))

    def grad_x(g, x):
        return g / (x * (1 - x)) if x >= 0 and x <= 1 else math.nan


# -- rounding --------------------------------------------------------------------------------------


class Floor(Elementwise):
    """The largest integer not above x."""

    def formula(x):
        return math.floor(x)


class Ceil(Elementwise):
    """The smallest integer not below x."""

    def formula(x):
        return math.ceil(x)


class Trunc(Elementwise):
    """x without its fraction."""

    def formula(x):
        return math.trunc(x)


class Round(Elementwise):
    """The nearest integer, ties to even."""

    def formula(x):
        return scalar.rint(x)


# -- selection -------------------------------------------------------------------------------------


class Where(Elementwise):
    """x where condition holds, else y."""

    def formula(condition, x, y):
        return x if condition else y


class Clamp(Elementwise):
    """x limited to [low, high], high where low is larger; gradient 1 at the limits; NaN stays."""

    def formula(x, low, high):
        return min(max(x, low), high)

    def grad_x(g, x, low, high):
        return g if x >= low and x <= high else 0

    def grad_low(g, x, low, high):
        return g if x < low and low < high else 0

    def grad_high(g, x, low, high):
        return g if x > high or low > high else 0


class ClampMin(Elementwise):
    """x, at least low; NaN if either is."""

    def formula(x, low):
        return max(x, low)

    def grad_x(g, x, low):
        return g if x >= low else 0

    def grad_low(g, x, low):
        return g if x < low else 0


class ClampMax(Elementwise):
    """x, at most high; NaN if either is."""

    def formula(x, high):
        return min(x, high)

    def grad_x(g, x, high):
        return g if x <= high else 0

    def grad_high(g, x, high):
        return g if x > high else 0


class MaskedFill(Elementwise):
    """value where mask holds, else x."""

    def formula(x, mask, value):
        return value if mask else x


class Fill(Elementwise):
    """value everywhere; what fill_ records."""

    def formula(x, value):
        return value


class NanToNum(Elementwise):
    """x with NaN, inf and -inf replaced."""

    def formula(x, nan, posinf, neginf):
        return nan if math.isnan(x) else (x if abs(x) < math.inf else (posinf if x > 0 else neginf))
