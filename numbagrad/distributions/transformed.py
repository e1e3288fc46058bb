"""``TransformedDistribution``: draws of a distribution, turned by transforms into others.

``LogNormal``, ``InverseGamma`` and ``LogisticNormal`` are such.
"""

from __future__ import annotations

from typing import Any

from ..autograd import no_grad
from ..ops.elementwise import exp, expm1, log, square, where
from ..ops.gamma import digamma, lgamma
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution
from .gamma import Gamma
from .independent import Independent, sum_rightmost
from .location_scale import Normal
from .transforms import (
    ComposeTransform,
    ExpTransform,
    PowerTransform,
    StickBreakingTransform,
    Transform,
)

__all__ = ["InverseGamma", "LogNormal", "LogisticNormal", "TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of ``transforms(x)``, x drawn from ``base_distribution``.

    transforms: one, or a list of them; if their parameters have more dimensions than a draw of the
    base, it is expanded first, so that no two elements share a draw.

    >>> TransformedDistribution(Normal(0.0, 1.0), [ExpTransform()]).cdf(tensor(1.0)).item()
    0.5
    """

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Any,
        validate_args: bool | None = None,
    ):
        found = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(found, list) or not all([isinstance(t, Transform) for t in found]):
            raise ValueError(
                f"transforms must be a Transform or a list of Transforms, but was {transforms!r}"
            )
        self.transforms: list[Transform] = found
        whole = ComposeTransform(found)
        base, events = base_distribution, len(base_distribution.event_shape)
        inner, outer = whole.domain.event_dim, whole.codomain.event_dim
        shape = (*base.batch_shape, *base.event_shape)
        if len(shape) < inner:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {inner}, but got {shape}"
            )
        after = whole.forward_shape(shape)
        before = whole.inverse_shape(after)
        if before != shape:
            base = base.expand(before[: len(before) - events])
        if inner > events:
            base = Independent(base, inner - events)
        self.base_dist = base
        outer += max(events - inner, 0)
        shape = after
        first = len(shape) - outer
        super().__init__(shape[:first], shape[first:], validate_args)

    def expand(self, batch_shape: Any) -> Any:
        base = self.base_dist
        more = len(base.batch_shape) - len(self._batch_shape)
        kept = base.batch_shape[len(base.batch_shape) - more :] if more > 0 else ()
        out = super().expand(batch_shape)
        out.base_dist = base.expand((*batch_shape, *kept))
        return out

    @property
    def has_rsample(self) -> bool:
        """Whether the base's draws have gradients."""
        return self.base_dist.has_rsample

    @constraints.dependent_property
    def support(self) -> Any:
        """Where the last transform leads."""
        if not self.transforms:
            return self.base_dist.support
        found = self.transforms[-1].codomain
        more = len(self._event_shape) - found.event_dim
        return constraints.independent(found, more) if more > 0 else found

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def _backward(self, y: Tensor) -> Tensor:
        for transform in self.transforms[::-1]:
            y = transform.inverse(y)
        return y

    def _log_prob(self, value: Tensor) -> Tensor:
        event_dim = len(self._event_shape)
        stretched: Any = 0.0
        y = value
        for transform in self.transforms[::-1]:
            x = transform.inverse(y)
            inner = transform.domain.event_dim
            event_dim += inner - transform.codomain.event_dim
            found = transform.log_abs_det_jacobian(x, y)
            stretched = stretched + sum_rightmost(found, event_dim - inner)
            y = x
        found = self.base_dist.log_prob(y)
        return sum_rightmost(found, event_dim - len(self.base_dist.event_shape)) - stretched

    def _turned(self, p: Tensor) -> Tensor:
        """``p``, or 1 - p where the transforms fall."""
        sign = ComposeTransform(self.transforms).sign
        return p if type(sign) is int and sign == 1 else sign * (p - 0.5) + 0.5

    def _cdf(self, value: Tensor) -> Tensor:
        return self._turned(self.base_dist.cdf(self._backward(value)))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._turned(value)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist!r}, {self.transforms!r})"


class LogNormal(TransformedDistribution):
    """Numbers whose logarithm is normal of mean ``loc`` and standard deviation ``scale``.

    >>> LogNormal(0.0, 1.0).icdf(tensor(0.5)).item()
    1.0
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    base_dist: Normal

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return exp(self.loc + 0.5 * square(self.scale))

    @property
    def mode(self) -> Tensor:
        return exp(self.loc - square(self.scale))

    @property
    def variance(self) -> Tensor:
        spread = square(self.scale)
        return expm1(spread) * exp(2 * self.loc + spread)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class InverseGamma(TransformedDistribution):
    """Numbers whose inverse is gamma of ``concentration`` and ``rate``.

    >>> InverseGamma(3.0, 4.0).mean.item()
    2.0
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    base_dist: Gamma

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None):
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-1.0), validate_args)

    @property
    def concentration(self) -> Tensor:
        """That of the inverses."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """That of the inverses."""
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return where(a > 1, self.rate / where(a > 1, a - 1, 1.0), float("inf"))

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        below = square(where(a > 2, a - 1, 1.0)) * where(a > 2, a - 2, 1.0)
        return where(a > 2, square(self.rate) / below, float("inf"))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + log(self.rate) + lgamma(a) - (1 + a) * digamma(a)


class LogisticNormal(TransformedDistribution):
    """n + 1 shares made by ``StickBreakingTransform`` of n normal numbers.

    >>> LogisticNormal(zeros(3), ones(3)).event_shape
    ng.Size([4])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    base_dist: Independent

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None):
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """The means of the numbers."""
        return self.base_dist.base_dist.loc  # type: ignore[attr-defined]

    @property
    def scale(self) -> Tensor:
        """The standard deviations of the numbers."""
        return self.base_dist.base_dist.scale  # type: ignore[attr-defined]
