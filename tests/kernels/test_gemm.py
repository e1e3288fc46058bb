"""Our own product: every path through its tiles, for the vectors of this CPU and of others."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from walls import BEFORE_A_WALL

from numbagrad.kernels import blas_library, product, vectors
from numbagrad.kernels.cpu import gemm, tiled_product
from numbagrad.kernels.few_rows import rows_by_rows
from numbagrad.kernels.intrinsics import address, pointer

numba = pytest.importorskip("numba")
pytestmark = pytest.mark.skipif(vectors.VECTOR_BYTES == 0, reason="this CPU multiplies by BLAS")

ROWS = (1, 2, 3, 5, 7, 8, 11, 12, 13, 25, tiled_product.TALL + 1)
COLUMNS = (1, 5, 8, 9, 16, 17, 31, 32, 33, 50, 70)
DEPTHS = (1, 3, 17, tiled_product.DEPTH, tiled_product.DEPTH + 19)


@numba.njit
def by_tiles(out, x, y, transx, transy, start, ldstart):
    """``out = op(x) op(y) + start`` on slices of matrices whose rows have unit stride."""
    n, m = out.shape
    k = x.shape[0] if transx else x.shape[1]
    step = out.itemsize
    ldx, ldy, ldout = x.strides[0] // step, y.strides[0] // step, out.strides[0] // step
    tiled_product.by_tiles(
        pointer_to(out), transx, transy, n, m, k, address(x), ldx, address(y), ldy, start, ldstart,
        address(out), ldout,
    )  # fmt: skip


@numba.njit
def pointer_to(out):
    return pointer(address(out), out)


def numbers(rng, *shape, dtype):
    """A slice of a larger matrix, so that what lies around it can be looked at."""
    whole = rng.standard_normal((shape[0] + 2, shape[1] + 3)).astype(dtype)
    return whole[1:-1, 1:-2]


def exact(x, y):
    return x.astype(np.float64) @ y.astype(np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("transx", "transy"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_every_size_of_tile(dtype, transx, transy):
    rng = np.random.default_rng(7)
    limit = 50 * np.finfo(dtype).eps
    for n, m, k in itertools.product(ROWS, COLUMNS, DEPTHS):
        if n * m * k > 500_000 and (m, k) != (70, tiled_product.DEPTH + 19):
            continue
        x = numbers(rng, *((k, n) if transx else (n, k)), dtype=dtype)
        y = numbers(rng, *((m, k) if transy else (k, m)), dtype=dtype)
        whole = np.full((n + 2, m + 3), 7, dtype)
        out = whole[1:-1, 1:-2]
        out[:] = np.nan
        by_tiles(out, x, y, transx, transy, 0, 5)
        expected = exact(x.T if transx else x, y.T if transy else y)
        np.testing.assert_allclose(out, expected, rtol=limit, atol=limit * k)
        out[:] = 7
        assert (whole == 7).all(), (n, m, k)


@numba.njit
def by_sums(out, x, y, start, ldstart):
    """``out = x y.T + start`` for slices of matrices whose rows have unit stride."""
    rows_by_rows(
        *(out, x.shape[0], y.shape[0], x.shape[1]),
        *(address(x), x.strides[0], address(y), y.strides[0]),
        *(start, ldstart * out.itemsize, address(out), out.strides[0]),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_few_rows_and_the_rows_of_a_matrix(dtype):
    """Nothing but the result is written, and where it is added to itself no row is added twice."""
    rng = np.random.default_rng(2)
    limit = 50 * np.finfo(dtype).eps
    for n, m, k in itertools.product(range(1, 10), (1, 2, 3, 4, 5, 10, 16, 23), (1, 7, 16, 50, 80)):
        x, y = numbers(rng, n, k, dtype=dtype), numbers(rng, m, k, dtype=dtype)
        whole = np.full((n + 2, m + 3), 7, dtype)
        out, row = whole[1:-1, 1:-2], rng.standard_normal(m).astype(dtype)
        out[:] = np.nan
        by_sums(out, x, y, 0, 0)
        np.testing.assert_allclose(out, exact(x, y.T), rtol=limit, atol=limit * k)
        by_sums(out, x, y, out.ctypes.data, m + 3)
        np.testing.assert_allclose(out, 2 * exact(x, y.T), rtol=limit, atol=limit * k)
        by_sums(out, x, y, row.ctypes.data, 0)
        np.testing.assert_allclose(out, exact(x, y.T) + row, rtol=limit, atol=limit * k)
        out[:] = 7
        assert (whole == 7).all(), (n, m, k)


def test_more_rows_than_a_block():
    rng = np.random.default_rng(9)
    rows, k = 2 * tiled_product.BLOCK // (tiled_product.DEPTH * 8) + 5, tiled_product.DEPTH + 3
    x, y = rng.standard_normal((rows, k)), rng.standard_normal((k, 19))
    out, row = np.full((rows, 19), np.nan), rng.standard_normal(19)
    by_tiles(out, x, y, 0, 0, row.ctypes.data, 0)
    np.testing.assert_allclose(out, x @ y + row, atol=1e-11)
    by_tiles(out, x.T.copy(), y, 1, 0, out.ctypes.data, 19)
    np.testing.assert_allclose(out, 2 * (x @ y) + row, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_transposed_factor_of_more_panels_than_fit(dtype):
    rng = np.random.default_rng(4)
    n, m = 2 * tiled_product.PANELS * tiled_product.PANEL + 5, tiled_product.PACKED + 7
    k = tiled_product.DEPTH + 3
    x, y = numbers(rng, k, n, dtype=dtype), numbers(rng, k, m, dtype=dtype)
    whole = np.full((n + 2, m + 3), 7, dtype)
    out, row = whole[1:-1, 1:-2], rng.standard_normal(m).astype(dtype)
    by_tiles(out, x, y, 1, 0, row.ctypes.data, 0)
    limit = 50 * np.finfo(dtype).eps
    np.testing.assert_allclose(out, exact(x.T, y) + row, rtol=limit, atol=limit * k)
    out[:] = 7
    assert (whole == 7).all()


def test_it_begins_with_what_it_is_given():
    rng = np.random.default_rng(3)
    for n, m, k in [(13, 35, 300), (5, 9, 4), (32, 32, 1)]:
        x, y = rng.standard_normal((n, k)), rng.standard_normal((k, m))
        row, out = rng.standard_normal(m), np.full((n, m), np.nan)
        by_tiles(out, x, y, 0, 0, row.ctypes.data, 0)
        np.testing.assert_allclose(out, x @ y + row, atol=1e-11)
        by_tiles(out, x, y, 0, 0, out.ctypes.data, m)
        np.testing.assert_allclose(out, 2 * (x @ y) + row, atol=1e-11)
        start = rng.standard_normal((n, m + 2))
        by_tiles(out, x, y, 0, 0, start.ctypes.data, m + 2)
        np.testing.assert_allclose(out, x @ y + start[:, :m], atol=1e-11)


def test_the_door_gives_the_same_by_tiles_and_by_blas():
    """A start and a transpose mean the same whichever of the two multiplies."""

    @numba.njit
    def multiply(out, x, y, transx, transy, row):
        n, m = out.shape
        k = x.shape[0] if transx else x.shape[1]
        product.gemm(
            *(out, transx, transy, n, m, k, address(x), x.shape[1], address(y), y.shape[1]),
            *(address(row), 0, address(out), m),
        )

    rng = np.random.default_rng(5)
    ways = set()
    for dtype, (n, m, k) in itertools.product(
        (np.float32, np.float64), [(3, 40, 9), (20, 4, 50), (20, 40, 30)]
    ):
        product.load_products(np.dtype(dtype))
        for transx, transy in itertools.product((0, 1), (0, 1)):
            x = rng.standard_normal((k, n) if transx else (n, k)).astype(dtype)
            y = rng.standard_normal((m, k) if transy else (k, m)).astype(dtype)
            row, out = rng.standard_normal(m).astype(dtype), np.empty((n, m), dtype)
            multiply(out, x, y, transx, transy, row)
            expected = exact(x.T if transx else x, y.T if transy else y) + row
            np.testing.assert_allclose(out, expected, atol=1e-4 if dtype is np.float32 else 1e-11)
            below = blas_library.chosen().tiles_below
            ways.add(gemm.own_is_faster.py_func(out.itemsize, transx, transy, n, m, k, below))
    assert ways == {False, True}


def test_the_order_of_a_sum_does_not_depend_on_the_tile():
    """Each element is summed in order, so parts of a product equal the parts of the whole."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((29, 400)), rng.standard_normal((400, 45))
    whole, part = np.empty((29, 45)), np.empty((7, 18))
    by_tiles(whole, x, y, 0, 0, 0, 0)
    by_tiles(part, x[11:18], y[:, 20:38], 0, 0, 0, 0)
    assert np.array_equal(part, whole[11:18, 20:38])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_a_page_apart_give_the_bits_of_others(dtype):
    """AVX-512 has them copied, some rows at a time, whole vectors where they are turned."""
    rng = np.random.default_rng(2)
    page = 4096 // np.dtype(dtype).itemsize
    for n, m, k in ((12, 257, 3), (33, 512, 129), (250, 300, 128), (300, 256, 200)):
        y = rng.standard_normal((k, m)).astype(dtype)
        for transx in (0, 1):
            there = rng.standard_normal((k, page) if transx else (n, page)).astype(dtype)
            x = there[:, :n] if transx else there[:, :k]
            found, expected = np.empty((n, m), dtype), np.empty((n, m), dtype)
            by_tiles(found, x, y, transx, 0, 0, 0)
            by_tiles(expected, x.copy(), y, transx, 0, 0, 0)
            assert np.array_equal(found, expected)
            largest = 1e-3 if dtype is np.float32 else 1e-11
            np.testing.assert_allclose(found, (x.T if transx else x) @ y, 0, largest)


@pytest.mark.parametrize(
    ("features", "nbytes"), [("+avx,+avx2,+fma", 32), ("+sse2", 0)], ids=["avx2", "sse2"]
)
def test_other_cpus(features, nbytes):
    text = f"""
import numpy as np
from numbagrad.kernels import vectors
from numbagrad.kernels.cpu.matmul import addmm
assert vectors.VECTOR_BYTES == {nbytes}, vectors.VECTOR_BYTES
rng = np.random.default_rng(0)
for n, m, k in [
    (13, 37, 300), (6, 16, 8), (33, 10, 64), (140, 70, 300), (8, 12, 5), (3, 37, 300), (8, 5, 290)
]:
    x, y = rng.standard_normal((n, k)), rng.standard_normal((m, k))
    bias, out = rng.standard_normal(m), np.empty((n, m))
    addmm(out, x, y, bias, 0, 1)
    np.testing.assert_allclose(out, x @ y.T + bias, atol=1e-10)
    addmm(out, x.T.copy(), y.T.copy(), bias, 1, 0)  # packed in panels where it is large
    np.testing.assert_allclose(out, x @ y.T + bias, atol=1e-10)
"""
    environment = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    done = subprocess.run(
        [sys.executable, "-c", text], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


GUARDED = (
    BEFORE_A_WALL
    + """
from numbagrad.kernels import vectors
from numbagrad.kernels.cpu.matmul import mm


rng = np.random.default_rng(0)
for dtype in (np.float32, np.float64):
    for m in (1, 3, 5, 9, 12, 15, 17, 23, 31, 33, 47, 49, 63, 65, 100):
        for n, k in ((1, 6), (2, 6), (7, 6), (70, 6), (1, 70), (3, 70), (7, 301)):
            x, y = rng.standard_normal((n, k)), rng.standard_normal((k, m))
            for turnx in (0, 1):
                for turny in (0, 1):
                    left = before_a_wall((x.T if turnx else x).astype(dtype).copy())
                    right = before_a_wall((y.T if turny else y).astype(dtype).copy())
                    out = before_a_wall(np.zeros((n, m), dtype))
                    mm(out, left, right, turnx, turny, 0)
                    np.testing.assert_allclose(out, x @ y, atol=1e-4)
"""
)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mprotect")
@pytest.mark.parametrize("features", [None, "+avx,+avx2,+fma"], ids=["own", "avx2"])
def test_nothing_beyond_a_matrix_is_touched(features):
    environment = {}
    if features:
        environment = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    done = subprocess.run(
        [sys.executable, "-c", GUARDED],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
