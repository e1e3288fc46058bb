"""Resident memory over 10,000 training steps of the digits MLP, sampled every hundred.

Run as a script it is the process that trains: it prints the samples in MiB as JSON.
"""

from __future__ import annotations

import json
import os
from typing import Any

from .case import Row
from .processes import python

SUITE = "memory"
STEPS, EVERY = 10_000, 100


def measure() -> list[Row]:
    """One row: the largest sample above the one after the first hundred steps."""
    samples = python("-m", "benchmarks.memory")
    first, rest = samples[0], samples[1:]
    return [
        Row(
            SUITE,
            f"growth from step {EVERY} to {STEPS}",
            "MiB",
            max(rest) - first,
            asked=1.0,
            asked_of_ratio=False,
            note=f"{first:.1f} MiB after {EVERY} steps, {rest[-1]:.1f} at the end",
        )
    ]


def resident() -> float:
    """MiB of this process that stand in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    """Train on random images; the loss is read at each step, as a user's loop does."""
    import numpy as np

    import numbagrad as ng

    from .training import DIGITS, perceptron

    model: Any = perceptron(ng, DIGITS)
    optimizer = ng.optim.Adam(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)
    samples = []
    for step in range(1, STEPS + 1):
        x = ng.from_numpy(rng.random((32, DIGITS[0]), np.float32))
        labels = ng.from_numpy(rng.integers(0, DIGITS[-1], 32))
        optimizer.zero_grad()
        loss = ng.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        assert np.isfinite(loss.item())
        if step % EVERY == 0:
            samples.append(resident())
    print(json.dumps(samples))


if __name__ == "__main__":
    main()
