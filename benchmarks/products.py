"""A linear layer at four sizes, and of one row and four, forward and backward to all it takes."""

from __future__ import annotations

from typing import Any

from .case import uniform
from .gradients import Gradient, suite_of

SUITE = "products"


def _in_torch(lib: Any, x: Any, weight: Any, bias: Any) -> Any:
    return lib.nn.functional.linear(x, weight, bias)


def _in_numpy(xp: Any, x: Any, weight: Any, bias: Any) -> Any:
    return xp.matmul(x, weight.T) + bias


def _linear(n: int, features_in: int, features_out: int) -> Gradient:
    def arrays() -> list[Any]:
        return [uniform(n, features_in), uniform(features_out, features_in), uniform(features_out)]

    return Gradient(f"Linear {n, features_in, features_out}", arrays, _in_torch, _in_numpy)


WORKLOADS = [
    _linear(*sizes)
    for sizes in [
        (10, 4, 3),
        (32, 128, 64),
        (128, 784, 512),
        (1024, 1024, 1024),
        (1, 512, 512),
        (4, 784, 256),
    ]
]

build = suite_of(WORKLOADS)
