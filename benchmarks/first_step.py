"""The digits MLP's first training step in a new process, with an empty and with a warm cache.

Run as a script it is that process: it prints how many seconds each part took as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

from .case import Row, load_peer, timed_row
from .measure import summary
from .processes import python

SUITE = "first_step"
EMPTY_RUNS, WARM_RUNS = 3, 7


def measure() -> list[Row]:
    """Rows for the empty cache (peer: none) and the warm one (peer: the same script on torch)."""
    empty, warm, peer = [], [], []
    for _ in range(EMPTY_RUNS):
        with tempfile.TemporaryDirectory() as folder:
            empty.append(_process("numbagrad", folder))
    with tempfile.TemporaryDirectory() as folder:
        _process("numbagrad", folder)
        for _ in range(WARM_RUNS):
            warm.append(_process("numbagrad", folder))
            if load_peer() is not None:
                peer.append(_process("torch", folder))
    return _rows("empty cache", empty, [], 12.0) + _rows("warm cache", warm, peer, 1.5)


def _process(library: str, cache: str) -> dict[str, Any]:
    return python("-m", "benchmarks.first_step", library, NUMBA_CACHE_DIR=cache)


def _rows(name: str, ours: list[dict[str, Any]], peer: list[dict[str, Any]], asked: float) -> Any:
    middle = sorted(ours, key=lambda run: run["first step"])[len(ours) // 2]
    rows = [_row(f"first step, {name}", "first step", ours, peer, asked, _where(middle))]
    rows.append(_row(f"import to first step, {name}", "total", ours, peer, asked, ""))
    return rows


def _row(
    name: str,
    key: str,
    ours: list[dict[str, Any]],
    peer: list[dict[str, Any]],
    asked: float,
    note: str,
) -> Row:
    mine = summary([run[key] for run in ours])
    theirs = summary([run[key] for run in peer]) if peer else None
    return timed_row(
        SUITE,
        name,
        mine,
        theirs,
        asked=asked,
        asked_of_ratio=False,
        note=note,
    )


def _where(run: dict[str, Any]) -> str:
    """Where the time of one run went, as a sentence."""
    parts = ", ".join(
        f"{key} {run[key]:.2f}"
        for key in ("import", "model", "forward", "backward", "optimizer", "second step")
    )
    slowest = ", ".join(f"{name} {seconds:.2f}" for name, seconds in run["slowest"])
    return (
        f"{parts}; {run['compiled']} signatures compiled in {run['compiling']:.2f}, "
        f"{run['loaded']} loaded in {run['loading']:.2f}"
        + (f"; slowest to compile: {slowest}" if slowest else "")
    )


def _observe_numba(seen: dict[str, Any]) -> None:
    """Let Numba report to ``seen`` what it compiles, and numbagrad's store what it loads."""
    from numba.core import event

    from numbagrad.kernels import store

    class Compilations(event.Listener):
        def __init__(self) -> None:
            self.started: list[float] = []

        def on_start(self, event: Any) -> None:
            self.started.append(time.perf_counter())

        def on_end(self, event: Any) -> None:
            seconds = time.perf_counter() - self.started.pop()
            if not self.started:  # callees compiled on the way are counted with their caller
                name = event.data["dispatcher"].py_func.__name__
                seen["compiled"][f"{name} #{len(seen['compiled'])}"] = seconds

    load = store.KernelCache.load_overload

    def timed_load(self: Any, *arguments: Any) -> Any:
        start = time.perf_counter()
        loaded = load(self, *arguments)
        if loaded is not None:
            seen["loaded"] += 1
            seen["loading"] += time.perf_counter() - start
        return loaded

    store.KernelCache.load_overload = timed_load
    event.register("numba:compile", Compilations())


def main(library: str) -> None:
    """Import ``library``, build the model, train two steps; print the seconds of each part."""
    import importlib

    start = time.perf_counter()
    lib: Any = importlib.import_module(library)
    imported = time.perf_counter()
    seen: dict[str, Any] = {"compiled": {}, "loaded": 0, "loading": 0.0}
    if library == "numbagrad":
        _observe_numba(seen)

    import numpy as np

    from .training import DIGITS

    x = np.random.default_rng(0).random((32, DIGITS[0]), np.float32)
    labels = np.random.default_rng(0).integers(0, DIGITS[-1], 32)
    began = time.perf_counter()
    layers = lib.nn
    lib.manual_seed(0)
    model = layers.Sequential(
        layers.Linear(DIGITS[0], DIGITS[1]), layers.ReLU(), layers.Linear(DIGITS[1], DIGITS[2])
    )
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)
    images, targets = lib.from_numpy(x), lib.from_numpy(labels)

    times = [time.perf_counter()]
    for _ in range(2):
        optimizer.zero_grad()
        loss = layers.functional.cross_entropy(model(images), targets)
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        optimizer.step()
        times.append(time.perf_counter())
    assert np.isfinite(loss.item())

    compiled = sorted(seen["compiled"].items(), key=lambda item: -item[1])
    report = {
        "import": imported - start,
        "model": times[0] - began,
        "forward": times[1] - times[0],
        "backward": times[2] - times[1],
        "optimizer": times[3] - times[2],
        "first step": times[3] - times[0],
        "second step": times[6] - times[3],
        "total": (imported - start) + (times[3] - began),
        "compiled": len(compiled),
        "compiling": sum(seconds for _, seconds in compiled),
        "loaded": seen["loaded"],
        "loading": seen["loading"],
        "slowest": compiled[:5],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
