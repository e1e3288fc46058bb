"""The one door to BLAS: finds the library, gives its symbols to LLVM, and the kernels that use it.

SciPy's wheels bundle an OpenBLAS. Its address is taken without importing SciPy, and compiled code
refers to it by the name of a symbol, so that cached code stays valid in the next process.
Start reading at ``BlasKernel``.
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
from numba import types
from numba.extending import overload

from .machine import Kernel, device, threads

__all__ = ["BlasKernel", "blas_alone", "blas_kernel", "blas_restore", "blas_threads_now", "gemm"]

ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112

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


def gemm(like, transx, transy, n, m, k, x, ldx, y, ldy, beta, out, ldout):
    """``out = op(x) op(y) + beta out`` for row-major matrices at the addresses ``x, y, out``.

    like: an array, for the dtype. ``op(x)`` is n by k, ``op(y)`` k by m; ld*: elements from row
    to row as stored. With beta 0 the old ``out`` is not read, so NaN in it does no harm.
    """
    call = sgemm if like.dtype == np.float32 else dgemm
    x_op, y_op = (TRANS if t else NO_TRANS for t in (transx, transy))
    call(ROW_MAJOR, x_op, y_op, n, m, k, 1.0, x, ldx, y, ldy, beta, out, ldout)


@overload(gemm)
def _gemm_overload(like, transx, transy, n, m, k, x, ldx, y, ldy, beta, out, ldout):
    call = sgemm if like.dtype == types.float32 else dgemm
    real = like.dtype

    def typed(like, transx, transy, n, m, k, x, ldx, y, ldy, beta, out, ldout):
        x_op = np.int32(TRANS if transx else NO_TRANS)
        y_op = np.int32(TRANS if transy else NO_TRANS)
        sizes = (np.int32(n), np.int32(m), np.int32(k))
        call(
            np.int32(ROW_MAJOR), x_op, y_op, sizes[0], sizes[1], sizes[2], real(1.0),
            x, np.int32(ldx), y, np.int32(ldy), real(beta), out, np.int32(ldout),
        )  # fmt: skip

    return typed


@device
def sgemm_at(transx, transy, n, m, k, x, ldx, y, ldy, beta, out, ldout):
    """``gemm`` of float32 matrices, all arguments ints."""
    x_op, y_op = np.int32(TRANS if transx else NO_TRANS), np.int32(TRANS if transy else NO_TRANS)
    sgemm(
        np.int32(ROW_MAJOR), x_op, y_op, np.int32(n), np.int32(m), np.int32(k), np.float32(1),
        x, np.int32(ldx), y, np.int32(ldy), np.float32(beta), out, np.int32(ldout),
    )  # fmt: skip


@device
def dgemm_at(transx, transy, n, m, k, x, ldx, y, ldy, beta, out, ldout):
    """``gemm`` of float64 matrices, all arguments ints."""
    x_op, y_op = np.int32(TRANS if transx else NO_TRANS), np.int32(TRANS if transy else NO_TRANS)
    dgemm(
        np.int32(ROW_MAJOR), x_op, y_op, np.int32(n), np.int32(m), np.int32(k), np.float64(1),
        x, np.int32(ldx), y, np.int32(ldy), np.float64(beta), out, np.int32(ldout),
    )  # fmt: skip


def blas_threads_now() -> int:
    """How many threads BLAS would use for a large product of its own."""
    addresses = load_blas()
    return ctypes.CFUNCTYPE(ctypes.c_int32)(addresses["numbagrad_blas_threads"])()


@device
def blas_alone(work):
    """Put BLAS on one thread if ``work`` (multiplications) is what it would share out by itself.

    Our own loops do the sharing: two pools in one process wait for each other, and the pieces
    that OpenBLAS makes depend on the number of threads. Returns what ``blas_restore`` needs.
    """
    if work < 1 << 17:
        return np.int32(1)
    previous = blas_threads()
    if previous > 1:
        set_blas_threads(np.int32(1))
    return previous


@device
def blas_restore(previous):
    """Give back the threads that ``blas_alone`` took, for the sake of SciPy's other users."""
    if previous > 1:
        set_blas_threads(previous)


class BlasKernel(Kernel):
    """A kernel that calls BLAS and takes matrices of any strides, compiled once for each dtype.

    Arguments: arrays of one dtype, each of a fixed rank, of which the first three are the ones
    that measure the work; then ints. The kernel is entered past Numba's dispatcher, which would
    compile it anew for each mix of layouts and needs 100 ns more for each call; what the
    dispatcher would check, the op has checked.
    """

    def __init__(self, function: Any, outputs: int, grain: int):
        super().__init__(function, outputs, grain)
        self._squared_grain = grain * grain
        # Keyed by bytes in an element, which tell float32 from float64 sooner than a dtype does.
        self._serial_entries: dict[int, Callable[..., None]] = {}
        self._parallel_entries: dict[int, Callable[..., None]] = {}

    def __call__(self, *args: Any) -> None:
        """Run on host arrays; with threads from ``grain`` multiplications on."""
        out, x, y = args[:3]
        work = x.size * y.size
        # n k . k m is never less than n m k; with n m it makes the square of n m k.
        if work < self.grain or work * out.size < self._squared_grain or threads() == 1:
            entry = self._serial_entries.get(out.itemsize)
            if entry is None:
                entry = self._serial_entries[out.itemsize] = _enter_directly(self.serial, args)
        else:
            entry = self._parallel_entries.get(out.itemsize)
            if entry is None:
                entry = self._parallel_entries[out.itemsize] = _enter_directly(self.parallel, args)
        entry(*args)


def _enter_directly(dispatcher: Any, args: tuple[Any, ...]) -> Callable[..., None]:
    load_blas()
    if numba.config.DISABLE_JIT:
        return dispatcher
    signature = tuple(
        types.Array(numba.from_dtype(a.dtype), a.ndim, "A") if type(a) is np.ndarray else types.intp
        for a in args
    )
    dispatcher.compile(signature)
    return dispatcher.overloads[signature].entry_point


def blas_kernel(grain: int, outputs: int = 1) -> Callable[[Callable[..., None]], BlasKernel]:
    """Make a plain function on matrices a ``BlasKernel``; use as ``@blas_kernel(grain=...)``."""
    return lambda function: BlasKernel(function, outputs, grain)
