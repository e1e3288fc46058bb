"""Writing into all elements of a tensor, by the tape's rules: ``fill_``, ``zero_``, ``copy_``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..autograd.changes import check_in_place
from ..errors import ShapeError
from ..kernels import machine
from ..kernels.blocks import zeroed
from ..kernels.shares import GRAIN
from ..tape import grad_mode
from ..tensor import Tensor, wrap
from .base import Op, as_operand, copy_kernel, fill_entry, fill_kernel, full, meets, new_empty
from .create import _filled, _number
from .elementwise import cast
from .inplace import _rebase, assign, check_distinct, check_followed
from .operand import HELD, check_operands, no_operand, number_of
from .transfer import transfer
from .view import expand


class Overwrite(Op, plain_notes=True):
    """Stands for ``x`` after all its elements were replaced: its old history gets zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor | None) -> Tensor:
        return wrap(x._array, x._dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        zeros = _filled(g._array.shape, 0, g._dtype, g._device)
        return zeros, g if ctx.needs_input_grad[1] else None


def overwrite(
    x: Tensor, name: str, write: Callable[[Tensor], Any], anywhere: bool = False
) -> Tensor:
    """Let ``write`` fill the elements of ``x``, in place and by the tape's rules; returns x.

    The new elements have no history: gradients that arrive at them go nowhere. anywhere: whether
    ``write`` takes tensors of any strides.
    """
    check_in_place(x, name)
    if anywhere:
        check_distinct(x, name)
    elif not x._flat:
        fresh = new_empty(x._array.shape, x._dtype, x._device)
        write(fresh)
        if grad_mode.enabled and x._base is None and x._edge is not None:
            fresh._edge = Overwrite.apply(x, None)._edge
        return assign(x, fresh, name)
    base = x if x._base is None else x._base
    if grad_mode.enabled and base._edge is not None:
        check_followed(x, name)
    write(x)
    x._bump_version()
    if grad_mode.enabled:
        if x._base is not None and base._edge is not None:
            _rebase(x, wrap(x._array, x._dtype))
        elif x._edge is not None:
            _rebase(x, Overwrite.apply(x, None))
    return x


def fill_(x: Tensor, value: Any) -> Tensor:
    """Every element set to ``value``, in place."""
    if isinstance(value, Tensor):
        if value._array.ndim:
            raise ShapeError(
                f"fill_: only supports 0-dimension value tensor but got tensor with "
                f"{value._array.ndim} dimensions."
            )
        return copy_(x, value)
    value = _number("fill_", value)
    try:
        dtype = x._dtype
    except AttributeError:
        raise no_operand("fill_", x) from None
    if type(value) is float and dtype.is_floating_point and -HELD <= value <= HELD:
        if _short(x, fill_kernel, float, value):
            return x
    value = number_of("fill_", value, dtype)
    return overwrite(x, "fill_", lambda out: machine.launch(fill_kernel, out._array, value), True)


def zero_(x: Tensor) -> Tensor:
    """Every element set to zero, in place."""
    try:
        free = x._edge is None or not grad_mode.enabled
        if free and x._base is None and x._flat and (not machine.recording or machine.on_host(x)):
            array = x._array
            done = fill_entry(x._dtype)(array, 0)
            if not done and array.size < GRAIN:
                zeroed(array)
                done = True
            if done:
                (x._counter or x._version_counter()).bump(1)
                return x
        return fill_(x, 0)
    except AttributeError as error:
        check_operands("zero_", error, (x,))
        raise


def _short(x: Tensor, kernel: Any, kind: Any, value: Any) -> bool:
    """Whether ``value``, a number or an array of ``kind``, has been written into ``x`` by one
    launch: where nothing has a history, and ``x`` is all of its memory and small."""
    if x._base is not None or not x._flat or (machine.recording and not machine.on_host(x)):
        return False
    if (x._edge is not None and grad_mode.enabled) or x._dtype is dtypes.bool_:
        return False
    array = x._array
    entry = kernel.entry((array.dtype, kind))
    if not entry(array, value):
        return False
    (x._counter or x._version_counter()).bump()
    return True


def copy_(x: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """The elements of ``src``, broadcast and converted, written into ``x`` in place.

    Gradient: to ``src``; none to the old ``x``.
    """
    if isinstance(src, (int, float, np.generic)):
        whole = dtypes.of_number(src) if not isinstance(src, (float, np.floating)) else None
        src = full((), src, whole or dtypes.float64)
    source = as_operand("copy_", src, 1)._array
    here = not machine.recording or machine.on_host(x, src)
    if src._edge is None and here and source.base is None:
        if _short(x, copy_kernel, source.dtype, source):
            return x
    if source.shape != x._array.shape:
        try:
            src = expand(src, x._array.shape)
        except ShapeError:
            raise ShapeError(
                f"copy_: output with shape {list(x._array.shape)} doesn't match the broadcast "
                f"shape of source {list(src._array.shape)}; each size must match or be 1."
            ) from None
    check_distinct(x, "copy_")
    src = transfer(src, x._device)
    if meets(x, src):
        src = src.clone()
    if src._edge is None and x._edge is None and x._base is None:
        machine.launch(copy_kernel, x._array, src._array)
        x._bump_version()
        return x
    src = cast(src, x._dtype)
    if grad_mode.enabled and x._base is None:  # a node of its own, also where src is a leaf
        check_in_place(x, "copy_")
        check_followed(x, "copy_")
        machine.launch(copy_kernel, x._array, src._array)
        x._bump_version()
        _rebase(x, Overwrite.apply(x, src))
        return x
    return assign(x, src, "copy_")


METHODS: dict[str, Any] = {"copy_": copy_, "fill_": fill_, "zero_": zero_}
