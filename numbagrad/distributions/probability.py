"""Distributions of counts that have one probability, given as ``probs`` or as ``logits``.

``Bernoulli``, ``Binomial``, ``NegativeBinomial``, ``Geometric``; ``Poisson`` stands with them.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import RecordingError
from ..kernels import machine
from ..ops.activation import softplus
from ..ops.comparison import eq
from ..ops.create import arange
from ..ops.elementwise import clamp, exp, floor, log, log1p, sigmoid, where
from ..ops.gamma import lgamma
from ..ops.random import bernoulli
from ..ops.reduce import sum
from ..ops.sampling import draw_binomial, draw_poisson, standard_gamma
from ..ops.special import xlogy
from ..ops.view import expand as expanded
from ..shaped import Size
from ..tape import show_location, user_location
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, broadcast_all, computed
from .draws import exponential_like
from .exponential_family import ExponentialFamily

__all__ = [
    "Bernoulli",
    "Binomial",
    "Geometric",
    "NegativeBinomial",
    "Poisson",
    "clamp_probs",
    "one_of",
]


def one_of(name: str, **given: Any) -> str:
    """Which one of the parameters is given; ValueError unless exactly one is."""
    found = [key for key, value in given.items() if value is not None]
    if len(found) != 1:
        names = " or ".join(f"`{key}`" for key in given)
        raise ValueError(
            f"{name}: Either {names} must be specified, but not both; got {found or 'none'}."
        )
    return found[0]


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities of which and of whose rest a logarithm is finite."""
    eps = dtypes.finfo(probs.dtype).eps
    return clamp(probs, eps, 1 - eps)


def logit_of(probs: Tensor) -> Tensor:
    """``log(p / (1 - p))``, finite at 0 and 1."""
    p = clamp_probs(probs)
    return log(p) - log1p(-p)


class ByProbability(Distribution):
    """A distribution with ``probs`` in [0, 1] or ``logits``; the other one is computed."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}

    def _take(self, **beside: Any) -> None:
        """Set the parameters, those in ``beside`` that are not None, to one shape."""
        name = type(self).__name__
        one_of(name, probs=beside["probs"], logits=beside["logits"])
        beside = {key: value for key, value in beside.items() if value is not None}
        self.__dict__.update(zip(beside, broadcast_all(*beside.values()), strict=True))

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        self._take(probs=probs, logits=logits)
        super().__init__(self.param.shape, validate_args=validate_args)

    @property
    def param(self) -> Tensor:
        """``probs`` or ``logits``, whichever was given."""
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"]

    @property
    def param_shape(self) -> Size:
        """The shape of ``param``."""
        return self.param.shape

    @property
    def _like(self) -> Tensor:
        return self.param

    @computed
    def probs(self) -> Tensor:
        """The probability."""
        return sigmoid(self.logits)

    @computed
    def logits(self) -> Tensor:
        """The logarithm of the odds."""
        return logit_of(self.probs)


def _counts(distribution: Distribution, n: int, expand: bool) -> Tensor:
    """0 to n - 1 along a new first dimension."""
    like, batch = distribution._like, tuple(distribution.batch_shape)
    values = arange(n, dtype=like.dtype, device=like.device).reshape((n, *[1] * len(batch)))
    return expanded(values, (n, *batch)) if expand else values


class Bernoulli(ByProbability, ExponentialFamily):
    """1 with the probability ``probs``, else 0.

    >>> Bernoulli(0.25).variance.item()
    0.1875
    """

    support = constraints.boolean
    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        """NaN where both are as likely."""
        p = self.probs
        return where(eq(p, 0.5), float("nan"), (p > 0.5).to(p.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return bernoulli(self._expanded(self.probs.detach(), sample_shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        logits = self.logits
        return value * logits - softplus(logits)

    def entropy(self) -> Tensor:
        logits = self.logits
        return softplus(logits) - sigmoid(logits) * logits

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return _counts(self, 2, expand)


class Binomial(ByProbability):
    """How many of ``total_count`` draws succeed, each with the probability ``probs``.

    >>> Binomial(4, 0.25).mean.item()
    1.0
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        **ByProbability.arg_constraints,
    }
    has_enumerate_support = True
    total_count: Tensor

    # total_count, if Python knows it.
    _count: int | None = None

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ):
        self._count = total_count if isinstance(total_count, int) else None
        self._take(probs=probs, logits=logits, total_count=total_count)
        self.total_count = self.total_count.to(self.param.dtype)
        Distribution.__init__(self, self.param.shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        """Whole numbers from 0 to ``total_count``."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return clamp(floor((self.total_count + 1) * self.probs), None, self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        n, p = (self._expanded(x, sample_shape) for x in (self.total_count, self.probs))
        return draw_binomial(n, p)

    def _log_prob(self, value: Tensor) -> Tensor:
        n, logits = self.total_count, self.logits
        ways = lgamma(n + 1) - lgamma(value + 1) - lgamma(n - value + 1)
        return ways + value * logits - n * softplus(logits)

    def entropy(self) -> Tensor:
        found = self._log_prob(self.enumerate_support(False))
        return -sum(exp(found) * found, 0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self._count is not None:
            return _counts(self, self._count + 1, expand)
        if machine.is_recording():
            raise RecordingError(
                f"Binomial.enumerate_support: not possible inside a compiled function, at "
                f"{show_location(user_location())}: how many values there are, for entropy too, is "
                f"in total_count, a tensor. Give total_count as a Python int."
            )
        n = int(self.total_count.max().item())
        if self.total_count.min().item() != n:
            raise NotImplementedError("Binomial: Inhomogeneous total count not supported by this.")
        return _counts(self, n + 1, expand)


class Geometric(ByProbability):
    """How many draws fail before the first that succeeds, each with the probability ``probs``.

    >>> Geometric(0.25).mean.item()
    3.0
    """

    support = constraints.nonnegative_integer

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not (self.probs.detach() > 0).all():
            raise ValueError(
                f"Expected parameter probs of distribution {self!r} to be positive, but found "
                f"invalid values:\n{self.probs}"
            )

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return 0 * self.probs

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        like, shape = self.param.detach(), self._extended_shape(sample_shape)
        rate = softplus(like) if "logits" in self.__dict__ else -log1p(-like)
        return floor(exponential_like(like, shape) / rate)

    def _log_prob(self, value: Tensor) -> Tensor:
        if "logits" in self.__dict__:  # a probability near 1 would have lost the digits
            return -softplus(-self.logits) - value * softplus(self.logits)
        p = self.probs
        sure = eq(p, 1) & eq(value, 0)
        return value * log1p(-where(sure, 0.0, p)) + log(p)

    def entropy(self) -> Tensor:
        logits = self.logits
        return (softplus(logits) - sigmoid(logits) * logits) / self.probs


class Poisson(ExponentialFamily):
    """Counts of mean ``rate``.

    >>> Poisson(4.0).stddev.item()
    2.0
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None):
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return floor(self.rate)

    @property
    def variance(self) -> Tensor:
        return self.rate

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return draw_poisson(self._expanded(self.rate, sample_shape))

    def _log_prob(self, value: Tensor) -> Tensor:
        return xlogy(value, self.rate) - self.rate - lgamma(value + 1)


class NegativeBinomial(ByProbability):
    """How many draws succeed before ``total_count`` fail, each with the probability ``probs``.

    total_count may be no whole number: the counts are Poisson of a gamma rate.

    >>> NegativeBinomial(3, 0.5).mean.item()
    3.0
    """

    arg_constraints = {
        "total_count": constraints.nonnegative,
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    total_count: Tensor

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ):
        self._take(probs=probs, logits=logits, total_count=total_count)
        self.total_count = self.total_count.to(self.param.dtype)
        Distribution.__init__(self, self.param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return clamp(floor((self.total_count - 1) * exp(self.logits)), 0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / sigmoid(-self.logits)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        n, logits = (
            self._expanded(x.detach(), sample_shape) for x in (self.total_count, self.logits)
        )
        return draw_poisson(standard_gamma(n).detach() * exp(logits))

    def _log_prob(self, value: Tensor) -> Tensor:
        n, logits = self.total_count, self.logits
        none = eq(n + value, 0)
        ways = lgamma(where(none, 1.0, n + value)) - lgamma(1 + value)
        ways = ways - lgamma(where(none, 1.0, n))
        return ways - n * softplus(logits) - value * softplus(-logits)
