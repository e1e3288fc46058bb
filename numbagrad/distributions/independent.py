"""``Independent``: batch dimensions of a distribution taken as dimensions of its events."""

from __future__ import annotations

from typing import Any

from ..ops.reduce import sum
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution

__all__ = ["Independent", "sum_rightmost"]


def sum_rightmost(x: Tensor, n: int) -> Tensor:
    """The sum over the last ``n`` dimensions."""
    return sum(x, tuple(range(-n, 0))) if n else x


class Independent(Distribution):
    """The last ``reinterpreted_batch_ndims`` batch dimensions of ``base_distribution`` as events.

    >>> from numbagrad.distributions import Bernoulli
    >>> Independent(Bernoulli(probs=full((3, 2), 0.5)), 1).log_prob(zeros(3, 2)).shape
    ng.Size([3])
    """

    def __init__(
        self,
        base_distribution: Distribution,
        reinterpreted_batch_ndims: int,
        validate_args: bool | None = None,
    ):
        batch = base_distribution.batch_shape
        n = reinterpreted_batch_ndims
        if n > len(batch):
            raise ValueError(
                f"Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {n} vs {len(batch)}"
            )
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, n
        first = len(batch) - n
        event = (*batch[first:], *base_distribution.event_shape)
        super().__init__(batch[:first], event, validate_args)

    def expand(self, batch_shape: Any) -> Independent:
        n = self.reinterpreted_batch_ndims
        base = self.base_dist
        wide = base.expand((*batch_shape, *self._event_shape[:n]))
        return Independent(wide, n, validate_args=self._validate_args)

    @property
    def has_rsample(self) -> bool:
        """Whether the base's draws have gradients."""
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:
        """Whether ``enumerate_support`` is there."""
        return self.base_dist.has_enumerate_support and not self.reinterpreted_batch_ndims

    @constraints.dependent_property
    def support(self) -> Any:
        """The base's, for all elements of an event."""
        found = self.base_dist.support
        n = self.reinterpreted_batch_ndims
        return constraints.independent(found, n) if n else found

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def _log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            raise self._missing("enumerate_support: its values are products of the base's")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"
