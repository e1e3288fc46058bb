"""Index kernels on arrays: values, order where entries meet, and refusal of bad indices."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from numbagrad.kernels.cpu import index as kernels
from numbagrad.kernels.cpu import join, triangle


def flag():
    return np.full(1, 99, np.int64)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("how", ["serial", "parallel"])
def test_take_and_add_at_are_adjoint(rng, how):
    x = rng.standard_normal((2, 5, 70))
    index = np.array([0, -1, 2, 2])
    out, bad = np.empty((2, 4, 70)), flag()
    getattr(kernels.take, how)(out, bad, x, index, True, -1)
    assert bad[0] == -1 and np.array_equal(out, x[:, index])
    g = rng.standard_normal(out.shape)
    back = np.zeros_like(x)
    getattr(kernels.add_at, how)(back, bad, g, index, True, -1)
    assert (back * x).sum() == pytest.approx((g * out).sum())
    expected = np.zeros_like(x)
    for i, at in enumerate(index):  # in order, so the sums are equal to the last bit
        expected[:, at] += g[:, i]
    assert np.array_equal(back, expected)


def test_skipped_rows_are_zero_and_get_nothing(rng):
    x, index, bad = rng.standard_normal((1, 3, 2)), np.array([1, 2]), flag()
    out = np.empty((1, 2, 2))
    kernels.take(out, bad, x, index, True, 1)
    assert not out[0, 0].any() and np.array_equal(out[0, 1], x[0, 2])
    kernels.add_at(x, bad, np.ones((1, 2, 2)), index, True, 2)
    assert x[0, 2, 0] == out[0, 1, 0]


ROWS = """
import numpy as np
from numbagrad.kernels import vectors
from numbagrad.kernels.cpu import index as kernels
assert vectors.VECTOR_BYTES in {widths}
rng = np.random.default_rng(0)
index, bad = np.array([2, -1, 0, 4, -5, 2]), np.empty(1, np.int64)
for dtype in (np.uint8, np.float64):
    for k in [*range(1, 36), 63, 64, 65, 127, 128, 130, 200, 1025]:
        x = rng.integers(0, 250, (2, 5, k)).astype(dtype)
        room = np.full(2 * index.size * k + 64, 251, dtype)
        for skip in (-1, 4):
            out = room[:-64].reshape(2, index.size, k)
            kernels.take(out, bad, x, index, True, skip)
            expected = x[:, index]
            expected[:, index % 5 == skip] = 0
            assert bad[0] == -1 and np.array_equal(out, expected), (dtype, k, skip)
            assert (room[-64:] == 251).all()
"""


@pytest.mark.parametrize(
    ("features", "widths"), [(None, {0, 32, 64}), ("+avx,+avx2,+fma", {32}), ("", {0})]
)
def test_rows_of_every_width_are_copied(features, widths):
    environment = dict(os.environ)
    if features is not None:
        environment |= {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
    text = ROWS.replace("{widths}", str(widths))
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


def test_long_gathers_are_checked_in_each_block(rng):
    x, bad = rng.standard_normal((2, 7, 1)), flag()
    index = rng.integers(0, 7, (2, 5000, 1))
    out = np.empty(index.shape)
    for how in ("serial", "parallel"):
        getattr(kernels.gather, how)(out, bad, x, index)
        assert bad[0] == -1 and np.array_equal(out, np.take_along_axis(x, index, 1))
    for wrong in ((1, 4999), (1, 1024), (0, 4999), (0, 0)):  # the first of them is reported
        index[(*wrong, 0)] = 7 if wrong[1] % 2 else -1
        getattr(kernels.gather, how)(out, bad, x, index)
        assert bad[0] == wrong[0] * 5000 + wrong[1]
        before = x.copy()
        for kernel in (kernels.scatter, kernels.scatter_add):
            kernel(x, bad, out, index)
            assert bad[0] == wrong[0] * 5000 + wrong[1] and np.array_equal(x, before)


@pytest.mark.parametrize("how", ["serial", "parallel"])
def test_the_last_entry_stands(how):
    out, bad = np.zeros((1, 3, 1)), flag()
    values = np.array([1.0, 2, 3]).reshape(1, 3, 1)
    getattr(kernels.put_at, how)(out, bad, values, np.array([1, 1, -1]), True)
    assert out.ravel().tolist() == [0, 2, 3]


def test_gather_and_scatter_follow_their_index(rng):
    x, index, bad = rng.standard_normal((2, 3, 4)), rng.integers(0, 3, (2, 5, 4)), flag()
    out = np.empty(index.shape)
    kernels.gather(out, bad, x, index)
    assert np.array_equal(out, np.take_along_axis(x, index, 1))
    added = np.zeros_like(x)
    kernels.scatter_add(added, bad, out, index)
    expected = np.zeros_like(x)
    a, _, c = np.indices(index.shape)
    np.add.at(expected, (a, index, c), out)
    assert np.allclose(added, expected)
    kernels.scatter(added, bad, out, index)
    written = np.zeros_like(x, bool)
    written[a, index, c] = True
    assert np.array_equal(added[written], x[written])


BAD = [
    (kernels.take, ((1, 2, 1), (1, 3, 1)), (True, -1)),
    (kernels.add_at, ((1, 3, 1), (1, 2, 1)), (True, -1)),
    (kernels.put_at, ((1, 3, 1), (1, 2, 1)), (True,)),
]


@pytest.mark.parametrize(("kernel", "shapes", "options"), BAD)
@pytest.mark.parametrize("index", [[0, 3], [2, -4], [0, 2**62], [1, -(2**63)]])
def test_a_bad_index_is_reported_and_nothing_is_touched(kernel, shapes, options, index):
    out, x = np.full(shapes[0], 7.0), np.ones(shapes[1])
    bad = flag()
    kernel(out, bad, x, np.array(index), *options)
    assert bad[0] == 1 and (out == 7).all()


@pytest.mark.parametrize("kernel", [kernels.gather, kernels.scatter, kernels.scatter_add])
@pytest.mark.parametrize("index", [3, -1])
def test_gather_and_scatter_refuse_bad_indices(kernel, index):
    out, bad = np.full((1, 3, 1), 7.0), flag()
    kernel(out, bad, np.ones((1, 3, 1)), np.array([0, index, 0]).reshape(1, 3, 1))
    assert bad[0] == 1 and (out == 7).all()


def test_any_index_into_nothing_is_bad():
    bad = flag()
    kernels.take(np.empty((1, 1, 2)), bad, np.empty((1, 0, 2)), np.array([0]), True, -1)
    assert bad[0] == 0


def test_nonzero_counts_lists_and_unravels(rng):
    x = rng.integers(0, 2, (3, 4, 2)).astype(np.float32)
    x[0, 0, 0] = np.nan
    count = np.empty(1, np.int64)
    kernels.count_nonzero(count, x.ravel())
    flat = np.empty(count[0], np.int64)
    kernels.nonzero(flat, x.ravel())
    out = np.empty((count[0], 3), np.int64)
    kernels.unravel(out, flat, np.array(x.shape))
    assert np.array_equal(out, np.argwhere(x))


def test_masked_scatter_says_when_the_source_is_short():
    out, bad = np.zeros(4), flag()
    mask = np.array([True, False, True, True])
    kernels.masked_scatter(out, bad, mask, np.array([1.0, 2, 3]))
    assert bad[0] == -1 and out.tolist() == [1, 0, 2, 3]
    kernels.masked_scatter(out, bad, mask, np.array([5.0]))
    assert bad[0] == 3 and out.tolist() == [5, 0, 2, 3]


@pytest.mark.parametrize("diagonal", [-5, -1, 0, 2, 9])
def test_triangle_keeps_nan_where_it_keeps(rng, diagonal):
    x = rng.standard_normal((2, 3, 4))
    x[0, 0, 3] = x[1, 2, 0] = np.nan
    out = np.empty_like(x)
    for upper, oracle in ((True, np.triu), (False, np.tril)):
        triangle.triangle(out, x, diagonal, upper)
        assert np.array_equal(out, oracle(x, diagonal), equal_nan=True)


def test_place_writes_its_columns_only():
    out = np.zeros((2, 5))
    join.place(out, np.ones((2, 2)), 2)
    assert out.tolist() == [[0, 0, 1, 1, 0]] * 2
