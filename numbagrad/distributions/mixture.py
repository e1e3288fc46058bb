"""``MixtureSameFamily``: one of several distributions of a family, drawn by weight."""

from __future__ import annotations

from typing import Any

from ..ops.elementwise import square
from ..ops.gather import gather
from ..ops.norm import log_softmax, logsumexp
from ..ops.reduce import sum
from ..ops.view import expand
from ..tensor import Tensor
from . import constraints
from .categorical import Categorical
from .distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """Draws of the components, the last batch dimension, with the weights of a ``Categorical``.

    >>> from numbagrad.distributions import Normal
    >>> weights = Categorical(probs=tensor([0.5, 0.5]))
    >>> MixtureSameFamily(weights, Normal(tensor([-1.0, 1.0]), 0.1)).mean.item()
    0.0
    """

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ):
        weights, parts = mixture_distribution, component_distribution
        if not isinstance(weights, Categorical):
            raise ValueError(
                " The Mixture distribution needs to be an instance of "
                f"numbagrad.distributions.Categorical, got {weights!r}."
            )
        if not isinstance(parts, Distribution) or not parts.batch_shape:
            raise ValueError(
                f"The Component distribution needs a batch dimension to choose from, got {parts!r}."
            )
        if weights._num_events != parts.batch_shape[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({weights._num_events}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({parts.batch_shape[-1]})."
            )
        batch = parts.batch_shape[:-1]
        self._mixture_distribution = weights.expand(batch)
        self._component_distribution = parts
        super().__init__(batch, parts.event_shape, validate_args)

    def expand(self, batch_shape: Any) -> MixtureSameFamily:
        weights, parts = self._mixture_distribution, self._component_distribution
        wide = parts.expand((*batch_shape, weights._num_events))
        return MixtureSameFamily(weights.expand(batch_shape), wide, self._validate_args)

    @property
    def mixture_distribution(self) -> Categorical:
        """The weights."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    @constraints.dependent_property
    def support(self) -> Any:
        """That of the components, if it is the same for all of them; else it is not checked."""
        found = self._component_distribution.support
        each = getattr(found, "base_constraint", found)
        bounds = [getattr(each, name, 0) for name in ("lower_bound", "upper_bound")]
        if any([isinstance(bound, Tensor) for bound in bounds]):
            raise NotImplementedError("MixtureSameFamily: the components' supports differ.")
        return found

    def _padded(self, x: Tensor) -> Tensor:
        """``x`` with a dimension for the components before those of events."""
        return x.unsqueeze(-1 - len(self._event_shape))

    def _weighted(self, x: Tensor) -> Tensor:
        """The mean of ``x`` over the components."""
        probs = self._mixture_distribution.probs
        n = len(self._event_shape)
        return sum(probs.reshape((*probs.shape, *[1] * n)) * x, -1 - n)

    @property
    def mean(self) -> Tensor:
        return self._weighted(self._component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        parts = self._component_distribution
        between = square(parts.mean - self._padded(self.mean))
        return self._weighted(parts.variance + between)

    def _cdf(self, value: Tensor) -> Tensor:
        return self._weighted(self._component_distribution.cdf(self._padded(value)))

    def _log_prob(self, value: Tensor) -> Tensor:
        found = self._component_distribution.log_prob(self._padded(value))
        return logsumexp(found + log_softmax(self._mixture_distribution.logits, -1), -1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        chosen = self._mixture_distribution.sample(sample_shape)
        drawn = self._component_distribution.sample(sample_shape)
        n = len(self._event_shape)
        at = chosen.reshape((*chosen.shape, *[1] * (n + 1)))
        at = expand(at, (*chosen.shape, 1, *self._event_shape))
        return gather(drawn, -1 - n, at).squeeze(-1 - n)

    def __repr__(self) -> str:
        return (
            f"MixtureSameFamily(\n  {self._mixture_distribution},\n"
            f"  {self._component_distribution})"
        )
