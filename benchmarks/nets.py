"""The networks whose training steps are compared, with their data and first weights in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from .case import uniform


@dataclass(frozen=True)
class Net:
    """Linear layers of ``sizes`` with ReLU between them, cross entropy, SGD with momentum or Adam.

    at_most: the ratio of the compiled step to the best peer that is asked for.
    """

    sizes: tuple[int, ...]
    batch: int
    at_most: float
    optimizer: str = "momentum"

    @property
    def name(self) -> str:
        """Sizes, batch and optimiser in words."""
        return f"{'-'.join(map(str, self.sizes))} batch {self.batch}, {self.optimizer}"

    def weights(self) -> list[np.ndarray]:
        """Weight (out, in) and bias (out) of each layer in turn: the same at every call."""
        arrays = []
        for features_in, features_out in pairwise(self.sizes):
            arrays.append(uniform(features_out, features_in) / np.float32(features_in**0.5))
            arrays.append(uniform(features_out) / 4)
        return arrays

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """One batch: float32 inputs (batch, features) and int64 labels (batch)."""
        labels = np.random.default_rng(self.batch).integers(0, self.sizes[-1], self.batch)
        return uniform(self.batch, self.sizes[0]), labels


@dataclass(frozen=True)
class LeNet:
    """Two convolutions of 5 by 5, each with ReLU and pooling, and three affine layers.

    For images of 28 by 28 (LeCun et al., 1998), with cross entropy and SGD with momentum.
    """

    batch: int
    at_most: float
    optimizer: str = "momentum"

    @property
    def name(self) -> str:
        """Batch and optimiser in words."""
        return f"LeNet batch {self.batch}, {self.optimizer}"

    def weights(self) -> list[np.ndarray]:
        """Weight and bias of each layer in turn: the same at every call."""
        arrays = []
        for shape in ((6, 1, 5, 5), (16, 6, 5, 5), (120, 400), (84, 120), (10, 84)):
            arrays.append(uniform(*shape) / np.float32(np.prod(shape[1:]) ** 0.5))
            arrays.append(uniform(shape[0]) / 4)
        return arrays

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """One batch: float32 images (batch, 1, 28, 28) and int64 labels (batch)."""
        labels = np.random.default_rng(self.batch).integers(0, 10, self.batch)
        return uniform(self.batch, 1, 28, 28), labels

    def logits(self, functional: Any, parameters: Any, x: Any) -> Any:
        """The net, in the words of ``nn.functional``."""
        first, bias, second, bias_2, *affine = parameters
        h = functional.max_pool2d(functional.relu(functional.conv2d(x, first, bias, padding=2)), 2)
        h = functional.max_pool2d(functional.relu(functional.conv2d(h, second, bias_2)), 2)
        h = h.reshape(self.batch, 400)
        for i in (0, 2):
            h = functional.relu(functional.linear(h, affine[i], affine[i + 1]))
        return functional.linear(h, *affine[4:])


NETS: list[Any] = [
    Net((16, 16, 16, 4), 32, 0.5),
    Net((64, 64, 64, 10), 32, 0.6),
    Net((64, 64, 10), 32, 0.5, "Adam"),
    Net((784, 256, 128, 10), 32, 0.65),
    Net((784, 256, 128, 10), 128, 0.75),
    Net((784, 256, 128, 10), 1024, 1.15),
    LeNet(64, 1.0),
]
