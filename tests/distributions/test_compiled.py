"""Distributions inside ``ng.compile``: the eager numbers, draws included, call after call."""

from __future__ import annotations

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import distributions as D
from numbagrad import nn
from numbagrad.errors import RecordingError

from .rows import ROWS, Row


def everything(row: Row, x: ng.Tensor, parameters: tuple) -> list[ng.Tensor]:
    distribution = row.of(dict(zip(row.parameters, parameters, strict=True)))
    found = [distribution.log_prob(x), distribution.sample((3,))]
    if distribution.has_rsample:
        found.append(distribution.rsample((2,)))
    names = [name for name in ("mean", "variance", "mode") if row.has(name)]
    found += [getattr(distribution, name) for name in names]
    if row.has("entropy") and row.name != "Binomial":  # it sums over values: how many, Python asks
        found.append(distribution.entropy())
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_compiled_is_eager(row: Row) -> None:
    parameters = tuple(row.tensors().values())
    x = ng.tensor(row.values, dtype=ng.int64 if row.name == "Categorical" else ng.float64)
    ng.manual_seed(1)
    eager = [*everything(row, x, parameters), *everything(row, x, parameters)]
    step = ng.compile(lambda x, *parameters: everything(row, x, parameters))
    ng.manual_seed(1)
    compiled = [*step(x, *parameters), *step(x, *parameters)]
    for ours, theirs in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-9, atol=1e-12)


def trained(step_of, compiled: bool) -> list[float]:
    """The losses of five steps."""
    ng.manual_seed(2)
    step = step_of()
    step = ng.compile(step) if compiled else step
    return [step().item() for _ in range(5)]


def policy_gradient():
    """REINFORCE on a bandit: action 2 pays."""
    policy = nn.Linear(4, 3)
    optimizer = ng.optim.SGD(policy.parameters(), lr=0.5)
    state = ng.randn(64, 4)

    def step():
        optimizer.zero_grad()
        action = D.Categorical(logits=policy(state))
        drawn = action.sample()
        reward = (drawn == 2).float()
        loss = -(action.log_prob(drawn) * reward).mean() - 0.01 * action.entropy().mean()
        loss.backward()
        optimizer.step()
        return reward.mean()

    return step


def variational():
    """A variational autoencoder: normal codes, Bernoulli pixels."""
    encoder, decoder = nn.Linear(6, 4), nn.Linear(2, 6)
    optimizer = ng.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.05)
    pixels = (ng.rand(32, 6) > 0.5).float()

    def step():
        optimizer.zero_grad()
        mean, log_scale = encoder(pixels).chunk(2, -1)
        code = D.Normal(mean, log_scale.exp())
        seen = D.Independent(D.Bernoulli(logits=decoder(code.rsample())), 1)
        prior = D.Normal(ng.zeros(2), ng.ones(2))
        loss = D.kl_divergence(code, prior).sum(-1).mean() - seen.log_prob(pixels).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def gamma_rates():
    """A posterior of gamma numbers by their implicit gradients."""
    raw = nn.Parameter(ng.zeros(2))
    optimizer = ng.optim.Adam([raw], lr=0.1)
    counts = D.Poisson(4.0).sample((50,))

    def step():
        optimizer.zero_grad()
        shape, rate = raw.exp()
        posterior = D.Gamma(shape, rate)
        draws = posterior.rsample((8,))
        fit = D.Poisson(draws[:, None]).log_prob(counts).sum(-1).mean()
        loss = D.kl_divergence(posterior, D.Gamma(1.0, 1.0)) - fit
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize("step_of", [policy_gradient, variational, gamma_rates])
def test_a_training_step(step_of) -> None:
    eager, compiled = trained(step_of, False), trained(step_of, True)
    np.testing.assert_allclose(compiled, eager, rtol=2e-5)


def test_a_squashed_policy() -> None:
    """tanh of normal actions, with the cached inverse, as in soft actor-critic."""
    weight = ng.randn(3, 2).requires_grad_()
    state = ng.randn(16, 3)

    def loss():
        actions = D.Normal(state @ weight, 1.0)
        squashed = D.TransformedDistribution(actions, [D.TanhTransform(cache_size=1)])
        action = squashed.rsample()
        loss = squashed.log_prob(action).sum(-1).mean() + action.square().mean()
        loss.backward()
        return loss

    ng.manual_seed(3)
    eager, grad = loss(), weight.grad.clone()
    weight.grad = None
    step = ng.compile(loss)
    ng.manual_seed(3)
    assert step().item() == pytest.approx(eager.item(), rel=1e-5)
    np.testing.assert_allclose(weight.grad.numpy(), grad.numpy(), rtol=1e-4, atol=1e-6)


def test_values_are_not_checked_while_recording() -> None:
    step = ng.compile(lambda x, scale: D.Normal(0.0, scale).log_prob(x))
    assert step(ng.tensor(0.0), ng.tensor(-1.0)).isnan().item()
    with pytest.raises(ValueError, match="must match event_shape"):  # shapes are
        ng.compile(lambda x: D.Dirichlet(ng.ones(3)).log_prob(x))(ng.ones(2, 4))


def test_a_distribution_made_outside() -> None:
    weight = ng.zeros(3, requires_grad=True)
    action = D.Categorical(logits=weight)
    step = ng.compile(lambda x: action.log_prob(x))
    assert step(ng.tensor([0])).item() == pytest.approx(-np.log(3))
    assert action.probs.tolist() == pytest.approx([1 / 3] * 3)


def test_the_entropy_of_a_binomial_needs_a_number() -> None:
    p, n = ng.tensor([0.2, 0.5]), ng.tensor([4.0, 4.0])
    expected = D.Binomial(n, p).entropy().tolist()
    made = D.Binomial(4, p)
    for entropy in (lambda p: D.Binomial(4, p).entropy(), lambda p: made.entropy()):
        np.testing.assert_allclose(ng.compile(entropy)(p).tolist(), expected, rtol=1e-5)
    with pytest.raises(RecordingError, match="Give total_count as a Python int"):
        ng.compile(lambda n, p: D.Binomial(n, p).entropy())(n, p)
