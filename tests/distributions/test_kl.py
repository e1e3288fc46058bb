"""kl_divergence: every pair against PyTorch, and against the mean over draws."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import distributions as D
from numbagrad.distributions.kl import _pairs

from .rows import CLASSES, LOC, TRIL

LOC_SCALE = [{"loc": [0.5, -1.0], "scale": [0.7, 2.0]}, {"loc": [0.2, 0.0], "scale": [1.0, 3.0]}]
CHANCE = [{"probs": [0.3, 0.8]}, {"probs": [0.5, 0.2]}]
WEIGHTS = [{"probs": CLASSES}, {"probs": [[0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]}]
PARAMETERS = {
    "Normal": LOC_SCALE, "Laplace": LOC_SCALE, "Gumbel": LOC_SCALE, "Cauchy": LOC_SCALE,
    "HalfNormal": [{"scale": [0.7, 2.0]}, {"scale": [1.0, 3.0]}],
    "HalfCauchy": [{"scale": [0.7, 2.0]}, {"scale": [1.0, 3.0]}],
    "Uniform": [{"low": [0.1, 0.6], "high": [0.4, 0.9]}, {"low": [-2.0, 0.0], "high": [4.0, 1.0]}],
    "Exponential": [{"rate": [0.5, 3.0]}, {"rate": [1.0, 0.2]}],
    "Pareto": [{"scale": [0.5, 2.0], "alpha": [2.5, 4.0]},
               {"scale": [0.05, 0.3], "alpha": [2.0, 3.0]}],
    "Gamma": [{"concentration": [0.4, 3.0], "rate": [0.5, 2.0]},
              {"concentration": [2.0, 0.3], "rate": [1.0, 3.0]}],
    "Beta": [{"concentration1": [0.5, 3.0], "concentration0": [2.0, 1.5]},
             {"concentration1": [2.0, 0.3], "concentration0": [1.0, 3.0]}],
    "Dirichlet": [{"concentration": [[0.5, 2.0, 3.0], [1.5, 1.0, 0.8]]},
                  {"concentration": [[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]]}],
    "ContinuousBernoulli": [{"probs": [0.3, 0.4995]}, {"probs": [0.6, 0.2]}],
    "Wishart": [{"df": [2.5, 6.0], "scale_tril": TRIL},
                {"df": [3.0, 4.5], "scale_tril": TRIL[::-1]}],
    "Bernoulli": CHANCE, "Geometric": CHANCE,
    "Binomial": [{**p, "total_count": [5.0, 5.0]} for p in CHANCE],
    "Poisson": [{"rate": [0.3, 8.0]}, {"rate": [2.0, 5.0]}],
    "Categorical": WEIGHTS, "OneHotCategorical": WEIGHTS,
    "MultivariateNormal": [{"loc": LOC, "scale_tril": TRIL},
                           {"loc": [[1.0, 2.0], [0.0, 0.0]], "scale_tril": TRIL[::-1]}],
    "LowRankMultivariateNormal": [
        {"loc": LOC, "cov_factor": [[[1.0], [0.5]]] * 2, "cov_diag": [[0.5, 1.0], [2.0, 0.3]]},
        {"loc": LOC[::-1], "cov_factor": [[[0.2], [-1.0]]] * 2, "cov_diag": [[1.0, 1.0]] * 2},
    ],
}  # fmt: skip
PAIRS = sorted((p.__name__, q.__name__) for p, q in _pairs if p.__name__ in PARAMETERS)


def build(module, tensor, dtype, name: str, which: int):
    parameters = PARAMETERS[name][which]
    return getattr(module, name)(**{k: tensor(v, dtype=dtype) for k, v in parameters.items()})


ours = partial(build, D, ng.tensor, ng.float64)
pairs = pytest.mark.parametrize(("p", "q"), PAIRS)


@pytest.mark.peer
@pairs
def test_as_pytorch(p: str, q: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = partial(build, torch.distributions, torch.tensor, torch.float64)
    if p == "Wishart":
        return  # PyTorch's is wrong for batches, far from the mean over its own draws
    for first, second in ((0, 1), (1, 0), (1, 1)):
        found = D.kl_divergence(ours(p, first), ours(q, second))
        truth = torch.distributions.kl_divergence(theirs(p, first), theirs(q, second))
        found, truth = found.numpy(), truth.detach().numpy()
        if {p, q} == {"ContinuousBernoulli", "Uniform"}:  # infinite there for [0, 1] itself too
            known = np.isfinite(truth)
            found, truth = found[known], truth[known]
        np.testing.assert_allclose(found, truth, rtol=1e-8, atol=1e-12)


@pytest.mark.peer
def test_pytorch_has_no_other_pairs() -> None:
    kl = pytest.importorskip("torch.distributions.kl")
    theirs = {(p.__name__, q.__name__) for p, q in kl._KL_REGISTRY}
    known = {p for p in theirs if all(hasattr(D, name) for name in p)}
    # Others may have registered more: the example of ``register_kl`` does.
    ours = {(p.__name__, q.__name__) for p, q in _pairs if hasattr(D, p.__name__)}
    # The first it has as a transformed Cauchy, the second as an exponential family.
    assert known == ours - {("HalfCauchy", "HalfCauchy"), ("Wishart", "Wishart")}


@pairs
def test_as_the_mean_over_draws(p: str, q: str) -> None:
    first, second = ours(p, 0), ours(q, 1)
    found = D.kl_divergence(first, second).numpy()
    ng.manual_seed(8)
    D.Distribution.set_default_validate_args(False)  # draws out of q's support
    try:
        second = ours(q, 1)
        x = first.sample((50_000,))
        gap = (first.log_prob(x) - second.log_prob(x)).numpy()
    finally:
        D.Distribution.set_default_validate_args(True)
    for i in range(2):
        if np.isfinite(found[i]):
            error = gap[:, i].std() / len(gap) ** 0.5
            assert abs(gap[:, i].mean() - found[i]) < 5 * error + 1e-9


def test_of_itself_it_is_zero() -> None:
    for name in PARAMETERS:
        if name in ("Gumbel",):
            continue
        np.testing.assert_allclose(
            D.kl_divergence(ours(name, 0), ours(name, 0)).numpy(), 0, atol=1e-12
        )
    np.testing.assert_allclose(
        D.kl_divergence(ours("Gumbel", 0), ours("Gumbel", 0)).numpy(), 0, atol=1e-10
    )


def test_where_q_is_never_it_is_infinite() -> None:
    sure = D.Categorical(probs=ng.tensor([0.0, 1.0])), D.Categorical(probs=ng.tensor([0.5, 0.5]))
    assert D.kl_divergence(*sure[::-1]).item() == float("inf")
    assert D.kl_divergence(*sure).item() == pytest.approx(np.log(2))
    bernoulli = D.Bernoulli(probs=ng.tensor(0.5)), D.Bernoulli(probs=ng.tensor(1.0))
    assert D.kl_divergence(*bernoulli).item() == float("inf")
    assert D.kl_divergence(D.Uniform(0.0, 2.0), D.Uniform(0.0, 1.0)).item() == float("inf")
    assert D.kl_divergence(D.Uniform(-1.0, 2.0), D.Exponential(1.0)).item() == float("inf")
    more = D.Binomial(4, probs=ng.tensor(0.5)), D.Binomial(3, probs=ng.tensor(0.5))
    assert D.kl_divergence(*more).item() == float("inf")
    with pytest.raises(NotImplementedError, match="more draws"):
        D.kl_divergence(*more[::-1])


def test_wrapped_distributions() -> None:
    p, q = ours("Normal", 0), ours("Normal", 1)
    plain = D.kl_divergence(p, q)
    assert D.kl_divergence(D.Independent(p, 1), D.Independent(q, 1)).item() == plain.sum().item()
    logs = [D.LogNormal(d.loc, d.scale) for d in (p, q)]
    assert D.kl_divergence(*logs).equal(plain)
    turned = [D.TransformedDistribution(d, D.AffineTransform(1.0, 2.0)) for d in (p, q)]
    assert D.kl_divergence(*turned).equal(plain)
    other = D.TransformedDistribution(q, D.AffineTransform(1.0, 3.0))
    with pytest.raises(NotImplementedError, match="transforms of p and q differ"):
        D.kl_divergence(turned[0], other)
    with pytest.raises(NotImplementedError, match="Independent of"):
        D.kl_divergence(D.Independent(p, 1), D.Independent(q, 0))


def test_unknown_pairs_and_ones_own() -> None:
    with pytest.raises(NotImplementedError, match="p type Normal and q type Poisson"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Poisson(1.0))
    with pytest.raises(TypeError, match="Expected a subclass of Distribution"):
        D.register_kl(int, D.Normal)

    class Mine(D.Normal):
        pass

    try:

        @D.register_kl(Mine, D.Normal)
        def nearer(p, q):
            return ng.tensor(-1.0)

        assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)).item() == -1
        assert D.kl_divergence(D.Normal(0.0, 1.0), Mine(0.0, 1.0)).item() == 0
    finally:
        del _pairs[Mine, D.Normal]


def test_of_classes_that_neither_has() -> None:
    """Masked logits leave no NaN in gradients."""
    a, b = (ng.tensor([0.0, -np.inf, x], requires_grad=True) for x in (1.0, 0.3))
    p, q = D.Categorical(logits=a), D.Categorical(logits=b)
    found = D.kl_divergence(p, q)
    found.backward()
    ours = [D.Categorical(logits=x.detach()[[0, 2]]) for x in (a, b)]
    assert found.item() == pytest.approx(D.kl_divergence(*ours).item())
    chance = [x.probs.detach().numpy() for x in (p, q)]
    np.testing.assert_allclose(b.grad.numpy(), chance[1] - chance[0], atol=1e-6)
    logs = [np.log(np.where(x > 0, x, 1)) for x in chance]
    slope = chance[0] * (logs[0] - logs[1] - found.item())
    np.testing.assert_allclose(a.grad.numpy(), slope, atol=1e-6)


def test_at_the_end_of_the_range() -> None:
    rate = ng.tensor([0.0, 0.0, 1.0])
    found = D.kl_divergence(D.Poisson(rate), D.Poisson(ng.tensor([0.0, 2.0, 0.0])))
    assert found.tolist() == [0.0, 2.0, np.inf]
    narrow = ng.tensor(1e-25, requires_grad=True)  # its square is no float32
    pairs = (D.Normal(0.0, narrow), D.Normal(0.0, 1.0)), (D.HalfNormal(narrow), D.HalfNormal(1.0))
    for p, q in pairs:
        gap = D.kl_divergence(p, q)
        assert gap.item() == pytest.approx(25 * np.log(10) - 0.5, rel=1e-6)
        assert ng.autograd.grad(gap, narrow)[0].isfinite()
