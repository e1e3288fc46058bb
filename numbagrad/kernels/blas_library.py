"""The BLAS libraries that may be here: oneMKL, SciPy's OpenBLAS, or whatever SciPy was built with.

Each is found without being imported, and gives the addresses of four functions. Start at
``chosen``.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import site
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite.binding
import numba
import numpy as np
from numba import types

from .processor import features, is_amd

__all__ = ["NAMES", "TRANS", "Library", "chosen", "gemm_signature", "limit_threads"]
__all__ += ["one_thread"]

CHOICES = ("auto", "mkl", "openblas")
"""What NUMBAGRAD_BLAS may say; "auto", the default, is oneMKL where it is installed and fast.

On AMD's processors it is not: on a Zen 5 it takes twice as long as OpenBLAS (it has no AVX-512
there), on a Zen 3 8 % longer.
"""

ALWAYS = 1 << 62
"""Multiplications that no product has."""

NAMES = (
    "numbagrad_sgemm",
    "numbagrad_dgemm",
    "numbagrad_blas_threads",
    "numbagrad_set_blas_threads",
)
"""The names by which compiled code knows CBLAS's gemm of both widths, and the number of threads."""

TRANS = 112

_int, _address = types.int32, types.intp
_LP64, _SEQUENTIAL = 0, 1  # of mkl_service.h: 32-bit sizes, and no threads of its own


class Library(NamedTuple):
    """A BLAS in this process.

    addresses: of the functions ``NAMES``. tiles_below: multiplications up to which our own tiles
    are at least as fast for tall enough products (``python -m benchmarks gemm``).
    """

    name: str
    addresses: dict[str, int]
    tiles_below: int


@functools.cache
def chosen() -> Library:
    """The BLAS of this process: what NUMBAGRAD_BLAS says, else the faster of those installed."""
    choice = os.environ.get("NUMBAGRAD_BLAS", "auto")
    if choice not in CHOICES:
        raise ValueError(f"NUMBAGRAD_BLAS is {choice!r}, must be one of {', '.join(CHOICES)}")
    if choice == "mkl" or (choice == "auto" and not is_amd()):
        for path in installed_mkl():
            try:
                return _mkl(path)
            except (OSError, AttributeError):  # does not load here, or is too old
                continue
        if choice == "mkl":
            raise RuntimeError(
                f"NUMBAGRAD_BLAS is 'mkl', but no oneMKL that loads is in {_folders()}: "
                "install it with pip install 'numbagrad[mkl]', or unset NUMBAGRAD_BLAS"
            )
    bundled = bundled_openblas()
    try:
        return _openblas(bundled) if bundled else _behind_scipy()
    except (OSError, AttributeError):  # an OpenBLAS that will not load or names things otherwise
        return _behind_scipy()


def gemm_signature(real: Any) -> Any:
    """The type of CBLAS's gemm; a pointer is passed as the integer it is."""
    return types.void(
        *(_int, _int, _int, _int, _int, _int, real),
        *(_address, _int, _address, _int, real, _address, _int),
    )


def _addresses(library: Any, symbols: tuple[str, ...]) -> dict[str, int]:
    """Where the functions are that the library has for ``NAMES``."""
    functions = [getattr(library, symbol) for symbol in symbols]
    return {
        name: ctypes.cast(function, ctypes.c_void_p).value or 0
        for name, function in zip(NAMES, functions, strict=True)
    }


def _tiles_below(elsewhere: int, mkl: bool = False) -> int:
    """With AVX-512 our tiles are faster than OpenBLAS at any size: by 6 % in float32 and 20 % in
    float64 from 1024^3 to 2048^3 on a Zen 5; by 10 to 20 % and 0 to 5 % on a Granite Rapids without
    its matrix unit, but 3 % slower at 3000^3 in float64. oneMKL was measured on AMD's only."""
    return ALWAYS if "+avx512f" in features() and (is_amd() or not mkl) else elsewhere


def _folders() -> list[Path]:
    """Where pip and conda put oneMKL."""
    roots = [Path(sys.prefix), Path(site.getuserbase())]
    if sys.platform == "win32":
        return [root / "Library" / "bin" for root in roots]
    return [root / "lib" for root in roots]


def installed_mkl() -> list[Path]:
    """oneMKL's front libraries, the newest of each folder first."""
    pattern = "mkl_rt.*.dll" if sys.platform == "win32" else "libmkl_rt.*"

    def version(path: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", path.name)]

    return [
        path
        for folder in _folders()
        for path in sorted(folder.glob(pattern), key=version, reverse=True)
    ]


def _mkl(path: Path) -> Library:
    library = _already_loaded(path)  # such as by a NumPy of conda's, which has set it up
    if library is None:
        library = ctypes.CDLL(str(path))
        # Threads of ours share the work, so oneMKL needs none, nor Intel's OpenMP beside our pool.
        library.MKL_Set_Threading_Layer(_SEQUENTIAL)
        library.MKL_Set_Interface_Layer(_LP64)
    text = ctypes.create_string_buffer(256)
    library.MKL_Get_Version_String(text, len(text))
    version = re.search(rb"Version (\S+?)-", text.value)
    return Library(
        f"oneMKL {version[1].decode() if version else ''}".rstrip(),
        _addresses(
            library, ("cblas_sgemm", "cblas_dgemm", "MKL_Get_Max_Threads", "MKL_Set_Num_Threads")
        ),
        tiles_below=_tiles_below(1 << 26, mkl=True),
    )


def _already_loaded(path: Path) -> ctypes.CDLL | None:
    """The library if it is in this process; None too where the system cannot say so."""
    no_load = getattr(os, "RTLD_NOLOAD", None)
    if no_load is None:
        return None
    try:
        return ctypes.CDLL(str(path), mode=no_load)
    except OSError:
        return None


def bundled_openblas(name: str = "scipy") -> Path | None:
    """The OpenBLAS inside SciPy's or NumPy's wheel, or None where that came another way."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).parent
    folders = (package.parent / f"{name}.libs", package / ".dylibs")
    found = [path for folder in folders for path in sorted(folder.glob("libscipy_openblas*"))]
    return found[0] if found else None


class _Alone:
    """How many calls are in ``one_thread``, and how many threads there are to be after the last."""

    lock = threading.Lock()
    calls = 0
    after: tuple[int, ...] = ()


def limit_threads(n: int) -> None:
    """Let the factorisations of NumPy and SciPy, and whatever else they multiply, use n threads."""
    with _Alone.lock:
        if _Alone.calls:
            _Alone.after = (n,) * len(_limits())
            return
        for limit, _ in _limits():
            limit(n)


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, they use one; in other threads of Python too."""
    with _Alone.lock:
        if not _Alone.calls:
            _Alone.after = tuple([told() for _, told in _limits()])
            for limit, _ in _limits():
                limit(1)
        _Alone.calls += 1
    try:
        yield
    finally:
        with _Alone.lock:
            _Alone.calls -= 1
            if not _Alone.calls:
                for (limit, _), n in zip(_limits(), _Alone.after, strict=True):
                    limit(n)


@functools.cache
def _limits() -> list[tuple[Callable[[int], None], Callable[[], int]]]:
    """Of each OpenBLAS what sets the number of its threads, and what tells it."""
    found = []
    for name, suffix in (("numpy", "64_"), ("scipy", "")):
        path = bundled_openblas(name)
        if path is not None:
            with suppress(OSError, AttributeError):  # it will not load, or names things otherwise
                library = ctypes.CDLL(str(path))
                pair = [f"scipy_openblas_{verb}_num_threads{suffix}" for verb in ("set", "get")]
                limit, told = [getattr(library, each) for each in pair]
                found.append((limit, told))
    return found


def _openblas(path: Path) -> Library:
    library = ctypes.CDLL(str(path))
    library.scipy_openblas_get_config.restype = ctypes.c_char_p
    words = library.scipy_openblas_get_config().decode().split()
    return Library(
        f"{' '.join(words[:2])} of SciPy",
        _addresses(
            library,
            (
                "scipy_cblas_sgemm",
                "scipy_cblas_dgemm",
                "scipy_openblas_get_num_threads",
                "scipy_openblas_set_num_threads",
            ),
        ),
        tiles_below=_tiles_below(1 << 28),
    )


_kept_alive: list[Any] = []


def _behind_scipy() -> Library:
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
    return Library("that of SciPy", addresses, _tiles_below(1 << 28))


def _fortran_adapter(real: Any, fortran_gemm: Callable[..., None]) -> Any:
    """A C function with CBLAS's arguments that calls a Fortran gemm.

    Row-major ``out = x y`` is column-major ``out.T = y.T x.T``: the operands change places.
    """
    dtype = np.dtype(real.name)

    @numba.cfunc(gemm_signature(real))
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
