"""The most memory that twenty steps take above what stood before the first.

Compiled numbagrad beside eager numbagrad and, where it is installed, torch.

Run as a script it is one such process: it prints MiB as JSON. The caches are warm: what LLVM takes
to compile once is no part of a step.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .case import Row, compile_step, load_peer, uniform
from .processes import python

SUITE = "peak_memory"
STEPS, RUNS = 20, 3


def measure() -> list[Row]:
    """Two rows for each of ``WORKS``; neither eager numbagrad nor torch may need less."""
    rows = []
    modes = ["compiled", "eager", *(["torch"] if load_peer() is not None else [])]
    for name in WORKS:
        peaks: dict[str, list[float]] = {mode: [] for mode in modes}
        for i in range(RUNS + 1):
            for mode in peaks:
                peak = python("-m", "benchmarks.peak_memory", name, mode)
                if i:  # the first fills the cache
                    peaks[mode].append(peak)
        ours, *others = (sorted(values)[RUNS // 2] for values in peaks.values())
        for mode, peer in zip(modes[1:], others, strict=True):
            rows.append(Row(SUITE, f"{name}, compiled / {mode}", "MiB", ours, peer=peer, asked=1.0))
    return rows


def perceptron_step(lib: Any) -> Callable[[Any], Any]:
    """A training step of 784-1024-1024-10 on 1024 rows."""
    from .training import perceptron

    model = perceptron(lib, (784, 1024, 1024, 10))
    optimizer = lib.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    x, labels = lib.tensor(uniform(1024, 784)), lib.arange(1024) % 10

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return _with(step, x)


def elementwise_step(lib: Any) -> Callable[[Any], Any]:
    """Forward and backward of twenty elementwise operations on 2^22 elements."""
    x = lib.tensor(uniform(1 << 22), requires_grad=True)

    def step(x: Any) -> Any:
        x.grad = None
        y = x
        for k in range(5):
            y = (y * x + 0.25 * k).tanh().exp()
        loss = y.mean()
        loss.backward()
        return loss

    return _with(step, x)


WORKS: dict[str, Callable[[Any], Any]] = {
    "784-1024-1024-10 batch 1024": perceptron_step,
    "twenty elementwise": elementwise_step,
}


def _with(step: Callable[[Any], Any], x: Any) -> Callable[[Any], Any]:
    """A function that takes what to do with ``step`` and returns the call of one step."""

    def prepare(whole: Callable[[Any], Any]) -> Callable[[], Any]:
        call = whole(step)
        return lambda: call(x)

    return prepare


def status(key: str) -> float:
    """MiB that Linux reports for this process under ``key``: VmRSS now, VmHWM at most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def main(name: str, mode: str) -> None:
    """Run the steps; print how far the peak went above the start."""
    import numpy as np

    lib: Any = importlib.import_module("torch" if mode == "torch" else "numbagrad")
    compile_step(lib, lambda x: x @ x)(lib.ones(8, 8))  # so that what is loaded late is there
    prepare: Any = WORKS[name](lib)
    call = prepare((lambda step: compile_step(lib, step)) if mode == "compiled" else lambda s: s)
    before = status("VmRSS")
    for _ in range(STEPS):
        loss = call()
    assert np.isfinite(loss.item())
    print(json.dumps(status("VmHWM") - before))


if __name__ == "__main__":
    main(*sys.argv[1:])
