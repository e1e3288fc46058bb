"""``Uniform``: every number between two is as likely."""

from __future__ import annotations

from typing import Any

from ..ops.elementwise import clamp, log, square, where
from ..ops.random import rand
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, broadcast_all

__all__ = ["Uniform"]


class Uniform(Distribution):
    """Numbers in [low, high).

    >>> Uniform(0.0, 4.0).cdf(tensor(1.0)).item()
    0.25
    """

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None):
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)

    @property
    def arg_constraints(self) -> Any:
        """Each bound by the other."""
        return {
            "low": constraints.less_than(self.high),
            "high": constraints.greater_than(self.low),
        }

    @constraints.dependent_property
    def support(self) -> Any:
        """Numbers from ``low`` to ``high``."""
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return 0.5 * (self.low + self.high)

    @property
    def mode(self) -> Tensor:
        return float("nan") * self.high

    @property
    def variance(self) -> Tensor:
        return square(self.high - self.low) / 12

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        u = rand(shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def _log_prob(self, value: Tensor) -> Tensor:
        inside = (value >= self.low) & (value < self.high)
        return where(inside, -log(self.high - self.low), -float("inf"))

    def _cdf(self, value: Tensor) -> Tensor:
        return clamp((value - self.low) / (self.high - self.low), 0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return self.low + value * (self.high - self.low)

    def entropy(self) -> Tensor:
        return log(self.high - self.low)
