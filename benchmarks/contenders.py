"""One training step of a ``Net``, as each library's own users would write it to be fast.

``CONTENDERS[name](net, threads)`` gives the call of one step and a function that returns the
weights. A library that is not there is imported in vain and raises ModuleNotFoundError.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from .case import compile_step
from .libraries import COMPILED, EAGER, HANDWRITTEN, load_jax, load_torch
from .nets import LeNet, Net
from .updates import BETAS, EPS, LR, MOMENTUM, changes, slots, update

Step = tuple[Callable[[], Any], Callable[[], list[np.ndarray]]]


def handwritten(net: Net, threads: int) -> Step:
    """One Numba function for this very network: the limit for a compiler."""
    from . import handwritten as steps

    _affine(net)
    run, weights = steps.build(net, threads)
    return run, lambda: weights


def numbagrad_eager(net: Net, threads: int) -> Step:
    """numbagrad's step as written, op by op."""
    return _eager(importlib.import_module("numbagrad"), net)


def numbagrad_compiled(net: Net, threads: int) -> Step:
    """The same function given to ``ng.compile``."""
    ng = importlib.import_module("numbagrad")
    return _eager(ng, net, lambda step: compile_step(ng, step))


def torch_eager(net: Net, threads: int) -> Step:
    """torch's step as written; its optimisers choose their for-each form themselves."""
    return _eager(load_torch(threads), net)


def torch_compiled(net: Net, threads: int) -> Step:
    """torch.compile of a step that is one graph: gradient and update without autograd's tape.

    Compiling the loss and ``optimizer.step`` of the usual loop was slower for all these nets (261
    against 76 us for the smallest): it enters compiled code in three places, past their guards.
    """
    torch = load_torch(threads)
    parameters = [torch.tensor(w) for w in net.weights()]
    data = tuple(map(torch.from_numpy, net.data()))
    state = [torch.zeros_like(p) for p in parameters for _ in range(slots(net.optimizer))]
    count = torch.zeros(())

    def loss_of(parameters: Any, x: Any, labels: Any) -> Any:
        if isinstance(net, LeNet):
            logits = net.logits(torch.nn.functional, parameters, x)
            return torch.nn.functional.cross_entropy(logits, labels)
        h = x
        for weight, bias in _pairs(parameters[:-2]):
            h = torch.relu(torch.nn.functional.linear(h, weight, bias))
        return torch.nn.functional.cross_entropy(
            torch.nn.functional.linear(h, *parameters[-2:]), labels
        )

    gradient = torch.func.grad_and_value(loss_of)

    def step(parameters: Any, state: Any, count: Any, x: Any, labels: Any) -> Any:
        gradients, loss = gradient(parameters, x, labels)
        new, new_state, count_now = update(
            torch, net.optimizer, parameters, gradients, state, count
        )
        for old, value in changes([*parameters, *state, count], [*new, *new_state, count_now]):
            old.copy_(value)
        return loss

    compiled = torch.compile(step, fullgraph=True)
    torch.set_grad_enabled(False)  # for good: the process is this contender's own
    return lambda: compiled(parameters, state, count, *data), lambda: [
        p.numpy() for p in parameters
    ]


def jax_jit(net: Net, threads: int) -> Step:
    """jax.jit of the whole step with donated buffers, waited for once in each step."""
    _affine(net)
    jax = load_jax(threads)
    jnp = importlib.import_module("jax.numpy")
    x, labels = map(jnp.asarray, net.data())

    def loss_of(parameters: Any, x: Any, labels: Any) -> Any:
        h = x
        for weight, bias in _pairs(parameters[:-2]):
            h = jax.nn.relu(h @ weight.T + bias)
        weight, bias = parameters[-2:]
        logs = jax.nn.log_softmax(h @ weight.T + bias)
        return -jnp.take_along_axis(logs, labels[:, None], axis=1).mean()

    def step(parameters: Any, state: Any, count: Any, x: Any, labels: Any) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, labels)
        return (*update(jnp, net.optimizer, parameters, gradients, state, count), loss)

    compiled = jax.jit(step, donate_argnums=(0, 1, 2))
    parameters = [jnp.asarray(w) for w in net.weights()]
    state = [jnp.zeros_like(p) for p in parameters for _ in range(slots(net.optimizer))]
    held: list[Any] = [parameters, state, jnp.zeros(())]

    def run() -> Any:
        *held[:], loss = compiled(*held, x, labels)
        return jax.block_until_ready(loss)

    return run, lambda: [np.asarray(p) for p in held[0]]


def hips_autograd(net: Net, threads: int) -> Step:
    """HIPS autograd's gradient of the loss, and the update in NumPy."""
    _affine(net)
    value_and_grad = importlib.import_module("autograd").value_and_grad
    anp = importlib.import_module("autograd.numpy")
    (x, labels), rows = net.data(), np.arange(net.batch)

    def loss_of(parameters: Any) -> Any:
        h = x
        for weight, bias in _pairs(parameters[:-2]):
            h = anp.maximum(anp.dot(h, weight.T) + bias, np.float32(0))
        weight, bias = parameters[-2:]
        logits = anp.dot(h, weight.T) + bias
        logits = logits - anp.max(logits, axis=1, keepdims=True)
        logs = logits - anp.log(anp.sum(anp.exp(logits), axis=1, keepdims=True))
        return -anp.mean(logs[rows, labels])

    held = _held(net)
    gradient = value_and_grad(loss_of)

    def run() -> Any:
        parameters, state, count = held
        loss, gradients = gradient(parameters)
        held[:] = update(np, net.optimizer, parameters, gradients, state, count)
        return loss

    return run, lambda: held[0]


def mygrad_eager(net: Net, threads: int) -> Step:
    """mygrad's tape without its guards of memory, and the update in NumPy."""
    _affine(net)
    mg = importlib.import_module("mygrad")
    relu = importlib.import_module("mygrad.nnet.activations").relu
    softmax_crossentropy = importlib.import_module("mygrad.nnet.losses").softmax_crossentropy
    mg.turn_memory_guarding_off()
    (x, labels), held = net.data(), _held(net)

    def run() -> Any:
        arrays, state, count = held
        parameters = [mg.tensor(p, copy=False) for p in arrays]
        h = x
        for weight, bias in _pairs(parameters[:-2]):
            h = relu(mg.matmul(h, weight.T) + bias)
        loss = softmax_crossentropy(mg.matmul(h, parameters[-2].T) + parameters[-1], labels)
        loss.backward()
        gradients = [p.grad for p in parameters]
        held[:] = update(np, net.optimizer, arrays, gradients, state, count)
        return loss

    return run, lambda: held[0]


def pytensor_numba(net: Net, threads: int) -> Step:
    """pytensor.function in its Numba mode; shared variables are updated in place."""
    _affine(net)
    pytensor = importlib.import_module("pytensor")
    pt = importlib.import_module("pytensor.tensor")
    pytensor.config.floatX = "float32"
    x, labels = pt.matrix("x", dtype="float32"), pt.vector("labels", dtype="int64")
    parameters = [pytensor.shared(w) for w in net.weights()]
    state = [pytensor.shared(np.zeros_like(p.get_value())) for p in parameters
             for _ in range(slots(net.optimizer))]  # fmt: skip
    count = pytensor.shared(np.zeros((), np.float32))
    h = x
    for weight, bias in _pairs(parameters[:-2]):
        h = pt.maximum(h @ weight.T + bias, np.float32(0))
    weight, bias = parameters[-2:]
    logs = pt.special.log_softmax(h @ weight.T + bias, axis=1)
    loss = -logs[pt.arange(net.batch), labels].mean(dtype="float32")
    gradients = pytensor.grad(loss, parameters)
    new, new_state, count_now = update(pt, net.optimizer, parameters, gradients, state, count)
    pairs = changes([*parameters, *state, count], [*new, *new_state, count_now])
    updates = {old: value.astype("float32") for old, value in pairs}
    function = pytensor.function([x, labels], loss, updates=updates, mode="NUMBA", trust_input=True)
    data = net.data()
    return lambda: function(*data), lambda: [p.get_value() for p in parameters]


CONTENDERS: dict[str, Callable[[Net, int], Step]] = {
    COMPILED: numbagrad_compiled,
    EAGER: numbagrad_eager,
    HANDWRITTEN: handwritten,
    "torch": torch_eager,
    "torch.compile": torch_compiled,
    "jax.jit": jax_jit,
    "HIPS autograd": hips_autograd,
    "mygrad": mygrad_eager,
    "pytensor": pytensor_numba,
}
"""By the names that reports use; the first three are ours, the rest peers."""


def _eager(lib: Any, net: Net, whole: Callable[[Any], Any] = lambda step: step) -> Step:
    """The usual loop's body in numbagrad or torch, passed through ``whole``."""
    if isinstance(net, LeNet):
        parameters = [lib.tensor(w, requires_grad=True) for w in net.weights()]
        model = functools.partial(net.logits, lib.nn.functional, parameters)
    else:
        layers: list[Any] = []
        for features_in, features_out in pairwise(net.sizes):
            layers += [lib.nn.Linear(features_in, features_out), lib.nn.ReLU()]
        model = lib.nn.Sequential(*layers[:-1])
        parameters = list(model.parameters())
    with lib.no_grad():
        for p, value in zip(parameters, net.weights(), strict=True):
            p.copy_(lib.from_numpy(value))
    if net.optimizer == "Adam":
        optimizer = lib.optim.Adam(parameters, lr=LR, betas=BETAS, eps=EPS)
    else:
        optimizer = lib.optim.SGD(parameters, lr=LR, momentum=MOMENTUM)
    x, labels = map(lib.from_numpy, net.data())

    def step(x: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    call = whole(step)
    return lambda: call(x, labels), lambda: [p.detach().numpy() for p in parameters]


def _held(net: Net) -> list[Any]:
    """Parameters, the optimiser's state and its count, as NumPy has them."""
    parameters = net.weights()
    state = [np.zeros_like(p) for p in parameters for _ in range(slots(net.optimizer))]
    return [parameters, state, np.float32(0)]


def _affine(net: Any) -> None:
    """Refuse a net with convolutions."""
    if isinstance(net, LeNet):
        raise NotImplementedError("written for affine layers only")


def _pairs(items: Any) -> Any:
    return zip(items[::2], items[1::2], strict=True)
