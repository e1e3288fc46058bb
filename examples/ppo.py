"""Balance a pole on a cart by PPO (Schulman et al., 2017), with the environment in NumPy.

python examples/ppo.py [--compile] [--updates N]
"""

import argparse

import matplotlib
import numpy as np
from tqdm.auto import tqdm

import numbagrad as ng
import numbagrad.nn.functional as F
from numbagrad import nn

matplotlib.use("Agg")
import matplotlib.pyplot as plt

CARTS, STEPS, LONGEST, GAMMA, LAMBDA = 16, 64, 500, 0.99, 0.95


class CartPoles:
    """Poles on carts (Barto, Sutton and Anderson, 1983), pushed left or right; reward 1 a step."""

    def __init__(self, count: int, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.state = self.random.uniform(-0.05, 0.05, (count, 4))
        self.age = np.zeros(count, int)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which poles fell or were let go, and the ages they had by then."""
        _, speed, angle, spin = self.state.T
        sin, cos = np.sin(angle), np.cos(angle)
        push = (np.where(action == 1, 10.0, -10.0) + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        pull = push - 0.05 * turn * cos / 1.1
        self.state = self.state + 0.02 * np.stack([speed, pull, spin, turn], 1)
        ages = self.age + 1
        done = (np.abs(self.state[:, [0, 2]]) > [2.4, np.pi / 15]).any(1) | (ages >= LONGEST)
        self.state[done] = self.random.uniform(-0.05, 0.05, (done.sum(), 4))
        self.age = np.where(done, 0, ages)
        return done, ages


def network(outputs, gain):
    layers = nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, outputs)
    for layer, scale in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


def clipped_loss(actor, critic, state, action, old, advantage, target):
    log_probs = F.log_softmax(actor(state), dim=-1)
    ratio = (log_probs.gather(1, action).squeeze(1) - old).exp()
    scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    gain = ng.min(scaled * ratio, scaled * ratio.clamp(0.8, 1.2)).mean()
    entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
    return 0.5 * F.mse_loss(critic(state).squeeze(-1), target) - gain - 0.01 * entropy


@ng.no_grad()
def played(actor, critic, poles, ages):
    """States, actions, their probabilities, advantages (Schulman et al., 2016) and returns."""
    seen = []
    for _ in range(STEPS):
        state = ng.as_tensor(poles.state, dtype=ng.float32)
        log_probs = F.log_softmax(actor(state), dim=-1)
        action = ng.multinomial(log_probs.exp(), 1)
        done, age = poles.step(action.squeeze(1).numpy())
        ages += age[done].tolist()
        chosen = log_probs.gather(1, action).squeeze(1)
        seen.append((state, action, chosen, ng.from_numpy(done).float()))
    states, actions, old, done = (ng.stack(s) for s in zip(*seen, strict=True))
    values = critic(states).squeeze(-1)
    after = critic(ng.as_tensor(poles.state, dtype=ng.float32)).squeeze(-1)
    advantage, more = ng.zeros_like(values), ng.zeros(CARTS)
    for t in reversed(range(STEPS)):
        more = 1 - values[t] + GAMMA * (1 - done[t]) * (after + LAMBDA * more)
        advantage[t], after = more, values[t]
    return [t.flatten(0, 1) for t in (states, actions, old, advantage, advantage + values)]


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="Balance a pole by PPO.")
    parser.add_argument("--compile", action="store_true", help="compile the step")
    parser.add_argument("--updates", type=int, default=100)
    options = parser.parse_args(arguments)
    ng.manual_seed(1)
    actor, critic, poles = network(2, 0.01), network(1, 1.0), CartPoles(CARTS)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = ng.optim.Adam(parameters, lr=2.5e-3, eps=1e-5)
    schedule = ng.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, options.updates)

    def step(*batch: ng.Tensor) -> None:
        optimizer.zero_grad()
        clipped_loss(actor, critic, *batch).backward()
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()

    train_step = ng.compile(step) if options.compile else step
    ages, curve = [0.0], [0.0]
    for _ in (progress := tqdm(range(options.updates), desc="updates")):
        batch = played(actor, critic, poles, ages)
        for rows in [r for _ in range(4) for r in ng.randperm(CARTS * STEPS).chunk(4)]:
            train_step(*[t[rows] for t in batch])
        schedule.step()
        curve.append(float(np.mean(ages[-50:])))
        progress.set_postfix(steps=f"{curve[-1]:.0f}")
    print(f"the last 50 poles stood for {curve[-1]:.0f} of {LONGEST} steps")
    figure, axes = plt.subplots()
    axes.plot(curve)
    axes.set(xlabel="update", ylabel="steps that the last 50 poles stood")
    figure.savefig("ppo.png", dpi=120)
    return curve[-1]


if __name__ == "__main__":
    main()
