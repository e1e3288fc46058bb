"""What a network of the survey is: a task made for a library, and how contenders step through it.

A field's file has a function for each network. It is given ``lib``, numbagrad or torch, and returns
a ``Task``; ``Network.build`` gives its parameters their values and makes the contender's step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..case import COMPILED_AT_MOST
from ..contenders import Step
from ..libraries import COMPILED, EAGER, training_step
from ..models import LR, library

CONTENDERS = (COMPILED, EAGER, "torch", "torch.compile")
SEED = 3
"""Of the first parameter's values. With 0 the radiance field is empty and has no gradient."""


def unchanged(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself: nothing compiles its parts."""
    return function


@dataclass(frozen=True)
class Task:
    """A module and what it is trained on.

    data: the batch, arrays in the order in which a step takes them.
    loss: of the batch, where one function is minimised; None where there are several.
    step: is given what compiles a function for torch, or leaves it as it is, puts all that is
    differentiated through it, and returns the training step, a function of the batch.
    """

    module: Any
    data: tuple[np.ndarray, ...]
    loss: Callable[..., Any] | None
    step: Callable[[Callable[..., Any]], Callable[..., Any]]


def task(
    lib: Any,
    module: Any,
    loss: Callable[..., Any],
    data: tuple[np.ndarray, ...],
    optimizer: str = "Adam",
    lr: float = LR,
    **options: Any,
) -> Task:
    """One loss, and the optimiser of that name over all parameters."""
    updates = getattr(lib.optim, optimizer)(module.parameters(), lr=lr, **options)
    return Task(module, data, loss, lambda compiled: training_step(updates, compiled(loss)))


@dataclass(frozen=True)
class Network:
    """A workload; its results are the loss and how far each parameter has moved.

    Of a move only the length is compared: where a gradient is nearly nothing, Adam moves by the
    sign of its rounding.

    make: the task in a library.
    random: whether steps drop values at random. Then the loss of a step need only be finite, and
    the result is the loss in eval mode, which drops none.
    """

    name: str
    make: Callable[[Any], Task]
    random: bool = False
    tolerance: float = 2e-2
    at_most: float = COMPILED_AT_MOST

    @property
    def contenders(self) -> tuple[str, ...]:
        """Who may run it."""
        return CONTENDERS

    def build(self, contender: str, threads: int) -> Step:
        """One step, and what returns its results.

        numbagrad compiles the whole step; torch.compile gets what is differentiated, and the
        optimiser stays as it is. What it cannot do is raised by the first step.
        """
        lib = library(contender, threads)
        made = self.make(lib)
        fill(lib, made.module)
        parameters = list(made.module.parameters())
        first = [p.detach().numpy().copy() for p in parameters]
        data = [lib.from_numpy(array) for array in made.data]
        if contender == "torch.compile":
            lib.compiler.reset()  # it gives up on a function that eight networks have called
            step = made.step(lib.compile)
        else:
            step = made.step(unchanged)
        call = lib.compile(step) if contender == COMPILED else step
        last: list[Any] = []

        def run() -> None:
            last[:] = [call(*data)]

        def results() -> list[np.ndarray]:
            loss = float(last[0].detach())
            if self.random:
                assert np.isfinite(loss), f"{self.name}: a step's loss is {loss}"
                return [np.asarray(loss_in_eval_mode(made, data))]
            pairs = zip(parameters, first, strict=True)
            moved = [np.linalg.norm(p.detach().numpy() - start) for p, start in pairs]
            return [np.asarray(loss), np.array(moved)]

        return run, results


def fill(lib: Any, module: Any) -> None:
    """Give each parameter values that depend on its place and shape, not on the library."""
    with lib.no_grad():
        for number, p in enumerate(module.parameters()):
            values = np.random.default_rng(SEED + number).uniform(-1.0, 1.0, tuple(p.shape))
            spread = float(np.prod(p.shape[1:])) ** -0.5 if p.dim() > 1 else 0.25
            p.copy_(lib.from_numpy(np.asarray(values * spread, np.float32)))


def loss_in_eval_mode(made: Task, data: list[Any]) -> float:
    """The loss of the module as it is asked, not trained. Gradients are on: torch's layers for
    attention would otherwise take another way.
    """
    assert made.loss is not None
    made.module.eval()
    loss = made.loss(*data)
    made.module.train()
    return float(loss.detach())


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Normally distributed float32, the same at every call."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def positive(*shape: int, seed: int = 0) -> np.ndarray:
    """Float32 between 0 and 1, the same at every call."""
    return np.random.default_rng(seed).random(shape, np.float32)


def integers(high: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Int64 from 0 to ``high - 1``, the same at every call."""
    return np.random.default_rng(seed).integers(0, high, shape)
