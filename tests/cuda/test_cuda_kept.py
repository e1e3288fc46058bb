"""GPU kernels on disk. Compiled to machine code for sm_90, which needs no GPU, and read back."""

from __future__ import annotations

import subprocess
import sys
import types as python_types

import pytest

from numbagrad.kernels import store
from numbagrad.kernels.cuda.runtime import device

numba = pytest.importorskip("numba")
pytest.importorskip("cuda.bindings.nvjitlink", reason="numba-cuda is not installed")
if device.simulating():
    pytest.skip("the simulator compiles nothing", allow_module_level=True)

TEXT = """
from numba import cuda, FLOAT

SCALE = 2.0


@cuda.jit(device=True)
def scaled(x):
    return FLOAT(SCALE) * x


def scale(out, x, n):
    i = cuda.grid(1)
    while i < n:
        out[i] = scaled(x[i])
        i += cuda.gridsize(1)
"""


class Compiler:
    """Stands in for a GPU while kernels are compiled: its capability, and how many were."""

    def __init__(self, capability=(9, 0)):
        self.capability, self.count = capability, 0

    def install(self, put):
        import numba.cuda.dispatcher as dispatcher
        from numba.cuda.codegen import CUDACodeLibrary

        real = dispatcher.compile_cuda

        def counted(function, *args, **options):
            self.count += function.__name__.startswith("scale")
            return real(function, *args, **options)

        there = python_types.SimpleNamespace(compute_capability=self.capability)
        put(dispatcher, "compile_cuda", counted)
        put(dispatcher, "get_current_device", lambda: there)
        put(dispatcher._Kernel, "bind", lambda kernel: kernel._codelibrary.get_cubin())
        put(CUDACodeLibrary, "_ensure_cc", lambda library, cc=None: cc or self.capability)


def kernel_of(text=TEXT, real="float32"):
    return store.load_source(text.replace("FLOAT", real), "scale").scale


def made(kernel, compiler, real="float32"):
    """The dispatcher, and its machine code."""
    from numba import types

    from numbagrad.kernels.cuda.runtime import kept

    pointer = types.CPointer(getattr(types, real))
    signature = pointer, pointer, types.int64
    found = kept.specialised(kernel, signature, compiler.capability)
    (compiled,) = found.overloads.values()
    return found, compiled, bytes(compiled._codelibrary.get_cubin().code)


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    found = Compiler()
    found.install(monkeypatch.setattr)
    return found


def test_machine_code_is_read_back(compiler, tmp_path):
    kernel = kernel_of()
    first, compiled, code = made(kernel, compiler)
    assert code[:4] == b"\x7fELF"
    assert compiler.count == 2  # the kernel and what it calls
    (path,) = (tmp_path / "numbagrad").glob("*.nbc")
    assert path.name.startswith("scale-") and path.stat().st_size < len(code) + 4096
    second, again, loaded = made(kernel, compiler)
    assert compiler.count == 2 and second is not first and loaded == code
    assert again.entry_name == compiled.entry_name and again.argument_types
    assert second.specialized


def test_what_the_code_depends_on_is_in_its_name(compiler, tmp_path):
    made(kernel_of(), compiler)
    count = compiler.count
    made(kernel_of(), compiler, "float64")
    made(kernel_of(TEXT.replace("2.0", "3.0")), compiler)
    made(kernel_of(real="float64"), compiler)
    compiler.capability = (8, 0)
    made(kernel_of(), compiler)
    assert compiler.count >= count + 4
    assert len(list((tmp_path / "numbagrad").glob("scale-*.nbc"))) == 5


def test_a_form_that_reads_numbers_by_reference(compiler, tmp_path):
    from numba import types

    from numbagrad.kernels.cuda.runtime import kept
    from numbagrad.kernels.cuda.runtime.launch import by_reference

    kernel = by_reference(kernel_of(), (2,), 3)
    real, count = types.CPointer(types.float32), types.CPointer(types.int64)
    for _ in range(2):
        found = kept.specialised(kernel, (real, real, count), (9, 0))
    assert next(iter(found.overloads.values()))._codelibrary.get_cubin()
    (path,) = (tmp_path / "numbagrad").glob("*.nbc")
    assert path.name.startswith("scale_by_reference-")


@pytest.mark.parametrize("damage", ["cut", "bit", "other"])
def test_a_damaged_file_costs_a_compile(compiler, tmp_path, damage):
    kernel = kernel_of()
    made(kernel, compiler)
    (path,) = (tmp_path / "numbagrad").glob("*.nbc")
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "bit":
        content[-100] ^= 1
    else:
        body = numba.core.serialize.dumps(({"name": "x"}, {"name": "y"}))
        content = store.checksum(body) + body
    path.write_bytes(content)
    count = compiler.count
    with pytest.warns(RuntimeWarning, match="numbagrad ignores"):
        _, _, again = made(kernel, compiler)
    assert again[:4] == b"\x7fELF" and compiler.count > count
    count = compiler.count
    made(kernel, compiler)
    assert compiler.count == count  # the good file has taken the place of the bad one


def test_a_second_process_does_not_compile(tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import numba, test_cuda_kept as t\n"
        "numba.config.CACHE_DIR = sys.argv[2]\n"
        "c = t.Compiler(); c.install(setattr)\n"
        "code = t.made(t.kernel_of(), c)[2]\n"
        "print(c.count, len(code))"
    )
    arguments = [sys.executable, "-c", script, __file__.rpartition("/")[0], str(tmp_path)]
    told = [
        subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert [count for count, _ in told] == ["2", "0"] and told[0][1] == told[1][1]
