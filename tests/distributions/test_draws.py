"""Samples: their distribution, their shapes and dtypes, and that a seed gives them again."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import numbagrad as ng
from numbagrad import distributions as D

from .rows import CLASSES, COVARIANCE, ROWS, Row

N = 20_000
LEAST = 1e-4
"""Of the chance that a right sample looks as odd; the seeds are fixed."""

NO_MOMENTS = ("Cauchy", "HalfCauchy", "Categorical", "VonMises")  # the last has those of a circle

rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
in_scipy = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.scipy is not None], ids=lambda row: row.id
)


def drawn(row: Row, n: int = N, dtype=ng.float64) -> np.ndarray:
    ng.manual_seed(5)
    return row.build(dtype=dtype).sample((n,)).numpy()


@pytest.mark.parametrize("dtype", [ng.float32, ng.float64], ids=str)
@in_scipy
def test_samples_are_of_the_distribution(row: Row, dtype) -> None:
    x, theirs = drawn(row, dtype=dtype), row.frozen()
    for i in range(2):
        if not row.discrete:
            chance = stats.kstest(x[:, i], lambda v, i=i: theirs.cdf(np.stack([v, v], 1))[:, i])
        else:
            values = np.arange(40)
            expected = N * theirs.pmf(np.stack([values, values], 1))[:, i]
            seen = np.bincount(x[:, i].astype(int), minlength=40)[:40]
            some = expected > 5
            rest = N - expected[some].sum()
            counts = [*seen[some], N - seen[some].sum()], [*expected[some], rest]
            chance = stats.chisquare(*(np.array(c)[: None if rest > 1 else -1] for c in counts),
                                     sum_check=False)  # fmt: skip
        assert chance.pvalue > LEAST


@pytest.mark.parametrize(
    "row",
    [r for r in ROWS if r.has("mean") and r.name not in NO_MOMENTS],
    ids=lambda row: row.id,
)
def test_moments(row: Row) -> None:
    x, ours = drawn(row), row.build()
    spread = ours.stddev.numpy()
    assert (np.abs(x.mean(0) - ours.mean.numpy()) < 5 * spread / N**0.5).all()
    fourth = ((x - x.mean(0)) ** 4).mean(0) - x.var(0) ** 2
    bound = 6 * np.sqrt(np.maximum(fourth, 0) / N) + 1e-12
    assert (np.abs(x.var(0) - ours.variance.numpy()) < bound).all()


def test_classes_come_by_weight() -> None:
    for make in (D.Categorical, D.OneHotCategorical):
        ng.manual_seed(1)
        x = make(probs=ng.tensor(CLASSES)).sample((N,))
        counts = x.sum(0) if x.dim() == 3 else (x[..., None] == ng.arange(3)).sum(0)
        for seen, p in zip(counts.tolist(), CLASSES, strict=True):
            assert stats.chisquare(seen, N * np.array(p)).pvalue > LEAST


def test_vectors_vary_together() -> None:
    for row in [row for row in ROWS if row.name == "MultivariateNormal"]:
        x = drawn(row)
        for i in range(2):
            np.testing.assert_allclose(np.cov(x[:, i].T), COVARIANCE[i], rtol=0.05, atol=0.05)


def test_shares_have_beta_margins() -> None:
    a = np.array([0.5, 2.0, 3.0])
    ng.manual_seed(2)
    x = D.Dirichlet(ng.tensor(a)).sample((N,)).numpy()
    np.testing.assert_allclose(x.sum(1), 1, rtol=1e-12)
    for i in range(3):
        assert stats.kstest(x[:, i], stats.beta(a[i], a.sum() - a[i]).cdf).pvalue > LEAST


def test_small_concentrations_make_no_nan() -> None:
    """Gamma numbers of such shapes are 0 in float32: their shares come from logarithms."""
    ng.manual_seed(3)
    x = D.Dirichlet(ng.full((4,), 0.001)).sample((1000,))
    assert x.isfinite().all() and ((x.sum(-1) - 1).abs() < 1e-5).all()
    assert (x.max(-1).values > 0.999).float().mean().item() > 0.9
    y = D.Beta(0.01, 0.01).rsample((1000,))
    assert ((y > 0) & (y < 1)).all() and D.Beta(0.01, 0.01).log_prob(y).isfinite().all()
    assert (D.Gamma(0.001, 1.0).sample((1000,)) > 0).all()


def test_relaxed_draws_round_to_draws_by_weight() -> None:
    ng.manual_seed(4)
    x = D.RelaxedBernoulli(0.3, probs=ng.tensor([0.2, 0.7])).sample((N,))
    np.testing.assert_allclose((x > 0.5).float().mean(0).numpy(), [0.2, 0.7], atol=0.015)
    y = D.RelaxedOneHotCategorical(0.3, probs=ng.tensor(CLASSES)).sample((N,))
    largest = y.argmax(-1).numpy()
    for i in range(2):
        seen = np.bincount(largest[:, i], minlength=3)
        assert stats.chisquare(seen, N * np.array(CLASSES[i])).pvalue > LEAST


def test_mixtures_and_turned_draws_follow_their_cdf() -> None:
    for row in [r for r in ROWS if r.name in ("MixtureSameFamily", "TransformedDistribution")]:
        x, ours = drawn(row), row.build()
        u = ours.cdf(ng.tensor(x)).numpy()
        for i in range(2):
            assert stats.kstest(u[:, i], "uniform").pvalue > LEAST


@rows
def test_shapes_and_dtypes(row: Row) -> None:
    for dtype in (ng.float32, ng.float64):
        ours = row.build(dtype=dtype)
        batch, event = tuple(ours.batch_shape), tuple(ours.event_shape)
        for shape in ((), (3,), (2, 3), (0,)):
            x = ours.sample(shape)
            assert x.shape == shape + batch + event and not x.requires_grad
            assert x.dtype is (ng.int64 if row.name == "Categorical" else dtype)
            assert ours.log_prob(x).shape == shape + batch


@rows
def test_expanded(row: Row) -> None:
    ours = row.build()
    batch, event = tuple(ours.batch_shape), tuple(ours.event_shape)
    wide = ours.expand((4, *batch))
    assert type(wide) is type(ours)
    assert wide.batch_shape == (4, *batch) and wide.event_shape == event
    x = wide.sample((3,))
    assert x.shape == (3, 4, *batch, *event)
    np.testing.assert_allclose(wide.log_prob(x).numpy(), ours.log_prob(x).numpy(), rtol=1e-12)
    if row.has("mean"):
        assert wide.mean.expand((4, *batch, *event)).shape == (4, *batch, *event)
    assert ours.batch_shape == batch


@rows
def test_a_seed_gives_the_same_again(row: Row) -> None:
    ours = row.build(dtype=ng.float32)
    ng.manual_seed(11)
    first, second = ours.sample((50,)), ours.sample((50,))
    ng.manual_seed(11)
    assert ng.equal(ours.sample((50,)), first)
    assert not ng.equal(first, second)


@pytest.mark.parametrize("name", ["Gamma", "Poisson", "Binomial-probs", "Normal", "Dirichlet"])
def test_threads_change_no_bit(name: str) -> None:
    row = next(row for row in ROWS if row.id == name)
    most = ng.get_num_threads()
    found = []
    for n in (1, most):
        ng.set_num_threads(n)
        found.append(drawn(row, 5000))
    assert np.array_equal(*found)


@rows
def test_rsample_is_sample_with_a_gradient(row: Row) -> None:
    parameters = {k: v.requires_grad_() for k, v in row.tensors().items() if k != "temperature"}
    more = {"temperature": 0.7} if "temperature" in row.parameters else {}
    ours = row.of({**more, **parameters})
    if not ours.has_rsample:
        with pytest.raises(NotImplementedError, match="no rsample"):
            ours.rsample()
        return
    ng.manual_seed(12)
    x = ours.rsample((5,))
    ng.manual_seed(12)
    assert ng.equal(x, ours.sample((5,)))
    assert x.requires_grad
    x.square().sum().backward()
    for p in parameters.values():
        assert p.grad is not None and p.grad.isfinite().all()


def test_all_values() -> None:
    for row in ROWS:
        ours = row.build()
        if not ours.has_enumerate_support:
            with pytest.raises(NotImplementedError):
                ours.enumerate_support()
            continue
        values = ours.enumerate_support()
        thin = ours.enumerate_support(expand=False)
        assert values.shape[1:] == ours.batch_shape + ours.event_shape
        assert thin.expand(values.shape).equal(values)
        np.testing.assert_allclose(ours.log_prob(values).exp().sum(0).numpy(), 1, rtol=1e-12)
