"""The intrinsics of all kernels: typed loads and stores, addresses, bit casts. ``flat.py`` has how
elementwise kernels take arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils

from .flat import FlatType, flat_fits
from .half_type import computed
from .inner import intrinsic
from .numba_compiler import LONGEST


class _Pointed:
    """A bare pointer, read as the arrays are."""

    def __init__(self, data):
        self.data = data


def _word(number):
    return ir.Constant(ir.IntType(64), number)


def _struct(context, builder, kind, value):
    if isinstance(kind, FlatType):
        return cgutils.create_struct_proxy(kind)(context, builder, value=value)
    if isinstance(kind, types.CPointer):
        return _Pointed(value)
    return context.make_array(kind)(context, builder, value)


@intrinsic
def _load(typing, array, i):
    def generate(context, builder, signature, args):
        struct = _struct(context, builder, signature.args[0], args[0])
        pointer = builder.gep(struct.data, [args[1]], inbounds=True)
        return context.unpack_value(builder, signature.args[0].dtype, pointer)

    return computed(array.dtype)(array, types.intp), generate


@intrinsic
def _store(typing, array, i, value):
    def generate(context, builder, signature, args):
        struct = _struct(context, builder, signature.args[0], args[0])
        pointer = builder.gep(struct.data, [args[1]], inbounds=True)
        context.pack_value(builder, signature.args[0].dtype, args[2], pointer)
        return context.get_dummy_value()

    return types.void(array, types.intp, computed(array.dtype)), generate


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

    return computed(like.dtype)(types.intp, types.intp, like), generate


@intrinsic
def _store_at(typing, address, i, value, like):
    def generate(context, builder, signature, args):
        dtype = signature.args[3].dtype
        pointer_type = context.get_data_type(dtype).as_pointer()
        base = builder.inttoptr(args[0], pointer_type)
        context.pack_value(builder, dtype, args[2], builder.gep(base, [args[1]]))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, computed(like.dtype), like), generate


def _bitcast(source, target):
    @intrinsic
    def cast(typing, value):
        def generate(context, builder, signature, args):
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), generate

    def cast_in_python(value):
        return np.dtype(str(source)).type(value).view(str(target))

    return cast_in_python if config.DISABLE_JIT else cast


float32_bits = _bitcast(types.float32, types.int32)
float64_bits = _bitcast(types.float64, types.int64)
bits_float32 = _bitcast(types.int32, types.float32)
bits_float64 = _bitcast(types.int64, types.float64)

# -- what generated programs use ------------------------------------------------------------------


@intrinsic
def _pointer(typing, address, dtype):
    """Elements of ``dtype`` from ``address`` on, for ``load`` and ``store``."""
    kind = types.CPointer(dtype.instance_type if hasattr(dtype, "instance_type") else dtype.dtype)

    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(kind))

    return kind(types.intp, dtype), generate


@intrinsic
def _wide(typing):
    """Let LLVM use the widest vectors in this function, which by default it does not where they
    slow the clock of older CPUs a little: right for long loops with much arithmetic."""

    def generate(context, builder, signature, args):
        set.add(builder.function.attributes, LONGEST)  # llvmlite's own add knows no strings
        return context.get_dummy_value()

    return types.void(), generate


def _mark_apart(builder, instruction, scope):
    """Tell LLVM which accesses of a loop never meet.

    scope: "loop.piece.pieces": this access is to one of so many disjoint pieces of memory. Without
    it a vectorised loop begins with a test of each pair of pointers, and with many there is none.
    """
    module = builder.module
    loop, piece, pieces = scope.split(".")
    domain = module.add_metadata(["numbagrad"])
    scopes = [
        module.add_metadata([f"{builder.function.name} {loop}.{k}", domain])
        for k in range(int(pieces))
    ]
    own = scopes.pop(int(piece))
    instruction.set_metadata("alias.scope", module.add_metadata([own]))
    if scopes:
        instruction.set_metadata("noalias", module.add_metadata(scopes))


@intrinsic(prefer_literal=True)
def _load_apart(typing, array, i, scope):
    """``load`` from one of several disjoint pieces of memory, see ``_mark_apart``."""
    text = scope.literal_value

    def generate(context, builder, signature, args):
        struct = _struct(context, builder, signature.args[0], args[0])
        found = builder.load(builder.gep(struct.data, [args[1]], inbounds=True))
        _mark_apart(builder, found, text)
        model = context.data_model_manager[signature.args[0].dtype]
        return model.from_data(builder, found)

    return computed(array.dtype)(array, types.intp, scope), generate


@intrinsic(prefer_literal=True)
def _store_apart(typing, array, i, value, scope):
    """``store`` to one of several disjoint pieces of memory, see ``_mark_apart``."""
    text = scope.literal_value

    def generate(context, builder, signature, args):
        struct = _struct(context, builder, signature.args[0], args[0])
        place = builder.gep(struct.data, [args[1]], inbounds=True)
        model = context.data_model_manager[signature.args[0].dtype]
        _mark_apart(builder, builder.store(model.as_data(builder, args[2]), place), text)
        return context.get_dummy_value()

    return types.void(array, types.intp, computed(array.dtype), scope), generate


@intrinsic
def _start(typing, array):
    """Address of the first element of an array argument or a pointer."""

    def generate(context, builder, signature, args):
        struct = _struct(context, builder, signature.args[0], args[0])
        return builder.ptrtoint(struct.data, cgutils.intp_t)

    return types.intp(array), generate


@intrinsic
def _itemsize(typing, like):
    """Bytes of an element of an array or a pointer, which LLVM knows as a constant."""

    def generate(context, builder, signature, args):
        size = context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype))
        return ir.Constant(cgutils.intp_t, size)

    return types.intp(like), generate


def array_from(context, builder, kind, data, shape, strides):
    """The value of an array type, for code that generates code. strides: in elements."""
    from numba.np import arrayobj  # 30 ms that only a compilation needs

    array = context.make_array(kind)(context, builder)
    itemsize = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    width = ir.Constant(cgutils.intp_t, itemsize)
    arrayobj.populate_array(
        array,
        data=builder.bitcast(data, array.data.type),
        shape=shape,
        strides=[builder.mul(s, width) for s in strides],
        itemsize=width,
        meminfo=None,
        parent=None,
    )
    return array._getvalue()


@intrinsic
def _dense(typing, pointer, shape):
    """The C-contiguous array of ``shape``, a tuple, at ``pointer``."""
    kind = types.Array(pointer.dtype, len(shape), "C")

    def generate(context, builder, signature, args):
        sizes = cgutils.unpack_tuple(builder, args[1])
        strides, step = [], ir.Constant(cgutils.intp_t, 1)
        for size in reversed(sizes):
            strides.insert(0, step)
            step = builder.mul(step, size)
        return array_from(context, builder, kind, args[0], sizes, strides)

    return kind(pointer, shape), generate


@intrinsic
def _strided(typing, pointer, shape, strides):
    """The array of ``shape`` and ``strides``, tuples in elements, at ``pointer``."""
    kind = types.Array(pointer.dtype, len(shape), "A")

    def generate(context, builder, signature, args):
        sizes = cgutils.unpack_tuple(builder, args[1])
        steps = cgutils.unpack_tuple(builder, args[2])
        return array_from(context, builder, kind, args[0], sizes, steps)

    return kind(pointer, shape, strides), generate


@intrinsic
def _call(typing, address, arguments):
    """Call the compiled function at ``address`` (see ``machine.native``) on a tuple."""
    given = tuple(types.unliteral(t) for t in arguments)

    def generate(context, builder, signature, args):
        values = cgutils.unpack_tuple(builder, args[1])
        convention = context.call_conv
        function_type = convention.get_function_type(types.none, given)
        callee = builder.inttoptr(args[0], function_type.as_pointer())
        status, _ = convention.call_function(builder, callee, types.none, given, values)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.void(types.intp, types.Tuple(given)), generate


@intrinsic
def _call_for(typing, address, arguments):
    """``call`` of a function that returns an int64; its result."""
    given = tuple(types.unliteral(t) for t in arguments)

    def generate(context, builder, signature, args):
        values = cgutils.unpack_tuple(builder, args[1])
        convention = context.call_conv
        function_type = convention.get_function_type(types.int64, given)
        callee = builder.inttoptr(args[0], function_type.as_pointer())
        status, found = convention.call_function(builder, callee, types.int64, given, values)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return found

    return types.int64(types.intp, types.Tuple(given)), generate


@intrinsic
def _call_python(typing, address, number):
    """Call the C function ``int(int64)`` at ``address``."""

    def generate(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1]])

    return types.int64(types.intp, types.int64), generate


@intrinsic
def _unknown(typing, number):
    """``number``, which LLVM takes for any number.

    A short loop of known length is unrolled before LLVM looks for loops to vectorise, so that it
    would take the loop around it, with gathers and scatters.
    """

    def generate(context, builder, signature, args):
        word = ir.IntType(64)
        same = ir.InlineAsm(ir.FunctionType(word, [word]), "", "=r,0", side_effect=False)
        return builder.call(same, args)

    return types.int64(types.int64), generate


@intrinsic
def _lesser(typing, x, y):
    """The lesser of two int64: Numba compiles a function for ``min``, which takes it 30 ms."""

    def generate(context, builder, signature, args):
        return builder.select(builder.icmp_signed("<", *args), *args)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _widened(typing, number):
    """A float as float64, any other number as int64: what sums are added up in."""
    wide = types.float64 if isinstance(number, types.Float) else types.int64

    def generate(context, builder, signature, args):
        return context.cast(builder, args[0], signature.args[0], wide)

    return wide(number), generate


@intrinsic
def _added(typing, x, y):
    """The sum of two numbers of a type: of floats in their own width, else of int64."""
    wide = x if isinstance(x, types.Float) else types.int64

    def generate(context, builder, signature, args):
        a, b = (context.cast(builder, v, x, wide) for v in args)
        return builder.fadd(a, b) if isinstance(wide, types.Float) else builder.add(a, b)

    return wide(x, x), generate


@intrinsic(prefer_literal=True)
def _stack(typing, count, like):
    """Memory for ``count`` values, a constant, of the type of ``like``, on the stack of the calling
    function; what stands there is undefined. ``np.empty`` takes Numba 0.2 s to compile."""
    pointer, size = types.CPointer(types.unliteral(like)), count.literal_value

    def generate(context, builder, signature, args):
        with builder.goto_entry_block():  # not cgutils.alloca_once: it would write zeros
            room = builder.alloca(context.get_data_type(pointer.dtype), size=_word(size))
        room.align = 64
        return room

    return pointer(count, like), generate


@intrinsic
def _parted(typing, number, size):
    """Quotient and rest of int64 without sign, for which Numba would make a dozen branches."""
    pair = types.UniTuple(types.int64, 2)

    def generate(context, builder, signature, args):
        return context.make_tuple(builder, pair, [builder.udiv(*args), builder.urem(*args)])

    return pair(types.int64, types.int64), generate


@intrinsic
def _plus(typing, total, x):
    """``total + x``; sums made of it may be reordered, which is what vectorises them."""

    def generate(context, builder, signature, args):
        return builder.fadd(*args, flags=("reassoc", "contract", "nsz"))

    return total(total, total), generate


def _extreme(name: str) -> Any:
    """What generates ``llvm.NAME`` of two floats, which vectorises, or the one of two integers."""
    order = ">" if name == "maximum" else "<"

    def generate(context, builder, signature, args):
        kind = args[0].type
        if isinstance(kind, ir.IntType):
            return builder.select(builder.icmp_signed(order, *args), *args)
        function_type = ir.FunctionType(kind, [kind, kind])
        function = builder.module.declare_intrinsic(f"llvm.{name}", [kind], function_type)
        return builder.call(function, args, fastmath=("nsz",))

    return generate


@intrinsic
def _larger(typing, x, y):
    """The larger of two numbers of one type, NaN if one is NaN.

    Of zeros any: to tell them apart takes as long as all the rest.
    """
    return x(x, x), _extreme("maximum")


@intrinsic
def _smaller(typing, x, y):
    """The smaller of two numbers of one type, as ``larger``."""
    return x(x, x), _extreme("minimum")


@intrinsic
def _picked(typing, condition, x, y):
    """``x`` where the condition holds, else ``y``: of a choice between branches LLVM makes two
    loops, or none that is vectorised, where one of the numbers is the same all along."""

    def generate(context, builder, signature, args):
        return builder.select(*args)

    return x(types.boolean, x, x), generate


@intrinsic
def _signum(typing, x):
    """1 or -1 with the sign of a number, 0 and NaN as they are."""

    def generate(context, builder, signature, args):
        (value,) = args
        number = value.type
        whole = isinstance(number, ir.IntType)
        compared = builder.icmp_signed if whole else builder.fcmp_ordered
        rest = builder.select(compared("<", value, number(0)), number(-1), value)
        return builder.select(compared(">", value, number(0)), number(1), rest)

    return x(x), generate


if config.DISABLE_JIT:
    from .plain_intrinsics import (
        added,
        address,
        call,
        call_for,
        call_python,
        dense,
        fits,
        itemsize,
        larger,
        lesser,
        load,
        load_apart,
        load_at,
        parted,
        picked,
        plus,
        pointer,
        signum,
        smaller,
        stack,
        start,
        store,
        store_apart,
        store_at,
        strided,
        unknown,
        wide,
        widened,
    )
else:
    load, store, address = _load, _store, _address
    load_at, store_at = _load_at, _store_at
    fits = flat_fits
    load_apart, store_apart = _load_apart, _store_apart
    pointer, start, dense, strided = _pointer, _start, _dense, _strided
    itemsize = _itemsize
    call, call_for, call_python = _call, _call_for, _call_python
    stack, widened, lesser, added = _stack, _widened, _lesser, _added
    parted, plus, unknown, wide = _parted, _plus, _unknown, _wide
    larger, smaller, picked, signum = _larger, _smaller, _picked, _signum
