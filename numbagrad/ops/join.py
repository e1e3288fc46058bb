"""Joining tensors and splitting them, each the other's gradient: ``cat``, ``stack``, ``split``."""

from __future__ import annotations

import builtins
import functools
import itertools
import math
import operator
from array import array as array_of
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import devices, dtypes
from ..errors import ShapeError
from ..kernels import machine
from ..kernels.cpu import join
from ..kernels.cuda.runtime.array import DeviceArray
from ..tape import grad_mode
from ..tensor import Tensor
from .argument_names import by_other_names, sizes_by_name
from .base import (
    Op,
    _remember_view,
    as_operand,
    copy_kernel,
    new_empty,
    normalize_dim,
    same_device,
)
from .elementwise import cast
from .part import narrow
from .remembered import remembered
from .view import reshape, unsqueeze

_new = object.__new__

LARGE, SHORTEST, FEW = 1 << 15, 16, 4
"""Bytes of a result from which rows are written one after the other, whatever they come from, and
of the shortest such parts; so few contiguous ones are copied one by one, which is remembered."""
_ALL = builtins.slice(None)


COLUMNS = 4096
"""Elements of columns of single numbers from which a kernel of their own pays."""

# -- joining ---------------------------------------------------------------------------------------


def _side_by_side(out: Tensor, tensors: Sequence[Tensor], dim: int, sizes: Sequence[int]) -> None:
    """Write ``tensors``, of ``sizes`` along ``dim``, into ``out`` one after another."""
    array = out._array
    shape = array.shape
    rows = math.prod(shape[:dim]) if dim else 1
    width = math.prod(shape[dim + 1 :])
    flat = array.reshape(rows, shape[dim] * width)
    if type(array) is DeviceArray and not machine.is_recording():
        if all([x._flat for x in tensors]):
            _by_fours(flat, [x._array for x in tensors], [n * width for n in sizes])
            return
    elif (
        array.size >= COLUMNS
        and 1 < shape[dim] * width == len(tensors) <= 4
        and all([n == 1 for n in sizes])
        and not machine.is_recording()
        and all([x._flat for x in tensors])
    ):
        columns = [x._array.reshape(-1) for x in tensors]
        machine.launch(join.interleave, flat, *[*columns, *columns[:1] * 2][:4])
        return
    elif (
        array.nbytes >= LARGE
        and rows > 1
        and not machine.is_recording()
        and (len(tensors) > FEW or not all([x._flat for x in tensors]))
    ):
        table = _table_of([x._array for x in tensors], dim, sizes, width)
        if table is not None:
            machine.launch(join.place_rows, flat.view(np.uint8), table)
            return
    start = 0
    for x, n in zip(tensors, sizes, strict=True):
        source = x._array
        if not source.size:
            pass
        elif x._flat:
            v = n * width
            machine.launch(join.place, flat, source.reshape(rows, v), start * width)
        else:
            at = builtins.slice(start, start + n) if source.ndim == len(shape) else start
            machine.launch(copy_kernel, array[(*([_ALL] * dim), at, ...)], source)
        start += n


def _table_of(arrays: list, dim: int, sizes: Sequence[int], width: int) -> np.ndarray | None:
    """Of each array where its rows begin, the bytes from one to the next, and those of one."""
    parts: list[int] = []
    size = arrays[0].itemsize
    for array, n in zip(arrays, sizes, strict=True):
        rows = _rows_of(array.shape, array.strides, size, dim, n * width)
        if rows is None:
            return None
        parts += machine.address_of(array), *rows
    return np.frombuffer(array_of("q", parts), np.int64).reshape(-1, 3)


@functools.lru_cache(1024)
def _rows_of(
    shape: tuple, strides: tuple, size: int, dim: int, width: int
) -> tuple[int, int] | None:
    """The bytes from one row of an array to the next, and those of one: so many elements of ``dim``
    and those after it. None where they do not follow one another evenly, or are too short for it
    to pay."""
    if width * size < SHORTEST:
        return None
    step = size
    for d in range(len(shape) - 1, -1, -1):
        if d == dim - 1:
            step = strides[d]
        if shape[d] != 1 and strides[d] != step:
            return None
        step *= shape[d]
    return strides[dim - 1], width * size


def _by_fours(out: Any, arrays: Sequence[Any], widths: Sequence[int]) -> None:
    """Write contiguous arrays, of so many columns, into ``out``: a launch takes longer than such
    work."""
    rows = out.shape[0]
    parts = [a.reshape(rows, v) for a, v in zip(arrays, widths, strict=True)]
    none = out.element_view((rows, 0), (0, 1), 0)
    start = 0
    for k in range(0, len(parts), 4):
        some = parts[k : k + 4]
        machine.launch(join.place_four, out, *some, *[none] * (4 - len(some)), start)
        start += sum(widths[k : k + 4])


class Cat(Op, remembers=True):
    """Tensors one after another along a dimension."""

    @staticmethod
    def forward(ctx: Any, dim: int, shape: tuple, *tensors: Tensor) -> Tensor:
        first = tensors[0]
        out = new_empty(shape, first._dtype, first._device)
        ctx.dim = dim
        ctx.sizes = sizes = tuple([x._array.shape[dim] for x in tensors])
        _side_by_side(out, tensors, dim, sizes)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        grads = []
        start = 0
        for n, needed in zip(ctx.sizes, ctx.needs_input_grad[2:], strict=True):
            grads.append(narrow(g, ctx.dim, start, n) if needed else None)
            start += n
        return (None, None, *grads)


def _tensors_of(name: str, tensors: Any) -> Sequence[Tensor]:
    """The tensors that a joining op was given, in one dtype."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, (tuple, list)):
        raise TypeError(
            f"{name}(): argument 'tensors' must be tuple of Tensors, not {type(tensors).__name__}."
        )
    if not tensors:
        raise ShapeError(f"{name}: expected a non-empty list of Tensors.")
    first = as_operand(name, tensors[0])
    dtype = first._dtype
    mixed = False
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            as_operand(name, x, i)
        mixed = mixed or x._dtype is not dtype
    if machine.recording:  # else all are on the CPU
        same_device(name, tensors)
    if mixed:
        for x in tensors:
            dtype = dtypes.promote_types(dtype, x._dtype)
        return [cast(x, dtype) for x in tensors]
    return tensors


@functools.partial(remembered, spread="tensors")
def cat(tensors: Sequence[Tensor], dim: int = 0, **names: Any) -> Tensor:
    """``tensors`` joined along ``dim``; their other sizes are equal.

    dtype: the promoted one. A 1-d tensor without elements is skipped. Gradient: the parts of g.

    >>> cat([tensor([1, 2]), tensor([3])]).tolist()
    [1, 2, 3]
    """
    if names:
        return by_other_names(cat, names, tensors, dim)
    found = _tensors_of("cat", tensors)
    if (0,) in [x._array.shape for x in found]:
        found = [x for x in found if x._array.shape != (0,)] or found[:1]
    shape = found[0]._array.shape
    if not shape:
        raise ShapeError("cat: zero-dimensional tensor (at position 0) cannot be concatenated.")
    dim = normalize_dim("cat", dim, len(shape))
    total = 0
    before, after = shape[:dim], shape[dim + 1 :]
    for i, x in enumerate(found):
        other = x._array.shape
        if other != shape and (
            len(other) != len(shape) or other[:dim] != before or other[dim + 1 :] != after
        ):
            raise ShapeError(
                f"cat: Sizes of tensors must match except in dimension {dim}. Expected "
                f"{list(shape)} but got {list(other)} for tensor number {i} in the list."
            )
        total += other[dim]
    return Cat.apply(dim, (*shape[:dim], total, *shape[dim + 1 :]), *found)


class Stack(Op, remembers=True):
    """Tensors of one shape side by side in a new dimension."""

    @staticmethod
    def forward(ctx: Any, dim: int, *tensors: Tensor) -> Tensor:
        first = tensors[0]
        shape = first._array.shape
        out = new_empty((*shape[:dim], len(tensors), *shape[dim:]), first._dtype, first._device)
        _side_by_side(out, tensors, dim, [1] * len(tensors))
        ctx.dim = dim
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        return (None, *unbind(g, ctx.dim))


@functools.partial(remembered, spread="tensors")
def stack(tensors: Sequence[Tensor], dim: int = 0, **names: Any) -> Tensor:
    """``tensors`` of one shape joined along a new dimension ``dim``.

    >>> stack([tensor([1, 2]), tensor([3, 4])], dim=1).tolist()
    [[1, 3], [2, 4]]
    """
    if names:
        return by_other_names(stack, names, tensors, dim)
    found = _tensors_of("stack", tensors)
    shape = found[0]._array.shape
    for i, x in enumerate(found):
        if x._array.shape != shape:
            raise ShapeError(
                f"stack: stack expects each tensor to be equal size, but got {list(shape)} at "
                f"entry 0 and {list(x._array.shape)} at entry {i}."
            )
    return Stack.apply(normalize_dim("stack", dim, len(shape) + 1), *found)


def atleast_1d(*tensors: Any) -> Any:
    """Tensors with at least one dimension."""
    return _each("atleast_1d", tensors, _row)


def atleast_2d(*tensors: Any) -> Any:
    """Tensors with at least two dimensions, new ones in front."""
    return _each("atleast_2d", tensors, _plane)


def atleast_3d(*tensors: Any) -> Any:
    """Tensors with at least three dimensions."""
    return _each("atleast_3d", tensors, _solid)


def _row(x: Tensor) -> Tensor:
    return x if x._array.ndim else reshape(x, (1,))


def _plane(x: Tensor) -> Tensor:
    return x if x._array.ndim >= 2 else reshape(x, (1, x._array.size))


def _column(x: Tensor) -> Tensor:
    return x if x._array.ndim > 1 else reshape(x, (x._array.size, 1))


def _solid(x: Tensor) -> Tensor:
    if x._array.ndim < 2:
        return reshape(x, (1, x._array.size, 1))
    return unsqueeze(x, -1) if x._array.ndim == 2 else x


def _each(name: str, tensors: tuple, function: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return function(tensors[0])
    if len(tensors) == 1:
        tensors = tensors[0]
    return tuple([function(as_operand(name, x, i)) for i, x in enumerate(tensors)])


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 1, or 0 for tensors of one dimension."""
    found = _each("hstack", (tensors,), _row)
    return cat(found, 0 if found and found[0]._array.ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 0, vectors as rows."""
    return cat(_each("vstack", (tensors,), _plane), 0)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 2."""
    return cat(_each("dstack", (tensors,), _solid), 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 1, vectors as columns."""
    return cat(_each("column_stack", (tensors,), _column), 1)


# -- splitting -------------------------------------------------------------------------------------


class Several(Op, plain_notes=True):
    """Several views of one tensor that share a node, whose gradients are joined at once."""


class Split(Several):
    """Ranges of a dimension, one after another, all of it."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return cat(grads, ctx.how)


class Unbind(Several):
    """Each entry of a dimension."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return stack(grads, ctx.how)


def _views(op: type[Several], x: Tensor, keys: list, how: Any) -> tuple[Tensor, ...]:
    """Tensors on ``x[key]`` for each key, recorded as one ``op``."""
    array = x._array
    counter = x._version_counter()
    base = x if x._base is None else x._base
    edge = x._edge
    remember = base._edge is None or not base.is_leaf
    outputs = []
    for key in keys:
        out = _new(Tensor)
        out._array = part = array[key]
        out._dtype = x._dtype
        out._flat = part.flags.c_contiguous
        if x._device is not devices.cpu:
            out._device = x._device
        out._counter = counter
        out._base = base
        if remember:
            _remember_view(base, out)
        outputs.append(out)
    if edge is not None and grad_mode.enabled and outputs:
        node: Any = _new(op._node_type)
        node.how = how
        node._needs = (True,)
        node._attach(outputs, (edge,))
    return tuple(outputs)


def _ranges(x: Tensor, dim: int, stops: Sequence[int]) -> tuple[Tensor, ...]:
    """Views of the ranges of ``dim`` that end at ``stops``, the last at its size."""
    front = (_ALL,) * dim
    starts = [0, *stops[:-1]]
    keys = [(*front, builtins.slice(a, b)) for a, b in zip(starts, stops, strict=True)]
    return _views(Split, x, keys, dim)


@functools.lru_cache(maxsize=4096)
def _even(dim: int, n: int, size: int) -> list[Any]:
    """The keys of ranges of one size along ``dim``, which has ``n`` entries; the last may be
    shorter."""
    starts = range(0, n, size) if n else [0]
    return [(*([_ALL] * dim), builtins.slice(a, builtins.min(a + size, n))) for a in starts]


def _along(name: str, x: Tensor, dim: int) -> int:
    """``dim`` counted from the front, of a tensor that has dimensions."""
    dim = normalize_dim(name, dim, x._array.ndim)
    if not x._array.ndim:
        raise ShapeError(
            f"{name}: dimension specified as {dim} but tensor has no dimensions. Use "
            f"x.unsqueeze(0), or take x as it is."
        )
    return dim


def split(
    x: Tensor, split_size_or_sections: Any = None, dim: int = 0, **names: Any
) -> tuple[Tensor, ...]:
    """Views of ``x`` along ``dim``: of one size (the last may be smaller), or of given sizes.

    >>> [part.tolist() for part in split(tensor([1, 2, 3]), 2)]
    [[1, 2], [3]]
    """
    as_operand("split", x)
    sizes = split_size_or_sections
    if names:
        sizes = sizes_by_name("split", names, "split_size", () if sizes is None else (sizes,))[0]
    dim = _along("split", x, dim)
    n = x._array.shape[dim]
    if isinstance(sizes, int):
        if sizes < 0 or (sizes == 0 and n):
            raise ShapeError(f"split: expects split_size be non-negative (and not 0), got {sizes}.")
        return _views(Split, x, _even(dim, n, sizes), dim)
    if sizes is None:
        raise TypeError("split(): missing argument 'split_size_or_sections'. Give a size or sizes.")
    try:
        stops = list(itertools.accumulate([operator.index(s) for s in sizes]))
    except TypeError:
        raise TypeError(f"split: expected an int or a list of ints, got {sizes!r}.") from None
    if (stops[-1] if stops else 0) != n or any([s < 0 for s in sizes]):
        raise ShapeError(
            f"split: split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's "
            f"size at dimension {dim}), but got split_sizes={list(sizes)}."
        )
    return _ranges(x, dim, stops)


def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` views of equal size along ``dim``, the last perhaps smaller."""
    as_operand("chunk", x)
    if chunks <= 0:
        raise ShapeError(f"chunk: expects `chunks` to be greater than 0, got: {chunks}.")
    dim = _along("chunk", x, dim)
    n = x._array.shape[dim]
    if n == 0:
        return _ranges(x, dim, [0] * chunks)
    return split(x, -(-n // chunks), dim)


def tensor_split(x: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of nearly equal size, as many as asked, or cut at the given indices."""
    as_operand("tensor_split", x)
    at = indices_or_sections
    if isinstance(at, Tensor):
        at = at.tolist()
    dim = _along("tensor_split", x, dim)
    n = x._array.shape[dim]
    front = (_ALL,) * dim
    if isinstance(at, int):
        if at <= 0:
            raise ShapeError(f"tensor_split: number of sections must be larger than 0, got {at}.")
        small, large = divmod(n, at)
        sizes = [small + 1] * large + [small] * (at - large)
        return _ranges(x, dim, list(itertools.accumulate(sizes)))
    cuts = [0, *at, n]
    if all([0 <= a <= b for a, b in itertools.pairwise(cuts)]):
        return _ranges(x, dim, cuts[1:])
    ends = [(*front, builtins.slice(a, b)) for a, b in itertools.pairwise([0, *at, None])]
    return tuple([x[key] for key in ends])


def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of all entries of dimension ``dim``, which disappears."""
    as_operand("unbind", x)
    dim = _along("unbind", x, dim)
    front = (_ALL,) * dim
    return _views(Unbind, x, [(*front, i, ...) for i in range(x._array.shape[dim])], dim)


concat = concatenate = cat
row_stack = vstack

_METHODS = "chunk split tensor_split unbind".split()
_FUNCTIONS = """
    atleast_1d atleast_2d atleast_3d cat column_stack concat concatenate dstack hstack row_stack
    stack vstack
""".split()
__all__ = [*_METHODS, *_FUNCTIONS]
METHODS: dict[str, Any] = {name: globals()[name] for name in _METHODS}
