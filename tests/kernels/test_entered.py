"""Kernels that Python enters by words: what they are given, what they raise, what is compiled."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import types as python_types
from pathlib import Path

import numba
import numpy as np
import pytest
from numba import types

from numbagrad.kernels import store
from numbagrad.kernels.machine import Kernel

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")

TEXT = '''
import numpy as np
from numbagrad.kernels.inner import device


def told(out, x, i, r, yes):
    """What a kernel sees of its arguments."""
    out[0] = x.size
    out[1] = x.ndim
    total = 0.0
    for k, value in enumerate(x.flat):
        total += value * (k + 1)
    out[2] = total
    out[3], out[4], out[5] = i, r, 1.0 if yes else 0.0


def laid_out(out, x):
    for d in range(x.ndim):
        out[d], out[4 + d] = x.shape[d], x.strides[d]
    out[8] = x.itemsize


def fails(out, kind, i):
    out[0] = 1
    if kind == 1:
        raise MemoryError("none left")
    if kind == 3:
        inner(i)
    out[0] = 2


@device
def inner(i):
    if i > 3:
        raise OverflowError("deep")


def odd(out, i):
    if i % 2:
        raise ValueError("odd", i)


def with_pair(out, pair):
    out[0] = pair[0] + pair[1]


def gives(x):
    return x.sum()


def waits(out, told, often):
    for _ in range(often):
        if told[0]:
            out[0] = 1
            return


def raises():
    raise ValueError("boom")


def sizes(out, x, i):
    out[0], out[1], out[2] = x.shape[0], x.shape[1], i


def makes(out, x):
    made = np.empty(x.size, x.dtype)
    made[:] = x
    out[:] = made[::-1]
'''


@pytest.fixture(scope="module")
def ours():
    """The functions of ``TEXT``, as if they came with numbagrad."""
    place = str(Path(store.__file__).parent / "cpu" / "made_by_test_entered.py")
    module = python_types.ModuleType("made_by_test_entered")
    sys.modules[module.__name__] = module
    exec(compile(TEXT, place, "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]


def kernel_of(function, **options):
    return Kernel(function, allocates=False, **options)


def has_own_way(dispatcher):
    (result,) = dispatcher.overloads.values()
    return result.library.get_pointer_to_function(result.fndesc.llvm_cpython_wrapper_name) != 0


BASE = np.arange(120.0).reshape(2, 3, 4, 5)
LAYOUTS = {
    "numbers in a row": BASE.reshape(-1),
    "four dimensions": BASE,
    "columns": np.asfortranarray(BASE[0, 0]),
    "turned": BASE.transpose(3, 1, 0, 2),
    "backwards": BASE[::-1, :, ::-2],
    "repeated": np.broadcast_to(BASE[0, 0, 0], (3, 5)),
    "empty": BASE[:, :0],
    "no dimensions": np.array(2.5),
    "float32": BASE.astype(np.float32),
    "bool": BASE > 7,
    "bytes": BASE.astype(np.int8)[:, 1:],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sees_arrays_and_numbers(ours, layout):
    x, out = LAYOUTS[layout], np.zeros(6)
    kernel = kernel_of(ours.told)
    kernel(out, x, -(2**62) - 3, 0.1, True)
    flat = x.astype(float).reshape(-1)
    expected = [x.size, x.ndim, (flat * np.arange(1, x.size + 1)).sum(), -(2**62) - 3, 0.1, 1.0]
    np.testing.assert_allclose(out, expected, rtol=1e-15)
    assert not has_own_way(kernel.serial)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sees_where_elements_lie(ours, layout):
    x, out = LAYOUTS[layout], np.zeros(9, np.int64)
    kernel_of(ours.laid_out)(out, x)
    assert tuple(out[: x.ndim]) == x.shape and tuple(out[4 : 4 + x.ndim]) == x.strides
    assert out[8] == x.itemsize


@pytest.mark.parametrize(
    ("kind", "i", "error"),
    [
        (1, 0, MemoryError("none left")),
        (3, 4, OverflowError("deep")),
    ],
)
def test_raises_what_the_kernel_does(ours, kind, i, error):
    out, kernel = np.zeros(1), kernel_of(ours.fails)
    for _ in range(2):
        with pytest.raises(type(error)) as raised:
            kernel(out, kind, i)
        assert raised.value.args == error.args
        assert out[0] == 1
    kernel(out, 3, 2)
    assert out[0] == 2


def test_raises_errors_with_values_of_the_call(ours):
    out, kernel = np.zeros(1), Kernel(ours.odd, allocates=True)
    kernel(out, 16)
    with pytest.raises(ValueError) as raised:
        kernel(out, 17)
    assert raised.value.args == ("odd", 17)
    assert not has_own_way(kernel.serial)


def test_kernels_that_make_arrays(ours):
    out, kernel = np.zeros(4), Kernel(ours.makes, allocates=True)
    for _ in range(3):
        kernel(out, np.arange(8.0)[::2])
        assert out.tolist() == [6, 4, 2, 0]
    assert not has_own_way(kernel.serial)


def test_others_have_a_way_of_their_own(ours):
    out = np.zeros(1)
    pair, gives = kernel_of(ours.with_pair), store.jit(ours.gives, allocates=False)
    pair(out, (2, 3))
    assert out[0] == 5 and has_own_way(pair.serial)
    assert gives(BASE) == BASE.sum() and has_own_way(gives)


def test_another_thread_runs_meanwhile(ours):
    out, told, kernel = np.zeros(1), np.zeros(1, np.int64), kernel_of(ours.waits)
    kernel(out, told, 1)
    threading.Timer(0.1, told.fill, (1,)).start()
    kernel(out, told, 10**11)
    assert out[0] == 1


def test_errors_of_what_has_no_arguments(ours):
    raises = store.jit(ours.raises, allocates=False)
    with pytest.raises(ValueError, match="boom"):
        raises()
    assert has_own_way(raises)


def test_elements_of_any_size(ours):
    out, kernel = np.zeros(6), kernel_of(ours.sizes)
    kernel(out, np.zeros((2, 3), "U70"), 7)
    assert out.tolist()[:3] == [2, 3, 7] and has_own_way(kernel.serial)


GONE = """
import sys, numbagrad as ng
x = ng.tensor([3.0, 1.0, 2.0])
for name in [n for n in sys.modules if n.split(".")[0] == "numbagrad"]:
    del sys.modules[name]
print(x.sort()[0].tolist(), x.cumsum(0).tolist())
"""


def test_kernels_whose_modules_are_gone():
    run = subprocess.run([sys.executable, "-c", GONE], capture_output=True, text=True)
    assert run.stdout == "[1.0, 2.0, 3.0] [3.0, 4.0, 6.0]\n", run.stderr


def test_alone_where_asked(ours):
    kernel = kernel_of(ours.waits, nogil=False)
    out, told = np.zeros(1), np.ones(1, np.int64)
    kernel(out, told, 1)
    assert out[0] == 1


def test_the_way_in_itself_looks_at_what_it_is_given(ours):
    kernel = kernel_of(ours.fails)
    signature = (types.float64[::1], types.int64, types.int64)
    enter = store.entry_of_compiled(kernel.serial, signature)
    out = np.zeros(1)
    assert enter(out, 0, 1) is None and out[0] == 2
    with pytest.raises(TypeError, match="fails: got 2 arguments, it has 3"):
        enter(out, 0)
    with pytest.raises(OverflowError, match="fails: 9223372036854775808 does not fit"):
        enter(out, 0, 2**63)
    assert enter(out, 0, 1) is None


def test_references_come_out_even(ours):
    kernel, out, x = kernel_of(ours.told), np.zeros(6), np.arange(4.0)
    arguments = out, x, 2**40, 0.75, False
    kernel(*arguments)
    before = [sys.getrefcount(a) for a in (*arguments, None)]
    for _ in range(100):
        kernel(*arguments)
    after = [sys.getrefcount(a) for a in (*arguments, None)]
    assert all([abs(a - b) < 50 for a, b in zip(before, after, strict=True)])


PROGRAM = """
import numpy as np
from numbagrad.kernels.cpu.index import fill_where
out, mask = np.zeros((3, 1)), np.array([True, False, True])
fill_where(out, mask, 1.0)
(result,) = fill_where.serial.overloads.values()
print(out.ravel().tolist(), fill_where.serial.stats.cache_hits)
"""


def test_loaded_from_disk(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    found = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
        )
        for _ in range(2)
    ]
    assert [run.returncode for run in found] == [0, 0], found[-1].stderr
    first, second = (run.stdout for run in found)
    assert first.startswith("[1.0, 0.0, 1.0]") and second.startswith("[1.0, 0.0, 1.0]")
    assert "float64" not in first.split("]")[1] and "float64" in second


LINKED = """
import numba, numpy as np, numbagrad as ng
from numbagrad.compiled import bind
from numbagrad.kernels import store
made, compile_source = [], store.compile_source
def noting(text, name, **options):
    made.append(compile_source(text, name, **options))
    return made[-1]
store.compile_source = noting
print(ng.compile(lambda x: (x * 2).sum(0))(ng.ones(3, 2)).tolist())
draw = ng.compile(ng.vmap(lambda x: x + ng.randn(4), randomness="different"))
print(draw(ng.zeros(3, 4)).shape)
found = [d for d in made if "compiled_" in d.__name__]
library = [each.library for d in found for each in d.overloads.values()][0]
try:
    library._get_module_for_linking()
    print("has what it was made from")
except RuntimeError as error:
    print(error)
"""


def test_programs_are_kept_as_machine_code_and_kernels_may_be_linked(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    told = []
    for again in (False, False, True):
        if again:  # what holds the kernels is compiled anew, of kernels that are there
            holders = [*(tmp_path / "numbagrad").glob("each_*")]
            assert holders
            for path in holders:
                path.unlink()
        run = subprocess.run(
            [sys.executable, "-c", LINKED], env=environment, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        told.append(run.stdout.splitlines())
    assert [lines[:2] for lines in told] == [["[6.0, 6.0]", "ng.Size([3, 4])"]] * 3
    assert told[0][2] == "has what it was made from"
    assert all(["came from disk as machine code" in lines[2] for lines in told[1:]])
