"""The one door to LAPACK's own functions, for kernels that call them for each matrix of a stack.

They are those that SciPy stands on. Compiled code refers to them by names, so that cached code
stays valid in the next process. Start reading at ``load_lapack``.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numba
from numba import types

__all__ = ["dgesdd", "dsyevd", "load_lapack", "sgesdd", "ssyevd"]

ARGUMENTS = {"syevd": 11, "gesdd": 14}
"""How many addresses each function takes; LAPACK knows nothing else."""


@functools.cache
def load_lapack() -> dict[str, int]:
    """Register the symbols that compiled kernels refer to; the addresses by name."""
    from scipy.linalg import cython_lapack  # which takes 30 ms to import

    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    found = {}
    for name in ARGUMENTS:
        for real in "sd":
            capsule = cython_lapack.__pyx_capi__[real + name]
            symbol = f"numbagrad_{real}{name}"
            found[symbol] = pointer(capsule, name_of(capsule))
            llvmlite.binding.add_symbol(symbol, found[symbol])
    return found


def _external(name: str) -> Callable[..., Any]:
    """The function as compiled code, or plain Python without the JIT, calls it."""
    count = ARGUMENTS[name[1:]]
    symbol = f"numbagrad_{name}"
    if not numba.config.DISABLE_JIT:
        return types.ExternalFunction(symbol, types.void(*[types.intp] * count))

    def call(*args):
        ctypes.CFUNCTYPE(None, *[ctypes.c_ssize_t] * count)(load_lapack()[symbol])(*args)

    return call


ssyevd, dsyevd = _external("ssyevd"), _external("dsyevd")
sgesdd, dgesdd = _external("sgesdd"), _external("dgesdd")
