"""Pooling by the p-norm of each window, between the sum (p 1) and the largest (infinity)."""

from __future__ import annotations

import math
from typing import Any

from ..tensor import Tensor
from .conv import per_dimension
from .elementwise import where
from .pool import _avg_pool, _input, _max_pool

__all__: list[str] = []  # in nn.functional alone


def _lp_pool(
    rank: int, input: Any, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool
) -> Tensor:
    name = f"lp_pool{rank}d"
    x = _input(name, rank, input)
    p = float(norm_type)
    if p == 0:
        raise ValueError(f"{name}: norm_type must not be 0: a root of degree 0 is not defined.")
    if math.isinf(p):
        sign = math.copysign(1.0, p)
        moves = kernel_size, stride, 0, 1, ceil_mode, False
        return sign * _max_pool(rank, sign * x.abs(), *moves, name=name)
    modes = kernel_size, stride, 0, ceil_mode, True
    means = _avg_pool(rank, x**p, *modes, name=name)
    sums = means * math.prod(per_dimension(name, "kernel_size", kernel_size, rank, 1, "no"))
    # The slope of the root is infinite at 0, where the gradient is to be 0.
    none = sums.eq(0)
    return where(none, 0.0 if p > 0 else math.inf, where(none, 1.0, sums) ** (1 / p))


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window along the last dimension; see ``lp_pool2d``.

    >>> lp_pool1d(tensor([[3.0, 4.0, 0.0, 2.0]]), 2, 2).tolist()
    [[5.0, 2.0]]
    """
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """``sum(x ** p) ** (1 / p)`` of each window of images (n, c, h, w) or (c, h, w), floating.

    norm_type: p, not 0; infinity: the largest absolute value. The powers are of the elements, not
    of their absolute values: an odd or broken p wants elements that are not negative. kernel_size,
    stride, ceil_mode: as for ``avg_pool2d``, whose means are multiplied by the kernel's size: a
    window that is cut off counts as if it were whole. Gradient: 0 where the sum is 0.

    >>> lp_pool2d(tensor([[[1.0, 1.0], [1.0, 1.0]]]), 2, 2).tolist()
    [[[2.0]]]
    """
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> Tensor:
    """The p-norm of each window of volumes; see ``lp_pool2d``.

    >>> lp_pool3d(ones(1, 2, 2, 2), 3, 2).tolist()
    [[[[2.0]]]]
    """
    return _lp_pool(3, input, norm_type, kernel_size, stride, ceil_mode)
