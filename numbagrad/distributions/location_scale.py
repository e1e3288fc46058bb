"""Distributions that are one curve, moved by ``loc`` and stretched by ``scale``.

Each is a row: the curve of loc 0 and scale 1, and what ``LocationScale`` makes of it. ``Half`` has
those that are the absolute value of another. Start reading at ``Normal``.
"""

from __future__ import annotations

import math
from typing import Any

from ..ops.elementwise import abs, atan, clamp, erf, exp, log, log1p, square, tan, where
from ..ops.normal_quantile import erfinv, ndtri
from ..ops.random import rand, randn
from ..ops.special import erfc
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, broadcast_all, infinite_like
from .draws import exponential_like, gumbel_like
from .exponential_family import ExponentialFamily

__all__ = ["Cauchy", "Gumbel", "HalfCauchy", "HalfNormal", "Laplace", "LocationScale", "Normal"]

_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)
EULER = 0.5772156649015329


class LocationScale(Distribution):
    """``loc + scale * z`` with z of a fixed distribution, which a subclass describes."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    centre = 0.0
    """The mean of z."""
    spread: float
    """The variance of z."""
    disorder: float
    """The entropy of z."""

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @staticmethod
    def draw(like: Tensor, shape: Any) -> Tensor:
        """Draws of z of the dtype and on the device of ``like``."""
        raise NotImplementedError

    @staticmethod
    def standard_log_prob(z: Tensor) -> Tensor:
        """The logarithm of the density of z."""
        raise NotImplementedError

    @staticmethod
    def standard_cdf(z: Tensor) -> Tensor:
        """The chance of at most z."""
        raise NotImplementedError

    @staticmethod
    def standard_icdf(p: Tensor) -> Tensor:
        """The inverse of ``standard_cdf``."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        return self.loc + self.centre * self.scale if self.centre else self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.spread * square(self.scale)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.loc + self.scale * self.draw(self.loc, self._extended_shape(sample_shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        return self.standard_log_prob((value - self.loc) / self.scale) - log(self.scale)

    def _cdf(self, value: Tensor) -> Tensor:
        return self.standard_cdf((value - self.loc) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * self.standard_icdf(value)

    def entropy(self) -> Tensor:
        return self.disorder + log(self.scale)


def _options(like: Tensor) -> dict[str, Any]:
    return {"dtype": like.dtype, "device": like.device}


class Normal(LocationScale, ExponentialFamily):
    """Normal of mean ``loc`` and standard deviation ``scale``.

    >>> round(Normal(0.0, 1.0).log_prob(tensor(0.0)).item(), 4)
    -0.9189
    """

    spread = 1.0
    disorder = 0.5 + _LOG_ROOT_TWO_PI

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @staticmethod
    def draw(like: Tensor, shape: Any) -> Tensor:
        return randn(shape, **_options(like))

    @staticmethod
    def standard_log_prob(z: Tensor) -> Tensor:
        return -0.5 * square(z) - _LOG_ROOT_TWO_PI

    @staticmethod
    def standard_cdf(z: Tensor) -> Tensor:
        return 0.5 * erfc(z * -math.sqrt(0.5))

    @staticmethod
    def standard_icdf(p: Tensor) -> Tensor:
        return ndtri(p)


class Laplace(LocationScale):
    """Density ``exp(-abs(x - loc) / scale) / (2 scale)``.

    >>> Laplace(1.0, 2.0).variance.item()
    8.0
    """

    spread = 2.0
    disorder = 1 + math.log(2)

    @staticmethod
    def draw(like: Tensor, shape: Any) -> Tensor:
        return exponential_like(like, shape) - exponential_like(like, shape)

    @staticmethod
    def standard_log_prob(z: Tensor) -> Tensor:
        return -abs(z) - math.log(2)

    @staticmethod
    def standard_cdf(z: Tensor) -> Tensor:
        above, below = clamp(z, 0), clamp(z, None, 0)  # abs would have no slope at 0
        return where(z > 0, 1 - 0.5 * exp(-above), 0.5 * exp(below))

    @staticmethod
    def standard_icdf(p: Tensor) -> Tensor:
        return where(p < 0.5, log(2 * p), -log(2 * (1 - p)))


class Gumbel(LocationScale):
    """The largest of many: distribution function ``exp(-exp(-(x - loc) / scale))``.

    >>> Gumbel(0.0, 1.0).mode.item()
    0.0
    """

    centre = EULER
    spread = math.pi**2 / 6
    disorder = 1 + EULER

    @staticmethod
    def draw(like: Tensor, shape: Any) -> Tensor:
        return gumbel_like(like, shape)

    @staticmethod
    def standard_log_prob(z: Tensor) -> Tensor:
        return -z - exp(-z)

    @staticmethod
    def standard_cdf(z: Tensor) -> Tensor:
        return exp(-exp(clamp(-z, None, 30)))  # 0 from there on; more would be 0 * inf in slopes

    @staticmethod
    def standard_icdf(p: Tensor) -> Tensor:
        return -log(-log(p))


class Cauchy(LocationScale):
    """Density ``1 / (pi scale (1 + ((x - loc) / scale) ** 2))``; it has no mean or variance.

    >>> Cauchy(0.0, 1.0).cdf(tensor(0.0)).item()
    0.5
    """

    disorder = math.log(4 * math.pi)

    @property
    def mean(self) -> Tensor:
        return infinite_like(self.loc) * float("nan")

    @property
    def variance(self) -> Tensor:
        return infinite_like(self.loc)

    @staticmethod
    def draw(like: Tensor, shape: Any) -> Tensor:
        return tan((rand(shape, **_options(like)) - 0.5) * math.pi)

    @staticmethod
    def standard_log_prob(z: Tensor) -> Tensor:
        return -log1p(square(z)) - math.log(math.pi)

    @staticmethod
    def standard_cdf(z: Tensor) -> Tensor:
        return atan(z) / math.pi + 0.5

    @staticmethod
    def standard_icdf(p: Tensor) -> Tensor:
        return tan((p - 0.5) * math.pi)


class Half(Distribution):
    """The absolute value of a distribution around 0, which a subclass names."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    whole: type[LocationScale]

    def __init__(self, scale: Any, validate_args: bool | None = None):
        (self.scale,) = broadcast_all(scale)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def mode(self) -> Tensor:
        return 0 * self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.scale * abs(self.whole.draw(self.scale, self._extended_shape(sample_shape)))

    def _log_prob(self, value: Tensor) -> Tensor:
        found = self.whole.standard_log_prob(value / self.scale) - log(self.scale) + math.log(2)
        return where(value >= 0, found, -math.inf)

    def entropy(self) -> Tensor:
        return self.whole.disorder - math.log(2) + log(self.scale)


class HalfNormal(Half):
    """The absolute value of normal numbers of mean 0 and standard deviation ``scale``.

    >>> HalfNormal(1.0).cdf(tensor(0.0)).item()
    0.0
    """

    whole = Normal

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return square(self.scale) * (1 - 2 / math.pi)

    def _cdf(self, value: Tensor) -> Tensor:
        return erf(value / self.scale * math.sqrt(0.5))

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * math.sqrt(2) * erfinv(value)


class HalfCauchy(Half):
    """The absolute value of Cauchy numbers around 0; it has no mean.

    >>> round(HalfCauchy(1.0).cdf(tensor(1.0)).item(), 6)
    0.5
    """

    whole = Cauchy

    @property
    def mean(self) -> Tensor:
        return infinite_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return infinite_like(self.scale)

    def _cdf(self, value: Tensor) -> Tensor:
        return atan(value / self.scale) * (2 / math.pi)

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * tan(value * (math.pi / 2))
