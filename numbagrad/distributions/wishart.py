"""``Wishart``: positive definite matrices, sums of products of normal vectors with themselves."""

from __future__ import annotations

import math
from typing import Any

from ..errors import ShapeError
from ..ops.base import broadcast_shape
from ..ops.create import arange
from ..ops.elementwise import log, sqrt, square, where
from ..ops.gamma import digamma, mvlgamma
from ..ops.lapack import cholesky
from ..ops.lapack_solve import solve_triangular
from ..ops.linalg import matmul
from ..ops.random import randn
from ..ops.reduce import sum
from ..ops.sampling import standard_gamma
from ..ops.shape import tril
from ..ops.view import expand
from ..tensor import Tensor
from . import constraints
from .by_matrix import ByMatrix
from .distribution import broadcast_all
from .exponential_family import ExponentialFamily
from .probability import one_of

__all__ = ["Wishart"]


class Wishart(ByMatrix, ExponentialFamily):
    """The sum of ``df`` products ``v @ v.T`` of normal vectors of one of the three (..., n, n).

    covariance_matrix; precision_matrix, its inverse; or scale_tril, its lower Cholesky factor. df
    is above n - 1, and need be no whole number. Raises ValueError where it is not.

    >>> Wishart(3.0, scale_tril=eye(2)).mean.tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """

    arg_constraints = {
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
        "df": constraints.greater_than(0),
    }
    support = constraints.positive_definite
    has_rsample = True
    df: Tensor

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ):
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        name = one_of("Wishart", **given)
        matrix: Any = given[name]
        if not isinstance(matrix, Tensor) or matrix.dim() < 2:
            raise ShapeError(
                f"Wishart: {name} must be at least two-dimensional, with optional leading batch "
                f"dimensions; got {matrix!r}."
            )
        n = matrix.shape[-1]
        (degrees,) = broadcast_all(df)
        degrees = degrees.to(dtype=matrix.dtype, device=matrix.device)
        batch = broadcast_shape("Wishart", tuple(matrix.shape[:-2]), tuple(degrees.shape))
        self.df = expand(degrees, batch)
        self.__dict__[name] = expand(matrix, (*batch, n, n))
        super().__init__(batch, (n, n), validate_args)
        if self._checks() and not (self.df.detach() > n - 1).all():
            raise ValueError(
                f"Value of df={self.df} expected to be greater than ndim - 1 = {n - 1}."
            )
        self._take_factor(name, matrix)

    @property
    def mean(self) -> Tensor:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        """NaN where ``df`` is not above n + 1."""
        more = self.df - self._event_shape[-1] - 1
        return where(more > 0, more, math.nan)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        found = self.covariance_matrix
        each = found.diagonal(0, -2, -1)
        together = each.unsqueeze(-1) * each.unsqueeze(-2)
        return self.df[..., None, None] * (square(found) + together)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """By a triangle of normal numbers, with roots of gamma numbers on the diagonal (Bartlett,
        1933)."""
        n, df = self._event_shape[-1], self.df
        order = arange(n, dtype=df.dtype, device=df.device)
        half = 0.5 * (df.unsqueeze(-1) - order)
        half = expand(half, (*self._draws(sample_shape), *self._batch_shape, n))
        shape = self._extended_shape(sample_shape)
        below = tril(randn(shape, dtype=df.dtype, device=df.device), -1)
        triangle = below + sqrt(2 * standard_gamma(half)).diag_embed()
        factor = matmul(self._factor, triangle)
        return matmul(factor, factor.mT)

    def _log_norm(self) -> Tensor:
        """The logarithm of what the density is divided by."""
        n = self._event_shape[-1]
        found = self.df * (self._half_log_det() + 0.5 * n * math.log(2))
        return found + mvlgamma(0.5 * self.df, n)

    def _log_prob(self, value: Tensor) -> Tensor:
        n = self._event_shape[-1]
        factor = cholesky(value)
        half_log_det = sum(log(factor.diagonal(0, -2, -1)), -1)
        # The trace of covariance^-1 @ value, as the squares of the triangle that solves.
        spread = sum(square(solve_triangular(self._factor, factor, upper=False)), (-2, -1))
        return (self.df - n - 1) * half_log_det - 0.5 * spread - self._log_norm()

    def _mean_log_det(self) -> Tensor:
        """The mean of the logarithm of the determinant."""
        n, df = self._event_shape[-1], self.df
        order = arange(n, dtype=df.dtype, device=df.device)
        found = sum(digamma(0.5 * (df.unsqueeze(-1) - order)), -1)
        return found + n * math.log(2) + 2 * self._half_log_det()

    def entropy(self) -> Tensor:
        n = self._event_shape[-1]
        return self._log_norm() + 0.5 * n * self.df - 0.5 * (self.df - n - 1) * self._mean_log_det()
