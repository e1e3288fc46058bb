"""What formulas are made of that would be long in Python, or cannot be said in it.

Numba takes some milliseconds for each line of Python: a polynomial is one instruction here.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import config, types

from ..inner import intrinsic
from ..processor import features

__all__ = ["FUSED", "fused", "pick", "polynomial", "table", "times_plus"]
__all__ += ["fast_two_sum", "two_product", "two_sum", "whole_rest"]

_DOUBLE, _BYTE = ir.DoubleType(), ir.IntType(8)


_FUSED = ("contract", "nsz")
"""What LLVM may do with products and sums, as in ``OPTIONS``."""


@intrinsic
def pick(typing, condition, x, y):
    """x if condition else y, both computed: LLVM sees no branch, and Numba no three blocks.

    A literal takes the type of the other.
    """
    narrow = x if x.bitwidth < y.bitwidth else y

    def generate(context, builder, signature, args):
        truth = context.is_true(builder, signature.args[0], args[0])
        x, y = [
            context.cast(builder, value, kind, narrow)
            for value, kind in zip(args[1:], signature.args[1:], strict=True)
        ]
        return builder.select(truth, x, y)

    return narrow(condition, x, y), generate


FUSED = not features().isdisjoint({"+fma", "+neon"})
"""Whether the processor multiplies and adds by one instruction, which rounds once."""


def times_plus(x: Any, y: Any, z: Any) -> Any:
    """x y + z for floats of one type, rounded once where the processor can.

    LLVM fuses the two where it sees them side by side, which is not in every form of a loop. Where
    all forms must give the same bits, this says so.
    """
    return x * y + z


@intrinsic
def _times_plus(typing, x, y, z):
    def generate(context, builder, signature, args):
        if FUSED:
            return builder.fma(*args)
        return builder.fadd(builder.fmul(args[0], args[1]), args[2])

    return x(x, y, z), generate


if not config.DISABLE_JIT:
    times_plus = _times_plus


@intrinsic
def fused(typing, x, y, z):
    """x y + z of float64, rounded once: where no instruction does that, a function of libm."""

    def generate(context, builder, signature, args):
        return builder.fma(*args)

    double = types.float64
    return double(double, double, double), generate


def polynomial(*coefficients: float, steady: bool = False) -> Any:
    """A function of compiled code: c_0 + c_1 x + c_2 x^2 + ..., in the type of x.

    Six coefficients and more are added in pairs, pairs of pairs and so on (Estrin, 1960): two to
    four multiplications more, but half as many that wait for another, of which a processor has no
    more than some hundred at hand. asin and erf of float64 take 5 to 15 % less so on a Cascade
    Lake, log of float32 4 %, exp nothing; some round a tenth of a unit more.

    coefficients: c_0, c_1, ...
    steady: by Horner's rule, which rounds terms of different signs less.
    """

    @intrinsic
    def value(typing, x):
        def generate(context, builder, signature, args):
            def plus(c, x, higher):
                product = builder.fmul(higher, x, flags=_FUSED)
                return builder.fadd(product, c, flags=_FUSED)

            power = args[0]
            terms = [power.type(c) for c in coefficients]
            if steady or len(terms) < 6:
                return functools.reduce(lambda high, c: plus(c, power, high), reversed(terms))
            while True:
                pairs = [terms[k : k + 2] for k in range(0, len(terms), 2)]
                terms = [plus(p[0], power, p[1]) if p[1:] else p[0] for p in pairs]
                if len(terms) == 1:
                    return terms[0]
                power = builder.fmul(power, power, flags=_FUSED)

        return x(x), generate

    return value


@intrinsic
def two_sum(typing, x, y):
    """x + y rounded, and what the rounding left out (Knuth, 1969)."""

    def generate(context, builder, signature, args):
        x, y = args
        total = builder.fadd(x, y)
        of_y = builder.fsub(total, x)
        of_x = builder.fsub(total, of_y)
        rest = builder.fadd(builder.fsub(x, of_x), builder.fsub(y, of_y))
        return context.make_tuple(builder, signature.return_type, [total, rest])

    return types.UniTuple(types.float64, 2)(types.float64, types.float64), generate


@intrinsic
def fast_two_sum(typing, x, y):
    """The same, where x is the larger or a multiple of y's last place (Dekker, 1971)."""

    def generate(context, builder, signature, args):
        x, y = args
        total = builder.fadd(x, y)
        rest = builder.fsub(y, builder.fsub(total, x))
        return context.make_tuple(builder, signature.return_type, [total, rest])

    return types.UniTuple(types.float64, 2)(types.float64, types.float64), generate


@intrinsic
def two_product(typing, x, y):
    """x * y rounded, and what the rounding left out (Dekker, 1971, by one fused instruction).

    LLVM does not fuse the product itself with an addition that follows, as it may elsewhere: the
    rest would be counted twice.
    """

    def generate(context, builder, signature, args):
        product = builder.fmul(*args)
        rest = builder.fma(*args, builder.fneg(product))
        return context.make_tuple(builder, signature.return_type, [product, rest])

    return types.UniTuple(types.float64, 2)(types.float64, types.float64), generate


@intrinsic
def whole_rest(typing, x, y):
    """x - n y for a whole n, from -y / 2 to y / 2: exact for float32 numbers of at least 0.

    In each step a multiple n of y 2^k goes, k as far from the one before as n may have places: by
    a fused instruction as many as a float64, else so many that n y is exact too.
    """
    places = 50 if FUSED else 28
    powers = range(277 // places * places, -1, -places)

    def generate(context, builder, signature, args):
        r, y = args
        real = functools.partial(ir.Constant, _DOUBLE)
        inverse, shift = builder.fdiv(real(1.0), y), real(6755399441055744.0)  # 1.5 * 2^52
        for k in powers:
            n = builder.fmul(r, builder.fmul(inverse, real(2.0**-k)))
            n = builder.fsub(builder.fadd(n, shift), shift)
            step = builder.fmul(y, real(2.0**k))
            if FUSED:
                r = builder.fma(builder.fneg(n), step, r)
            else:
                r = builder.fsub(r, builder.fmul(n, step))
        return r

    return types.float64(types.float64, types.float64), generate


def table(name: str, width: int, rows: Callable[[], list[tuple[float, ...]]]) -> Any:
    """A function of compiled code: the ``width`` float64 of a row of a table of constants.

    It checks no bounds. In a vectorised loop the loads become gathers.
    """

    @functools.cache
    def content() -> bytes:
        return array("d", [x for row in rows() for x in row]).tobytes()

    @intrinsic
    def row(typing, index):
        def generate(context, builder, signature, args):
            place = f"numbagrad.{name}"
            module = builder.module
            found = module.globals.get(place)
            if found is None:
                kind = ir.ArrayType(_BYTE, len(content()))
                found = ir.GlobalVariable(module, kind, place)
                found.initializer = ir.Constant(kind, bytearray(content()))
                found.linkage, found.global_constant, found.align = "internal", True, 64
            start = builder.bitcast(found, _DOUBLE.as_pointer())
            first = builder.mul(args[0], ir.Constant(args[0].type, width))
            values = []
            for k in range(width):
                at = builder.add(first, ir.Constant(first.type, k))
                values.append(builder.load(builder.gep(start, [at], inbounds=True)))
            return context.make_tuple(builder, signature.return_type, values)

        return types.UniTuple(types.float64, width)(types.int64), generate

    return row
