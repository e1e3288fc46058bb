"""Words between memories: what a thread moves at once, in one instruction.

LLVM that is not in ``intrinsics.py``; beside the intrinsic stands what the simulator runs.
"""

from __future__ import annotations

import threading
from copy import copy

import numpy as np

from . import intrinsics
from .shape import SIMULATED

__all__ = ["bits16", "copy1", "copy8", "copy16", "fixed", "standing", "which"]

if SIMULATED:

    def copy16(target, j, source, i):
        """The 16 bytes at element i of source to element j of target; both addresses aligned.

        Each is an array of the kernel's own, local or shared, or a pointer; of one dtype.
        """
        for k in range(16 // source.dtype.itemsize):
            target[j + k] = source[i + k]

    def bits16(target, j, source, i):
        """The same into words of 32 bits, of what a pointer is at: two halves become one."""
        if source.dtype.itemsize == 4:
            copy16(target, j, source, i)
            return
        for k in range(4):
            low, high = [intrinsics.half_bits(source, i + 2 * k + h) for h in (0, 1)]
            target[j + k] = low | high << np.uint32(16)

    def copy8(target, j, source, i):
        """The same of 8 bytes."""
        for k in range(8 // source.dtype.itemsize):
            target[j + k] = source[i + k]

    def copy1(target, j, source, i):
        """Element i of source to element j of target; both as for ``copy16``.

        Halves may become float32.
        """
        target[j] = source[i]

    def fixed(pointer, i):
        """A number for where element i is, from which LLVM does not see how it came about.

        So a loop adds to it what changes, and not first what changes to i.
        """
        return i

    def standing(pointer, place):
        """The pointer to where ``fixed`` says."""
        other = copy(pointer)
        other.start += int(place)
        return other

    def which():
        """The number of the thread, and the three of its block.

        They are read anew where this stands, so that nothing is kept for it.
        """
        thread = threading.current_thread()
        block = thread.blockIdx
        return thread.threadIdx.x, block.x, block.y, block.z

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

    def _words(context, builder, kind, memory, i, size):
        """The address of element i, as that of a vector of so many bytes."""
        at = address(context, builder, kind, memory, i)
        count = size // context.get_abi_sizeof(at.type.pointee)
        return builder.bitcast(at, ir.VectorType(at.type.pointee, count).as_pointer())

    def _copied(size, target, source):
        """What an intrinsic gives Numba that copies so many bytes."""

        def generate(context, builder, signature, arguments):
            into, j, memory, i = arguments
            vector = builder.load(_words(context, builder, source, memory, i, size), align=size)
            to = address(context, builder, target, into, j)
            space = to.type.addrspace
            builder.store(vector, builder.bitcast(to, vector.type.as_pointer(space)), align=size)
            return context.get_dummy_value()

        return types.void(target, types.int64, source, types.int64), generate

    @intrinsic
    def copy16(typing, target, j, source, i):
        """The 16 bytes at element i of source to element j of target; both addresses aligned.

        Each is an array of the kernel's own, local or shared, or a pointer; of one dtype.
        """
        return _copied(16, target, source)

    @intrinsic
    def bits16(typing, target, j, source, i):
        """The same into words of 32 bits, of what a pointer is at: two halves become one."""
        return _copied(16, target, source)

    @intrinsic
    def copy8(typing, target, j, source, i):
        """The same of 8 bytes."""
        return _copied(8, target, source)

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
    def fixed(typing, pointer, i):
        """A number for where element i is, from which LLVM does not see how it came about.

        So a loop adds to it what changes, and not first what changes to i.
        """

        def generate(context, builder, signature, arguments):
            whole = ir.IntType(64)
            at = builder.ptrtoint(builder.gep(arguments[0], [arguments[1]]), whole)
            kind = ir.FunctionType(whole, [whole])
            code = ir.InlineAsm(kind, "mov.b64 $0, $1;", "=l,l", side_effect=True)
            return builder.call(code, (at,))

        return types.int64(pointer, types.int64), generate

    @intrinsic
    def standing(typing, pointer, place):
        """The pointer to where ``fixed`` says."""

        def generate(context, builder, signature, arguments):
            kind = context.get_value_type(pointer)
            there = builder.inttoptr(arguments[1], kind.pointee.as_pointer(1))  # in global memory
            return builder.addrspacecast(there, kind)

        return pointer(pointer, types.int64), generate

    @intrinsic
    def which(typing):
        """The number of the thread, and the three of its block.

        They are read anew where this stands, so that nothing is kept for it.
        """
        result = types.UniTuple(types.int32, 4)

        def generate(context, builder, signature, arguments):
            word = ir.IntType(32)
            kind = ir.FunctionType(word, [])
            numbers = []
            for name in ("tid.x", "ctaid.x", "ctaid.y", "ctaid.z"):
                text = f"mov.u32 $0, %{name};"
                code = ir.InlineAsm(kind, text, "=r", side_effect=True)
                numbers.append(builder.call(code, ()))
            return context.make_tuple(builder, result, numbers)

        return result(), generate
