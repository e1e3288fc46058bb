"""The zeta function of Hurwitz, ``sum of (q + k) ** -s`` over k = 0, 1, 2 ...

Ten terms, and the rest by Euler and Maclaurin's formula (Abramowitz and Stegun, 23.1.30). Start
reading at ``Hurwitz``.
"""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..errors import GradError
from ..tape import NUMBERS
from ..tensor import Tensor
from .base import Op, as_operand, full, sum_to_shape
from .elementwise import cast
from .from_formula import Elementwise

__all__ = ["zeta"]


def _rest(s: float, a: float) -> float:
    """The sum with a for q, good for a >= 10; the factors are B2 / 2!, B4 / 4! ..."""
    u = 1 / (a * a)
    tail = (s + 13) * (s + 14) * u * (-3617 / 10670622842880000)
    tail = (s + 11) * (s + 12) * u * (1 / 74724249600 + tail)
    tail = (s + 9) * (s + 10) * u * (-691 / 1307674368000 + tail)
    tail = (s + 7) * (s + 8) * u * (1 / 47900160 + tail)
    tail = (s + 5) * (s + 6) * u * (-1 / 1209600 + tail)
    tail = (s + 3) * (s + 4) * u * (1 / 30240 + tail)
    tail = (s + 1) * (s + 2) * u * (-1 / 720 + tail)
    tail = 0.5 + s / a * (1 / 12 + tail)
    first = a**-s
    return a ** (1 - s) / (s - 1) + (0 if first == 0 else first * tail)


def _positive(s: float, q: float) -> float:
    """The sum for q > 0."""
    total = _rest(s, q + 10) + (q + 9) ** -s + (q + 8) ** -s + (q + 7) ** -s + (q + 6) ** -s
    total = total + (q + 5) ** -s + (q + 4) ** -s + (q + 3) ** -s + (q + 2) ** -s
    return total + (q + 1) ** -s + q**-s


class Hurwitz(Elementwise):
    """The sum for s > 1; below 0 the sum over all integers, which has the period 1, less what is
    not asked for.
    """

    result = "float"

    def formula(s, q):
        low = math.floor(q)
        part, left = q - low, low + 1 - q
        beyond = _positive(s, left) - _positive(s, 1 - q)
        even = s == 2 * math.floor(0.5 * s)
        below = _positive(s, part) + (beyond if even else -beyond)
        below = math.inf if q == low else (below if s == math.floor(s) else math.nan)
        found = _positive(s, q) if q > 0 else below
        return math.inf if s == 1 else (math.nan if s < 1 else found)


class Zeta(Op):
    """``Hurwitz`` with its gradient by the second argument."""

    @staticmethod
    def forward(ctx: Any, s: Tensor, q: Tensor) -> Tensor:
        ctx.save(s, q)
        return Hurwitz.op.binary(s, q)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        if ctx.needs_input_grad[0]:
            raise GradError(
                "zeta: the derivative by the first argument is not implemented. Detach it."
            )
        s, q = ctx.saved_tensors
        return None, cast(sum_to_shape(-g * s * zeta(s + 1, q), q._array.shape), q._dtype)


def _as_tensor(value: Any, position: int, other: Any) -> Tensor:
    """``value``, a number as a 0-d tensor beside the tensor ``other``."""
    if isinstance(value, Tensor) or not isinstance(other, Tensor) or type(value) not in NUMBERS:
        return as_operand("zeta", value, position)
    dtype = dtypes.result_type([(other._dtype, 1), (dtypes.of_number(value), 0)])
    return full((), value, dtype, other._device)


def zeta(x: Any, y: Any) -> Tensor:
    """The zeta function of Hurwitz: the sum of ``(y + k) ** -x`` over k = 0, 1, 2 ...

    x, y: tensors that broadcast, or one of them a number. Infinite where x is 1 and where y is 0 or
    a negative integer; NaN where x is less than 1, and for other negative y unless x is whole.
    Relative error of a few eps. Gradient: ``-g * x * zeta(x + 1, y)`` by y; by x backward raises
    GradError.

    >>> ng.special.zeta(tensor([2.0]), 1).item() - math.pi ** 2 / 6 < 1e-6
    True
    """
    return Zeta.apply(_as_tensor(x, 0, y), _as_tensor(y, 1, x))
