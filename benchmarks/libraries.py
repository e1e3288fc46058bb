"""The libraries compared: how each is loaded on a number of threads, and in which Python it lives.

``OURS`` and ``PEERS`` are the contenders' names, as reports print them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import Any

COMPILED, EAGER = "numbagrad compiled", "numbagrad eager"
OURS = (COMPILED, EAGER)
HANDWRITTEN = "handwritten"

MODULES = {
    "torch": "torch",
    "torch foreach": "torch",
    "torch fused": "torch",
    "torch.compile": "torch",
    "jax.jit": "jax",
    "HIPS autograd": "autograd",
    "mygrad": "mygrad",
    "pytensor": "pytensor",
}
"""The module that each peer needs; ``foreach`` and ``fused`` are forms of torch's optimisers."""

PEERS = tuple(MODULES)
EAGER_PEERS = ("torch", "torch foreach", "torch fused")


def python_of(contender: str) -> str:
    """This Python, or if it lacks the library the one named by ``PYTENSOR_PYTHON``.

    pytensor wants another Numba than numbagrad, so it lives in another environment, and those that
    only need NumPy may live there with it.
    """
    module = MODULES.get(contender)
    if module is None or importlib.util.find_spec(module) is not None:
        return sys.executable
    return os.environ.get("PYTENSOR_PYTHON", sys.executable)


def load_torch(threads: int) -> Any:
    """torch, working with ``threads``; torch.compile works in this process alone."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch = importlib.import_module("torch")
    torch.set_num_threads(threads)
    return torch


def training_step(optimizer: Any, loss_of: Callable[..., Any]) -> Callable[..., Any]:
    """The usual loop's body, on numbagrad or torch."""

    def step(*batch: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        return loss

    return step


def load_jax(threads: int) -> Any:
    """jax, whose thread pool is as large as the number of cores it may use when it starts."""
    jax = importlib.import_module("jax")
    if hasattr(os, "sched_setaffinity"):
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, sorted(cores)[:threads])
        jax.devices()
        os.sched_setaffinity(0, cores)
    return jax
