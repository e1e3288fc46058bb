"""searchsorted, isin by looking up, runs of equal numbers, outer products."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import numbagrad as ng


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8])
def test_every_number_of_edges(dtype):
    draw = np.random.default_rng(0)
    for n in (*range(20), 63, 64, 65, 1000):
        edges = np.sort(draw.integers(0, 30, n)).astype(dtype)
        values = draw.integers(0, 32, (3, 50)).astype(dtype)
        for side in ("left", "right"):
            out = ng.searchsorted(ng.tensor(edges), ng.tensor(values), side=side)
            assert out.tolist() == np.searchsorted(edges, values, side).tolist(), (n, side)


def test_rows_have_edges_of_their_own_and_nan_is_above_all():
    draw = np.random.default_rng(1)
    edges, values = np.sort(draw.standard_normal((7, 33))), draw.standard_normal((7, 200))
    edges[:, -2:], values[:, 0], edges[:, -3], values[:, 1] = np.nan, np.nan, np.inf, np.inf
    out = ng.searchsorted(ng.tensor(edges), ng.tensor(values))
    expected = [np.searchsorted(e, v) for e, v in zip(edges, values, strict=True)]
    np.testing.assert_array_equal(out.numpy(), expected)
    assert ng.searchsorted(ng.tensor([-0.0, 1.0]), ng.tensor([0.0, -0.0])).tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
@pytest.mark.parametrize("many", [0, 1, 7, 8, 300])
def test_isin_is_numpys(many, dtype):
    draw = np.random.default_rng(many)
    x, among = draw.integers(0, 99, (5, 40)).astype(dtype), draw.integers(0, 99, many).astype(dtype)
    if dtype is np.float32:
        x[0, :2] = np.nan, -0.0
        among[:2] = 0.0
        among[-1:] = np.nan
    for given in (x, x[:0], x[0, 0]):
        expected = np.isin(given, among)
        assert ng.isin(ng.tensor(given), ng.tensor(among)).tolist() == expected.tolist()
        inverse = ng.isin(ng.tensor(given), ng.tensor(among), invert=True)
        assert inverse.tolist() == (~expected).tolist()


def test_isin_compares_ints_with_floats_and_compiles():
    x, among = ng.arange(20), ng.arange(0, 10, 0.5)
    assert ng.isin(x, among).tolist() == [i < 10 for i in range(20)]
    assert ng.compile(ng.isin)(x, among).tolist() == [i < 10 for i in range(20)]


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.bool_])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (50,), (6, 4), (30, 1), (3, 2, 2)])
def test_unique_consecutive_is_torchs(shape, dtype):
    torch = pytest.importorskip("torch")
    array = np.random.default_rng(0).integers(0, 2, shape)
    array = np.asarray(array).astype(dtype)
    for dim in (None, *range(len(shape) if array.size else 0)):
        how = {"return_inverse": True, "return_counts": True, "dim": dim}
        expected = torch.unique_consecutive(torch.tensor(array), **how)
        for out, each in zip(ng.unique_consecutive(ng.tensor(array), **how), expected, strict=True):
            assert out.tolist() == each.tolist() and str(out.dtype)[3:] == str(each.dtype)[6:]
    assert ng.unique_consecutive(ng.tensor([1.0, 1.0], dtype=ng.bfloat16)).dtype is ng.bfloat16


@pytest.mark.parametrize("name", ["unique", "unique_consecutive"])
@pytest.mark.parametrize("most", [2, 1000])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64"])
def test_unique_of_many_is_torchs(name, dtype, most):
    torch = pytest.importorskip("torch")
    array = np.random.default_rng(1).integers(0, most, (70, 90))
    array[-1] = array[-2, -1]  # the last run is a long one
    x = ng.tensor(array).to(getattr(ng, dtype))
    given = torch.tensor(array).to(getattr(torch, dtype))
    for inverse, counts in itertools.product((False, True), repeat=2):
        how = {"return_inverse": inverse, "return_counts": counts}
        found, expected = (getattr(lib, name)(v, **how) for lib, v in ((ng, x), (torch, given)))
        if not (inverse or counts):
            found, expected = (found,), (expected,)
        for out, each in zip(found, expected, strict=True):
            assert out.tolist() == each.tolist() and str(out.dtype)[3:] == str(each.dtype)[6:]
    turned = getattr(ng, name)(x.T, return_inverse=True)
    expected = getattr(torch, name)(given.T, return_inverse=True)
    for out, each in zip(turned, expected, strict=True):
        assert out.tolist() == each.tolist()


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
@pytest.mark.parametrize("far", [False, True])
def test_unique_whole_numbers_may_be_negative_and_far_apart(dtype, far):
    some = np.random.default_rng(2).integers(-50, 50, 6000).astype(dtype)
    if far:
        some[[7, 9]] = np.iinfo(dtype).min, np.iinfo(dtype).max
    out, where, count = ng.unique(ng.tensor(some), return_inverse=True, return_counts=True)
    expected = np.unique(some, return_inverse=True, return_counts=True)
    for got, each in zip((out, where, count), expected, strict=True):
        assert np.array_equal(got.numpy(), each) and got.numpy().dtype == each.dtype


@pytest.mark.parametrize("name", ["unique", "unique_consecutive"])
def test_a_number_has_no_dim_to_be_unique_along(name):
    for dim in (0, -1):
        with pytest.raises(IndexError, match=f"^{name}: dim is {dim}, but the tensor has no"):
            getattr(ng, name)(ng.tensor(3.0), dim=dim)
    with pytest.raises(IndexError, match=f"^{name}: Dimension out of range"):
        getattr(ng, name)(ng.zeros(2, 3), dim=2)


def test_unique_of_many_counts_each_nan():
    x = np.tile([2.0, np.nan, -0.0, 0.0, np.inf], 1000)
    out, where, count = ng.unique(ng.tensor(x), return_inverse=True, return_counts=True)
    assert out.tolist()[:3] == [0.0, 2.0, np.inf] and np.isnan(out.numpy()[3:]).all()
    assert count.tolist() == [2000, 1000, 1000, *[1] * 1000]
    assert np.array_equal(out.numpy()[where.numpy()], x, equal_nan=True)


def test_unique_consecutive_of_many_tells_numbers_that_are_none_apart():
    x = np.zeros(5000)
    x[1::2], x[100:110], x[-3:] = -0.0, np.nan, np.nan
    out, where, count = ng.unique_consecutive(ng.tensor(x), True, True)
    assert len(out) == 15 and np.isnan(out.numpy()[1:11]).all()
    assert not np.signbit(out.numpy()[[0, 11]]).any()  # the first of a run stands for it
    assert count.tolist() == [100, *[1] * 10, 4887, 1, 1, 1]
    assert np.array_equal(out.numpy()[where.numpy()], x, equal_nan=True)
    out, where, count = ng.unique_consecutive(ng.ones(5000), True, True)
    assert out.tolist() == [1.0] and count.tolist() == [5000] and not where.any()


def test_gradients_of_outer_products():
    x, y = (ng.tensor(np.arange(1.0, n), requires_grad=True) for n in (4, 6))
    assert ng.autograd.gradcheck(ng.outer, (x, y))
    assert ng.autograd.gradgradcheck(lambda x, y: ng.outer(x, y) ** 2, (x, y))
    assert ng.autograd.gradgradcheck(lambda x: ng.outer(x, x), x)
    for dtypes in ((ng.float32, ng.float32), (ng.float32, ng.float64), (ng.float16, ng.float16)):
        leaves = [v.detach().to(d).requires_grad_() for v, d in zip((x, y), dtypes, strict=True)]
        ng.outer(*leaves).sum().backward()
        assert [v.grad.tolist() for v in leaves] == [[15.0] * 3, [6.0] * 5]
        assert [v.grad.dtype for v in leaves] == list(dtypes)
    empty = ng.ones(0, requires_grad=True)
    ng.outer(empty, y.detach().float()).sum().backward()
    assert empty.grad.shape == (0,)
