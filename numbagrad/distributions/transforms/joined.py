"""Transforms made of others, one for each part of a tensor, and of shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...ops.base import full
from ...ops.join import cat, stack
from ...shaped import Size
from ...tensor import Tensor
from .. import constraints
from ..independent import sum_rightmost
from .base import Transform

__all__ = ["CatTransform", "IndependentTransform", "ReshapeTransform", "StackTransform"]


class IndependentTransform(Transform):
    """``base_transform``, ``reinterpreted_batch_ndims`` more dimensions of which are an event.

    >>> from numbagrad.distributions import ExpTransform
    >>> IndependentTransform(ExpTransform(), 1).log_abs_det_jacobian(ones(3), ones(3)).item()
    3.0
    """

    def __init__(
        self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0
    ):
        super().__init__(cache_size)
        self.base_transform = base_transform
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def domain(self) -> Any:
        """The base's, for all elements of an event."""
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @property
    def codomain(self) -> Any:
        """The base's, for all elements of an event."""
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:
        """As the base."""
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        """As of the base."""
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform.inverse(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        found = self.base_transform.log_abs_det_jacobian(x, y)
        return sum_rightmost(found, self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        return self.base_transform.inverse_shape(shape)

    def _same(self, other: Any) -> bool:
        mine, theirs = self.reinterpreted_batch_ndims, other.reinterpreted_batch_ndims
        return self.base_transform == other.base_transform and mine == theirs

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Events of ``in_shape`` in ``out_shape``, which has as many elements.

    >>> ReshapeTransform((4,), (2, 2))(zeros(3, 4)).shape
    ng.Size([3, 2, 2])
    """

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0):
        super().__init__(cache_size)
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError(
                f"ReshapeTransform: in_shape, out_shape have different numbers of elements: "
                f"{list(self.in_shape)}, {list(self.out_shape)}."
            )
        self.domain = constraints.independent(constraints.real, len(self.in_shape))
        self.codomain = constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        shape = x._array.shape[: x.dim() - len(self.in_shape)]
        return full(shape, 0.0, x._dtype, x._device)

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        return _exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        return _exchanged(shape, self.out_shape, self.in_shape)

    def _same(self, other: Any) -> bool:
        return (self.in_shape, self.out_shape) == (other.in_shape, other.out_shape)


def _exchanged(shape: Any, old: Any, new: Any) -> tuple[int, ...]:
    first = len(shape) - len(old)
    if first < 0 or tuple(shape[first:]) != tuple(old):
        raise ValueError(
            f"ReshapeTransform: Shape mismatch: expected a shape that ends in {list(old)}, got "
            f"{list(shape)}."
        )
    return (*shape[:first], *new)


class _Several(Transform):
    """One transform for each part along ``dim``; a subclass takes apart and puts together."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0):
        if not all([isinstance(each, Transform) for each in tseq]):
            raise ValueError(f"{type(self).__name__}: expected Transforms, got {tseq!r}.")
        super().__init__(cache_size)
        self.transforms = list(tseq)
        self.dim = dim

    def _parts(self, x: Tensor) -> list[Tensor]:
        raise NotImplementedError

    def _joined(self, parts: list[Tensor], dim: int) -> Tensor:
        raise NotImplementedError

    @property
    def bijective(self) -> bool:
        """Whether all are."""
        return all([each.bijective for each in self.transforms])

    def _each(self, function: Callable[..., Tensor], *tensors: Tensor) -> list[Tensor]:
        parts = zip(*[self._parts(x) for x in tensors], strict=True)
        return [function(t, *p) for t, p in zip(self.transforms, parts, strict=True)]

    def _call(self, x: Tensor) -> Tensor:
        return self._joined(self._each(lambda t, x: t(x), x), self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return self._joined(self._each(lambda t, y: t.inverse(y), y), self.dim)

    def _refuse(self, x: Tensor, count: int) -> None:
        if not -x.dim() <= self.dim < x.dim() or x.shape[self.dim] != count:
            raise ValueError(
                f"{type(self).__name__}: the size of dimension {self.dim} must be {count}, got "
                f"a tensor of {list(x.shape)}."
            )

    def _same(self, other: Any) -> bool:
        return self.transforms == other.transforms and self.dim == other.dim

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.transforms!r}, dim={self.dim})"


class CatTransform(_Several):
    """A transform for each of several pieces, of ``lengths`` along ``dim`` (each 1 by default).

    >>> from numbagrad.distributions import ExpTransform, identity_transform
    >>> CatTransform([identity_transform, ExpTransform()], 0, [2, 1])(zeros(3)).tolist()
    [0.0, 0.0, 1.0]
    """

    def __init__(
        self,
        tseq: Sequence[Transform],
        dim: int = 0,
        lengths: Sequence[int] | None = None,
        cache_size: int = 0,
    ):
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise ValueError(
                f"CatTransform: {len(self.lengths)} lengths for {len(self.transforms)} transforms."
            )

    @property
    def event_dim(self) -> int:
        """The most dimensions that an event of a piece has."""
        return max([each.domain.event_dim for each in self.transforms])

    @property
    def domain(self) -> Any:
        """Theirs, piece by piece."""
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Any:
        """Theirs, piece by piece."""
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)

    def _parts(self, x: Tensor) -> list[Tensor]:
        self._refuse(x, sum(self.lengths))
        return list(x.split(self.lengths, self.dim))

    def _joined(self, parts: list[Tensor], dim: int) -> Tensor:
        return cat(parts, dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        found = self._each(
            lambda t, x, y: sum_rightmost(
                t.log_abs_det_jacobian(x, y), self.event_dim - t.domain.event_dim
            ),
            x,
            y,
        )
        dim = self.dim - (x.dim() if self.dim >= 0 else 0) + self.event_dim
        if dim < 0:
            return cat(found, dim)
        total = found[0]
        for each in found[1:]:
            total = total + each
        return total

    def _same(self, other: Any) -> bool:
        return super()._same(other) and self.lengths == other.lengths


class StackTransform(_Several):
    """A transform for each index of ``dim``.

    >>> from numbagrad.distributions import ExpTransform, identity_transform
    >>> StackTransform([identity_transform, ExpTransform()])(zeros(2)).tolist()
    [0.0, 1.0]
    """

    @property
    def domain(self) -> Any:
        """Theirs, one by one."""
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @property
    def codomain(self) -> Any:
        """Theirs, one by one."""
        return constraints.stack([t.codomain for t in self.transforms], self.dim)

    def _parts(self, x: Tensor) -> list[Tensor]:
        self._refuse(x, len(self.transforms))
        return list(x.unbind(self.dim))

    def _joined(self, parts: list[Tensor], dim: int) -> Tensor:
        return stack(parts, dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return stack(self._each(lambda t, x, y: t.log_abs_det_jacobian(x, y), x, y), self.dim)
