"""``ByMatrix``: what distributions share that take a positive definite matrix in three forms.

Covariance, its inverse, or its lower Cholesky factor, by which all is computed.
"""

from __future__ import annotations

from typing import Any

from ..ops.create import eye
from ..ops.elementwise import log
from ..ops.lapack import cholesky, inv
from ..ops.lapack_solve import solve_triangular
from ..ops.linalg import matmul
from ..ops.reduce import sum
from ..ops.view import expand
from ..tensor import Tensor
from .distribution import Distribution, computed

__all__ = ["ByMatrix"]


class ByMatrix(Distribution):
    """A distribution with ``covariance_matrix``, ``precision_matrix`` or ``scale_tril``; the others
    are computed."""

    _factor: Any

    def _take_factor(self, name: str, matrix: Tensor) -> None:
        """Make the Cholesky factor of what was given under a name."""
        if name == "scale_tril":
            self._factor = matrix
        else:
            self._factor = cholesky(matrix) if name[0] == "c" else _factor_of_inverse(matrix)

    @computed
    def scale_tril(self) -> Tensor:
        """The lower triangle L of positive diagonal, ``L @ L.mT`` the covariance."""
        n = self._event_shape[-1]
        return expand(self._factor, (*self._batch_shape, n, n))

    @computed
    def covariance_matrix(self) -> Tensor:
        """How the elements of a normal vector vary together."""
        return matmul(self.scale_tril, self.scale_tril.mT)

    @computed
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return inv(self.covariance_matrix)

    def _half_log_det(self) -> Tensor:
        return sum(log(self._factor.diagonal(0, -2, -1)), -1)


def _factor_of_inverse(matrix: Tensor) -> Tensor:
    """The lower Cholesky factor of the inverse: with both orders turned round, a triangle's."""
    turned = cholesky(matrix.flip((-2, -1))).flip((-2, -1)).mT
    one = eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return solve_triangular(turned, one, upper=False)
