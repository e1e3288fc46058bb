"""Other sizes for a tensor in place: ``resize_`` and ``resize_as_``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..errors import GradError, ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .base import as_operand, copy_kernel, new_empty
from .part import as_strided

__all__ = ["resize_as_"]


def resize_(x: Tensor, *size: Any) -> Tensor:
    """Give ``x`` these sizes in place: its elements in the order of memory, then any numbers.

    size: ints, or one sequence of them. A tensor that grows moves to memory of its own. Raises
    GradError if ``x`` requires grad, if it has living views, and if a view would have to grow;
    ShapeError for negative sizes.

    >>> tensor([1, 2, 3, 4]).resize_(2, 2).tolist()
    [[1, 2], [3, 4]]
    """
    first = size[0] if len(size) == 1 else size
    return resized("resize_", x, (first,) if isinstance(first, int) else tuple(first))


def resize_as_(x: Tensor, the_template: Tensor) -> Tensor:
    """``x.resize_(the_template.size())``.

    >>> resize_as_(tensor([1, 2, 3, 4]), ng.zeros(2, 2)).tolist()
    [[1, 2], [3, 4]]
    """
    shape = as_operand("resize_as_", the_template, 1)._array.shape
    return resized("resize_as_", as_operand("resize_as_", x), shape)


def _as_strided_alone(
    x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """Any shape, strides and offset, in elements of its memory; see ``as_strided``.

    Raises GradError if ``x`` has living views, which look for their places from its first element.
    """
    as_operand("as_strided_", x)
    _check_alone("as_strided_", x)
    return as_strided(x, size, stride, storage_offset)


def _check_alone(name: str, x: Tensor) -> None:
    if any([view() is not None for view in x._views or ()]):
        raise GradError(f"{name}: views of this tensor live. Clone them, or change a clone of it.")


def check_resizable(name: str, x: Tensor, shape: tuple[int, ...]) -> int:
    """Raise if ``x`` cannot be resized; how many elements it has room for where it is."""
    if x._edge is not None:
        raise GradError(f"{name}: cannot resize variables that require grad. Use x.detach().")
    if min(shape, default=0) < 0:
        raise ShapeError(f"{name}: sizes must not be negative, got {list(shape)}.")
    if shape == x._array.shape:
        return x._array.size
    _check_alone(name, x)
    count = math.prod(shape)
    room = (x if x._base is None else x._base)._array.size - x.storage_offset()
    if count > room and x._base is not None:
        raise GradError(
            f"{name}: {list(shape)} needs {count} elements, the memory of this view has {room} "
            f"from its first on. Resize a clone of it."
        )
    return room


def resized(name: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``x`` with another shape, in place."""
    room = check_resizable(name, x, shape)
    if shape == x._array.shape:
        return x
    count = math.prod(shape)
    if machine.is_recording():
        machine.recorder.current.set_sizes(name, x)
    with no_grad():
        if count <= room:
            strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
            out = as_strided(x, shape, strides)
        else:
            out = new_empty(shape, x._dtype, x._device)
            held = x._array.size
            target = machine.view(out._array, (held,), (1,), 0)
            machine.launch(copy_kernel, target, machine.view(x._array, (held,), (1,), 0))
    x._share(out)
    x._bump_version()
    x._moved()
    return x


METHODS: dict[str, Any] = {"resize_": resize_, "resize_as_": resize_as_}
INPLACE_VIEWS: dict[str, Any] = {"as_strided_": _as_strided_alone}
