"""Distributions made of gamma numbers: ``Gamma``, ``Chi2``, ``Beta``, ``Dirichlet``, ``StudentT``.

Their draws have gradients by every parameter, by implicit differentiation of the gamma numbers
(``ops/sampling.py``). Those of ``Beta`` and ``Dirichlet`` are shares of gamma numbers, computed
from logarithms: small concentrations give shares of 0 and 1, never 0 / 0.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..ops.comparison import eq
from ..ops.elementwise import clamp, exp, log, log1p, rsqrt, sigmoid, square, where
from ..ops.gamma import digamma, lgamma
from ..ops.incomplete_gamma import igamma
from ..ops.norm import softmax
from ..ops.random import randn
from ..ops.reduce import sum
from ..ops.sampling import standard_gamma
from ..ops.special import xlogy
from ..ops.view import expand
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, broadcast_all
from .exponential_family import ExponentialFamily

__all__ = ["Beta", "Chi2", "Dirichlet", "FisherSnedecor", "Gamma", "StudentT", "log_beta"]


def log_beta(a: Tensor, b: Tensor) -> Tensor:
    """The logarithm of the beta function."""
    return lgamma(a) + lgamma(b) - lgamma(a + b)


class Gamma(ExponentialFamily):
    """Density proportional to ``x ** (concentration - 1) * exp(-rate * x)``.

    >>> Gamma(3.0, 2.0).mean.item()
    1.5
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    concentration: Any
    rate: Any

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None):
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return clamp(self.concentration - 1, 0) / self.rate

    @property
    def variance(self) -> Tensor:
        return self.concentration / square(self.rate)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return standard_gamma(self._expanded(self.concentration, sample_shape)) / self.rate

    def _log_prob(self, value: Tensor) -> Tensor:
        a, rate = self.concentration, self.rate
        return xlogy(a, rate) + xlogy(a - 1, value) - rate * value - lgamma(a)

    def _cdf(self, value: Tensor) -> Tensor:
        return igamma(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - log(self.rate) + lgamma(a) + (1 - a) * digamma(a)


class Chi2(Gamma):
    """The sum of ``df`` squares of normal numbers: gamma of df / 2 and rate 1 / 2.

    >>> Chi2(4.0).variance.item()
    8.0
    """

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None):
        (self.df,) = broadcast_all(df)
        Distribution.__init__(self, self.df.shape, validate_args=validate_args)

    @property
    def concentration(self) -> Tensor:
        """Half of ``df``."""
        return 0.5 * self.df

    @property
    def rate(self) -> Tensor:
        """One half."""
        return _half(self.df)


class Beta(ExponentialFamily):
    """Density proportional to ``x ** (concentration1 - 1) * (1 - x) ** (concentration0 - 1)``.

    >>> Beta(1.0, 3.0).mean.item()
    0.25
    """

    arg_constraints = {
        "concentration1": constraints.positive,
        "concentration0": constraints.positive,
    }
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None):
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        """Inside of (0, 1) where both concentrations are above 1; else the end that is likelier,
        or NaN where none is."""
        a, b = self.concentration1 - 1, self.concentration0 - 1
        inner = a / where(a + b > 0, a + b, 1.0)
        outer = where(eq(a, b), float("nan"), where(a > b, 1.0, 0.0))
        return where((a > 0) & (b > 0), inner, outer)

    @property
    def variance(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return a * b / (square(a + b) * (a + b + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        one, zero = (
            standard_gamma(self._expanded(a, sample_shape), logarithm=True)
            for a in (self.concentration1, self.concentration0)
        )
        limits = dtypes.finfo(one.dtype)
        return clamp(sigmoid(one - zero), limits.tiny, 1 - 0.5 * limits.eps)

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return xlogy(a - 1, value) + xlogy(b - 1, 1 - value) - log_beta(a, b)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        found = log_beta(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b)
        return found + (a + b - 2) * digamma(a + b)


class Dirichlet(ExponentialFamily):
    """Vectors of shares that sum to one; concentration (..., k), the last dimension an event.

    >>> Dirichlet(tensor([1.0, 3.0])).mean.tolist()
    [0.25, 0.75]
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None):
        (self.concentration,) = broadcast_all(concentration)
        if self.concentration.dim() < 1:
            raise ValueError("Dirichlet: `concentration` must be at least one-dimensional.")
        shape = self.concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args)

    @property
    def _sum(self) -> Tensor:
        return sum(self.concentration, -1, keepdim=True)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self._sum

    @property
    def mode(self) -> Tensor:
        """Inside where a concentration is above 1; else the corner of the largest."""
        above = clamp(self.concentration - 1, 0)
        total = sum(above, -1, keepdim=True)
        largest = eq(self.concentration, self.concentration.amax(-1, keepdim=True))
        corner = largest.to(above.dtype)
        corner = corner / sum(corner, -1, keepdim=True)
        return where(total > 0, above / where(total > 0, total, 1.0), corner)

    @property
    def variance(self) -> Tensor:
        total = self._sum
        return self.mean * (1 - self.mean) / (total + 1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        a = expand(self.concentration, self._extended_shape(sample_shape))
        found = softmax(standard_gamma(a, logarithm=True), -1)
        return clamp(found, dtypes.finfo(found.dtype).tiny)

    def _log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        return sum(xlogy(a - 1, value) - lgamma(a), -1) + lgamma(sum(a, -1))

    def entropy(self) -> Tensor:
        a, k, total = self.concentration, self._event_shape[0], sum(self.concentration, -1)
        found = sum(lgamma(a) - (a - 1) * digamma(a), -1) - lgamma(total)
        return found + (total - k) * digamma(total)


class StudentT(Distribution):
    """``loc`` plus ``scale`` times a normal number over the root of a Chi2 of ``df``, over df.

    >>> StudentT(4.0).variance.item()
    2.0
    """

    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ):
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return where(self.df > 1, self.loc, float("nan"))

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        df = self.df
        found = square(self.scale) * df / where(df > 2, df - 2, 1.0)
        return where(df > 2, found, where(df > 1, float("inf"), float("nan")))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        half = 0.5 * self._expanded(self.df, sample_shape)
        x = randn(half.shape, dtype=half.dtype, device=half.device)
        return self.loc + self.scale * x * rsqrt(standard_gamma(half) / half)

    def _log_normalizer(self) -> Tensor:
        return log(self.scale) + 0.5 * log(self.df) + log_beta(0.5 * self.df, _half(self.df))

    def _log_prob(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        return -0.5 * (self.df + 1) * log1p(square(z) / self.df) - self._log_normalizer()

    def entropy(self) -> Tensor:
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        return more * (digamma(more) - digamma(half)) + self._log_normalizer()


def _half(like: Tensor) -> Tensor:
    return 0.0 * like.detach() + 0.5


class FisherSnedecor(Distribution):
    """The quotient of two Chi2 numbers of ``df1`` and ``df2``, each over its number.

    >>> FisherSnedecor(2.0, 4.0).mean.item()
    2.0
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None):
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        b = self.df2
        return where(b > 2, b / where(b > 2, b - 2, 1.0), float("nan"))

    @property
    def mode(self) -> Tensor:
        a, b = self.df1, self.df2
        return where(a > 2, (a - 2) / a * b / (b + 2), float("nan"))

    @property
    def variance(self) -> Tensor:
        a, given = self.df1, self.df2
        b = where(given > 4, given, 5.0)
        found = 2 * square(b) * (a + b - 2) / (a * square(b - 2) * (b - 4))
        return where(given > 4, found, float("nan"))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        above, below = (
            standard_gamma(self._expanded(0.5 * df, sample_shape), logarithm=True)
            for df in (self.df1, self.df2)
        )
        found = exp(above - below) * (self.df2 / self.df1)
        return clamp(found, dtypes.finfo(found.dtype).tiny)

    def _log_prob(self, value: Tensor) -> Tensor:
        a, b, ratio = 0.5 * self.df1, 0.5 * self.df2, self.df1 / self.df2
        power = a * log(ratio) + xlogy(a - 1, value) - (a + b) * log1p(ratio * value)
        return power - log_beta(a, b)
