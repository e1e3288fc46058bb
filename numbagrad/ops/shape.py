"""Repeating and turning: what moves elements but is more than one view."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu.triangle import triangle
from ..kernels.strides import order_of
from ..tensor import Tensor, wrap
from .argument_names import sizes_by_name
from .base import (
    Op,
    as_operand,
    contiguous,
    copy_kernel,
    new_empty,
    normalize_dim,
    normalize_dims,
    same_device,
    sum_to_shape,
)
from .create import arange
from .elementwise import clone, contiguous_copy
from .join import stack, unbind
from .part import narrow
from .remembered import remembered
from .scan import cumsum
from .search import searchsorted
from .transpose import transpose
from .view import expand, reshape, sizes_of, unsqueeze

_ALL = builtins.slice(None)


# -- repeating -------------------------------------------------------------------------------------


@remembered
def repeat(x: Tensor, *repeats: Any, **names: Any) -> Tensor:
    """``x`` copied ``repeats`` times along each dimension; new dimensions come in front.

    >>> repeat(tensor([1, 2]), 2, 2).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]
    """
    if names:
        repeats = sizes_by_name("repeat", names, "repeats", repeats)
    times = sizes_of("repeat", repeats)
    shape = x._array.shape
    if len(times) < len(shape):
        raise ShapeError(
            f"repeat: Number of dimensions of repeat dims can not be smaller than number of "
            f"dimensions of tensor, got {list(times)} for {list(shape)}."
        )
    if any([n < 0 for n in times]):
        raise ShapeError(f"repeat: repeats must be non-negative, got {list(times)}.")
    return Repeat.apply(x, times)


class Repeat(Op, remembers=True):
    """Elements side by side, as often along each dim as ``times`` says."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, times: tuple[int, ...]) -> Tensor:
        ctx.shape, ctx.times = x._array.shape, times
        apart, filled, joined = _repeated(x._array.shape, times)
        copies = contiguous_copy(expand(reshape(x, apart), *filled))
        return wrap(copies._array.reshape(joined), x._dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return _added(g, ctx.shape, ctx.times)


@remembered
def _added(g: Tensor, shape: tuple[int, ...], times: tuple[int, ...]) -> Tensor:
    """The gradient of ``Repeat``: the sum of those of all copies."""
    apart, filled, _ = _repeated(shape, times)
    return reshape(sum_to_shape(reshape(g, filled), apart), shape)


def _repeated(shape: tuple[int, ...], times: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Shapes: with a dim of 1 before each, with copies there, and of the result."""
    shape = (1,) * (len(times) - len(shape)) + shape
    apart = tuple([n for size in shape for n in (1, size)])
    filled = tuple([n for pair in zip(times, shape, strict=True) for n in pair])
    return apart, filled, tuple([n * size for n, size in zip(times, shape, strict=True)])


@remembered
def tile(x: Tensor, *dims: Any, **names: Any) -> Tensor:
    """``repeat`` that fills missing dims with 1."""
    if names:
        dims = sizes_by_name("tile", names, "dims", dims)
    times = sizes_of("tile", dims)
    return repeat(x, (1,) * (x._array.ndim - len(times)) + times)


@remembered
def repeat_interleave(
    x: Tensor, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each entry of ``dim`` (of all elements, for None) repeated, one after another.

    repeats: a number, or an integer tensor with one for each entry. None: x holds the repeats, of
    0, 1, 2 ... output_size: their sum, which a compiled function has to know if repeats are among
    its arguments.

    >>> repeat_interleave(tensor([1, 2]), 2).tolist()
    [1, 1, 2, 2]
    >>> repeat_interleave(tensor([0, 2, 1])).tolist()
    [1, 1, 2]
    """
    as_operand("repeat_interleave", x)
    if repeats is None:
        x, repeats = arange(x._array.size, dtype=x._dtype, device=x._device), x
    if dim is None:
        x, dim = reshape(x, (x._array.size,)), 0
    dim = normalize_dim("repeat_interleave", dim, x._array.ndim)
    shape = x._array.shape
    if isinstance(repeats, Tensor):
        if output_size is not None and machine.is_traced(repeats._array):
            ends = cumsum(expand(repeats, shape[dim]), 0)
            places = arange(output_size, device=x._device)
            return x.index_select(dim, searchsorted(ends, places, right=True))
        if repeats._array.size != 1:
            return _repeat_counts(x, repeats, dim, output_size)
        repeats = repeats.item()
    if repeats < 0:
        raise ShapeError(f"repeat_interleave: repeats must be non-negative, got {repeats}.")
    _check_repeated(output_size, shape[dim] * repeats)
    wide = (*shape[: dim + 1], repeats, *shape[dim + 1 :])
    joined = (*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :])
    return reshape(contiguous_copy(expand(unsqueeze(x, dim + 1), wide)), joined)


def _repeat_counts(x: Tensor, repeats: Tensor, dim: int, output_size: int | None) -> Tensor:
    same_device("repeat_interleave", (x, repeats))
    counts = repeats.tolist()
    if repeats._array.shape != (x._array.shape[dim],) or min(counts, default=0) < 0:
        raise ShapeError(
            f"repeat_interleave: repeats must have the same size as input along dim "
            f"({x._array.shape[dim]}) and no negative entry, got {list(repeats.shape)}."
        )
    _check_repeated(output_size, sum(counts))
    if not sum(counts):
        return clone(narrow(x, dim, 0, 0))
    if not machine.is_recording():
        places = np.repeat(np.arange(len(counts)), counts)
        return x.index_select(dim, wrap(places, dtypes.int64).to(x._device))
    entries = unbind(x, dim)
    return stack([e for e, n in zip(entries, counts, strict=True) for _ in range(n)], dim)


def _check_repeated(output_size: int | None, size: int) -> None:
    if output_size not in (None, size):
        raise ShapeError(
            f"repeat_interleave: Invalid output_size, expected {size}, which is what the repeats "
            f"sum up to, but got {output_size}."
        )


def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of a grid: each vector expanded over the dimensions of the others.

    indexing: "ij" for rows first, "xy" for the first two exchanged.
    """
    if len(tensors) == 1 and not isinstance(tensors[0], Tensor):
        tensors = tuple(tensors[0])
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: indexing must be 'ij' or 'xy', got {indexing!r}.")
    for position, x in enumerate(tensors):
        as_operand("meshgrid", x, position)
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


class Flip(Op, remembers=True):
    """Dimensions in reverse order."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dims: tuple[int, ...]) -> Tensor:
        ctx.dims = dims
        shape = x._array.shape
        order = None if x._flat else order_of(shape, [x._array])
        out = new_empty(shape, x._dtype, x._device, order)
        backwards = builtins.slice(None, None, -1)
        key = tuple([backwards if d in dims else _ALL for d in range(x._array.ndim)])
        machine.launch(copy_kernel, out._array, x._array[key])
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return Flip.apply(g, ctx.dims)


@remembered
def flip(x: Tensor, *dims: Any, **names: Any) -> Tensor:
    """A copy of ``x`` with ``dims`` in reverse order."""
    if names:
        dims = sizes_by_name("flip", names, "dims", dims)
    dims = normalize_dims("flip", sizes_of("flip", dims), x._array.ndim)
    return Flip.apply(x, dims) if x._array.ndim else clone(x)


@remembered
def fliplr(x: Tensor) -> Tensor:
    """Dimension 1 in reverse order."""
    if x._array.ndim < 2:
        raise ShapeError("fliplr: Input must be >= 2-d.")
    return flip(x, 1)


@remembered
def flipud(x: Tensor) -> Tensor:
    """Dimension 0 in reverse order."""
    if x._array.ndim < 1:
        raise ShapeError("flipud: Input must be >= 1-d.")
    return flip(x, 0)


@remembered
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
    return transpose(flip(x, b if k == 1 else a), a, b)


class Roll(Op, remembers=True):
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


@remembered
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


class Triangle(Op, remembers=True):
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


@remembered
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangles of matrices, up to ``diagonal`` (0 the main one), zeros above."""
    return _triangle("tril", x, diagonal, False)


@remembered
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangles of matrices, from ``diagonal`` (0 the main one), zeros below."""
    return _triangle("triu", x, diagonal, True)


_METHODS = "flip fliplr flipud repeat_interleave roll rot90 tile tril triu".split()
__all__ = [*_METHODS, "meshgrid"]
METHODS: dict[str, Any] = {"repeat": repeat} | {name: globals()[name] for name in _METHODS}
INPLACE: dict[str, Any] = {"tril_": tril, "triu_": triu}
