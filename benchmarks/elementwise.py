"""Elementwise functions and chains, forward and backward, from small to larger than the caches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .case import uniform
from .chain import chain
from .gradients import Gradient, suite_of

SUITE = "elementwise"


def _chain(_: Any, x: Any) -> Any:
    return chain(x)


def _mixed(xp: Any, x: Any, y: Any) -> Any:
    return xp.tanh(x * y) * xp.exp(-x * x) + xp.log(1.0 + xp.exp(y))


def _add_row(_: Any, x: Any, row: Any) -> Any:
    return (x + row) * x


def _relu_in_torch(lib: Any, x: Any) -> Any:
    return lib.nn.functional.relu(x)


def _relu(xp: Any, x: Any) -> Any:
    return xp.maximum(x, np.float32(0))


def _gelu_in_torch(lib: Any, x: Any) -> Any:
    return lib.nn.functional.gelu(x, approximate="tanh")


def _gelu(xp: Any, x: Any) -> Any:
    inner = x + 0.044715 * (x * x * x)
    return 0.5 * x * (1.0 + xp.tanh(math.sqrt(2.0 / math.pi) * inner))


def _one(*shape: int) -> Any:
    return lambda: [uniform(*shape)]


def _two(*shape: int) -> Any:
    return lambda: [uniform(*shape), uniform(*shape[::-1]).reshape(shape) + np.float32(0.5)]


WORKLOADS = [
    Gradient("twelve operations on 1000", _one(1000), _chain, _chain),
    Gradient("twelve operations on 10^6", _one(1_000_000), _chain, _chain),
    Gradient("twelve operations on 10^6, fastmath", _one(1_000_000), _chain, _chain, fastmath=True),
    Gradient("tanh, exp, log of 1000", _two(10, 100), _mixed, _mixed),
    Gradient("tanh, exp, log of 10^6", _two(1000, 1000), _mixed, _mixed),
    Gradient(
        "(x + row) * x, (1024, 1024)",
        lambda: [uniform(1024, 1024), uniform(1024)],
        *(_add_row, _add_row),
    ),
    Gradient("relu (1024, 1024)", _one(1024, 1024), _relu_in_torch, _relu),
    Gradient("gelu by tanh (1024, 1024)", _one(1024, 1024), _gelu_in_torch, _gelu),
]

build = suite_of(WORKLOADS)
