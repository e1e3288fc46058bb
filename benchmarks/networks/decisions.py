"""Networks that choose: an action, an advertisement, an expert."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .network import Network, Task, integers, normal, task

LOG_TWO_PI = math.log(2 * math.pi)


def perceptron(nn: Any, features_in: int, features: int) -> Any:
    """Two hidden layers of 256."""
    hidden = nn.Linear(features_in, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(256, features))


def follow(lib: Any, slow: Any, fast: Any) -> None:
    """Move the parameters of ``slow`` a little towards those of ``fast``."""
    with lib.no_grad():
        for copy, p in zip(slow.parameters(), fast.parameters(), strict=True):
            copy.mul_(0.995).add_(p, alpha=0.005)


def squashed(lib: Any, out: Any, noise: Any) -> tuple[Any, Any]:
    """Actions from -1 to 1 that a policy's ``out`` means, and logarithms of their densities."""
    mean, log_spread = out.chunk(2, -1)
    log_spread = log_spread.clamp(-20, 2)
    drawn = mean + log_spread.exp() * noise
    logs = -0.5 * ((drawn - mean) / log_spread.exp()) ** 2 - log_spread - 0.5 * LOG_TWO_PI
    logs = logs - 2 * (math.log(2) - drawn - lib.nn.functional.softplus(-2 * drawn))
    return lib.tanh(drawn), logs.sum(-1, keepdim=True)


def soft_actor_critic(lib: Any) -> Task:
    """A policy, two critics and their slow copies, width 256; 256 transitions, the noise is given.

    Haarnoja et al., 2018.
    """
    nn, F = lib.nn, lib.nn.functional
    states, actions, discount, entropy = 17, 6, 0.99, 0.2

    def critics() -> Any:
        return nn.ModuleList([perceptron(nn, states + actions, 1) for _ in range(2)])

    policy, judges, slow = perceptron(nn, states, 2 * actions), critics(), critics()
    of_judges = lib.optim.Adam(judges.parameters(), lr=3e-4)
    of_policy = lib.optim.Adam(policy.parameters(), lr=3e-4)

    def least(pair: Any, state: Any, action: Any) -> Any:
        both = lib.cat([state, action], 1)
        return lib.min(pair[0](both), pair[1](both))

    def worth(reward: Any, after: Any, done: Any, noise: Any) -> Any:
        action, logs = squashed(lib, policy(after), noise)
        return reward + discount * (1 - done) * (least(slow, after, action) - entropy * logs)

    def judges_loss(state: Any, action: Any, wanted: Any) -> Any:
        both = lib.cat([state, action], 1)
        return F.mse_loss(judges[0](both), wanted) + F.mse_loss(judges[1](both), wanted)

    def policy_loss(state: Any, noise: Any) -> Any:
        action, logs = squashed(lib, policy(state), noise)
        return (entropy * logs - least(judges, state, action)).mean()

    def step_of(compiled: Any) -> Any:
        return steps(*map(compiled, (worth, judges_loss, policy_loss)))

    def steps(worth: Any, judges_loss: Any, policy_loss: Any) -> Any:
        def step(*batch: Any) -> Any:
            state, action, reward, after, done, noise, noise_after = batch
            with lib.no_grad():
                wanted = worth(reward, after, done, noise_after)
            loss = judges_loss(state, action, wanted)
            of_judges.zero_grad()
            loss.backward()
            of_judges.step()
            of_policy.zero_grad()
            policy_loss(state, noise).backward()
            of_policy.step()
            follow(lib, slow, judges)
            return loss

        return step

    n = 256
    data = (
        *(normal(n, states), np.tanh(normal(n, actions)), normal(n, 1)),
        *(normal(n, states, seed=1), np.zeros((n, 1), np.float32)),
        *(normal(n, actions, seed=2), normal(n, actions, seed=3)),
    )
    return Task(nn.ModuleList([policy, judges, slow]), data, None, step_of)


def recommendation(lib: Any) -> Task:
    """Thirteen numbers and eight bags of three of 1000 ids, all their products; batch 256.

    Naumov et al., 2019 (DLRM).
    """
    nn, F = lib.nn, lib.nn.functional
    rows, columns = map(lib.from_numpy, np.tril_indices(9, -1))

    class Recommender(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            bags = [nn.EmbeddingBag(1000, 16, mode="sum") for _ in range(8)]
            self.bags = nn.ModuleList(bags)
            self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(16 + 36, 64), nn.ReLU(), nn.Linear(64, 1))

        def forward(self, x: Any, ids: Any) -> Any:
            dense = self.bottom(x)
            looked_up = [bag(ids[:, k]) for k, bag in enumerate(self.bags)]
            vectors = lib.stack([dense, *looked_up], 1)
            products = lib.bmm(vectors, vectors.transpose(1, 2))[:, rows, columns]
            return self.top(lib.cat([dense, products], 1)).squeeze(1)

    module = Recommender()

    def loss(x: Any, ids: Any, y: Any) -> Any:
        return F.binary_cross_entropy_with_logits(module(x, ids), y)

    data = normal(256, 13), integers(1000, 256, 8, 3), integers(2, 256).astype(np.float32)
    return task(lib, module, loss, data, "Adagrad")


def experts(lib: Any) -> Task:
    """Four perceptrons of width 64, of which a gate chooses two for each of 512 samples.

    Shazeer et al., 2017.
    """
    nn, F = lib.nn, lib.nn.functional
    width, number = 64, 4

    class Experts(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(width, number)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(width, 128), nn.GELU(), nn.Linear(128, width))
                for _ in range(number)
            )
            self.head = nn.Linear(width, 10)

        def forward(self, x: Any) -> Any:
            weights, chosen = lib.topk(self.gate(x), 2, -1)
            weights, out = F.softmax(weights, -1), lib.zeros_like(x)
            for k, expert in enumerate(self.experts):
                weight = (weights * (chosen == k)).sum(-1, keepdim=True)
                out = out + weight * expert(x)
            return self.head(out)

    module = Experts()

    def loss(x: Any, y: Any) -> Any:
        return F.cross_entropy(module(x), y)

    return task(lib, module, loss, (normal(512, width), integers(10, 512)))


NETWORKS = (
    Network("soft actor-critic", soft_actor_critic),
    Network("recommendation", recommendation),
    Network("mixture of experts", experts),
)
