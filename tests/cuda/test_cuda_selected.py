"""Rows that a mask selects in functions compiled for a GPU: over all of them, and returned."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.nn import functional as F

pytestmark = pytest.mark.cuda


def over_all(x, m):
    rows = x[m]
    spread = rows.std(0) + rows.amax(0) - rows.min(0)[0] + rows.logsumexp(0) + rows[0]
    return spread + (rows.softmax(0) * rows.cumsum(0)).sum(0) + (rows.T @ rows).sum(0)


def ranked(x, m):
    rows = x[m]
    normed = F.batch_norm(rows, None, None, training=True)
    pooled = F.avg_pool1d(rows.unsqueeze(1), 3).flatten().square().sum()
    return rows.median(0).values + rows.quantile(0.5, 0) * pooled + normed.exp().sum(0)


def returned(x, m):
    values, order = x[m][:, 0].sort(descending=True)
    return x[m] * 2, values, order, ng.where(m)[0]


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_of_each_number_of_rows(place):
    x = np.random.default_rng(0).standard_normal((5, 3)).astype("float32")
    both = [ng.compile(f) for f in (over_all, ranked, returned)]
    for mask in ([True, False, True, True, False], [True] * 5):
        m = np.array(mask)
        given = ng.tensor(x, device=place, requires_grad=True), ng.tensor(m, device=place)
        for function, compiled in zip((over_all, ranked), both, strict=False):
            got = compiled(*given)
            expected = function(ng.tensor(x), ng.tensor(m))
            np.testing.assert_allclose(got.detach().cpu().numpy(), expected.numpy(), 1e-5, 1e-5)
            (slope,) = ng.autograd.grad(got.sum(), given[0])
            leaf = ng.tensor(x, requires_grad=True)
            (true,) = ng.autograd.grad(function(leaf, ng.tensor(m)).sum(), leaf)
            np.testing.assert_allclose(slope.cpu().numpy(), true.numpy(), 1e-4, 1e-4)
        for g, e in zip(both[2](*given), returned(ng.tensor(x), ng.tensor(m)), strict=True):
            assert g.device.type == place
            np.testing.assert_allclose(g.detach().cpu().numpy(), e.numpy(), 1e-6)
    assert both[2].cache_info().recordings == 1
