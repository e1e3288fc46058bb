"""Which elements of a list are instances of given classes, for lists of a million objects.

Python takes 0.1 us for each: it counts references and hashes classes. CPython's objects lie where
``id`` says, a count of references and then the class; a list has its length and the address of its
elements behind these. Start reading at ``marking``.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numba
from numba import int64, uint8

from .intrinsics import load, pointer
from .intrinsics import store as put
from .store import jit, made

__all__ = ["Marks", "marking", "prepare"]

_MOST = 64
"""Classes that are compared; more are looked for in Python."""
_CALLS = 4
"""Calls from which it pays to compile what is not on disk."""


def mark(listed, asked):
    """Set a byte for each element of the list at ``listed``. 1, and minus the number of elements in
    the place of that of the bytes, if there are more than fit.

    asked: the address of the number of bytes, their address, the number of classes, and those.
    """
    words = pointer(asked, int64)
    flags, count = pointer(load(words, 1), uint8), load(words, 2)
    head = pointer(listed, int64)
    size, items = load(head, 2), pointer(load(head, 3), int64)
    if size > load(words, 0):
        put(words, 0, -size)
        return 1
    for i in range(size):
        kind = load(pointer(load(items, i), int64), 1)
        found = 0
        for j in range(3, 3 + count):
            found |= load(words, j) == kind
        put(flags, i, found)
    return 0


_SIGNATURE = (int64, int64)


@functools.cache
def _kernel() -> Any:
    function: Any = mark
    return jit(function, no_cfunc_wrapper=False, no_cpython_wrapper=True, nogil=False)


def _entry() -> Callable[[Any, int], int]:
    """``mark`` of a list itself; nobody else runs Python meanwhile."""
    dispatcher = _kernel()
    dispatcher.compile(_SIGNATURE)
    result = dispatcher.overloads[_SIGNATURE]
    address = result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name)
    return ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.py_object, ctypes.c_int64)(address)


def _is_laid_out_so() -> bool:
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    plain = object.__basicsize__ == 16 and list.__basicsize__ == 40
    return sys.implementation.name == "cpython" and locked and plain


class Marks:
    """Bytes for the elements of a list, of which those of instances of ``kinds`` are set."""

    def __init__(self, kinds: Sequence[type], size: int):
        self.flags = bytearray(size)
        held = (ctypes.c_char * size).from_buffer(self.flags)
        words = [size, ctypes.addressof(held), len(kinds), *map(id, kinds)]
        self._words = (ctypes.c_int64 * len(words))(*words)
        self._kept = kinds, held
        self.address = ctypes.addressof(self._words)

    @property
    def missing(self) -> int:
        """How many elements there were, if they were too many."""
        return max(0, -self._words[0])


class _Ready:
    seen = 0
    entry: Callable[[Any, int], int] | None = None


def prepare() -> None:
    """Load ``mark``, or compile it where it is often asked for."""
    if _Ready.entry is None and not numba.config.DISABLE_JIT and _is_laid_out_so():
        _Ready.seen += 1
        if _Ready.seen >= _CALLS or made(_kernel(), _SIGNATURE):
            _Ready.entry = _entry()


def marking(kinds: Sequence[type]) -> Callable[[Any, int], int] | None:
    """A function of a list and the address of ``Marks``, which gives 0, or 1 where the list has
    more elements than there are bytes. None where it is not there, or Python does better."""
    return None if len(kinds) > _MOST else _Ready.entry
