"""How elementwise kernels take arrays: ``FlatType``.

It is only the data pointer, the sizes and whether the array is contiguous, read straight from
NumPy's array struct. One compiled signature then serves every rank, and entering a kernel with
three arrays costs 57 ns instead of 215 (Numba's own unboxing keeps a reference-counted record per
array).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import NativeValue, intrinsic, models, register_model, unbox

from .vectors import WORD, counted

__all__ = ["C_CONTIGUOUS", "DATA", "SIZES", "TRUSTED", "FlatType", "count_of"]
__all__ += ["flat_agrees", "flat_fits", "flat_is_trusted"]


class FlatType(types.Type):
    """An ndarray of ``dtype`` as a pointer and its sizes; strides are not seen."""

    def __init__(self, dtype: Any):
        self.dtype = dtype
        super().__init__(name=f"flat({dtype})")


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
DATA, _RANK, SIZES, _FLAGS = _HEADER, _HEADER + 8, _HEADER + 16, _HEADER + 48
C_CONTIGUOUS = 1
TRUSTED = -1
"""The rank of what has one size and needs no look at its shape."""


@unbox(FlatType)
def _unbox_flat(flat, obj, c):
    builder = c.builder
    byte, word = ir.IntType(8), ir.IntType(64)
    start = builder.bitcast(obj, byte.as_pointer())

    def field(offset, kind):
        place = builder.gep(start, [ir.Constant(word, offset)])
        return builder.load(builder.bitcast(place, kind.as_pointer()))

    rank = field(_RANK, ir.IntType(32))
    sizes = field(SIZES, word.as_pointer())
    struct = cgutils.create_struct_proxy(flat)(c.context, builder)
    struct.data = field(DATA, c.context.get_data_type(flat.dtype).as_pointer())
    struct.rank, struct.sizes = rank, sizes
    struct.flags = field(_FLAGS, ir.IntType(32))
    return NativeValue(struct._getvalue())


def _struct(context, builder, kind, value):
    return cgutils.create_struct_proxy(kind)(context, builder, value=value)


def count_of(builder, struct):
    """The number of elements of a flat array."""
    total = cgutils.alloca_once_value(builder, WORD(1))
    with builder.if_else(builder.icmp_signed("==", struct.rank, struct.rank.type(TRUSTED))) as (
        trusted,
        looked_at,
    ):
        with trusted:
            builder.store(builder.load(struct.sizes), total)
        with looked_at, counted(builder, builder.sext(struct.rank, WORD)) as d:
            size = builder.load(builder.gep(struct.sizes, [d]))
            builder.store(builder.mul(builder.load(total), size), total)
    return builder.load(total)


@intrinsic
def flat_is_trusted(typing, array):
    """Whether a flat array is so many elements at an address, and so are all that come with it."""

    def generate(context, builder, signature, args):
        rank = _struct(context, builder, signature.args[0], args[0]).rank
        return builder.icmp_signed("==", rank, rank.type(TRUSTED))

    return types.boolean(array), generate


@intrinsic
def flat_agrees(typing, x, y):
    """Whether two flat arrays have the same shape and the second is C-contiguous."""

    def generate(context, builder, signature, args):
        a = _struct(context, builder, signature.args[0], args[0])
        b = _struct(context, builder, signature.args[1], args[1])
        contiguous = builder.and_(b.flags, ir.Constant(ir.IntType(32), C_CONTIGUOUS))
        one_rank = builder.icmp_signed("==", a.rank, b.rank)
        start = builder.and_(one_rank, builder.icmp_signed("!=", contiguous, contiguous.type(0)))
        result = cgutils.alloca_once_value(builder, start)
        with builder.if_then(start):
            with counted(builder, builder.sext(a.rank, WORD)) as d:
                sizes = [builder.load(builder.gep(s.sizes, [d])) for s in (a, b)]
                equal = builder.icmp_signed("==", *sizes)
                builder.store(builder.and_(builder.load(result), equal), result)
        return builder.load(result)

    return types.boolean(x, y), generate


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
