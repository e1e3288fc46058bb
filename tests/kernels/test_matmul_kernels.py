"""Products of matrices against NumPy: layouts, transposes, batches, blocks, threads."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from numbagrad.kernels import blas, machine
from numbagrad.kernels.cpu.matmul import addmm, bmm, integer_mm, mm

DTYPES = [np.float32, np.float64]
SIZES = [(1, 1, 1), (2, 3, 4), (10, 4, 3), (1, 7, 5), (7, 1, 5), (5, 7, 1), (33, 17, 65)]


def rand(*shape, dtype=np.float64):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def close(found, expected):
    assert found.dtype == expected.dtype
    eps = np.finfo(found.dtype).eps
    np.testing.assert_allclose(found, expected, rtol=100 * eps, atol=100 * eps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_mm_of_every_transpose(dtype, sizes):
    n, k, m = sizes
    x, y = rand(n, k, dtype=dtype), rand(k, m, dtype=dtype)
    for transx in (0, 1):
        for transy in (0, 1):
            out = np.full((n, m), np.nan, dtype)
            stored_x = x.T.copy() if transx else x
            stored_y = y.T.copy() if transy else y
            mm(out, stored_x, stored_y, transx, transy, 0)
            close(out, x @ y)
            mm(out, stored_x, stored_y, transx, transy, 1)
            close(out, 2 * (x @ y))
            views = np.full((n, m), np.nan, dtype)
            mm(views, stored_x.T, stored_y.T, 1 - transx, 1 - transy, 0)
            close(views, x @ y)


def strided_forms(x):
    """Matrices equal to ``x`` whose memory is laid out in ways BLAS can and cannot read."""
    n, k = x.shape
    wide = np.zeros((2 * n, 3 * k + 1))
    wide[::2, 1::3] = x
    yield wide[::2, 1::3]
    rows = np.zeros((n, k + 5))
    rows[:, 2 : k + 2] = x
    yield rows[:, 2 : k + 2]
    yield np.asfortranarray(x)
    yield np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]


def test_mm_of_any_strides():
    x, y = rand(6, 4), rand(4, 5)
    for strided_x in strided_forms(x):
        for strided_y in strided_forms(y):
            out = np.empty((6, 5))
            mm(out, strided_x, strided_y, 0, 0, 0)
            close(out, x @ y)
    row = np.broadcast_to(rand(1, 4), (6, 4))
    column = np.broadcast_to(rand(4, 1), (4, 5))
    overlap = np.lib.stride_tricks.sliding_window_view(rand(9), 4)
    for left in (row, overlap):
        out = np.empty((6, 5))
        mm(out, left, column, 0, 0, 0)
        close(out, left @ column)


def test_mm_into_a_slice():
    x, y, out = rand(6, 4), rand(4, 5), np.full((8, 9), 7.0)
    mm(out[1:7, 2:7], x, y, 0, 0, 0)
    close(out[1:7, 2:7], x @ y)
    out[1:7, 2:7] = 7
    assert (out == 7).all()


def test_mm_of_empty_operands():
    out = np.full((3, 2), np.nan)
    mm(out, np.empty((3, 0)), np.empty((0, 2)), 0, 0, 0)
    assert (out == 0).all()
    mm(out, np.empty((3, 0)), np.empty((0, 2)), 0, 0, 1)
    assert (out == 0).all()
    mm(np.empty((0, 2)), np.empty((0, 3)), rand(3, 2), 0, 0, 0)
    mm(np.empty((2, 0)), rand(2, 3), np.empty((3, 0)), 0, 0, 0)


def test_mm_carries_nan_and_inf():
    x = np.array([[np.nan, 0.0], [np.inf, 1.0], [1.0, 1.0]])
    out = np.full((3, 2), np.nan)
    mm(out, x, np.ones((2, 2)), 0, 0, 0)
    assert np.isnan(out[0]).all() and np.isinf(out[1]).all() and (out[2] == 2).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_addmm(dtype):
    for n, k, m in [*SIZES, (4, 0, 3)]:
        x, w, bias = rand(n, k, dtype=dtype), rand(m, k, dtype=dtype), rand(m, dtype=dtype)
        out = np.full((n, m), np.nan, dtype)
        addmm(out, x, w, bias, 0, 1)
        close(out, x @ w.T + bias)
        addmm(out, x.T.copy(), w.T.copy(), bias, 1, 0)
        close(out, x @ w.T + bias)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bmm(dtype):
    for n, k, m in SIZES:
        x, y = rand(3, n, k, dtype=dtype), rand(3, k, m, dtype=dtype)
        out = np.full((3, n, m), np.nan, dtype)
        bmm(out, x, y, 0, 0)
        close(out, x @ y)
        bmm(out, x.swapaxes(1, 2).copy(), y.swapaxes(1, 2).copy(), 1, 1)
        close(out, x @ y)
        bmm(out, x, np.broadcast_to(y[:1], y.shape), 0, 0)
        close(out, x @ y[:1])
    out = np.full((2, 3, 4), np.nan, dtype)
    bmm(out, np.empty((2, 3, 0), dtype), np.empty((2, 0, 4), dtype), 0, 0)
    assert (out == 0).all()


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
@pytest.mark.parametrize(
    "sizes",
    [(3, 4, 5), (1, 1, 1), (2, 0, 3), (70, 37, 1), (33, 18, 16), (65, 50, 300), (1, 19, 17)],
)
def test_integer_mm(dtype, sizes):
    n, k, m = sizes
    rng = np.random.default_rng(0)
    x = rng.integers(-90, 90, (2, n, k)).astype(dtype)
    y = rng.integers(-90, 90, (2, k, m)).astype(dtype)
    out = np.full((2, n, m), 77, dtype)
    integer_mm(out, x, y)
    assert (out == x @ y).all()


# Sizes on both sides of every limit of ``blocks``; the last ones leave ragged edges.
@pytest.mark.parametrize(
    "sizes", [(128, 784, 512), (300, 130, 270), (3000, 33, 40), (40, 33, 3000)]
)
def test_blocks_do_not_depend_on_threads(sizes):
    n, k, m = sizes
    x, y, bias = rand(n, k), rand(k, m), rand(m)
    before = machine.threads()
    results = []
    try:
        for threads in range(1, min(before, 2) + 1):
            machine.set_threads(threads)
            out, sums = np.empty((n, m)), np.empty((n, m))
            batch = np.empty((2, n, m))
            mm(out, x, y, 0, 0, 0)
            addmm(sums, x, y, bias, 0, 0)
            bmm(batch, np.stack([x, -x]), np.stack([y, y]), 0, 0)
            results.append((out, sums, batch))
    finally:
        machine.set_threads(before)
    for found, expected in zip(results[0], (x @ y, x @ y + bias, [x @ y, -x @ y]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-11)
    for one, two in zip(results[0], results[-1], strict=True):
        assert np.array_equal(one, two)


MANY_THREADS = """
import numpy as np
from numbagrad.kernels import machine, product
from numbagrad.kernels.cpu.matmul import blocks, mm

SIZES = [(512, 512, 300), (128, 512, 784), (200, 70, 999), (37, 800, 65), (512, 90, 4000)]

@product.gemm_kernel(grain=1 << 60)
def count(out, n, m, k):
    rows, cols = blocks(out, n, m, n * m * k, 0, 1)
    out[0, 0] = (n + rows - 1) // rows * ((m + cols - 1) // cols)

def counted(n, m, k, threads, dtype):
    machine.set_threads(threads)
    out = np.zeros((1, 1), dtype)
    count(out, n, m, k)
    return int(out[0, 0])

rng = np.random.default_rng(0)
x = rng.standard_normal((300, 300))
mm(np.empty_like(x), x, x, 0, 0, 0)  # the crew comes with the first loop that is shared out
for dtype in (np.float32, np.float64):
    # Results that are one block by their sizes, of sums that are long: of BLAS or the unit.
    for n, m, k in [(512, 512, 1024), (512, 128, 4096), (256, 256, 4096), (300, 500, 2000)]:
        assert counted(n, m, k, 2, dtype) >= 2, (n, m, k)
        assert counted(n, m, k, 4, dtype) >= 4, (n, m, k)
    assert counted(512, 512, 512, 16, dtype) == 16
    assert counted(16, 16, 16, 16, dtype) == 1
    for n, m, k in SIZES:
        x = rng.standard_normal((n, k)).astype(dtype)
        y = rng.standard_normal((k, m)).astype(dtype)
        found = []
        for threads in (1, 2, 3, 8, 16):
            machine.set_threads(threads)
            out = np.empty((n, m), dtype)
            mm(out, x, y, 0, 0, 0)
            found.append(out)
        assert all((each == found[0]).all() for each in found), (n, m, k)
"""


@pytest.mark.parametrize("unit", ["1", "0"])
def test_blocks_are_enough_for_many_threads(unit):
    """With the same bits; this machine need not have as many processors."""
    told = {"NUMBA_NUM_THREADS": "16", "NUMBAGRAD_AMX": unit}
    subprocess.run([sys.executable, "-c", MANY_THREADS], env={**os.environ, **told}, check=True)


def test_large_products_leave_blas_threads_alone():
    before = blas.blas_threads_now()
    x = rand(256, 256)
    mm(np.empty_like(x), x, x, 0, 0, 0)
    assert blas.blas_threads_now() == before


def test_products_from_several_python_threads():
    before, x = blas.blas_threads_now(), rand(200, 300)
    expected = np.empty((200, 200))
    mm(expected, x, x, 0, 1, 0)
    np.testing.assert_allclose(
        expected, x @ x.T, atol=300 * np.finfo(float).eps * (x**2).sum(1).max()
    )

    def work(_):
        out = np.empty((200, 200))
        for _ in range(20):
            mm(out, x, x, 0, 1, 0)
        return out

    with ThreadPoolExecutor(4) as pool:
        for out in pool.map(work, range(8)):
            assert np.array_equal(out, expected)
    assert blas.blas_threads_now() == before


SECOND_PROCESS = """
import sys
import numpy as np
import numbagrad.kernels.cpu.matmul as matmul
assert "scipy.linalg" not in sys.modules  # Numba itself imports the bare scipy
{before}
x = np.eye(3)
out = np.empty((3, 3))
matmul.mm(out, x, x, 0, 0, 0)
assert (out == x).all()
import numba
print(sum(matmul.mm.serial.stats.cache_hits.values()) if not numba.config.DISABLE_JIT else 0)
"""


def in_new_process(before="", **environment):
    result = subprocess.run(
        [sys.executable, "-c", SECOND_PROCESS.format(before=before)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return int(result.stdout.split()[-1])


def test_second_process_loads_cached_code(tmp_path):
    assert in_new_process(NUMBA_CACHE_DIR=str(tmp_path)) == 0
    assert in_new_process(NUMBA_CACHE_DIR=str(tmp_path)) == 1


def test_without_the_bundled_openblas(tmp_path):
    """SciPy's Fortran pointers serve the same cached code."""
    hide = "import numbagrad.kernels.blas_library as found; found.bundled_openblas = lambda: None"
    assert in_new_process(hide, NUMBA_CACHE_DIR=str(tmp_path)) == 0
    assert in_new_process(NUMBA_CACHE_DIR=str(tmp_path)) == 1


def test_without_the_jit():
    in_new_process(NUMBA_DISABLE_JIT="1")
