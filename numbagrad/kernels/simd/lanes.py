"""Instructions of AVX-512 that LLVM makes of no code for single numbers.

A permutation of registers is a table that all lanes read in one cycle, where a gather takes one for
each; others scale by powers of 2, take numbers apart, and guess at inverses and roots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core import cgutils

from ..processor import features
from ..vectors import shuffled, spread
from .opaque import opaque

__all__ = ["AVX512", "curves", "exponent", "lookup", "mantissa", "near_inverse", "root", "scaled"]

_NEEDED = {"+avx512f", "+avx512dq", "+avx512bw", "+avx512vl"}
AVX512 = _NEEDED <= features() and not config.DISABLE_JIT
"""Whether the processor that kernels are compiled for has these instructions."""

_LONG, _X86 = ir.IntType(32), "llvm.x86.avx512."
_ROUNDED_AS_EVER = _LONG(4)
_WHOLE = {types.float32: types.int32, types.float64: types.int64}


def _of_lanes(name: str, of: Any, arguments: list[Any], do: Callable[..., Any]) -> Any:
    """A function of compiled code that is an instruction.

    name: distinct from others.
    of, arguments: Numba's types of the result and of each argument, all as wide.
    do: called with the builder and 512 bits of each argument, gives 512 bits of the result.
    """
    count = 512 // of.bitwidth

    def of_one(builder: Any, *args: Any) -> Any:
        return builder.extract_element(
            do(builder, *[spread(builder, x, count) for x in args]), _LONG(0)
        )

    def of_vectors(builder: Any, width: int, *args: Any) -> Any:
        if width == count:
            return do(builder, *args)
        if width < count:
            order = [k % width for k in range(count)]
            out = do(builder, *[shuffled(builder, x, x, order) for x in args])
            return shuffled(builder, out, out, list(range(width)))
        halves = []
        for first in (0, width // 2):
            half = list(range(first, first + width // 2))
            parts = [shuffled(builder, x, x, half) for x in args]
            halves.append(of_vectors(builder, width // 2, *parts))
        return shuffled(builder, halves[0], halves[1], list(range(width)))

    return opaque(name, of, arguments, of_one, of_vectors)


def _instruction(builder: Any, name: str, *args: Any) -> Any:
    """The result, of the type of the first argument."""
    kind = ir.FunctionType(args[0].type, [x.type for x in args])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, args)


def _suffix(of: Any) -> str:
    return "pd.512" if of.bitwidth == 64 else "ps.512"


def _all(of: Any) -> Any:
    """The mask that names all lanes."""
    return ir.IntType(512 // of.bitwidth)(-1)


def _scaled(of: Any) -> Any:
    def do(builder: Any, x: Any, n: Any) -> Any:
        name = f"{_X86}mask.scalef.{_suffix(of)}"
        return _instruction(builder, name, x, n, x, _all(of), _ROUNDED_AS_EVER)

    return _of_lanes(f"scaled_{of}", of, [of, of], do)


def lookup(name: str, of: Any, values: Callable[[], list[float]]) -> Any:
    """A function of compiled code: the number of a table that the lowest bits of an integer name.

    name: distinct from others.
    of: Numba's type of the numbers.
    values: gives 16 float64, or 16 or 32 float32.
    """

    def do(builder: Any, index: Any) -> Any:
        return _read(builder, of, values(), index)

    return _of_lanes(name, of, [_WHOLE[of]], do)


def _read(builder: Any, of: Any, values: Sequence[float], index: Any) -> Any:
    kind = ir.DoubleType() if of.bitwidth == 64 else ir.FloatType()
    count = 512 // of.bitwidth
    of_count = ir.VectorType(kind, count)
    registers = [of_count(list(values[k : k + count])) for k in range(0, len(values), count)]
    if len(registers) == 1:
        return _instruction(builder, f"{_X86}permvar.sf.512", registers[0], index)
    low, high = registers
    return _instruction(builder, f"{_X86}vpermi2var.{_suffix(of)}", low, index, high)


def _taken_apart(of: Any, what: str, *how: Any) -> Any:
    def do(builder: Any, x: Any) -> Any:
        name = f"{_X86}mask.{what}.{_suffix(of)}"
        return _instruction(builder, name, x, *how, x, _all(of), _ROUNDED_AS_EVER)

    return _of_lanes(f"{what}_{of}", of, [of], do)


_FLOATS = types.float32, types.float64
scaled = {of: _scaled(of) for of in _FLOATS}
"""x 2^floor(n), rounded once, for floats x and n."""
exponent = {of: _taken_apart(of, "getexp") for of in _FLOATS}
"""The whole number e with 2^e <= abs(x) < 2^(e + 1), as a float; -inf of 0, inf of inf."""
_FROM_ONE_OR_NAN = _LONG(8)
mantissa = {of: _taken_apart(of, "getmant", _FROM_ONE_OR_NAN) for of in _FLOATS}
"""x / 2^e, from 1 to 2; 1 of 0 and inf, -1 of -0, NaN of what is below 0."""


def _guess(builder: Any, x: Any) -> Any:
    return _instruction(builder, f"{_X86}rcp14.pd.512", x, x, _all(types.float64))


near_inverse = _of_lanes("near_inverse", types.float64, [types.float64], _guess)
"""1 / x of a float64, to 2^-14 of it."""


def _fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """x y + z."""
    lanes = f"v{x.type.count}f{32 if x.type.element == ir.FloatType() else 64}"
    return _instruction(builder, f"llvm.fma.{lanes}", x, y, z)


def _root(of: Any) -> Any:
    """Newton's steps for x y with y near 1 / sqrt(x), the last with what y y leaves of x: that
    rounds as the instruction does (Markstein, 1990). A vector with a number that has no such y, or
    is so small that what is left has fewer bits, takes the instruction, which is slow."""
    double = of.bitwidth == 64
    whole, steps = (ir.IntType(64), 2) if double else (ir.IntType(32), 1)
    least, most = (256 << 52, 2047 << 52) if double else (64 << 23, 255 << 23)

    def do(builder: Any, x: Any) -> Any:
        def all_of(value: Any, kind: Any = x.type.element) -> Any:
            return ir.VectorType(kind, x.type.count)([value] * x.type.count)

        near = _instruction(builder, f"{_X86}rsqrt14.{_suffix(of)}", x, x, _all(of))
        g, h = builder.fmul(x, near), builder.fmul(near, all_of(0.5))
        for _ in range(steps):
            missing = _fused(builder, builder.fneg(g), h, all_of(0.5))
            g, h = _fused(builder, g, missing, g), _fused(builder, h, missing, h)
        g = _fused(builder, _fused(builder, builder.fneg(g), g, x), h, g)
        above = builder.sub(builder.bitcast(x, all_of(0, whole).type), all_of(least, whole))
        others = builder.icmp_unsigned(">=", above, all_of(most - least, whole))
        none, before = _all(of).type(0), builder.block
        others = builder.icmp_unsigned("!=", builder.bitcast(others, none.type), none)
        with builder.if_then(others, likely=False):
            name = f"llvm.sqrt.v{x.type.count}f{of.bitwidth}"
            exact, within = _instruction(builder, name, x), builder.block
        out = builder.phi(x.type)
        out.add_incoming(g, before)
        out.add_incoming(exact, within)
        return out

    return _of_lanes(f"root_{of}", of, [of], do)


root = {of: _root(of) for of in _FLOATS}
"""The square root, rounded right."""


def curves(name: str, of: Any, rows: Callable[[], list[list[float]]]) -> Any:
    """A function of compiled code: of x a polynomial that the lowest bits of an integer name.

    name: distinct from others.
    of: Numba's type of x.
    rows: gives the coefficients of each, as in ``polynomial``: 16 of float64, or 16 or 32.
    """

    def do(builder: Any, x: Any, index: Any) -> Any:
        *others, last = zip(*rows(), strict=True)
        total = _read(builder, of, last, index)
        for column in reversed(others):
            total = _fused(builder, total, x, _read(builder, of, column, index))
        return total

    return _of_lanes(name, of, [of, _WHOLE[of]], do)
