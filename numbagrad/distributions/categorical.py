"""Draws of one of k classes, as a number, as a vector, or how often each came up.

Parameters are ``probs`` (..., k), brought to a sum of one, or ``logits``, brought to
log-probabilities.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..ops.base import broadcast_shape, full
from ..ops.comparison import eq
from ..ops.create import arange, eye
from ..ops.elementwise import clamp, exp, log, where
from ..ops.extreme import argmax
from ..ops.gamma import lgamma
from ..ops.gather import gather, scatter_add
from ..ops.norm import log_softmax
from ..ops.random import multinomial
from ..ops.reduce import sum
from ..ops.special import xlogy
from ..ops.tables import one_hot
from ..ops.view import expand as expanded
from ..shaped import Size
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, broadcast_all, computed, infinite_like
from .probability import clamp_probs, one_of

__all__ = ["Categorical", "Multinomial", "OneHotCategorical"]


class ByClass(Distribution):
    """A distribution with ``probs`` or ``logits`` whose last dimension is the classes."""

    arg_constraints: Any = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    _event: tuple[int, ...] = ()

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None):
        name = one_of(type(self).__name__, probs=probs, logits=logits)
        (param,) = broadcast_all(probs if logits is None else logits)
        if param.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if name == "probs":
            param = param / sum(param, -1, keepdim=True)
        else:
            param = log_softmax(param, -1)
        self.__dict__[name] = param
        shape = param.shape
        super().__init__(shape[:-1], shape[-1:] if self._by_class else (), validate_args)

    _by_class = True
    """Whether a draw has an element for each class."""

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

    @property
    def _num_events(self) -> int:
        return self.param.shape[-1]

    @computed
    def probs(self) -> Tensor:
        """The probability of each class."""
        return exp(self.logits)

    @computed
    def logits(self) -> Tensor:
        """The logarithm of ``probs``."""
        return log(clamp_probs(self.probs))

    def _classes(self, sample_shape: Any) -> Tensor:
        """Numbers of classes drawn, of the shape ``sample_shape + batch_shape``."""
        sample_shape = self._draws(sample_shape)
        shape = (*sample_shape, *self._batch_shape)
        count = 1
        for n in sample_shape:
            count *= n
        rows = self.probs.detach().reshape((-1, self._num_events))
        if not count or not rows.shape[0]:
            return full(shape, 0, dtypes.int64, rows.device)
        return multinomial(rows, count, replacement=True).t().reshape(shape)

    def _weighed(self, value: Tensor) -> Tensor:
        """The sum of ``value * logits``, to which a 0 of an impossible class adds 0."""
        return sum(value * where(eq(value, 0), 0.0, self.logits), -1)

    def _entropy(self) -> Tensor:
        lowest = dtypes.finfo(self.param.dtype).min  # a class of probability 0 adds 0
        return -sum(self.probs * clamp(self.logits, lowest), -1)


class Categorical(ByClass):
    """The number of a class, 0 to k - 1, int64.

    >>> Categorical(probs=tensor([1.0, 3.0])).log_prob(tensor(1)).exp().item()
    0.75
    """

    has_enumerate_support = True
    _by_class = False

    @constraints.dependent_property
    def support(self) -> Any:
        """Whole numbers from 0 to k - 1."""
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        """NaN: classes are no numbers."""
        return infinite_like(sum(self.param.detach(), -1)) * float("nan")

    variance = mean

    @property
    def mode(self) -> Tensor:
        return argmax(self.param, -1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._classes(sample_shape)

    def _log_prob(self, value: Tensor) -> Tensor:
        logits = self.logits
        shape = broadcast_shape("Categorical", tuple(value.shape), tuple(self._batch_shape))
        at = expanded(value.long(), shape).unsqueeze(-1)
        return gather(expanded(logits, (*shape, self._num_events)), -1, at).squeeze(-1)

    def entropy(self) -> Tensor:
        return self._entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        k, batch = self._num_events, tuple(self._batch_shape)
        values = arange(k, device=self.param.device).reshape((k, *[1] * len(batch)))
        return expanded(values, (k, *batch)) if expand else values


class OneHotCategorical(ByClass):
    """A vector of zeros, and a one for the class.

    >>> OneHotCategorical(probs=tensor([1.0, 3.0])).log_prob(tensor([0.0, 1.0])).exp().item()
    0.75
    """

    support = constraints.one_hot
    has_enumerate_support = True

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return one_hot(argmax(self.param, -1), self._num_events).to(self.param.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return one_hot(self._classes(sample_shape), self._num_events).to(self.param.dtype)

    def _log_prob(self, value: Tensor) -> Tensor:
        return self._weighed(value.detach())

    def entropy(self) -> Tensor:
        return self._entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        k, batch = self._num_events, tuple(self._batch_shape)
        values = eye(k, dtype=self.param.dtype, device=self.param.device)
        values = values.reshape((k, *[1] * len(batch), k))
        return expanded(values, (k, *batch, k)) if expand else values


class Multinomial(ByClass):
    """How often each class comes up in ``total_count`` draws.

    >>> Multinomial(8, probs=tensor([1.0, 3.0])).mean.tolist()
    [2.0, 6.0]
    """

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ):
        if not isinstance(total_count, int):
            raise NotImplementedError("Multinomial: inhomogeneous total_count is not supported.")
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)

    @constraints.dependent_property
    def support(self) -> Any:
        """Counts that sum to ``total_count``."""
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = self._classes((self.total_count, *sample_shape)).movedim(0, -1)
        ones = full(drawn.shape, 1, self.param.dtype, self.param.device)
        return scatter_add(full(shape, 0, ones.dtype, ones.device), -1, drawn, ones)

    def _log_prob(self, value: Tensor) -> Tensor:
        ways = lgamma(sum(value, -1) + 1) - sum(lgamma(value + 1), -1)
        return ways + self._weighed(value)

    def entropy(self) -> Tensor:
        """``n`` times the entropy of a draw, less the mean logarithm of the orders of a result."""
        n = full((), float(self.total_count), self.param.dtype, self.param.device)
        counts = arange(self.total_count + 1, dtype=n.dtype, device=n.device).reshape((-1, 1))
        p = clamp_probs(self.probs).unsqueeze(-2)
        chance = exp(
            lgamma(n + 1)
            - lgamma(counts + 1)
            - lgamma(n - counts + 1)
            + xlogy(counts, p)
            + xlogy(n - counts, 1 - p)
        )
        orders = sum(chance * lgamma(counts + 1), (-2, -1))
        return n * self._entropy() - lgamma(n + 1) + orders
