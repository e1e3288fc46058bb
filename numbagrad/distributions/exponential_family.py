"""``ExponentialFamily``: densities ``exp(sum(t(x) * natural) - log_normalizer(natural)) * h(x)``.

A subclass that gives its natural parameters and the normaliser has its entropy and divergences from
the derivatives of that (Nielsen and Nock, 2010). Those that stand here have formulas of their own.
"""

from __future__ import annotations

from typing import Any

from ..autograd.modes import enable_grad
from ..autograd.passes import grad
from ..ops.reduce import sum
from ..tensor import Tensor
from .distribution import Distribution

__all__ = ["ExponentialFamily", "bregman"]


class ExponentialFamily(Distribution):
    """A base for distributions of one's own; and what nine of those here are.

    A subclass defines ``_natural_params``, a property with a tuple of tensors, ``_log_normalizer``
    of these, and ``_mean_carrier_measure``, the mean of ``log h(x)``, a number or a tensor.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise self._missing("_natural_params")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise self._missing("_log_normalizer")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise self._missing("_mean_carrier_measure")

    def entropy(self) -> Tensor:
        try:
            carrier, natural = self._mean_carrier_measure, self._natural_params
        except NotImplementedError:
            raise self._missing("entropy") from None
        return bregman(self, natural, natural) - carrier


def bregman(p: Any, at: tuple[Tensor, ...], natural: tuple[Tensor, ...]) -> Tensor:
    """The normaliser of p at ``at``, less ``at`` times its slope at ``natural``, p's own.

    Of ``at`` the natural parameters of another of the family.
    """
    with enable_grad():
        here = tuple([x if x.requires_grad else x.detach().requires_grad_() for x in natural])
        slopes = grad(p._log_normalizer(*here).sum(), here, create_graph=True)
    if not any([x.requires_grad for x in natural]):
        slopes = tuple([slope.detach() for slope in slopes])
    event = len(p.event_shape)
    found = p._log_normalizer(*at)
    for x, slope in zip(at, slopes, strict=True):
        product = x * slope
        found = found - (sum(product, tuple(range(-event, 0))) if event else product)
    return found
