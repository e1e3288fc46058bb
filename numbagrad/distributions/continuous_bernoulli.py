"""``ContinuousBernoulli``: numbers in [0, 1] whose density is a Bernoulli's, made to sum to one.

(Loaiza-Ganem and Cunningham, 2019.) Near 1 / 2 its formulas are 0 / 0: Taylor's are taken there.
"""

from __future__ import annotations

import math
from typing import Any

from ..ops.elementwise import abs, log, log1p, pow, sigmoid, square, where
from ..ops.random import rand
from ..tensor import Tensor
from . import constraints
from .distribution import computed
from .exponential_family import ExponentialFamily
from .probability import ByProbability, clamp_probs, logit_of

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ByProbability, ExponentialFamily):
    """Density proportional to ``probs ** x * (1 - probs) ** (1 - x)`` on [0, 1].

    lims: between these ``probs`` counts as near 1 / 2.

    >>> ContinuousBernoulli(0.5).mean.item()
    0.5
    """

    support = constraints.unit_interval
    has_rsample = True

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ):
        self._lims = lims
        super().__init__(probs, logits, validate_args)

    @computed
    def probs(self) -> Tensor:
        """The probability that the density is shaped by."""
        return clamp_probs(sigmoid(self.logits))

    @computed
    def logits(self) -> Tensor:
        """The logarithm of the odds."""
        return logit_of(self.probs)

    def _near(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where probs is near 1 / 2, its distance from there, and probs where it is not near."""
        p = clamp_probs(self.probs)
        low, high = self._lims
        near = (p > low) & (p <= high)
        return near, p - 0.5, where(near, low, p)

    def _log_norm(self) -> Tensor:
        """The logarithm of what the density is multiplied by."""
        near, d, p = self._near()
        odds = abs(log1p(-p) - log(p))
        x = square(d)
        taylor = math.log(2) + (4 / 3 + 104 / 45 * x) * x
        return where(near, taylor, log(odds) - log(abs(1 - 2 * p)))

    @property
    def mean(self) -> Tensor:
        near, d, p = self._near()
        found = p / (2 * p - 1) + 1 / (log1p(-p) - log(p))
        return where(near, 0.5 + (1 / 3 + 16 / 45 * square(d)) * d, found)

    @property
    def variance(self) -> Tensor:
        near, d, p = self._near()
        found = p * (p - 1) / square(1 - 2 * p) + 1 / square(log1p(-p) - log(p))
        x = square(d)
        return where(near, 1 / 12 - (1 / 15 - 128 / 945 * x) * x, found)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        like = self.param
        shape = self._extended_shape(sample_shape)
        return self.icdf(rand(shape, dtype=like.dtype, device=like.device))

    def _log_prob(self, value: Tensor) -> Tensor:
        p = clamp_probs(self.probs)
        return value * log(p) + (1 - value) * log1p(-p) + self._log_norm()

    def _cdf(self, value: Tensor) -> Tensor:
        near, _, p = self._near()
        found = (pow(p, value) * pow(1 - p, 1 - value) + p - 1) / (2 * p - 1)
        return where(near, value, found)

    def icdf(self, value: Tensor) -> Tensor:
        near, _, p = self._near()
        found = (log1p(-p + value * (2 * p - 1)) - log1p(-p)) / (log(p) - log1p(-p))
        return where(near, value, found)

    def cross_entropy(self, mean: Tensor) -> Tensor:
        """The mean of ``-log_prob`` over numbers in [0, 1] of this ``mean``."""
        p = clamp_probs(self.probs)
        return mean * (log1p(-p) - log(p)) - log1p(-p) - self._log_norm()

    def entropy(self) -> Tensor:
        return self.cross_entropy(self.mean)
