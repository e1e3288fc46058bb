"""The rarer elementwise functions: inverse hyperbolic, error, remainders, logarithms of sums.

Each is a scalar formula, as those of ``formulas.py``, with its gradient beside it where the derived
one would be wrong at a point or lose digits.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import DTypeError
from ..kernels import formula as scalar
from ..tensor import Tensor
from . import formulas as f
from .base import as_operand
from .from_formula import Elementwise
from .normal_quantile import erfinv

__all__ = [
    "acosh",
    "arccosh",
    "arcsinh",
    "arctanh",
    "asinh",
    "atanh",
    "copysign",
    "erfc",
    "erfinv",
    "exp2",
    "fmax",
    "fmin",
    "fmod",
    "frac",
    "heaviside",
    "hypot",
    "logaddexp",
    "sgn",
    "signbit",
    "sinc",
    "xlogy",
]


class Exp2(Elementwise):
    """2 ** x."""

    result = "float"

    def formula(x):
        return math.exp2(x)


class Erfc(Elementwise):
    """1 - erf(x), accurate where that is nearly 0."""

    result = "float"

    def formula(x):
        return math.erfc(x)


class Asinh(Elementwise):
    """Inverse hyperbolic sine."""

    result = "float"

    def formula(x):
        return math.asinh(x)


class Acosh(Elementwise):
    """Inverse hyperbolic cosine; NaN below 1."""

    result = "float"

    def formula(x):
        return math.acosh(x)


class Atanh(Elementwise):
    """Inverse hyperbolic tangent; NaN outside of [-1, 1]."""

    result = "float"

    def formula(x):
        return math.atanh(x)


class Fmod(Elementwise):
    """What x / y, rounded towards 0, leaves of x: with the sign of x."""

    def formula(x, y):
        left = abs(x) % abs(y)
        return -left if x < 0 else left

    def grad_x(g):
        return g

    def grad_y(g, x, y):
        return -g * math.trunc(x / y)


class Frac(Elementwise):
    """x - trunc(x)."""

    def formula(x):
        return x - math.trunc(x)


class Hypot(Elementwise):
    """sqrt(x * x + y * y) without overflow; gradient 0 at the origin."""

    def formula(x, y):
        return math.hypot(x, y)


LN_2 = math.log(2.0)
LOG2_E = 1 / LN_2


class Logaddexp(Elementwise):
    """log(exp(x) + exp(y)), stable for every x and y."""

    def formula(x, y):
        gap = abs(x - y)
        return x if x == y and abs(x) == math.inf else max(x, y) + math.log1p(math.exp(-gap))

    def grad_x(g, x, y):
        return g * scalar.sigmoid(x - y)

    def grad_y(g, x, y):
        return g * scalar.sigmoid(y - x)


class Logaddexp2(Elementwise):
    """log2(2 ** x + 2 ** y), stable for every x and y."""

    def formula(x, y):
        gap = abs(x - y)
        more = math.log1p(math.exp2(-gap)) * LOG2_E
        return x if x == y and abs(x) == math.inf else max(x, y) + more

    def grad_x(g, x, y):
        return g * scalar.sigmoid((x - y) * LN_2)

    def grad_y(g, x, y):
        return g * scalar.sigmoid((y - x) * LN_2)


class Xlogy(Elementwise):
    """x * log(y), and 0 where x is 0 unless y is NaN."""

    result = "float"

    def formula(x, y):
        return 0 if x == 0 and y == y else x * math.log(y)

    def grad_x(g, x, y):
        return 0 if x == 0 and y <= 0 else g * math.log(y)

    def grad_y(g, x, y):
        # The derived one is 0 where x is 0, and so would be its derivative by x.
        return 0 if x == 0 and y == 0 else g * x / y


class Sinc(Elementwise):
    """sin(pi x) / (pi x), and 1 at 0."""

    result = "float"

    def formula(x):
        a = math.pi * x
        return 1 if x == 0 else math.sin(a) / a

    def grad_x(g, x):
        # Near 0 the closed form cancels; Taylor's series is exact to rounding below 0.3.
        a = math.pi * x
        b = a * a
        series = b * (1 / 840 - b * (1 / 45360 - b * (1 / 3991680)))
        near = -a * (1 / 3 - b * (1 / 30 - series))
        far = (a * math.cos(a) - math.sin(a)) / b
        return g * math.pi * (near if b < 0.09 else far)


class Signbit(Elementwise):
    """Whether x is negative; -0.0 is."""

    result = "bool"

    def formula(x):
        return math.copysign(1, x) < 0


class Heaviside(Elementwise):
    """0 where x is negative, 1 where positive, values where 0."""

    def formula(x, values):
        return values if x == 0 else (1 if x > 0 else 0)


class Copysign(Elementwise):
    """The absolute value of x with the sign of y, -0.0 being negative; flat in y."""

    result = "float"

    def formula(x, y):
        return math.copysign(x, y)


class Fmax(Elementwise):
    """The larger one, or the one that is not NaN; of ties x gets the gradient."""

    def formula(x, y):
        return x if x >= y or y != y else y

    def grad_x(g, x, y):
        return g if x >= y or y != y else 0

    def grad_y(g, x, y):
        return 0 if x >= y or y != y else g


class Fmin(Elementwise):
    """The smaller one, or the one that is not NaN; of ties x gets the gradient."""

    def formula(x, y):
        return x if x <= y or y != y else y

    def grad_x(g, x, y):
        return g if x <= y or y != y else 0

    def grad_y(g, x, y):
        return 0 if x <= y or y != y else g


exp2 = Exp2.function
erfc = Erfc.function
asinh = arcsinh = Asinh.function
acosh = arccosh = Acosh.function
atanh = arctanh = Atanh.function
copysign = Copysign.function
fmax = Fmax.function
fmin = Fmin.function
xlogy = Xlogy.function
sinc = Sinc.function
sgn = f.Sign.function
signbit = Signbit.function


def _floating(name: str, *operands: Any) -> None:
    for position, operand in enumerate(operands):
        if not as_operand(name, operand, position)._dtype.is_floating_point:
            raise DTypeError(
                f"{name}: not implemented for {operand._dtype}. Convert it with .float()."
            )


def both_floating(name: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Operands of which one is floating, as another is then too."""
    if isinstance(x, Tensor) and isinstance(y, Tensor) and x._dtype is y._dtype:
        if x._dtype.is_floating_point:
            return x, y
    dtypes = [as_operand(name, v, i)._dtype for i, v in enumerate((x, y))]
    if not dtypes[0].is_floating_point:
        _floating(name, y)
        return x.to(dtypes[1]), y
    return x, y if dtypes[1].is_floating_point else y.to(dtypes[0])


def fmod(x: Tensor, y: Any) -> Tensor:
    """What the division of x by y, rounded towards 0, leaves: it has the sign of x.

    y: a tensor or a number. Gradients: g, and ``-g * trunc(x / y)``. Raises DTypeError for bools.
    """
    kinds = [as_operand("fmod", x)._dtype.name, getattr(getattr(y, "_dtype", None), "name", "")]
    if kinds[0] == "bool" and (kinds[1] == "bool" or isinstance(y, bool)):
        raise DTypeError("fmod: not implemented for bool. Convert it with .int().")
    return Fmod.op.binary(x, y)


def frac(x: Tensor) -> Tensor:
    """x - trunc(x), with the sign of x. Gradient: g. Raises DTypeError unless x is floating."""
    _floating("frac", x)
    return Frac.op.unary(x)


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """sqrt(x * x + y * y) without overflow; tensors, one of them floating, broadcast.

    Gradient 0 at (0, 0).
    """
    return Hypot.op.binary(*both_floating("hypot", x, y))


def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    """log(exp(x) + exp(y)) of tensors, one of them floating, broadcast, without overflow.

    Gradients: ``g * sigmoid(x - y)`` and ``g * sigmoid(y - x)``.
    """
    return Logaddexp.op.binary(*both_floating("logaddexp", x, y))


def heaviside(x: Tensor, values: Tensor) -> Tensor:
    """0 where x is negative (or NaN), 1 where it is positive, ``values`` where it is 0.

    Gradient 0 for x, and g where x is 0 for values. Raises DTypeError if the dtypes differ.
    """
    as_operand("heaviside", x)
    as_operand("heaviside", values, 1)
    if x._dtype is not values._dtype:
        raise DTypeError(
            f"heaviside: not implemented for tensors with different dtypes, got {x._dtype} and "
            f"{values._dtype}. Convert one of them."
        )
    return Heaviside.op.binary(x, values)


METHODS: dict[str, Any] = {name: globals()[name] for name in __all__}

_IN_PLACE = """
    acosh arccosh arcsinh arctanh asinh atanh copysign erfc erfinv exp2 fmod frac heaviside hypot
    sgn sinc xlogy
""".split()
INPLACE: dict[str, Any] = {f"{name}_": globals()[name] for name in _IN_PLACE}
