"""``biject_to`` and ``transform_to``: what turns all real numbers into those of a constraint.

To learn a parameter of a distribution, learn ``x`` and use ``transform_to(constraint)(x)``. Start
reading at ``ConstraintRegistry``.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

from . import constraints
from .constraints import Constraint
from .transforms import (
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
    Transform,
    identity_transform,
)

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Makes the transform of a constraint, by the class of the constraint."""

    def __init__(self) -> None:
        self._registry: dict[type[Constraint], Callable[[Any], Transform]] = {}

    def register(self, constraint: Any, factory: Callable[[Any], Transform] | None = None) -> Any:
        """Let ``factory(constraint)`` be the transform of constraints of a class; a decorator too.

        constraint: the class, or a constraint of it.
        """
        if factory is None:
            return lambda found: self.register(constraint, found)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, Constraint)):
            raise TypeError(
                f"register: Expected constraint to be either a Constraint subclass or instance, "
                f"but got {constraint!r}."
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """A transform from all real numbers to ``constraint``.

        Raises NotImplementedError for constraints of which none is known, of counts say.
        """
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(
                f"Cannot transform {type(constraint).__name__} constraints; register() one."
            )
        return factory(constraint)


biject_to = ConstraintRegistry()
"""Transforms that have an inverse and a slope, where one is known; for changes of variables."""

transform_to = ConstraintRegistry()
"""Transforms of which each number moves few others; for parameters that are learned."""


def _scaled(transform: Transform, loc: Any, scale: Any) -> Transform:
    plain = isinstance(loc, Number) and isinstance(scale, Number) and (loc, scale) == (0, 1)
    return transform if plain else ComposeTransform([transform, AffineTransform(loc, scale)])


def _in_interval(c: Any) -> Transform:
    return _scaled(SigmoidTransform(), c.lower_bound, c.upper_bound - c.lower_bound)


BOTH: dict[Any, Callable[[Any], Transform]] = {
    constraints.Real: lambda c: identity_transform,
    constraints.GreaterThan: lambda c: _scaled(ExpTransform(), c.lower_bound, 1),
    constraints.GreaterThanEq: lambda c: _scaled(ExpTransform(), c.lower_bound, 1),
    constraints.LessThan: lambda c: _scaled(ExpTransform(), c.upper_bound, -1),
    constraints.Interval: _in_interval,
    constraints.HalfOpenInterval: _in_interval,
    constraints.CorrCholesky: lambda c: CorrCholeskyTransform(),
}
"""What both registries give."""

MATRICES: dict[Any, Callable[[Any], Transform]] = {
    constraints.LowerCholesky: lambda c: LowerCholeskyTransform(),
    constraints.PositiveDefinite: lambda c: PositiveDefiniteTransform(),
    constraints.PositiveSemidefinite: lambda c: PositiveDefiniteTransform(),
}
"""Those whose slope is not known."""


def _fill(registry: ConstraintRegistry, shares: type[Transform]) -> None:
    for kind, factory in BOTH.items():
        registry.register(kind, factory)
    registry.register(constraints.Simplex, lambda c: shares())
    registry.register(
        constraints.IndependentConstraint,
        lambda c: IndependentTransform(registry(c.base_constraint), c.reinterpreted_batch_ndims),
    )
    registry.register(
        constraints.Cat, lambda c: CatTransform([registry(p) for p in c.cseq], c.dim, c.lengths)
    )
    registry.register(
        constraints.Stack, lambda c: StackTransform([registry(p) for p in c.cseq], c.dim)
    )


_fill(biject_to, StickBreakingTransform)
_fill(transform_to, SoftmaxTransform)
for _kind, _factory in MATRICES.items():
    transform_to.register(_kind, _factory)
