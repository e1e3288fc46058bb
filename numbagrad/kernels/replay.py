"""Launches that were watched once, run again by one native call on other arrays of the same kinds.

An operation on a few numbers takes its time in Python: checks, sizes, views, one launch after the
other. What it launches depends on shapes, strides, dtypes and plain arguments alone, so that the
second time it need only be told where the arrays are. ``launches.py`` watches and makes the words
of a replay, ``_replay`` compares arguments with them and runs.

A replay is an array of words: a head, a record for each argument that says what it must be, the
words of all launches as they were, where in these the addresses of arrays belong, and the launches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import NativeValue, models, register_model, unbox

from . import store
from .inner import inner, intrinsic
from .intrinsics import load, pointer, stack, start
from .intrinsics import store as put
from .nest import OPERANDS_WORD
from .pieces import CALLED
from .table import TableType
from .vectors import WORD
from .walk import walk_at

__all__ = ["replay"]

# The head, then the records of the arguments.
COUNT, TENSOR, ALSO, NDARRAY, ARRAY_NAME, EDGE_NAME, BASE_NAME, NONE, WRITTEN = range(9)
IMAGE, IMAGE_WORDS, PLACES, PLACE_COUNT, STEPS, STEP_COUNT, OUTS, LONG = range(9, 17)
HEAD = 17

ARRAY, SAME, EQUAL, REAL, AGAIN, MEMBERS = range(6)
"""Kinds of records. Of an array: its dtype's address, its rank, the bytes before and after its
first element, which array before it shares its memory (-1: none) and how far from that it begins,
its sizes and strides; of an object that came before its place among the arguments; of others the
value's address, its type's, its bits, or how many members it has and at which word they begin."""

FLAT, SPREAD, NESTED, SHARED, KERNEL, CHECK = range(6)
"""Kinds of launches: a formula on numbers in a row, by threads, on a nest, by threads, a kernel by
words; a look at a flag."""

MOST_ROOTS, MOST_WORDS, MOST_TEMPS = 32, 1024, 2048
"""Most arrays, words of launches, and words of memory in between: they lie on the stack."""

REFUSED, DONE, TAPED = range(3)
"""What ``replay`` gives: nothing was done, for these are other arguments, or a kernel found fault;
all was; nothing was, for an argument has a history."""

_INT32 = ir.IntType(32)
_LOW = (1 << 32) - 1


class ObjectType(types.CPointer):
    """A Python object, as its words in memory."""

    def __init__(self) -> None:
        super().__init__(types.int64)
        self.name = "object"


register_model(ObjectType)(models.PointerModel)
_TYPE = 1
_SIZE = _FLOAT = FIELDS = object.__basicsize__ // 8
ITEMS = tuple.__basicsize__ // 8
"""Places in objects: a tuple's length, a float's number, a slice's members; a tuple's members."""
_DATA, _RANK, _SHAPE, _STRIDES, _DTYPE = (object.__basicsize__ // 8 + k for k in (0, 1, 2, 3, 5))


@unbox(ObjectType)
def _unbox_object(kind, obj, c):
    return NativeValue(c.builder.bitcast(obj, WORD.as_pointer()))


def _of_python(name: str, result: Any, given: int) -> Any:
    """The C function of Python that takes so many words and gives one."""

    def made(builder: Any) -> Any:
        kind = ir.FunctionType(result, [WORD] * given)
        return cgutils.get_or_insert_function(builder.module, kind, name)

    return made


@intrinsic
def _attribute(typing, owner, name):
    """The address of an attribute, which is held elsewhere too."""
    get = _of_python("PyObject_GetAttr", WORD, 2)
    release = _of_python("Py_DecRef", ir.VoidType(), 1)

    def generate(context, builder, signature, args):
        found = builder.call(get(builder), args)
        builder.call(release(builder), [found])
        return found

    return types.int64(types.int64, types.int64), generate


@intrinsic
def _equal(typing, value, other):
    """Whether two objects of one plain type are equal."""
    compare = _of_python("PyObject_RichCompareBool", _INT32, 3)

    def generate(context, builder, signature, args):
        # The last parameter is a C int: its upper half is not looked at.
        found = builder.call(compare(builder), [*args, WORD(2)])
        return builder.icmp_signed("==", found, _INT32(1))

    return types.boolean(types.int64, types.int64), generate


@intrinsic
def _call_pieces(typing, address, places, n):
    """Call a formula's second way in."""

    def generate(context, builder, signature, args):
        callee = builder.inttoptr(args[0], CALLED.as_pointer())
        builder.call(callee, [args[1], args[2]])
        return context.get_dummy_value()

    return types.void(types.int64, places, types.int64), generate


@intrinsic
def _call_spread(typing, address, description, places, n):
    """Call ``spread_address``."""

    def generate(context, builder, signature, args):
        given = [WORD, WORD.as_pointer(), WORD]
        callee = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), given).as_pointer())
        builder.call(callee, args[1:])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, places, types.int64), generate


def _counting(name: str) -> Any:
    """Python's function that counts a reference to an object more or less."""
    count = _of_python(name, ir.VoidType(), 1)

    @intrinsic
    def counting(typing, owner):
        def generate(context, builder, signature, args):
            builder.call(count(builder), args)
            return context.get_dummy_value()

        return types.void(types.int64), generate

    return counting


_hold, _release = _counting("Py_IncRef"), _counting("Py_DecRef")


@intrinsic
def _let_go(typing):
    """Let other threads have Python's lock; what ``_take`` is given for it."""
    let_go = _of_python("PyEval_SaveThread", WORD, 0)

    def generate(context, builder, signature, args):
        return builder.call(let_go(builder), [])

    return types.int64(), generate


@intrinsic
def _take(typing, thread):
    """Have Python's lock again."""
    take = _of_python("PyEval_RestoreThread", ir.VoidType(), 1)

    def generate(context, builder, signature, args):
        builder.call(take(builder), args)
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def _call_words(typing, address, words):
    """Call a kernel by words; its status."""
    kind = ir.FunctionType(_INT32, [WORD.as_pointer()]).as_pointer()

    def generate(context, builder, signature, args):
        found = builder.call(builder.inttoptr(args[0], kind), [args[1]])
        return builder.sext(found, WORD)

    return types.int64(types.int64, words), generate


@intrinsic
def _moved(typing, words, k):
    """The pointer to word ``k``."""

    def generate(context, builder, signature, args):
        return builder.gep(args[0], [args[1]])

    return words(words, types.int64), generate


@inner
def _run(p, image):
    """Run the launches, whose addresses are in ``image``."""
    at = load(p, STEPS)
    for _ in range(load(p, STEP_COUNT)):
        kind, address = load(p, at), load(p, at + 1)
        words, more = _moved(image, load(p, at + 2)), load(p, at + 3)
        if kind == FLAT:
            _call_pieces(address, words, more)
        elif kind == SPREAD:
            _call_spread(address, load(p, at + 4), words, more)
        elif kind == NESTED:
            walk_at(address, more, start(words), 0, load(p, at + 4))
        elif kind == SHARED:
            put(words, OPERANDS_WORD, start(_moved(image, more)))
            if _call_words(address, words) != 0:
                return REFUSED
        elif kind == KERNEL:
            if _call_words(address, words) != 0:
                return REFUSED
        elif load(pointer(load(words, 0), np.int64), 0) >= 0:
            return REFUSED
        at += 5
    return DONE


def _replay(plan, args, outs, taped):
    """Run the launches of ``plan``, where ``args`` are as it says: see ``REFUSED``."""
    p = pointer(start(plan), np.int64)
    if load(args, _SIZE) != load(p, COUNT):
        return REFUSED
    roots = stack(MOST_ROOTS, 0)
    held = stack(MOST_ROOTS, 0)
    low = stack(MOST_ROOTS, 0)
    high = stack(MOST_ROOTS, 0)
    count, at = 0, HEAD
    for i in range(load(p, COUNT)):
        item = load(args, ITEMS + i)
        kind, value = load(p, at), load(p, at + 1)
        if kind == ARRAY:
            its_type = load(pointer(item, np.int64), _TYPE)
            if its_type != load(p, TENSOR) and its_type != load(p, ALSO):
                return REFUSED
            owner = _attribute(item, load(p, ARRAY_NAME))
            array = pointer(owner, np.int64)
            rank = load(p, at + 2)
            if load(array, _TYPE) != load(p, NDARRAY):
                return REFUSED
            if load(array, _DTYPE) != value or (load(array, _RANK) & _LOW) != rank:
                return REFUSED
            sizes = pointer(load(array, _SHAPE), np.int64)
            strides = pointer(load(array, _STRIDES), np.int64)
            for d in range(rank):
                if load(sizes, d) != load(p, at + 7 + d):
                    return REFUSED
                if load(strides, d) != load(p, at + 7 + rank + d):
                    return REFUSED
            if taped and _attribute(item, load(p, EDGE_NAME)) != load(p, NONE):
                return TAPED
            if count == load(p, WRITTEN) and _attribute(item, load(p, BASE_NAME)) != load(p, NONE):
                return REFUSED
            data, leader = load(array, _DATA), load(p, at + 5)
            if leader >= 0 and data - load(roots, leader) != load(p, at + 6):
                return REFUSED
            put(roots, count, data)
            put(held, count, owner)
            put(low, count, data - load(p, at + 3))
            put(high, count, data + load(p, at + 4))
            count += 1
            at += 7 + 2 * rank
        else:
            if kind == AGAIN:
                value = load(args, ITEMS + value)
            if item != value:
                if kind == SAME or kind == AGAIN:
                    return REFUSED
                if load(pointer(item, np.int64), _TYPE) != load(p, at + 2):
                    return REFUSED
                if kind == REAL:
                    if load(pointer(item, np.int64), _FLOAT) != load(p, at + 3):
                        return REFUSED
                elif kind == MEMBERS:
                    a, b = pointer(item, np.int64), pointer(value, np.int64)
                    members, first = load(p, at + 3), load(p, at + 4)
                    if first == ITEMS and load(a, _SIZE) != members:
                        return REFUSED
                    for k in range(first, first + members):
                        if load(a, k) != load(b, k):
                            one, other = (
                                pointer(load(a, k), np.int64),
                                pointer(load(b, k), np.int64),
                            )
                            if load(one, _TYPE) != load(other, _TYPE):
                                return REFUSED
                            if not _equal(load(a, k), load(b, k)):
                                return REFUSED
                elif not _equal(item, value):
                    return REFUSED
            at += 5
    given, written = count, load(p, WRITTEN)
    if written >= 0:
        for k in range(count):
            if k != written and load(low, k) < load(high, written):
                if load(low, written) < load(high, k):
                    return REFUSED
    for k in range(load(p, OUTS)):
        out = pointer(load(outs, ITEMS + k), np.int64)
        put(roots, count, load(out, _DATA))
        count += 1
    temps = stack(MOST_TEMPS, 0)
    put(roots, count, start(temps))
    image = stack(MOST_WORDS, 0)
    at = load(p, IMAGE)
    for k in range(load(p, IMAGE_WORDS)):
        put(image, k, load(p, at + k))
    at = load(p, PLACES)
    for _ in range(load(p, PLACE_COUNT)):
        where = load(roots, load(p, at + 1)) + load(p, at + 2)
        put(image, load(p, at), where)
        at += 3
    if load(p, LONG) == 0:
        return _run(p, image)
    for k in range(given):  # another thread may take an array away from its tensor meanwhile
        _hold(load(held, k))
    thread = _let_go()
    state = _run(p, image)
    _take(thread)
    for k in range(given):
        _release(load(held, k))
    return state


@functools.cache
def replay() -> Callable[[np.ndarray, tuple, tuple, bool], int]:
    """``replay(words, arguments, outputs, taped)``, compiled; see ``REFUSED``.

    taped: whether a history of an argument counts now.
    """
    body: Any = _replay
    signature = TableType(), ObjectType(), ObjectType(), types.boolean
    return store.entry_of_compiled(store.jit(body, nogil=False), signature)
