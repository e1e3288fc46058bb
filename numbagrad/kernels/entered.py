"""How Python calls kernels that Numba has compiled: by machine code that is there once for all.

Numba compiles a way in from Python into each function, which unboxes its arguments: a third of
what a small kernel takes to compile. Ours have a way in by words of memory, which replays take
too: see ``numba_compiler.py``. Here the words are written as a kernel's description says: which of
its arguments are arrays, of what rank, and which are numbers. That they are of these types has been
looked at by Numba's dispatcher. Start reading at ``entry``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import callconv, cgutils

from . import store
from .flat import DATA, FLAGS, RANK, SIZES, FlatType
from .from_python import REAL, TRUTH, WHOLE, callable_of, named, number, refuse
from .inner import intrinsic
from .numba_compiler import address_by_words
from .vectors import WORD, at, counted

__all__ = ["entry"]

NAME, CODE, TRAITS, TEXT, ADDRESS, COUNT, ROOM, ALONE, NUMBER = range(9)
NONE, ERROR, OVERFLOW, KINDS = range(9, 13)
"""The words of a description. Python's ``PyMethodDef`` first; then where the way by words is, how
many arguments there are, and how many words they are; whether Python's lock is kept, and whether a
number is returned; what is returned otherwise, or raised; and of each argument what it is: of an
array its rank and the bytes of an element."""

FLAT = TRUTH - 1
"""What an array is of which ``flat.py`` tells."""

_RANK_BITS = 8
_VARARGS, _KEYWORDS = 1, 2
_ITEMS, _SIZE = tuple.__basicsize__, object.__basicsize__
_STRIDES = SIZES + 8
_ARRAY_HEAD = 5
"""Words of an array before its sizes and strides: see ``way_by_words``."""
_FLAT_WORDS = 4

_BYTE, _INT32 = ir.IntType(8), ir.IntType(32)
_WORDS = WORD.as_pointer()


def entry(result: Any, alone: bool) -> Callable[..., int | None]:
    """What Python calls for what Numba has compiled: with arrays and numbers of its signature.

    alone: whether nobody else may run Python meanwhile.
    """
    context, kinds, room = result.target_context, [], 0
    numbers = {types.float64: REAL, types.int64: WHOLE, types.boolean: TRUTH}
    for kind in result.signature.args:
        if kind in numbers:
            kinds.append(numbers[kind])
            room += 1
        elif isinstance(kind, FlatType):
            kinds.append(FLAT)
            room += _FLAT_WORDS
        else:
            size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
            kinds.append(kind.ndim << _RANK_BITS | size)
            room += _ARRAY_HEAD + 2 * kind.ndim
    description = _described(result.fndesc.qualname.rpartition(".")[2], kinds)
    description[ADDRESS], description[ROOM] = address_by_words(result), room
    description[ALONE], description[NUMBER] = alone, result.signature.return_type != types.none
    held = description.view(_Description)
    held.library = result.library
    return callable_of(held)


class _Description(np.ndarray):
    """A description with the code that it describes."""

    library: Any


def _described(name: str, kinds: Sequence[int]) -> np.ndarray:
    words = named(name, _address(), _VARARGS | _KEYWORDS, KINDS, kinds)
    words[COUNT] = len(kinds)
    words[NONE], words[ERROR], words[OVERFLOW] = id(None), id(TypeError), id(OverflowError)
    return words


def _doorway():
    """Nothing: what stands in its module is what counts."""
    _write()


@intrinsic
def _write(typing):
    """Write the function into the module."""

    def generate(context, builder, signature, args):
        _enter(context, builder.module, f"called.{builder.function.name}")
        return context.get_dummy_value()

    return types.void(), generate


@functools.cache
def _address() -> int:
    body: Any = _doorway
    dispatcher = store.jit(body, no_cpython_wrapper=True)
    dispatcher.compile(())
    (result,) = dispatcher.overloads.values()
    _kept.append(result)
    address = result.library.get_pointer_to_function(f"called.{result.fndesc.llvm_func_name}")
    return int(address)


_kept: list[Any] = []


def _enter(context: Any, module: Any, name: str) -> None:
    """Write ``PyObject *NAME(PyObject *self, PyObject *arguments, PyObject *keywords)``."""
    pyobject = _BYTE.as_pointer()
    function = ir.Function(module, ir.FunctionType(WORD, [WORD] * 3), name)
    b = ir.IRBuilder(function.append_basic_block("entry"))
    owner, given, _ = function.args
    description = b.load(at(b, b.add(owner, WORD(DATA)), _WORDS))

    def word(k: Any) -> Any:
        return b.load(b.gep(description, [k if isinstance(k, ir.Value) else WORD(k)]))

    def asked(name: str, result: Any, *values: Any) -> Any:
        kind = ir.FunctionType(result, [v.type for v in values])
        return b.call(cgutils.get_or_insert_function(module, kind, name), values)

    count = b.load(at(b, b.add(given, WORD(_SIZE)), WORD))
    with b.if_then(b.icmp_signed("!=", count, word(COUNT)), likely=False):
        text = "%s: got %lld arguments, it has %lld"
        refuse(module, b, word(ERROR), text, word(NAME), count, word(COUNT))
        b.ret(WORD(0))
    words = b.alloca(WORD, size=word(ROOM))
    filled = b.alloca(WORD)
    b.store(WORD(0), filled)

    def put(value: Any) -> None:
        place = b.load(filled)
        b.store(value, b.gep(words, [place]))
        b.store(b.add(place, WORD(1)), filled)

    def field(array: Any, offset: int, kind: Any = WORD) -> Any:
        return b.load(at(b, b.add(array, WORD(offset)), kind))

    with counted(b, count) as k:
        item = b.load(at(b, b.add(b.add(given, WORD(_ITEMS)), b.mul(k, WORD(8))), WORD))
        kind = word(b.add(k, WORD(KINDS)))
        with b.if_else(b.icmp_signed(">", kind, WORD(0))) as (array, other):
            with array:
                rank = b.lshr(kind, WORD(_RANK_BITS))
                sizes, strides = (field(item, place, _WORDS) for place in (SIZES, _STRIDES))
                n = b.alloca(WORD)
                b.store(WORD(1), n)
                with counted(b, rank) as d:
                    b.store(b.mul(b.load(n), b.load(b.gep(sizes, [d]))), n)
                for value in (WORD(0), WORD(0), b.load(n)):
                    put(value)
                put(b.and_(kind, WORD((1 << _RANK_BITS) - 1)))
                put(field(item, DATA))
                for each in (sizes, strides):
                    with counted(b, rank) as d:
                        put(b.load(b.gep(each, [d])))
            with other, b.if_else(b.icmp_signed("==", kind, WORD(FLAT))) as (flat, plain):
                with flat:
                    put(field(item, DATA))
                    put(b.sext(field(item, RANK, _INT32), WORD))
                    put(b.sext(field(item, FLAGS, _INT32), WORD))
                    put(field(item, SIZES))
                with plain:
                    place = b.gep(words, [b.load(filled)])
                    number(module, b, item, kind, place, word(OVERFLOW), word(NAME))
                    b.store(b.add(b.load(filled), WORD(1)), filled)

    way = b.inttoptr(word(ADDRESS), ir.FunctionType(_INT32, [_WORDS]).as_pointer())
    status = b.alloca(_INT32)
    with b.if_else(b.icmp_signed("!=", word(ALONE), WORD(0))) as (alone, beside):
        with alone:
            b.store(b.call(way, [words]), status)
        with beside:
            thread = asked("PyEval_SaveThread", WORD)
            b.store(b.call(way, [words]), status)
            asked("PyEval_RestoreThread", ir.VoidType(), thread)
    status = b.load(status)
    with b.if_then(b.icmp_signed("!=", status, _INT32(0)), likely=False):
        trouble = b.inttoptr(b.load(words), callconv.excinfo_ptr_t)
        found = context.call_conv._get_return_status(b, status, trouble)
        context.call_conv.raise_error(b, context.get_python_api(b), found)
        b.ret(WORD(0))
    with b.if_then(b.icmp_signed("!=", word(NUMBER), WORD(0))):
        b.ret(asked("PyLong_FromLongLong", WORD, b.load(words)))
    asked("Py_IncRef", ir.VoidType(), b.inttoptr(word(NONE), pyobject))
    b.ret(word(NONE))
