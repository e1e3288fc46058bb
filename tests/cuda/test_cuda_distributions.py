"""Distributions on the device: the CPU's numbers and gradients, draws included."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import distributions as D
from numbagrad.ops.sampling import draw_binomial, draw_poisson, standard_gamma

pytestmark = pytest.mark.cuda

SHAPES = [0.01, 0.3, 1.0, 2.5, 50.0, 100.0, 1e4]
CHANCES = [0.5, 0.0, 0.9, 1.0, 0.5, 0.7, 0.01]


@pytest.mark.parametrize("kind", [ng.float32, ng.float64], ids=str)
def test_kernels_of_draws(kind) -> None:
    found = []
    for place in ("cpu", "cuda"):
        ng.manual_seed(3)
        a = ng.tensor(SHAPES, dtype=kind, device=place).requires_grad_()
        p = ng.tensor(CHANCES, dtype=kind, device=place)
        x, logs = standard_gamma(a), standard_gamma(a, logarithm=True)
        (logs.sum() + x.sum()).backward()
        drawn = [x, logs, a.grad, draw_poisson(a), draw_binomial(a.detach().ceil(), p)]
        drawn += [ng.igamma(a, a + 0.3), ng.igammac(a, a * 0.9)]
        drawn += [draw_poisson(-a), standard_gamma(-a), draw_binomial(a, p - 2)]  # NaN
        found.append([t.detach().cpu().numpy() for t in drawn])
    for ours, theirs in zip(*found[::-1], strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-6 if kind is ng.float32 else 1e-10)


MAKE = {
    "Normal": lambda t: D.Normal(t([0.5, -1.0]), 2.0),
    "Laplace": lambda t: D.Laplace(t([0.5, -1.0]), t([0.7, 2.0])),
    "Gamma": lambda t: D.Gamma(t([0.5, 3.0]), t([0.7, 2.0])),
    "Beta": lambda t: D.Beta(t([0.5, 3.0]), t([0.7, 2.0])),
    "Dirichlet": lambda t: D.Dirichlet(t([[0.5, 3.0, 1.0]])),
    "StudentT": lambda t: D.StudentT(t([2.5, 9.0])),
    "Bernoulli": lambda t: D.Bernoulli(logits=t([0.5, -1.0])),
    "Binomial": lambda t: D.Binomial(7, probs=t([0.5, 0.2])),
    "Geometric": lambda t: D.Geometric(probs=t([0.5, 0.2])),
    "Poisson": lambda t: D.Poisson(t([0.5, 20.0])),
    "Categorical": lambda t: D.Categorical(logits=t([[0.5, -1.0, 0.2]])),
    "OneHotCategorical": lambda t: D.OneHotCategorical(probs=t([[0.5, 0.3, 0.2]])),
    "Multinomial": lambda t: D.Multinomial(5, probs=t([[0.5, 0.3, 0.2]])),
    "Relaxed": lambda t: D.RelaxedOneHotCategorical(0.5, logits=t([[0.5, 0.3, 0.2]])),
    "Mixture": lambda t: D.MixtureSameFamily(
        D.Categorical(logits=t([0.5, 0.1])), D.Normal(t([0.0, 2.0]), 1.0)
    ),
    "Squashed": lambda t: D.TransformedDistribution(D.Normal(t([0.1]), 1.0), D.TanhTransform()),
}


@pytest.mark.parametrize("name", MAKE)
def test_draws_and_log_probs(name) -> None:
    found = []
    for place in ("cpu", "cuda"):
        leaves: list[ng.Tensor] = []

        def tensor(values, place=place, leaves=leaves):
            leaves.append(ng.tensor(values, device=place).requires_grad_())
            return leaves[-1]

        ng.manual_seed(4)
        ours = MAKE[name](tensor)
        x = ours.rsample((3,)) if ours.has_rsample else ours.sample((3,))
        ours.log_prob(x).sum().backward()
        drawn = [x, ours.log_prob(x), *[leaf.grad for leaf in leaves]]
        assert x.device.type == place
        found.append([t.detach().cpu().numpy() for t in drawn])
    for ours, theirs in zip(*found[::-1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


def test_a_divergence_and_its_gradient() -> None:
    found = []
    for place in ("cpu", "cuda"):
        loc = ng.tensor([0.5, -1.0], device=place).requires_grad_()
        zero = ng.zeros(2, device=place)
        D.kl_divergence(D.Normal(loc, 2.0), D.Normal(zero, 1.0)).sum().backward()
        found.append(loc.grad.cpu().tolist())
    assert found[0] == pytest.approx(found[1])


def test_a_compiled_step_draws_anew_each_time() -> None:
    def step(a):
        gamma = D.Gamma(a, 2.0)
        x = gamma.rsample()
        (grad,) = ng.autograd.grad(gamma.log_prob(x).sum() + x.sum(), a)
        counts = D.Poisson(a).sample(), D.Binomial(9, probs=a / 9).sample()
        return x, grad, *counts, D.Categorical(logits=a).log_prob(ng.tensor(1, device=a.device))

    def twice(run, place):
        ng.manual_seed(5)
        a = ng.tensor([0.5, 3.0, 8.0], device=place).requires_grad_()
        return [t.detach().cpu().numpy() for _ in range(2) for t in run(a)]

    eager, compiled = twice(step, "cpu"), twice(ng.compile(step), "cuda")
    assert not np.array_equal(compiled[0], compiled[5])
    for ours, theirs in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
