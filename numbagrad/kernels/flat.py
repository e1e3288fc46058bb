"""How compiled functions take arrays: ``FlatType``.

It is only the data pointer, the sizes and whether the array is contiguous, read straight from
NumPy's array struct. To enter with three arrays costs 57 ns so instead of 215 (Numba's own unboxing
keeps a reference-counted record per array).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import NativeValue, models, register_model, unbox

from .inner import intrinsic
from .numba_compiler import BY_WORDS

__all__ = ["C_CONTIGUOUS", "DATA", "FLAGS", "RANK", "SIZES", "FlatType", "flat_fits"]


class FlatType(types.Type):
    """An ndarray of ``dtype`` as a pointer and its sizes; strides are not seen."""

    def __init__(self, dtype: Any):
        self.dtype = dtype
        super().__init__(name=f"flat({dtype})")


BY_WORDS.add(FlatType)


@register_model(FlatType)
class _FlatModel(models.StructModel):
    def __init__(self, manager, flat):
        members = [
            ("data", types.CPointer(flat.dtype)),
            ("rank", types.int32),
            ("flags", types.int32),
            ("sizes", types.CPointer(types.intp)),
        ]
        super().__init__(manager, flat, members)


# PyArrayObject_fields, part of NumPy's ABI: after the object header come data, nd (an int),
# dimensions, strides, base, descr, flags (an int).
_HEADER = object.__basicsize__
DATA, RANK, SIZES, FLAGS = _HEADER, _HEADER + 8, _HEADER + 16, _HEADER + 48
C_CONTIGUOUS = 1


@unbox(FlatType)
def _unbox_flat(flat, obj, c):
    builder = c.builder
    byte, word = ir.IntType(8), ir.IntType(64)
    start = builder.bitcast(obj, byte.as_pointer())

    def field(offset, kind):
        place = builder.gep(start, [ir.Constant(word, offset)])
        return builder.load(builder.bitcast(place, kind.as_pointer()))

    rank = field(RANK, ir.IntType(32))
    sizes = field(SIZES, word.as_pointer())
    struct = cgutils.create_struct_proxy(flat)(c.context, builder)
    struct.data = field(DATA, c.context.get_data_type(flat.dtype).as_pointer())
    struct.rank, struct.sizes = rank, sizes
    struct.flags = field(FLAGS, ir.IntType(32))
    return NativeValue(struct._getvalue())


def _struct(context, builder, kind, value):
    return cgutils.create_struct_proxy(kind)(context, builder, value=value)


@intrinsic
def flat_fits(typing, array, shape):
    """Whether a flat array is C-contiguous and has the sizes ``shape``, a tuple."""

    def generate(context, builder, signature, args):
        struct = _struct(context, builder, signature.args[0], args[0])
        sizes = cgutils.unpack_tuple(builder, args[1])
        flags = builder.and_(struct.flags, ir.Constant(ir.IntType(32), C_CONTIGUOUS))
        rank = builder.icmp_signed("==", struct.rank, struct.rank.type(len(sizes)))
        start = builder.and_(rank, builder.icmp_signed("!=", flags, flags.type(0)))
        result = cgutils.alloca_once_value(builder, start)
        with builder.if_then(start):
            for d, size in enumerate(sizes):
                place = builder.gep(struct.sizes, [ir.Constant(cgutils.intp_t, d)])
                equal = builder.icmp_signed("==", builder.load(place), size)
                builder.store(builder.and_(builder.load(result), equal), result)
        return builder.load(result)

    return types.boolean(array, shape), generate
