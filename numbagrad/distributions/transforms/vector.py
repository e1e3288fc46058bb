"""Transforms of vectors and matrices: to shares, to triangles, to covariances."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from ... import dtypes
from ...ops.activation import logsigmoid, softplus
from ...ops.create import arange, eye, ones
from ...ops.elementwise import clamp, exp, log, log1p, sigmoid, sqrt, square, tanh
from ...ops.from_data import tensor
from ...ops.join import cat
from ...ops.lapack import cholesky
from ...ops.norm import softmax
from ...ops.reduce import sum
from ...ops.scan import cumprod, cumsum
from ...ops.shape import tril
from ...tensor import Tensor
from .. import constraints
from .number import Plain

__all__ = [
    "CorrCholeskyTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "SoftmaxTransform",
    "StickBreakingTransform",
]


def _one(x: Tensor) -> Tensor:
    """1 for each vector of ``x``."""
    return ones(*x.shape[:-1], 1, dtype=x.dtype, device=x.device)


class SoftmaxTransform(Plain):
    """Shares by ``softmax``; vectors that differ by a constant give the same, so it has no slope.

    >>> SoftmaxTransform()(tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

    bijective = False
    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return log(y)


class StickBreakingTransform(Plain):
    """n numbers to n + 1 shares: each breaks its part off what the ones before have left.

    Of zeros the shares are equal (Stan Reference Manual, "Unit simplex").

    >>> StickBreakingTransform()(tensor([0.0])).tolist()
    [0.5, 0.5]
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        limits = dtypes.finfo(x.dtype)
        part = clamp(sigmoid(x - _parts_left(x)), limits.tiny, 1 - limits.eps)
        return cat([part, _one(x)], -1) * cat([_one(x), cumprod(1 - part, -1)], -1)

    def _inverse(self, y: Tensor) -> Tensor:
        y = y[..., :-1]
        left = clamp(1 - cumsum(y, -1), dtypes.finfo(y.dtype).tiny)
        return log(y) - log(left) + _parts_left(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - _parts_left(x)
        return sum(logsigmoid(x) - x + log(y[..., :-1]), -1)

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        return (*_vector(shape)[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        return (*_vector(shape)[:-1], shape[-1] - 1)


def _vector(shape: Any) -> tuple[int, ...]:
    if not len(shape):
        raise ValueError("StickBreakingTransform: Too few dimensions on input.")
    return tuple(shape)


def _parts_left(x: Tensor) -> Tensor:
    """The logarithm of how many shares come after each of the n numbers: n, n - 1, ..., 1."""
    return log(arange(x.shape[-1], 0, -1, dtype=x.dtype, device=x.device))


class LowerCholeskyTransform(Plain):
    """A lower triangle whose diagonal is the exponentials of that of x; no slope is known.

    >>> LowerCholeskyTransform()(tensor([[0.0, 9.0], [2.0, 0.0]])).tolist()
    [[1.0, 0.0], [2.0, 1.0]]
    """

    bijective = False
    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return tril(x, -1) + exp(x.diagonal(0, -2, -1)).diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return tril(y, -1) + log(y.diagonal(0, -2, -1)).diag_embed()


class PositiveDefiniteTransform(Plain):
    """``L @ L.mT`` of the triangle of ``LowerCholeskyTransform``; no slope is known.

    >>> PositiveDefiniteTransform()(tensor([[0.0, 9.0], [2.0, 0.0]])).tolist()
    [[1.0, 2.0], [2.0, 5.0]]
    """

    bijective = False
    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(cholesky(y))


class CorrCholeskyTransform(Plain):
    """n (n - 1) / 2 numbers to the lower Cholesky factor of an n by n correlation matrix.

    By tanh they become partial correlations, which give each row on its way to length 1
    (Lewandowski et al., 2009; Stan Reference Manual, "Cholesky factors of correlation matrices").

    >>> CorrCholeskyTransform()(tensor([0.0])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky

    def _call(self, x: Tensor) -> Tensor:
        n, eps = self.forward_shape(x.shape)[-1], dtypes.finfo(x.dtype).eps
        r = clamp(tanh(x), -1 + eps, 1 - eps)
        r = cat([r, 0 * _one(r)], -1)[..., tensor(_places(n), device=x.device)]
        r = r.reshape(*x.shape[:-1], n, n)
        left = cumprod(sqrt(1 - square(r)), -1)
        return (r + eye(n, dtype=x.dtype, device=x.device)) * _shifted(left)

    def _inverse(self, y: Tensor) -> Tensor:
        left = _shifted(1 - cumsum(square(y), -1))
        t = _below(y) / sqrt(_below(left))
        return 0.5 * (log1p(t) - log1p(-t))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = _below(1 - cumsum(square(y), -1), -2)
        by_tanh = x + softplus(-2 * x) - math.log(2.0)
        return 0.5 * sum(log(left), -1) - 2 * sum(by_tanh, -1)

    def forward_shape(self, shape: Any) -> tuple[int, ...]:
        count = shape[-1] if len(shape) else 0
        n = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if not len(shape) or n * (n - 1) // 2 != count:
            raise ValueError(
                f"CorrCholeskyTransform: Input is not a flattened lower-diagonal number: "
                f"expected n (n - 1) / 2 numbers, got shape {list(shape)}."
            )
        return (*shape[:-1], n, n)

    def inverse_shape(self, shape: Any) -> tuple[int, ...]:
        if len(shape) < 2 or shape[-2] != shape[-1]:
            raise ValueError(f"CorrCholeskyTransform: Input is not square, of shape {list(shape)}.")
        n = shape[-1]
        return (*shape[:-2], n * (n - 1) // 2)


@functools.cache
def _places(n: int) -> np.ndarray:
    """Where each element of a matrix is among the numbers below the diagonal; else their count."""
    found = np.full((n, n), n * (n - 1) // 2)
    found[np.tril_indices(n, -1)] = np.arange(n * (n - 1) // 2)
    return found.reshape(-1)


def _below(x: Tensor, diagonal: int = -1) -> Tensor:
    """The numbers of (..., n, n) on and below a diagonal, row by row."""
    n = x.shape[-1]
    rows, columns = np.tril_indices(n, diagonal)
    return x.reshape(*x.shape[:-2], n * n)[..., tensor(rows * n + columns, device=x.device)]


def _shifted(x: Tensor) -> Tensor:
    """One column to the right, after ones."""
    return cat([_one(x), x[..., :-1]], -1)
