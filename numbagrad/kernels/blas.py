"""The one door to BLAS: finds the library and gives its symbols to LLVM.

SciPy's wheels bundle an OpenBLAS. Its address is taken without importing SciPy, and compiled code
refers to it by the name of a symbol, so that cached code stays valid in the next process.
What uses it is ``product.py``. Start reading at ``load_blas``.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["blas_alone", "blas_restore", "blas_threads_now", "dgemm", "load_blas", "sgemm"]

ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112

SHARED = 1 << 17
"""Multiplications from which a BLAS may use several threads for one product."""

_int, _address = types.int32, types.intp
_C_TYPES: dict[Any, Any] = {
    types.int32: ctypes.c_int32,
    types.intp: ctypes.c_ssize_t,
    types.float32: ctypes.c_float,
    types.float64: ctypes.c_double,
    types.void: None,
}


def _gemm_signature(real: Any) -> Any:
    """The type of CBLAS's gemm; a pointer is passed as the integer it is."""
    return types.void(
        *(_int, _int, _int, _int, _int, _int, real),
        *(_address, _int, _address, _int, real, _address, _int),
    )


_SIGNATURES = {
    "numbagrad_sgemm": _gemm_signature(types.float32),
    "numbagrad_dgemm": _gemm_signature(types.float64),
    "numbagrad_blas_threads": _int(),
    "numbagrad_set_blas_threads": types.void(_int),
}


SYMBOLS = tuple(_SIGNATURES)
"""The names by which compiled code knows the library's functions."""


def bundled_openblas() -> Path | None:
    """The OpenBLAS inside SciPy's wheel, or None where SciPy came another way."""
    spec = importlib.util.find_spec("scipy")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    folders = (package.parent / "scipy.libs", package / ".dylibs")
    found = [path for folder in folders for path in sorted(folder.glob("libscipy_openblas*"))]
    return found[0] if found else None


def _from_openblas(path: Path) -> dict[str, int]:
    library = ctypes.CDLL(str(path))
    names = {
        "numbagrad_sgemm": "scipy_cblas_sgemm",
        "numbagrad_dgemm": "scipy_cblas_dgemm",
        "numbagrad_blas_threads": "scipy_openblas_get_num_threads",
        "numbagrad_set_blas_threads": "scipy_openblas_set_num_threads",
    }
    functions = {name: getattr(library, symbol) for name, symbol in names.items()}
    return {
        name: ctypes.cast(function, ctypes.c_void_p).value or 0
        for name, function in functions.items()
    }


_kept_alive: list[Any] = []


def _from_cython_blas() -> dict[str, int]:
    """The same four names over SciPy's Fortran-style pointers, whatever BLAS it was built with."""
    from scipy.linalg import cython_blas

    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]

    addresses = {}
    for real, letter in ((types.float32, "s"), (types.float64, "d")):
        capsule = cython_blas.__pyx_capi__[f"{letter}gemm"]
        symbol = f"numbagrad_fortran_{letter}gemm"
        llvmlite.binding.add_symbol(symbol, pointer(capsule, name_of(capsule)))
        adapter = _fortran_adapter(
            real, types.ExternalFunction(symbol, types.void(*[_address] * 13))
        )
        addresses[f"numbagrad_{letter}gemm"] = adapter.address
        _kept_alive.append(adapter)

    one = numba.cfunc(_int())(lambda: 1)
    ignore = numba.cfunc(types.void(_int))(lambda n: None)
    _kept_alive.extend((one, ignore))
    addresses["numbagrad_blas_threads"] = one.address
    addresses["numbagrad_set_blas_threads"] = ignore.address
    return addresses


def _fortran_adapter(real: Any, fortran_gemm: Any) -> Any:
    """A C function with CBLAS's arguments that calls a Fortran gemm.

    Row-major ``out = x y`` is column-major ``out.T = y.T x.T``: the operands change places.
    """
    dtype = np.dtype(real.name)

    @numba.cfunc(_gemm_signature(real))
    def adapter(order, transx, transy, n, m, k, alpha, x, ldx, y, ldy, beta, out, ldout):
        integers = np.array([m, n, k, ldy, ldx, ldout], np.int32)
        reals = np.array([alpha, beta], dtype)
        letters = np.array([84 if transy == TRANS else 78, 84 if transx == TRANS else 78], np.uint8)
        i, r, c = integers.ctypes.data, reals.ctypes.data, letters.ctypes.data
        fortran_gemm(
            *(c, c + 1, i, i + 4, i + 8, r, y, i + 12, x, i + 16),
            *(r + reals.itemsize, out, i + 20),
        )

    return adapter


@functools.cache
def load_blas() -> dict[str, int]:
    """Register the symbols that compiled kernels refer to; the addresses by name."""
    path = bundled_openblas()
    try:
        addresses = _from_openblas(path) if path else _from_cython_blas()
    except (OSError, AttributeError):  # an OpenBLAS that will not load or names things otherwise
        addresses = _from_cython_blas()
    for name, address in addresses.items():
        llvmlite.binding.add_symbol(name, address)
    return addresses


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
