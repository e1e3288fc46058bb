"""The digits MLP's first training step in a new process, with an empty and with a warm cache.

Measured op by op, and with the whole step given to ``ng.compile``.

Run as a script it is that process: it prints how many seconds each part took as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

from .case import Row, compile_step, load_peer, timed_row
from .measure import summary
from .processes import python

SUITE = "first_step"
EMPTY_RUNS, WARM_RUNS = 3, 7


def measure() -> list[Row]:
    """Rows for the empty cache (peer: none) and the warm one (peer: the same script on torch)."""
    empty, warm, peer = [], [], []
    compiled_empty, compiled_warm = [], []
    for _ in range(EMPTY_RUNS):
        with tempfile.TemporaryDirectory() as folder:
            empty.append(_process("numbagrad", folder))
        with tempfile.TemporaryDirectory() as folder:
            compiled_empty.append(_process("numbagrad", folder, "compiled"))
    with tempfile.TemporaryDirectory() as folder:
        _process("numbagrad", folder)
        _process("numbagrad", folder, "compiled")
        for _ in range(WARM_RUNS):
            warm.append(_process("numbagrad", folder))
            compiled_warm.append(_process("numbagrad", folder, "compiled"))
            if load_peer() is not None:
                peer.append(_process("torch", folder))
    return [
        *_rows("empty cache", empty, [], 6.0),
        *_rows("warm cache", warm, peer, 1.0),
        _compiled_row("first compiled step, empty cache", "first step", compiled_empty, 2.5),
        _compiled_row("first compiled step, warm cache", "after import", compiled_warm, 0.3),
    ]


def _process(library: str, cache: str, *mode: str) -> dict[str, Any]:
    return python("-m", "benchmarks.first_step", library, *mode, NUMBA_CACHE_DIR=cache)


def _compiled_row(name: str, key: str, runs: list[dict[str, Any]], asked: float) -> Row:
    """The step alone with an empty cache; with a warm one all that follows the import."""
    middle = sorted(runs, key=lambda run: run[key])[len(runs) // 2]
    return _row(name, key, runs, [], asked, _where(middle))


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
        if key in run
    )
    slowest = ", ".join(f"{name} {seconds:.2f}" for name, seconds in run["slowest"])
    return (
        f"{parts}; {run['compiled']} signatures compiled in {run['compiling']:.2f}, "
        f"{run['loaded']} loaded in {run['loading']:.2f}"
        + (f"; slowest to compile: {slowest}" if slowest else "")
    )


def _observe_loads(seen: dict[str, Any]) -> None:
    """Let numbagrad's store report to ``seen`` what it loads."""
    from numbagrad.kernels import store

    load = store.KernelCache.load_overload

    def timed_load(self: Any, *arguments: Any) -> Any:
        start = time.perf_counter()
        loaded = load(self, *arguments)
        if loaded is not None:
            seen["loaded"] += 1
            seen["loading"] += time.perf_counter() - start
        return loaded

    setattr(store.KernelCache, load.__name__, timed_load)


def _observe_compilations() -> Any:
    """A list of what Numba compiles, from now on."""
    from numba.core import event

    from numbagrad.kernels.compilations import Compilations

    seen = Compilations()
    event.register("numba:compile", seen)
    return seen.found


def main(library: str, compiled: bool = False) -> None:
    """Import ``library``, build the model, train two steps; print the seconds of each part.

    compiled: the step is one function, compiled as a whole, and its parts cannot be told apart.
    """
    import importlib

    start = time.perf_counter()
    lib: Any = importlib.import_module(library)
    imported = time.perf_counter()
    seen: dict[str, Any] = {"loaded": 0, "loading": 0.0}
    found: Any = []
    if library == "numbagrad":
        _observe_loads(seen)
        found = _observe_compilations()

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

    def clock() -> None:
        times.append(time.perf_counter())

    def step(images: Any, targets: Any, passed: Any = lambda: None) -> Any:
        optimizer.zero_grad()
        loss = layers.functional.cross_entropy(model(images), targets)
        passed()
        loss.backward()
        passed()
        optimizer.step()
        return loss

    parts = {}
    if compiled:
        step = compile_step(lib, step)
    for _ in range(2):
        loss = step(images, targets) if compiled else step(images, targets, clock)
        clock()
    assert np.isfinite(loss.item())
    if not compiled:
        parts = {
            "forward": times[1] - times[0],
            "backward": times[2] - times[1],
            "optimizer": times[3] - times[2],
        }
    ends = times[:: len(times) // 2]  # of the model, the first step and the second

    signatures = sorted(((c.name, c.seconds) for c in found), key=lambda item: -item[1])
    report = {
        "import": imported - start,
        "model": ends[0] - began,
        **parts,
        "first step": ends[1] - ends[0],
        "second step": ends[2] - ends[1],
        "after import": ends[1] - began,
        "total": (imported - start) + (ends[1] - began),
        "compiled": len(signatures),
        "compiling": sum(seconds for _, seconds in signatures),
        "loaded": seen["loaded"],
        "loading": seen["loading"],
        "slowest": signatures[:5],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], "compiled" in sys.argv[2:])
