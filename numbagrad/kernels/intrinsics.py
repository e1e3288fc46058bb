"""Every llvmlite intrinsic of the project: typed loads and stores, addresses, bit casts.

``load`` and ``store`` read an array by position in memory, whatever its rank. A kernel compiled
for arrays of rank ``FLAT_RANK`` may therefore be entered with an array of any rank up to that:
Numba's unboxing fills in as many dimensions as the array has, and the kernel reads only the data
pointer and the size.
"""

from __future__ import annotations

import numpy as np
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

FLAT_RANK = 6


@intrinsic
def _load(typing, array, i):
    def generate(context, builder, signature, args):
        struct = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.gep(struct.data, [args[1]], inbounds=True)
        return context.unpack_value(builder, signature.args[0].dtype, pointer)

    return array.dtype(array, types.intp), generate


@intrinsic
def _store(typing, array, i, value):
    def generate(context, builder, signature, args):
        struct = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.gep(struct.data, [args[1]], inbounds=True)
        context.pack_value(builder, signature.args[0].dtype, args[2], pointer)
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), generate


@intrinsic
def _count(typing, array):
    def generate(context, builder, signature, args):
        return context.make_array(signature.args[0])(context, builder, args[0]).nitems

    return types.intp(array), generate


@intrinsic
def _address(typing, array):
    def generate(context, builder, signature, args):
        struct = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.ptrtoint(struct.data, cgutils.intp_t)

    return types.intp(array), generate


@intrinsic
def _load_at(typing, address, i, like):
    """Element ``i`` of the memory at ``address``, of the dtype of the array ``like``."""

    def generate(context, builder, signature, args):
        dtype = signature.args[2].dtype
        pointer_type = context.get_data_type(dtype).as_pointer()
        base = builder.inttoptr(args[0], pointer_type)
        return context.unpack_value(builder, dtype, builder.gep(base, [args[1]]))

    return like.dtype(types.intp, types.intp, like), generate


@intrinsic
def _store_at(typing, address, i, value, like):
    def generate(context, builder, signature, args):
        dtype = signature.args[3].dtype
        pointer_type = context.get_data_type(dtype).as_pointer()
        base = builder.inttoptr(args[0], pointer_type)
        context.pack_value(builder, dtype, args[2], builder.gep(base, [args[1]]))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, like.dtype, like), generate


def _bitcast(source, target):
    @intrinsic
    def cast(typing, value):
        def generate(context, builder, signature, args):
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), generate

    return cast


float32_bits = _bitcast(types.float32, types.int32)
float64_bits = _bitcast(types.float64, types.int64)
bits_float32 = _bitcast(types.int32, types.float32)
bits_float64 = _bitcast(types.int64, types.float64)

if config.DISABLE_JIT:  # the same meaning in plain Python, for reading and debugging kernels

    def load(array, i):
        """Element ``i`` of ``array`` in memory order."""
        return array.reshape(-1)[i]

    def store(array, i, value):
        """Write element ``i`` of ``array`` in memory order."""
        array.reshape(-1)[i] = value

    def count(array):
        """Number of elements."""
        return array.size

    def address(array):
        """Address of the first element."""
        return array.ctypes.data

    def _memory(where, i, like):
        import ctypes

        size = like.dtype.itemsize
        buffer = (ctypes.c_char * size).from_address(where + i * size)
        return np.frombuffer(buffer, like.dtype)

    def load_at(where, i, like):
        """Element ``i`` of the memory at ``where``, of the dtype of the array ``like``."""
        return _memory(where, i, like)[0]

    def store_at(where, i, value, like):
        """Write element ``i`` of the memory at ``where``."""
        _memory(where, i, like)[0] = value
else:
    load, store, count, address = _load, _store, _count, _address
    load_at, store_at = _load_at, _store_at
