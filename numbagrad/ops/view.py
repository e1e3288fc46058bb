"""Views of all elements: the same memory in another shape, with the way the gradient goes back.

A view costs no copy, so its Python is short: ``seen`` makes the tensor and its node. Start there.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import devices, memory_formats
from ..dtypes import DType
from ..errors import ShapeError
from ..kernels import machine
from ..shaped import Size
from ..tape import grad_mode, next_sequence
from ..tensor import Tensor
from .argument_names import sizes_by_name
from .base import (
    Op,
    _remember_view,
    as_operand,
    broadcast_shape,
    normalize_dim,
    normalize_dims,
    sum_to_shape,
)
from .bits import viewed_as
from .elementwise import contiguous_copy
from .operand import no_operand

_new, ref, ndarray = object.__new__, weakref.ref, np.ndarray

SWEPT = 16
"""Views of one tensor from which on ``_remember_view`` looks for those that are gone."""


class View(Op, plain_notes=True):
    """A view of one tensor; ``ctx.how`` is what the way back needs to know."""


def seen(op: type[View], x: Tensor, array: Any, how: Any) -> Tensor:
    """A tensor on ``array``, which lies in the memory of ``x``, recorded as ``op``."""
    out = _new(Tensor)
    out._array = array
    out._dtype = x._dtype
    out._flat = array.flags.c_contiguous
    if x._device is not devices.cpu:
        out._device = x._device
    out._counter = x._counter or x._version_counter()
    base = x._base
    if base is None:
        base = x
    out._base = base
    edge = x._edge
    if edge is None or base._edge is None or not base.is_leaf:
        views = base._views
        if views is None or len(views) >= SWEPT:
            _remember_view(base, out)
        else:
            views.append(ref(out))
    if edge is not None and grad_mode.enabled:
        node: Any = _new(op._node_type)
        out._edge = node
        node._edges = (edge,)
        node._sequence = next_sequence()
        node.how = how
    return out


def sizes_of(name: str, shape: tuple) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence, as ints."""
    if len(shape) == 1 and not isinstance(shape[0], int):
        if isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
    for n in shape:
        if type(n) is not int:
            try:
                return tuple([operator.index(n) for n in shape])
            except TypeError:
                raise TypeError(
                    f"{name}: expected ints or one sequence of ints, got {shape}."
                ) from None
    return shape


# -- another shape for the same order of elements --------------------------------------------------


class Reshape(View):
    """The same elements in row-major order with another shape."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return reshape(g, ctx.how)


class ViewAs(Reshape):
    """``Reshape`` that never copies."""


class Unsqueeze(Reshape):
    """A new dimension of size 1."""


class Squeeze(Reshape):
    """Dimensions of size 1 taken away."""


def inferred(name: str, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """``shape`` with -1 replaced, checked against the number of elements."""
    known = 1
    unknown = -1
    for i, n in enumerate(shape):
        if n == -1:
            if unknown >= 0:
                raise ShapeError(
                    f"{name}: only one dimension can be inferred, got {list(shape)}. Give all "
                    f"sizes but one."
                )
            unknown = i
        elif n < 0:
            raise ShapeError(f"{name}: invalid shape dimension {n} in {list(shape)}.")
        else:
            known *= n
    if unknown >= 0 and known == 0 and size == 0:
        raise ShapeError(
            f"{name}: cannot reshape tensor of 0 elements into shape {list(shape)} because the "
            f"unspecified dimension size -1 can be any value and is ambiguous. Give all sizes."
        )
    if unknown >= 0 and known and size % known == 0:
        return (*shape[:unknown], size // known, *shape[unknown + 1 :])
    if unknown >= 0 or known != size:
        raise ShapeError(
            f"{name}: shape '{list(shape)}' is invalid for input of size {size}. The sizes must "
            f"multiply to {size}; -1 stands for the one that follows from the others."
        )
    return shape


def _strides_for(array: Any, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides, in elements, that show ``array`` with ``shape``; None where no view can."""
    step = array.itemsize
    old = [(n, s // step) for n, s in zip(array.shape, array.strides, strict=True) if n != 1] or [
        (1, 1)
    ]
    blocks = [list(old[0])]  # runs of dimensions that one stride walks: [elements, stride]
    for n, s in old[1:]:
        if blocks[-1][1] == n * s:
            blocks[-1] = [blocks[-1][0] * n, s]
        else:
            blocks.append([n, s])
    strides = []
    size, stride = blocks.pop()
    used = 1
    for n in reversed(shape):
        if used == size and n != 1 and blocks:
            size, stride = blocks.pop()
            used = 1
        strides.append(stride * used)
        used *= n
        if size % used:
            return None
    return tuple(reversed(strides))


def _same_memory(array: Any, shape: tuple[int, ...]) -> Any:
    """``array`` with ``shape`` as a view, or None."""
    if array.size == 0:
        return machine.view(array, shape, (1,) * len(shape), 0)
    strides = _strides_for(array, shape)
    return None if strides is None else machine.view(array, shape, strides, 0)


def reshape(x: Tensor, *shape: Any, **names: Any) -> Tensor:
    """``x`` with another shape of as many elements; a view if its layout allows, else a copy.

    One size may be -1 and follows from the others. Gradient: reshaped back.
    Raises ShapeError if the sizes do not multiply to the number of elements.

    >>> reshape(tensor([[1, 2], [3, 4]]), (4,)).tolist()
    [1, 2, 3, 4]
    """
    if names:
        shape = sizes_by_name("reshape", names, "shape", shape)
    if len(shape) == 1 and isinstance(shape[0], tuple):
        shape = shape[0]
    try:
        array = x._array
    except AttributeError:
        raise no_operand("reshape", x) from None
    if not x._flat:
        shape = inferred("reshape", sizes_of("reshape", shape), array.size)
        found = _same_memory(array, shape)
        if found is not None:
            return seen(Reshape, x, found, array.shape)
        x = contiguous_copy(x)
        array = x._array
    try:
        found = array.reshape(shape)
    except (ValueError, TypeError):
        shape = inferred("reshape", sizes_of("reshape", shape), array.size)
        found = array.reshape(shape)
    if found.shape != shape and -1 not in shape:  # NumPy takes any negative size for -1
        inferred("reshape", shape, array.size)
    return seen(Reshape, x, found, array.shape)


def view(x: Tensor, *shape: Any, **names: Any) -> Tensor:
    """``x`` with another shape on the same memory, never a copy; of a dtype, its bits seen so.

    Raises ShapeError if the strides of ``x`` do not allow it: use ``reshape``.

    >>> view(tensor([1, 2, 3, 4]), 2, -1).tolist()
    [[1, 2], [3, 4]]
    """
    if names:
        if [*names] == ["dtype"]:
            shape = (names["dtype"],)
        else:
            shape = sizes_by_name("view", names, "size", shape)
    if len(shape) == 1 and isinstance(shape[0], tuple):
        shape = shape[0]
    try:
        array = x._array
    except AttributeError:
        raise no_operand("view", x) from None
    if x._flat:
        try:
            found = array.reshape(shape)
        except (ValueError, TypeError):
            if isinstance(shape[0], DType):
                return viewed_as(x, *shape)
            shape = inferred("view", sizes_of("view", shape), array.size)
            found = array.reshape(shape)
        if found.shape != shape and -1 not in shape:  # as in ``reshape``
            inferred("view", shape, array.size)
        return seen(ViewAs, x, found, array.shape)
    if shape and isinstance(shape[0], DType):
        return viewed_as(x, *shape)
    shape = inferred("view", sizes_of("view", shape), array.size)
    found = _same_memory(array, shape)
    if found is None:
        raise ShapeError(
            f"view: view size is not compatible with input tensor's size and stride (at least one "
            f"dimension spans across two contiguous subspaces): {list(array.shape)} with strides "
            f"{list(x.stride())} as {list(shape)}. Use .reshape(...) instead."
        )
    return seen(ViewAs, x, found, array.shape)


def view_as(x: Tensor, other: Tensor) -> Tensor:
    """``x.view(other.shape)``."""
    return view(x, *other._array.shape)


def reshape_as(x: Tensor, other: Tensor) -> Tensor:
    """``x.reshape(other.shape)``."""
    return reshape(x, other._array.shape)


def ravel(x: Tensor) -> Tensor:
    """All elements in one dimension without gaps; a copy where there are some."""
    as_operand("ravel", x)
    return reshape(contiguous(x), (x._array.size,))


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions ``start_dim`` to ``end_dim`` joined into one."""
    try:
        old = x._array.shape
    except AttributeError:
        raise no_operand("flatten", x) from None
    shape = _joined(old, start_dim, end_dim)
    if shape is None:
        return x
    return seen(Reshape, x, x._array.reshape(shape), old) if x._flat else reshape(x, shape)


@functools.lru_cache(maxsize=1024, typed=True)
def _joined(old: tuple[int, ...], start_dim: int, end_dim: int) -> tuple[int, ...] | None:
    """The sizes of what is flattened; None where it stays as it is."""
    start = normalize_dim("flatten", start_dim, len(old))
    end = normalize_dim("flatten", end_dim, len(old))
    if start > end:
        raise ShapeError(
            f"flatten: start_dim cannot come after end_dim, got {start_dim} and {end_dim}."
        )
    if start == end and old:
        return None
    return *old[:start], math.prod(old[start : end + 1]), *old[end + 1 :]


def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Dimension ``dim`` split into ``sizes``, one of which may be -1."""
    as_operand("unflatten", x)
    old = x._array.shape
    dim = normalize_dim("unflatten", dim, len(old))
    sizes = inferred("unflatten", sizes_of("unflatten", (tuple(sizes),)), old[dim])
    return reshape(x, (*old[:dim], *sizes, *old[dim + 1 :]))


_ALL = builtins.slice(None)
_NEW_AT = [(*([_ALL] * dim), None) for dim in range(16)]


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """``x`` with a new dimension of size 1 at ``dim``."""
    try:
        array = x._array
    except AttributeError:
        raise no_operand("unsqueeze", x) from None
    rank = array.ndim
    if type(dim) is not int or not -rank <= dim < rank:
        dim = normalize_dim("unsqueeze", dim, rank + 1)
    elif dim < 0:
        dim += rank + 1
    return seen(Unsqueeze, x, array[_NEW_AT[dim]], array.shape)


def squeeze(x: Tensor, dim: Any = None) -> Tensor:
    """``x`` without its dimensions of size 1, or without ``dim`` where it has size 1."""
    try:
        array = x._array
    except AttributeError:
        raise no_operand("squeeze", x) from None
    shape = array.shape
    if dim is None:
        return seen(Squeeze, x, array.squeeze(), shape)
    if type(dim) is int and -len(shape) <= dim < len(shape):
        return seen(Squeeze, x, array.squeeze(dim) if shape[dim] == 1 else array[...], shape)
    dims = normalize_dims("squeeze", dim, len(shape))
    if not shape:
        return seen(Squeeze, x, array[...], shape)
    return seen(Squeeze, x, array.squeeze(tuple([d for d in dims if shape[d] == 1])), shape)


# -- broadcasting ----------------------------------------------------------------------------------


class Expand(View):
    """Dimensions of size 1 repeated without a copy."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return sum_to_shape(g, ctx.how)


def expand(x: Tensor, *shape: Any, **names: Any) -> Tensor:
    """``x`` with its dimensions of size 1 (and new ones in front) repeated; a view.

    -1 keeps a size. Gradient: summed over the repeated dimensions.

    >>> expand(tensor([[1], [2]]), 2, 3).tolist()
    [[1, 1, 1], [2, 2, 2]]
    """
    if names:
        shape = sizes_by_name("expand", names, "size", shape)
    if len(shape) == 1 and isinstance(shape[0], tuple):
        shape = shape[0]
    try:
        array = x._array
    except AttributeError:
        raise no_operand("expand", x) from None
    old = array.shape
    if x._flat and type(array) is ndarray:
        try:
            strides = _repeating(old, shape, x._dtype.itemsize)
            if strides is not None:
                return seen(Expand, x, ndarray(shape, array.dtype, array, 0, strides), old)
        except TypeError:  # no sizes, which ``sizes_of`` says, or a list of them
            pass
    shape = sizes_of("expand", shape)
    if old == shape:
        return seen(Expand, x, array[...], old)
    sizes, strides, some = _expanded(old, shape, array.strides)
    if some and x._flat and type(array) is ndarray:
        return seen(Expand, x, ndarray(sizes, array.dtype, array, 0, strides), old)
    step = array.itemsize
    return seen(Expand, x, machine.view(array, sizes, tuple([s // step for s in strides]), 0), old)


@functools.lru_cache(maxsize=4096)
def _expanded(
    old: tuple[int, ...], shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """The sizes and strides of a tensor of ``old`` sizes that is expanded to ``shape``, and whether
    it has elements."""
    extra = len(shape) - len(old)
    if extra < 0:
        raise ShapeError(
            f"expand: the number of sizes provided ({len(shape)}) must be greater or equal to the "
            f"number of dimensions in the tensor ({len(old)})."
        )
    sizes, steps = list(shape), [0] * extra + list(strides)
    for i, n in enumerate(old, extra):
        wanted = shape[i]
        if wanted == n or wanted == -1:
            sizes[i] = n
        elif n == 1 and wanted >= 0:
            steps[i] = 0
        else:
            raise ShapeError(
                f"expand: The expanded size of the tensor ({wanted}) must match the existing size "
                f"({n}) at non-singleton dimension {i}. Target sizes: {list(shape)}. Tensor sizes: "
                f"{list(old)}. Only dimensions of size 1 can be repeated."
            )
    if extra and min(sizes[:extra]) < 0:
        raise ShapeError(
            f"expand: The expanded size of the tensor (-1) isn't allowed in a leading, "
            f"non-existing dimension; got {list(shape)}."
        )
    return tuple(sizes), tuple(steps), 0 not in sizes


@functools.lru_cache(maxsize=4096)
def _repeating(
    old: tuple[int, ...], shape: tuple[int, ...], itemsize: int
) -> tuple[int, ...] | None:
    """The strides, in bytes, of a flat tensor of ``old`` sizes that is expanded to exactly
    ``shape``, which has elements; None where that is the long way's."""
    if old == shape or not all([type(n) is int and n > 0 for n in (*old, *shape)]):
        return None
    strides = [itemsize * math.prod(old[d + 1 :]) for d in range(len(old))]
    return _expanded(old, shape, tuple(strides))[1]


def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """``x.expand(other.shape)``."""
    return expand(x, other._array.shape)


def broadcast_to(x: Tensor, *size: Any, **names: Any) -> Tensor:
    """``x`` broadcast to ``size``, ints or one sequence of them; a view."""
    if names:
        size = sizes_by_name("broadcast_to", names, "size", size)
    return expand(x, *size)


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
    if len(tensors) == 1 and not isinstance(tensors[0], Tensor):
        tensors = tuple(tensors[0])
    for position, x in enumerate(tensors):
        as_operand("broadcast_tensors", x, position)
    shape = broadcast_shape("broadcast_tensors", *[x._array.shape for x in tensors])
    return tuple([expand(x, shape) for x in tensors])


def broadcast_shapes(*shapes: Sequence[int] | int) -> Size:
    """The shape that all ``shapes`` broadcast to; an int stands for a shape of one dimension."""
    sizes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    return Size(broadcast_shape("broadcast_shapes", *sizes))


def numel(x: Tensor) -> int:
    """The number of elements."""
    try:
        return x._array.size
    except AttributeError:
        raise no_operand("numel", x) from None


def contiguous(x: Tensor, memory_format: Any = None) -> Tensor:
    """``x`` itself if its elements lie in row-major order without gaps, else such a copy.

    memory_format: accepted, and changes nothing.
    """
    if memory_format is not None:
        memory_formats.check("contiguous", memory_format)
    return x if x._flat or x._array.flags.c_contiguous else contiguous_copy(x)


_PUBLIC = """
    broadcast_to flatten ravel reshape squeeze unflatten unsqueeze view_as
""".split()
__all__ = [
    "broadcast_shapes",
    "broadcast_tensors",
    "numel",
    *[name for name in _PUBLIC if name != "view_as"],
]

METHODS: dict[str, Any] = {name: globals()[name] for name in _PUBLIC}
METHODS |= {
    "contiguous": contiguous,
    "expand": expand,
    "expand_as": expand_as,
    "reshape_as": reshape_as,
    "view": view,
}

INPLACE_VIEWS: dict[str, Any] = {"squeeze_": squeeze, "unsqueeze_": unsqueeze}
