"""Decorators of functions that only compiled code calls.

They have no way in from Python, which takes Numba 20 to 50 ms to make: called from there they
crash the process, so they are for functions within our own kernels alone.
"""

from __future__ import annotations

import functools

import numba

__all__ = ["device", "inner", "pasted"]

inner = functools.partial(
    numba.njit,
    error_model="numpy",
    nogil=True,
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
)
"""``numba.njit`` for a function of this kind, with further options of Numba."""

device = inner(inline="never")
"""Decorator of a function that stays one in machine code, or that LLVM inlines as it sees fit."""

pasted = inner(inline="always")
"""Decorator of a short function whose statements Numba puts in the place of its call: 3 to 20 ms
of compiling, where a function of its own costs 30 to 60. It is called without ``*``."""
