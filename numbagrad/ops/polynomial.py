"""Polynomials that formulas call as if they were functions of ``math``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..kernels.expr import Expr, add, constant, mul, symbol
from ..kernels.formula import Formula
from .pointwise import PointwiseOp


def horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The polynomial in ``x`` by Horner's rule, the lowest coefficient first."""
    found = constant(float(coefficients[-1]))
    for c in coefficients[-2::-1]:
        found = add(mul(found, x), constant(float(c)))
    return found


def polynomial(coefficients: Sequence[float]) -> Callable:
    """The same as a function that stands for its formula in other formulas."""
    body = horner(symbol("x"), coefficients)
    return PointwiseOp("polynomial", Formula("polynomial", ("x",), body)).to_function()
