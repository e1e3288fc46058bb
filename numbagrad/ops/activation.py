"""Activations, each a scalar formula; tanh and sigmoid are in ``formulas.py``."""

from __future__ import annotations

import math

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import formula as scalar
from ..kernels import machine
from ..tensor import Tensor
from .autocasting import lowered
from .base import as_operand, same_device
from .from_formula import Elementwise
from .remembered import remembered

__all__ = [
    "celu",
    "elu",
    "gelu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "selu",
    "silu",
    "softplus",
    "softshrink",
    "softsign",
    "tanhshrink",
    "threshold",
]


class Relu(Elementwise):
    """max(x, 0); gradient 0 at 0."""

    def formula(x):
        return x if x > 0 or x != x else 0

    def grad_x(g, out):
        return 0 if out <= 0 else g  # NaN lets the gradient through, as in PyTorch


class LeakyRelu(Elementwise):
    """x where positive, else negative_slope * x."""

    def formula(x, negative_slope=0.01):
        return x if x > 0 else negative_slope * x


class Prelu(Elementwise):
    """x where positive, weight * x elsewhere."""

    def formula(x, weight):
        return x if x > 0 else weight * x


class Elu(Elementwise):
    """x where positive, else alpha * (exp(x) - 1)."""

    result = "float"

    def formula(x, alpha=1.0):
        return x if x > 0 else alpha * math.expm1(x)


class Gelu(Elementwise):
    """x times the normal distribution function of x (Hendrycks and Gimpel, 2016)."""

    result = "float"

    def formula(x):
        return 0.5 * x * (1 + math.erf(x * 0.7071067811865476))

    def grad_x(g, x):
        cdf = 0.5 * (1 + math.erf(x * 0.7071067811865476))
        pdf = 0.3989422804014327 * math.exp(-0.5 * x * x)
        return g * (cdf + x * pdf)


class GeluTanh(Elementwise):
    """The tanh approximation of gelu."""

    result = "float"

    def formula(x):
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + math.tanh(inner))


class Silu(Elementwise):
    """x * sigmoid(x)."""

    result = "float"

    def formula(x):
        return x * scalar.sigmoid(x)

    def grad_x(g, x):
        s = scalar.sigmoid(x)
        return g * s * (1 + x * (1 - s))


class Softplus(Elementwise):
    """log(1 + exp(beta * x)) / beta, linear where beta * x is above threshold."""

    result = "float"

    def formula(x, beta=1.0, threshold=20.0):
        z = beta * x
        return x if z > threshold else (max(z, 0) + math.log1p(math.exp(-abs(z)))) / beta

    def grad_x(g, x, beta, threshold):
        z = beta * x
        return g if z > threshold else g * scalar.sigmoid(z)


class LogSigmoid(Elementwise):
    """log(sigmoid(x)), stable for every x."""

    name = "logsigmoid"
    result = "float"

    def formula(x):
        return min(x, 0) - math.log1p(math.exp(-abs(x)))

    def grad_x(g, x):
        return g * scalar.sigmoid(-x)


class Hardtanh(Elementwise):
    """x limited to [min_val, max_val]; gradient 0 at the limits."""

    def formula(x, min_val=-1.0, max_val=1.0):
        return min(max(x, min_val), max_val)

    def grad_x(g, x, min_val, max_val):
        return g if x > min_val and x < max_val else 0


class Selu(Elementwise):
    """Elu scaled so that activations normalise themselves (Klambauer et al., 2017)."""

    result = "float"

    def formula(x):
        tail = 1.6732632423543772 * math.expm1(x)
        return 1.0507009873554805 * (x if x > 0 else tail)


class Celu(Elementwise):
    """x where positive, else alpha * (exp(x / alpha) - 1) (Barron, 2017)."""

    result = "float"

    def formula(x, alpha=1.0):
        return x if x > 0 else alpha * math.expm1(x / alpha)


class Softsign(Elementwise):
    """x / (1 + abs(x))."""

    result = "float"

    def formula(x):
        return x / (1 + abs(x))

    def grad_x(g, x):
        return g / ((1 + abs(x)) * (1 + abs(x)))


class Tanhshrink(Elementwise):
    """x - tanh(x)."""

    result = "float"

    def formula(x):
        return x - math.tanh(x)


class Hardshrink(Elementwise):
    """x outside of [-lambd, lambd], else 0."""

    def formula(x, lambd=0.5):
        return 0 if x >= -lambd and x <= lambd else x


class Softshrink(Elementwise):
    """x moved by lambd towards 0, and 0 within lambd of it."""

    def formula(x, lambd=0.5):
        return x - lambd if x > lambd else (x + lambd if x < -lambd else x * 0)


class Threshold(Elementwise):
    """x where above threshold, else value."""

    def formula(x, threshold, value):
        return value if x <= threshold else x


class Hardsigmoid(Elementwise):
    """x / 6 + 1 / 2, limited to [0, 1]; gradient 0 at the limits."""

    result = "float"

    def formula(x):
        return 0 if x <= -3 else (1 if x >= 3 else x / 6 + 0.5)


class Hardswish(Elementwise):
    """x * hardsigmoid(x) (Howard et al., 2019)."""

    result = "float"

    def formula(x):
        return 0 if x <= -3 else (x if x >= 3 else x * (x / 6 + 0.5))


class Mish(Elementwise):
    """x * tanh(softplus(x)) (Misra, 2019)."""

    result = "float"

    def formula(x):
        return x * math.tanh(max(x, 0) + math.log1p(math.exp(-abs(x))))

    def grad_x(g, x):
        t = math.tanh(max(x, 0) + math.log1p(math.exp(-abs(x))))
        return g * (t + x * (1 - t * t) * scalar.sigmoid(x))


relu = Relu.function
leaky_relu = LeakyRelu.function
elu = Elu.function
silu = Silu.function
softplus = Softplus.function
logsigmoid = LogSigmoid.function
selu = Selu.function
celu = Celu.function
softsign = Softsign.function
tanhshrink = Tanhshrink.function
hardshrink = Hardshrink.function
threshold = Threshold.function
hardsigmoid = Hardsigmoid.function
hardswish = Hardswish.function
mish = Mish.function


@remembered
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution function of x; approximate="tanh" is the faster form."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate argument must be 'none' or 'tanh', got {approximate}.")
    return GeluTanh.op(x) if approximate == "tanh" else Gelu.op(x)


@remembered
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """``input`` limited to [min_val, max_val]; gradient 0 at the limits.

    The limits of ints lose their fractions. Raises ValueError if min_val is above max_val,
    DTypeError for bools and for negative limits of uint8.

    >>> hardtanh(tensor([-2.0, 0.5, 3.0])).tolist()
    [-1.0, 0.5, 1.0]
    """
    if min_val > max_val:
        raise ValueError(
            f"hardtanh: min_val cannot be greater than max_val, but they are {min_val} and "
            f"{max_val}. Exchange them."
        )
    dtype = as_operand("hardtanh", input)._dtype
    if not dtype.is_floating_point:
        if dtype is dtypes.bool_ or (dtype is dtypes.uint8 and min(min_val, max_val) < 0):
            raise DTypeError(
                f"hardtanh: not possible for {dtype} with limits {min_val} and {max_val}. "
                f"Convert x, with .float() say."
            )
        min_val, max_val = int(min_val), int(max_val)
    return Hardtanh.op(input, min_val, max_val)


@remembered
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """``input`` moved by ``lambd`` towards 0, and 0 within ``lambd`` of it.

    Raises ValueError if lambd is negative.

    >>> softshrink(tensor([-2.0, 0.25, 3.0])).tolist()
    [-1.5, 0.0, 2.5]
    """
    if not lambd >= 0:
        raise ValueError(f"softshrink: lambda must be greater or equal to 0, but found {lambd}.")
    return Softshrink.op(input, lambd)


@remembered
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """``x`` where positive, else times ``weight``: one slope, or one per channel (dim 1).

    >>> prelu(tensor([-2.0, 3.0]), tensor([0.5])).tolist()
    [-1.0, 3.0]
    """
    if machine.autocasting:
        x, weight = lowered(x, weight)
    shape = as_operand("prelu", x)._array.shape
    slopes = as_operand("prelu", weight, 1)._array.size
    if weight._array.ndim > 1:
        raise ShapeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got {list(weight.shape)}."
        )
    same_device("prelu", (x, weight))
    if slopes == 1:
        weight = weight.reshape(())
    else:
        if len(shape) < 2 or shape[1] != slopes:
            raise ShapeError(
                f"prelu: Mismatch of parameter numbers and input channel size: {slopes} slopes, "
                f"input {list(shape)}. Pass one slope, or as many as dimension 1 has entries."
            )
        weight = weight.view(-1, *[1] * (len(shape) - 2))
    return Prelu.op(x, weight)


METHODS = {"hardshrink": hardshrink, "prelu": prelu, "relu": relu}
INPLACE = {"relu_": relu}
