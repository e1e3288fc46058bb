"""What a compiled step does with its table of numbers: reads it, looks first, counts at the end.

The functions are written in LLVM's own instructions: of each that is written in Python, Numba
compiles a function of its own, which takes 60 ms. The Python beside them says what they do, and
does it without the JIT. Start reading at ``TableType``.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.extending import NativeValue, models, register_model, unbox

from .flat import DATA, SIZES
from .inner import intrinsic
from .intrinsics import array_from
from .numba_compiler import BY_WORDS
from .vectors import counted

__all__ = ["TableType", "held", "meet", "move_counts", "overlaps"]

_WORD, _OBJECT = ir.IntType(64), ir.IntType(8).as_pointer()
_PAIR = ir.Constant(_WORD, 2)


class TableType(types.Array):
    """A one-dimensional C-contiguous int64 array that its caller keeps alive.

    Inside it is as any array; to enter with it costs 5 ns instead of 60, for no record of a
    reference is made.
    """

    def __init__(self):
        super().__init__(types.int64, 1, "C", name="table")


BY_WORDS.add(TableType)
register_model(TableType)(models.ArrayModel)


@unbox(TableType)
def _unbox_table(kind, obj, c):
    builder = c.builder
    fields = builder.bitcast(obj, _WORD.as_pointer())

    def pointer(offset):
        found = builder.load(builder.gep(fields, [ir.Constant(_WORD, offset // 8)]))
        return builder.inttoptr(found, _WORD.as_pointer())

    size = builder.load(pointer(SIZES))
    one = ir.Constant(_WORD, 1)
    return NativeValue(array_from(c.context, builder, kind, pointer(DATA), [size], [one]))


@lower_builtin("static_getitem", TableType, types.Any)
def _number_at(context, builder, signature, args):
    """``table[8]``: one load, where any array's would first be asked whether 8 is negative."""
    table, place = args
    return _Words(context, builder, signature.args[0], table)[ir.Constant(_WORD, place)]


class _Words:
    """The numbers of a table, for code that generates code."""

    def __init__(self, context, builder, kind, table):
        self._builder = builder
        self._data = context.make_array(kind)(context, builder, table).data

    def __getitem__(self, place):
        return self._builder.load(self._builder.gep(self._data, [place], inbounds=True))

    def pair(self, place):
        """The number there and the next one."""
        return self[place], self[self._builder.add(place, ir.Constant(_WORD, 1))]


@contextmanager
def _every(builder, first, step, count):
    """A loop over ``count`` places, ``step`` apart, that LLVM leaves as short as it is."""
    with counted(builder, count) as i:
        yield builder.add(first, builder.mul(ir.Constant(_WORD, step), i))


def overlaps(begin, size, table, first, count):
    """Whether ``size`` bytes from ``begin`` meet one of ``count`` ranges, pairs in ``table``."""
    for k in range(first, first + 2 * count, 2):
        other, length = table[k], table[k + 1]
        if begin < other + length and other < begin + size:
            return True
    return False


@intrinsic
def _overlaps(typing, begin, size, table, first, count):
    def generate(context, builder, signature, args):
        begin, size, table, first, count = args
        words = _Words(context, builder, signature.args[2], table)
        found = cgutils.alloca_once_value(builder, cgutils.false_bit)
        with _every(builder, first, 2, count) as k:
            _note(builder, found, _meet(builder, begin, size, *words.pair(k)))
        return builder.load(found)

    return types.boolean(types.int64, types.int64, table, types.int64, types.int64), generate


def _meet(builder, begin, size, other, length):
    """Whether two ranges of bytes have one in common."""
    return builder.and_(
        builder.icmp_signed("<", begin, builder.add(other, length)),
        builder.icmp_signed("<", other, builder.add(begin, size)),
    )


def _note(builder, found, true):
    builder.store(builder.or_(builder.load(found), true), found)


def meet(table, first, count, changed):
    """Whether one of the first ``changed`` of ``count`` ranges meets another of them all.

    The table holds two words of each: the place of its address, and its bytes.
    """
    for k in range(first, first + 2 * changed, 2):
        begin, size = table[table[k]], table[k + 1]
        for j in range(k + 2, first + 2 * count, 2):
            other, length = table[table[j]], table[j + 1]
            if begin < other + length and other < begin + size:
                return True
    return False


@intrinsic
def _meet_any(typing, table, first, count, changed):
    def generate(context, builder, signature, args):
        table, first, count, changed = args
        words = _Words(context, builder, signature.args[0], table)
        found = cgutils.alloca_once_value(builder, cgutils.false_bit)
        with counted(builder, changed) as i:
            k = builder.add(first, builder.mul(_PAIR, i))
            place, size = words.pair(k)
            begin = words[place]
            others = builder.sub(builder.sub(count, i), ir.Constant(_WORD, 1))
            with _every(builder, builder.add(k, _PAIR), 2, others) as j:
                place, length = words.pair(j)
                _note(builder, found, _meet(builder, begin, size, words[place], length))
        return builder.load(found)

    return types.boolean(table, types.int64, types.int64, types.int64), generate


def held(table, first, count):
    """Whether a Python object has another number of references than ``table`` says.

    The table holds pairs of an object's id and that number. A reference count is the first field
    of every object; since Python 3.12 it has 32 bits.
    """
    for k in range(first, first + 2 * count, 2):
        references = ctypes.c_int64.from_address(int(table[k])).value & 0xFFFFFFFF
        if references != table[k + 1]:
            return True
    return False


@intrinsic
def _held(typing, table, first, count):
    def generate(context, builder, signature, args):
        table, first, count = args
        words = _Words(context, builder, signature.args[0], table)
        found = cgutils.alloca_once_value(builder, cgutils.false_bit)
        with _every(builder, first, 2, count) as k:
            place, told = words.pair(k)
            references = builder.load(builder.inttoptr(place, _WORD.as_pointer()))
            references = builder.and_(references, ir.Constant(_WORD, 0xFFFFFFFF))
            _note(builder, found, builder.icmp_signed("!=", references, told))
        return builder.load(found)

    return types.boolean(table, types.int64, types.int64), generate


def move_counts(table, first, count):
    """Move ``count`` version counters: the table holds four words of each, see ``counts.words``.

    Only from code that holds the interpreter lock, and only compiled.
    """
    raise AssertionError("Python's own counters are moved in Python")


@intrinsic
def _move_counts(typing, table, first, count):
    def generate(context, builder, signature, args):
        table, first, count = args
        words = _Words(context, builder, signature.args[0], table)
        with _every(builder, first, 4, count) as k:
            _add_to_int(builder, *words.pair(k))
            slot, line = words.pair(builder.add(k, _PAIR))
            now = builder.load(builder.inttoptr(slot, _WORD.as_pointer()))
            with builder.if_then(builder.icmp_signed("!=", now, line)):
                _put_object(builder, slot, line)
        return context.get_dummy_value()

    return types.void(table, types.int64, types.int64), generate


def _python(builder, name, result, *args):
    """Call a function of Python's C interface."""
    kind = ir.FunctionType(result, [a.type for a in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)


def _swap(builder, slot, new):
    """Let the slot of an object at the address ``slot`` own ``new``, and drop what it held."""
    place = builder.inttoptr(slot, _OBJECT.as_pointer())
    old = builder.load(place)
    builder.store(new, place)
    _python(builder, "Py_DecRef", ir.VoidType(), old)


def _add_to_int(builder, slot, amount):
    """Add to the Python int in the slot at an address. The caller holds the interpreter lock."""
    old = builder.load(builder.inttoptr(slot, _OBJECT.as_pointer()))
    number = builder.add(_python(builder, "PyLong_AsLongLong", _WORD, old), amount)
    _swap(builder, slot, _python(builder, "PyLong_FromLongLong", _OBJECT, number))


def _put_object(builder, slot, number):
    """Let the slot at an address hold the object with this id; under the interpreter lock."""
    new = builder.inttoptr(number, _OBJECT)
    _python(builder, "Py_IncRef", ir.VoidType(), new)
    _swap(builder, slot, new)


if not config.DISABLE_JIT:
    overlaps, meet, held, move_counts = _overlaps, _meet_any, _held, _move_counts
