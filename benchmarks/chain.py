"""A chain of twelve elementwise operations, forward and backward, beside moving its bytes.

Fused to the end, it reads x and the incoming gradient and writes y and the gradient of x; the peer
copies two arrays of that size. Run as a script it is the process that measures.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import numpy as np

from . import copying
from .case import Row, compile_step, load_peer, timed_row, uniform
from .measure import interleave
from .processes import python

SUITE = "chain"
SIZE = 1_000_000
AT_MOST = 1.3
THREADS = (1, 2)


def measure() -> list[Row]:
    """Rows for compiled and eager numbagrad and, where it is installed, torch, all by copying."""
    records = [r for n in THREADS for r in python("-m", "benchmarks.chain", str(n), threads=n)]
    return sorted((Row(**record) for record in records), key=lambda row: (row.name, row.threads))


def chain(x: Any) -> Any:
    """Twelve operations on each element."""
    y = x
    for k in range(6):
        y = y * x + (0.5 - 0.25 * k)
    return y


def steps(lib: Any) -> tuple[Any, Any]:
    """Forward and backward of the chain, compiled and as written; each returns y and x.grad."""
    x = lib.tensor(uniform(SIZE), requires_grad=True)
    g = lib.tensor(uniform(SIZE + 1)[1:])

    def step(x: Any, g: Any) -> Any:
        x.grad = None
        y = chain(x)
        y.backward(g)
        return y.detach(), x.grad

    compiled = compile_step(lib, step)
    return lambda: compiled(x, g), lambda: step(x, g)


def main(threads: int) -> None:
    """Print the rows for ``threads`` as JSON."""
    import numbagrad as ng

    compiled, eager = steps(ng)
    calls = {"compiled": compiled, "eager": eager}
    torch = load_peer()
    if torch is not None:
        torch.set_num_threads(threads)
        calls["torch"] = steps(torch)[1]
    results = [[t.numpy().copy() for t in call()] for call in calls.values()]
    for values in results[1:]:
        for x, y in zip(results[0], values, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    ng.get_num_threads()  # chooses the threading layer, for the copy too
    x, y, copy = uniform(2 * SIZE), uniform(2 * SIZE), copying.by_loop(threads)
    *timings, copied = interleave([*calls.values(), lambda: copy(y, x)])
    rate = 16 * SIZE / copied.median / 1e9
    rows = [
        timed_row(
            *(SUITE, f"twelve operations on 10^6, {name} / copy", timing, copied),
            threads=threads,
            asked=AT_MOST if name == "compiled" else None,
            note=f"{threads} threads: copying moves {rate:.1f} GB/s" if name == "compiled" else "",
        )
        for name, timing in zip(calls, timings, strict=True)
    ]
    print(json.dumps([dataclasses.asdict(row) for row in rows]))


if __name__ == "__main__":
    main(int(sys.argv[1]))
