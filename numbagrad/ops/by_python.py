"""Functions of Python's applied to one element after another, in place: ``apply_``, ``map_``.

They are slow, and for the CPU; ``ng.elementwise`` compiles such a function. Start at ``_written``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import devices
from ..errors import DeviceError, DTypeError, GradError
from ..kernels.machine import reading
from ..tensor import Tensor
from .from_data import tensor
from .overwrite import copy_
from .view import expand

__all__: list[str] = []


def _written(name: str, x: Tensor, others: tuple[Tensor, ...], function: Callable) -> Tensor:
    """``x`` with ``function`` of its elements and those of others, which broadcast to it."""
    for each in (x, *others):
        if not isinstance(each, Tensor):
            raise TypeError(f"{name}: expected a Tensor, got {type(each).__name__}.")
        if each._device is not devices.cpu:
            raise DeviceError(f"{name}: is only implemented on CPU tensors. Use x.cpu().")
        if each._edge is not None:
            raise GradError(
                f"{name}: Can't call {name}() on Variable that requires grad. Use "
                f"var.detach().{name}() instead."
            )
        if each._dtype is not x._dtype:
            raise DTypeError(f"{name}: expected {x._dtype} for 'other' (got {each._dtype}).")
        reading(name, each._array)
    columns = [expand(each, x._array.shape)._numbers().reshape(-1).tolist() for each in others]
    rows = zip(x._numbers().reshape(-1).tolist(), *columns, strict=True)
    values = np.array([function(*row) for row in rows], np.float64 if _floats(x) else np.int64)
    return copy_(x, tensor(values.reshape(x._array.shape)).to(x._dtype))


def _floats(x: Tensor) -> bool:
    return x._dtype.is_floating_point


def apply_(x: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Each element replaced by what ``callable`` gives for it, in place; for the CPU."""
    return _written("apply_", x, (), callable)


def map_(x: Tensor, other: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Each element replaced by ``callable`` of it and that of ``other``, in place; for the CPU."""
    return _written("map_", x, (other,), callable)


def map2_(x: Tensor, a: Tensor, b: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Each element replaced by ``callable`` of it and those of a and b, in place; for the CPU."""
    return _written("map2_", x, (a, b), callable)


METHODS: dict[str, Any] = {"apply_": apply_, "map2_": map2_, "map_": map_}
