"""Transforms of single numbers: powers, exponentials, and what squashes them into intervals."""

from __future__ import annotations

import math
from typing import Any

from ... import dtypes
from ...ops.activation import softplus
from ...ops.base import broadcast_shape, full
from ...ops.elementwise import abs, clamp, exp, expm1, log, log1p, pow, sigmoid, sign, tanh
from ...ops.special import atanh
from ...ops.view import expand
from ...tensor import Tensor
from .. import constraints
from ..independent import sum_rightmost
from .base import Transform

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "PowerTransform",
    "SigmoidTransform",
    "SoftplusTransform",
    "TanhTransform",
]


class AffineTransform(Transform):
    """``loc + scale * x``; event_dim: how many dimensions an event of x has.

    >>> AffineTransform(1.0, 2.0).inv(tensor(5.0)).item()
    2.0
    """

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size)
        self.loc, self.scale, self.event_dim = loc, scale, event_dim
        real = constraints.real
        self.domain = constraints.independent(real, event_dim) if event_dim else real
        self.codomain = self.domain

    @property
    def sign(self) -> Any:
        """That of the scale."""
        if isinstance(self.scale, Tensor):
            return sign(self.scale)
        return 1 if self.scale > 0 else -1 if self.scale < 0 else 0

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            found = expand(log(abs(self.scale)), x.shape)
        else:
            found = full(x._array.shape, math.log(math.fabs(self.scale)), x._dtype, x._device)
        return sum_rightmost(found, self.event_dim)

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        own = [tuple(p.shape) for p in (self.loc, self.scale) if isinstance(p, Tensor)]
        return broadcast_shape("AffineTransform", tuple(shape), *own)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        return self.forward_shape(shape)

    def _same(self, other: Any) -> bool:
        pairs = (self.loc, other.loc), (self.scale, other.scale)
        for mine, theirs in pairs:
            if mine is theirs:
                continue
            equal = mine == theirs
            if not (equal.all().item() if isinstance(equal, Tensor) else equal):
                return False
        return self.event_dim == other.event_dim


class Plain(Transform):
    """A transform of single numbers without parameters."""

    bijective: Any = True
    domain: Any = constraints.real

    def _same(self, other: Any) -> bool:
        return True


class ExpTransform(Plain):
    """``exp(x)``.

    >>> ExpTransform()(tensor(0.0)).item()
    1.0
    """

    sign: Any = 1
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return exp(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return log(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class SigmoidTransform(Plain):
    """``1 / (1 + exp(-x))``, kept inside of (0, 1).

    >>> SigmoidTransform()(tensor(0.0)).item()
    0.5
    """

    sign: Any = 1
    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        limits = dtypes.finfo(x.dtype)
        return clamp(sigmoid(x), limits.tiny, 1 - limits.eps)

    def _inverse(self, y: Tensor) -> Tensor:
        limits = dtypes.finfo(y.dtype)
        y = clamp(y, limits.tiny, 1 - limits.eps)
        return log(y) - log1p(-y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class TanhTransform(Plain):
    """``tanh(x)``; cache_size=1 keeps x, which far from 0 no inverse finds again.

    >>> TanhTransform()(tensor(0.0)).item()
    0.0
    """

    sign: Any = 1
    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return tanh(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class SoftplusTransform(Plain):
    """``log(1 + exp(x))``.

    >>> SoftplusTransform().inv(SoftplusTransform()(tensor(0.0))).item()
    0.0
    """

    sign: Any = 1
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return log(-expm1(-y)) + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class AbsTransform(Plain):
    """``abs(x)``; of the two numbers that it turns into y the inverse is y itself.

    >>> AbsTransform()(tensor(-1.0)).item()
    1.0
    """

    bijective = False
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return abs(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class PowerTransform(Transform):
    """``x ** exponent`` of positive numbers.

    >>> PowerTransform(2.0).inv(tensor(9.0)).item()
    3.0
    """

    bijective = True
    domain = codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0):
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        """That of the exponent."""
        if isinstance(self.exponent, Tensor):
            return sign(self.exponent)
        return 1 if self.exponent > 0 else -1

    def _call(self, x: Tensor) -> Tensor:
        return pow(x, self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return pow(y, 1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return log(abs(self.exponent * y / x))

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        own = getattr(self.exponent, "shape", ())
        return broadcast_shape("PowerTransform", tuple(shape), tuple(own))

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        return self.forward_shape(shape)

    def _same(self, other: Any) -> bool:
        equal = self.exponent == other.exponent
        return bool(equal.all().item() if isinstance(equal, Tensor) else equal)


class CumulativeDistributionTransform(Transform):
    """The chance of a draw of ``distribution`` of at most x.

    >>> from numbagrad.distributions import Normal
    >>> CumulativeDistributionTransform(Normal(0.0, 1.0))(tensor(0.0)).item()
    0.5
    """

    bijective = True
    sign: Any = 1
    codomain = constraints.unit_interval

    def __init__(self, distribution: Any, cache_size: int = 0):
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        """The distribution's support."""
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)
