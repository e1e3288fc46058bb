"""Products of matrices by cuBLASLt, each kind of product planned once.

The library counts along columns where our matrices lie by rows. A matrix by rows is its own
transpose by columns, so what it computes is ``out.T = y.T x.T``: its a is y, its b is x, and the
bias that it adds to each of its columns is added to each of our rows. A plan is all that the
library must be told, with the algorithm it has chosen: a product like an earlier one costs one
call, two with another bias. Start reading at ``multiplied``.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import precision
from ...halves import BFLOAT16, FLOAT16, FLOAT32, HALVES
from . import cublaslt, device
from .array import DeviceArray
from .cublaslt import Descriptor, Library
from .launch import note_memory
from .shape import LARGE_PRODUCT

__all__ = ["is_large", "library", "multiplied"]

_BYTES = np.dtype(np.uint8)
_FLOAT64 = np.dtype(np.float64)
_TYPES = {
    FLOAT32: cublaslt.R_32F,
    _FLOAT64: cublaslt.R_64F,
    FLOAT16: cublaslt.R_16F,
    BFLOAT16: cublaslt.R_16BF,
}

_NUMBERS = {  # what alpha and beta may be, by the type that the library wants them in
    cublaslt.R_32F: (ctypes.c_float(0), ctypes.c_float(1)),
    cublaslt.R_64F: (ctypes.c_double(0), ctypes.c_double(1)),
}

MOST_PLANS = 1024
"""Plans that are kept; then all are forgotten."""

ALIGNED = 256
"""Bytes beyond which the library asks for no stricter alignment."""


def workspace_limit(capability: tuple[int, ...]) -> int:
    """Bytes that an algorithm may take for itself on a GPU of this compute capability.

    32 MiB from Hopper on, which NVIDIA's manual recommends for cublasSetWorkspace there; 8 MiB on
    others, where it recommends 4 and PyTorch gives 8. An algorithm is given what it asks for.
    """
    return (32 if capability >= (9, 0) else 8) << 20


@dataclass(frozen=True)
class Layout:
    """A matrix in the library's words: rows, columns, elements between columns; by columns.

    turned: whether it is what we have, not its transpose. batch: elements between matrices.
    """

    rows: int
    cols: int
    leading: int
    turned: bool
    batch: int


@dataclass(frozen=True)
class Product:
    """``out.T = a b``, on as many matrices as ``count`` says.

    a, b, out: as they lie; exact: float32 is not rounded to tf32. addresses: of a, b, out and the
    bias, of which the alignment counts.
    """

    dtype: np.dtype
    a: Layout
    b: Layout
    out: Layout
    count: int
    epilogue: int
    accumulate: bool
    exact: bool
    addresses: tuple[int, int, int, int]


def layout_of(array: Any, turn: int) -> Layout | None:
    """How the matrices of ``array``, of its transpose if ``turn``, lie; None if by no unit stride.

    A dim of one index has no stride.
    """
    size = array.itemsize
    (rows, cols), (row, col) = array.shape[-2:], array.strides[-2:]
    row, col = row // size, col // size
    batch = array.strides[0] // size if len(array.shape) == 3 else 0
    if batch < 0:
        return None
    if turn:
        rows, cols, row, col = cols, rows, col, row
    if (col == 1 or cols == 1) and (row >= cols or rows == 1):
        return Layout(cols, rows, row if rows > 1 else cols, False, batch)
    if (row == 1 or rows == 1) and col >= rows:
        return Layout(rows, cols, col, True, batch)
    return None


class Plan:
    """A product that the library knows how to make."""

    def __init__(self, lib: Library, product: Product, algorithm: Any, operation: Any, parts: Any):
        self._library, self._operation, self._parts = lib, operation, parts
        self._algorithm = algorithm
        self._algo = ctypes.addressof(algorithm)  # its first member
        numbers = _NUMBERS[scale_type(product.dtype)]
        self._alpha = ctypes.addressof(numbers[1])
        self._beta = ctypes.addressof(numbers[int(product.accumulate)])
        self._bias = product.addresses[3]
        self._lock = threading.Lock()

    def run(self, out: DeviceArray, x: DeviceArray, y: DeviceArray, bias: Any) -> None:
        """Start the product on the current stream."""
        device.once()
        queue = device.current_queue()
        for array in (out, x, y) if bias is None else (out, x, y, bias):
            note_memory(array.memory, queue)
        size = self._algorithm.workspace
        workspace = _workspace(size, queue, out.device) if size else None
        if bias is None:
            self._start(out, x, y, workspace, size, queue)
            return
        with self._lock:  # threads share the operation, which holds the address of the bias
            if bias.pointer != self._bias:
                self._operation.set("bias_pointer", bias.pointer)
                self._bias = bias.pointer
            self._start(out, x, y, workspace, size, queue)

    def _start(self, out: Any, x: Any, y: Any, workspace: Any, size: int, queue: Any) -> None:
        lib, (a, b, d) = self._library, self._parts
        status = lib.matmul(
            *(lib.handle, self._operation.pointer, self._alpha, y.pointer, a.pointer),
            *(x.pointer, b.pointer, self._beta, out.pointer, d.pointer, out.pointer, d.pointer),
            *(self._algo, workspace.pointer if size else None, size),
            device.driver().handle(queue),
        )
        if status:
            raise lib.error("Matmul", status)


def _workspace(size: int, queue: Any, place: Any) -> DeviceArray:
    """Memory for one product. Those captured into one graph share it: they run in order."""
    captured = device.captures.get(queue)
    if captured is None:
        return device.empty((size,), _BYTES, place)
    if captured.workspace is None or captured.workspace.size < size:
        captured.workspace = device.empty((size,), _BYTES, place)
    return captured.workspace


# -- planning --------------------------------------------------------------------------------------

_lock = threading.Lock()
_library: Library | None = None
_plans: dict[Any, Plan | None] = {}
_UNKNOWN: Any = object()


def library() -> Library:
    """cuBLASLt, found when it is first needed. Raises DeviceError where it or a GPU is missing."""
    global _library
    if _library is None:
        driver = device.driver()
        with _lock:
            if _library is None:
                driver.enter()
                found = Library(cublaslt.find())
                _ = found.handle  # fails here, not in the first product
                _library = found
    return _library


def is_large(multiplications: int) -> bool:
    """Whether a product of so many multiplications is for the library."""
    return multiplications >= LARGE_PRODUCT


def multiplied(
    out: Any, x: Any, y: Any, bias: Any, transx: int, transy: int, accumulate: bool, relu: bool
) -> bool:
    """Start ``out = x y``, perhaps ``+ bias``, ``+ out`` or cut off at 0; False if that is not for
    the library: too small, or not as it wants matrices to lie.

    out, x, y: as ``matmul.mm`` and ``matmul.bmm`` take them; bias (m) C or None.
    """
    if not is_large(out.size * x.shape[-2 if transx else -1]):
        return False
    ends = out.pointer, x.pointer, y.pointer, 0 if bias is None else bias.pointer
    key = (
        *(out.dtype, x.dtype, y.dtype, out.shape, out.strides, x.shape, x.strides, y.strides),
        *(transx, transy, accumulate, relu, bias is None, precision.float32_products),
        *[_alignment(end) for end in ends],
    )
    plan = _plans.get(key, _UNKNOWN)
    if plan is _UNKNOWN:
        plan = _planned(key, out, x, y, bias, transx, transy, accumulate, relu)
    if plan is None:
        return False
    plan.run(out, x, y, bias)
    return True


def _alignment(address: int) -> int:
    """The power of two that ``address`` is a multiple of."""
    return min(address & -address, ALIGNED) or ALIGNED


def _planned(
    key: Any, out: Any, x: Any, y: Any, bias: Any, transx: int, transy: int, accumulate: bool,
    relu: bool,
) -> Plan | None:  # fmt: skip
    """The plan of a product, made and kept; None if the library cannot make it."""
    a, b, d = layout_of(y, transy), layout_of(x, transx), layout_of(out, 0)
    lib = library()
    with _lock:
        if key in _plans:  # another thread was faster
            return _plans[key]
        plan = None
        fits = out.dtype in _TYPES and x.dtype == y.dtype == out.dtype
        ends = y.pointer, x.pointer, out.pointer, 0 if bias is None else bias.pointer
        whole = all([_alignment(end) >= out.itemsize for end in ends])
        if a and b and d and not d.turned and fits and whole:
            with_bias = cublaslt.EPILOGUE_RELU_BIAS if relu else cublaslt.EPILOGUE_BIAS
            epilogue = cublaslt.EPILOGUE_DEFAULT if bias is None else with_bias
            count = out.shape[0] if len(out.shape) == 3 else 1
            exact = precision.float32_products == "highest"
            plan = plan_for(
                lib, Product(out.dtype, a, b, d, count, epilogue, accumulate, exact, ends)
            )
        if len(_plans) >= MOST_PLANS:
            _plans.clear()
        _plans[key] = plan
        return plan


def scale_type(dtype: np.dtype) -> int:
    """The type of alpha and beta, and of the sums; float32 for halves."""
    return cublaslt.R_64F if dtype == _FLOAT64 else cublaslt.R_32F


def plan_for(lib: Library, product: Product) -> Plan | None:
    """The plan of a product, or None if the library has no algorithm for it."""
    operation, parts = descriptors(lib, product)
    a, b, d = parts
    limit = workspace_limit(device.driver().capability)
    algorithm = lib.best(operation, [a, b, d, d], preference_for(lib, product, limit))
    return None if algorithm is None else Plan(lib, product, algorithm, operation, parts)


def descriptors(lib: Library, product: Product) -> tuple[Descriptor, list[Descriptor]]:
    """The operation, and the layouts of a, b and the result."""
    scale = scale_type(product.dtype)
    compute = cublaslt.COMPUTE_64F if scale == cublaslt.R_64F else cublaslt.COMPUTE_32F
    if product.dtype == FLOAT32 and not product.exact:
        compute = cublaslt.COMPUTE_32F_FAST_TF32
    attributes = {
        "transa": cublaslt.OP_T if product.a.turned else cublaslt.OP_N,
        "transb": cublaslt.OP_T if product.b.turned else cublaslt.OP_N,
        "epilogue": product.epilogue,
    }
    if product.epilogue != cublaslt.EPILOGUE_DEFAULT:
        attributes["bias_pointer"] = product.addresses[3]
    operation = Descriptor(lib, "MatmulDesc", compute, scale, **attributes)
    parts = []
    for part in (product.a, product.b, product.out):
        size = _TYPES[product.dtype], part.rows, part.cols, part.leading
        batch = {"batch_count": product.count, "strided_batch_offset": part.batch}
        parts.append(Descriptor(lib, "MatrixLayout", *size, **batch if product.count > 1 else {}))
    return operation, parts


def preference_for(lib: Library, product: Product, limit: int) -> Descriptor:
    """What an algorithm may take for granted, and how much memory it may use."""
    a, b, d = [_alignment(address) for address in product.addresses[:3]]
    attributes = {
        "max_workspace_bytes": limit,
        "min_alignment_a_bytes": a,
        "min_alignment_b_bytes": b,
        "min_alignment_c_bytes": d,
        "min_alignment_d_bytes": d,
    }
    if product.dtype in HALVES:  # parts of a sum are added in float32, never rounded to halves
        attributes["reduction_scheme_mask"] = cublaslt.REDUCTION_COMPUTE_TYPE
    return Descriptor(lib, "MatmulPreference", **attributes)
