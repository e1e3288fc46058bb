"""log_prob, cdf, icdf, entropy and moments against SciPy, and against PyTorch where it is."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import stats

import numbagrad as ng
from numbagrad import distributions as D

from .rows import ROWS, Row

CHANCES = [[0.1, 0.5], [0.9, 0.999]]
rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
in_scipy = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.scipy is not None], ids=lambda row: row.id
)


def close(got, expected, rtol=1e-9):
    np.testing.assert_allclose(got.numpy(), expected, rtol=rtol, atol=1e-12)


@in_scipy
def test_as_scipy(row: Row) -> None:
    ours, theirs, x = row.build(), row.frozen(), np.array(row.values)
    value = ng.tensor(row.values, dtype=ng.float64)
    close(ours.log_prob(value), theirs.logpmf(x) if row.discrete else theirs.logpdf(x))
    if row.has("cdf"):
        close(ours.cdf(value), theirs.cdf(x))
    if row.has("icdf"):
        close(ours.icdf(ng.tensor(CHANCES, dtype=ng.float64)), theirs.ppf(CHANCES))
    if row.has("entropy"):
        close(ours.entropy(), theirs.entropy(), 1e-6)  # SciPy sums or integrates some
        close(ours.perplexity(), np.exp(theirs.entropy()), 1e-6)
    if row.name not in ("Cauchy", "HalfCauchy", "VonMises"):
        close(ours.mean, theirs.mean())
        close(ours.variance, theirs.var())
        close(ours.stddev, theirs.std())


def test_vectors_as_scipy() -> None:
    for row in [row for row in ROWS if row.id in ("Multinomial-probs", "Dirichlet")]:
        ours = row.build()
        (parameters,) = row.parameters.values()
        make = stats.dirichlet if row.name == "Dirichlet" else partial(stats.multinomial, 4)
        each = [make(p) for p in parameters]
        close(ours.entropy(), [d.entropy() for d in each])
        close(ours.mean, [d.mean() for d in each])
        log = [
            d.logpdf(v) if row.name == "Dirichlet" else d.logpmf(v)
            for d, v in zip(each, row.values[0], strict=True)
        ]
        close(ours.log_prob(ng.tensor(row.values[0], dtype=ng.float64)), log)


def test_matrices_as_scipy() -> None:
    found = [row for row in ROWS if row.name == "Wishart"]
    scales = found[1].parameters["covariance_matrix"]
    each = [stats.wishart(df, scale) for df, scale in zip([2.5, 6.0], scales, strict=True)]
    for row in found:
        ours = row.build()
        close(ours.entropy(), [d.entropy() for d in each], 1e-8)
        close(ours.mean, [d.mean() for d in each], 1e-8)
        close(ours.variance, [d.var() for d in each], 1e-8)
        close(ours.precision_matrix, np.linalg.inv(scales), 1e-8)
        value = np.array(row.values)
        expected = [[d.logpdf(v) for d, v in zip(each, two, strict=True)] for two in value]
        close(ours.log_prob(ng.tensor(value)), expected, 1e-8)
    with pytest.raises(ValueError, match="greater than ndim - 1 = 1"):
        D.Wishart(0.5, ng.eye(2))
    with pytest.raises(ValueError, match="at least two-dimensional"):
        D.Wishart(3.0, ng.ones(2))


def test_normal_vectors_as_scipy_by_each_matrix() -> None:
    found = [row for row in ROWS if row.name == "MultivariateNormal"]
    truth = found[1].parameters
    each = [stats.multivariate_normal(*both) for both in zip(*truth.values(), strict=True)]
    for row in found:
        ours = row.build()
        close(ours.entropy(), [d.entropy() for d in each])
        close(ours.covariance_matrix, truth["covariance_matrix"])
        close(ours.precision_matrix, np.linalg.inv(truth["covariance_matrix"]), 1e-8)
        value = np.array(row.values)
        expected = [[d.logpdf(v) for d, v in zip(each, two, strict=True)] for two in value]
        close(ours.log_prob(ng.tensor(value)), expected)


def compared(distribution, library, row: Row, name: str):
    """What ``name`` of a distribution of either library is for the row's values."""
    found = getattr(distribution, name)
    if name in ("log_prob", "cdf"):
        integer = row.name == "Categorical"
        dtype = library.int64 if integer else library.float64
        return found(library.tensor(row.values, dtype=dtype))
    if name == "icdf":
        return found(library.tensor(CHANCES, dtype=library.float64))
    return found() if callable(found) else found


IN_PYTORCH_WRONG = [
    ("Kumaraswamy", "mode"),  # NaN
    ("GeneralizedPareto", "log_prob"),  # refuses float64
    ("GeneralizedPareto", "cdf"),
]
NAMES = "log_prob cdf icdf entropy perplexity mean variance stddev mode enumerate_support".split()


@pytest.mark.peer
@rows
def test_as_pytorch(row: Row) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = row.build(), row.build(torch.distributions, torch.tensor, torch.float64)
    assert ours.batch_shape == tuple(theirs.batch_shape)
    assert ours.event_shape == tuple(theirs.event_shape)
    assert bool(ours.has_rsample) is bool(theirs.has_rsample)
    assert bool(ours.has_enumerate_support) is bool(theirs.has_enumerate_support)
    if hasattr(theirs, "param_shape"):
        assert ours.param_shape == tuple(theirs.param_shape)
    for name in NAMES:
        if (row.name, name) in IN_PYTORCH_WRONG:
            continue
        try:
            expected = compared(theirs, torch, row, name)
        except NotImplementedError:
            with pytest.raises(NotImplementedError):
                compared(ours, ng, row, name)
            continue
        # PyTorch's entropy of a multinomial goes by way of float32, its Bessel functions by a
        # polynomial.
        loose = row.name == "Multinomial" and name in ("entropy", "perplexity")
        loose = loose or row.name == "VonMises"
        close(compared(ours, ng, row, name), expected.numpy(), 1e-6 if loose else 1e-9)


@rows
def test_a_method_it_lacks_says_so(row: Row) -> None:
    ours = row.build()
    for name in row.lacks.split():
        with pytest.raises(NotImplementedError, match="has no"):
            compared(ours, ng, row, name)


@rows
def test_float32_agrees(row: Row) -> None:
    wide, narrow = row.build(), row.build(dtype=ng.float32)
    x = ng.tensor(row.values, dtype=ng.float64)
    found = narrow.log_prob(x if row.name == "Categorical" else x.float())
    assert found.dtype is ng.float32
    np.testing.assert_allclose(found.numpy(), wide.log_prob(x).numpy(), rtol=2e-5, atol=2e-5)


def test_numbers_and_tensors_mix() -> None:
    mixed = D.Normal(0, ng.tensor([1.0, 2.0], dtype=ng.float64))
    assert mixed.loc.dtype is ng.float64 and mixed.batch_shape == (2,)
    assert D.Normal(0, 1).log_prob(ng.tensor(0.0)).shape == ()
    with pytest.raises(ValueError, match="must all be tensors or numbers, got str"):
        D.Normal("0", 1.0)


def test_tails_keep_their_digits() -> None:
    normal, x = D.Normal(0.0, 1.0), np.array([-30.0, -10.0, -1.0])
    normal = D.Normal(ng.tensor(0.0, dtype=ng.float64), 1.0)
    close(normal.cdf(ng.tensor(x)), stats.norm.cdf(x), 1e-12)
    p = np.array([1e-300, 1e-20, 1e-5, 0.3])
    close(normal.icdf(ng.tensor(p)), stats.norm.ppf(p), 1e-14)
    half = D.HalfNormal(ng.tensor(1.0, dtype=ng.float64))
    close(half.icdf(ng.tensor(p)), stats.halfnorm.ppf(p), 1e-9)
    assert half.cdf(ng.tensor(1e-12, dtype=ng.float64)).item() > 0


def test_sure_draws() -> None:
    """Probabilities of 0 and 1, and a concentration of 1 at the end of the support."""
    sure = D.Bernoulli(probs=ng.tensor([0.0, 1.0]))
    assert sure.log_prob(ng.tensor([0.0, 1.0])).abs().max().item() < 1e-6
    assert sure.entropy().abs().max().item() < 1e-5
    assert sure.sample((9,)).mean(0).tolist() == [0, 1]
    assert D.Categorical(probs=ng.tensor([0.0, 1.0])).entropy().abs().item() < 1e-5
    assert D.Categorical(logits=ng.tensor([-float("inf"), 1.0])).entropy().item() == 0
    assert D.Poisson(0.0).log_prob(ng.tensor([0.0, 1.0])).tolist() == [0, -float("inf")]
    assert D.Beta(1.0, 1.0).log_prob(ng.tensor([0.0, 1.0])).tolist() == [0, 0]
    assert D.Gamma(1.0, 2.0).log_prob(ng.tensor(0.0)).item() == pytest.approx(np.log(2))


def test_a_mode_at_an_end() -> None:
    dirichlet = D.Dirichlet(ng.tensor([[0.5, 0.2, 0.1], [3.0, 2.0, 0.5]]))
    assert dirichlet.mode.tolist()[0] == [1, 0, 0]
    assert dirichlet.mode.tolist()[1] == pytest.approx([2 / 3, 1 / 3, 0])
    assert D.Weibull(2.0, 0.5).mode.item() == 0
    assert D.Pareto(1.0, 0.5).mean.item() == D.Pareto(1.0, 2.0).variance.item() == float("inf")
    assert np.isnan(D.StudentT(1.0).mean.item()) and D.StudentT(1.5).variance.item() == np.inf


def test_impossible_classes() -> None:
    """Masked logits: of classes that do not come up, 0 * -inf adds nothing."""
    logits = ng.tensor([0.0, -np.inf, 0.0], requires_grad=True)
    for ours in (D.OneHotCategorical(logits=logits), D.Multinomial(1, logits=logits)):
        found = ours.log_prob(ng.eye(3))
        np.testing.assert_allclose(found.tolist(), [np.log(0.5), -np.inf, np.log(0.5)], rtol=1e-6)
        (slope,) = ng.autograd.grad(found[0], logits)
        np.testing.assert_allclose(slope.tolist(), [0.5, 0.0, -0.5], rtol=1e-6)


def test_a_straight_through_draw_is_a_constant_of_its_log_prob() -> None:
    logits = ng.tensor([0.1, 0.7], requires_grad=True)
    ours = D.OneHotCategoricalStraightThrough(logits=logits)
    x = ours.rsample()
    ours.log_prob(x).backward()
    expected = x.detach() - ours.probs.detach()
    np.testing.assert_allclose(logits.grad.tolist(), expected.tolist(), rtol=1e-5)


def test_geometric_with_rare_and_with_sure_success() -> None:
    ng.manual_seed(0)
    rare = D.Geometric(probs=ng.tensor(1e-9))
    assert rare.sample((1000,)).mean().item() == pytest.approx(1e9, rel=0.2)
    assert rare.log_prob(ng.tensor(1e9)).item() == pytest.approx(np.log(1e-9) - 1, rel=1e-6)
    p = ng.tensor(1.0, requires_grad=True)
    sure = D.Geometric(probs=p)
    found = sure.log_prob(ng.tensor([0.0, 1.0]))
    assert found.tolist() == [0.0, -np.inf]
    (slope,) = ng.autograd.grad(sure.log_prob(ng.tensor(0.0)), p)
    assert slope.item() == 1.0
    assert sure.sample((1000,)).max().item() == 0.0
    likely = D.Geometric(logits=ng.tensor(20.0))
    assert likely.log_prob(ng.tensor(2.0)).item() == pytest.approx(-40, rel=1e-6)


def test_far_below_a_gumbel_its_cdf_is_flat() -> None:
    x = ng.tensor([-1000.0, -3.0], requires_grad=True)
    found = D.Gumbel(0.0, 1.0).cdf(x)
    (slope,) = ng.autograd.grad(found.sum(), x)
    expected = np.exp(-np.exp(3.0))
    np.testing.assert_allclose(found.tolist(), [0, expected], rtol=1e-5)
    np.testing.assert_allclose(slope.tolist(), [0, expected * np.exp(3.0)], rtol=1e-5)
