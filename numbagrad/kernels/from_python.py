"""How Python calls elementwise kernels: by machine code that is compiled once for all of them.

A formula is compiled as a loop over numbers in memory (``loops.py``), and knows nothing of Python.
What a call is given is looked at here, as the kernel's description says: how many operands there
are, and of which kind. Compiled into each kernel, as Numba does it, this took longer than the loop:
three fifths of a compilation. Start reading at ``way_in``.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from . import store
from .flat import C_CONTIGUOUS, DATA, FLAGS, RANK, SIZES
from .inner import intrinsic
from .pieces import CALLED, CREW, crew_places
from .vectors import WORD, at, counted

__all__ = ["MOST", "REAL", "TRUTH", "WHOLE", "callable_of", "described", "interpreted_entry"]
__all__ += ["named", "number", "refuse", "spread_address", "way_in"]

NAME, CODE, TRAITS, TEXT, ADDRESS, COUNT, GRAIN, LONG, YES, NO, ERROR, OVERFLOW, KINDS = range(13)
"""The words of a description. Python's ``PyMethodDef`` first; then where the loop's second way in
is, how many operands it has, from how many elements on threads share it, from how many on it does
nothing, what is returned or raised, and of each operand the bytes of an element, or what number it
is."""

REAL, WHOLE, TRUTH = 0, -1, -2

MOST = 256
"""Most operands of a formula."""

_FASTCALL = 0x80
_BYTE, _INT32 = ir.IntType(8), ir.IntType(32)
_WORDS = WORD.as_pointer()
_NOT_YET, _ONE, _DONE = range(3)

_PIECE = 2
"""Of how many pieces at least a thread's share of ``GRAIN`` elements is made."""

_ALIGNED = 64
"""Elements at a multiple of which a share begins: no line of memory belongs to two threads."""


def _doorway():
    """Nothing: what stands in its module is what counts."""
    _write()


@intrinsic
def _write(typing):
    """Write the functions into the module."""

    def generate(context, builder, signature, args):
        module, name = builder.module, builder.function.name
        threads = _by_threads(module, name)
        _spread(module, name, threads)
        _enter(module, name, threads)
        return context.get_dummy_value()

    return types.void(), generate


@functools.cache
def _addresses() -> tuple[int, int]:
    """Where the ways are, from Python and from a replay."""
    body: Any = _doorway
    dispatcher = store.jit(body, no_cpython_wrapper=True)
    dispatcher.compile(())
    (result,) = dispatcher.overloads.values()
    _kept.append(result)
    place = result.library.get_pointer_to_function
    name = result.fndesc.llvm_func_name
    return place(f"enter.{name}"), place(f"spread.{name}")


_kept: list[Any] = []


def described(
    name: str, address: int, operands: Sequence[Any], grain: int, long: int
) -> np.ndarray:
    """The description of a kernel. operands: dtypes of arrays, or the types of Python's numbers."""
    if len(operands) > MOST:
        raise ValueError(f"{name}: {len(operands)} operands, a formula has at most {MOST}.")
    numbers = {float: REAL, int: WHOLE, bool: TRUTH}
    kinds = [numbers[d] if isinstance(d, type) else d.itemsize for d in operands]
    words = named(name, _addresses()[0], _FASTCALL, KINDS, kinds)
    words[ADDRESS] = address
    words[COUNT], words[GRAIN], words[LONG] = len(kinds), max(grain, _PIECE), long
    words[YES], words[NO] = id(True), id(False)
    words[ERROR], words[OVERFLOW] = id(TypeError), id(OverflowError)
    return words


def named(name: str, code: int, traits: int, room: int, more: Sequence[int]) -> np.ndarray:
    """A description of ``room`` words and then ``more``, which begins with a ``PyMethodDef``."""
    text = name.encode() + bytes(8 - len(name.encode()) % 8)
    end = room + len(more)
    words = np.zeros(end + len(text) // 8, np.int64)
    words[room:end], words[end:] = more, np.frombuffer(text, np.int64)
    words[NAME] = words.__array_interface__["data"][0] + 8 * end
    words[CODE], words[TRAITS] = code, traits
    return words


def callable_of(description: np.ndarray) -> Callable[..., Any]:
    """What Python calls, whose code gets the description as ``self``."""
    given = ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
    new = ctypes.PYFUNCTYPE(ctypes.py_object, *given)(("PyCFunction_NewEx", ctypes.pythonapi))
    # It holds its description, which the words that Python reads at its end are in.
    found: Callable[..., Any] = new(description.__array_interface__["data"][0], description, None)
    return found


def way_in(description: np.ndarray) -> Callable[..., bool]:
    """What Python calls: with arrays, outputs first, and numbers, for which the caller vouches.

    It returns False without doing anything where nobody has begun the threads, where there are
    ``LONG`` elements, or where an array differs in shape from the first or is not C-contiguous.
    """
    return callable_of(description)


def interpreted_entry(function: Callable[..., None]) -> Callable[..., bool]:
    """What stands for ``way_in`` under NUMBA_DISABLE_JIT."""

    def enter(*operands: Any) -> bool:
        out = operands[0]
        for x in operands:
            if isinstance(x, np.ndarray) and not (x.shape == out.shape and x.flags.c_contiguous):
                return False
        function(out.size, *operands)
        return True

    return enter


def spread_address() -> int:
    """The address of ``void (int64 *description, int64 *places, int64 n)``: the loop over ``n``
    numbers by threads, for a replay. places: as the second way in takes them."""
    return _addresses()[1]


# -- what they do, in LLVM's instructions ----------------------------------------------------------


def _enter(module: Any, name: str, threads: Any) -> None:
    """Write ``PyObject *enter.NAME(PyObject *self, PyObject **operands, Py_ssize_t count)``."""
    function = ir.Function(module, ir.FunctionType(WORD, [WORD] * 3), f"enter.{name}")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    owner, given, count = function.args
    description = b.load(at(b, b.add(owner, WORD(DATA)), _WORDS))
    operands = b.inttoptr(given, _WORDS)

    def word(k: Any) -> Any:
        return b.load(b.gep(description, [k if isinstance(k, ir.Value) else WORD(k)]))

    def give(k: int) -> None:
        found = word(k)
        hold = cgutils.get_or_insert_function(
            module, ir.FunctionType(ir.VoidType(), [WORD]), "Py_IncRef"
        )
        b.call(hold, [found])
        b.ret(found)

    with b.if_then(b.icmp_signed("!=", count, word(COUNT)), likely=False):
        text = "%s: got %lld operands with its results, it has %lld"
        refuse(module, b, word(ERROR), text, word(NAME), count, word(COUNT))
        b.ret(WORD(0))

    def field(array: Any, offset: int, kind: Any) -> Any:
        return b.load(at(b, b.add(array, WORD(offset)), kind))

    out = b.load(operands)
    rank, sizes = field(out, RANK, _INT32), field(out, SIZES, _WORDS)
    dims, n, fits = b.sext(rank, WORD), b.alloca(WORD), b.alloca(ir.IntType(1))
    b.store(WORD(1), n)
    with counted(b, dims) as d:
        b.store(b.mul(b.load(n), b.load(b.gep(sizes, [d]))), n)
    n = b.load(n)
    b.store(b.icmp_signed("<", n, word(LONG)), fits)
    places = b.alloca(WORD, size=WORD(MOST))

    with counted(b, count) as k:
        item, kind, place = (
            b.load(b.gep(operands, [k])),
            word(b.add(k, WORD(KINDS))),
            b.gep(places, [k]),
        )
        with b.if_else(b.icmp_signed(">", kind, WORD(0))) as (array, other):
            with array:
                b.store(field(item, DATA, WORD), place)
                flat = b.and_(field(item, FLAGS, _INT32), _INT32(C_CONTIGUOUS))
                alike = b.icmp_signed("==", field(item, RANK, _INT32), rank)
                alike = b.and_(alike, b.icmp_signed("!=", flat, _INT32(0)))
                b.store(b.and_(b.load(fits), alike), fits)
                with b.if_then(alike):
                    its = field(item, SIZES, _WORDS)
                    with counted(b, dims) as d:
                        same = b.icmp_signed("==", *(b.load(b.gep(s, [d])) for s in (sizes, its)))
                        b.store(b.and_(b.load(fits), same), fits)
            with other:
                number(module, b, item, kind, place, word(OVERFLOW), word(NAME))

    with b.if_then(b.not_(b.load(fits)), likely=False):
        give(NO)
    with b.if_then(b.icmp_signed(">=", n, word(GRAIN)), likely=False):
        way = b.call(threads, [description, places, n])
        with b.if_then(b.icmp_signed("==", way, WORD(_NOT_YET))):
            give(NO)
        with b.if_then(b.icmp_signed("==", way, WORD(_DONE))):
            give(YES)
    b.call(b.inttoptr(word(ADDRESS), CALLED.as_pointer()), [places, n])
    give(YES)


def number(module: Any, b: Any, item: Any, kind: Any, place: Any, overflow: Any, name: Any) -> None:
    """Write what stores the word of a Python number, or returns with Python's error."""

    def asked(name: str, result: Any) -> Any:
        function = cgutils.get_or_insert_function(module, ir.FunctionType(result, [WORD]), name)
        return b.call(function, [item])

    with b.if_else(b.icmp_signed("==", kind, WORD(REAL))) as (real, other):
        with real:
            b.store(b.bitcast(asked("PyFloat_AsDouble", ir.DoubleType()), WORD), place)
        with other, b.if_else(b.icmp_signed("==", kind, WORD(WHOLE))) as (whole, truth):
            with whole:
                b.store(asked("PyLong_AsLongLong", WORD), place)
            with truth:
                b.store(b.sext(asked("PyObject_IsTrue", _INT32), WORD), place)
    failed = cgutils.get_or_insert_function(module, ir.FunctionType(WORD, []), "PyErr_Occurred")
    found = b.load(place)
    minus_one = b.bitcast(ir.DoubleType()(-1.0), WORD)
    odd = b.or_(b.icmp_signed("==", found, WORD(-1)), b.icmp_signed("==", found, minus_one))
    with b.if_then(odd, likely=False), b.if_then(b.icmp_signed("!=", b.call(failed, []), WORD(0))):
        with b.if_then(b.icmp_signed("==", kind, WORD(WHOLE))):
            text = "%s: %R does not fit in 64 bits; pass a float"
            refuse(module, b, overflow, text, name, item)
        b.ret(WORD(0))


def refuse(module: Any, b: Any, error: Any, text: str, *values: Any) -> None:
    """Write what sets Python's error; ``text`` is as ``PyErr_Format`` reads it."""
    told = cgutils.make_bytearray(text.encode() + bytes(1))
    told = b.bitcast(cgutils.global_constant(module, "refusal", told), _BYTE.as_pointer())
    kind = ir.FunctionType(WORD, [WORD, _BYTE.as_pointer()], var_arg=True)
    b.call(cgutils.get_or_insert_function(module, kind, "PyErr_Format"), [error, told, *values])


def _spread(module: Any, name: str, threads: Any) -> None:
    """Write ``spread.NAME``, see ``spread_address``."""
    kind = ir.FunctionType(ir.VoidType(), [_WORDS, _WORDS, WORD])
    function = ir.Function(module, kind, f"spread.{name}")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    description, places, n = function.args
    way = b.call(threads, function.args)
    with b.if_then(b.icmp_signed("!=", way, WORD(_DONE))):
        address = b.load(b.gep(description, [WORD(ADDRESS)]))
        b.call(b.inttoptr(address, CALLED.as_pointer()), [places, n])
    b.ret_void()


def _by_threads(module: Any, name: str) -> Any:
    """``int64 (int64 *description, int64 *places, int64 n)``: the loop shared by threads.

    It gives ``_DONE``, or ``_ONE`` where there is one thread, or ``_NOT_YET`` where nobody has
    counted them or begun the others; then nothing is done.
    """
    function = ir.Function(module, ir.FunctionType(WORD, [_WORDS, _WORDS, WORD]), f"threads.{name}")
    function.linkage = "internal"
    function.attributes.add("noinline")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    crew = ir.GlobalVariable(module, ir.ArrayType(WORD, len(crew_places)), CREW)
    share, state, counting = (b.load(b.gep(crew, [WORD(0), WORD(k)])) for k in range(3))
    with b.if_then(b.icmp_signed("==", counting, WORD(0))):
        b.ret(WORD(_NOT_YET))
    asked = b.call(b.inttoptr(counting, ir.FunctionType(WORD, []).as_pointer()), [])
    with b.if_then(b.icmp_signed("<=", asked, WORD(1))):
        b.ret(WORD(_ONE))
    with b.if_then(b.icmp_signed("==", share, WORD(0))):
        b.ret(WORD(_NOT_YET))
    few = b.icmp_signed("<", asked, WORD(256))
    parts = b.select(few, asked, WORD(256))
    description, places, n = function.args
    part = _part(module, name)
    record = _filled(b, n, parts, *(b.ptrtoint(p, WORD) for p in (description, places)))
    words = _filled(b, state, b.ptrtoint(part, WORD), b.ptrtoint(record, WORD), parts)
    kind = ir.FunctionType(_INT32, [_WORDS]).as_pointer()
    b.call(b.inttoptr(share, kind), [words])
    b.ret(WORD(_DONE))
    return function


def _filled(b: Any, *values: Any) -> Any:
    """The address of words on the stack."""
    words = b.alloca(WORD, size=WORD(len(values)))
    for k, value in enumerate(values):
        b.store(value, b.gep(words, [WORD(k)]))
    return words


def _part(module: Any, name: str) -> Any:
    """What runs one part of a shared loop: ``void (int64 number, int64 *record)``."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORD, WORD]), f"part.{name}")
    function.linkage = "internal"
    function.attributes.add("noinline")
    b = ir.IRBuilder(function.append_basic_block("entry"))
    number, record = function.args
    record = b.inttoptr(record, _WORDS)
    n, parts, description, places = (b.load(b.gep(record, [WORD(k)])) for k in range(4))
    description, places = (b.inttoptr(p, _WORDS) for p in (description, places))
    address, count, grain = (b.load(b.gep(description, [WORD(k)])) for k in (ADDRESS, COUNT, GRAIN))
    lines = b.udiv(b.add(n, WORD(_ALIGNED - 1)), WORD(_ALIGNED))
    ends = [
        b.mul(b.udiv(b.mul(lines, each), parts), WORD(_ALIGNED))
        for each in (number, b.add(number, WORD(1)))
    ]
    begin, end = (b.select(b.icmp_signed("<", each, n), each, n) for each in ends)
    piece = b.udiv(grain, WORD(_PIECE))
    mine = b.alloca(WORD, size=WORD(MOST))
    call = b.inttoptr(address, CALLED.as_pointer())
    with counted(b, b.udiv(b.add(b.sub(end, begin), b.sub(piece, WORD(1))), piece)) as turn:
        first = b.add(begin, b.mul(turn, piece))
        rest = b.sub(end, first)
        with counted(b, count) as k:
            kind = b.load(b.gep(description, [b.add(k, WORD(KINDS))]))
            size = b.select(b.icmp_signed(">", kind, WORD(0)), kind, WORD(0))
            place = b.load(b.gep(places, [k]))
            b.store(b.add(place, b.mul(first, size)), b.gep(mine, [k]))
        b.call(call, [mine, b.select(b.icmp_signed("<", rest, piece), rest, piece)])
    b.ret_void()
    return function
