"""What loops over arrays of any strides are made of, in LLVM's instructions.

A kernel's second way in, which takes its operands from memory; copies of elements that lie apart;
and how a tuple of operands enters from Python. The loop itself is in ``nest.py``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import NativeValue, intrinsic, models, register_model, unbox

from .intrinsics import C_CONTIGUOUS, DATA
from .vectors import WORD, at, counted, spread

__all__ = ["CALLED", "OperandsType", "copying", "second_address", "second_way_in"]

_PLACES = WORD.as_pointer()
CALLED = ir.FunctionType(ir.VoidType(), [_PLACES, WORD])


@intrinsic
def _second_way_in(typing):
    """Give the function that this stands in a second way in, which takes its operands from memory.

    It is ``void pieces.NAME(int64 *places, int64 n)``: of each array ``places`` has the address of
    ``n`` elements, of each number its eight bytes.
    """

    def generate(context, builder, signature, args):
        called = builder.function
        function = ir.Function(builder.module, CALLED, f"pieces.{called.name}")
        inside = ir.IRBuilder(function.append_basic_block("entry"))
        places, n = function.args
        kinds = [a.type for a in called.args]
        values = [inside.alloca(kinds[0].pointee), inside.alloca(kinds[1].pointee)]
        sizes = inside.alloca(WORD)
        inside.store(n, sizes)
        place, one, flat = 0, ir.IntType(32)(1), ir.IntType(32)(C_CONTIGUOUS)
        while len(values) < len(kinds):
            kind = kinds[len(values)]
            slot = inside.gep(places, [WORD(place)])
            place += 1
            if isinstance(kind, ir.PointerType):  # a FlatType: data, rank, flags, sizes
                values += [inside.inttoptr(inside.load(slot), kind), one, flat, sizes]
            elif isinstance(kind, ir.IntType) and kind.width < 64:
                values.append(inside.trunc(inside.load(slot), kind))
            else:
                values.append(inside.load(inside.bitcast(slot, kind.as_pointer())))
        call = inside.call(called, values)
        call.attributes.add("noinline")
        inside.ret_void()
        return context.get_dummy_value()

    return types.void(), generate


if config.DISABLE_JIT:

    def second_way_in():
        """Nothing: see ``interpreted``."""
else:
    second_way_in = _second_way_in


def second_address(result: Any) -> int:
    """Address of the second way in of what Numba has compiled."""
    name = f"pieces.{result.fndesc.llvm_func_name}"
    return result.library.get_pointer_to_function(name)


def copying(module: Any) -> Any:
    """The function that copies ``n`` elements of ``size`` bytes, 1, 2, 4 or 8, between addresses.

    Its parameters: to, to_step, from, from_step, size, n; steps in bytes.
    """
    name = "numbagrad_copy_elements"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORD] * 6), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    to, to_step, from_, from_step, size, n = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    dense = builder.icmp_signed("==", to_step, size)
    with builder.if_then(builder.and_(dense, builder.icmp_signed("==", from_step, size))):
        byte = ir.IntType(8).as_pointer()
        pair = [builder.inttoptr(a, byte) for a in (to, from_)]
        cgutils.raw_memcpy(builder, *pair, n, size)
        builder.ret_void()
        builder.position_at_end(builder.append_basic_block("unreachable"))
    still = builder.and_(dense, builder.icmp_signed("==", from_step, WORD(0)))
    for width in (4, 8, 2, 1):
        kind = ir.IntType(8 * width)
        with builder.if_then(builder.icmp_signed("==", size, WORD(width))):
            with builder.if_then(still):
                first = builder.load(builder.inttoptr(from_, kind.as_pointer()))
                _fill(builder, to, n, first, width)
            begin = builder.select(still, n, WORD(0))
            with counted(builder, builder.sub(n, begin)) as i:
                ends = [
                    builder.add(a, builder.mul(i, s))
                    for a, s in ((from_, from_step), (to, to_step))
                ]
                here, there = (builder.inttoptr(e, kind.as_pointer()) for e in ends)
                builder.store(builder.load(here), there)
            builder.ret_void()
            builder.position_at_end(builder.append_basic_block("unreachable"))
    builder.ret_void()
    return function


def _fill(builder, to, n, value, width):
    """Write ``value``, of ``width`` bytes, ``n`` times, by vectors and then one by one."""
    lanes = 32 // width
    many = spread(builder, value, lanes)
    with counted(builder, builder.udiv(n, WORD(lanes))) as block:
        place = builder.add(to, builder.mul(block, WORD(32)))
        builder.store(many, at(builder, place, many.type), align=width)
    done = builder.and_(n, WORD(-lanes))
    with counted(builder, builder.sub(n, done)) as i:
        place = builder.add(to, builder.mul(builder.add(done, i), WORD(width)))
        builder.store(value, at(builder, place, value.type))


class OperandsType(types.CPointer):
    """A tuple of arrays and numbers that came from Python: what ``second_way_in`` takes them as."""

    def __init__(self):
        super().__init__(types.int64)
        self.name = "operands"


register_model(OperandsType)(models.PointerModel)
_ITEMS = tuple.__basicsize__


@unbox(OperandsType)
def _unbox_operands(kind, obj, c):
    builder, byte = c.builder, ir.IntType(8).as_pointer()
    count = c.pyapi.tuple_size(obj)
    places = builder.alloca(WORD, size=count)
    items = builder.bitcast(obj, byte)
    items = builder.bitcast(builder.gep(items, [WORD(_ITEMS)]), byte.as_pointer())
    real, whole, truth = (
        c.pyapi.get_c_object(name) for name in ("PyFloat_Type", "PyLong_Type", "PyBool_Type")
    )
    with counted(builder, count) as i:
        item = builder.load(builder.gep(items, [i]))
        item = builder.bitcast(item, c.pyapi.pyobj)
        place = builder.gep(places, [i])
        type_ = c.pyapi.get_type(item)
        with builder.if_else(builder.icmp_unsigned("==", type_, real)) as (is_real, other):
            with is_real:
                number = c.pyapi.float_as_double(item)
                builder.store(builder.bitcast(number, WORD), place)
            with other:
                a, b = (builder.icmp_unsigned("==", type_, t) for t in (whole, truth))
                with builder.if_else(builder.or_(a, b)) as (is_whole, is_array):
                    with is_whole:
                        builder.store(c.pyapi.long_as_longlong(item), place)
                    with is_array:
                        field = builder.gep(builder.bitcast(item, byte), [WORD(DATA)])
                        builder.store(builder.load(builder.bitcast(field, _PLACES)), place)
    return NativeValue(places, is_error=c.pyapi.c_api_error())
