"""Draws by weight made continuous, so that gradients go through them: Gumbel and softmax.

References: Maddison, Mnih, Teh, "The Concrete distribution", ICLR 2017; Jang, Gu, Poole,
"Categorical reparameterization with Gumbel-softmax", ICLR 2017.
"""

from __future__ import annotations

import math
from typing import Any

from ..ops.activation import softplus
from ..ops.base import full
from ..ops.elementwise import log
from ..ops.norm import log_softmax
from ..ops.reduce import sum
from ..tensor import Tensor
from . import constraints
from .categorical import ByClass, OneHotCategorical
from .distribution import Distribution
from .draws import gumbel_like, logistic_like
from .probability import ByProbability
from .transformed import TransformedDistribution
from .transforms import ExpTransform, SigmoidTransform, Transform

__all__ = [
    "ExpRelaxedCategorical",
    "LogitRelaxedBernoulli",
    "OneHotCategoricalStraightThrough",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
]


def _log_temperature(distribution: Any) -> Tensor:
    like, temperature = distribution.param, distribution.temperature
    if not isinstance(temperature, Tensor):
        temperature = full((), float(temperature), like.dtype, like.device)
    return log(temperature)


class Tempered(Distribution):
    """What a temperature makes continuous; the class behind it takes ``probs`` and ``logits``."""

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ):
        self.temperature = temperature
        super().__init__(probs, logits, validate_args)


class LogitRelaxedBernoulli(Tempered, ByProbability):
    """The log-odds of a relaxed Bernoulli number: logistic around ``logits``, over temperature.

    >>> LogitRelaxedBernoulli(0.5, probs=tensor([0.5, 0.5])).rsample((3,)).shape
    ng.Size([3, 2])
    """

    support = constraints.real
    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        z = logistic_like(self.param, self._extended_shape(sample_shape))
        return (self.logits + z) / self.temperature

    def _log_prob(self, value: Tensor) -> Tensor:
        z = self.logits - self.temperature * value
        return _log_temperature(self) + z - 2 * softplus(z)


class ExpRelaxedCategorical(Tempered, ByClass):
    """The logarithm of a relaxed one-hot vector.

    >>> weights = tensor([0.5, 0.5])
    >>> ExpRelaxedCategorical(0.5, probs=weights).rsample((3,)).shape
    ng.Size([3, 2])
    """

    support = constraints.real_vector
    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        z = gumbel_like(self.param, self._extended_shape(sample_shape))
        return log_softmax((self.logits + z) / self.temperature, -1)

    def _log_prob(self, value: Tensor) -> Tensor:
        k = self._num_events
        shares = log_softmax(self.logits - value * self.temperature, -1)
        return sum(shares, -1) + math.lgamma(k) + (k - 1) * _log_temperature(self)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot vectors whose gradient is that of ``probs`` (Bengio et al., 2013): a biased one.

    >>> OneHotCategoricalStraightThrough(probs=tensor([0.0, 1.0])).rsample().tolist()
    [0.0, 1.0]
    """

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        probs = self.probs
        return self.sample(sample_shape) + (probs - probs.detach())


class Relaxed(TransformedDistribution):
    """A relaxed distribution, from that of its logarithms."""

    base_type: Any
    base_dist: Any
    transform: type[Transform]

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ):
        base = self.base_type(temperature, probs, logits, validate_args)
        super().__init__(base, self.transform(), validate_args)

    @property
    def temperature(self) -> Any:
        """Near 0 draws are near 0 and 1."""
        return self.base_dist.temperature

    @property
    def probs(self) -> Tensor:
        """The probabilities of the draws by weight."""
        return self.base_dist.probs

    @property
    def logits(self) -> Tensor:
        """Their logarithms, or log-odds."""
        return self.base_dist.logits


class RelaxedBernoulli(Relaxed):
    """Numbers in (0, 1), near its ends where ``temperature`` is low: above 0.5 with ``probs``.

    >>> RelaxedBernoulli(0.5, probs=tensor([0.5, 0.5])).rsample((3,)).shape
    ng.Size([3, 2])
    """

    base_type = LogitRelaxedBernoulli
    transform = SigmoidTransform
    arg_constraints = ByProbability.arg_constraints
    support = constraints.unit_interval


class RelaxedOneHotCategorical(Relaxed):
    """Vectors of shares, near one-hot where ``temperature`` is low; the largest by ``probs``.

    >>> weights = tensor([0.5, 0.5])
    >>> RelaxedOneHotCategorical(0.5, probs=weights).rsample((3,)).shape
    ng.Size([3, 2])
    """

    base_type = ExpRelaxedCategorical
    transform = ExpTransform
    arg_constraints = ByClass.arg_constraints
    support = constraints.simplex
