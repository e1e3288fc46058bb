"""Jacobians of a function on tensors: by backward passes, and by central differences.

A Jacobian is an array of float64; its rows are elements of an input, its columns elements of an
output. Start reading at ``Problem``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..tensor import Tensor
from ..tensor import wrap_any as from_numpy
from .passes import grad

__all__ = ["Problem", "as_tuple", "differentiable"]


def as_tuple(value: Any) -> tuple[Any, ...]:
    """``value`` as a tuple: lists are converted, anything else is its only member."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def differentiable(outputs: tuple[Any, ...]) -> list[tuple[int, Tensor]]:
    """The outputs that require a gradient, with their index."""
    return [(i, o) for i, o in enumerate(outputs) if isinstance(o, Tensor) and o.requires_grad]


def as_gradient(values: np.ndarray, out: Tensor) -> Tensor:
    """``values`` as an incoming gradient of ``out``; shares memory where the dtypes agree."""
    return from_numpy(np.asarray(values)).to(out.dtype)


@dataclass(frozen=True)
class Problem:
    """A function under test and what it is differentiated by.

    inputs: all arguments. positions: indices of those that need a gradient.
    """

    func: Callable[..., Any]
    inputs: tuple[Any, ...]
    positions: tuple[int, ...]

    @property
    def name(self) -> str:
        """The name of the function; that of the class for ``Op.apply``."""
        owner = getattr(self.func, "__self__", None)
        name = getattr(owner, "__name__", None) or getattr(self.func, "__name__", None)
        return name or type(self.func).__name__

    @property
    def variables(self) -> tuple[Tensor, ...]:
        """The arguments that need a gradient."""
        return tuple(self.inputs[i] for i in self.positions)

    def outputs(self) -> tuple[Any, ...]:
        """What the function returns for the inputs as they are now."""
        return as_tuple(self.func(*self.inputs))

    def gradients(self, outputs: Any, incoming: Any) -> list[np.ndarray]:
        """Gradients of the variables, zeros where there is none; the graph stays."""
        found = grad(outputs, self.variables, incoming, retain_graph=True, allow_unused=True)
        return [
            np.zeros(tuple(x.shape)) if g is None else values_of(g)
            for x, g in zip(self.variables, found, strict=True)
        ]

    def analytical(self, out: Tensor) -> list[np.ndarray]:
        """For each variable the Jacobian of ``out``: one backward pass per element of it."""
        jacobians = [np.zeros((x.numel(), out.numel())) for x in self.variables]
        seed = np.zeros(out.numel(), dtype=out.detach().numpy().dtype)
        incoming = as_gradient(seed.reshape(tuple(out.shape)), out)
        for column in range(out.numel()):
            seed[column] = 1.0
            found = grad(out, self.variables, incoming, retain_graph=True, allow_unused=True)
            for jacobian, g in zip(jacobians, found, strict=True):
                if g is not None:
                    jacobian[:, column] = g.detach().numpy().reshape(-1)
            seed[column] = 0.0
        return jacobians

    def numerical(self, position: int, eps: float) -> dict[int, np.ndarray]:
        """For each output that is a tensor, by index, its Jacobian from central differences."""
        values = self.inputs[position].data.numpy()
        jacobians = {
            i: np.zeros((values.size, o.numel()))
            for i, o in enumerate(self.outputs())
            if isinstance(o, Tensor)
        }
        step = np.zeros(values.shape)
        for row, at in enumerate(np.ndindex(values.shape)):
            step[at] = eps
            for index, slope in self.directional(position, step, eps).items():
                jacobians[index][row] = slope.reshape(-1)
            step[at] = 0.0
        return jacobians

    def directional(self, position: int, step: np.ndarray, eps: float) -> dict[int, np.ndarray]:
        """Central differences of each output that is a tensor, for a move by ``step`` = eps * u."""
        with moved(self.inputs[position], step):
            above = [values_of(o) if isinstance(o, Tensor) else None for o in self.outputs()]
        with moved(self.inputs[position], -step):
            below = self.outputs()
            return {
                i: (a - values_of(b)) / (2.0 * eps)
                for i, (a, b) in enumerate(zip(above, below, strict=True))
                if a is not None
            }


def values_of(x: Tensor) -> np.ndarray:
    """A copy of the elements of ``x`` as float64."""
    return np.array(x.detach().numpy(), dtype=np.float64)


@contextmanager
def moved(x: Tensor, step: np.ndarray) -> Iterator[None]:
    """``x`` with ``step`` added to its memory, and its very own values again afterwards."""
    memory = x.data.numpy()  # strided as x is; a write here is seen by x and leaves no history
    before = memory.copy()
    memory += step
    try:
        yield
    finally:
        memory[...] = before
