"""``kl_divergence`` and the table of pairs that it knows; ``register_kl`` adds to it.

The formulas of pairs are in ``kl_pairs.py``; here are those that ask for another divergence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from .distribution import Distribution
from .independent import Independent, sum_rightmost
from .transformed import TransformedDistribution

__all__ = ["kl_divergence", "register_kl"]

_pairs: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Callable], Callable]:
    """Decorator: let ``kl_divergence`` use a function for these classes and their subclasses.

    Of several that fit, the one for the nearest class of p is taken, then for that of q. Raises
    TypeError for what are no distributions.

    >>> class Sure(Distribution):
    ...     pass
    >>> @register_kl(Sure, Sure)
    ... def kl(p, q):
    ...     return zeros(())
    >>> kl_divergence(Sure(), Sure()).item()
    0.0
    """
    for found in (type_p, type_q):
        if not (isinstance(found, type) and issubclass(found, Distribution)):
            raise TypeError(f"Expected a subclass of Distribution but got {found!r}")

    def register(function: Callable) -> Callable:
        _pairs[type_p, type_q] = function
        return function

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """How much ``q`` differs from ``p``: the mean over p of log p - log q, of their batch shape.

    Raises NotImplementedError for pairs that are not known.

    >>> from numbagrad.distributions import Normal
    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
    0.5
    """
    for type_p in type(p).__mro__:
        for type_q in type(q).__mro__:
            found = _pairs.get((type_p, type_q))
            if found is not None:
                return found(p, q)
    raise unknown(p, q)


def unknown(p: Distribution, q: Distribution) -> NotImplementedError:
    """What is raised for a pair that has no divergence."""
    return NotImplementedError(
        f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
        f"{type(q).__name__}. Give one with register_kl, or take the mean of log_prob over draws."
    )


@register_kl(Independent, Independent)
def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(
            f"kl_divergence: Independent of {p.reinterpreted_batch_ndims} and of "
            f"{q.reinterpreted_batch_ndims} dimensions."
        )
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms:
        raise NotImplementedError("kl_divergence: the transforms of p and q differ.")
    return kl_divergence(p.base_dist, q.base_dist)
