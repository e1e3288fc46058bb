"""Sets that parameters and values of distributions lie in, and whether a tensor does.

A constraint has ``check(value)``, which is a tensor of bools over all dimensions but the last
``event_dim``. The names and the printed forms are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import dtypes
from ..ops.base import full
from ..ops.comparison import eq, isclose, isnan
from ..ops.elementwise import sqrt
from ..ops.join import cat as cat_
from ..ops.join import stack as stack_
from ..ops.lapack import cholesky_ex, eigvalsh
from ..ops.reduce import all as all_
from ..ops.reduce import sum as sum_
from ..tensor import Tensor

__all__ = [
    "Constraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
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


@dataclass(frozen=True, eq=False)
class Square(Constraint):
    """Matrices with as many rows as columns."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        shape = value._array.shape
        return full(shape[:-2], float(shape[-2] == shape[-1]), dtypes.bool_, value._device)


@dataclass(frozen=True, eq=False)
class Symmetric(Square):
    """Square matrices that are their transposes, up to rounding."""

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return all_(isclose(value, value.mT, atol=1e-6), (-2, -1))


@dataclass(frozen=True, eq=False)
class PositiveSemidefinite(Symmetric):
    """Symmetric matrices without negative eigenvalues."""

    def check(self, value: Tensor) -> Tensor:
        found = super().check(value)
        if value.shape[-2] != value.shape[-1]:
            return found
        return found & all_(eigvalsh(value) >= 0, -1)


@dataclass(frozen=True, eq=False)
class LowerTriangular(Constraint):
    """Matrices with nothing but zeros above the diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return all_(eq(value, value.tril()), (-2, -1))


@dataclass(frozen=True, eq=False)
class CorrCholesky(LowerCholesky):
    """Lower triangles with a positive diagonal whose rows have length 1."""

    def check(self, value: Tensor) -> Tensor:
        near = 10 * value.shape[-1] * dtypes.finfo(value.dtype).eps
        lengths = sqrt(sum_(value * value, -1))
        return super().check(value) & all_(abs(lengths - 1) <= near, -1)


class Cat(Constraint):
    """Pieces of ``lengths`` along ``dim``, each in its own set."""

    def __init__(
        self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None
    ):
        self.__dict__.update(
            cseq=list(cseq), dim=dim, lengths=[1] * len(cseq) if lengths is None else list(lengths)
        )
        self.__dict__["is_discrete"] = any([c.is_discrete for c in cseq])
        self.__dict__["event_dim"] = max([c.event_dim for c in cseq])

    cseq: list[Constraint]
    dim: int
    lengths: list[int]

    def check(self, value: Tensor) -> Tensor:
        parts = value.split(self.lengths, self.dim)
        return cat_([c.check(p) for c, p in zip(self.cseq, parts, strict=True)], self.dim)

    def __repr__(self) -> str:
        return f"Cat({self.cseq!r}, dim={self.dim}, lengths={self.lengths})"


class Stack(Constraint):
    """The tensors at each index of ``dim``, each in its own set."""

    cseq: list[Constraint]
    dim: int

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0):
        self.__dict__.update(cseq=list(cseq), dim=dim)
        self.__dict__["is_discrete"] = any([c.is_discrete for c in cseq])
        most = max([c.event_dim for c in cseq])
        self.__dict__["event_dim"] = most + (dim + most < 0)

    def check(self, value: Tensor) -> Tensor:
        parts = value.unbind(self.dim)
        return stack_([c.check(p) for c, p in zip(self.cseq, parts, strict=True)], self.dim)

    def __repr__(self) -> str:
        return f"Stack({self.cseq!r}, dim={self.dim})"


def is_dependent(constraint: Any) -> bool:
    """Whether ``constraint`` depends on other parameters, and is not checked."""
    return isinstance(constraint, Dependent)


dependent = Dependent()
boolean = Boolean()
one_hot = OneHot()
simplex = Simplex()
real = Real()
lower_cholesky = LowerCholesky()
lower_triangular = LowerTriangular()
corr_cholesky = CorrCholesky()
square = Square()
symmetric = Symmetric()
positive_semidefinite = PositiveSemidefinite()
positive_definite = PositiveDefinite()
positive = GreaterThan(lower_bound=0.0)
nonnegative = GreaterThanEq(lower_bound=0.0)
unit_interval = Interval(lower_bound=0.0, upper_bound=1.0)
nonnegative_integer = IntegerGreaterThan(lower_bound=0)
positive_integer = IntegerGreaterThan(lower_bound=1)
independent = IndependentConstraint
real_vector = independent(real, 1)
greater_than = GreaterThan
greater_than_eq = GreaterThanEq
less_than = LessThan
interval = Interval
half_open_interval = HalfOpenInterval
integer_interval = IntegerInterval
multinomial = Multinomial
cat = Cat
stack = Stack
