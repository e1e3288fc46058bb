"""An optimiser's step over 100 tensors of 100 to 5000 elements, whose gradients are there.

torch takes part three times: as it comes, and in its foreach and fused forms. jax has no optimisers
of its own and is given the update as a pure function with donated buffers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .case import COMPILED_AT_MOST, uniform
from .contenders import Step
from .libraries import COMPILED, EAGER, load_jax, load_torch
from .updates import LR, MOMENTUM, slots, update

SUITE = "optimisers"
TENSORS, SMALLEST, LARGEST = 100, 100, 5000


@dataclass(frozen=True)
class Update:
    """``optimizer`` ("momentum", "Adam" or "AdamW") on so many tensors.

    Results are how far the parameters have moved: their last digits would hide a wrong rule.
    """

    optimizer: str
    tensors: int = TENSORS
    tolerance: float = 1e-2
    at_most: float = COMPILED_AT_MOST

    @property
    def name(self) -> str:
        """The optimiser and the number of tensors in words."""
        return f"{self.optimizer}, {self.tensors} tensors"

    @property
    def contenders(self) -> tuple[str, ...]:
        """Who may run it."""
        return tuple(CONTENDERS)

    def arrays(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Parameters and gradients: the same at every call."""
        sizes = np.linspace(SMALLEST, LARGEST, self.tensors).astype(int)
        return [uniform(n) for n in sizes], [uniform(n + 1)[1:] for n in sizes]

    def build(self, contender: str, threads: int) -> Step:
        """One step, and what returns how far the parameters have moved."""
        run, parameters = CONTENDERS[contender](self, threads)
        start = self.arrays()[0]
        return run, lambda: [x - y for x, y in zip(parameters(), start, strict=True)]


def numbagrad_compiled(work: Update, threads: int) -> Step:
    """``optimizer.step`` given to ``ng.compile``."""
    ng = importlib.import_module("numbagrad")
    return _stepped(ng, work, ng.compile)


def numbagrad_eager(work: Update, threads: int) -> Step:
    """``optimizer.step`` as it is."""
    return _stepped(importlib.import_module("numbagrad"), work)


def torch_form(**options: Any) -> Callable[[Update, int], Step]:
    """torch's optimiser with these options."""
    return lambda work, threads: _stepped(load_torch(threads), work, **options)


def torch_compiled(work: Update, threads: int) -> Step:
    """torch.compile of ``optimizer.step``."""
    torch = load_torch(threads)
    return _stepped(torch, work, torch.compile)


def jax_jit(work: Update, threads: int) -> Step:
    """jax.jit of the update."""
    jax = load_jax(threads)
    jnp = importlib.import_module("jax.numpy")
    parameters, gradients = (list(map(jnp.asarray, arrays)) for arrays in work.arrays())
    state = [jnp.zeros_like(p) for p in parameters for _ in range(slots(work.optimizer))]

    def step(parameters: Any, state: Any, count: Any, gradients: Any) -> Any:
        return update(jnp, work.optimizer, parameters, gradients, state, count)

    compiled = jax.jit(step, donate_argnums=(0, 1, 2))
    held: list[Any] = [parameters, state, jnp.zeros(())]

    def run() -> None:
        held[:] = compiled(*held, gradients)
        jax.block_until_ready(held[0])

    return run, lambda: [np.asarray(p) for p in held[0]]


CONTENDERS: dict[str, Callable[[Update, int], Step]] = {
    COMPILED: numbagrad_compiled,
    EAGER: numbagrad_eager,
    "torch": torch_form(),
    "torch foreach": torch_form(foreach=True),
    "torch fused": torch_form(fused=True),
    "torch.compile": torch_compiled,
    "jax.jit": jax_jit,
}
"""By the names that reports use."""


def _stepped(
    lib: Any, work: Update, whole: Callable[[Any], Any] = lambda step: step, **options: Any
) -> Step:
    """``optimizer.step`` of numbagrad or torch, passed through ``whole``."""
    parameters, gradients = ([lib.tensor(x) for x in arrays] for arrays in work.arrays())
    for p, g in zip(parameters, gradients, strict=True):
        p.requires_grad_()
        p.grad = g
    if work.optimizer == "momentum":
        optimizer = lib.optim.SGD(parameters, lr=LR, momentum=MOMENTUM, **options)
    else:
        optimizer = getattr(lib.optim, work.optimizer)(parameters, lr=LR, **options)

    def step() -> None:
        optimizer.step()

    return whole(step), lambda: [p.detach().numpy() for p in parameters]


WORKLOADS = [Update("momentum"), Update("Adam"), Update("AdamW")]


def build(contender: str, number: int, threads: int) -> Step:
    """A step of one of ``WORKLOADS``."""
    return WORKLOADS[number].build(contender, threads)
