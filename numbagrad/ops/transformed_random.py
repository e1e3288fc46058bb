"""Distributions made of others, in place: uniform and normal numbers bent by a formula."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..errors import ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .base import copy_kernel, new_empty
from .from_formula import Elementwise
from .overwrite import overwrite
from .random import _NORMAL, _UNIFORM, _check_floating, _draw

__all__: list[str] = []


class CauchyOf(Elementwise):
    """Cauchy numbers of uniform ones in [0, 1)."""

    def formula(u, median, sigma):
        return median + sigma * math.tan(math.pi * (u - 0.5))


class GeometricOf(Elementwise):
    """Geometric numbers of uniform ones in [0, 1); log_miss: log(1 - p)."""

    def formula(u, log_miss):
        return max(1, math.ceil(math.log1p(-u) / log_miss))


class LogNormalOf(Elementwise):
    """Log-normal numbers of normal ones."""

    def formula(x):
        return math.exp(x)


def _bent(
    x: Tensor, name: str, table: dict, generator: Any, drawn: tuple, bend: Any, *numbers: float
) -> Tensor:
    """Numbers of ``table`` with arguments ``drawn``, bent, in ``x``; ints and halves by floats."""

    def write(out: Tensor) -> None:
        wide = out
        if out._dtype not in (dtypes.float32, dtypes.float64):
            dtype = dtypes.float32 if out._dtype in dtypes.HALVES else dtypes.float64
            wide = new_empty(out._array.shape, dtype, out._device)
        _draw(table, wide, generator, *drawn)
        machine.launch(bend.op.kernel, wide._array, wide._array, *numbers)
        if wide is not out:
            machine.launch(copy_kernel, out._array, wide._array)

    return overwrite(x, name, write)


def cauchy_(x: Tensor, median: float = 0, sigma: float = 1, *, generator: Any = None) -> Tensor:
    """Numbers of the Cauchy distribution, in place. Raises DTypeError unless x is floating."""
    _check_floating("cauchy_", x)
    if not sigma > 0:
        raise ShapeError(f"cauchy_: expects sigma > 0.0, but found sigma={sigma}.")
    numbers = float(median), float(sigma)
    return _bent(x, "cauchy_", _UNIFORM, generator, (0.0, 1.0), CauchyOf, *numbers)


def log_normal_(x: Tensor, mean: float = 1, std: float = 2, *, generator: Any = None) -> Tensor:
    """Numbers whose logarithms are normal, of ``mean`` and ``std``, in place."""
    _check_floating("log_normal_", x)
    if not std > 0:
        raise ShapeError(f"log_normal_: expects std > 0.0, but found std={std}.")
    drawn = float(mean), float(std)
    return _bent(x, "log_normal_", _NORMAL, generator, drawn, LogNormalOf)


def geometric_(x: Tensor, p: float, *, generator: Any = None) -> Tensor:
    """How many trials it takes until one of chance ``p`` succeeds, in place; ints or floats."""
    if not 0 < p < 1:
        raise ShapeError(f"geometric_: expects p to be in (0, 1), but got p={p}.")
    drawn = 0.0, 1.0
    return _bent(x, "geometric_", _UNIFORM, generator, drawn, GeometricOf, math.log1p(-p))


METHODS: dict[str, Any] = {
    "cauchy_": cauchy_,
    "geometric_": geometric_,
    "log_normal_": log_normal_,
}
