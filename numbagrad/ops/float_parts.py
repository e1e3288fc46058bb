"""The exponents of floating numbers: taken off, put on, and the next number there is."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .. import dtypes
from ..errors import DTypeError, GradError
from ..tensor import Tensor
from .base import Op, as_operand
from .elementwise import cast, neg
from .from_formula import Elementwise
from .remembered import remembered

__all__ = ["frexp", "ldexp", "nextafter"]


class Ldexp(Elementwise):
    """x * 2 ** y, in two steps: 2 ** y alone may leave the range where the result does not.

    0 and infinities stay: times a power that has left the range they would be NaN.
    """

    result = "float"

    def formula(x, y):
        half = math.trunc(y / 2)
        stays = (x == 0 or abs(x) == math.inf) and y == y
        return x if stays else x * math.exp2(half) * math.exp2(y - half)

    def grad_x(g, y):
        half = math.trunc(y / 2)
        return g * math.exp2(half) * math.exp2(y - half)

    def grad_y(g, out):
        return g * out * math.log(2)


def ldexp(x: Tensor, other: Tensor) -> Tensor:
    """``x * 2 ** other``; tensors that broadcast, and ints give the default float.

    Gradients: ``g * 2 ** other``, and ``g * out * log(2)`` where other is floating.

    >>> ldexp(tensor([1.0, 3.0]), tensor([4, -1])).tolist()
    [16.0, 1.5]
    """
    return Ldexp.op.binary(as_operand("ldexp", x), as_operand("ldexp", other, 1))


class Exponent(Elementwise):
    """The y for which abs(x) / 2 ** y is in [0.5, 1); 0 for 0, infinities and NaN."""

    def formula(x):
        size = abs(x)
        guess = math.floor(math.log2(size)) + 1
        half = math.trunc(guess / 2)
        left = size / math.exp2(half) / math.exp2(guess - half)
        found = guess + 1 if left >= 1 else (guess - 1 if left < 0.5 else guess)
        return found if size > 0 and size < math.inf else 0


class Frexp(NamedTuple):
    """What ``frexp`` returns."""

    mantissa: Tensor
    exponent: Tensor


@remembered
def frexp(x: Tensor) -> Frexp:
    """``x`` as ``mantissa * 2 ** exponent``, abs(mantissa) in [0.5, 1); exponent is int32.

    0, infinities and NaN are their own mantissa, with exponent 0. Gradient: ``g / 2 ** exponent``
    of the mantissa. Raises DTypeError for ints.

    >>> [part.tolist() for part in frexp(tensor([6.0, 0.0]))]
    [[0.75, 0.0], [3, 0]]
    """
    if not as_operand("frexp", x)._dtype.is_floating_point:
        raise DTypeError(
            f"frexp: only supports floating-point dtypes, got {x._dtype}. Convert it with .float()."
        )
    exponent = Exponent.op.unary(x.detach())
    return Frexp(Ldexp.op.binary(x, neg(exponent)), cast(exponent, dtypes.int32))


class Towards(Elementwise):
    """The number next to x on the side of y; Rump, Zimmermann, Boldo, Melquiond (BIT, 2009).

    step: a little more than half the precision. Where ``step * x`` would lose digits for being too
    small, the step is taken of a larger number. smallest, normal, largest: of the dtype above 0;
    scale: a power of two.
    """

    def formula(x, y, step, smallest, normal, largest, scale):
        size = abs(x)
        small = normal * scale
        far = size + size * step
        middle = (size * scale + size * scale * step) / scale
        out = far if size >= small else (middle if size >= normal else size + smallest)
        far_in = size - size * step
        middle_in = (size * scale - size * scale * step) / scale
        into = far_in if size > small else (middle_in if size > normal else size - smallest)
        into = largest if size == math.inf else into
        up = (out if x >= 0 else -into) if x != 0 else smallest
        down = (into if x > 0 else -out) if x != 0 else -smallest
        moved = up if y > x else down
        return y if x == y or y != y else (x if x != x else moved)


class NextAfter(Op):
    """``Towards``, without a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, numbers: tuple) -> Tensor:
        return Towards.op(x, y, *numbers)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        raise GradError("nextafter: the derivative is not implemented. Use x.detach().")


@remembered
def nextafter(x: Tensor, other: Tensor) -> Tensor:
    """The number next to ``x`` that the dtype has, on the way to ``other``; ``other`` if equal.

    float32 or float64 tensors that broadcast. Backward raises GradError. Raises DTypeError for
    ints and halves.

    >>> nextafter(tensor([1.0]), tensor([2.0])).item() - 1
    1.1920928955078125e-07
    """
    given = []
    for i, value in enumerate((x, other)):
        given.append((as_operand("nextafter", value, i)._dtype, 2 if value._array.ndim else 1))
    dtype = dtypes.result_type(given)
    for kind, _ in given:
        if kind not in (dtypes.float32, dtypes.float64):
            raise DTypeError(f"nextafter: not implemented for {kind}. Convert it with .float().")
    about = dtypes.finfo(dtype)
    eps, normal = float(about.eps), float(about.tiny)
    numbers = eps / 2 * (1 + 2 * eps), normal * eps, normal, float(about.max), 2 / eps
    return NextAfter.apply(cast(x, dtype), cast(other, dtype), numbers)


METHODS: dict[str, Any] = {name: globals()[name] for name in __all__}
INPLACE: dict[str, Any] = {"ldexp_": ldexp, "nextafter_": nextafter}
