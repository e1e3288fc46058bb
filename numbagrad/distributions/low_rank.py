"""``LowRankMultivariateNormal``: normal vectors that share a few directions.

All is computed with matrices of the number of directions, by Woodbury's identity.
"""

from __future__ import annotations

import math
from typing import Any

from ..errors import ShapeError
from ..ops.base import broadcast_shape
from ..ops.create import eye
from ..ops.elementwise import log, sqrt, square
from ..ops.lapack import cholesky, solve_triangular
from ..ops.linalg import matmul
from ..ops.random import randn
from ..ops.reduce import sum
from ..ops.view import expand
from ..tensor import Tensor
from . import constraints
from .distribution import Distribution, computed

__all__ = ["LowRankMultivariateNormal"]


class LowRankMultivariateNormal(Distribution):
    """Normal vectors of mean ``loc`` (..., n) and covariance ``W @ W.mT + diag(d)``.

    W: cov_factor (..., n, m); d: cov_diag (..., n), positive.

    >>> LowRankMultivariateNormal(zeros(2), ones(2, 1), ones(2)).variance.tolist()
    [2.0, 2.0]
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    loc: Any
    cov_factor: Any
    cov_diag: Any

    def __init__(
        self,
        loc: Tensor,
        cov_factor: Tensor,
        cov_diag: Tensor,
        validate_args: bool | None = None,
    ):
        name = type(self).__name__
        if loc.dim() < 1 or cov_factor.dim() < 2:
            raise ShapeError(
                f"{name}: loc must be at least one-dimensional and cov_factor at least "
                f"two-dimensional, got shapes {list(loc.shape)} and {list(cov_factor.shape)}."
            )
        n, m = cov_factor.shape[-2:]
        if loc.shape[-1] != n or cov_diag.shape[-1:] != (n,):
            raise ShapeError(
                f"{name}: cov_factor must be a batch of matrices with shape {loc.shape[-1]} x m, "
                f"and cov_diag vectors of loc's size. Received loc {list(loc.shape)}, cov_factor "
                f"{list(cov_factor.shape)}, cov_diag {list(cov_diag.shape)}."
            )
        shapes = loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1]
        batch = broadcast_shape(name, *[tuple(shape) for shape in shapes])
        self.loc, self.cov_diag = expand(loc, (*batch, n)), expand(cov_diag, (*batch, n))
        self.cov_factor = expand(cov_factor, (*batch, n, m))
        super().__init__(batch, (n,), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return sum(square(self.cov_factor), -1) + self.cov_diag

    @computed
    def covariance_matrix(self) -> Tensor:
        """How the elements vary together."""
        return matmul(self.cov_factor, self.cov_factor.mT) + self.cov_diag.diag_embed()

    @computed
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        root = sqrt(self.cov_diag).unsqueeze(-1)  # what is left has no eigenvalue below 1
        part = self.cov_factor / root
        return root * cholesky(matmul(part, part.mT) + self._identity(self._event_shape[0]))

    @computed
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        part = solve_triangular(self._capacitance(), self._weighed(), upper=False)
        return (1 / self.cov_diag).diag_embed() - matmul(part.mT, part)

    @property
    def _factor(self) -> Tensor:
        return self.scale_tril

    def _half_log_det(self) -> Tensor:
        inner = log(self._capacitance().diagonal(0, -2, -1))
        return sum(inner, -1) + 0.5 * sum(log(self.cov_diag), -1)

    def _identity(self, n: int) -> Tensor:
        return eye(n, dtype=self.loc.dtype, device=self.loc.device)

    def _weighed(self) -> Tensor:
        """``W.mT / d`` (..., m, n)."""
        return self.cov_factor.mT / self.cov_diag.unsqueeze(-2)

    def _capacitance(self) -> Tensor:
        """The Cholesky factor of ``I + W.mT / d @ W`` (..., m, m)."""
        m = self.cov_factor.shape[-1]
        return cholesky(matmul(self._weighed(), self.cov_factor) + self._identity(m))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape, m = self._extended_shape(sample_shape), self.cov_factor.shape[-1]
        how = {"dtype": self.loc.dtype, "device": self.loc.device}
        common = randn((*shape[:-1], m, 1), **how)
        own = sqrt(self.cov_diag) * randn(shape, **how)
        return self.loc + matmul(self.cov_factor, common).squeeze(-1) + own

    def _log_prob(self, value: Tensor) -> Tensor:
        apart = value - self.loc
        inner = matmul(self._weighed(), apart.unsqueeze(-1))
        inner = sum(square(solve_triangular(self._capacitance(), inner, upper=False)), (-2, -1))
        distance = sum(square(apart) / self.cov_diag, -1) - inner
        n = self._event_shape[0]
        return -0.5 * (distance + n * math.log(2 * math.pi)) - self._half_log_det()

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        return 0.5 * n * (1 + math.log(2 * math.pi)) + self._half_log_det()
