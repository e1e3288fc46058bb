"""Vector instructions of halves: how 16 bits become float32 and back, and products of pairs.

``HalfVector`` is what a register holds where memory holds halves. All float16 that vectors of
float32 can be made of, bfloat16 too where the processor has no instruction for it; see
``half_tile.py`` for the products.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core import cgutils

from .half_type import CONVERTS, HalfType, from_bfloat16, from_float16, to_bfloat16, to_float16
from .inner import intrinsic
from .processor import features

__all__ = ["PAIRS", "SHORT", "HalfVector", "add_pairs", "halves_per_word", "narrowed", "widened"]

PAIRS = not config.DISABLE_JIT and {"+avx512f", "+avx512bw", "+avx512bf16"} <= features()
"""Whether this CPU multiplies pairs of bfloat16 and adds both products to a float32."""

SHORT = ir.IntType(16)
_INT, _SINGLE = ir.IntType(32), ir.FloatType()


class HalfVector(ir.VectorType):
    """A vector of float32 that are halves in memory. half: their name."""

    def __init__(self, count: int, half: str):
        super().__init__(_SINGLE, count)
        self.half = half


class _BFloat(ir.types.Type):
    """LLVM's bfloat, which llvmlite does not name."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


_BFLOAT = _BFloat()


def _with_lanes(kind: Any, like: Any) -> Any:
    """``kind``, or a vector of as many as the type ``like`` has."""
    return ir.VectorType(kind, like.count) if isinstance(like, ir.VectorType) else kind


def widened(builder: ir.IRBuilder, bits: Any, half: str) -> Any:
    """The float32 of halves of 16 bits, one or a vector of them."""
    if half == "float16" and CONVERTS:
        shape = bits.type
        value = builder.bitcast(bits, _with_lanes(ir.HalfType(), shape))
        return builder.fpext(value, _with_lanes(_SINGLE, shape))
    bits = builder.zext(bits, _with_lanes(_INT, bits.type))
    return (from_float16 if half == "float16" else from_bfloat16)(builder, bits)


def narrowed(builder: ir.IRBuilder, value: Any, half: str) -> Any:
    """Bits of the halves nearest to float32, ties to even, one or a vector of them."""
    shape = value.type
    if half == "float16" and CONVERTS:
        value = builder.fptrunc(value, _with_lanes(ir.HalfType(), shape))
        return builder.bitcast(value, _with_lanes(SHORT, shape))
    if half == "bfloat16" and PAIRS and getattr(shape, "count", 0) == 16:
        args, result = [value], ir.VectorType(_BFLOAT, 16)
        value = _instruction(builder, "cvtneps2bf16.512", result, args)
        return builder.bitcast(value, ir.VectorType(SHORT, 16))
    convert = to_float16 if half == "float16" else to_bfloat16
    bits = convert(builder, builder.bitcast(value, _with_lanes(_INT, shape)))
    return builder.trunc(bits, _with_lanes(SHORT, shape))


def add_pairs(builder: ir.IRBuilder, x: Any, y: Any, total: Any) -> Any:
    """``total`` and the products of both bfloat16 in each 32 bits of x and y, added in float32.

    Subnormal numbers count as zero, and so do subnormal sums.
    """
    pairs = ir.VectorType(_BFLOAT, 32)
    x, y = builder.bitcast(x, pairs), builder.bitcast(y, pairs)
    return _instruction(builder, "dpbf16ps.512", total.type, [total, x, y])


def _instruction(builder: ir.IRBuilder, name: str, result: Any, args: list[Any]) -> Any:
    kind = ir.FunctionType(result, [a.type for a in args])
    name = f"llvm.x86.avx512bf16.{name}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


@intrinsic
def halves_per_word(typing, like):
    """How many halves of the dtype of ``like`` stand in 32 bits of a packed factor: 2 where pairs
    are multiplied, else 1, a float32. LLVM knows it as a constant."""

    def generate(context, builder, signature, args):
        kind = like.dtype
        pairs = PAIRS and isinstance(kind, HalfType) and kind.name == "bfloat16"
        return ir.IntType(64)(2 if pairs else 1)

    return types.int64(like), generate
