"""cuBLASLt as its header and manual describe it, in NumPy on the simulator's memory.

Written from NVIDIA's text alone, with its numbers and its order of columns, so that a mistake of
ours about it does not stand in both places. The functions are C callbacks: arguments pass through
ctypes as they do to the real library. What the manual forbids is noted in ``problems``.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from ctypes import c_int, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from numbagrad.kernels.cuda.runtime import device

SUCCESS, INVALID_VALUE, INTERNAL_ERROR, NOT_SUPPORTED = 0, 7, 14, 15

# By attribute: its number in cublasLt.h, how many bytes it has, and its default.
MATMUL_DESC = {
    "TRANSA": (3, 4, 0),
    "TRANSB": (4, 4, 0),
    "EPILOGUE": (7, 4, 1),
    "BIAS_POINTER": (8, 8, 0),
}
MATRIX_LAYOUT = {"BATCH_COUNT": (5, 4, 1), "STRIDED_BATCH_OFFSET": (6, 8, 0)}
PREFERENCE = {
    "MAX_WORKSPACE_BYTES": (1, 8, 0),
    "REDUCTION_SCHEME_MASK": (3, 4, 7),
    "MIN_ALIGNMENT_A_BYTES": (5, 4, 256),
    "MIN_ALIGNMENT_B_BYTES": (6, 4, 256),
    "MIN_ALIGNMENT_C_BYTES": (7, 4, 256),
    "MIN_ALIGNMENT_D_BYTES": (8, 4, 256),
}
SIZES = {0: 4, 1: 8, 2: 2, 14: 2}  # CUDA_R_32F, CUDA_R_64F, CUDA_R_16F, CUDA_R_16BF
WORKSPACE = 96

Heuristic = np.dtype(
    [("algo", "u8", 8), ("size", "u8"), ("state", "i4"), ("waves", "f4"), ("reserved", "i4", 4)]
)


@dataclass
class Made:
    """A descriptor: what it was created with, and its attributes."""

    kind: str
    created: tuple[int, ...] = ()
    known: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)

    def __getattr__(self, name: str) -> int:
        return self.values[name] if name in self.values else self.known[name][2]


class Forbidden(Exception):
    """What the manual does not allow."""


def demand(condition: Any, words: str) -> None:
    if not condition:
        raise Forbidden(words)


def read_words(address: int, extent: int, size: int) -> np.ndarray:
    """``extent`` elements of device memory, which must be somebody's."""
    end = address + extent * size
    inside = any(low <= address and end <= low + n for low, n in device.driver().blocks())
    demand(inside, f"{extent} elements of {size} bytes at {address:x} leave the device's memory")
    kind = {2: np.uint16, 4: np.float32, 8: np.float64}[size]
    return np.frombuffer((ctypes.c_uint8 * (extent * size)).from_address(address), kind)


def numbers(words: np.ndarray, kind: int) -> np.ndarray:
    if kind == 14:
        return (words.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return words.view(np.float16).astype(np.float32) if kind == 2 else words


def words_of(values: np.ndarray, kind: int) -> np.ndarray:
    if kind == 14:  # to the nearest, ties to even
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        return ((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16)).astype(np.uint16)
    return values.astype(np.float16).view(np.uint16) if kind == 2 else values


def rounded_to_tf32(values: np.ndarray) -> np.ndarray:
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def matrix(address: int, layout: Made, batch: int) -> tuple[np.ndarray, int]:
    """The words of matrix ``batch``: by columns, ld elements from one to the next."""
    kind, rows, cols, ld = layout.created
    size = SIZES[kind]
    start = address + batch * layout.STRIDED_BATCH_OFFSET * size
    flat = read_words(start, (cols - 1) * ld + rows, size)
    return np.lib.stride_tricks.as_strided(flat, (rows, cols), (size, ld * size)), kind


class ManualLibrary:
    """Stands for the shared library. calls: what was multiplied, by compute type and epilogue."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.objects: dict[int, Made] = {}
        self.calls: list[tuple[int, int]] = []
        self.masks: list[int] = []
        self.workspaces: list[int] = []
        self.refuses = SUCCESS  # what the heuristic says where it finds nothing
        self.maximum: Any = np.maximum  # of relu; the manual says nothing of NaN
        self._number = itertools.count(0x1000, 16).__next__
        self._plans: dict[int, tuple[Any, ...]] = {}
        self.cublasLtGetVersion = ctypes.CFUNCTYPE(c_size_t)(lambda: 130000)
        self._offer("Create", self._create, c_void_p)
        self._offer("MatmulDescCreate", self._operation, c_void_p, c_int, c_int)
        self._offer(
            "MatrixLayoutCreate", self._layout, c_void_p, c_int, c_uint64, c_uint64, c_int64
        )
        self._offer("MatmulPreferenceCreate", self._preference, c_void_p)
        for kind in ("MatmulDesc", "MatrixLayout", "MatmulPreference"):
            self._offer(f"{kind}SetAttribute", self._set, c_void_p, c_int, c_void_p, c_size_t)
            self._offer(f"{kind}Destroy", self._destroy, c_void_p)
        self._offer(
            "MatmulAlgoGetHeuristic", self._heuristic, *[c_void_p] * 7, c_int, *[c_void_p] * 2
        )
        self._offer("Matmul", self._matmul, *[c_void_p] * 14, c_size_t, c_void_p)

    def _offer(self, name: str, function: Any, *kinds: Any) -> None:
        def called(*arguments: Any) -> int:
            try:
                return function(*arguments) or SUCCESS
            except Forbidden as error:
                self.problems.append(f"{name}: {error}")
                return INVALID_VALUE
            except Exception as error:  # ctypes would drop it
                self.problems.append(f"{name}: {type(error).__name__}: {error}")
                return INTERNAL_ERROR

        setattr(self, f"cublasLt{name}", ctypes.CFUNCTYPE(c_int, *kinds)(called))

    # -- descriptors -------------------------------------------------------------------------------

    def _keep(self, target: int, made: Made) -> None:
        number = self._number()
        self.objects[number] = made
        c_void_p.from_address(target).value = number

    def _found(self, number: int, kind: str) -> Made:
        made = self.objects.get(number)
        demand(made is not None and made.kind == kind, f"{number} is no {kind}")
        assert made is not None
        return made

    def _create(self, target: int) -> None:
        self._keep(target, Made("handle"))

    def _operation(self, target: int, compute: int, scale: int) -> None:
        demand((compute, scale) in ((68, 0), (77, 0), (70, 1)), "no such compute and scale type")
        self._keep(target, Made("operation", (compute, scale), MATMUL_DESC))

    def _layout(self, target: int, kind: int, rows: int, cols: int, ld: int) -> None:
        demand(kind in SIZES and rows > 0 and cols > 0, "no such matrix")
        demand(ld >= rows, f"columns of {rows} elements overlap at a leading dimension of {ld}")
        self._keep(target, Made("layout", (kind, rows, cols, ld), MATRIX_LAYOUT))

    def _preference(self, target: int) -> None:
        self._keep(target, Made("preference", (), PREFERENCE))

    def _set(self, number: int, attribute: int, source: int, size: int) -> None:
        made = self.objects[number]
        found = [n for n, (code, *_) in made.known.items() if code == attribute]
        demand(found, f"a {made.kind} has no attribute {attribute}")
        (name,) = found
        demand(size == made.known[name][1], f"{name} has {made.known[name][1]} bytes, not {size}")
        made.values[name] = int.from_bytes(ctypes.string_at(source, size), "little", signed=True)

    def _destroy(self, number: int) -> None:
        del self.objects[number]

    # -- products ----------------------------------------------------------------------------------

    def _heuristic(self, *given: Any) -> int:
        handle, operation, a, b, c, d, preference, count, target, returned = given
        self._found(handle, "handle")
        o, wanted = self._found(operation, "operation"), self._found(preference, "preference")
        layouts = [self._found(x, "layout") for x in (a, b, c, d)]
        self._agree(o, layouts)
        demand(count >= 1, "no algorithm was asked for")
        self.masks.append(wanted.REDUCTION_SCHEME_MASK)
        c_int.from_address(returned).value = 0
        if self.refuses:
            return self.refuses
        demand(wanted.MAX_WORKSPACE_BYTES >= WORKSPACE, "too little workspace")
        result = np.zeros(1, Heuristic)
        number = self._number()
        result["algo"][0, 0], result["size"] = number, WORKSPACE
        alignments = [getattr(wanted, f"MIN_ALIGNMENT_{x}_BYTES") for x in "ABCD"]
        bias = min(o.BIAS_POINTER & -o.BIAS_POINTER, 256)
        self._plans[number] = (operation, (a, b, c, d), alignments, bias)
        ctypes.memmove(target, result.ctypes.data, Heuristic.itemsize)
        c_int.from_address(returned).value = 1
        return SUCCESS

    def _agree(self, o: Made, layouts: list[Made]) -> None:
        """D (m, n) = op(A) (m, k) op(B) (k, n), all of one type and as many of each."""
        a, b, c, d = layouts
        (m, k), (k2, n) = a.created[1:3][:: 1 - 2 * o.TRANSA], b.created[1:3][:: 1 - 2 * o.TRANSB]
        demand(k == k2 and d.created[1:3] == (m, n), f"{layouts} do not fit")
        demand(c.created[:3] == d.created[:3], "C and D differ")
        demand(len({x.created[0] for x in layouts}) == 1, "mixed types")
        demand(len({x.BATCH_COUNT for x in layouts}) == 1, "mixed batch counts")
        double = d.created[0] == 1
        demand(double == (o.created[1] == 1), "compute type and matrices do not go together")
        demand(o.created[0] != 77 or d.created[0] == 0, "tf32 is for float32")
        demand(o.EPILOGUE in (1, 4, 6), f"no epilogue {o.EPILOGUE}")

    def _matmul(self, *given: Any) -> None:
        handle, operation, alpha, a, adesc, b, bdesc, beta, c, cdesc, d, ddesc = given[:12]
        algo, workspace, size, _stream = given[12:]
        self._found(handle, "handle")
        o = self._found(operation, "operation")
        layouts = [self._found(x, "layout") for x in (adesc, bdesc, cdesc, ddesc)]
        self._agree(o, layouts)
        plan = self._plans[c_uint64.from_address(algo).value]
        demand(plan[:2] == (operation, (adesc, bdesc, cdesc, ddesc)), "the algorithm is another's")
        for address, alignment in zip((a, b, c, d), plan[2], strict=True):
            demand(address % alignment == 0, f"{address:x} is less aligned than {alignment}")
        demand(c != d or cdesc == ddesc, "C in place of D must lie as D does")
        demand(size >= WORKSPACE and workspace % 16 == 0, "too little workspace")
        read_words(workspace, size // 4, 4)
        scalar = {0: ctypes.c_float, 1: ctypes.c_double}[o.created[1]]
        factors = scalar.from_address(alpha).value, scalar.from_address(beta).value
        bias = o.BIAS_POINTER if o.EPILOGUE & 4 else 0
        demand(not o.EPILOGUE & 4 or (bias and bias % plan[3] == 0), "bias: missing, misaligned")
        self.calls.append((o.created[0], o.EPILOGUE))
        self.workspaces.append(workspace)
        work = functools.partial(self._compute, factors, (a, b, c, d), bias, vars(o), layouts)
        if device.driver().capturing is None:
            work()
        else:
            device.driver().capturing.append(work)

    def _compute(
        self, factors: Any, addresses: Any, bias: int, operation: Any, layouts: Any
    ) -> None:
        alpha, beta = factors
        o = Made(**operation)
        kind, rows, cols, _ = layouts[3].created
        real = np.float64 if kind == 1 else np.float32
        for batch in range(layouts[3].BATCH_COUNT):
            found = [matrix(x, y, batch) for x, y in zip(addresses, layouts, strict=True)]
            x, y = numbers(*found[0]), numbers(*found[1])
            if o.created[0] == 77:
                x, y = rounded_to_tf32(x), rounded_to_tf32(y)
            x, y = x.T if o.TRANSA else x, y.T if o.TRANSB else y
            out = real(alpha) * (x.astype(real) @ y.astype(real))
            if beta != 0:  # else C is not read: it may hold anything
                out += real(beta) * numbers(*found[2])
            if bias:
                out += numbers(read_words(bias, rows, SIZES[kind]), kind)[:, None]
            if o.EPILOGUE & 2:
                out = self.maximum(out, 0)
            found[3][0][...] = words_of(out.reshape(rows, cols), kind)
