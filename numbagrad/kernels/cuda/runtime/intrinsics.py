"""What kernels need below Python: typed casts, bits, 128-bit loads, pointers from a table.

All LLVM of the GPU kernels is in this file. Beside each intrinsic stands what the simulator runs.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ...halves import BFLOAT16, FLOAT16, FLOAT32, HALVES, arithmetic, decoded, encoded
from .shape import SIMULATED

__all__ = [
    "HALF_POINTERS",
    "MULTIPLY",
    "Pointer",
    "as_type",
    "bits_float32",
    "bits_float64",
    "float32_bits",
    "float64_bits",
    "half_bits",
    "load2",
    "load4",
    "load8",
    "pointer_at",
    "round_bfloat16",
    "round_float16",
    "store2",
    "store4",
    "store8",
    "tf32_bits",
]


class Pointer:
    """What the simulator's kernels get for an array: its memory, indexed from its first element.

    An index outside of what the array spans raises. Halves come as float32, as on a GPU.
    """

    def __init__(self, address: int, dtype: np.dtype, low: int, size: int):
        """``size`` bytes of memory begin at ``low``; index 0 is at ``address``."""
        count = size // dtype.itemsize
        memory: Any = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(low)
        self.elements = np.ndarray((count,), dtype, memory)
        self.start, rest = divmod(address - low, dtype.itemsize)
        assert rest == 0, "misaligned"
        self.dtype = dtype

    def _at(self, i):
        at = self.start + int(i)
        if not 0 <= at < self.elements.size:
            raise IndexError(f"{i} is outside of the array")
        return at

    def __getitem__(self, i):
        at = self._at(i)
        if self.dtype in HALVES:
            return decoded(self.elements[at : at + 1]).astype(np.float32)[0]
        return self.elements[at]

    def __setitem__(self, i, value):
        at = self._at(i)
        if self.dtype in HALVES:
            value = encoded(np.asarray(value).astype(np.float32), self.dtype)
        self.elements[at : at + 1] = np.asarray(value).astype(self.dtype)


HALF_POINTERS: dict[np.dtype, Any] = {}
"""Numba's types for arrays of halves."""

if SIMULATED:
    blocks: list = []
    """The memory blocks of the launch that runs: (address, size), for ``pointer_at``."""

    def as_type(pointer, value):
        """``value`` in the dtype that ``pointer`` points to; float32 for halves."""
        return np.asarray(value).astype(arithmetic(pointer.dtype))[()]

    def _load(pointer, i, count):
        at = pointer._at(i)
        assert (pointer.elements[at:].ctypes.data) % min(count * pointer.dtype.itemsize, 16) == 0
        return tuple([pointer[i + k] for k in range(count)])

    def load4(pointer, i):
        """Elements i to i + 3 at once; their address must be a multiple of 16 (or of them all)."""
        return _load(pointer, i, 4)

    def load2(pointer, i):
        """Elements i and i + 1 at once."""
        return _load(pointer, i, 2)

    def load8(pointer, i):
        """Elements i to i + 7 of halves at once; their address must be a multiple of 16."""
        return _load(pointer, i, 8)

    def store8(pointer, i, a, b, c, d, e, f, g, h):
        """Write elements i to i + 7 at once."""
        for k, value in enumerate((a, b, c, d, e, f, g, h)):
            pointer[i + k] = value

    def store4(pointer, i, a, b, c, d):
        """Write elements i to i + 3 at once."""
        for k, value in enumerate((a, b, c, d)):
            pointer[i + k] = value

    def store2(pointer, i, a, b):
        """Write elements i and i + 1 at once."""
        for k, value in enumerate((a, b)):
            pointer[i + k] = value

    def pointer_at(address, like):
        """The pointer to ``address``, an int, of the type of ``like``."""
        address = int(address)
        for low, size in blocks:
            if low <= address < low + size:
                return Pointer(address, like.dtype, low, size)
        raise IndexError(f"{address:#x} is in no array of this launch")

    def float32_bits(x):
        """The bits of a float32 as int32."""
        return np.float32(x).view(np.int32)

    def bits_float32(bits):
        """The float32 with the bits of an int32."""
        return np.int32(bits).view(np.float32)

    def float64_bits(x):
        """The bits of a float64 as int64."""
        return np.float64(x).view(np.int64)

    def bits_float64(bits):
        """The float64 with the bits of an int64."""
        return np.int64(bits).view(np.float64)

    def half_bits(pointer, i):
        """The 16 bits of element i of halves, as uint32."""
        at = pointer._at(i)
        return pointer.elements[at : at + 1].view(np.uint16).astype(np.uint32)[0]

    def tf32_bits(x):
        """The bits of a float32 rounded to 10 bits of fraction, ties away from 0, as uint32."""
        bits = np.float32(x).view(np.uint32)
        return bits if not np.isfinite(x) else (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)

    def round_float16(x):
        """The nearest float16, as float32."""
        return encoded(x, FLOAT16).astype(np.float32)[()]

    def round_bfloat16(x):
        """The nearest bfloat16, as float32."""
        return decoded(encoded(x, BFLOAT16))[()]

    def _factors(dtype):
        """A function from a word of ``mma``'s operands to the factors in it, as float64."""
        if dtype == np.float32:
            return lambda word: np.array([word], np.uint32).view(np.float32).astype(np.float64)
        return lambda word: decoded(
            np.array([word & 0xFFFF, word >> 16], np.uint16).view(dtype)
        ).astype(np.float64)

    def _multiplier(dtype):
        """The stand-in for ``mma``: each lane looks up the words that the others hold."""
        factors = _factors(dtype)

        def multiply(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
            from .warp import exchange

            words, me = exchange((a0, a1, a2, a3, b0, b1))
            first, lane = me - me % 32, me % 32
            found = [c0, c1, c2, c3]
            for number in range(4):
                row, column = lane // 4, 2 * (lane % 4) + number % 2
                low = number // 2  # rows 8 to 15
                total = np.float64(found[number])
                for w in range(8):
                    x = words[first + row * 4 + w % 4][low + 2 * (w // 4)]
                    y = words[first + column * 4 + w % 4][4 + w // 4]
                    total += (factors(x) * factors(y)).sum()
                found[number] = np.float32(total)
            return tuple(found)

        return multiply

    MULTIPLY = {d: _multiplier(d) for d in (FLOAT16, BFLOAT16, FLOAT32)}

else:
    import operator

    from llvmlite import ir

    from .newer_numpy import load_device_functions

    load_device_functions()
    from numba.cuda import models, types
    from numba.cuda.cudaimpl import lower
    from numba.cuda.extending import intrinsic

    register_model = models.register_model
    if not hasattr(types, "CPointer"):  # Numba's own target, where numba-cuda is not installed
        from numba import types
        from numba.core.datamodel import models

    class HalfPointer(types.CPointer):
        """A pointer to halves: what is read through it is float32, what is written is rounded.

        So a kernel computes with halves as with float32, and its text is the same.
        """

        def __init__(self, name: str):
            super().__init__(types.float32)
            self.name = f"{name}*"
            self.of = name

        @property
        def key(self):
            return self.name

    @register_model(HalfPointer)
    class _HalfPointerModel(models.PrimitiveModel):
        def __init__(self, manager, kind):
            super().__init__(manager, kind, ir.IntType(16).as_pointer())

    _WORD, _SINGLE, _SHORT = ir.IntType(32), ir.FloatType(), ir.IntType(16)

    def _assembly(builder, result, text, constraints, *args):
        kind = ir.FunctionType(result, [a.type for a in args])
        return builder.call(ir.InlineAsm(kind, text, constraints, side_effect=False), args)

    def widened(builder, kind, word):
        """The float32 of a half's 16 bits."""
        if kind.of == "float16":
            return _assembly(builder, _SINGLE, "cvt.f32.f16 $0, $1;", "=f,h", word)
        shift = ir.Constant(_WORD, 16)
        return builder.bitcast(builder.shl(builder.zext(word, _WORD), shift), _SINGLE)

    def _narrowed(builder, kind, value):
        """The 16 bits of a float32, rounded to the nearest, ties to even."""
        to = "f16" if kind.of == "float16" else "bf16"
        return _assembly(builder, _SHORT, f"cvt.rn.{to}.f32 $0, $1;", "=h,f", value)

    @lower(operator.getitem, HalfPointer, types.Integer)
    def _half_at(context, builder, signature, args):
        word = builder.load(builder.gep(args[0], [args[1]]))
        return widened(builder, signature.args[0], word)

    @lower(operator.setitem, HalfPointer, types.Integer, types.Any)
    def _set_half_at(context, builder, signature, args):
        value = context.cast(builder, args[2], signature.args[2], types.float32)
        word = _narrowed(builder, signature.args[0], value)
        builder.store(word, builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    @intrinsic
    def as_type(typing, pointer, value):
        """``value`` in the dtype that ``pointer`` points to."""
        target = pointer.dtype

        def generate(context, builder, signature, arguments):
            return context.cast(builder, arguments[1], signature.args[1], target)

        return target(pointer, value), generate

    def _vector(context, builder, kind, pointer, i, count):
        element = context.get_value_type(kind).pointee
        at = builder.gep(pointer, [i])
        align = min(count * (context.get_abi_sizeof(element)), 16)
        return builder.bitcast(at, ir.VectorType(element, count).as_pointer()), align

    def _loader(count):
        def load(typing, pointer, i):
            result = types.UniTuple(pointer.dtype, count)

            def generate(context, builder, signature, arguments):
                at, align = _vector(context, builder, pointer, *arguments, count)
                vector = builder.load(at, align=align)
                lanes = [
                    builder.extract_element(vector, ir.Constant(ir.IntType(32), k))
                    for k in range(count)
                ]
                if isinstance(pointer, HalfPointer):
                    lanes = [widened(builder, pointer, lane) for lane in lanes]
                return context.make_tuple(builder, result, lanes)

            return result(pointer, types.int64), generate

        return load

    def _storer(context, builder, kind, pointer, i, values):
        at, align = _vector(context, builder, kind, pointer, i, len(values))
        vector = ir.Constant(at.type.pointee, ir.Undefined)
        for k, value in enumerate(values):
            if isinstance(kind, HalfPointer):
                value = _narrowed(builder, kind, value)
            vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), k))
        builder.store(vector, at, align=align)
        return context.get_dummy_value()

    @intrinsic
    def load4(typing, pointer, i):
        """Elements i to i + 3 at once; their address must be a multiple of 16 (or of them all)."""
        return _loader(4)(typing, pointer, i)

    @intrinsic
    def load2(typing, pointer, i):
        """Elements i and i + 1 at once."""
        return _loader(2)(typing, pointer, i)

    @intrinsic
    def load8(typing, pointer, i):
        """Elements i to i + 7 of halves at once; their address must be a multiple of 16."""
        return _loader(8)(typing, pointer, i)

    @intrinsic
    def store8(typing, pointer, i, a, b, c, d, e, f, g, h):
        """Write elements i to i + 7 at once."""

        def generate(context, builder, signature, arguments):
            return _storer(context, builder, pointer, *arguments[:2], arguments[2:])

        return types.void(pointer, types.int64, *(pointer.dtype,) * 8), generate

    @intrinsic
    def store4(typing, pointer, i, a, b, c, d):
        """Write elements i to i + 3 at once."""

        def generate(context, builder, signature, arguments):
            return _storer(context, builder, pointer, *arguments[:2], arguments[2:])

        element = pointer.dtype
        return types.void(pointer, types.int64, element, element, element, element), generate

    @intrinsic
    def store2(typing, pointer, i, a, b):
        """Write elements i and i + 1 at once."""

        def generate(context, builder, signature, arguments):
            return _storer(context, builder, pointer, *arguments[:2], arguments[2:])

        return types.void(pointer, types.int64, pointer.dtype, pointer.dtype), generate

    @intrinsic
    def pointer_at(typing, address, like):
        """The pointer to ``address``, an int, of the type of ``like``."""

        def generate(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], context.get_value_type(like))

        return like(types.int64, like), generate

    def _bitcast(source, target):
        def cast(typing, x):
            def generate(context, builder, signature, arguments):
                return builder.bitcast(arguments[0], context.get_value_type(target))

            return target(source), generate

        return cast

    @intrinsic
    def float32_bits(typing, x):
        """The bits of a float32 as int32."""
        return _bitcast(types.float32, types.int32)(typing, x)

    @intrinsic
    def bits_float32(typing, bits):
        """The float32 with the bits of an int32."""
        return _bitcast(types.int32, types.float32)(typing, bits)

    @intrinsic
    def float64_bits(typing, x):
        """The bits of a float64 as int64."""
        return _bitcast(types.float64, types.int64)(typing, x)

    @intrinsic
    def bits_float64(typing, bits):
        """The float64 with the bits of an int64."""
        return _bitcast(types.int64, types.float64)(typing, bits)

    HALF_POINTERS.update({FLOAT16: HalfPointer("float16"), BFLOAT16: HalfPointer("bfloat16")})

    @intrinsic
    def half_bits(typing, pointer, i):
        """The 16 bits of element i of halves, as uint32."""

        def generate(context, builder, signature, arguments):
            return builder.zext(builder.load(builder.gep(arguments[0], [arguments[1]])), _WORD)

        return types.uint32(pointer, types.int64), generate

    @intrinsic
    def tf32_bits(typing, x):
        """The bits of a float32 rounded to 10 bits of fraction, ties away from 0, as uint32."""

        def generate(context, builder, signature, arguments):
            return _assembly(builder, _WORD, "cvt.rna.tf32.f32 $0, $1;", "=r,f", arguments[0])

        return types.uint32(types.float32), generate

    def _rounder(kind):
        def round_half(typing, x):
            def generate(context, builder, signature, arguments):
                return widened(builder, kind, _narrowed(builder, kind, arguments[0]))

            return types.float32(types.float32), generate

        return round_half

    @intrinsic
    def round_float16(typing, x):
        """The nearest float16, as float32."""
        return _rounder(HALF_POINTERS[FLOAT16])(typing, x)

    @intrinsic
    def round_bfloat16(typing, x):
        """The nearest bfloat16, as float32."""
        return _rounder(HALF_POINTERS[BFLOAT16])(typing, x)

    def _multiplier(shape):
        """``mma.sync``: four sums of a lane, of a 16 by 8 square of the warp, and its product.

        a, b: words of the factors, two halves or one tf32 each. Lane 4 g + t holds of the left
        factor rows g and g + 8, of the right one column g, words t and t + 4; of the sums rows g
        and g + 8, columns 2 t and 2 t + 1. PTX ISA, "Matrix Fragments for mma.m16n8k16".
        """
        lanes = "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
        text = f"mma.sync.aligned.{shape} {lanes}"
        constraints = "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f"

        @intrinsic
        def multiply(typing, a0, a1, a2, a3, b0, b1, c0, c1, c2, c3):
            result = types.UniTuple(types.float32, 4)

            def generate(context, builder, signature, arguments):
                sums = ir.LiteralStructType([_SINGLE] * 4)
                kind = ir.FunctionType(sums, [a.type for a in arguments])
                # Its lanes work together: it must not move into a branch.
                code = ir.InlineAsm(kind, text, constraints, side_effect=True)
                found = builder.call(code, arguments)
                parts = [builder.extract_value(found, n) for n in range(4)]
                return context.make_tuple(builder, result, parts)

            return result(*(types.uint32,) * 6, *(types.float32,) * 4), generate

        return multiply

    MULTIPLY = {
        FLOAT16: _multiplier("m16n8k16.row.col.f32.f16.f16.f32"),
        BFLOAT16: _multiplier("m16n8k16.row.col.f32.bf16.bf16.f32"),
        FLOAT32: _multiplier("m16n8k8.row.col.f32.tf32.tf32.f32"),
    }
