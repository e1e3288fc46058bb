"""The door to products of matrices, for kernels: ``gemm``, and ``ProductKernel`` for kernels of it.

``gemm`` calls ``cpu.gemm.product``, compiled once for each dtype and known to LLVM by a name, so
that the kernels that use it stay small and their cached code stays valid in the next process.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from . import store
from .amx import AMX, load_amx
from .blas import NO_TRANS, ROW_MAJOR, TRANS, dgemm, load_blas, sgemm
from .half_type import HalfType, half_type, memory_type, signature_of
from .half_vectors import PAIRS
from .halves import BFLOAT16, HALVES
from .inner import intrinsic
from .machine import Kernel, threads
from .vectors import VECTOR_BYTES

__all__ = [
    "HALF_PRODUCTS",
    "LISTED",
    "WIDE_IN",
    "WIDE_OUT",
    "GemmKernel",
    "ProductKernel",
    "StridedGemmKernel",
    "exact_gemm",
    "expect_products",
    "gemm",
    "gemm_kernel",
    "load_products",
    "product_kernel",
    "round_factors",
    "strided_gemm_kernel",
    "what_multiplies",
]


@functools.cache
def load_products(real: Any) -> None:
    """Make ``gemm`` of a float dtype: before code that calls it is run."""
    load_blas()
    if not numba.config.DISABLE_JIT:
        made, kind = store.address_of_compiled(*what_multiplies(real)), memory_type(np.dtype(real))
        _places[kind].value = made
        if kind == types.float32:
            _exact.value = made
            round_factors(_rounds)


def round_factors(rounds: bool) -> None:
    """Whether large products of float32 are those of factors rounded to bfloat16; only where pairs
    of these are multiplied and there is no matrix unit."""
    global _rounds
    if not PAIRS or load_amx():
        return
    _rounds = rounds
    if not rounds:
        _places[types.float32].value = _exact.value or 0
        return
    from .cpu.half_product import rounded_product

    if not _exact.value:
        load_products(np.dtype(np.float32))  # which calls this
        return
    load_products(BFLOAT16)
    like = types.CPointer(types.float32)
    signature = like, *[types.int64] * 13
    made = store.address_of_compiled(rounded_product.serial, signature)
    _places[types.float32].value = made


_rounds = False


def _known_place(symbol: str) -> ctypes.c_void_p:
    """Where the address of a product will stand; LLVM knows it by ``symbol``."""
    place = ctypes.c_void_p()
    llvmlite.binding.add_symbol(symbol, ctypes.addressof(place))
    return place


def what_multiplies(real: Any) -> tuple[Any, tuple[Any, ...]]:
    """What ``load_products`` compiles: a dispatcher and a signature."""
    like = types.CPointer(memory_type(np.dtype(real)))
    if isinstance(like.dtype, HalfType):
        from .cpu.half_product import half_product

        return half_product.serial, (like, *[types.int64] * 13)
    from .cpu.gemm import product, product_on_unit

    made = product_on_unit if AMX and like.dtype == types.float32 else product
    return made.serial, (like, *[types.int64] * 13)


@functools.cache
def expect_products(real: Any) -> None:
    """Matrices of a float dtype have been made: let a helper compile what will multiply them.

    While the first of them is filled this process compiles something else.
    """
    first = what_multiplies(real)
    if store.made(*first):
        return
    from .apart import begin
    from .cpu.bias import column_sum
    from .cpu.matmul import mm

    held = memory_type(np.dtype(real))
    vector, matrix = types.Array(held, 1, "C"), types.Array(held, 2, "C")
    any_matrix = matrix.copy(layout="A")
    begin(
        [
            first,
            (column_sum.serial, (vector, matrix)),
            (mm.serial, (*[any_matrix] * 3, *[types.intp] * 3)),
        ]
    )


def symbol_of(real: Any) -> str:
    """The name by which compiled code knows ``gemm`` of a Numba float type."""
    return f"numbagrad_product_{real}"


_REALS = types.float32, types.float64, *map(half_type, HALVES)
_places = {real: _known_place(symbol_of(real)) for real in _REALS}

EXACT = "numbagrad_exact_product"
"""The name of the product of float32 that rounds no factors."""

_exact = _known_place(EXACT)


def gemm(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
    """``out = op(x) op(y) + start`` for row-major matrices at addresses.

    like: an array or pointer, for the dtype. ``op(x)`` is n by k, ``op(y)`` k by m, k at least 1;
    ld*: elements from row to row as stored. start: ``out`` itself to add to it; a row, with
    ``ldstart`` 0, to begin with it everywhere; 0 for none, and NaN in the old ``out`` does no harm.
    With ``PACK`` of ``amx.py`` for ``transx`` the second factor is packed at ``out``, which needs
    ``packed_bytes``; with ``PACKED`` for ``transy``, ``y`` is such a place. See ``LISTED`` too.
    Of halves, sums are float32 until they are rounded once, see ``WIDE_OUT``.
    """
    multiply, itemsize = (sgemm if like.dtype == np.float32 else dgemm), like.dtype.itemsize
    if start and start != out:
        for i in range(n):
            to, from_ = out + i * ldout * itemsize, start + i * ldstart * itemsize
            ctypes.memmove(int(to), int(from_), int(m * itemsize))
    x_op, y_op = (TRANS if t else NO_TRANS for t in (transx, transy))
    beta = 1.0 if start else 0.0
    multiply(ROW_MAJOR, x_op, y_op, n, m, k, 1.0, x, ldx, y, ldy, beta, out, ldout)


exact_gemm = gemm


def _door(name_of: Callable[[Any], str]) -> Any:
    """What calls a product through the place where LLVM knows its address to be, so that what calls
    it can be compiled, and loaded, before it. name_of: gives the symbol for a float type."""

    @intrinsic
    def call(typing, like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
        real = like.dtype
        given = types.CPointer(real), *[types.int64] * 13

        def generate(context, builder, signature, args):
            convention = context.call_conv
            kind = convention.get_function_type(types.none, given).as_pointer()
            symbol = name_of(real)
            place = builder.module.globals.get(symbol)
            callee = builder.load(place or ir.GlobalVariable(builder.module, kind, symbol))
            pointer = builder.inttoptr(args[-2], context.get_value_type(given[0]))
            values = [pointer, *args[1:]]
            status, _ = convention.call_function(builder, callee, types.none, given, values)
            with cgutils.if_unlikely(builder, status.is_error):
                convention.return_status_propagate(builder, status)
            return context.get_dummy_value()

        return types.void(like, *given[1:]), generate

    return call


if not numba.config.DISABLE_JIT:
    gemm, exact_gemm = _door(symbol_of), _door(lambda real: EXACT)


HALF_PRODUCTS = VECTOR_BYTES > 0
"""Whether there is a ``gemm`` of halves, which is made of vectors alone."""

WIDE_OUT, WIDE_IN = 4, 8
"""What is added to ``transx`` of ``gemm`` of halves where ``start`` and ``out`` are float32; and to
that of bfloat16, where pairs are multiplied, if the factors are float32 too, to be rounded."""

LISTED = 3
"""``transy`` of ``gemm`` where ``y`` is the address of a list, of where each of its rows is, in
bytes beyond ``ldy``. Rows have whole vectors in memory: what is beyond their columns is read."""

VECTORS = 1 << 19
"""Elements of a matrix from which a second thread pays to multiply it by a vector."""


class GemmKernel(Kernel):
    """A kernel that calls ``gemm`` among other things, for the dtype of its first argument."""

    layout = "C"
    """Of the arrays, where they are halves."""

    def __init__(self, function: Any, outputs: int, grain: int, **options: Any):
        super().__init__(function, outputs, grain, **options)
        self.grain: int = grain
        self._loaded: set[int] = set()  # bytes in an element: they tell the two dtypes apart
        self._half_entries: dict[Any, Callable[..., None]] = {}  # by dtype, and whether parallel

    def __call__(self, *args: Any) -> None:
        """Run on host arrays."""
        if args[0].itemsize == 2 and self.takes_halves:
            many = any([type(a) is np.ndarray and a.size >= self.grain for a in args])
            self._half_entry(many, args)(*args)
            return
        if args[0].itemsize not in self._loaded and args[0].itemsize > 2:
            load_products(args[0].dtype)
            self._loaded.add(args[0].itemsize)
        super().__call__(*args)

    def _half_entry(self, many: bool, args: tuple[Any, ...]) -> Callable[..., None]:
        """What runs on halves, of which both have two bytes: float32 copies for some kernels, and
        where not all arrays are of one dtype."""
        from .widened import launch_widened, takes

        if not takes(self, args):
            return lambda *given: launch_widened(self, given)
        dtype = args[0].dtype
        entry = self._half_entries.get((dtype, many))
        if entry is None:
            dispatcher = self.parallel if many else self.serial
            entry = _enter_directly(dispatcher, signature_of(args, self.layout), dtype)
            self._half_entries[dtype, many] = entry
        return entry


def gemm_kernel(
    grain: int, outputs: int = 1, takes_halves: bool = False, **options: Any
) -> Callable[[Callable[..., None]], GemmKernel]:
    """Make a plain function a ``GemmKernel``: ``@gemm_kernel(grain=...)``."""

    def decorate(function: Callable[..., None]) -> GemmKernel:
        made = GemmKernel(function, outputs, grain, **options)
        made.takes_halves = takes_halves and HALF_PRODUCTS
        return made

    return decorate


class StridedGemmKernel(GemmKernel):
    """A kernel of ``gemm`` that takes arrays of any strides, compiled once for each dtype.

    Arguments: arrays, each of a fixed rank and dtype but for the float dtype of all; then ints and
    floats. The kernel is entered past Numba's dispatcher, which would compile it anew for each mix
    of layouts and needs 100 ns more for each call; what the dispatcher would check, the op has
    checked.
    """

    layout = "A"

    def __init__(self, function: Any, outputs: int, grain: int, **options: Any):
        super().__init__(function, outputs, grain, **options)
        # Keyed by bytes in an element, which tell float32 from float64 sooner than a dtype does.
        self._serial_entries: dict[int, Callable[..., None]] = {}
        self._parallel_entries: dict[int, Callable[..., None]] = {}

    def __call__(self, *args: Any) -> None:
        """Run on host arrays; with threads where one of them has ``grain`` elements."""
        grain = self.grain
        for a in args:
            if type(a) is np.ndarray and a.size >= grain:
                self._entry(self._parallel_entries, args)(*args)
                return
        self._entry(self._serial_entries, args)(*args)

    def _entry(self, entries: dict[int, Callable[..., None]], args: tuple[Any, ...]) -> Any:
        entry = entries.get(args[0].itemsize)
        if entry is None:
            many = entries is self._parallel_entries
            if args[0].itemsize == 2:
                return self._half_entry(many, args)
            dispatcher = self.parallel if many else self.serial
            entry = _enter_directly(dispatcher, signature_of(args, self.layout), args[0].dtype)
            entries[args[0].itemsize] = entry
        return entry


class ProductKernel(StridedGemmKernel):
    """One whose first three arguments are the result and factors of a product: they tell the work
    that threads share."""

    def __init__(self, function: Any, outputs: int, grain: int, **options: Any):
        super().__init__(function, outputs, grain, **options)
        self._squared_grain = grain * grain
        self.takes_halves = HALF_PRODUCTS

    def is_small(self, args: tuple[Any, ...]) -> bool:
        """Whether ``args`` have fewer multiplications than ``grain``."""
        out, x, y = args[:3]
        work = x.size * y.size
        if work < self.grain:
            return True
        if 1 in out.shape and out.ndim == 2:
            return bool(max(x.size, y.size) < VECTORS)
        # n k . k m is never less than n m k; with n m it makes the square of n m k.
        return bool(work * out.size < self._squared_grain)

    def takes_threads(self, args: tuple[Any, ...]) -> bool:
        """Whether a call goes to the compilation with threads; ``when_threads_change`` tells when
        that may be another one."""
        return not self.is_small(args) and threads() > 1

    def __call__(self, *args: Any) -> None:
        """Run on host arrays; with threads from ``grain`` multiplications on."""
        if self.takes_threads(args):
            entry = self._entry(self._parallel_entries, args)
        else:
            entry = self._serial_entries.get(args[0].itemsize)
            entry = entry or self._entry(self._serial_entries, args)
        entry(*args)


def _enter_directly(
    dispatcher: Any, signature: tuple[types.Type, ...], real: np.dtype
) -> Callable[..., None]:
    if numba.config.DISABLE_JIT:
        return dispatcher
    load_blas()
    entry = store.entry_of_compiled(dispatcher, signature)
    load_products(real)
    return entry


def product_kernel(
    grain: int, outputs: int = 1, **options: Any
) -> Callable[[Callable[..., None]], ProductKernel]:
    """Make a plain function on matrices a ``ProductKernel``: ``@product_kernel(grain=...)``."""
    return lambda function: ProductKernel(function, outputs, grain, **options)


def strided_gemm_kernel(
    grain: int, outputs: int = 1, **options: Any
) -> Callable[[Callable[..., None]], StridedGemmKernel]:
    """Make a function a ``StridedGemmKernel``: ``@strided_gemm_kernel(grain=...)``."""
    return lambda function: StridedGemmKernel(function, outputs, grain, **options)
