"""Reductions, softmax, layer norm, cross entropy, activations, depthwise and recurrent layers.

A figure is asked for an LSTM alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .case import Case, Run, compile_step, uniform


def _sum(*shape: int, dim: int | None = None) -> Any:
    def build(lib: Any) -> Run:
        x = lib.tensor(uniform(*shape))
        return (lambda: (x.sum(),)) if dim is None else (lambda: (x.sum(dim),))

    return build


def _forward_backward(name: str, *shape: int, **options: Any) -> Any:
    """``lib.nn.functional.<name>(x, **options)`` and the gradient of x."""

    def build(lib: Any) -> Run:
        function = getattr(lib.nn.functional, name)
        x = lib.tensor(uniform(*shape), requires_grad=True)
        g = lib.tensor(uniform(*shape))

        def run() -> tuple[Any, ...]:
            x.grad = None
            y = function(x, **options)
            y.backward(g)
            return y, x.grad

        return run

    return build


def _layer_norm(n: int, m: int) -> Any:
    def build(lib: Any) -> Run:
        x = lib.tensor(uniform(n, m), requires_grad=True)
        weight = lib.tensor(uniform(m), requires_grad=True)
        bias = lib.tensor(uniform(m) / 2, requires_grad=True)
        g = lib.tensor(uniform(n, m))

        def run() -> tuple[Any, ...]:
            x.grad = weight.grad = bias.grad = None
            y = lib.nn.functional.layer_norm(x, (m,), weight, bias)
            y.backward(g)
            return y, x.grad, weight.grad, bias.grad

        return run

    return build


def _cross_entropy(n: int, classes: int) -> Any:
    def build(lib: Any) -> Run:
        x = lib.tensor(uniform(n, classes), requires_grad=True)
        labels = lib.tensor(np.random.default_rng(0).integers(0, classes, n))

        def run() -> tuple[Any, ...]:
            x.grad = None
            loss = lib.nn.functional.cross_entropy(x, labels)
            loss.backward()
            return loss, x.grad

        return run

    return build


def _depthwise(n: int, channels: int, side: int, stride: int) -> Any:
    """A kernel of 3 by 3 for each channel, and both gradients."""

    def build(lib: Any) -> Run:
        x = lib.tensor(uniform(n, channels, side, side), requires_grad=True)
        weight = lib.tensor(uniform(channels, 1, 3, 3), requires_grad=True)
        form = {"stride": stride, "padding": 1, "groups": channels}
        with lib.no_grad():
            shape = lib.nn.functional.conv2d(x, weight, **form).shape
        g = lib.tensor(uniform(*shape))

        def run() -> tuple[Any, ...]:
            x.grad = weight.grad = None
            y = lib.nn.functional.conv2d(x, weight, **form)
            y.backward(g)
            return y, x.grad, weight.grad

        return run

    return build


def _recurrent(kind: str, steps: int, n: int, size: int, compiled: bool = False) -> Any:
    """``lib.nn.<kind>`` on a sequence, a loss of all states, and the gradients of its weights."""

    def build(lib: Any) -> Run:
        layer = getattr(lib.nn, kind)(size, size)
        with lib.no_grad():
            for p in layer.parameters():
                p.copy_(lib.from_numpy(uniform(*p.shape) / size**0.5))
        x = lib.tensor(uniform(steps, n, size))

        def step(x: Any) -> Any:
            for p in layer.parameters():
                p.grad = None
            out, _ = layer(x)
            loss = (out * out).mean()
            loss.backward()
            return loss

        call = compile_step(lib, step) if compiled else step

        def run() -> tuple[Any, ...]:
            return call(x), *[p.grad for p in layer.parameters()]

        return run

    return build


def _products_alone(steps: int, n: int, size: int) -> Any:
    """What no LSTM can do without, beside torch's whole step: five products, of all steps at once.

    Two lead to the gates, two to the gradients of the weights, one back to the states; in a layer
    the states' wait for the step before. The ratio is the least that a step may hope for.
    """

    def build(lib: Any) -> Run:
        nothing = (lib.zeros(1),)  # there are no results to compare
        if lib.__name__ != "numbagrad":
            step = _recurrent("LSTM", steps, n, size)(lib)
            return lambda: (step(), nothing)[1]
        x, g = lib.tensor(uniform(steps * n, size)), lib.tensor(uniform(steps * n, 4 * size))
        weight = lib.tensor(uniform(4 * size, size))

        def run() -> tuple[Any, ...]:
            for _ in range(2):
                x @ weight.t()
                g.t() @ x
            g @ weight
            return nothing

        return run

    return build


BOTH = (1, 2)
SEQUENCE = (64, 16, 128)
CASES = [
    Case("sum of 10^6", _sum(1_000_000), threads=BOTH, rtol=1e-4),
    Case("sum (1024, 1024) over 0", _sum(1024, 1024, dim=0), threads=BOTH, rtol=1e-4, atol=1e-4),
    Case("sum (1024, 1024) over 1", _sum(1024, 1024, dim=1), threads=BOTH, rtol=1e-4, atol=1e-4),
    Case("softmax (32, 10)", _forward_backward("softmax", 32, 10, dim=-1)),
    Case("softmax (1024, 1024)", _forward_backward("softmax", 1024, 1024, dim=-1), threads=BOTH),
    Case("gelu (1024, 1024)", _forward_backward("gelu", 1024, 1024), threads=BOTH, rtol=1e-4),
    Case("relu (1024, 1024)", _forward_backward("relu", 1024, 1024), threads=BOTH),
    Case("layer_norm (32, 64)", _layer_norm(32, 64), rtol=1e-4, atol=1e-5),
    Case("layer_norm (1024, 768)", _layer_norm(1024, 768), threads=BOTH, rtol=1e-3, atol=1e-4),
    Case("layer_norm (2048, 768)", _layer_norm(2048, 768), 1.0, BOTH, rtol=1e-3, atol=1e-4),
    Case("cross_entropy (128, 10)", _cross_entropy(128, 10)),
    Case("cross_entropy (512, 1000)", _cross_entropy(512, 1000), 1.0, BOTH),
    Case("cross_entropy (1024, 1000)", _cross_entropy(1024, 1000), threads=BOTH),
    Case("depthwise (16, 96, 16, 16)", _depthwise(16, 96, 16, 1), None, BOTH, 1e-3, 1e-3),
    Case("depthwise (16, 96, 16, 16), stride 2", _depthwise(16, 96, 16, 2), None, BOTH, 1e-3, 1e-3),
    Case("LSTM step, T 64, n 16, 128", _recurrent("LSTM", *SEQUENCE), 0.5, BOTH, 1e-3),
    Case(
        "LSTM step, compiled, T 64, n 16, 128",
        _recurrent("LSTM", *SEQUENCE, compiled=True),
        0.5,
        BOTH,
        1e-3,
    ),
    Case("products alone / LSTM step, T 64, n 16, 128", _products_alone(*SEQUENCE), threads=BOTH),
    Case("GRU step, T 64, n 16, 128", _recurrent("GRU", *SEQUENCE), threads=BOTH, rtol=1e-3),
]
