"""searchsorted for every number of edges, with ties, NaN and rows; isin by looking up."""

from __future__ import annotations

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
