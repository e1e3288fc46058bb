"""Softmax, softmax loss, also of a linear layer, and layer norm, forward and backward."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from .case import uniform
from .gradients import Gradient, suite_of

SUITE = "losses"

OWN = {"jax.numpy": "jax.nn", "pytensor.tensor": "pytensor.tensor.special"}
"""Where a library with NumPy's names has a softmax of its own."""


def _of_rows(name: str, xp: Any, x: Any) -> Any:
    """``softmax`` or ``log_softmax`` of the rows of x, the library's own where it has one."""
    if xp.__name__ in OWN:
        return getattr(importlib.import_module(OWN[xp.__name__]), name)(x, axis=-1)
    shifted = x - xp.max(x, axis=1, keepdims=True)
    if name == "softmax":
        powers = xp.exp(shifted)
        return powers / xp.sum(powers, axis=1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=1, keepdims=True))


def _softmax_in_torch(lib: Any, x: Any) -> Any:
    return lib.softmax(x, -1)


def _softmax(xp: Any, x: Any) -> Any:
    return _of_rows("softmax", xp, x)


def _loss_in_torch(lib: Any, x: Any, labels: Any) -> Any:
    return lib.nn.functional.cross_entropy(x, labels)


def _loss(xp: Any, x: Any, labels: Any) -> Any:
    picked = _of_rows("log_softmax", xp, x)[np.arange(x.shape[0]), labels]
    return -xp.mean(picked)


def _linear_in_torch(lib: Any, x: Any, weight: Any, labels: Any) -> Any:
    return lib.nn.functional.linear_cross_entropy(x, weight, labels)


def _linear(xp: Any, x: Any, weight: Any, labels: Any) -> Any:
    return _loss(xp, xp.matmul(x, weight.T), labels)


def _norm_in_torch(lib: Any, x: Any, weight: Any, bias: Any) -> Any:
    return lib.nn.functional.layer_norm(x, weight.shape, weight, bias)


def _norm(xp: Any, x: Any, weight: Any, bias: Any) -> Any:
    centred = x - xp.mean(x, axis=1, keepdims=True)
    variance = xp.mean(centred * centred, axis=1, keepdims=True)
    return centred / xp.sqrt(variance + np.float32(1e-5)) * weight + bias


def _logits(n: int, classes: int) -> Any:
    return lambda: [uniform(n, classes) * 4, np.random.default_rng(0).integers(0, classes, n)]


def _words(n: int, k: int, classes: int) -> Any:
    def arrays() -> list[np.ndarray]:
        labels = np.random.default_rng(0).integers(0, classes, n)
        return [uniform(n, k), uniform(classes, k) / np.float32(k**0.5), labels]

    return arrays


def _layer(n: int, m: int) -> Any:
    return lambda: [uniform(n, m), uniform(m) + np.float32(1.5), uniform(m + 1)[1:]]


WORKLOADS = [
    Gradient("softmax (32, 10)", lambda: [uniform(32, 10)], _softmax_in_torch, _softmax),
    Gradient("softmax (1024, 1024)", lambda: [uniform(1024, 1024)], _softmax_in_torch, _softmax),
    Gradient("softmax loss (128, 10)", _logits(128, 10), _loss_in_torch, _loss),
    Gradient("softmax loss (512, 1000)", _logits(512, 1000), _loss_in_torch, _loss),
    Gradient("linear loss (512, 128, 16384)", _words(512, 128, 16384), _linear_in_torch, _linear),
    Gradient("layer norm (32, 64)", _layer(32, 64), _norm_in_torch, _norm),
    Gradient("layer norm (2048, 768)", _layer(2048, 768), _norm_in_torch, _norm, 1e-3),
]

build = suite_of(WORKLOADS)
