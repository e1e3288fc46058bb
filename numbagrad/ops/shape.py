"""Joining, splitting, repeating and turning: what moves elements but is more than one view."""

from __future__ import annotations

import builtins
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

from .. import devices, dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import join
from ..kernels.cpu.triangle import triangle
from ..tape import grad_mode
from ..tensor import Tensor
from .argument_names import by_other_names, sizes_by_name
from .base import (
    Op,
    _remember_view,
    as_operand,
    contiguous,
    copy_kernel,
    new_empty,
    normalize_dim,
    normalize_dims,
    same_device,
)
from .elementwise import cast
from .part import narrow
from .transpose import transpose
from .view import expand, reshape, sizes_of, unsqueeze

_new = object.__new__
_ALL = builtins.slice(None)


# -- joining ---------------------------------------------------------------------------------------


def _side_by_side(out: Tensor, tensors: Sequence[Tensor], dim: int, sizes: Sequence[int]) -> None:
    """Write ``tensors``, of ``sizes`` along ``dim``, into ``out`` one after another."""
    array = out._array
    shape = array.shape
    rows, width = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
    flat = array.reshape(rows, shape[dim] * width)
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


class Cat(Op):
    """Tensors one after another along a dimension."""

    @staticmethod
    def forward(ctx: Any, dim: int, shape: tuple, *tensors: Tensor) -> Tensor:
        first = tensors[0]
        out = new_empty(shape, first._dtype, first._device)
        ctx.dim = dim
        ctx.sizes = sizes = [x._array.shape[dim] for x in tensors]
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


def _tensors_of(name: str, tensors: Any) -> list[Tensor]:
    """The list of tensors that a joining op was given, in one dtype."""
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
    same_device(name, tensors)
    if mixed:
        for x in tensors:
            dtype = dtypes.promote_types(dtype, x._dtype)
        return [cast(x, dtype) for x in tensors]
    return list(tensors)


def cat(tensors: Sequence[Tensor], dim: int = 0, **names: Any) -> Tensor:
    """``tensors`` joined along ``dim``; their other sizes are equal.

    dtype: the promoted one. A 1-d tensor without elements is skipped. Gradient: the parts of g.

    >>> cat([tensor([1, 2]), tensor([3])]).tolist()
    [1, 2, 3]
    """
    if names:
        return by_other_names(cat, names, tensors, dim)
    found = _tensors_of("cat", tensors)
    if any([x._array.shape == (0,) for x in found]):
        found = [x for x in found if x._array.shape != (0,)] or found[:1]
    shape = found[0]._array.shape
    if not shape:
        raise ShapeError("cat: zero-dimensional tensor (at position 0) cannot be concatenated.")
    dim = normalize_dim("cat", dim, len(shape))
    total = 0
    before, after = shape[:dim], shape[dim + 1 :]
    for i, x in enumerate(found):
        other = x._array.shape
        if len(other) != len(shape) or other[:dim] != before or other[dim + 1 :] != after:
            raise ShapeError(
                f"cat: Sizes of tensors must match except in dimension {dim}. Expected "
                f"{list(shape)} but got {list(other)} for tensor number {i} in the list."
            )
        total += other[dim]
    return Cat.apply(dim, (*shape[:dim], total, *shape[dim + 1 :]), *found)


class Stack(Op):
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
    return _each(tensors, lambda x: x if x._array.ndim else reshape(x, (1,)))


def atleast_2d(*tensors: Any) -> Any:
    """Tensors with at least two dimensions, new ones in front."""
    return _each(tensors, lambda x: x if x._array.ndim >= 2 else reshape(x, (1, x._array.size)))


def atleast_3d(*tensors: Any) -> Any:
    """Tensors with at least three dimensions."""

    def widened(x: Tensor) -> Tensor:
        if x._array.ndim < 2:
            return reshape(x, (1, x._array.size, 1))
        return unsqueeze(x, -1) if x._array.ndim == 2 else x

    return _each(tensors, widened)


def _each(tensors: tuple, function: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return function(tensors[0])
    if len(tensors) == 1:
        tensors = tensors[0]
    return tuple([function(x) for x in tensors])


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 1, or 0 for tensors of one dimension."""
    found = atleast_1d(tuple(tensors))
    return cat(found, 0 if found and found[0]._array.ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 0, vectors as rows."""
    return cat(atleast_2d(tuple(tensors)), 0)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 2."""
    return cat(atleast_3d(tuple(tensors)), 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along dimension 1, vectors as columns."""
    return cat([x if x._array.ndim > 1 else reshape(x, (x._array.size, 1)) for x in tensors], 1)


# -- splitting -------------------------------------------------------------------------------------


class Several(Op):
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


def split(x: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of ``x`` along ``dim``: of one size (the last may be smaller), or of given sizes.

    >>> [part.tolist() for part in split(tensor([1, 2, 3]), 2)]
    [[1, 2], [3]]
    """
    sizes = split_size_or_sections
    dim = normalize_dim("split", dim, x._array.ndim)
    n = x._array.shape[dim]
    if isinstance(sizes, int):
        if sizes < 0 or (sizes == 0 and n):
            raise ShapeError(f"split: expects split_size be non-negative (and not 0), got {sizes}.")
        stops = [*range(sizes, n, sizes), n] if n else [0]
        return _ranges(x, dim, stops)
    stops = list(itertools.accumulate([operator.index(s) for s in sizes]))
    if (stops[-1] if stops else 0) != n or any([s < 0 for s in sizes]):
        raise ShapeError(
            f"split: split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's "
            f"size at dimension {dim}), but got split_sizes={list(sizes)}."
        )
    return _ranges(x, dim, stops)


def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` views of equal size along ``dim``, the last perhaps smaller."""
    if chunks <= 0:
        raise ShapeError(f"chunk: expects `chunks` to be greater than 0, got: {chunks}.")
    dim = normalize_dim("chunk", dim, x._array.ndim)
    n = x._array.shape[dim]
    if n == 0:
        return _ranges(x, dim, [0] * chunks)
    return split(x, -(-n // chunks), dim)


def tensor_split(x: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of nearly equal size, as many as asked, or cut at the given indices."""
    at = indices_or_sections
    if isinstance(at, Tensor):
        at = at.tolist()
    dim = normalize_dim("tensor_split", dim, x._array.ndim)
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
    dim = normalize_dim("unbind", dim, x._array.ndim)
    if not x._array.ndim:
        raise ShapeError("unbind: dimension specified as 0 but tensor has no dimensions.")
    front = (_ALL,) * dim
    return _views(Unbind, x, [(*front, i, ...) for i in range(x._array.shape[dim])], dim)


# -- repeating -------------------------------------------------------------------------------------


def repeat(x: Tensor, *repeats: Any) -> Tensor:
    """``x`` copied ``repeats`` times along each dimension; new dimensions come in front.

    >>> repeat(tensor([1, 2]), 2, 2).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    times = sizes_of("repeat", repeats)
    shape = x._array.shape
    if len(times) < len(shape):
        raise ShapeError(
            f"repeat: Number of dimensions of repeat dims can not be smaller than number of "
            f"dimensions of tensor, got {list(times)} for {list(shape)}."
        )
    if any([n < 0 for n in times]):
        raise ShapeError(f"repeat: repeats must be non-negative, got {list(times)}.")
    shape = (1,) * (len(times) - len(shape)) + shape
    apart = [n for size in shape for n in (1, size)]
    filled = [n for pair in zip(times, shape, strict=True) for n in pair]
    joined = tuple([n * size for n, size in zip(times, shape, strict=True)])
    return reshape(expand(reshape(x, tuple(apart)), *filled).clone(), joined)


def tile(x: Tensor, *dims: Any) -> Tensor:
    """``repeat`` that fills missing dims with 1."""
    times = sizes_of("tile", dims)
    return repeat(x, (1,) * (x._array.ndim - len(times)) + times)


def repeat_interleave(x: Tensor, repeats: Any, dim: int | None = None, **_: Any) -> Tensor:
    """Each entry of ``dim`` (of all elements, for None) repeated, one after another.

    repeats: a number, or an integer tensor with one for each entry.

    >>> repeat_interleave(tensor([1, 2]), 2).tolist()
    [1, 1, 2, 2]
    """
    if dim is None:
        x, dim = reshape(x, (x._array.size,)), 0
    dim = normalize_dim("repeat_interleave", dim, x._array.ndim)
    shape = x._array.shape
    if isinstance(repeats, Tensor):
        if repeats._array.size != 1:
            return _repeat_counts(x, repeats, dim)
        repeats = repeats.item()
    if repeats < 0:
        raise ShapeError(f"repeat_interleave: repeats must be non-negative, got {repeats}.")
    wide = (*shape[: dim + 1], repeats, *shape[dim + 1 :])
    joined = (*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :])
    return reshape(expand(unsqueeze(x, dim + 1), wide), joined)


def _repeat_counts(x: Tensor, repeats: Tensor, dim: int) -> Tensor:
    same_device("repeat_interleave", (x, repeats))
    counts = repeats.tolist()
    if repeats._array.shape != (x._array.shape[dim],) or min(counts, default=0) < 0:
        raise ShapeError(
            f"repeat_interleave: repeats must have the same size as input along dim "
            f"({x._array.shape[dim]}) and no negative entry, got {list(repeats.shape)}."
        )
    if not sum(counts):
        return narrow(x, dim, 0, 0)
    entries = unbind(x, dim)
    return stack([e for e, n in zip(entries, counts, strict=True) for _ in range(n)], dim)


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of a grid: each vector expanded over the dimensions of the others.

    indexing: "ij" for rows first, "xy" for the first two exchanged.
    """
    if len(tensors) == 1 and not isinstance(tensors[0], Tensor):
        tensors = tuple(tensors[0])
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: indexing must be 'ij' or 'xy', got {indexing!r}.")
    if tensors:
        same_device("meshgrid", tensors)
    shape = tuple([x._array.size for x in tensors])
    grids = []
    for i, x in enumerate(tensors):
        alone = (1,) * i + (shape[i],) + (1,) * (len(shape) - i - 1)
        grids.append(expand(reshape(x, alone), shape))
    if indexing == "xy" and len(grids) > 1:
        return tuple([transpose(g, 0, 1) for g in grids])
    return tuple(grids)


# -- turning ---------------------------------------------------------------------------------------


class Flip(Op):
    """Dimensions in reverse order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dims: tuple[int, ...]) -> Tensor:
        ctx.dims = dims
        out = new_empty(x._array.shape, x._dtype, x._device)
        backwards = builtins.slice(None, None, -1)
        key = tuple([backwards if d in dims else _ALL for d in range(x._array.ndim)])
        machine.launch(copy_kernel, out._array, x._array[key])
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return Flip.apply(g, ctx.dims)


def flip(x: Tensor, *dims: Any, **names: Any) -> Tensor:
    """A copy of ``x`` with ``dims`` in reverse order."""
    if names:
        dims = sizes_by_name("flip", names, "dims", dims)
    return Flip.apply(x, normalize_dims("flip", sizes_of("flip", dims), x._array.ndim))


def fliplr(x: Tensor) -> Tensor:
    """Dimension 1 in reverse order."""
    if x._array.ndim < 2:
        raise ShapeError("fliplr: Input must be >= 2-d.")
    return flip(x, 1)


def flipud(x: Tensor) -> Tensor:
    """Dimension 0 in reverse order."""
    if x._array.ndim < 1:
        raise ShapeError("flipud: Input must be >= 1-d.")
    return flip(x, 0)


def rot90(x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """The plane ``dims`` turned by ``k`` right angles, from its first axis to its second."""
    if len(dims) != 2:
        raise ShapeError(f"rot90: expected total rotation dims == 2, but got dims = {len(dims)}.")
    a, b = [normalize_dim("rot90", d, x._array.ndim) for d in dims]
    if a == b:
        raise ShapeError(f"rot90: expected rotation dims to be different, got {tuple(dims)}.")
    k %= 4
    if k == 0:
        return x.clone()
    if k == 2:
        return flip(x, a, b)
    return transpose(flip(x, b), a, b).clone() if k == 1 else flip(transpose(x, a, b), b)


class Roll(Op):
    """One dimension shifted; what leaves at the end comes in at the start."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shift: int, dim: int) -> Tensor:
        ctx.shift, ctx.dim = shift, dim
        n = x._array.shape[dim]
        out = new_empty(x._array.shape, x._dtype, x._device)
        front = (_ALL,) * dim
        for at, start, stop in ((shift, 0, n - shift), (0, n - shift, n)):
            if stop > start:
                source = x._array[(*front, builtins.slice(start, stop))]
                target = out._array[(*front, builtins.slice(at, at + stop - start))]
                machine.launch(copy_kernel, target, source)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return roll(g, -ctx.shift, ctx.dim)


def roll(x: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements shifted along ``dims`` (of the flattened tensor, for None), around the end.

    >>> roll(tensor([1, 2, 3]), 1).tolist()
    [3, 1, 2]
    """
    shifts = sizes_of("roll", (shifts,))
    if dims is None:
        if len(shifts) != 1:
            raise ShapeError("roll: shifts and dimensions must align, got several shifts, no dim.")
        return reshape(roll(reshape(x, (x._array.size,)), shifts, 0), x._array.shape)
    dims = sizes_of("roll", (dims,))
    if len(dims) != len(shifts):
        raise ShapeError(
            f"roll: shifts and dimensions must align. shifts: {len(shifts)}, dims: {len(dims)}."
        )
    for shift, dim in zip(shifts, dims, strict=True):
        dim = normalize_dim("roll", dim, x._array.ndim)
        n = x._array.shape[dim] if x._array.ndim else 0
        x = Roll.apply(x, shift % n, dim) if n else x.clone()
    return x


class Triangle(Op):
    """One triangle of each matrix, zeros elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, diagonal: int, upper: bool) -> Tensor:
        ctx.diagonal, ctx.upper = diagonal, upper
        x = contiguous(x)
        shape = x._array.shape
        out = new_empty(shape, x._dtype, x._device)
        if x._array.size:
            flat = (-1, *shape[-2:])
            arrays = out._array.reshape(flat), x._array.reshape(flat)
            machine.launch(triangle, *arrays, diagonal, upper)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return Triangle.apply(g, ctx.diagonal, ctx.upper)


def _triangle(name: str, x: Tensor, diagonal: int, upper: bool) -> Tensor:
    if as_operand(name, x)._array.ndim < 2:
        raise ShapeError(
            f"{name}: input tensor must have at least 2 dimensions, got {x._array.ndim}."
        )
    try:
        diagonal = operator.index(diagonal)
    except TypeError:
        raise DTypeError(f"{name}: diagonal must be an int, got {diagonal!r}.") from None
    return Triangle.apply(x, diagonal, upper)


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangles of matrices, up to ``diagonal`` (0 the main one), zeros above."""
    return _triangle("tril", x, diagonal, False)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangles of matrices, from ``diagonal`` (0 the main one), zeros below."""
    return _triangle("triu", x, diagonal, True)


concat = concatenate = cat
row_stack = vstack

_METHODS = """
    chunk flip fliplr flipud repeat_interleave roll rot90 split tensor_split tile tril triu unbind
""".split()
_FUNCTIONS = """
    atleast_1d atleast_2d atleast_3d cat column_stack concat concatenate dstack hstack meshgrid
    row_stack stack vstack
""".split()
__all__ = [*_METHODS, *_FUNCTIONS]
METHODS: dict[str, Any] = {"repeat": repeat} | {name: globals()[name] for name in _METHODS}
INPLACE: dict[str, Any] = {"tril_": tril, "triu_": triu}
