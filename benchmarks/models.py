"""A survey: small models of every kind, trained and asked, with batches of 1 to 256.

A hole shows here wherever it is, so the survey is wide: thirteen models by five batches. It runs on
one thread, for a few rounds, and beside torch's eager form alone: torch.compile would take an hour.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import race
from .case import COMPILED_AT_MOST, Row, uniform
from .contenders import Step
from .libraries import COMPILED, EAGER, MODULES, load_torch, training_step

SUITE = "models"
LR = 1e-4
BATCHES = (1, 4, 16, 64, 256)
ROUNDS = 7


@dataclass(frozen=True)
class Model:
    """make: the module of a library; shape: of one input, without its batch.

    words: how many integers there are, where the inputs are integers; None where they are floats.
    fewest: the smallest batch that it is trained with.
    """

    name: str
    make: Callable[[Any], Any]
    shape: tuple[int, ...]
    classes: int = 10
    words: int | None = None
    fewest: int = 1

    def data(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels: the same at every call."""
        draw = np.random.default_rng(batch)
        shape = (batch, *self.shape)
        x = uniform(*shape) if self.words is None else draw.integers(0, self.words, shape)
        return x, draw.integers(0, self.classes, batch)

    def filled(self, lib: Any) -> Any:
        """The module with weights that do not depend on the library."""
        module = self.make(lib)
        with lib.no_grad():
            for p in module.parameters():
                spread = float(np.prod(p.shape[1:])) ** -0.5 if p.dim() > 1 else 0.25
                p.copy_(lib.from_numpy(uniform(*p.shape)) * spread)
        return module


def perceptron(lib: Any) -> Any:
    """64 features, two layers of 256."""
    nn = lib.nn
    layers = nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    return nn.Sequential(*layers)


def tanh_perceptron(lib: Any) -> Any:
    """As networks of control and of equations are: narrow, with tanh."""
    nn = lib.nn
    layers = nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
    return nn.Sequential(*layers)


def normalised_perceptron(lib: Any) -> Any:
    """Batch norm between the layers."""
    nn = lib.nn
    hidden = nn.Linear(32, 64, bias=False), nn.BatchNorm1d(64), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(64, 10))


def lenet(lib: Any) -> Any:
    """LeNet with ReLU and maxima."""
    nn = lib.nn
    first = nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    rest = nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)
    return nn.Sequential(*first, *second, *rest)


def batch_norm(lib: Any) -> Any:
    """Two convolutions with batch norm."""
    nn = lib.nn
    first = nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()
    second = nn.Conv2d(32, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()
    return nn.Sequential(*first, *second, *_head(nn, nn.AdaptiveAvgPool2d(1), 64))


def sequence(lib: Any) -> Any:
    """Two convolutions over a sequence, one dilated."""
    nn = lib.nn
    first = nn.Conv1d(8, 32, 5, padding=2), nn.ReLU()
    second = nn.Conv1d(32, 32, 5, padding=4, dilation=2), nn.ReLU()
    return nn.Sequential(*first, *second, *_head(nn, nn.AdaptiveAvgPool1d(1), 32))


def inverted_residual(lib: Any) -> Any:
    """Wide, depthwise and narrow again (Sandler et al., 2018)."""
    nn = lib.nn
    wide = nn.Conv2d(16, 96, 1, bias=False), nn.BatchNorm2d(96), nn.ReLU6()
    depthwise = nn.Conv2d(96, 96, 3, padding=1, groups=96, bias=False), nn.BatchNorm2d(96)
    narrow = nn.ReLU6(), nn.Conv2d(96, 16, 1)
    return nn.Sequential(*wide, *depthwise, *narrow, nn.Flatten(), nn.Linear(16 * 16 * 16, 10))


def group_norm(lib: Any) -> Any:
    """Group norm, SiLU and a mean of places."""
    nn = lib.nn
    layers = nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16), nn.SiLU(), nn.AvgPool2d(2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(16 * 15 * 15, 10))


def autoencoder(lib: Any) -> Any:
    """A convolution with strides and its transpose."""
    nn = lib.nn
    narrow = nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU()
    wide = nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1), nn.Sigmoid()
    return nn.Sequential(*narrow, *wide, nn.Flatten(), nn.Linear(784, 10))


def recurrent(kind: str) -> Callable[[Any], Any]:
    """``nn.LSTM``, ``nn.GRU`` or ``nn.RNN`` over twenty steps, asked for its last state."""

    def make(lib: Any) -> Any:
        class Last(lib.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.cells = getattr(lib.nn, kind)(16, 64, batch_first=True)
                self.out = lib.nn.Linear(64, 10)

            def forward(self, x: Any) -> Any:
                return self.out(self.cells(x)[0][:, -1])

        return Last()

    return make


def transformer(lib: Any) -> Any:
    """One block of attention over sixteen places."""

    class Mean(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            nn = lib.nn
            self.block = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
            self.out = nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            return self.out(self.block(x).mean(1))

    return Mean()


def bag(lib: Any) -> Any:
    """The mean of twelve words' vectors."""
    return lib.nn.Sequential(lib.nn.EmbeddingBag(1000, 32, mode="mean"), lib.nn.Linear(32, 10))


def _head(nn: Any, pool: Any, width: int) -> tuple[Any, ...]:
    return pool, nn.Flatten(), nn.Linear(width, 10)


MODELS = (
    Model("perceptron", perceptron, (64,)),
    Model("tanh perceptron", tanh_perceptron, (8,), classes=2),
    Model("perceptron with batch norm", normalised_perceptron, (32,), fewest=4),
    Model("LeNet", lenet, (1, 28, 28)),
    Model("convolutions with batch norm", batch_norm, (3, 32, 32)),
    Model("convolutions of a sequence", sequence, (8, 128)),
    Model("inverted residual", inverted_residual, (16, 16, 16)),
    Model("convolution with group norm", group_norm, (3, 32, 32)),
    Model("autoencoder", autoencoder, (1, 28, 28)),
    Model("LSTM", recurrent("LSTM"), (20, 16)),
    Model("GRU", recurrent("GRU"), (20, 16)),
    Model("RNN", recurrent("RNN"), (20, 16)),
    Model("transformer block", transformer, (16, 64)),
    Model("embedding bag", bag, (12,), words=1000),
)


@dataclass(frozen=True)
class Training:
    """A step of Adam; its results are the loss and how far each parameter has moved.

    Of a move only the length is compared: where a gradient is nearly nothing, Adam moves by the
    sign of its rounding.
    """

    model: Model
    batch: int
    tolerance: float = 2e-2
    at_most: float = COMPILED_AT_MOST

    @property
    def name(self) -> str:
        """Model and batch in words."""
        return f"{self.model.name}, batch {self.batch}, training"

    @property
    def contenders(self) -> tuple[str, ...]:
        """Who may run it."""
        return CONTENDERS

    def build(self, contender: str, threads: int) -> Step:
        """One step, and what returns the loss and the lengths of the moves."""
        lib = library(contender, threads)
        module = self.model.filled(lib)
        parameters = list(module.parameters())
        first = [p.detach().numpy().copy() for p in parameters]
        x, y = map(lib.from_numpy, self.model.data(self.batch))

        def loss_of(x: Any, y: Any) -> Any:
            return lib.nn.functional.cross_entropy(module(x), y)

        step = training_step(lib.optim.Adam(parameters, lr=LR), loss_of)
        call = lib.compile(step) if contender == COMPILED else step
        last: list[Any] = []

        def run() -> None:
            last[:] = [call(x, y)]

        def results() -> list[np.ndarray]:
            pairs = zip(parameters, first, strict=True)
            moved = [np.linalg.norm(p.detach().numpy() - start) for p, start in pairs]
            return [np.asarray(float(last[0].detach())), np.array(moved)]

        return run, results


@dataclass(frozen=True)
class Inference:
    """The outputs of a module in eval mode, without a graph."""

    model: Model
    batch: int
    tolerance: float = 1e-4
    at_most: float = COMPILED_AT_MOST

    @property
    def name(self) -> str:
        """Model and batch in words."""
        return f"{self.model.name}, batch {self.batch}, inference"

    @property
    def contenders(self) -> tuple[str, ...]:
        """Who may run it."""
        return CONTENDERS

    def build(self, contender: str, threads: int) -> Step:
        """One call, and what returns the outputs."""
        lib = library(contender, threads)
        module = self.model.filled(lib).eval()
        x = lib.from_numpy(self.model.data(self.batch)[0])
        call = lib.compile(module) if contender == COMPILED else module
        last: list[Any] = []

        def run() -> None:
            with lib.no_grad():
                last[:] = [call(x)]

        return run, lambda: [last[0].numpy()]


CONTENDERS = (COMPILED, EAGER, "torch")
WORKLOADS = [
    kind(model, n)
    for model in MODELS
    for kind in (Training, Inference)
    for n in BATCHES
    if n >= model.fewest
]


def library(contender: str, threads: int) -> Any:
    """numbagrad or torch."""
    of_torch = MODULES.get(contender) == "torch"
    return load_torch(threads) if of_torch else importlib.import_module("numbagrad")


def build(contender: str, number: int, threads: int) -> Step:
    """A call of one of ``WORKLOADS``."""
    return WORKLOADS[number].build(contender, threads)


def measure(rounds: int = ROUNDS, only: str = "") -> list[Row]:
    """The rows of all workloads on one thread."""
    return race.measure(sys.modules[__name__], rounds, (1,), only)
