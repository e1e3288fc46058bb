"""From the import of a library to the end of its first compiled training step, in a new process.

What compiles is compared: numbagrad, torch.compile, jax.jit and pytensor, each with an empty cache
folder, and again with the one that the first process has left, where a library keeps one unasked.

Run as a script, ``python -m benchmarks.cold <contender> <suite> <number> <threads>``, it is that
process: it prints its seconds as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

from .case import Row, beside_best
from .libraries import COMPILED, MODULES, python_of
from .measure import summary
from .processes import python

SUITE = "cold"
RUNS, THREADS = 3, 2
WORKLOADS = {
    "64-64-64-10, momentum": ("steps", 1),
    "784-256-128-10, momentum": ("steps", 3),
    "LeNet, momentum": ("steps", 6),
    "character transformer, AdamW": ("transformer_step", 0),
}
"""The suites whose steps these are, and their numbers there."""

CONTENDERS = (COMPILED, "torch.compile", "jax.jit", "pytensor")
KEPT = (COMPILED, "torch.compile", "pytensor")
"""Who finds on disk what another process has compiled, without being asked to keep it."""


def measure() -> list[Row]:
    """Two rows for each workload: with empty caches, and with what the first process left."""
    found = []
    for name, (suite, number) in WORKLOADS.items():
        cold: dict[str, list[float]] = {}
        warm: dict[str, list[float]] = {}
        reasons: dict[str, str] = {}
        for _ in range(RUNS):
            for contender in CONTENDERS:
                if contender in reasons:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    try:
                        first = seconds(contender, suite, number, folder)
                        again = seconds(contender, suite, number, folder)
                    except RuntimeError as error:
                        reasons[contender] = str(error)
                        continue
                cold.setdefault(contender, []).append(first)
                if contender in KEPT:
                    warm.setdefault(contender, []).append(again)
        found.append(_row(f"first step, empty cache, {name}", cold, reasons))
        found.append(_row(f"first step, warm cache, {name}", warm, reasons))
    return found


def seconds(contender: str, suite: str, number: int, folder: str) -> float:
    """What one process takes whose caches lie in ``folder``.

    Raises RuntimeError, with the last line of what it said, where the contender cannot do it.
    """
    arguments = ("-m", "benchmarks.cold", contender, suite, str(number), str(THREADS))
    caches = {
        "NUMBA_CACHE_DIR": folder,
        "TORCHINDUCTOR_CACHE_DIR": folder,
        "PYTENSOR_FLAGS": f"base_compiledir={folder}",
    }
    try:
        return python(
            *arguments,
            threads=THREADS,
            executable=python_of(contender),
            errors=subprocess.PIPE,
            TORCHINDUCTOR_COMPILE_THREADS=str(THREADS),
            **caches,
        )
    except subprocess.CalledProcessError as error:
        raise RuntimeError(error.stderr.strip().splitlines()[-1]) from None


def _row(name: str, times: Mapping[str, list[float]], reasons: Mapping[str, str]) -> Row:
    timings = {who: summary(runs) for who, runs in times.items()}
    missing = "".join(f"; no {who}: {why}" for who, why in reasons.items())
    return beside_best(
        SUITE, name, COMPILED, CONTENDERS[1:], timings, threads=THREADS, note=missing
    )


def main(contender: str, suite: str, number: int, threads: int) -> None:
    """Import, build, run once; print the seconds of it all."""
    module = importlib.import_module(f"benchmarks.{suite}")  # NumPy alone
    start = time.perf_counter()
    importlib.import_module(MODULES.get(contender, "numbagrad"))
    run, results = module.build(contender, number, threads)
    run()
    results()
    took = time.perf_counter() - start
    print(json.dumps(took), flush=True)
    os._exit(0)  # helpers and thread pools that are still at work are not waited for


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
