"""A function's value and its gradients as a workload, in the form that is fastest in each library.

A suite is a list of ``Gradient``s: the function twice, in torch's words (numbagrad's too) and in
NumPy's (jax, HIPS autograd, mygrad and pytensor have those). Start at ``Gradient``; ``formula.py``
is a suite.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .case import COMPILED_AT_MOST, uniform
from .contenders import Step
from .libraries import COMPILED, EAGER, load_jax, load_torch


@dataclass(frozen=True)
class Gradient:
    """``in_torch(lib, *tensors)`` and its gradients by all of ``arrays()`` that are floating.

    in_numpy: ``in_numpy(xp, *arrays)``, the same for a library ``xp`` with NumPy's names.
    tolerance: how far results may differ, as a part of the largest number. fastmath: let our
    compiled function reorder sums, as pytensor's always does.
    """

    name: str
    arrays: Callable[[], list[np.ndarray]]
    in_torch: Callable[..., Any]
    in_numpy: Callable[..., Any]
    tolerance: float = 1e-4
    at_most: float = COMPILED_AT_MOST
    fastmath: bool = False

    @property
    def contenders(self) -> tuple[str, ...]:
        """Who may run it."""
        return tuple(CONTENDERS)

    def build(self, contender: str, threads: int) -> Step:
        """One call of value and gradients, and what returns them as arrays."""
        run = CONTENDERS[contender](self, threads)
        return run, lambda: [np.asarray(_array(x)) for x in run()]


Call = Callable[[], tuple[Any, ...]]


def suite_of(workloads: list[Gradient]) -> Callable[[str, int, int], Step]:
    """What a suite calls ``build``: contender, number of the workload and threads to a step."""
    return lambda contender, number, threads: workloads[number].build(contender, threads)


def numbagrad_compiled(work: Gradient, threads: int) -> Call:
    """Forward and backward given to ``ng.compile`` as one function."""
    ng = importlib.import_module("numbagrad")
    return _tape(ng, work, functools.partial(ng.compile, fastmath=work.fastmath))


def numbagrad_eager(work: Gradient, threads: int) -> Call:
    """Op by op."""
    return _tape(importlib.import_module("numbagrad"), work)


def torch_eager(work: Gradient, threads: int) -> Call:
    """Op by op."""
    return _tape(load_torch(threads), work)


def torch_compiled(work: Gradient, threads: int) -> Call:
    """torch.compile of one graph, value and gradients: no tape, no guards between the two."""
    torch = load_torch(threads)
    tensors = [torch.from_numpy(array) for array in work.arrays()]
    leaves, g = _floating(tensors, _is_float), _incoming(torch, work, tensors)

    def both(leaves: Any, g: Any) -> Any:
        def function(*values: Any) -> Any:
            return work.in_torch(torch, *_merged(tensors, values, _is_float))

        out, pull = torch.func.vjp(function, *leaves)
        return out, *pull(g)

    compiled = torch.compile(both, fullgraph=True)
    torch.set_grad_enabled(False)  # for good: the process is this contender's own
    return lambda: compiled(leaves, g)


def jax_jit(work: Gradient, threads: int) -> Call:
    """jax.jit of value and gradients."""
    jax = load_jax(threads)
    jnp = importlib.import_module("jax.numpy")
    arrays = [jnp.asarray(array) for array in work.arrays()]
    leaves = _floating(arrays, _is_float)
    g = jnp.asarray(uniform(*jax.eval_shape(lambda: work.in_numpy(jnp, *arrays)).shape))

    def both(leaves: Any, others: Any, g: Any) -> Any:
        def function(*values: Any) -> Any:
            return work.in_numpy(jnp, *_merged(others, values, lambda x: x is None))

        out, pull = jax.vjp(function, *leaves)
        return out, *pull(g)

    others = [None if _is_float(x) else x for x in arrays]
    compiled = jax.jit(both)
    return lambda: jax.block_until_ready(compiled(leaves, others, g))


def hips_autograd(work: Gradient, threads: int) -> Call:
    """Its tape over NumPy."""
    make_vjp = importlib.import_module("autograd").make_vjp
    anp = importlib.import_module("autograd.numpy")
    arrays = work.arrays()
    leaves = tuple(_floating(arrays, _is_float))
    g = uniform(*np.shape(work.in_numpy(anp, *arrays)))

    def function(values: Any) -> Any:
        each = [values[i] for i in range(len(leaves))]
        return work.in_numpy(anp, *_merged(arrays, each, _is_float))

    derivative = make_vjp(function)

    def run() -> tuple[Any, ...]:
        pull, out = derivative(leaves)
        return out, *pull(g)

    return run


def mygrad_eager(work: Gradient, threads: int) -> Call:
    """Its tape over NumPy, without its guards of memory."""
    mg = importlib.import_module("mygrad")
    mg.turn_memory_guarding_off()
    arrays = work.arrays()
    g = uniform(*work.in_numpy(mg, *map(mg.tensor, arrays)).shape)

    def run() -> tuple[Any, ...]:
        tensors = [mg.tensor(x, copy=False) if _is_float(x) else x for x in arrays]
        out = work.in_numpy(mg, *tensors)
        out.backward(g)
        return out, *[x.grad for x in tensors if isinstance(x, mg.Tensor)]

    return run


def pytensor_numba(work: Gradient, threads: int) -> Call:
    """pytensor.function of value and gradients in its Numba mode, shapes known."""
    pytensor = importlib.import_module("pytensor")
    pt = importlib.import_module("pytensor.tensor")
    pytensor.config.floatX = "float32"
    arrays = work.arrays()
    inputs = [pt.tensor(dtype=str(x.dtype), shape=x.shape) for x in arrays]
    out = work.in_numpy(pt, *inputs)
    incoming = pt.tensor(dtype="float32", shape=out.type.shape)
    leaves = _floating(inputs, lambda x: x.dtype == "float32")
    gradients = pytensor.grad(None, leaves, known_grads={out: incoming})
    function = pytensor.function(
        [*inputs, incoming], [out, *gradients], mode="NUMBA", trust_input=True
    )
    g = uniform(*out.type.shape)
    return lambda: function(*arrays, g)


CONTENDERS: dict[str, Callable[[Gradient, int], Call]] = {
    COMPILED: numbagrad_compiled,
    EAGER: numbagrad_eager,
    "torch": torch_eager,
    "torch.compile": torch_compiled,
    "jax.jit": jax_jit,
    "HIPS autograd": hips_autograd,
    "mygrad": mygrad_eager,
    "pytensor": pytensor_numba,
}
"""By the names that reports use."""


def _tape(lib: Any, work: Gradient, whole: Callable[[Any], Any] = lambda step: step) -> Call:
    """Forward and backward in numbagrad or torch, passed through ``whole``.

    Gradients are returned, as jax.jit and torch.compile do here, not added to ``x.grad``, which
    would have to copy one that is ``g`` itself.
    """
    tensors = [lib.from_numpy(array) for array in work.arrays()]
    g = _incoming(lib, work, tensors)
    for x in _floating(tensors, _is_float):
        x.requires_grad_()

    def step(g: Any, *tensors: Any) -> Any:
        out = work.in_torch(lib, *tensors)
        leaves = [x for x in tensors if x.requires_grad]
        return out.detach(), *lib.autograd.grad(out, leaves, g)

    call = whole(step)
    return lambda: call(g, *tensors)


def _incoming(lib: Any, work: Gradient, tensors: list[Any]) -> Any:
    with lib.no_grad():
        return lib.tensor(uniform(*work.in_torch(lib, *tensors).shape))


def _is_float(x: Any) -> bool:
    return "float" in str(x.dtype)


def _floating(arrays: list[Any], is_leaf: Callable[[Any], bool]) -> list[Any]:
    return [x for x in arrays if is_leaf(x)]


def _merged(arrays: Any, leaves: Any, is_leaf: Callable[[Any], bool]) -> list[Any]:
    """``arrays`` with those that are leaves replaced by ``leaves``, in order."""
    rest = iter(leaves)
    return [next(rest) if is_leaf(x) else x for x in arrays]


def _array(x: Any) -> Any:
    """The array in a tensor of torch, numbagrad or mygrad; others as they are."""
    if hasattr(x, "detach"):
        return x.detach().numpy()
    return getattr(x, "data", x) if type(x).__module__.startswith("mygrad") else x
