"""The logarithm of the gamma function, of one and more dimensions, and all its derivatives."""

from __future__ import annotations

import functools
import math
from typing import Any

from ..errors import ShapeError
from ..kernels.expr import (
    ONE,
    ZERO,
    add,
    call,
    constant,
    div,
    expr,
    mul,
    neg,
    power,
    sub,
    symbol,
    where,
)
from ..kernels.formula import Formula
from ..tensor import Tensor
from .base import as_operand
from .from_formula import Elementwise
from .pointwise import PointwiseOp
from .polynomial import horner

__all__ = ["digamma", "lgamma", "mvlgamma", "polygamma"]


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
        near = 1 / math.tan(math.pi * r)
        far = math.tan(math.pi * (math.copysign(0.5, r) - r))  # where tan has its pole
        return math.nan if r == 0 else found - math.pi * (near if abs(r) < 0.25 else far)


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


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _cot(n: int) -> list[int]:
    """The n-th derivative of the cotangent as a polynomial in it, the lowest power first."""
    found = [0, 1]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(found)][1:]
        found = [-c for c in (*slope, 0, 0)]
        for k, c in enumerate(slope):
            found[k + 2] -= c
    return found


@functools.cache
def _derivative(n: int) -> PointwiseOp:
    """The n-th derivative of digamma, by the derivatives of the same series and reflection.

    ``(-1) ** (n + 1) n! zeta(n + 1, y)`` for positive y, the zeta function by Euler and Maclaurin
    (Abramowitz and Stegun, 6.4.10 and 6.4.11), and 6.4.7 below 0; infinite at 0, -1, -2 ...
    """
    x = symbol("x")
    below = expr("le", x, ZERO)
    y = where(below, sub(ONE, x), x)
    z = add(y, constant(8.0))
    least = [math.factorial(n + 2 * j - 1) / math.factorial(2 * j) for j in range(1, 9)]
    series = [b * c / math.factorial(n) for b, c in zip(_BERNOULLI, least, strict=True)]
    u = div(ONE, mul(z, z))
    tail = add(div(constant(0.5), z), mul(u, horner(u, series)))
    total = mul(power(z, constant(-n)), add(constant(1 / n), tail))
    for k in range(7, -1, -1):
        total = add(total, power(add(y, constant(float(k))), constant(-n - 1)))
    sign = -1.0 if n % 2 == 0 else 1.0
    body = mul(constant(sign * math.factorial(n)), total)
    r = mul(sub(x, call("rint", x)), constant(math.pi))  # tan has the period pi
    turned = mul(constant(math.pi ** (n + 1)), horner(div(ONE, call("tan", r)), _cot(n)))
    body = where(below, sub(body if n % 2 == 0 else neg(body), turned), body)
    pole = expr("and", below, expr("eq", x, call("floor", x)))
    body = where(pole, constant(sign * math.inf), body)
    return PointwiseOp("polygamma", Formula("polygamma", ("x",), body), {}, "float")


def polygamma(n: int, x: Tensor) -> Tensor:
    """The n-th derivative of ``digamma``; at 0, -1, -2 ... infinite, or -inf for an even n.

    Gradient: ``g * polygamma(n + 1, x)``. Each n compiles a formula of its own. Raises ShapeError
    for a negative n.

    >>> polygamma(1, tensor([1.0])).item() - math.pi ** 2 / 6 < 1e-6
    True
    """
    if n < 0:
        raise ShapeError(f"polygamma: polygamma(n, x) does not support negative n, got {n}.")
    as_operand("polygamma", x, 1)
    return _derivative(n).unary(x) if n else digamma(x)


def _polygamma_of(x: Tensor, n: int) -> Tensor:
    """The n-th derivative of ``digamma`` at this tensor."""
    return polygamma(n, x)


def mvlgamma(x: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of ``p`` dimensions, for x above (p - 1) / 2.

    ``p (p - 1) / 4 log(pi)`` plus the sum of ``lgamma(x - i / 2)`` for i from 0 to p - 1. Raises
    ShapeError unless p is positive.

    >>> mvlgamma(tensor([2.0]), 1).item()
    0.0
    """
    if p < 1:
        raise ShapeError(f"mvlgamma: p has to be greater than or equal to 1, got {p}.")
    found = lgamma(as_operand("mvlgamma", x))
    for i in range(1, p):
        found = found + lgamma(x - i / 2)
    return found + p * (p - 1) / 4 * math.log(math.pi)


METHODS: dict[str, Any] = {
    "digamma": digamma,
    "lgamma": lgamma,
    "mvlgamma": mvlgamma,
    "polygamma": _polygamma_of,
}

INPLACE: dict[str, Any] = {f"{name}_": METHODS[name] for name in METHODS}
