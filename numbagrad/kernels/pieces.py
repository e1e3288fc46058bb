"""What loops over arrays of any strides are made of, in LLVM's instructions.

A kernel's second way in, which takes its operands from memory; copies of elements that lie apart;
and how a tuple of operands enters from Python. The loop itself is in ``walk.py``.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import NativeValue, models, register_model, unbox

from .flat import DATA
from .inner import intrinsic
from .vectors import VECTOR_BYTES, WORD, at, counted, overlapping, spread

__all__ = ["CALLED", "CREW", "OperandsType", "copying", "crew_places", "second_address"]
__all__ += ["second_way_in", "thread_count"]

_PLACES = WORD.as_pointer()
CALLED = ir.FunctionType(ir.VoidType(), [_PLACES, WORD])


@intrinsic
def _second_way_in(typing):
    """Give the function that this stands in a second way in, which takes its operands from memory.

    It is ``void pieces.NAME(int64 *places, int64 n)``, and the function takes ``n`` first: of each
    pointer ``places`` has the address of ``n`` elements, of each number its eight bytes.
    """

    def generate(context, builder, signature, args):
        called = builder.function
        function = ir.Function(builder.module, CALLED, f"pieces.{called.name}")
        inside = ir.IRBuilder(function.append_basic_block("entry"))
        places, n = function.args
        kinds = [a.type for a in called.args]
        values = [inside.alloca(kinds[0].pointee), inside.alloca(kinds[1].pointee)]
        values.append(n)
        for place, kind in enumerate(kinds[len(values) :]):
            slot = inside.gep(places, [WORD(place)])
            if isinstance(kind, ir.PointerType):
                values.append(inside.inttoptr(inside.load(slot), kind))
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


CREW = "numbagrad_crew_places"
"""The name by which compiled code knows the addresses of: what shares loops, its state, and what
counts threads. 0 until somebody needed it."""

crew_places = (ctypes.c_int64 * 3)()
llvmlite.binding.add_symbol(CREW, ctypes.addressof(crew_places))


@intrinsic
def _thread_count(typing):
    """How many threads share the loops of this thread; 1 until somebody needed to know."""

    def generate(context, builder, signature, args):
        places, module = ir.ArrayType(WORD, len(crew_places)), builder.module
        found = module.globals.get(CREW) or ir.GlobalVariable(module, places, CREW)
        count = builder.load(cgutils.gep_inbounds(builder, found, 0, 2))
        out = cgutils.alloca_once_value(builder, WORD(1))
        with cgutils.if_likely(builder, builder.icmp_signed("!=", count, WORD(0))):
            kind = ir.FunctionType(WORD, []).as_pointer()
            builder.store(builder.call(builder.inttoptr(count, kind), []), out)
        return builder.load(out)

    return types.intp(), generate


if config.DISABLE_JIT:

    def thread_count():
        """One."""
        return 1
else:
    thread_count = _thread_count


def second_address(result: Any) -> int:
    """Address of the second way in of what Numba has compiled."""
    name = f"pieces.{result.fndesc.llvm_func_name}"
    return result.library.get_pointer_to_function(name)


def copying(module: Any) -> Any:
    """The function that copies ``rows`` of ``n`` elements of ``size`` bytes, 1, 2, 4 or 8.

    Its parameters: to, to_row, from, from_row, to_step, from_step, size, n, rows; addresses, bytes
    from row to row, and from element to element. Where one element is copied to all of a row that
    has no gaps, what lies up to a vector after the row is written too.
    """
    name = "numbagrad_copy_elements"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORD] * 9), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    to, to_row, from_, from_row, to_step, from_step, size, n, rows = function.args
    dense = builder.icmp_signed("==", to_step, size)
    with _case(builder, builder.and_(dense, builder.icmp_signed("==", from_step, size))):
        with _case(builder, builder.icmp_signed("==", rows, WORD(1))):
            pair = [at(builder, a, ir.IntType(8)) for a in (to, from_)]
            cgutils.raw_memcpy(builder, *pair, n, size)
        for width, begin in overlapping(builder, _LANES, builder.mul(n, size)):
            part = ir.VectorType(ir.IntType(8), width)
            there, here = builder.add(to, begin), builder.add(from_, begin)
            with _rows(builder, rows, (there, to_row), (here, from_row)) as (there, here):
                value = builder.load(at(builder, here, part), align=1)
                builder.store(value, at(builder, there, part), align=1)
    still = builder.and_(dense, builder.icmp_signed("==", from_step, WORD(0)))
    turned = builder.and_(dense, builder.icmp_signed("==", from_step, builder.neg(size)))
    # What lies apart goes by the longer of the two dimensions.
    within = builder.icmp_signed(">=", n, rows)
    pairs = list(zip((n, to_step, from_step), (rows, to_row, from_row), strict=True))
    inner = [builder.select(within, x, y) for x, y in pairs]
    outer = [builder.select(within, y, x) for x, y in pairs]
    for width in (4, 8, 2, 1):
        kind, lanes = ir.IntType(8 * width), _LANES // width
        with _case(builder, builder.icmp_signed("==", size, WORD(width))):
            with _case(builder, still):
                blocks = builder.udiv(builder.add(n, WORD(lanes - 1)), WORD(lanes))
                with _rows(builder, rows, (to, to_row), (from_, from_row)) as (there, here):
                    value = spread(builder, builder.load(at(builder, here, kind)), lanes)
                    with counted(builder, blocks) as block:
                        place = builder.add(there, builder.mul(block, WORD(_LANES)))
                        builder.store(value, at(builder, place, value.type), align=width)
            long = builder.icmp_signed(">=", n, WORD(lanes))
            with _case(builder, builder.and_(turned, long)):
                with _rows(builder, rows, (to, to_row), (from_, from_row)) as (there, here):
                    _copy_turned(builder, there, here, kind, lanes, n)
            with _rows(builder, outer[0], (to, outer[1]), (from_, outer[2])) as (there, here):
                _copy_apart(builder, there, here, kind, *inner)
    builder.ret_void()
    return function


_LANES = VECTOR_BYTES or 16


_TOGETHER = 4
"""Elements of a turn: a loop over single ones took up to 1.6 times as long wherever its jump
happened to lie over the end of 32 bytes of code (Cascade Lake)."""


def _copy_apart(builder, to, from_, kind, n, to_step, from_step):
    """Copy ``n`` elements, some bytes apart."""
    strides = [builder.mul(step, WORD(_TOGETHER)) for step in (to_step, from_step)]
    turns = builder.udiv(n, WORD(_TOGETHER))
    with _rows(builder, turns, (to, strides[0]), (from_, strides[1])) as (there, here):
        places = [(there, here)]
        for _ in range(_TOGETHER - 1):
            there, here = builder.add(there, to_step), builder.add(here, from_step)
            places.append((there, here))
        values = [builder.load(at(builder, here, kind)) for _, here in places]
        for value, (there, _) in zip(values, places, strict=True):
            builder.store(value, at(builder, there, kind))
    done = builder.mul(turns, WORD(_TOGETHER))
    to, from_ = (
        builder.add(place, builder.mul(done, step))
        for place, step in ((to, to_step), (from_, from_step))
    )
    rest = builder.sub(n, done)
    with _rows(builder, rest, (to, to_step), (from_, from_step)) as (there, here):
        builder.store(builder.load(at(builder, here, kind)), at(builder, there, kind))


def _copy_turned(builder, to, from_, kind, lanes, n):
    """Copy ``n`` numbers, at least ``lanes``, that lie one before the other from ``from_`` on."""
    width, vector = kind.width // 8, ir.VectorType(kind, lanes)
    order = ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(range(lanes))[::-1])
    last = builder.sub(n, WORD(lanes))
    with counted(builder, builder.udiv(builder.add(n, WORD(lanes - 1)), WORD(lanes))) as block:
        begin = builder.mul(block, WORD(lanes))  # the last may lie over the one before it
        begin = builder.select(builder.icmp_signed("<", begin, last), begin, last)
        gone = builder.mul(begin, WORD(width))
        lowest = builder.sub(from_, builder.add(gone, WORD((lanes - 1) * width)))
        value = builder.load(at(builder, lowest, vector), align=width)
        value = builder.shuffle_vector(value, value, order)
        builder.store(value, at(builder, builder.add(to, gone), vector), align=width)


@contextmanager
def _case(builder, condition):
    """What a function does and then returns, where ``condition`` holds."""
    with builder.if_then(condition):
        yield
        builder.ret_void()
        builder.position_at_end(builder.append_basic_block("unreachable"))


@contextmanager
def _rows(builder, count, *walked):
    """A loop that goes over addresses by steps, which are given in pairs: where they are."""
    with counted(builder, count) as i:
        yield [builder.add(a, builder.mul(i, step)) for a, step in walked]


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
