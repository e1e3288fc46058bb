"""Logarithms of running sums: numbers far apart, infinite ones, rows, columns and threads."""

import numpy as np
import pytest

import numbagrad as ng

inf, nan = float("inf"), float("nan")
ROWS = {
    "usual": list(np.random.default_rng(0).standard_normal(300) * 3),
    "none at first": [-inf, -inf, 0, 1],
    "infinite at first": [inf, 0, 1],
    "infinite": [0, inf, -inf, 3, inf],
    "nan": [0, 1, nan, 1, 2],
    "far apart": [-1000, 0, 1000, -5],
    "equal": [1000] * 130,
    "rising": list(np.linspace(-900, 900, 200)),
    "falling": list(np.linspace(900, -900, 200)),
    "one in nothing": [-inf] * 100 + [3.0] + [-inf] * 50,
    "a peak": [0.0] * 70 + [500.0] + [1.0] * 70,
    "all of nothing": [-inf] * 70,
}


@pytest.mark.parametrize("dtype", [ng.float32, ng.float64], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_rows_and_columns(name, dtype):
    row = np.array(ROWS[name], dtype.numpy)
    with np.errstate(all="ignore"):
        exact = np.logaddexp.accumulate(row.astype(np.longdouble))
    for n in (1, 3, 600):
        found = ng.logcumsumexp(ng.tensor(np.repeat(row[:, None], n, 1)), 0)
        across = ng.logcumsumexp(ng.tensor(np.repeat(row[None], n, 0)), 1)
        for each in (found[:, 0], found[:, -1], across[0], across[-1]):
            tolerance = 2e-7 if dtype is ng.float32 else 4e-15
            np.testing.assert_allclose(each.numpy(), exact.astype(float), tolerance, tolerance)


def test_the_same_bits_for_any_number_of_threads():
    before, found = ng.get_num_threads(), []
    x = ng.tensor(np.random.default_rng(0).standard_normal((400, 520)) * 4)
    try:
        for threads in (1, before):
            ng.set_num_threads(threads)
            found.append([ng.logcumsumexp(x, d).numpy() for d in (0, 1)])
    finally:
        ng.set_num_threads(before)
    for one, other in zip(*found, strict=True):
        assert (one == other).all()
