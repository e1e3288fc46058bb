"""Optimiser steps, and whole training steps of the digits MLP; no figure is asked for these."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .case import Case, Run, uniform

DIGITS = (64, 256, 10)
LARGE = (784, 512, 256, 10)


def perceptron(lib: Any, sizes: tuple[int, ...]) -> Any:
    """Linear layers of ``sizes`` with ReLU between them and weights that do not depend on lib."""
    layers: list[Any] = []
    for features_in, features_out in pairwise(sizes):
        linear = lib.nn.Linear(features_in, features_out)
        with lib.no_grad():
            linear.weight.copy_(lib.from_numpy(uniform(features_out, features_in) / features_in))
            linear.bias.copy_(lib.from_numpy(uniform(features_out)))
        layers += [linear, lib.nn.ReLU()]
    return lib.nn.Sequential(*layers[:-1])


def _optimizer(name: str, sizes: tuple[int, ...], **options: Any) -> Any:
    def build(lib: Any) -> Run:
        parameters = list(perceptron(lib, sizes).parameters())
        for p in parameters:
            p.grad = lib.tensor(uniform(*p.shape))
        optimizer = getattr(lib.optim, name)(parameters, lr=1e-4, **options)

        def run() -> tuple[Any, ...]:
            optimizer.step()
            return tuple(parameters)

        return run

    return build


def _training_step(n: int, sizes: tuple[int, ...]) -> Any:
    def build(lib: Any) -> Run:
        model = perceptron(lib, sizes)
        optimizer = lib.optim.Adam(model.parameters(), lr=1e-4)
        x = lib.tensor(uniform(n, sizes[0]))
        labels = lib.tensor(np.random.default_rng(0).integers(0, sizes[-1], n))

        def run() -> tuple[Any, ...]:
            optimizer.zero_grad()
            loss = lib.nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            return (loss,)

        return run

    return build


CASES = [
    Case("SGD momentum, digits MLP", _optimizer("SGD", DIGITS, momentum=0.9)),
    Case("Adam, digits MLP", _optimizer("Adam", DIGITS)),
    Case("AdamW, 784-512-256-10", _optimizer("AdamW", LARGE), threads=(1, 2)),
    Case("step of the digits MLP, batch 32", _training_step(32, DIGITS), threads=(1, 2)),
    Case("step of 784-512-256-10, batch 128", _training_step(128, LARGE), threads=(1, 2)),
]
