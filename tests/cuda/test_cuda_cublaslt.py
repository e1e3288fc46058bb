"""What the installed cuBLASLt is told, it takes: descriptors need no GPU; skipped without it."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from manual_cublaslt import MATMUL_DESC, MATRIX_LAYOUT, PREFERENCE

from numbagrad.errors import DeviceError
from numbagrad.kernels.cuda.runtime import cublas, cublaslt, device
from numbagrad.kernels.cuda.runtime.array import DeviceArray
from numbagrad.kernels.cuda.runtime.cublas import Layout, Product
from numbagrad.kernels.halves import BFLOAT16, FLOAT16, FLOAT32

FLOAT64 = np.dtype(np.float64)


@pytest.fixture(scope="module")
def real() -> Any:
    """The installed library, and its own functions."""
    if device.simulating():
        pytest.skip("the simulator has no cuBLASLt")
    try:
        functions = cublaslt.find()
    except DeviceError as error:
        pytest.skip(str(error))
    except ImportError:
        pytest.skip("numba-cuda is not installed")
    return cublaslt.Library(functions), functions


def read_back(functions: Any, kind: str, made: Any, attribute: tuple[int, int, int]) -> int:
    """An attribute of a descriptor, in as many bytes as the header says."""
    number, size, _ = attribute
    content, written = (ctypes.c_uint8 * size)(), ctypes.c_size_t()
    get = getattr(functions, f"cublasLt{kind}GetAttribute")
    pointer = ctypes.c_void_p
    get.argtypes = pointer, ctypes.c_int, pointer, ctypes.c_size_t, pointer
    status = get(made.pointer, number, content, size, ctypes.byref(written))
    assert (status, written.value) == (0, size), (kind, attribute)
    return int.from_bytes(bytes(content), "little", signed=True)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64, FLOAT16, BFLOAT16], ids=str)
@pytest.mark.parametrize("epilogue", [1, 4, 6])
@pytest.mark.parametrize("exact", [True, False])
def test_every_attribute_is_accepted(real: Any, dtype: Any, epilogue: int, exact: bool) -> None:
    library, functions = real
    for turned, count in itertools.product((False, True), (1, 7)):
        a, b = Layout(64, 32, 70, turned, 99), Layout(32, 48, 33, not turned, 0)
        product = Product(
            dtype, a, b, Layout(64, 48, 64, False, 4096), count, epilogue, False, exact,
            (1 << 40, (1 << 40) + 64, (1 << 40) + 16, (1 << 41) + 8),
        )  # fmt: skip
        operation, parts = cublas.descriptors(library, product)
        expected = {
            "TRANSA": int(turned),
            "TRANSB": int(not turned),
            "EPILOGUE": epilogue,
            "BIAS_POINTER": 0 if epilogue == 1 else (1 << 41) + 8,
        }
        for name, value in expected.items():
            assert read_back(functions, "MatmulDesc", operation, MATMUL_DESC[name]) == value
        compute = 70 if dtype == FLOAT64 else 77 if dtype == FLOAT32 and not exact else 68
        created = [read_back(functions, "MatmulDesc", operation, (k, 4, 0)) for k in (0, 1)]
        assert created == [compute, int(dtype == FLOAT64)]
        kind = {FLOAT32: 0, FLOAT64: 1, FLOAT16: 2, BFLOAT16: 14}[dtype]
        for part, made in zip((a, b, product.out), parts, strict=True):
            layout = [(0, 4, 0), (2, 8, 0), (3, 8, 0), (4, 8, 0), *MATRIX_LAYOUT.values()]
            found = [read_back(functions, "MatrixLayout", made, x) for x in layout]
            batch = [count, part.batch] if count > 1 else [1, 0]
            assert found == [kind, part.rows, part.cols, part.leading, *batch]
        preference = cublas.preference_for(library, product, 32 << 20)
        mask = 2 if dtype in (FLOAT16, BFLOAT16) else 7
        found = [
            read_back(functions, "MatmulPreference", preference, x) for x in PREFERENCE.values()
        ]
        assert found == [32 << 20, mask, 256, 64, 16, 16]


def test_an_attribute_of_another_size_is_refused(real: Any, monkeypatch: Any) -> None:
    library, _ = real
    wrong = {"epilogue": cublaslt.Attribute(7, ctypes.c_uint64)}
    monkeypatch.setitem(cublaslt.ATTRIBUTES, "MatmulDesc", wrong)
    with pytest.raises(DeviceError, match=r"CUBLAS_STATUS_INVALID_VALUE.*epilogue = 4"):
        cublaslt.Descriptor(library, "MatmulDesc", 68, 0, epilogue=4)


def test_statuses_and_version(real: Any) -> None:
    library, functions = real
    assert library.version >= 120000
    functions.cublasLtGetStatusName.restype = ctypes.c_char_p
    names = {k: functions.cublasLtGetStatusName(k).decode() for k in range(100)}
    known = {k: name for k, name in names.items() if name.startswith("CUBLAS_STATUS_") and k}
    assert known == cublaslt.STATUSES


def test_the_structure_has_the_size_of_the_header() -> None:
    assert ctypes.sizeof(cublaslt.Algorithm) == 96
    assert cublaslt.Algorithm.algo.offset == 0 and cublaslt.Algorithm.workspace.offset == 64


def test_layouts() -> None:
    """Unit strides either way; a dim of one index has no stride."""

    def layout(shape: tuple[int, ...], strides: tuple[int, ...], turn: int = 0) -> Any:
        steps = tuple([4 * s for s in strides])
        return cublas.layout_of(DeviceArray(None, 0, shape, FLOAT32, None, steps), turn)

    assert layout((3, 4), (4, 1)) == Layout(4, 3, 4, False, 0)
    assert layout((3, 4), (9, 1)) == Layout(4, 3, 9, False, 0)
    assert layout((3, 4), (1, 3)) == Layout(3, 4, 3, True, 0)
    assert layout((3, 4), (4, 1), 1) == Layout(4, 3, 4, True, 0)
    assert layout((1, 4), (0, 1)) == Layout(4, 1, 4, False, 0)
    assert layout((1, 4), (0, 5)) == Layout(1, 4, 5, True, 0)
    assert layout((4, 1), (7, 0)) == Layout(1, 4, 7, False, 0)
    assert layout((1, 1), (0, 0)) == Layout(1, 1, 1, False, 0)
    assert layout((2, 3, 4), (12, 4, 1)) == Layout(4, 3, 4, False, 12)
    assert layout((2, 3, 4), (0, 4, 1)) == Layout(4, 3, 4, False, 0)
    for strides in ((8, 2), (0, 1), (2, 1), (1, 2), (1, 0), (0, 0)):
        assert layout((3, 4), strides) is None
    assert layout((2, 3, 4), (-12, 4, 1)) is None


def test_where_the_library_is_not_found(monkeypatch: Any) -> None:
    if device.simulating():
        pytest.skip("the simulator is refused before anything is looked for")
    pathfinder = pytest.importorskip("cuda.pathfinder")

    def load(name: str) -> Any:
        assert name == "cublasLt"
        raise RuntimeError("not\nhere")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", load)
    words = r"libcublasLt.so.13.*nvidia-cublas.*\(not here\).*pip install 'numbagrad\[cublas\]'"
    with pytest.raises(DeviceError, match=words):
        cublaslt.find()


def test_numbagrad_loads_no_library_that_nobody_asked_for() -> None:
    code = (
        "import sys, numbagrad\n"
        "print('numbagrad.kernels.cuda.runtime.cublaslt' in sys.modules, 'cuda' in sys.modules)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]
