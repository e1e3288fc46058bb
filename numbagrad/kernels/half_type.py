"""Float16 and bfloat16 as the CPU's kernels see them: 16 bits in memory, float32 when loaded.

Numba has neither on the CPU. The conversions are integer arithmetic, which every processor has and
LLVM vectorises; they round to the nearest, ties to even, and keep subnormal numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic, models, register_model

from .halves import BFLOAT16, FLOAT16, decoded, encoded

__all__ = ["HalfType", "bfloat16", "computed", "float16", "half_type"]
__all__ += ["round_bfloat16", "round_float16"]

_WORD, _SINGLE, _SHORT = ir.IntType(32), ir.FloatType(), ir.IntType(16)


class HalfType(types.Type):
    """An element of 16 bits, called ``float16`` or ``bfloat16``, whose value is a float32."""

    def __init__(self, name: str):
        super().__init__(name=name)


float16, bfloat16 = HalfType("float16"), HalfType("bfloat16")
_TYPES = {FLOAT16: float16, BFLOAT16: bfloat16}


def half_type(dtype: np.dtype) -> HalfType | None:
    """Numba's type for memory of a half dtype; None for other dtypes."""
    return _TYPES.get(dtype)


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
        convert = _from_float16 if self.fe_type.name == "float16" else _from_bfloat16
        return convert(builder, builder.zext(value, _WORD))

    def as_data(self, builder, value):
        convert = _to_float16 if self.fe_type.name == "float16" else _to_bfloat16
        return builder.trunc(convert(builder, builder.bitcast(value, _WORD)), _SHORT)

    def load_from_data_pointer(self, builder, ptr, align=None):
        return self.from_data(builder, builder.load(ptr, align=align))


def _word(value: int) -> ir.Constant:
    return ir.Constant(_WORD, value)


def _from_bfloat16(b, bits):
    return b.bitcast(b.shl(bits, _word(16)), _SINGLE)


def _to_bfloat16(b, bits):
    odd = b.and_(b.lshr(bits, _word(16)), _word(1))
    rounded = b.lshr(b.add(bits, b.add(odd, _word(0x7FFF))), _word(16))
    size = b.and_(bits, _word(0x7FFFFFFF))
    quiet = b.or_(b.lshr(bits, _word(16)), _word(0x40))
    return b.select(b.icmp_unsigned(">", size, _word(0x7F800000)), quiet, rounded)


def _from_float16(b, bits):
    """Exponent and fraction moved into place and scaled; the product is exact."""
    moved = b.shl(b.and_(bits, _word(0x7FFF)), _word(13))
    scaled = b.fmul(b.bitcast(moved, _SINGLE), ir.Constant(_SINGLE, 2.0**112))
    special = b.icmp_unsigned(">=", b.and_(bits, _word(0x7FFF)), _word(0x7C00))
    size = b.select(special, b.or_(moved, _word(0x7F800000)), b.bitcast(scaled, _WORD))
    sign = b.shl(b.and_(bits, _word(0x8000)), _word(16))
    return b.bitcast(b.or_(size, sign), _SINGLE)


def _to_float16(b, bits):
    """Normal numbers are rounded as integers, subnormal ones by adding 0.5.

    The last bit of a float32 at 0.5 is 2^-24, as that of a subnormal float16.
    """
    size = b.and_(bits, _word(0x7FFFFFFF))
    odd = b.and_(b.lshr(size, _word(13)), _word(1))
    bias = _word(((15 - 127) << 23) + 0xFFF & 0xFFFFFFFF)
    normal = b.lshr(b.add(b.add(size, bias), odd), _word(13))
    raised = b.fadd(b.bitcast(size, _SINGLE), ir.Constant(_SINGLE, 0.5))
    small = b.sub(b.bitcast(raised, _WORD), _word(0x3F000000))
    found = b.select(b.icmp_unsigned("<", size, _word(113 << 23)), small, normal)
    nan = b.icmp_unsigned(">", size, _word(0x7F800000))
    large = b.select(nan, _word(0x7E00), _word(0x7C00))
    found = b.select(b.icmp_unsigned(">=", size, _word(143 << 23)), large, found)
    return b.or_(found, b.lshr(b.and_(bits, _word(0x80000000)), _word(16)))


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
