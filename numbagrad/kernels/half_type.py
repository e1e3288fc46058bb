"""Float16 and bfloat16 as the CPU's kernels see them: 16 bits in memory, float32 when loaded.

Numba has neither on the CPU. Most processors convert float16; the other conversions are integer
arithmetic, which LLVM vectorises. They round to the nearest, ties to even, and keep subnormal
numbers.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core.typeconv import Conversion
from numba.extending import lower_cast, models, register_model
from numba.np.numpy_support import as_dtype

from .halves import BFLOAT16, FLOAT16, decoded, encoded
from .inner import intrinsic
from .processor import features

__all__ = ["HalfType", "bfloat16", "bits_type", "computed", "float16", "from_bfloat16"]
__all__ += ["from_float16", "half_type", "memory_type", "numpy_of", "round_bfloat16"]
__all__ += ["round_float16", "signature_of", "sum_type", "to_bfloat16", "to_float16"]

CONVERTS = not config.DISABLE_JIT and bool({"+f16c", "+avx512f"} & features())
"""Whether the processor has instructions that convert float16."""

_WORD, _SINGLE, _SHORT = ir.IntType(32), ir.FloatType(), ir.IntType(16)


class HalfType(types.Type):
    """An element of 16 bits, called ``float16`` or ``bfloat16``, whose value is a float32.

    Numba computes with what an array of them gives in float32, and rounds what is put there.
    """

    def __init__(self, name: str):
        super().__init__(name=name)

    def can_convert_to(self, typingctx: Any, other: types.Type) -> Conversion | None:
        """To float32, which it is when loaded."""
        return Conversion.safe if other == types.float32 else None

    def can_convert_from(self, typingctx: Any, other: types.Type) -> Conversion | None:
        """From numbers, which are rounded when they are stored."""
        return Conversion.unsafe if isinstance(other, (types.Float, types.Integer)) else None


float16, bfloat16 = HalfType("float16"), HalfType("bfloat16")
_TYPES = {FLOAT16: float16, BFLOAT16: bfloat16}


def half_type(dtype: np.dtype) -> HalfType | None:
    """Numba's type for memory of a half dtype; None for other dtypes."""
    return _TYPES.get(dtype)


def memory_type(dtype: np.dtype) -> types.Type:
    """Numba's type for memory of a dtype, of halves too."""
    return half_type(dtype) or numba.from_dtype(dtype)


def signature_of(args: tuple[Any, ...], layout: str) -> tuple[types.Type, ...]:
    """The types for which a kernel is compiled that is entered past Numba's dispatcher.

    args: arrays, which have this layout, ints and floats.
    """
    return tuple(
        [
            types.Array(memory_type(a.dtype), a.ndim, layout)
            if type(a) is np.ndarray
            else (types.float64 if isinstance(a, float) else types.intp)
            for a in args
        ]
    )


def numpy_of(kind: types.Type) -> np.dtype:
    """The dtype of memory that Numba's type ``kind`` stands for."""
    return next((d for d, half in _TYPES.items() if half == kind), None) or as_dtype(kind)


def bits_type(dtype):
    """The dtype as which a kernel moves elements: int16 for halves, else their own."""
    return dtype


def sum_type(dtype):
    """The dtype in which a kernel adds elements up: float32 for halves, else their own."""
    return dtype


def _in_place_of_halves(other: types.Type) -> Any:
    @intrinsic
    def exchanged(typing, dtype):
        kind = other if isinstance(dtype.dtype, HalfType) else dtype.dtype

        def generate(context, builder, signature, args):
            return context.get_dummy_value()

        return types.DType(kind)(dtype), generate

    return exchanged


if not config.DISABLE_JIT:
    bits_type, sum_type = _in_place_of_halves(types.int16), _in_place_of_halves(types.float32)


def computed(kind: Any) -> Any:
    """The type of a loaded element: float32 for halves."""
    return types.float32 if isinstance(kind, HalfType) else kind


@register_model(HalfType)
class _HalfModel(models.DataModel):
    """Like Numba's booleans, whose bytes are bits when loaded."""

    def get_value_type(self):
        return _SINGLE

    def get_data_type(self):
        return _SHORT

    def from_data(self, builder, value):
        if self.fe_type.name == "float16" and CONVERTS:
            return builder.fpext(builder.bitcast(value, ir.HalfType()), _SINGLE)
        convert = from_float16 if self.fe_type.name == "float16" else from_bfloat16
        return convert(builder, builder.zext(value, _WORD))

    def as_data(self, builder, value):
        if self.fe_type.name == "float16" and CONVERTS:
            return builder.bitcast(builder.fptrunc(value, ir.HalfType()), _SHORT)
        convert = to_float16 if self.fe_type.name == "float16" else to_bfloat16
        return builder.trunc(convert(builder, builder.bitcast(value, _WORD)), _SHORT)

    def load_from_data_pointer(self, builder, ptr, align=None):
        return self.from_data(builder, builder.load(ptr, align=align))


@lower_cast(HalfType, types.float32)
def _loaded(context, builder, given, wanted, value):
    return value


@lower_cast(types.Float, HalfType)
@lower_cast(types.Integer, HalfType)
def _to_be_stored(context, builder, given, wanted, value):
    return context.cast(builder, value, given, types.float32)


def _like(bits: Any, value: int) -> ir.Constant:
    """``value`` as what ``bits`` are, a number of 32 bits or a vector of such numbers."""
    count = getattr(bits.type, "count", 0)
    return ir.Constant(bits.type, [value] * count if count else value)


def _floats(bits: Any) -> ir.Type:
    count = getattr(bits.type, "count", 0)
    return ir.VectorType(_SINGLE, count) if count else _SINGLE


def _float_like(bits: Any, value: float) -> ir.Constant:
    count = getattr(bits.type, "count", 0)
    return ir.Constant(_floats(bits), [value] * count if count else value)


# Each takes and gives numbers of 32 bits, or vectors of them; a half is in the lower 16.


def from_bfloat16(b: ir.IRBuilder, bits: Any) -> Any:
    """The float32 of a bfloat16's bits."""
    return b.bitcast(b.shl(bits, _like(bits, 16)), _floats(bits))


def to_bfloat16(b: ir.IRBuilder, bits: Any) -> Any:
    """The bits of the bfloat16 nearest to the float32 of ``bits``."""
    odd = b.and_(b.lshr(bits, _like(bits, 16)), _like(bits, 1))
    rounded = b.lshr(b.add(bits, b.add(odd, _like(bits, 0x7FFF))), _like(bits, 16))
    size = b.and_(bits, _like(bits, 0x7FFFFFFF))
    quiet = b.or_(b.lshr(bits, _like(bits, 16)), _like(bits, 0x40))
    return b.select(b.icmp_unsigned(">", size, _like(bits, 0x7F800000)), quiet, rounded)


def from_float16(b: ir.IRBuilder, bits: Any) -> Any:
    """The float32 of a float16's bits: exponent and fraction moved into place and scaled, which
    is exact."""
    moved = b.shl(b.and_(bits, _like(bits, 0x7FFF)), _like(bits, 13))
    scaled = b.fmul(b.bitcast(moved, _floats(bits)), _float_like(bits, 2.0**112))
    special = b.icmp_unsigned(">=", b.and_(bits, _like(bits, 0x7FFF)), _like(bits, 0x7C00))
    infinite = b.or_(moved, _like(bits, 0x7F800000))
    size = b.select(special, infinite, b.bitcast(scaled, bits.type))
    sign = b.shl(b.and_(bits, _like(bits, 0x8000)), _like(bits, 16))
    return b.bitcast(b.or_(size, sign), _floats(bits))


def to_float16(b: ir.IRBuilder, bits: Any) -> Any:
    """The bits of the float16 nearest to the float32 of ``bits``: normal numbers are rounded as
    integers, subnormal ones by adding 0.5.

    The last bit of a float32 at 0.5 is 2^-24, as that of a subnormal float16.
    """
    size = b.and_(bits, _like(bits, 0x7FFFFFFF))
    odd = b.and_(b.lshr(size, _like(bits, 13)), _like(bits, 1))
    bias = _like(bits, ((15 - 127) << 23) + 0xFFF & 0xFFFFFFFF)
    normal = b.lshr(b.add(b.add(size, bias), odd), _like(bits, 13))
    raised = b.fadd(b.bitcast(size, _floats(bits)), _float_like(bits, 0.5))
    small = b.sub(b.bitcast(raised, bits.type), _like(bits, 0x3F000000))
    found = b.select(b.icmp_unsigned("<", size, _like(bits, 113 << 23)), small, normal)
    nan = b.icmp_unsigned(">", size, _like(bits, 0x7F800000))
    large = b.select(nan, _like(bits, 0x7E00), _like(bits, 0x7C00))
    found = b.select(b.icmp_unsigned(">=", size, _like(bits, 143 << 23)), large, found)
    return b.or_(found, b.lshr(b.and_(bits, _like(bits, 0x80000000)), _like(bits, 16)))


def _rounder(half: HalfType, dtype: np.dtype) -> Any:
    """What makes of a float32 the nearest one that ``half`` has: as if stored and loaded."""

    @intrinsic
    def round_to(typing, x):
        def generate(context, builder, signature, args):
            model = context.data_model_manager[half]
            return model.from_data(builder, model.as_data(builder, args[0]))

        return types.float32(types.float32), generate

    return (lambda x: decoded(encoded(x, dtype))[()]) if config.DISABLE_JIT else round_to


round_float16, round_bfloat16 = _rounder(float16, FLOAT16), _rounder(bfloat16, BFLOAT16)
