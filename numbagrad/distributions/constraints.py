"""Sets that parameters and values of distributions lie in, and whether a tensor does.

A constraint has ``check(value)``, which is a tensor of bools over all dimensions but the last
``event_dim``. The names and the printed forms are PyTorch's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import dtypes
from ..ops.comparison import eq, isnan
from ..ops.lapack import cholesky_ex
from ..ops.reduce import all as all_
from ..ops.reduce import sum as sum_
from ..tensor import Tensor

__all__ = [
    "Constraint",
    "boolean",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "less_than",
    "lower_cholesky",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "real",
    "real_vector",
    "simplex",
    "unit_interval",
]


@dataclass(frozen=True, eq=False)
class Constraint:
    """A set of values; subclass it and give it ``check``."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """Whether each event of ``value`` lies in the set."""
        raise NotImplementedError(f"{type(self).__name__}.check")


@dataclass(frozen=True, eq=False)
class Dependent(Constraint):
    """A set that depends on other parameters, and is not checked."""


class dependent_property(property):
    """A property whose value is a constraint: the support of a distribution with parameters.

    >>> class Wheel:
    ...     @dependent_property
    ...     def support(self):
    ...         return interval(0.0, self.turn)
    """

    def __new__(cls, function: Any = None, **options: Any) -> Any:
        """As a decorator with or without options; is_discrete and event_dim change nothing."""
        if function is None:
            return lambda found: cls(found)
        return super().__new__(cls)

    def __init__(self, function: Any = None, **options: Any):
        super().__init__(function)


@dataclass(frozen=True, eq=False)
class Real(Constraint):
    """All but NaN."""

    def check(self, value: Tensor) -> Tensor:
        return ~isnan(value)


@dataclass(frozen=True, eq=False)
class GreaterThan(Constraint):
    """Above a bound."""

    lower_bound: Any

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound


@dataclass(frozen=True, eq=False)
class GreaterThanEq(Constraint):
    """At or above a bound."""

    lower_bound: Any

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


@dataclass(frozen=True, eq=False)
class LessThan(Constraint):
    """Below a bound."""

    upper_bound: Any

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


@dataclass(frozen=True, eq=False)
class Interval(Constraint):
    """Between two bounds, or at one."""

    lower_bound: Any
    upper_bound: Any

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


@dataclass(frozen=True, eq=False)
class HalfOpenInterval(Interval):
    """Between two bounds, or at the lower one."""

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


def _whole(value: Tensor) -> Tensor:
    return eq(value % 1, 0)


@dataclass(frozen=True, eq=False)
class IntegerInterval(Interval):
    """Whole numbers between two bounds, or at one."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & _whole(value)


@dataclass(frozen=True, eq=False)
class IntegerGreaterThan(GreaterThanEq):
    """Whole numbers from a bound on."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & _whole(value)


@dataclass(frozen=True, eq=False)
class Boolean(Constraint):
    """0 and 1."""

    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return eq(value, 0) | eq(value, 1)


@dataclass(frozen=True, eq=False)
class OneHot(Constraint):
    """Vectors of zeros and a single one."""

    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return all_(boolean.check(value), -1) & eq(sum_(value, -1), 1)


@dataclass(frozen=True, eq=False)
class Simplex(Constraint):
    """Vectors of numbers that are not negative and sum to one, up to rounding."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        # Sums of n float32 numbers are off by several units: PyTorch's fixed 1e-6 refuses its own
        # softmax of a thousand classes.
        near = max(1e-6, 4 * value.shape[-1] ** 0.5 * dtypes.finfo(value.dtype).eps)
        return all_(value >= 0, -1) & (abs(sum_(value, -1) - 1) < near)


@dataclass(frozen=True, eq=False)
class Multinomial(Constraint):
    """Vectors of counts that sum to a number of draws."""

    upper_bound: Any
    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return all_((value >= 0) & _whole(value), -1) & eq(sum_(value, -1), self.upper_bound)


@dataclass(frozen=True, eq=False)
class LowerCholesky(Constraint):
    """Lower triangles with a positive diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        low = all_(eq(value, value.tril()), (-2, -1))
        return low & all_(value.diagonal(0, -2, -1) > 0, -1)


@dataclass(frozen=True, eq=False)
class PositiveDefinite(Constraint):
    """Symmetric matrices that have a Cholesky factor."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        close = abs(value - value.mT) <= 1e-6 + 1e-5 * abs(value)
        return all_(close, (-2, -1)) & eq(cholesky_ex(value).info, 0)


@dataclass(frozen=True, eq=False, init=False)
class IndependentConstraint(Constraint):
    """A constraint on arrays: all their elements are in the set of another."""

    base_constraint: Constraint
    reinterpreted_batch_ndims: int

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int):
        object.__setattr__(self, "base_constraint", base_constraint)
        object.__setattr__(self, "reinterpreted_batch_ndims", reinterpreted_batch_ndims)
        event_dim = base_constraint.event_dim + reinterpreted_batch_ndims
        object.__setattr__(self, "event_dim", event_dim)
        object.__setattr__(self, "is_discrete", base_constraint.is_discrete)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint}, {self.reinterpreted_batch_ndims})"

    def check(self, value: Tensor) -> Tensor:
        found = self.base_constraint.check(value)
        n = self.reinterpreted_batch_ndims
        return all_(found, tuple(range(-n, 0))) if n else found


dependent = Dependent()
boolean = Boolean()
one_hot = OneHot()
simplex = Simplex()
real = Real()
lower_cholesky = LowerCholesky()
positive_definite = PositiveDefinite()
positive = GreaterThan(lower_bound=0.0)
nonnegative = GreaterThanEq(lower_bound=0.0)
unit_interval = Interval(lower_bound=0.0, upper_bound=1.0)
nonnegative_integer = IntegerGreaterThan(lower_bound=0)
independent = IndependentConstraint
real_vector = independent(real, 1)
greater_than = GreaterThan
greater_than_eq = GreaterThanEq
less_than = LessThan
interval = Interval
half_open_interval = HalfOpenInterval
integer_interval = IntegerInterval
multinomial = Multinomial
