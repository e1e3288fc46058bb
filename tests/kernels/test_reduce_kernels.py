"""Kernels that reduce, scan and sort, against NumPy."""

import numpy as np
import pytest

from numbagrad.kernels import machine, shares
from numbagrad.kernels.cpu import along, reduce, scan, sort

# (outer, n, inner): full, rows, columns, narrow columns, both, wider than a row of accumulators.
SHAPES = [(1, 1, 1), (1, 77, 1), (40, 33, 1), (1, 50, 17), (3, 9, 3), (2, 5, 1500), (1, 140000, 1)]
LONG = [
    *((1, 300000, 1), (1, 100003, 3), (2, 200, 700)),
    *((1, 1055, 4001), (1, 70003, 61), (2, 2339, 901)),
]
"""Shapes cut into pieces; the last three are larger than caches, and read in another order."""


def reduced(kernel, x, dtype=None, *args, join=None):
    """``kernel`` on ``x``, through pieces joined by ``join`` where the shape asks for them."""
    outer, n, inner = x.shape
    pieces = shares.pieces(outer, n, inner)
    out = np.empty((outer, 1, inner), dtype or x.dtype)
    if pieces == 1:
        kernel(out, x, *args)
    else:
        part = np.empty((outer, pieces, inner), out.dtype)
        kernel(part, x, *args)
        (join or kernel)(out, part, *(() if join else args))
    return out[:, 0]


def sample(shape, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 3
    return (x > 1) if dtype == np.bool_ else x.astype(dtype)


def wide(x):
    return x.astype(np.float64)


FOLDS = {  # name: (kernel, oracle on float64, output dtype, arguments, kernel that joins pieces)
    "sum": (reduce.sum, lambda x: wide(x).sum(1), None, (), None),
    "amax": (reduce.amax, lambda x: x.max(1), None, (), None),
    "amin": (reduce.amin, lambda x: x.min(1), None, (), None),
    "any": (reduce.any, lambda x: (x != 0).any(1), np.bool_, (), None),
    "all": (reduce.all, lambda x: (x != 0).all(1), np.bool_, (), None),
    "count": (reduce.count_nonzero, lambda x: (x != 0).sum(1), np.int64, (), reduce.sum),
    "norm1": (reduce.norm1, lambda x: abs(wide(x)).sum(1), None, (), None),
    "norm2": (reduce.norm2, lambda x: np.sqrt((wide(x) ** 2).sum(1)), None, (), None),
    "norm": (reduce.norm, lambda x: (abs(wide(x)) ** 3).sum(1) ** (1 / 3), None, (3.0,), None),
    "far": (reduce.abs_amax, lambda x: abs(x).max(1), None, (), None),
    "near": (reduce.abs_amin, lambda x: abs(x).min(1), None, (), None),
}


@pytest.mark.parametrize("shape", SHAPES + LONG, ids=str)
@pytest.mark.parametrize("name", FOLDS)
def test_fold(name, shape):
    kernel, oracle, dtype, args, join = FOLDS[name]
    x = sample(shape)
    x[:, ::3] = np.where(x[:, ::3] > 0, 0, x[:, ::3])
    expected = oracle(x)
    tolerance = 1e-6 * np.abs(wide(x)).sum(1).max() if name == "sum" else 0
    got = reduced(kernel, x, dtype, *args, join=join)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prod_and_mean(shape):
    x = np.exp(sample(shape) / 300)
    np.testing.assert_allclose(reduced(reduce.prod, x), wide(x).prod(1), rtol=2e-6)
    out = np.empty((shape[0], 1, shape[2]), np.float32)
    reduce.mean(out, x, shape[1])
    np.testing.assert_allclose(out[:, 0], wide(x).mean(1), rtol=1e-6)
    reduce.squares(out, x, out.copy(), shape[1])
    np.testing.assert_allclose(out[:, 0], wide(x).var(1), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_, np.float64])
def test_sum_and_extremes_of_dtypes(dtype):
    for shape in [(1, 77, 1), (3, 9, 3)]:
        x = sample(shape, dtype)
        total = np.float64 if dtype == np.float64 else np.int64
        np.testing.assert_allclose(reduced(reduce.sum, x, total), x.sum(1, dtype=total))
        np.testing.assert_array_equal(reduced(reduce.amax, x), x.max(1))
        np.testing.assert_array_equal(reduced(reduce.amin, x), x.min(1))


def test_float32_sum_keeps_six_digits():
    x = np.random.default_rng(0).random((1, 10**7, 1), np.float32)
    assert abs(reduced(reduce.sum, x).item() / wide(x).sum() - 1) < 1e-7


def test_nan_and_infinity():
    special = np.array([1.0, -np.inf, np.inf, -0.0], np.float32).reshape(1, 4, 1)
    assert reduced(reduce.amax, special).item() == np.inf
    assert reduced(reduce.amin, special).item() == -np.inf
    assert np.isnan(reduced(reduce.sum, special).item())
    for sign in (1, -1):
        special[0, 2] = np.copysign(np.nan, sign)
        for kernel in (reduce.amax, reduce.amin, reduce.sum, reduce.norm2, reduce.abs_amax):
            assert np.isnan(reduced(kernel, special).item())
    assert reduced(reduce.any, special, np.bool_).item()


ROWS = [1, 7, 15, 16, 31, 33, 63, 64, 65, 127, 128, 129, 150, 255, 257, 300, 8191, 8192, 8333]
"""Lengths about those of a vector, of eight, and of rows that are read in four places."""


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_every_length(dtype):
    for n in ROWS:
        x = sample((5, n, 1), dtype, n)
        x[1, :: max(1, n // 5)] = np.inf  # NaN follows where a row has both
        x[2, n - 1] = -np.inf
        x[3, n // 2] = np.nan
        x[4] = np.where(x[4] > 0, 0.0, -0.0)
        atol = 1e-6 * abs(wide(x[0])).sum() if dtype == np.float32 else 1e-12 * n
        for kernel, truth in ((reduce.sum, np.sum), (reduce.amax, np.max), (reduce.amin, np.min)):
            got, expected = reduced(kernel, x), truth(wide(x), 1)
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=atol, err_msg=str(n))


def test_a_row_ends_where_it_ends():
    for n in ROWS:
        around = np.full((3, n, 1), np.nan, np.float32)
        around[1] = 1.0
        for kernel, truth in ((reduce.sum, n), (reduce.amax, 1.0), (reduce.amin, 1.0)):
            assert reduced(kernel, around)[1].item() == truth


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 131, 1), (1, 300, 1), (1, 19, 33), (1, 5, 300)], ids=str)
def test_nan_counts_wherever_it_stands(shape, dtype):
    for at in range(shape[1]):
        x = sample(shape, dtype)
        x[0, at, ::2] = np.nan
        for kernel in (reduce.amax, reduce.amin, reduce.abs_amax, reduce.abs_amin):
            out = reduced(kernel, x)[0]
            assert np.isnan(out[::2]).all() and not np.isnan(out[1::2]).any(), kernel
        assert (place(reduce.argmax, x)[0, ::2] == at).all()


def test_variance_of_what_is_larger_than_caches():
    for shape in LONG[-3:]:
        x = sample(shape) + 100
        outer, n, inner = shape
        pieces = shares.pieces(outer, n, inner)
        center = wide(x).mean(1, keepdims=True).astype(np.float32)
        part, out = (np.empty((outer, k, inner), np.float32) for k in (pieces, 1))
        reduce.squares(part, x, center, 1)
        reduce.mean(out, part, n)
        np.testing.assert_allclose(out[:, 0], wide(x).var(1), rtol=1e-5)


def place(kernel, x):
    outer, n, inner = x.shape
    pieces = shares.pieces(outer, n, inner)
    values = np.empty((outer, pieces, inner), x.dtype)
    indices = np.empty((outer, pieces, inner), np.int64)
    kernel(values, indices, x)
    if pieces == 1:
        return indices[:, 0]
    best = np.empty((outer, 1, inner), x.dtype)
    which, out = np.empty((2, outer, 1, inner), np.int64)
    kernel(best, which, values)
    along.pick(out, indices, which)
    return out[:, 0]


@pytest.mark.parametrize("shape", SHAPES + LONG, ids=str)
def test_first_index_of_ties(shape):
    x = np.round(sample(shape))  # many ties
    np.testing.assert_array_equal(place(reduce.argmax, x), x.argmax(1))
    np.testing.assert_array_equal(place(reduce.argmin, x), x.argmin(1))
    x[:, shape[1] // 2 :: 7] = np.nan
    np.testing.assert_array_equal(place(reduce.argmax, x), x.argmax(1))
    np.testing.assert_array_equal(place(reduce.argmin, x), x.argmin(1))


def test_index_of_zeros_of_either_sign_is_the_first():
    x = np.array([-0.0, 0.0, -0.0], np.float32).reshape(1, 3, 1)
    assert place(reduce.argmax, x).item() == place(reduce.argmin, x).item() == 0


def test_bits_do_not_depend_on_threads():
    most = machine.threads()
    if most == 1:
        pytest.skip("one thread only")
    try:
        for shape in [*LONG, (300, 1000, 1)]:
            x = sample(shape)
            results = []
            for threads in (1, most):
                machine.set_threads(threads)
                y = np.empty_like(x)
                scan.cumsum(y, x, False)
                results.append([reduced(reduce.sum, x), reduced(reduce.norm2, x), y])
            for one, many in zip(*results, strict=True):
                np.testing.assert_array_equal(one, many)
    finally:
        machine.set_threads(most)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_scan(shape):
    x = sample(shape)
    out = np.empty_like(x)
    scan.cumsum(out, x, False)
    np.testing.assert_allclose(out, wide(x).cumsum(1), rtol=1e-6, atol=1e-5)
    scan.cumsum(out, x, True)
    expected = wide(x)[:, ::-1].cumsum(1)[:, ::-1]
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-5)
    x = np.exp(x / 300)
    expected = wide(x).cumprod(1)
    scan.cumprod(x, x)
    np.testing.assert_allclose(x, expected, rtol=1e-5)


def test_recurrence():
    a, b = sample((2, 7, 3), np.float64), sample((2, 7, 3), np.float64, 1)
    for reverse in (False, True):
        for driven, start in [(True, 0.5), (False, 1.0)]:
            out = np.empty_like(a)
            scan.recurrence(out, a, b, driven, start, reverse)
            order = range(6, -1, -1) if reverse else range(7)
            value = np.full((2, 3), start)
            for j in order:
                np.testing.assert_allclose(out[:, j], value)
                value = a[:, j] * value + driven * b[:, j]


def test_running_extremes():
    x = np.array([1, 3, 3, 2, np.nan, 5], np.float32).reshape(1, 6, 1)
    values, indices = np.empty_like(x), np.empty(x.shape, np.int64)
    scan.cummax(values, indices, x)
    np.testing.assert_array_equal(values.ravel(), [1, 3, 3, 3, np.nan, np.nan])
    assert indices.ravel().tolist() == [0, 1, 2, 2, 4, 4]
    scan.cummin(values, indices, x)
    assert indices.ravel().tolist() == [0, 0, 0, 0, 4, 4]


def test_pick_and_place():
    x = sample((2, 4, 3))
    which = np.random.default_rng(0).integers(0, 4, (2, 5, 3))
    out = np.empty(which.shape, np.float32)
    along.pick(out, x, which)
    np.testing.assert_array_equal(out, np.take_along_axis(x, which, 1))
    back, expected = np.empty_like(x), np.zeros_like(x)
    along.place(back, out, which)
    for o, j, i in np.ndindex(which.shape):
        expected[o, which[o, j, i], i] += out[o, j, i]
    np.testing.assert_allclose(back, expected, rtol=1e-6)


def test_scan_of_integers_is_wide():
    x = np.full((1, 3, 1), 200, np.uint8)
    out = np.empty(x.shape, np.int64)
    scan.cumsum(out, x, False)
    assert out.ravel().tolist() == [200, 400, 600]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8, np.bool_])
def test_sort_is_stable(dtype):
    for rows, n in [(3, 1), (50, 20), (20, 300), (1, 5000)]:
        x = sample((rows, n), dtype)
        if x.dtype.kind == "f":
            x = np.round(x)
            x[:, ::11] = np.nan
            x[:, 5::13] = -np.nan
            x[:, 1::17] = -np.inf
        values, indices = np.empty_like(x), np.empty(x.shape, np.int64)
        sort.sort(values, indices, x, False)
        expected = np.argsort(x, axis=1, kind="stable")
        np.testing.assert_array_equal(indices, expected)
        np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))
        sort.sort(values, indices, x, True)
        expected = n - 1 - np.argsort(x[:, ::-1], axis=1, kind="stable")[:, ::-1]
        np.testing.assert_array_equal(indices, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_topk_is_the_head_of_the_sort(dtype):
    for rows, n, k in [(3, 1, 1), (50, 20, 5), (7, 1000, 10), (1, 3000, 3000)]:
        x = np.round(sample((rows, n), dtype))
        if dtype == np.float32:
            x[:, n // 2] = np.nan
        best, places = np.empty((rows, k), dtype), np.empty((rows, k), np.int64)
        values, indices = np.empty((rows, k), dtype), np.empty((rows, k), np.int64)
        for smallest in (False, True):
            sort.topk(best, places, x, smallest)
            sort.sort(values, indices, x, not smallest)
            np.testing.assert_array_equal(best, values)
            np.testing.assert_array_equal(places, indices)
