"""A loop in Python over time steps, as users write it: an LSTM's cell 32 times, then SGD.

Each contender gets the whole loop, in a new process with empty caches: how long the first step
takes, with what is compiled in it, and how long a later one.

Run as a script it is that process: it prints its seconds and losses as JSON.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .case import Row, beside_best
from .libraries import load_jax, load_torch, training_step
from .measure import summary
from .processes import python

SUITE = "unrolled"
STEPS, BATCH, WORDS, WIDTH, HIDDEN = 32, 16, 50, 32, 64
LR = 0.1
RUNS, LATER, THREADS = 3, 20, 2
PEERS = ("torch.compile", "jax.jit", "torch")
SHAPES = {
    "words": (WORDS, WIDTH),
    "into": (4 * HIDDEN, WIDTH),
    "again": (4 * HIDDEN, HIDDEN),
    "into_bias": (4 * HIDDEN,),
    "again_bias": (4 * HIDDEN,),
    "out": (WORDS, HIDDEN),
    "out_bias": (WORDS,),
}


def measure() -> list[Row]:
    """Two rows: the first step against the fastest that compiles, a later one against the best."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ("numbagrad", *PEERS)}
    for _ in range(RUNS):
        for name, runs in found.items():
            if name == "numbagrad" or _there(name):
                runs.append(_process(name))
    losses = [run["losses"] for runs in found.values() for run in runs]
    np.testing.assert_allclose(losses, losses[:1] * len(losses), rtol=1e-4)
    return [
        _row(f"first step of {STEPS} cells", "first", found, ("torch.compile", "jax.jit")),
        _row(f"step of {STEPS} cells", "later", found, PEERS),
    ]


def _there(name: str) -> bool:
    return importlib.util.find_spec(name.partition(".")[0]) is not None


def _process(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        caches: Any = {"NUMBA_CACHE_DIR": folder, "TORCHINDUCTOR_CACHE_DIR": folder}
        return python("-m", "benchmarks.unrolled", name, threads=THREADS, **caches)


def _row(name: str, key: str, found: dict[str, list[Any]], peers: tuple[str, ...]) -> Row:
    times = {who: summary([run[key] for run in runs]) for who, runs in found.items() if runs}
    return beside_best(SUITE, name, "numbagrad", peers, times, asked=1.1, threads=THREADS)


def arrays() -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Parameters, words and the words to be told."""
    draw = np.random.default_rng(0)
    made = {n: draw.normal(0, 0.1, shape).astype(np.float32) for n, shape in SHAPES.items()}
    return made, *draw.integers(0, WORDS, (2, BATCH, STEPS))


def of_torch(lib: Any, wrap: Callable[[Any], Any], of_loss: Any = lambda f: f) -> Any:
    """One step on numbagrad or torch. wrap: what the step is given to; of_loss: the loss."""
    values, x, y = arrays()
    cell, words = lib.nn.LSTMCell(WIDTH, HIDDEN), lib.nn.Embedding(WORDS, WIDTH)
    out = lib.nn.Linear(HIDDEN, WORDS)
    parameters = [words.weight, *cell.parameters(), *out.parameters()]
    with lib.no_grad():
        for p, value in zip(parameters, values.values(), strict=True):
            p.copy_(lib.from_numpy(value))
    optimizer = lib.optim.SGD(parameters, lr=LR)

    def loss_of(x: Any, y: Any) -> Any:
        h = c = lib.zeros(BATCH, HIDDEN)
        logits = []
        for t in range(STEPS):
            h, c = cell(words(x[:, t]), (h, c))
            logits.append(out(h))
        together = lib.stack(logits, 1).reshape(-1, WORDS)
        return lib.nn.functional.cross_entropy(together, y.reshape(-1))

    step = wrap(training_step(optimizer, of_loss(loss_of)))
    given = lib.from_numpy(x), lib.from_numpy(y)
    return lambda: step(*given).item()


def of_jax() -> Any:
    """One step under jax.jit, the loop in Python as well."""
    jax = load_jax(THREADS)
    jnp = jax.numpy
    values, x, y = arrays()
    parameters = {n: jnp.asarray(value) for n, value in values.items()}

    def loss_of(p: Any, x: Any, y: Any) -> Any:
        h = c = jnp.zeros((BATCH, HIDDEN))
        logits = []
        for t in range(STEPS):
            into = p["words"][x[:, t]] @ p["into"].T + p["into_bias"]
            gates = into + h @ p["again"].T + p["again_bias"]
            i, f, g, o = jnp.split(gates, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            logits.append(h @ p["out"].T + p["out_bias"])
        logs = jax.nn.log_softmax(jnp.stack(logits, 1), axis=-1)
        return -jnp.take_along_axis(logs, y[..., None], axis=-1).mean()

    @jax.jit
    def step(p: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(p, x, y)
        return jax.tree.map(lambda a, g: a - LR * g, p, grads), loss

    held = [parameters]

    def run() -> float:
        held[0], loss = step(held[0], x, y)
        return float(loss)

    return run


def _step(name: str) -> Any:
    if name == "numbagrad":
        lib = importlib.import_module("numbagrad")
        return of_torch(lib, lib.compile)
    if name == "jax.jit":
        return of_jax()
    lib = load_torch(THREADS)
    compiled = {"of_loss": lib.compile} if name == "torch.compile" else {}
    return of_torch(lib, lambda f: f, **compiled)


def main(name: str) -> None:
    """Print the seconds of the first step and of a later one, and the losses."""
    step = _step(name)
    times, losses = [], []
    for _ in range(1 + LATER):
        start = time.perf_counter()
        losses.append(step())
        times.append(time.perf_counter() - start)
    later = sorted(times[1:])[LATER // 2]
    print(json.dumps({"first": times[0], "later": later, "losses": losses}))


if __name__ == "__main__":
    main(sys.argv[1])
