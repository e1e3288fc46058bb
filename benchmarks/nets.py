"""The networks whose training steps are compared, with their data and first weights in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .case import uniform

MOMENTUM = 0.9
BETAS, EPS = (0.9, 0.999), 1e-8
LR = 1e-4  # so small that thousands of timed steps on one batch leave the numbers ordinary


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


NETS = [
    Net((16, 16, 16, 4), 32, 0.5),
    Net((64, 64, 64, 10), 32, 0.6),
    Net((64, 64, 10), 32, 0.5, "Adam"),
    Net((784, 256, 128, 10), 32, 0.65),
    Net((784, 256, 128, 10), 128, 0.75),
    Net((784, 256, 128, 10), 1024, 1.15),
]
