"""Registers hold 64 bits: what they are read as, and what is written to them.

``f32_of`` and its like read a register as a type, ``of_f32`` and its like make the bits of one.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["READ", "WRITE", "fma32", "fma64"]

_WORD = ir.IntType(64)


def _reader(kind: Any, width: int, signed: bool) -> Any:
    """An intrinsic that reads the low ``width`` bits; ints come as 64 bits."""
    narrow = ir.IntType(width)

    def read(typing, register):
        def generate(context, builder, signature, arguments):
            (word,) = arguments
            if width < 64:
                word = builder.trunc(word, narrow)
            if isinstance(kind, types.Float):
                return builder.bitcast(word, context.get_value_type(kind))
            if width < 64:
                word = (builder.sext if signed else builder.zext)(word, _WORD)
            return word

        return kind(types.uint64), generate

    return intrinsic(read)


def _writer(kind: Any, width: int) -> Any:
    """An intrinsic that makes a register of a value; the upper bits are 0."""
    narrow = ir.IntType(width)

    def write(typing, value):
        def generate(context, builder, signature, arguments):
            (word,) = arguments
            if isinstance(kind, types.Float):
                word = builder.bitcast(word, narrow)
            elif width < 64:
                word = builder.trunc(word, narrow)
            return builder.zext(word, _WORD) if width < 64 else word

        return types.uint64(kind), generate

    return intrinsic(write)


@intrinsic
def _is_set(typing, register):
    def generate(context, builder, signature, arguments):
        return builder.icmp_unsigned("!=", arguments[0], ir.Constant(_WORD, 0))

    return types.boolean(types.uint64), generate


@intrinsic
def _of_truth(typing, value):
    def generate(context, builder, signature, arguments):
        return builder.zext(arguments[0], _WORD)

    return types.uint64(types.boolean), generate


READ: dict[str, Any] = {"pred": _is_set}
"""What reads a register as a type."""

WRITE: dict[str, Any] = {"pred": _of_truth}
"""What makes a register of a value of a type."""

for _width in (8, 16, 32, 64):
    for _letter, _kind in (("s", types.int64), ("u", types.uint64), ("b", types.uint64)):
        READ[f"{_letter}{_width}"] = _reader(_kind, _width, _letter == "s")
        WRITE[f"{_letter}{_width}"] = _writer(_kind, _width)
for _width, _kind in ((32, types.float32), (64, types.float64)):
    READ[f"f{_width}"] = _reader(_kind, _width, False)
    WRITE[f"f{_width}"] = _writer(_kind, _width)


def _called(name: str, kind: Any, count: int) -> Any:
    """An intrinsic of LLVM's on floats: one instruction of the CPU, or the C library's function."""

    def generate(context, builder, signature, arguments):
        value = context.get_value_type(kind)
        shape = ir.FunctionType(value, [value] * count)
        function = builder.module.declare_intrinsic(f"llvm.{name}", [value], shape)
        return builder.call(function, arguments)

    if count == 1:
        return intrinsic(lambda typing, x: (kind(kind), generate))
    return intrinsic(lambda typing, x, y, z: (kind(kind, kind, kind), generate))


fma32, fma64 = (_called("fma", kind, 3) for kind in (types.float32, types.float64))
floor, ceil, trunc, nearest = (
    _called(name, types.float64, 1) for name in ("floor", "ceil", "trunc", "roundeven")
)
root32, root64 = (_called("sqrt", kind, 1) for kind in (types.float32, types.float64))
