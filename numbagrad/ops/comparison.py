"""Questions about elements: comparisons, logic, bits; each a scalar formula with its function."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..errors import DTypeError
from ..kernels import machine
from ..tensor import Tensor, wrap
from .base import as_operand
from .from_formula import Elementwise
from .short_way import make_binary

# -- formulas --------------------------------------------------------------------------------------


class Eq(Elementwise):
    """x == y."""

    result = "bool"

    def formula(x, y):
        return x == y


class Ne(Elementwise):
    """x != y."""

    result = "bool"

    def formula(x, y):
        return x != y


class Lt(Elementwise):
    """x < y."""

    result = "bool"

    def formula(x, y):
        return x < y


class Le(Elementwise):
    """x <= y."""

    result = "bool"

    def formula(x, y):
        return x <= y


class Gt(Elementwise):
    """x > y."""

    result = "bool"

    def formula(x, y):
        return x > y


class Ge(Elementwise):
    """x >= y."""

    result = "bool"

    def formula(x, y):
        return x >= y


class Isclose(Elementwise):
    """Whether x lies within atol + rtol * |y| of y; equal infinities do."""

    result = "bool"

    def formula(x, y, rtol, atol):
        return x == y or (math.isfinite(y) and abs(x - y) <= atol + rtol * abs(y))


class BothNan(Elementwise):
    """Whether both are NaN."""

    result = "bool"

    def formula(x, y):
        return math.isnan(x) and math.isnan(y)


class LogicalAnd(Elementwise):
    """Whether both are non-zero."""

    result = "bool"

    def formula(x, y):
        return x != 0 and y != 0


class LogicalOr(Elementwise):
    """Whether either is non-zero."""

    result = "bool"

    def formula(x, y):
        return x != 0 or y != 0


class LogicalXor(Elementwise):
    """Whether exactly one is non-zero."""

    result = "bool"

    def formula(x, y):
        return bool(x) != bool(y)


class LogicalNot(Elementwise):
    """Whether x is zero."""

    result = "bool"

    def formula(x):
        return x == 0


class Isnan(Elementwise):
    """Whether x is NaN."""

    result = "bool"

    def formula(x):
        return math.isnan(x)


class Isinf(Elementwise):
    """Whether x is infinite."""

    result = "bool"

    def formula(x):
        return math.isinf(x)


class Isfinite(Elementwise):
    """Whether x is neither NaN nor infinite."""

    result = "bool"

    def formula(x):
        return math.isfinite(x)


class BitwiseNot(Elementwise):
    """~x."""

    def formula(x):
        return -1 - x


class BitwiseAnd(Elementwise):
    """Bits set in both; logical and of bools."""

    def formula(x, y):
        return x & y


class BitwiseOr(Elementwise):
    """Bits set in either; logical or of bools."""

    def formula(x, y):
        return x | y


class BitwiseXor(Elementwise):
    """Bits set in exactly one."""

    def formula(x, y):
        return x ^ y


# -- functions -------------------------------------------------------------------------------------


def isclose(
    x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether |x - y| <= atol + rtol * |y|, element by element; broadcasts.

    Raises ValueError if rtol or atol is negative.
    """
    for name, value in (("rtol", rtol), ("atol", atol)):
        if not value >= 0:
            raise ValueError(
                f"isclose: {name} must be greater than or equal to zero, but got {value}."
            )
    close = Isclose.op(x, y, float(rtol), float(atol))
    return LogicalOr.op(close, BothNan.op(x, y)) if equal_nan else close


def allclose(
    x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether every element of ``isclose`` holds, as a Python bool."""
    return bool(isclose(x, y, rtol, atol, equal_nan).all())


FIRST, PART = 1024, 1 << 18
"""Elements of the first part that ``equal`` compares, where most that differ do, and of others."""


def equal(x: Tensor, y: Tensor) -> bool:
    """Whether the tensors have the same shape and elements, as a Python bool.

    Contiguous ones of the CPU are compared part by part, no further than the first that differs.
    """
    as_operand("equal", x)
    as_operand("equal", y, 1)
    a, b = x._array, y._array
    if a.shape != b.shape:
        return False
    apart = machine.recording and not machine.on_host(x, y)
    if a.size <= FIRST or apart or not (a.flags.c_contiguous and b.flags.c_contiguous):
        return bool(Eq.op(x, y).all())
    a, b = a.reshape(-1), b.reshape(-1)
    begin, count = 0, FIRST
    while begin < a.size:
        parts = [wrap(array[begin : begin + count], t._dtype) for array, t in ((a, x), (b, y))]
        if not Eq.op(*parts).all():
            return False
        begin, count = begin + count, PART
    return True


def _same_kind(name: str, x: Any, y: Any) -> None:
    for operand in (x, y):
        floating = isinstance(operand, float) or (
            isinstance(operand, Tensor) and operand._dtype.is_floating_point
        )
        if floating:
            raise DTypeError(
                f"bitwise_{name}: not implemented for floating dtypes; use logical_{name}, or "
                f"convert with .long()."
            )


def bitwise_and(x: Any, y: Any) -> Tensor:
    """x & y of integers or bools."""
    _same_kind("and", x, y)
    return BitwiseAnd.op.binary(x, y)


def bitwise_or(x: Any, y: Any) -> Tensor:
    """x | y of integers or bools."""
    _same_kind("or", x, y)
    return BitwiseOr.op.binary(x, y)


def bitwise_xor(x: Any, y: Any) -> Tensor:
    """x ^ y of integers or bools."""
    _same_kind("xor", x, y)
    return BitwiseXor.op.binary(x, y)


def bitwise_not(x: Tensor) -> Tensor:
    """~x of integers or bools."""
    if x._dtype is dtypes.bool_:
        return LogicalNot.op.unary(x)
    _same_kind("not", x, 0)
    return BitwiseNot.op.unary(x)


eq = Eq.function
ne = not_equal = Ne.function
lt = less = Lt.function
le = less_equal = Le.function
gt = greater = Gt.function
ge = greater_equal = Ge.function
logical_and = LogicalAnd.function
logical_or = LogicalOr.function
logical_xor = LogicalXor.function
logical_not = LogicalNot.function
isnan = Isnan.function
isinf = Isinf.function
isfinite = Isfinite.function

__all__ = """
    allclose bitwise_and bitwise_not bitwise_or bitwise_xor eq equal ge greater greater_equal gt
    isclose isfinite isinf isnan le less less_equal logical_and logical_not logical_or logical_xor
    lt ne not_equal
""".split()

METHODS: dict[str, Any] = {name: globals()[name] for name in __all__}

_IN_PLACE = """
    bitwise_and bitwise_not bitwise_or bitwise_xor eq ge greater greater_equal gt le less
    less_equal logical_and logical_not logical_or logical_xor lt ne not_equal
""".split()
INPLACE: dict[str, Any] = {f"{name}_": globals()[name] for name in _IN_PLACE}

OPERATORS: dict[str, Any] = {
    "__eq__": make_binary(Eq.op, operator=True),
    "__ne__": make_binary(Ne.op, operator=True),
    "__lt__": make_binary(Lt.op, operator=True),
    "__le__": make_binary(Le.op, operator=True),
    "__gt__": make_binary(Gt.op, operator=True),
    "__ge__": make_binary(Ge.op, operator=True),
    "__and__": bitwise_and,
    "__or__": bitwise_or,
    "__xor__": bitwise_xor,
    "__rand__": bitwise_and,
    "__ror__": bitwise_or,
    "__rxor__": bitwise_xor,
    "__invert__": bitwise_not,
}
