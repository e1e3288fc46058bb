"""The softmax that logsumexp leaves for its gradient."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.compiled import merged

MERGED = "logsumexp_with_softmax"


def gradient(function):
    def run(x, w):
        x.grad = None
        out = function(x, w)
        out.backward(w[: out.numel(), 0].reshape(out.shape))
        return out, x.grad * 2

    return run


def changed_between(x, w):
    y = x.exp()
    sums = y.logsumexp(1)
    y.data.mul_(2)  # autograd is not told
    return sums


def twice(x, w):
    y = x * w
    return y.logsumexp(1) + (y * 2).logsumexp(1)


CASES = {
    "rows": (lambda x, w: x.logsumexp(1), True),
    "columns": (lambda x, w: x.logsumexp(0, keepdim=True), True),
    "all": (lambda x, w: (x * w).logsumexp((0, 1)), True),
    "twice": (twice, True),
    "changed between": (changed_between, False),
}


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name, monkeypatch):
    monkeypatch.setattr(merged, "KEPT", 0)
    function, is_merged = CASES[name]
    rng = np.random.default_rng(0)
    values, w = rng.standard_normal((5, 5)), ng.tensor(rng.standard_normal((5, 5)))
    values[0, 1], values[2] = -np.inf, [np.inf, 1, 2, np.nan, 3]
    run = ng.compile(gradient(function))
    results = []
    for each in (gradient(function), run, run):
        x = ng.tensor(values, requires_grad=True)
        results.append([t.detach().numpy() for t in (*each(x, w), x.grad)])
    assert (MERGED in str(run.program)) == is_merged
    for found in results[1:]:
        for one, two in zip(results[0], found, strict=True):
            np.testing.assert_allclose(two, one, rtol=1e-12, atol=1e-14)


def test_small_ones_are_computed_again_where_that_is_as_fast(monkeypatch):
    monkeypatch.setattr(merged, "KEPT", 1 << 23)
    run = ng.compile(gradient(CASES["rows"][0]))
    run(ng.ones(5, 5, requires_grad=True), ng.ones(5, 5))
    assert MERGED not in str(run.program)
