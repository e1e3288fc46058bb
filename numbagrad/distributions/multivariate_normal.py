"""``MultivariateNormal``: normal vectors with a covariance."""

from __future__ import annotations

import math
from typing import Any

from ..errors import ShapeError
from ..ops.base import broadcast_shape
from ..ops.elementwise import square
from ..ops.lapack_solve import solve_triangular
from ..ops.linalg import matmul
from ..ops.random import randn
from ..ops.reduce import sum
from ..ops.view import expand
from ..tensor import Tensor
from . import constraints
from .by_matrix import ByMatrix
from .probability import one_of

__all__ = ["MultivariateNormal"]


class MultivariateNormal(ByMatrix):
    """Normal vectors of mean ``loc`` (..., n) and one of the three (..., n, n).

    covariance_matrix; precision_matrix, its inverse; or scale_tril, its lower Cholesky factor,
    which is the cheapest, for the other two are factorised first.

    >>> MultivariateNormal(zeros(2), scale_tril=eye(2)).variance.tolist()
    [1.0, 1.0]
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
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
        name = one_of("MultivariateNormal", **given)
        matrix: Any = given[name]
        for key, value, least in (("loc", loc, "one"), (name, matrix, "two")):
            if not isinstance(value, Tensor):
                raise ValueError(
                    f"MultivariateNormal: {key} must be a Tensor, got {type(value).__name__}. "
                    f"Convert it with ng.tensor(...)."
                )
            if value.dim() < (1 if key == "loc" else 2):
                raise ShapeError(
                    f"MultivariateNormal: {key} must be at least {least}-dimensional, got shape "
                    f"{list(value.shape)}."
                )
        if matrix.shape[-2:] != (loc.shape[-1], loc.shape[-1]):
            raise ShapeError(
                f"MultivariateNormal: loc has {loc.shape[-1]} elements, so {name} must end in a "
                f"square of that size. Received loc {list(loc.shape)}, {name} "
                f"{list(matrix.shape)}."
            )
        batch = broadcast_shape("MultivariateNormal", tuple(matrix.shape[:-2]), loc.shape[:-1])
        n = loc.shape[-1]
        self.loc = expand(loc, (*batch, n))
        self.__dict__[name] = expand(matrix, (*batch, n, n))
        super().__init__(batch, (n,), validate_args)
        self._take_factor(name, matrix)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return sum(square(self.scale_tril), -1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        loc = self.loc
        z = randn(self._extended_shape(sample_shape), dtype=loc.dtype, device=loc.device)
        return loc + matmul(self._factor, z.unsqueeze(-1)).squeeze(-1)

    def _log_prob(self, value: Tensor) -> Tensor:
        apart = (value - self.loc).unsqueeze(-1)
        distance = sum(square(solve_triangular(self._factor, apart, upper=False)), (-2, -1))
        n = self._event_shape[0]
        return -0.5 * (distance + n * math.log(2 * math.pi)) - self._half_log_det()

    def entropy(self) -> Tensor:
        n = self._event_shape[0]
        found = 0.5 * n * (1 + math.log(2 * math.pi)) + self._half_log_det()
        return expand(found, self._batch_shape)
