"""Words between memories: what a thread moves at once, in one instruction.

LLVM that is not in ``intrinsics.py``; beside the intrinsic stands what the simulator runs.
"""

from __future__ import annotations

from copy import copy

from . import intrinsics
from .shape import SIMULATED

__all__ = ["copy1", "copy16", "moved"]

if SIMULATED:

    def copy16(target, j, source, i):
        """The 16 bytes at element i of source to element j of target; both addresses aligned.

        Each is an array of the kernel's own, local or shared, or a pointer; of one dtype.
        """
        for k in range(16 // source.dtype.itemsize):
            target[j + k] = source[i + k]

    def copy1(target, j, source, i):
        """Element i of source to element j of target; both as for ``copy16``.

        Halves may become float32.
        """
        target[j] = source[i]

    def moved(pointer, i):
        """The pointer to element i."""
        other = copy(pointer)
        other.start += int(i)
        return other

else:
    from llvmlite import ir

    from .newer_numpy import load_device_functions

    load_device_functions()
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    if not hasattr(types, "Array"):  # Numba's own target, where numba-cuda is not installed
        from numba import types

    def address(context, builder, kind, memory, i):
        """The address of element i of an array of the kernel's own, or of what a pointer is at."""
        if isinstance(kind, types.Array):
            memory = context.make_array(kind)(context, builder, memory).data
        return builder.gep(memory, [i])

    def _words(context, builder, kind, memory, i):
        """The address of element i, as that of a vector of 16 bytes."""
        at = address(context, builder, kind, memory, i)
        count = 16 // context.get_abi_sizeof(at.type.pointee)
        return builder.bitcast(at, ir.VectorType(at.type.pointee, count).as_pointer())

    @intrinsic
    def copy16(typing, target, j, source, i):
        """The 16 bytes at element i of source to element j of target; both addresses aligned.

        Each is an array of the kernel's own, local or shared, or a pointer; of one dtype.
        """

        def generate(context, builder, signature, arguments):
            into, j, memory, i = arguments
            vector = builder.load(_words(context, builder, source, memory, i), align=16)
            builder.store(vector, _words(context, builder, target, into, j), align=16)
            return context.get_dummy_value()

        return types.void(target, types.int64, source, types.int64), generate

    @intrinsic
    def copy1(typing, target, j, source, i):
        """Element i of source to element j of target; both as for ``copy16``.

        Unlike an assignment it does not look whether an index is negative, which takes as long.
        Halves may become float32.
        """

        def generate(context, builder, signature, arguments):
            into, j, memory, i = arguments
            value = builder.load(address(context, builder, source, memory, i))
            if isinstance(source, intrinsics.HalfPointer):
                value = intrinsics.widened(builder, source, value)
            builder.store(value, address(context, builder, target, into, j))
            return context.get_dummy_value()

        return types.void(target, types.int64, source, types.int64), generate

    @intrinsic
    def moved(typing, pointer, i):
        """The pointer to element i."""

        def generate(context, builder, signature, arguments):
            return builder.gep(arguments[0], [arguments[1]])

        return pointer(pointer, types.int64), generate
