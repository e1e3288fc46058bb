"""Functions that turn random numbers into others, with the logarithm of their slope.

``transform(x)``, ``transform.inv(y)`` and ``log_abs_det_jacobian(x, y)`` are all that
``TransformedDistribution`` needs. One of your own is a subclass with ``domain``, ``codomain``,
``_call``, ``_inverse`` and ``log_abs_det_jacobian``. Those of numbers are in ``number.py``, of
vectors and matrices in ``vector.py``, made of others in ``joined.py``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

from ...ops.base import full
from ...tensor import Tensor
from .. import constraints
from ..independent import sum_rightmost

__all__ = ["ComposeTransform", "InverseTransform", "Transform", "identity_transform"]


class Transform:
    """An invertible function of tensors.

    domain, codomain: the constraints of its values before and after. bijective: whether it has an
    inverse. sign: 1 or -1 for an increasing or a decreasing function of numbers, else not there.
    cache_size: 1 to keep the last pair, so that the inverse of what the function returned is exact.
    """

    domain: Any
    codomain: Any
    bijective: Any = False

    @property
    def sign(self) -> Any:
        """Raises NotImplementedError: a class whose functions rise or fall says so."""
        raise NotImplementedError(
            f"{type(self).__name__} has no sign: whether the function rises or falls is not known, "
            f"which cdf and icdf ask for. Set it to 1 or -1 where it does."
        )

    def __init__(self, cache_size: int = 0):
        if cache_size not in (0, 1):
            raise ValueError(f"{type(self).__name__}: cache_size must be 0 or 1, got {cache_size}.")
        self._cache_size = cache_size
        self._kept: tuple[Any, Any] = (None, None)

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}._call")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no inverse.")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of how much the function stretches at ``x``, where it is ``y``."""
        raise NotImplementedError(f"{type(self).__name__}.log_abs_det_jacobian")

    def __call__(self, x: Tensor) -> Tensor:
        """The function at ``x``."""
        if self._cache_size and x is self._kept[0]:
            return self._kept[1]
        y = self._call(x)
        if self._cache_size:
            self._kept = x, y
        return y

    def inverse(self, y: Tensor) -> Tensor:
        """What the function turns into ``y``."""
        if self._cache_size and y is self._kept[1]:
            return self._kept[0]
        return self._inverse(y)

    @property
    def inv(self) -> Transform:
        """The inverse, as a transform."""
        return InverseTransform(self)

    def with_cache(self, cache_size: int = 1) -> Any:
        """The same function with another ``cache_size``."""
        if cache_size == self._cache_size:
            return self
        out = copy.copy(self)
        Transform.__init__(out, cache_size)
        return out

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        """The shape of the result for one of ``shape``."""
        return tuple(shape)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        """The shape of what becomes a result of ``shape``."""
        return tuple(shape)

    def __getstate__(self) -> dict[str, Any]:
        """All but the pair that is kept, which belongs to a graph."""
        return {**self.__dict__, "_kept": (None, None)}

    def __eq__(self, other: Any) -> bool:
        return self is other or (type(self) is type(other) and self._same(other))

    def _same(self, other: Any) -> bool:
        """Whether another of this class is the same function."""
        return False

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class InverseTransform(Transform):
    """The inverse of a transform."""

    def __init__(self, transform: Transform):
        super().__init__()
        self._turned = transform

    @property
    def domain(self) -> Any:
        """The other's codomain."""
        return self._turned.codomain

    @property
    def codomain(self) -> Any:
        """The other's domain."""
        return self._turned.domain

    @property
    def bijective(self) -> bool:
        """As the other."""
        return self._turned.bijective

    @property
    def sign(self) -> Any:
        """As of the other."""
        return self._turned.sign

    @property
    def inv(self) -> Transform:
        return self._turned

    def _call(self, x: Tensor) -> Tensor:
        return self._turned.inverse(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._turned(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._turned.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        return self._turned.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        return self._turned.forward_shape(shape)

    def _same(self, other: Any) -> bool:
        return self._turned == other._turned

    def __repr__(self) -> str:
        return f"{self._turned!r}.inv"


class ComposeTransform(Transform):
    """Several transforms, one after the other.

    >>> from numbagrad.distributions import AffineTransform, ExpTransform
    >>> ComposeTransform([AffineTransform(1.0, 2.0), ExpTransform()])(tensor(-0.5)).item()
    1.0
    """

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0):
        super().__init__(cache_size)
        self.parts = list(parts)

    @property
    def domain(self) -> Any:
        """The first one's, of as many dimensions as any needs."""
        if not self.parts:
            return constraints.real
        return _widened(self.parts[0].domain, self.parts[::-1], "codomain", "domain")

    @property
    def codomain(self) -> Any:
        """The last one's, of as many dimensions as any needs."""
        if not self.parts:
            return constraints.real
        return _widened(self.parts[-1].codomain, self.parts, "domain", "codomain")

    @property
    def bijective(self) -> bool:
        """Whether all are."""
        return all([part.bijective for part in self.parts])

    @property
    def sign(self) -> Any:
        """The product of theirs."""
        return math.prod([part.sign for part in self.parts])

    @property
    def inv(self) -> Transform:
        return ComposeTransform([part.inv for part in self.parts[::-1]])

    def _call(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        for part in self.parts[::-1]:
            y = part.inverse(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        total: Any = None
        event_dim = self.domain.event_dim
        for part in self.parts:
            after = part(x)
            found = part.log_abs_det_jacobian(x, after)
            found = sum_rightmost(found, event_dim - part.domain.event_dim)
            total = found if total is None else total + found
            event_dim += part.codomain.event_dim - part.domain.event_dim
            x = after
        return full(x._array.shape, 0.0, x._dtype, x._device) if total is None else total

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return tuple(shape)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        for part in self.parts[::-1]:
            shape = part.inverse_shape(shape)
        return tuple(shape)

    def _same(self, other: Any) -> bool:
        return self.parts == other.parts

    def __repr__(self) -> str:
        return f"ComposeTransform({self.parts!r})"


def _widened(constraint: Any, parts: list[Transform], before: str, after: str) -> Any:
    """``constraint`` of as many dimensions as a walk along ``parts`` asks for."""
    event_dim = getattr(parts[0], before).event_dim
    for part in parts:
        least = getattr(part, after).event_dim
        event_dim = max(event_dim + least - getattr(part, before).event_dim, least)
    more = event_dim - constraint.event_dim
    return constraints.independent(constraint, more) if more > 0 else constraint


identity_transform = ComposeTransform([])
