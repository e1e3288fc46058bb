"""The one door to BLAS: gives the symbols of the library that was chosen to LLVM.

Compiled code refers to its functions by names, so that cached code stays valid in the next process
and with another library. Which there are is in ``blas_library.py``; what uses this is
``product.py``. Start reading at ``load_blas``.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils

from .amx import PARTS, load_amx
from .blas_library import NAMES, TRANS, chosen, gemm_signature
from .inner import intrinsic

__all__ = [
    "NO_TRANS",
    "ROW_MAJOR",
    "TRANS",
    "blas_alone",
    "blas_restore",
    "blas_threads_now",
    "dgemm",
    "load_blas",
    "sgemm",
    "tiles_below",
]

ROW_MAJOR, NO_TRANS = 101, 111

SHARED = 1 << 17
"""Multiplications from which a BLAS may use several threads for one product."""

_C_TYPES: dict[Any, Any] = {
    types.int32: ctypes.c_int32,
    types.intp: ctypes.c_ssize_t,
    types.float32: ctypes.c_float,
    types.float64: ctypes.c_double,
    types.void: None,
}


_SIGNATURES = dict(
    zip(
        NAMES,
        (
            gemm_signature(types.float32),
            gemm_signature(types.float64),
            types.int32(),
            types.void(types.int32),
        ),
        strict=True,
    )
)

_TILES_BELOW = "numbagrad_tiles_below"
_tiles_below = ctypes.c_int64()

SYMBOLS = (*NAMES, _TILES_BELOW, PARTS)
"""The names by which compiled code knows the library's functions, and two numbers."""


@functools.cache
def load_blas() -> dict[str, int]:
    """Register the symbols that compiled kernels refer to; the addresses by name."""
    load_amx()
    library = chosen()
    _tiles_below.value = library.tiles_below
    for name, address in library.addresses.items():
        llvmlite.binding.add_symbol(name, address)
    llvmlite.binding.add_symbol(_TILES_BELOW, ctypes.addressof(_tiles_below))
    return library.addresses


def _external(name: str) -> Callable[..., Any]:
    """The C function ``name`` as compiled code, or plain Python without the JIT, calls it."""
    signature = _SIGNATURES[name]
    if not numba.config.DISABLE_JIT:
        return types.ExternalFunction(name, signature)
    prototype = ctypes.CFUNCTYPE(
        _C_TYPES[signature.return_type], *[_C_TYPES[t] for t in signature.args]
    )

    def call(*args):
        return prototype(load_blas()[name])(*args)

    return call


sgemm = _external("numbagrad_sgemm")
dgemm = _external("numbagrad_dgemm")
blas_threads = _external("numbagrad_blas_threads")
set_blas_threads = _external("numbagrad_set_blas_threads")


def blas_threads_now() -> int:
    """How many threads BLAS would use for a large product of its own."""
    addresses = load_blas()
    return ctypes.CFUNCTYPE(ctypes.c_int32)(addresses["numbagrad_blas_threads"])()


def blas_alone(work):
    """Put BLAS on one thread if ``work`` (multiplications) is what it would share out by itself.

    Our own loops do the sharing: two pools in one process wait for each other, and the pieces
    that OpenBLAS makes depend on the number of threads. Returns what ``blas_restore`` needs.
    """
    previous = 1
    if work >= SHARED:
        previous = blas_threads()
        if previous > 1:
            set_blas_threads(1)
    return previous


def blas_restore(previous):
    """Give back the threads that ``blas_alone`` took, for the sake of SciPy's other users."""
    if previous > 1:
        set_blas_threads(previous)


@intrinsic
def tiles_below(typing):
    """Multiplications up to which our own tiles are faster than the library that is loaded."""

    def generate(context, builder, signature, args):
        number = ir.IntType(64)
        place = builder.module.globals.get(_TILES_BELOW)
        return builder.load(place or ir.GlobalVariable(builder.module, number, _TILES_BELOW))

    return types.int64(), generate


# The same two in LLVM's own instructions: a function that Numba compiles takes it 30 ms.

_INT = ir.IntType(32)


def _get_threads(builder):
    kind = ir.FunctionType(_INT, [])
    name = "numbagrad_blas_threads"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])


def _set_threads(builder, count):
    kind = ir.FunctionType(ir.VoidType(), [_INT])
    name = "numbagrad_set_blas_threads"
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [count])


@intrinsic
def _blas_alone(typing, work):
    def generate(context, builder, signature, args):
        one = ir.Constant(_INT, 1)
        previous = cgutils.alloca_once_value(builder, one)
        enough = builder.icmp_signed(">=", args[0], ir.Constant(args[0].type, SHARED))
        with builder.if_then(enough):
            now = _get_threads(builder)
            builder.store(now, previous)
            with builder.if_then(builder.icmp_signed(">", now, one)):
                _set_threads(builder, one)
        return builder.load(previous)

    return types.int32(types.int64), generate


@intrinsic
def _blas_restore(typing, previous):
    def generate(context, builder, signature, args):
        with builder.if_then(builder.icmp_signed(">", args[0], ir.Constant(_INT, 1))):
            _set_threads(builder, args[0])
        return context.get_dummy_value()

    return types.void(types.int32), generate


if not numba.config.DISABLE_JIT:
    blas_alone, blas_restore = _blas_alone, _blas_restore
