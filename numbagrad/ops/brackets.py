"""``x[key]``: views for basic keys, copies for tensors and masks. Writing: ``bracket_writes.py``.

A key is read into two parts: what only needs a view (ints, slices, None, ``...``), and the index
tensors that are left for dimensions of that view. Start reading at ``getitem``.
"""

from __future__ import annotations

import builtins
import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import devices, dtypes
from ..errors import DimError
from ..kernels import machine
from ..kernels.cpu import index as kernels
from ..tensor import Tensor, wrap
from .base import contiguous, full, new_empty
from .elementwise import cast
from .from_data import as_tensor
from .index import Take, launch_checked
from .masks import known_mask, positions, selected
from .part import Select, Slice
from .remembered import remembered
from .selected import Selected
from .transfer import transfer
from .transpose import permute
from .view import expand, seen
from .warned import warn_user

_BASIC = frozenset((int, builtins.slice, type(None), type(...)))
ALL = builtins.slice(None)
NUMBERS = frozenset((int, float, bool))


@dataclass(frozen=True, eq=False)
class Group:
    """An index tensor for dimensions ``dim`` to ``dim + span`` of a view, counted as one."""

    dim: int
    span: int
    index: Tensor


def getitem(x: Tensor, key: Any) -> Tensor:
    """``x[key]``: ints, slices, None, ``...``, integer tensors or lists, boolean masks.

    A view unless the key holds a tensor, list or mask. Gradient: zeros with g at the key, added
    where indices repeat. Raises IndexError if an index is out of range.

    >>> getitem(tensor([[1, 2], [3, 4]]), (slice(None), 1)).tolist()
    [2, 4]
    """
    kind = type(key)
    array = x._array
    try:
        if kind is int:
            return seen(Select, x, array[key, ...], (array.shape, (key, ...)))
        if kind is builtins.slice:
            if key.step is not None:
                key = _forward(key)
            return seen(Slice, x, array[key], (array.shape, key))
    except (IndexError, TypeError) as error:
        raise _explained(x, (key,), error) from None
    if kind is Tensor:
        if key._dtype is dtypes.bool_ and not machine.recording:
            return _looked_up(x, key)  # of which nothing can be remembered
        return _picked(x, key)
    if kind is tuple:
        basic = True
        for part in key:
            if type(part) is Tensor:
                return _picked(x, key)
            if type(part) in _SEQUENCES:
                return _picked(x, with_tensors(key))
            basic = basic and type(part) in _BASIC
        if basic:
            return _basic(x, key)
    if key is None or key is ...:
        return _basic(x, (key,))
    if kind in _SEQUENCES:
        found = with_tensors(key)
        if found is not key:
            return getitem(x, found)
    return _looked_up(x, key)


_SEQUENCES = (range, list)


def with_tensors(key: Any) -> Any:
    """A key with tensors for its lists and ranges, which is remembered; as it is in recordings."""
    kind = type(key)
    if machine.recording or not (kind is tuple or kind in _SEQUENCES):
        return key
    parts = parts_of(key)
    if parts is key and not any([type(k) in _SEQUENCES for k in key]):
        return key
    found = tuple([_part(k) if type(k) in _SEQUENCES else k for k in parts])
    return found[0] if parts[0] is key else found


def _looked_up(x: Tensor, key: Any) -> Tensor:
    """``x[key]`` for any key."""
    if machine.recording and machine.is_compiling():
        key = tuple(map(known_mask, key)) if type(key) is tuple else known_mask(key)
    kind, array = type(key), x._array
    if machine.is_recording() and machine.is_compiling() and (kind is tuple or kind is Selected):
        from .selected_places import at_places, taken  # which stand on what is written here

        if at_places(key):
            return taken(x, key)
    if kind is Tensor and array.ndim:
        if machine.recording:
            key = beside(x, key)
        if key._dtype is dtypes.int64 and key._array.ndim:
            return Take.apply(x, contiguous(key), 0, 1, True, -1, "index")
        if key._dtype is dtypes.bool_ and 0 < key._array.ndim <= array.ndim:
            check_mask(x, key, 0)
            if machine.recording and machine.unknown(key._array):
                return selected(x, key)
            return Take.apply(x, positions(key), 0, key._array.ndim, True, -1, "index")
    if kind is tuple and machine.is_recording():
        part = masked_part(x, key)
        if part is not None and not part[2]:
            return selected(*part[:2])
    if kind is tuple and _all_places(key, array.ndim):
        view, groups = x, [Group(d, 1, k) for d, k in enumerate(key)]
    else:
        view, groups = parsed(x, parts_of(key))
    if not groups:
        return view
    view, index, dim, span = joined(view, groups)
    return Take.apply(view, index, dim, span, True, -1, "index")


_picked = remembered(_looked_up, spread="key")


def masked_part(x: Tensor, key: tuple) -> tuple[Tensor, Tensor, int] | None:
    """The view of ``x`` that a key makes with ``:`` for its mask, the mask, and the dimension of
    the view that it stands at; None unless it is one that holds nobody knows where."""
    masks = [i for i, k in enumerate(key) if isinstance(k, Tensor) and k._dtype is dtypes.bool_]
    if len(masks) != 1 or sum([type(k) in _BASIC for k in key]) != len(key) - 1:
        return None
    at = masks[0]
    mask, before, after = key[at], key[:at], key[at + 1 :]
    if not mask._array.ndim or not machine.unknown(mask._array):
        return None
    view = _basic(x, (*before, *[ALL] * mask._array.ndim, *after))
    dim = sum([type(k) is not int for k in before])
    if ... in before:
        dim = view._array.ndim - mask._array.ndim - sum([type(k) is not int for k in after])
    check_mask(view, mask, dim)
    return view, beside(x, mask), dim


def _all_places(key: tuple, rank: int) -> bool:
    """Whether a key is tensors of int64 side by side alone, as in ``q[rows, actions]``."""
    return (
        0 < len(key) <= rank
        and all([type(k) is Tensor and k._dtype is dtypes.int64 and k._flat for k in key])
        and all([k._array.ndim for k in key])
        and not machine.recording
    )


def beside(x: Tensor, k: Any) -> Any:
    """A part of a key on the device of ``x``: an index of the CPU is copied, as in PyTorch."""
    if not isinstance(k, Tensor) or k._device is x._device:
        return k
    if k._device is not devices.cpu:
        raise devices.mixed("index", x._device, k._device)
    return transfer(k, x._device)


def _forward(part: builtins.slice) -> builtins.slice:
    """``part`` if its step is positive; an error otherwise."""
    if part.step is not None and operator.index(part.step) <= 0:
        raise ValueError(
            f"index: slice step must be positive, got {part.step}. Use ng.flip for the reverse."
        )
    return part


def _explained(x: Tensor, key: tuple, error: Exception) -> Exception:
    """PyTorch's words for what NumPy says about a basic key."""
    shape = x._array.shape
    if isinstance(error, TypeError):
        return TypeError(f"index: slice indices must be integers or None, got {key}.")
    used = sum([k is not None and k is not ... for k in key])
    if not shape:
        return DimError(
            "index: invalid index of a 0-dim tensor. Use tensor.item() to convert it to a number."
        )
    if used > len(shape):
        return DimError(f"index: too many indices for tensor of dimension {len(shape)}.")
    dim = 0
    for position, k in enumerate(key):
        if k is None:
            continue
        if k is ...:
            rest = sum([later is not None for later in key[position + 1 :]])
            dim = len(shape) - rest
            continue
        if isinstance(k, int) and not -shape[dim] <= k < shape[dim]:
            return DimError(
                f"index: index {k} is out of bounds for dimension {dim} with size {shape[dim]}."
            )
        dim += 1
    return DimError(f"index: {error}.")


# -- reading a key ---------------------------------------------------------------------------------


_PARTS = (builtins.slice, type(None), type(...))


def parts_of(key: Any) -> tuple:
    """What stands between the brackets, one by one. A short list with a slice, None, ``...``, a
    tensor or a sequence in it is taken for a tuple, as in PyTorch."""
    if type(key) is list and len(key) < _SHORT:
        if any([k is None or k is ... or isinstance(k, _FOR_DIMENSIONS) for k in key]):
            return tuple(key)
    return key if type(key) is tuple else (key,)


_SHORT = 32
_FOR_DIMENSIONS = (builtins.slice, list, tuple, range, Tensor, np.ndarray)


def parsed(x: Tensor, key: tuple) -> tuple[Tensor, list[Group]]:
    """The view that the basic parts of ``key`` make, and the groups left for its dimensions."""
    if all([type(k) in _BASIC for k in key]):
        return _basic(x, key), []
    parts = [_part(k) for k in key]
    if machine.recording:
        parts = [beside(x, k) for k in parts]
    used = sum([_uses(k) for k in parts])
    rank = x._array.ndim
    if used > rank:
        raise DimError(f"index: too many indices for tensor of dimension {rank}.")
    if sum([k is ... for k in parts]) > 1:
        raise DimError("index: an index can only have a single ellipsis ('...').")
    if x._flat:
        parts = [_beside_places(parts, i, x) for i in range(len(parts))]
    basic: list[Any] = []  # the key of the view
    pending: list[tuple[int, Any]] = []  # dimension of the view, index or mask
    old = new = 0  # dimensions of x read and of the view made so far
    for k in parts:
        if k is None:
            basic.append(None)
            new += 1
        elif k is ...:
            skipped = rank - used
            basic += [ALL] * skipped
            old, new = old + skipped, new + skipped
        elif isinstance(k, bool):
            basic.append(None)
            index = full((int(k),), 0, dtypes.int64, x._device)
            pending.append((new, Group(new, 1, index)))
            new += 1
        elif isinstance(k, Tensor):
            span = 1
            if k._dtype is dtypes.bool_:
                check_mask(x, k, old)
                span = k._array.ndim
                k = positions(k)
            pending.append((new, Group(new, span, k)))
            basic += [ALL] * span
            old, new = old + span, new + span
        else:
            basic.append(k)
            old += 1
            new += 0 if isinstance(k, int) else 1
    view = x if all([k is ALL for k in basic]) else _basic(x, tuple(basic))
    return view, [group for _, group in pending]


def _beside_places(parts: list[Any], i: int, x: Tensor) -> Any:
    """Part ``i`` of a key; an int next to an index tensor as one too, which gives the same: a view
    of one column would be copied to be read or written at some places."""
    k = parts[i]
    if type(k) is int:
        for near in (*parts[max(i - 1, 0) : i], *parts[i + 1 : i + 2]):
            if type(near) is Tensor and near._dtype is dtypes.int64 and near._array.ndim:
                return full((), k, dtypes.int64, x._device)
    return k


def _part(k: Any) -> Any:
    """One entry of a key as an int, slice, None, ``...``, bool or index tensor."""
    if type(k) in _BASIC or isinstance(k, bool):
        return k
    if isinstance(k, np.bool_):
        return bool(k)
    if isinstance(k, np.integer):
        return int(k)
    if not isinstance(k, Tensor):
        if not isinstance(k, (list, tuple, range, np.ndarray)):
            if hasattr(k, "__index__"):
                return operator.index(k)
            raise DimError(
                f"index: indices must be ints, slices, None, ..., tensors or lists, got "
                f"{type(k).__name__}."
            )
        if not isinstance(k, np.ndarray) and len(k) == 0:
            return wrap(np.empty(0, np.int64), dtypes.int64)
        if type(k) is range and not machine.recording:
            return wrap(np.arange(k.start, k.stop, k.step), dtypes.int64)
        k = as_tensor(list(k) if isinstance(k, range) else k, device=devices.cpu)
    if k._dtype is dtypes.uint8:
        warn_user("index: indexing with uint8 is read as a mask and deprecated; use ng.bool.")
        k = cast(k, dtypes.bool_)
    if k._dtype.is_floating_point:
        raise DimError(
            f"index: tensors used as indices must be long, int, byte or bool tensors, got "
            f"{k._dtype}. Convert with .long()."
        )
    if not k._array.ndim and not machine.recording:
        return k.item()
    if k._dtype is dtypes.bool_:
        return k.detach()
    return contiguous(cast(k.detach(), dtypes.int64))


def _uses(k: Any) -> int:
    """How many dimensions of x an entry of a key reads."""
    if k is None or k is ... or isinstance(k, bool):
        return 0
    if isinstance(k, Tensor) and k._dtype is dtypes.bool_:
        return k._array.ndim
    return 1


def check_mask(x: Tensor, mask: Tensor, dim: int) -> None:
    shape = x._array.shape
    for i, n in enumerate(mask._array.shape):
        if n != shape[dim + i]:
            raise DimError(
                f"index: The shape of the mask {list(mask._array.shape)} at index {i} does not "
                f"match the shape of the indexed tensor {list(shape)} at index {dim + i}."
            )


def _basic(x: Tensor, key: tuple) -> Tensor:
    for k in key:
        if type(k) is builtins.slice and k.step is not None:
            _forward(k)
    if ... not in key:
        key = (*key, ...)
    array = x._array
    try:
        return seen(Slice, x, array[key], (array.shape, key))
    except (IndexError, TypeError) as error:
        raise _explained(x, key[:-1] if key[-1] is ... else key, error) from None


def joined(view: Tensor, groups: list[Group]) -> tuple[Tensor, Tensor, int, int]:
    """One index for all groups, the dimensions it counts as one, and the view turned to suit.

    Groups that are apart go to the front, and so does the result's shape of the index.
    """
    if len(groups) == 1:
        (group,) = groups
        return view, group.index, group.dim, group.span
    shapes = [g.index._array.shape for g in groups]
    shape = shapes[0]
    try:
        if shapes.count(shape) != len(shapes):
            shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise DimError(
            f"index: shape mismatch: indexing tensors could not be broadcast together with shapes "
            f"{', '.join(str(list(s)) for s in shapes)}."
        ) from None
    dims = [d for g in groups for d in range(g.dim, g.dim + g.span)]
    start = dims[0]
    if dims != list(range(start, start + len(dims))):
        rest = [d for d in range(view._array.ndim) if d not in dims]
        sizes = view._array.shape
        view = permute(view, *dims, *rest)
        start = 0
    else:
        sizes = view._array.shape
    found = new_empty(shape, dtypes.int64, groups[0].index._device)
    out = found._array.reshape(-1)
    for number, group in enumerate(groups):
        index = group.index
        if index._array.shape != shape:
            index = contiguous(expand(index, shape))
        size = math.prod(sizes[group.dim : group.dim + group.span])
        flat = index._array.reshape(-1)
        where = (flat, group.dim, size)
        launch_checked("index", kernels.combine, out, flat, size, number == 0, where=where)
    return view, found, start, len(dims)


__all__: list[str] = []

METHODS: dict[str, Any] = {"__getitem__": getitem}
