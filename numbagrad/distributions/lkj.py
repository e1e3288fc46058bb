"""``LKJCholesky``: Cholesky factors of correlation matrices."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..autograd import no_grad
from ..ops.create import arange
from ..ops.elementwise import clamp, log, sqrt, square
from ..ops.gamma import lgamma, mvlgamma
from ..ops.join import cat
from ..ops.random import randn
from ..ops.reduce import sum
from ..ops.shape import tril
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, broadcast_all
from .gamma import Beta

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Lower factors L of correlation matrices ``L @ L.mT`` with a density proportional to
    ``det ** (concentration - 1)`` of these: 1 for all alike, more for those near the identity.

    (Lewandowski, Kurowicka and Joe, 2009.) Draws have no gradient.

    >>> LKJCholesky(3, 0.5).sample((2,)).shape
    ng.Size([2, 3, 3])
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None):
        if dim < 2:
            raise ValueError(
                f"LKJCholesky: Expected dim to be an integer greater than or equal to 2. Found "
                f"dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By the onion method: row k is a random direction in k dimensions, times a random length,
        and what is missing to length 1."""
        with no_grad():
            eta = self.concentration.detach()
            before = clamp(arange(-1, self.dim - 1, dtype=eta.dtype, device=eta.device), 0.0)
            whole = eta.unsqueeze(-1) + 0.5 * (self.dim - 2)
            share = Beta(before + 0.5, whole - 0.5 * before, validate_args=False)
            lengths = sqrt(share.sample(sample_shape))[..., 1:, None]
            shape = self._extended_shape(sample_shape)
            steps = tril(randn(shape, dtype=eta.dtype, device=eta.device), -1)
            first, steps = steps[..., :1, :], steps[..., 1:, :]
            steps = lengths * steps / sqrt(sum(square(steps), -1, keepdim=True))
            rows = cat([0 * first, steps], -2)
            rest = clamp(1 - sum(square(rows), -1), dtypes.finfo(eta.dtype).tiny)
            return rows + sqrt(rest).diag_embed()

    def _log_prob(self, value: Tensor) -> Tensor:
        eta, n = self.concentration, self.dim - 1
        order = arange(n - 1, -1, -1, dtype=eta.dtype, device=eta.device)
        powers = 2 * (eta - 1).unsqueeze(-1) + order
        found = sum(powers * log(value.diagonal(0, -2, -1)[..., 1:]), -1)
        alpha = eta + 0.5 * n
        norm = 0.5 * n * math.log(math.pi) + mvlgamma(alpha - 0.5, n) - n * lgamma(alpha)
        return found - norm
