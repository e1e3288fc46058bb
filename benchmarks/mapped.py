"""A function over a batch of its arguments: ``vmap`` beside torch.func's and jax's.

Gradients of each sample, an ensemble of nets, and a Jacobian, of a net of two layers. Batched
forms turn small products into large ones; ours runs the function for each element, and compiled
it is a loop over one piece of native code.
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

SUITE = "mapped"

Maths = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""A library's tanh, and its logarithm of the softmax over the last dim."""
Form = tuple[Callable[..., Any], list[Any]]
"""A function and its arguments, arrays or tuples of them."""


def logits(maths: Maths, parameters: Any, x: Any) -> Any:
    """Two layers with tanh between them."""
    tanh, _ = maths
    weight, bias, weight2, bias2 = parameters
    return tanh(x @ weight.T + bias) @ weight2.T + bias2


def loss(maths: Maths, parameters: Any, x: Any, target: Any) -> Any:
    """Cross entropy to the probabilities ``target``, summed."""
    return -(maths[1](logits(maths, parameters, x)) * target).sum()


def _weights(sizes: tuple[int, int, int], *many: int) -> tuple[np.ndarray, ...]:
    n, hidden, m = sizes
    shapes = (hidden, n), (hidden,), (m, hidden), (m,)
    return tuple(uniform(*many, *shape) / np.float32(4) for shape in shapes)


def per_sample(func: Any, maths: Maths, sizes: tuple[int, int, int], many: int) -> Form:
    """The gradient of each of ``many`` samples by the weights they share."""

    def of_one(parameters: Any, x: Any, target: Any) -> Any:
        return loss(maths, parameters, x, target)

    mapped = func.vmap(func.grad(of_one), (None, 0, 0))
    return mapped, [_weights(sizes), uniform(many, sizes[0]), uniform(many, sizes[2]) ** 2]


def ensemble(func: Any, maths: Maths, sizes: tuple[int, int, int], many: int) -> Form:
    """The gradient of each of ``many`` nets, on the same 32 samples."""

    def of_one(parameters: Any, x: Any, target: Any) -> Any:
        return loss(maths, parameters, x, target)

    mapped = func.vmap(func.grad(of_one), (0, None, None))
    return mapped, [_weights(sizes, many), uniform(32, sizes[0]), uniform(32, sizes[2]) ** 2]


def jacobians(func: Any, maths: Maths, sizes: tuple[int, int, int], many: int) -> Form:
    """The Jacobian of the logits by each of ``many`` samples."""

    def of_one(x: Any, parameters: Any) -> Any:
        return logits(maths, parameters, x)

    mapped = func.vmap(func.jacrev(of_one), (0, None))
    return mapped, [uniform(many, sizes[0]), _weights(sizes)]


@dataclass(frozen=True)
class Mapped:
    """``form(func, maths, sizes, many)``, a function that is mapped over ``many`` elements."""

    name: str
    form: Callable[..., Form]
    sizes: tuple[int, int, int]
    many: int
    tolerance: float = 1e-4
    at_most: float = COMPILED_AT_MOST

    @property
    def contenders(self) -> tuple[str, ...]:
        """Who may run it."""
        return tuple(CONTENDERS)

    def build(self, contender: str, threads: int) -> Step:
        """The mapped call, and what returns its results as arrays."""
        run = CONTENDERS[contender](self, threads)
        return run, lambda: _arrays(run())


def _in_torch(lib: Any, work: Mapped) -> Form:
    maths = lib.tanh, lambda x: lib.nn.functional.log_softmax(x, -1)
    function, arguments = work.form(lib.func, maths, work.sizes, work.many)
    return function, [_each(lib.from_numpy, x) for x in arguments]


def numbagrad_compiled(work: Mapped, threads: int) -> Callable[[], Any]:
    """The mapped function given to ``ng.compile``."""
    ng = importlib.import_module("numbagrad")
    function, arguments = _in_torch(ng, work)
    compiled = ng.compile(function)
    return lambda: compiled(*arguments)


def numbagrad_eager(work: Mapped, threads: int) -> Callable[[], Any]:
    """Op by op."""
    function, arguments = _in_torch(importlib.import_module("numbagrad"), work)
    return lambda: function(*arguments)


def torch_eager(work: Mapped, threads: int) -> Callable[[], Any]:
    """torch.func, op by op."""
    function, arguments = _in_torch(load_torch(threads), work)
    return lambda: function(*arguments)


def torch_compiled(work: Mapped, threads: int) -> Callable[[], Any]:
    """torch.func under torch.compile, one graph."""
    torch = load_torch(threads)
    function, arguments = _in_torch(torch, work)

    def whole(*arguments: Any) -> Any:
        return function(*arguments)

    compiled = torch.compile(whole, fullgraph=True)
    torch.set_grad_enabled(False)  # for good: the process is this contender's own
    return lambda: compiled(*arguments)


def jax_jit(work: Mapped, threads: int) -> Callable[[], Any]:
    """jax.jit of jax.vmap."""
    jax = load_jax(threads)
    jnp = importlib.import_module("jax.numpy")
    maths = jnp.tanh, jax.nn.log_softmax
    function, arguments = work.form(jax, maths, work.sizes, work.many)
    compiled = jax.jit(function)
    there = [_each(jnp.asarray, x) for x in arguments]
    return lambda: jax.block_until_ready(compiled(*there))


CONTENDERS: dict[str, Callable[[Mapped, int], Callable[[], Any]]] = {
    COMPILED: numbagrad_compiled,
    EAGER: numbagrad_eager,
    "torch": torch_eager,
    "torch.compile": torch_compiled,
    "jax.jit": jax_jit,
}
"""By the names that reports use."""

SMALL, MIDDLE = (16, 32, 10), (64, 256, 10)
WORKLOADS = [
    Mapped("gradient of each of 64 samples, 16-32-10", per_sample, SMALL, 64),
    Mapped("gradient of each of 64 samples, 64-256-10", per_sample, MIDDLE, 64),
    Mapped("gradients of 8 nets, 16-32-10, batch 32", ensemble, SMALL, 8),
    Mapped("gradients of 8 nets, 64-256-10, batch 32", ensemble, MIDDLE, 8),
    Mapped("Jacobian of each of 16 samples, 16-32-10", jacobians, SMALL, 16),
]


def build(contender: str, number: int, threads: int) -> Step:
    """Workload ``number`` for a contender."""
    return WORKLOADS[number].build(contender, threads)


def _each(change: Callable[[np.ndarray], Any], x: Any) -> Any:
    return tuple(map(change, x)) if isinstance(x, tuple) else change(x)


def _arrays(results: Any) -> list[np.ndarray]:
    whole = results if isinstance(results, tuple) else (results,)
    return [x.detach().numpy() if hasattr(x, "detach") else np.asarray(x) for x in whole]
