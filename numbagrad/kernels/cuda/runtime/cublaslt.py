"""The part of cuBLASLt's C interface that products need, called through ctypes.

NVIDIA's library is looked for where numba-cuda looks for its own: wheels, conda, the system's
toolkit. Numbers and types are those of ``cublasLt.h``. Nothing here knows arrays; start reading at
``Library``, and see ``cublas.py`` for what is done with it.
"""

from __future__ import annotations

import ctypes
import weakref
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64
from ctypes import c_void_p as pointer
from dataclasses import dataclass
from typing import Any

from ....errors import DeviceError
from . import device

__all__ = ["Algorithm", "Descriptor", "Library", "find"]

# cudaDataType_t, and cublasComputeType_t
R_32F, R_64F, R_16F, R_16BF = 0, 1, 2, 14
COMPUTE_32F, COMPUTE_32F_FAST_TF32, COMPUTE_64F = 68, 77, 70

# cublasOperation_t, cublasLtEpilogue_t, cublasLtReductionScheme_t
OP_N, OP_T = 0, 1
EPILOGUE_DEFAULT, EPILOGUE_BIAS, EPILOGUE_RELU_BIAS = 1, 4, 6
REDUCTION_COMPUTE_TYPE = 2

INVALID_VALUE, NOT_SUPPORTED = 7, 15
STATUSES = {
    1: "CUBLAS_STATUS_NOT_INITIALIZED",
    3: "CUBLAS_STATUS_ALLOC_FAILED",
    INVALID_VALUE: "CUBLAS_STATUS_INVALID_VALUE",
    8: "CUBLAS_STATUS_ARCH_MISMATCH",
    11: "CUBLAS_STATUS_MAPPING_ERROR",
    13: "CUBLAS_STATUS_EXECUTION_FAILED",
    14: "CUBLAS_STATUS_INTERNAL_ERROR",
    NOT_SUPPORTED: "CUBLAS_STATUS_NOT_SUPPORTED",
    16: "CUBLAS_STATUS_LICENSE_ERROR",
}


class Algorithm(ctypes.Structure):
    """What the heuristic returns: an algorithm, and the workspace that it needs."""

    _fields_ = [
        ("algo", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


@dataclass(frozen=True)
class Attribute:
    """The number of an attribute of a descriptor, and its type."""

    number: int
    kind: Any


ATTRIBUTES = {
    "MatmulDesc": {
        "transa": Attribute(3, c_int32),
        "transb": Attribute(4, c_int32),
        "epilogue": Attribute(7, c_uint32),
        "bias_pointer": Attribute(8, pointer),
    },
    "MatrixLayout": {
        "batch_count": Attribute(5, c_int32),
        "strided_batch_offset": Attribute(6, c_int64),
    },
    "MatmulPreference": {
        "max_workspace_bytes": Attribute(1, c_uint64),
        "reduction_scheme_mask": Attribute(3, c_uint32),
        "min_alignment_a_bytes": Attribute(5, c_uint32),
        "min_alignment_b_bytes": Attribute(6, c_uint32),
        "min_alignment_c_bytes": Attribute(7, c_uint32),
        "min_alignment_d_bytes": Attribute(8, c_uint32),
    },
}
"""By kind of descriptor; each kind has its own Create, SetAttribute and Destroy."""

_SET = pointer, c_int, pointer, c_size_t
_MATRICES = pointer, pointer, pointer, pointer  # layouts of a, b, c and d
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "Create": (POINTER(pointer),),
    "MatmulDescCreate": (POINTER(pointer), c_int, c_int),
    "MatmulDescSetAttribute": _SET,
    "MatmulDescDestroy": (pointer,),
    "MatrixLayoutCreate": (POINTER(pointer), c_int, c_uint64, c_uint64, c_int64),
    "MatrixLayoutSetAttribute": _SET,
    "MatrixLayoutDestroy": (pointer,),
    "MatmulPreferenceCreate": (POINTER(pointer),),
    "MatmulPreferenceSetAttribute": _SET,
    "MatmulPreferenceDestroy": (pointer,),
    "MatmulAlgoGetHeuristic": (
        *(pointer, pointer, *_MATRICES, pointer),
        *(c_int, POINTER(Algorithm), POINTER(c_int)),
    ),
    # handle, operation, alpha, a, its layout, b, its layout, beta, c, its layout, d, its layout,
    # algorithm, workspace, its size, stream
    "Matmul": (*[pointer] * 14, c_size_t, pointer),
}
"""Types of the parameters; each returns a cublasStatus_t."""


class Library:
    """cuBLASLt, declared and ready; raises DeviceError where it does not find a GPU.

    functions: has them as attributes, as ``ctypes.CDLL`` does.
    """

    def __init__(self, functions: Any):
        self.functions: dict[str, Any] = {}
        for name, kinds in FUNCTIONS.items():
            function = getattr(functions, f"cublasLt{name}")
            function.restype, function.argtypes = c_int, kinds
            self.functions[name] = function
        functions.cublasLtGetVersion.restype = c_size_t
        functions.cublasLtGetVersion.argtypes = ()
        self.version = int(functions.cublasLtGetVersion())
        self.matmul = self.functions["Matmul"]
        self._handle: int | None = None

    @property
    def handle(self) -> int | None:
        """The library's context of the current GPU, for the life of the process."""
        if self._handle is None:
            handle = pointer()
            self.call("Create", ctypes.byref(handle))
            self._handle = handle.value
        return self._handle

    def call(self, name: str, *arguments: Any, told: str = "") -> None:
        """``cublasLt<name>``; raises DeviceError if it fails. told: what it was about."""
        status = self.functions[name](*arguments)
        if status:
            raise self.error(name, status, told)

    def error(self, name: str, status: int, told: str = "") -> DeviceError:
        """The error of a call that returned ``status``."""
        major, rest = divmod(self.version, 10000)
        about = f" ({told})" if told else ""
        return DeviceError(
            f"cuBLASLt {major}.{rest // 100}: {STATUSES.get(status, status)} in cublasLt{name}"
            f"{about}. ng.cuda.set_matmul_backend('numba') multiplies by numbagrad's own kernels."
        )

    def best(self, operation: Any, layouts: list[Any], preference: Any) -> Algorithm | None:
        """The algorithm that should be the fastest; None where the library has none.

        Sizes and alignments that no algorithm can serve may be invalid values to it: then, too,
        somebody else has to multiply.
        """
        found, count = Algorithm(), c_int()
        status = self.functions["MatmulAlgoGetHeuristic"](
            *(self.handle, operation.pointer, *[x.pointer for x in layouts], preference.pointer),
            *(1, ctypes.byref(found), ctypes.byref(count)),
        )
        if status not in (0, INVALID_VALUE, NOT_SUPPORTED):
            raise self.error("MatmulAlgoGetHeuristic", status)
        return found if status == 0 and count.value and found.state == 0 else None


class Descriptor:
    """An object of the library, destroyed with its last reference.

    kind: a key of ``ATTRIBUTES``; arguments: what its Create takes; attributes: what is then set.
    """

    def __init__(self, library: Library, kind: str, *arguments: int, **attributes: int):
        self._library, self._kind = library, kind
        made = pointer()
        library.call(f"{kind}Create", ctypes.byref(made), *arguments)
        self.pointer = made.value
        destroy = library.functions[f"{kind}Destroy"]
        weakref.finalize(self, destroy, self.pointer).atexit = False
        for name, value in attributes.items():
            self.set(name, value)

    def set(self, name: str, value: int) -> None:
        """Set the attribute ``name``."""
        attribute = ATTRIBUTES[self._kind][name]
        content = attribute.kind(value)
        self._library.call(
            f"{self._kind}SetAttribute",
            *(self.pointer, attribute.number, ctypes.byref(content), ctypes.sizeof(content)),
            told=f"{name} = {value}",
        )


def find() -> Any:
    """The functions of the library that is installed; raises DeviceError, saying where it looked.

    Its version is the one that this process has loaded already, if another library has.
    """
    if device.simulating():
        raise DeviceError("cuBLASLt needs a GPU; Numba's simulator has none.")
    from cuda import pathfinder

    try:
        path = pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path
        return ctypes.CDLL(path or "libcublasLt.so.13")
    except (OSError, RuntimeError) as error:  # RuntimeError: of the pathfinder
        words = " ".join(str(error).split())[:200]
        raise DeviceError(
            f"cuBLASLt was not found: no libcublasLt.so.13 or .so.12 in NVIDIA's wheels (package "
            f"nvidia-cublas), in conda's environment, under CUDA_HOME or on the system's path "
            f"({words}). pip install 'numbagrad[cublas]'."
        ) from error
