"""Launches by the driver's own call, without the layers of Python above it.

Every argument of our kernels has 8 bytes: a pointer, an int64 or a float64. A launcher owns the
words that the driver reads them from, and behind them those of its call; a launch writes the
arguments and enters compiled code with one address. numba-cuda's launch takes ten times as long. A
launcher belongs to one thread.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ... import store

__all__ = ["launcher"]

_WORD = 8
_CALL = struct.Struct("=11q")
"""A call: the address of ``cuLaunchKernel`` and its arguments, a word each."""


@intrinsic
def _called(typing, block):
    """Call ``cuLaunchKernel``; block: the address of the words of ``_CALL``. Its status."""

    def generate(context, builder, signature, args):
        word, size, pointer = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
        words = builder.inttoptr(args[0], word.as_pointer())
        kinds = [pointer, *[size] * 7, pointer, pointer, pointer]
        callee, *given = [
            builder.load(builder.gep(words, [ir.Constant(word, k)])) for k in range(11)
        ]
        given.append(ir.Constant(word, 0))  # the other way to pass arguments
        values = [
            builder.trunc(v, size) if kind is size else builder.inttoptr(v, pointer)
            for v, kind in zip(given, kinds, strict=True)
        ]
        function = ir.FunctionType(size, kinds).as_pointer()
        return builder.call(builder.inttoptr(callee, function), values)

    return types.int32(types.int64), generate


def _launch(block):
    return _called(block)


@functools.cache
def _entry() -> Callable[[int], int]:
    """``_launch``, compiled. It runs without Python's lock: the driver waits where its queue is
    full, perhaps for work that needs the lock."""
    body: Any = _launch
    return store.entry_of_compiled(store.jit(body), (types.int64,))


def launcher(
    address: int,
    function: int,
    signature: tuple[Any, ...],
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    stream: int,
    failed: Callable[[int], None],
) -> Callable[..., None]:
    """What launches a loaded kernel on the values of its arguments.

    address: of ``cuLaunchKernel``; function, stream: the driver's handles; signature: Numba's
    types; shared: bytes of dynamic shared memory; failed: raises for a status that is not 0.
    """
    count = len(signature)
    values = struct.Struct("=" + "".join(["d" if t == types.float64 else "q" for t in signature]))
    buffer = (ctypes.c_char * (_WORD * 2 * count + _CALL.size))()
    first = ctypes.addressof(buffer)
    places, call = first + _WORD * count, first + _WORD * 2 * count
    struct.pack_into(f"={count}q", buffer, _WORD * count, *range(first, places, _WORD))
    _CALL.pack_into(
        buffer, 2 * _WORD * count, address, function, *grid, *block, shared, stream, places
    )
    write, enter = values.pack_into, _entry()

    def launch(*given: Any) -> None:
        try:
            write(buffer, 0, *given)
        except (struct.error, TypeError):
            write(buffer, 0, *map(_as_word, given, signature))
        status = enter(call)
        if status:
            failed(status)

    return launch


def _as_word(value: Any, kind: Any) -> Any:
    """A number that is no Python number, or too large for its sign, as what is written."""
    return float(value) if kind == types.float64 else ctypes.c_int64(int(value)).value
