"""Distributions whose draws are functions of an exponential number.

``H(x)``, the cumulative hazard, is exponential of rate 1, so that ``1 - exp(-H)`` is the
distribution function and ``H' exp(-H)`` the density. Each gives H, its inverse, and log H'.
"""

from __future__ import annotations

from typing import Any

from ..ops.elementwise import abs, exp, expm1, log, log1p, pow, square, where
from ..ops.gamma import digamma, lgamma
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, broadcast_all
from .draws import exponential_like
from .exponential_family import ExponentialFamily
from .location_scale import EULER

__all__ = ["Exponential", "GeneralizedPareto", "Hazard", "Kumaraswamy", "Pareto", "Weibull"]


class Hazard(Distribution):
    """What follows from the cumulative hazard, which a subclass gives."""

    has_rsample = True

    def _hazard(self, value: Tensor) -> Tensor:
        raise NotImplementedError

    def _log_rate(self, value: Tensor) -> Tensor:
        """The logarithm of the derivative of ``_hazard``."""
        raise NotImplementedError

    def _at_hazard(self, hazard: Tensor) -> Tensor:
        """The value of this hazard."""
        raise NotImplementedError

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self._at_hazard(exponential_like(self._like, shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        return self._log_rate(value) - self._hazard(value)

    def _cdf(self, value: Tensor) -> Tensor:
        return -expm1(-self._hazard(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._at_hazard(-log1p(-value))


class Exponential(Hazard, ExponentialFamily):
    """Waiting times of a ``rate``: density ``rate exp(-rate x)``.

    >>> Exponential(2.0).mean.item()
    0.5
    """

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, rate: Any, validate_args: bool | None = None):
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        return 0 * self.rate

    @property
    def stddev(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return 1 / square(self.rate)

    def _hazard(self, value: Tensor) -> Tensor:
        return self.rate * value

    def _log_rate(self, value: Tensor) -> Tensor:
        return log(self.rate)

    def _at_hazard(self, hazard: Tensor) -> Tensor:
        return hazard / self.rate

    def entropy(self) -> Tensor:
        return 1 - log(self.rate)


class Weibull(Hazard):
    """Lifetimes: the chance of more than x is ``exp(-(x / scale) ** concentration)``.

    >>> Weibull(2.0, 1.0).mean.item()
    2.0
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None):
        self.scale, self.concentration = broadcast_all(scale, concentration)
        super().__init__(self.scale.shape, validate_args=validate_args)

    def _moment(self, n: int) -> Tensor:
        return exp(lgamma(1 + n / self.concentration))

    @property
    def mean(self) -> Tensor:
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Tensor:
        inverse = 1 / self.concentration
        return where(self.concentration > 1, self.scale * pow(1 - inverse, inverse), 0 * inverse)

    @property
    def variance(self) -> Tensor:
        return square(self.scale) * (self._moment(2) - square(self._moment(1)))

    def _hazard(self, value: Tensor) -> Tensor:
        return pow(value / self.scale, self.concentration)

    def _log_rate(self, value: Tensor) -> Tensor:
        k = self.concentration
        return log(k / self.scale) + (k - 1) * log(value / self.scale)

    def _at_hazard(self, hazard: Tensor) -> Tensor:
        return self.scale * pow(hazard, 1 / self.concentration)

    def entropy(self) -> Tensor:
        k = self.concentration
        return EULER * (1 - 1 / k) + log(self.scale / k) + 1


class Pareto(Hazard):
    """A power law above ``scale``: the chance of more than x is ``(scale / x) ** alpha``.

    >>> Pareto(1.0, 3.0).mean.item()
    1.5
    """

    arg_constraints = {"scale": constraints.positive, "alpha": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None):
        self.scale, self.alpha = broadcast_all(scale, alpha)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        """Values from ``scale`` on."""
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        a = self.alpha
        return where(a > 1, a * self.scale / where(a > 1, a - 1, 1.0), float("inf"))

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha
        below = square(where(a > 2, a - 1, 1.0)) * where(a > 2, a - 2, 1.0)
        return where(a > 2, square(self.scale) * a / below, float("inf"))

    def _hazard(self, value: Tensor) -> Tensor:
        return self.alpha * log(value / self.scale)

    def _log_rate(self, value: Tensor) -> Tensor:
        return log(self.alpha / value)

    def _at_hazard(self, hazard: Tensor) -> Tensor:
        return self.scale * exp(hazard / self.alpha)

    def entropy(self) -> Tensor:
        return log(self.scale / self.alpha) + 1 + 1 / self.alpha


class GeneralizedPareto(Hazard):
    """How far numbers are above ``loc``, once they are: ``scale * (exp(c h) - 1) / c`` for an
    exponential number h, c the concentration; for 0 ``scale * h`` (Pickands, 1975).

    >>> GeneralizedPareto(0.0, 1.0, 0.5).mean.item()
    2.0
    """

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None):
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        """From ``loc`` on, up to an end where the concentration is negative."""
        c = self.concentration
        end = self.loc - self.scale / where(c < 0, c, -1.0)
        return constraints.interval(self.loc, where(c < 0, end, float("inf")))

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        found = self.loc + self.scale / (1 - where(c < 1, c, 0.5))
        return where(c < 1, found, float("nan"))

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        given = self.concentration
        c = where(given < 0.5, given, 0.25)
        found = square(self.scale) / (square(1 - c) * (1 - 2 * c))
        return where(given < 0.5, found, float("nan"))

    def _safe(self) -> tuple[Tensor, Tensor]:
        """Where the concentration is 0, and the concentration, 1 there."""
        none = abs(self.concentration) < 1e-8
        return none, where(none, 1.0, self.concentration)

    def _hazard(self, value: Tensor) -> Tensor:
        none, c = self._safe()
        z = (value - self.loc) / self.scale
        return where(none, z, log1p(where(none, 0.0, c * z)) / c)

    def _log_rate(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return -log1p(self.concentration * z) - log(self.scale)

    def _at_hazard(self, hazard: Tensor) -> Tensor:
        none, c = self._safe()
        return self.loc + self.scale * where(none, hazard, expm1(c * hazard) / c)

    def entropy(self) -> Tensor:
        return log(self.scale) + self.concentration + 1


class Kumaraswamy(Hazard):
    """Shares, much as of ``Beta``: at most x with the chance ``1 - (1 - x ** a) ** b``, a and b the
    concentrations 1 and 0 (Kumaraswamy, 1980).

    >>> Kumaraswamy(1.0, 1.0).mean.item()
    0.5
    """

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    def _moment(self, n: int) -> Tensor:
        a, b = 1 + n / self.concentration1, self.concentration0
        return b * exp(lgamma(a) + lgamma(b) - lgamma(a + b))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """Inside of (0, 1) where both concentrations are above 1, else NaN. PyTorch's is NaN."""
        a, b = self.concentration1, self.concentration0
        inside = (a > 1) & (b > 1)
        part = where(inside, a - 1, 1.0) / where(inside, a * b - 1, 1.0)
        return where(inside, pow(part, 1 / a), float("nan"))

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - square(self._moment(1))

    def _hazard(self, value: Tensor) -> Tensor:
        return -self.concentration0 * log1p(-pow(value, self.concentration1))

    def _log_rate(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return log(a * b) + (a - 1) * log(value) - log1p(-pow(value, a))

    def _at_hazard(self, hazard: Tensor) -> Tensor:
        return pow(-expm1(-hazard / self.concentration0), 1 / self.concentration1)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = digamma(b + 1) + EULER
        return (1 - 1 / b) + (1 - 1 / a) * harmonic - log(a) - log(b)
