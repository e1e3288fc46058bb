"""``x[key] = value``, in place, and ``index_put``. Start reading at ``setitem``."""

from __future__ import annotations

import builtins
import functools
import math
from typing import Any

import numpy as np

from .. import devices, dtypes
from ..autograd.changes import check_in_place
from ..errors import DimError, ShapeError
from ..kernels import machine
from ..kernels.cpu import index as kernels
from ..tape import grad_mode
from ..tensor import Tensor
from .base import contiguous, copy_kernel, fill_kernel, meets
from .brackets import (
    ALL,
    Group,
    beside,
    check_mask,
    getitem,
    joined,
    masked_part,
    parsed,
    parts_of,
    with_tensors,
)
from .elementwise import cast, contiguous_copy, masked_fill
from .from_data import as_tensor
from .index import _write, launch_checked, put_slices, scalar_tensor
from .inplace import assign, check_distinct
from .operand import number_of
from .remembered import remembered
from .selected import Selected
from .transfer import transfer
from .transpose import permute
from .view import expand, reshape

NUMBERS = frozenset((int, float, bool))


def setitem(x: Tensor, key: Any, value: Any) -> None:
    """``x[key] = value``: a number, or a tensor that broadcasts to ``x[key]`` and is converted.

    In place, by the tape's rules. Gradient: to ``value``, and to the elements of ``x`` that stay.
    Where indices repeat the last entry stands, and only it gets a gradient.
    """
    _written(x, with_tensors(key), value)


def _assigned(x: Tensor, key: Any, value: Any) -> Tensor:
    """``x`` after ``setitem``."""
    _assign(x, key, value)
    return x


_written = remembered(_assigned, writes=True, spread="key")


def _assign(x: Tensor, key: Any, value: Any) -> None:
    if grad_mode.enabled:
        check_in_place(x, "setitem")
    recorded = grad_mode.enabled and (
        x._edge is not None
        or (isinstance(value, Tensor) and value._edge is not None)
        or (x._base is not None and x._base._edge is not None)
    )
    if not isinstance(value, Tensor) and type(value) not in NUMBERS:
        value = as_tensor(value, device=devices.cpu)
    groups: list[Group] = []
    kind = type(key)
    if machine.is_recording() and machine.is_compiling() and (kind is tuple or kind is Selected):
        from .selected_places import at_places, put  # which stand on what is written here

        if at_places(key):
            put(x, key, value)
            return
    if machine.recording:
        key = beside(x, key)
    if kind is Tensor and machine.is_recording() and _fill_masked(x, key, value):
        return
    if kind is tuple and machine.is_recording() and _fill_masked_part(x, key, value):
        return
    if kind is Tensor and not recorded and type(value) in NUMBERS and x._flat:
        if _fill_tensor(x, key, value):
            return
    if kind is int or kind is builtins.slice or kind is type(...):
        view = getitem(x, key)
    else:
        view, groups = parsed(x, parts_of(key))
    if isinstance(value, Tensor) and value._device is not x._device:
        if groups and value._array.ndim:
            raise devices.mixed("setitem", x._device, value._device)
        value = transfer(value, x._device)
    check_distinct(view, "setitem")
    if groups:
        _set_groups(x, view, groups, value, recorded)
    elif recorded:
        value = _fitting(value, view, view._array.shape)
        assign(view, value, "setitem")
    else:
        _set_view(x, view, value)


def _number_for(x: Tensor, value: Any) -> Any:
    """A Python number as the dtype of ``x`` takes it."""
    if x._dtype.is_floating_point:
        return float(value)
    if isinstance(value, Tensor):  # which is cast as others are
        return bool(value) if x._dtype is dtypes.bool_ else int(value)
    return number_of("x[...] = value", value, x._dtype)


def _fill_tensor(x: Tensor, key: Tensor, value: Any) -> bool:
    """``x[key] = number`` of a contiguous ``x`` outside the tape; False where it does not apply."""
    array, at = x._array, key._array
    if not at.ndim or not array.ndim or x._dtype is dtypes.bool_:
        return False
    value = _number_for(x, value)
    if key._dtype is dtypes.bool_ and at.ndim <= array.ndim:
        check_mask(x, key, 0)
        if array.size:
            mask = contiguous(key)._array.reshape(-1)
            machine.launch(kernels.fill_where, array.reshape(mask.size, -1), mask, value)
    elif key._dtype is dtypes.int64:
        flat = contiguous(key)._array.reshape(-1)
        m = array.shape[0]
        planes = array.reshape(1, m, math.prod(array.shape[1:]))
        launch_checked("index", kernels.fill_at, planes, flat, value, where=(flat, 0, m))
    else:
        return False
    x._bump_version()
    return True


def _fill_masked(x: Tensor, mask: Tensor, value: Any) -> bool:
    """``x[mask] = number`` while a step is recorded, when nobody knows where the mask holds; False
    where it does not apply.
    """
    rest = x._array.ndim - mask._array.ndim
    if mask._dtype is not dtypes.bool_ or not mask._array.ndim or rest < 0:
        return False
    if not _is_number(value):
        if type(value) is not Selected and not machine.unknown(mask._array):
            return False
        from .selected_methods import write  # which stands on ops

        check_mask(x, mask, 0)
        write(x, mask, value)
        return True
    if isinstance(value, Tensor):
        value = cast(value, x._dtype)
    else:
        value = _number_for(x, value)
    check_mask(x, mask, 0)
    mask = reshape(mask, (*mask._array.shape, *[1] * rest))
    assign(x, masked_fill(x, mask, value), "setitem")
    return True


def _is_number(value: Any) -> bool:
    """Whether there is one number, which any shape takes."""
    return type(value) is not Selected and not (isinstance(value, Tensor) and value._array.ndim)


def _fill_masked_part(x: Tensor, key: tuple, value: Any) -> bool:
    """``x[:, mask] = number`` or ``x[mask, 0] = y``, likewise."""
    part = masked_part(x, key)
    if part is None or (part[2] and not _is_number(value)):
        return False
    view, mask, dim = part
    if dim:
        shape = view._array.shape[:dim] + mask._array.shape
        mask = expand(reshape(mask, (*[1] * dim, *mask._array.shape)), shape)
    return _fill_masked(view, mask, value)


def _set_view(x: Tensor, view: Tensor, value: Any) -> None:
    """Write a value without history into a view of ``x``."""
    array = view._array
    if not isinstance(value, Tensor):
        machine.launch(fill_kernel, array, _number_for(x, value))
    else:
        value = _fitting(value, view, array.shape)
        machine.launch(copy_kernel, array, value._array)
    x._bump_version()


def _fitting(value: Any, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``value`` in the dtype of ``x``, expanded to ``shape``, apart from the memory of ``x``."""
    if not isinstance(value, Tensor):
        return expand(scalar_tensor(value, x, "x[...] = value"), shape)
    if value._array is x._array or meets(x, value):
        value = contiguous_copy(value)  # reading what was just written would smear it
    value = cast(value, x._dtype)
    have = value._array.shape
    if have == shape:
        return value
    extra = len(have) - len(shape)
    if extra > 0 and have[:extra] == (1,) * extra:
        value = reshape(value, have[extra:])
    try:
        return expand(value, shape)
    except ShapeError:
        raise ShapeError(
            f"setitem: shape mismatch: value tensor of shape {list(have)} cannot be broadcast to "
            f"indexing result of shape {list(shape)}; each size must match or be 1."
        ) from None


def _set_groups(x: Tensor, view: Tensor, groups: list[Group], value: Any, recorded: bool) -> None:
    """Write at index tensors of a view of ``x``."""
    turned, index, dim, span = joined(view, groups)
    shape = turned._array.shape
    wanted = (*shape[:dim], *index._array.shape, *shape[dim + span :])
    value = _fitting(value, x, wanted)
    if recorded:
        out = put_slices(turned, value, index, dim, span, False, "index")
        if turned is not view:
            out = permute(out, *_inverse(view, groups))
        assign(view if view is not x else x, out, "setitem")
        return
    if turned._flat or (not machine.recording and _has_planes(turned, dim, span)):
        _write("index", kernels.put_at, turned, value, index, dim, span, True)
    else:
        fresh = contiguous_copy(turned)
        _write("index", kernels.put_at, fresh, value, index, dim, span, True)
        machine.launch(copy_kernel, turned._array, fresh._array)
    x._bump_version()


def _has_planes(x: Tensor, dim: int, span: int) -> bool:
    """Whether ``_write`` reaches the memory of ``x``: its strides are those of three dimensions."""
    array, shape = x._array, x._array.shape
    before, after = math.prod(shape[:dim]), math.prod(shape[dim + span :])
    planes = array.reshape(before, math.prod(shape[dim : dim + span]), after)
    return np.may_share_memory(planes, array)


def _inverse(view: Tensor, groups: list[Group]) -> list[int]:
    """The order of dimensions that undoes the turn of ``joined``."""
    dims = [d for g in groups for d in range(g.dim, g.dim + g.span)]
    order = dims + [d for d in range(view._array.ndim) if d not in dims]
    return [order.index(d) for d in range(len(order))]


@functools.partial(remembered, spread="indices")
def index_put(
    x: Tensor, indices: tuple[Tensor | None, ...], values: Any, accumulate: bool = False
) -> Tensor:
    """``x`` with ``values`` at ``indices``, as in brackets; accumulate: repeats add up."""
    key = tuple([ALL if k is None else _index(k) for k in indices])
    view, groups = parsed(x, key)
    if not groups:
        raise DimError("index_put: expects at least one index tensor.")
    turned, index, dim, span = joined(view, groups)
    shape = turned._array.shape
    wanted = (*shape[:dim], *index._array.shape, *shape[dim + span :])
    out = put_slices(turned, _fitting(values, x, wanted), index, dim, span, accumulate, "index_put")
    out = out if turned is view else permute(out, *_inverse(view, groups))
    # A mask without dims has added one.
    return out if out._array.ndim == x._array.ndim else reshape(out, x._array.shape)


def _index(k: Any) -> Any:
    """An index without dims as a list of it, which takes no dim away."""
    alone = isinstance(k, Tensor) and not k._array.ndim and k._dtype is not dtypes.bool_
    return reshape(k, (1,)) if alone else k


__all__ = ["index_put"]

METHODS: dict[str, Any] = {
    "__setitem__": setitem,
    "index_put": index_put,
}
INPLACE: dict[str, Any] = {"index_put_": index_put}
