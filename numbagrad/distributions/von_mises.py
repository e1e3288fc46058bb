"""``VonMises``: angles around a direction, the normal distribution of the circle."""

from __future__ import annotations

import math
from typing import Any

from ..autograd import no_grad
from ..ops.base import full
from ..ops.bessel import i0e, i1e
from ..ops.elementwise import acos, clamp, cos, log, maximum, sign, sqrt, square, where
from ..ops.random import rand
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, broadcast_all

__all__ = ["VonMises"]

ROUNDS = 20
"""Trials of each draw, always as many, for compiled functions cannot ask whether that is enough.
Each succeeds with a chance of more than 0.65: one in 1e9 draws is the last proposal as it is."""


class VonMises(Distribution):
    """Density proportional to ``exp(concentration * cos(x - loc))``, of angles in radians.

    Draws lie in [-pi, pi) and have no gradient. The variance is that of the circle, ``1 - r`` for
    the length r of the mean direction.

    >>> VonMises(0.5, 4.0).mean.item()
    0.5
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None):
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """The mean direction."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """One minus the length of the mean direction."""
        return 1 - i1e(self.concentration) / i0e(self.concentration)

    def _log_prob(self, value: Tensor) -> Tensor:
        k = self.concentration
        return k * (cos(value - self.loc) - 1) - math.log(2 * math.pi) - log(i0e(k))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            loc, k = (
                self._expanded(x.detach(), sample_shape) for x in (self.loc, self.concentration)
            )
            return (loc + _angles(k) + math.pi) % (2 * math.pi) - math.pi


def _angles(k: Tensor) -> Tensor:
    """Angles around 0 of concentrations ``k``, by rejection from a wrapped Cauchy distribution
    (Best and Fisher, 1979)."""
    tau = 1 + sqrt(1 + 4 * square(k))
    rho = (tau - sqrt(2 * tau)) / (2 * k)
    r = where(k < 1e-4, 1 / k + k, (1 + square(rho)) / (2 * rho))  # rho loses its digits near 0
    shape = k._array.shape
    found, missing = full(shape, 0.0, k._dtype, k._device), k > 0
    for _ in range(ROUNDS):
        u1, u2, u3 = rand(3, *shape, dtype=k.dtype, device=k.device).unbind(0)
        z = cos(math.pi * u1)
        f = (1 + r * z) / (r + z)
        c = k * (r - f)
        taken = (c * (2 - c) - u2 > 0) | (log(c / maximum(u2, 0 * u2 + 1e-30)) + 1 - c >= 0)
        angle = sign(u3 - 0.5) * acos(clamp(f, -1.0, 1.0))
        found = where(missing, angle, found)
        missing = missing & ~taken
    return found
