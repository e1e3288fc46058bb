"""A training step of a character transformer, the model of ``transformer.py``, with AdamW.

numbagrad and torch run the same module; torch.compile gets its loss, jax the model as a function.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from .contenders import Step
from .libraries import COMPILED, EAGER, load_jax, load_torch, training_step
from .transformer import HEADS, LAYERS, WIDTH, batch, optimizer_of, shapes, transformer, weights
from .updates import slots, update

SUITE = "transformer_step"
LR, DECAY = 1e-5, 0.1
BLOCK = 12
"""Parameters of a block: weight and bias of two norms and four linear layers."""


class TransformerStep:
    """The one workload; its results are the loss and how far each parameter has moved.

    Of a move only the length is compared: where a gradient is nearly nothing, Adam moves by the
    sign of its rounding.
    """

    name = "step of a character transformer"
    tolerance = 1e-2
    at_most = 0.6

    @property
    def contenders(self) -> tuple[str, ...]:
        """Who may run it."""
        return tuple(CONTENDERS)

    def build(self, contender: str, threads: int) -> Step:
        """One step, and what returns the loss and the lengths of the moves."""
        run, parameters = CONTENDERS[contender](threads)
        last: list[Any] = []

        def step() -> None:
            last[:] = [run()]

        def results() -> list[np.ndarray]:
            pairs = zip(parameters(), weights(), strict=True)
            moved = [np.linalg.norm(p - start) for p, start in pairs]
            return [np.asarray(_number(last[0])), np.array(moved)]

        return step, results


def _number(loss: Any) -> float:
    return float(loss.detach() if hasattr(loss, "detach") else loss)


def numbagrad_compiled(threads: int) -> Step:
    """The whole step given to ``ng.compile``."""
    ng = importlib.import_module("numbagrad")
    return _stepped(ng, whole=ng.compile)


def numbagrad_eager(threads: int) -> Step:
    """Op by op."""
    return _stepped(importlib.import_module("numbagrad"))


def torch_eager(threads: int) -> Step:
    """Op by op, the optimiser as it comes."""
    return _stepped(load_torch(threads))


def torch_compiled(threads: int) -> Step:
    """torch.compile of the loss, whose backward is compiled with it, and the fused AdamW."""
    torch = load_torch(threads)
    return _stepped(torch, of_loss=torch.compile, fused=True)


def jax_jit(threads: int) -> Step:
    """jax.jit of the whole step with donated buffers."""
    jax = load_jax(threads)
    jnp = importlib.import_module("jax.numpy")
    x, y = map(jnp.asarray, batch())
    decays = [DECAY if len(shape) > 1 else 0.0 for shape in shapes()]

    def loss_of(parameters: Any, x: Any, y: Any) -> Any:
        logs = jax.nn.log_softmax(jax_logits(jax, parameters, x), axis=-1)
        return -jnp.take_along_axis(logs, y[..., None], axis=-1).mean()

    def step(parameters: Any, state: Any, count: Any, x: Any, y: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
        kept = [p * (1 - LR * decay) for p, decay in zip(parameters, decays, strict=True)]
        return (*update(jnp, "Adam", kept, gradients, state, count, LR), loss)

    compiled = jax.jit(step, donate_argnums=(0, 1, 2))
    parameters = [jnp.asarray(w) for w in weights()]
    state = [jnp.zeros_like(p) for p in parameters for _ in range(slots("Adam"))]
    held: list[Any] = [parameters, state, jnp.zeros(())]

    def run() -> Any:
        *held[:], loss = compiled(*held, x, y)
        return jax.block_until_ready(loss)

    return run, lambda: [np.asarray(p) for p in held[0]]


def jax_logits(jax: Any, parameters: Any, x: Any) -> Any:
    """The model of ``transformer.transformer`` on parameters in the order of its modules."""
    jnp = jax.numpy

    def norm(x: Any, weight: Any, bias: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + 1e-5) * weight + bias

    def attention(x: Any) -> Any:
        b, t, _ = x.shape
        parts = [y.reshape(b, t, HEADS, WIDTH // HEADS) for y in jnp.split(x, 3, axis=-1)]
        seen = jax.nn.dot_product_attention(*parts, is_causal=True)
        return seen.reshape(b, t, WIDTH)

    words, places, *rest = parameters
    h = words[x] + places
    for k in range(LAYERS):
        *norms, into, into_bias, out, out_bias, wide, wide_bias, narrow, narrow_bias = rest[
            k * BLOCK : (k + 1) * BLOCK
        ]
        h = h + attention(norm(h, *norms[:2]) @ into.T + into_bias) @ out.T + out_bias
        inner = jax.nn.gelu(norm(h, *norms[2:]) @ wide.T + wide_bias, approximate=False)
        h = h + inner @ narrow.T + narrow_bias
    weight, bias, head = rest[LAYERS * BLOCK :]
    return norm(h, weight, bias) @ head.T


CONTENDERS: dict[str, Callable[[int], Step]] = {
    COMPILED: numbagrad_compiled,
    EAGER: numbagrad_eager,
    "torch": torch_eager,
    "torch.compile": torch_compiled,
    "jax.jit": jax_jit,
}
"""By the names that reports use."""


def _as_it_is(function: Any) -> Any:
    return function


def _stepped(lib: Any, whole: Any = _as_it_is, of_loss: Any = _as_it_is, **options: Any) -> Step:
    """The usual loop's body through ``whole``, its loss through ``of_loss``."""
    model = transformer(lib)
    optimizer = optimizer_of(lib, model, LR, DECAY, **options)
    x, y = map(lib.from_numpy, batch())

    def loss_of(x: Any, y: Any) -> Any:
        logits = model(x)
        return lib.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))

    call = whole(training_step(optimizer, of_loss(loss_of)))
    return lambda: call(x, y), lambda: [p.detach().numpy() for p in model.parameters()]


WORKLOADS = [TransformerStep()]


def build(contender: str, number: int, threads: int) -> Step:
    """A step of one of ``WORKLOADS``."""
    return WORKLOADS[number].build(contender, threads)
