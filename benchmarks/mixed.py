"""Training steps under ``autocast("cpu", dtype=bfloat16)``: weights float32, products bfloat16.

Every contender has the same weights and data; torch multiplies by oneDNN's kernels for the bfloat16
instructions that the processor has, or without them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .case import uniform
from .contenders import Step
from .libraries import COMPILED, EAGER, load_torch, training_step
from .transformer import batch, transformer

SUITE = "mixed"
LR, MOMENTUM = 0.01, 0.9


def perceptron(lib: Any, *sizes: int) -> Any:
    """Linear layers with ReLU between them."""
    layers: list[Any] = []
    for a, b in pairwise(sizes):
        layers += [lib.nn.Linear(a, b), lib.nn.ReLU()]
    return lib.nn.Sequential(*layers[:-1])


def convolutions(lib: Any) -> Any:
    """Three convolutions of 3 by 3 with batch norm, and a linear layer."""
    nn = lib.nn
    layers: list[Any] = []
    for channels, width, stride in ((3, 32, 1), (32, 64, 2), (64, 64, 1)):
        conv = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        layers += [conv, nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def labelled(classes: int, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of ``shape`` and labels."""
    labels = np.random.default_rng(shape).integers(0, classes, shape[0])
    return uniform(*shape), labels


@dataclass(frozen=True)
class MixedStep:
    """A step of SGD with momentum; its results are the loss and how far each parameter has moved.

    model: makes it; data: gives a batch.
    """

    name: str
    model: Callable[[Any], Any]
    data: Callable[[], tuple[np.ndarray, np.ndarray]]
    tolerance: float = 5e-2
    at_most: float = 1.1

    @property
    def contenders(self) -> tuple[str, ...]:
        """Who may run it."""
        return tuple(CONTENDERS)

    def build(self, contender: str, threads: int) -> Step:
        """One step, and what returns the loss and the lengths of the moves."""
        call, parameters = CONTENDERS[contender](self, threads)
        first = [p.detach().numpy().copy() for p in parameters]
        last: list[Any] = []

        def step() -> None:
            last[:] = [call()]

        def results() -> list[np.ndarray]:
            pairs = zip(parameters, first, strict=True)
            moved = [np.linalg.norm(p.detach().numpy() - start) for p, start in pairs]
            return [np.asarray(float(last[0].detach())), np.array(moved)]

        return step, results


WORKLOADS = [
    MixedStep(
        "784-256-128-10, batch 128, bfloat16",
        lambda lib: perceptron(lib, 784, 256, 128, 10),
        lambda: labelled(10, 128, 784),
    ),
    MixedStep(
        "784-256-128-10, batch 1024, bfloat16",
        lambda lib: perceptron(lib, 784, 256, 128, 10),
        lambda: labelled(10, 1024, 784),
    ),
    MixedStep(
        "1024-1024-1024-1024, batch 256, bfloat16",
        lambda lib: perceptron(lib, 1024, 1024, 1024, 1024),
        lambda: labelled(1024, 256, 1024),
    ),
    MixedStep("three convolutions, bfloat16", convolutions, lambda: labelled(10, 16, 3, 32, 32)),
    MixedStep("character transformer, bfloat16", transformer, batch),
]


def _stepped(
    workload: MixedStep, lib: Any, whole: Any = None, of_loss: Any = None
) -> tuple[Callable[[], Any], list[Any]]:
    """The usual loop's body through ``whole``, its loss through ``of_loss``."""
    lib.manual_seed(0)
    model = workload.model(lib)
    parameters = list(model.parameters())
    with lib.no_grad():
        for p in parameters:
            spread = p.shape[-1] ** -0.5 if p.dim() > 1 else 0.1
            p.copy_(lib.from_numpy(uniform(*p.shape)) * spread)
    optimizer = lib.optim.SGD(parameters, lr=LR, momentum=MOMENTUM)
    x, y = map(lib.from_numpy, workload.data())

    def loss_of(x: Any, y: Any) -> Any:
        with lib.autocast("cpu", dtype=lib.bfloat16):
            out = model(x)
            return lib.nn.functional.cross_entropy(out.view(-1, out.shape[-1]), y.view(-1))

    step = training_step(optimizer, of_loss(loss_of) if of_loss else loss_of)
    call = whole(step) if whole else step
    return lambda: call(x, y), parameters


def _ours(workload: MixedStep, threads: int, whole: bool) -> tuple[Callable[[], Any], list[Any]]:
    ng = importlib.import_module("numbagrad")
    return _stepped(workload, ng, whole=ng.compile if whole else None)


def _torchs(workload: MixedStep, threads: int, whole: bool) -> tuple[Callable[[], Any], list[Any]]:
    torch = load_torch(threads)
    return _stepped(workload, torch, of_loss=torch.compile if whole else None)


CONTENDERS: dict[str, Callable[[MixedStep, int], tuple[Callable[[], Any], list[Any]]]] = {
    COMPILED: lambda workload, threads: _ours(workload, threads, True),
    EAGER: lambda workload, threads: _ours(workload, threads, False),
    "torch": lambda workload, threads: _torchs(workload, threads, False),
    "torch.compile": lambda workload, threads: _torchs(workload, threads, True),
}
"""By the names that reports use."""


def build(contender: str, number: int, threads: int) -> Step:
    """A step of one of ``WORKLOADS``."""
    return WORKLOADS[number].build(contender, threads)
