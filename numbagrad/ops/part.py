"""Views of a part of a tensor: entries, ranges, diagonals, windows. Start at ``Part``."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Sequence
from typing import Any

from ..errors import DimError, GradError, ShapeError
from ..kernels import machine
from ..kernels.strides import is_dense, order_of
from ..tape import grad_mode
from ..tensor import Tensor, wrap
from .base import Op, as_operand, copy_kernel, full, new_empty, normalize_dim
from .elementwise import clone
from .operand import no_operand
from .remembered import remembered
from .view import View, reshape, seen

_ALL = builtins.slice(None)


class Part(View):
    """Basic indexing: ``how`` is the shape of the whole and the key of NumPy's brackets."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return Embed.apply(g, *ctx.how)

    @staticmethod
    def may_add(ctx: Any, whole: Tensor, g: Tensor) -> bool:
        """Whether ``add_into`` may be called."""
        return type(whole) is type(g) is Tensor and whole._array.shape == ctx.how[0]

    @staticmethod
    def add_into(ctx: Any, whole: Tensor, g: Tensor) -> None:
        """Add the gradient to that of all, in place."""
        array = whole._array[ctx.how[1]]
        part = wrap(array, whole._dtype)
        part._base, part._flat = whole, array.flags.c_contiguous
        part._add_in_place(g)


class Select(Part):
    """One entry of a dimension."""


class Slice(Part):
    """Every so many entries of a dimension, in a range."""


class Embed(Op, remembers=True):
    """Zeros of ``shape`` with ``x`` at ``key``: the way back from ``Part``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: tuple, key: Any) -> Tensor:
        ctx.how = (shape, key)
        out = full(shape, 0, x._dtype, x._device)
        machine.launch(copy_kernel, out._array[key], x._array)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return seen(Part, g, g._array[ctx.how[1]], ctx.how)


def select(x: Tensor, dim: int, index: int) -> Tensor:
    """Entry ``index`` of dimension ``dim``, which disappears; a view."""
    try:
        array = x._array
    except AttributeError:
        raise no_operand("select", x) from None
    shape = array.shape
    if not shape:
        raise DimError("select: select() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim("select", dim, len(shape))
    index = operator.index(index)
    if not -shape[dim] <= index < shape[dim]:
        raise DimError(
            f"select: index {index} is out of range for dimension {dim} with size {shape[dim]}."
        )
    key = (*([_ALL] * dim), index, ...)
    return seen(Select, x, array[key], (shape, key))


def narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """Entries ``start`` to ``start + length`` of dimension ``dim``; a view."""
    as_operand("narrow", x)
    array = x._array
    shape = array.shape
    if not shape:
        raise DimError("narrow: narrow() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim("narrow", dim, len(shape))
    n = shape[dim]
    start, length = operator.index(start), operator.index(length)
    if length < 0:
        raise ShapeError(f"narrow: length must be non-negative, got {length}.")
    if not -n <= start <= n:
        raise DimError(
            f"narrow: start out of range (expected to be in range of [{-n}, {n}], but got {start})."
        )
    if start < 0:
        start += n
    if start + length > n:
        raise ShapeError(
            f"narrow: start ({start}) + length ({length}) exceeds dimension size ({n})."
        )
    key = (*([_ALL] * dim), builtins.slice(start, start + length))
    return seen(Slice, x, array[key], (shape, key))


# -- diagonals and windows -------------------------------------------------------------------------


def _diagonal_view(array: Any, offset: int, dim1: int, dim2: int) -> Any:
    """The diagonals of the planes (dim1, dim2) of ``array``, as its last dimension."""
    n, m = array.shape[dim1], array.shape[dim2]
    length = max(min(n, m - offset) if offset >= 0 else min(n + offset, m), 0)
    step = array.itemsize
    strides = [s // step for s in array.strides]
    start = (offset * strides[dim2] if offset > 0 else -offset * strides[dim1]) if length else 0
    rest = [d for d in range(array.ndim) if d not in (dim1, dim2)]
    return machine.view(
        array,
        (*[array.shape[d] for d in rest], length),
        (*[strides[d] for d in rest], strides[dim1] + strides[dim2]),
        start,
    )


class Diagonal(View):
    """The diagonals of planes."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return DiagonalEmbed.apply(g, *ctx.how)


class DiagonalEmbed(Op, remembers=True):
    """Zeros of ``shape`` with ``x`` on the diagonals."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: tuple, offset: int, dim1: int, dim2: int) -> Tensor:
        ctx.how = (offset, dim1, dim2)
        out = full(shape, 0, x._dtype, x._device)
        machine.launch(copy_kernel, _diagonal_view(out._array, offset, dim1, dim2), x._array)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return diagonal(g, *ctx.how)


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonals of the planes of ``dim1`` and ``dim2``, as the last dimension; a view."""
    as_operand("diagonal", x)
    array = x._array
    dim1 = normalize_dim("diagonal", dim1, array.ndim)
    dim2 = normalize_dim("diagonal", dim2, array.ndim)
    if dim1 == dim2:
        raise ShapeError(f"diagonal: dimensions cannot be identical {dim1}, {dim2}.")
    found = _diagonal_view(array, offset, dim1, dim2)
    return seen(Diagonal, x, found, (array.shape, offset, dim1, dim2))


_diagonal = diagonal


@remembered
def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices that have the last dimension of ``x`` on a diagonal, and zeros."""
    old = x._array.shape
    rank = len(old) + 1
    dim1 = normalize_dim("diag_embed", dim1, rank)
    dim2 = normalize_dim("diag_embed", dim2, rank)
    if dim1 == dim2:
        raise ShapeError(f"diag_embed: dimensions cannot be identical {dim1}, {dim2}.")
    n = old[-1] + abs(offset)
    shape = list(old[:-1])
    for d in sorted((dim1, dim2)):
        shape.insert(d, n)
    return DiagonalEmbed.apply(x, tuple(shape), offset, dim1, dim2)


@remembered
def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """The matrix with the vector ``x`` on its diagonal, or the diagonal of the matrix ``x``."""
    rank = x._array.ndim
    if rank == 1:
        return diag_embed(x, diagonal)
    if rank == 2:
        return clone(_diagonal(x, diagonal))
    raise ShapeError(f"diag: expects a matrix or a vector, got {rank} dimensions.")


class Unfold(View):
    """Sliding windows of a dimension."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return Fold.apply(g, *ctx.how)


class Fold(Op, remembers=True):
    """Windows added up where they came from: the way back from ``Unfold``.

    The windows are added one offset at a time, so that each launch writes an element once.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, shape: tuple, dim: int, size: int, step: int) -> Tensor:
        from .formulas import Add

        ctx.how = (dim, size, step)
        out = full(shape, 0, x._dtype, x._device)
        count = x._array.shape[dim]
        for i in range(size):
            key = (*([_ALL] * dim), builtins.slice(i, i + step * (count - 1) + 1, step))
            part = out._array[key]
            machine.launch(Add.op.kernel, part, part, x._array[..., i])
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return unfold(g, *ctx.how)


def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of ``size`` entries of ``dimension``, ``step`` apart, as a new last dimension.

    A view. Gradient: the windows added up where they overlap.

    >>> unfold(tensor([1, 2, 3, 4]), 0, 2, 1).tolist()
    [[1, 2], [2, 3], [3, 4]]
    """
    array = x._array
    dim = normalize_dim("unfold", dimension, array.ndim)
    n = array.shape[dim] if array.ndim else 1
    if not 0 <= size <= n:
        raise ShapeError(
            f"unfold: maximum size for tensor at dimension {dim} is {n} but size is {size}."
        )
    if step <= 0:
        raise ShapeError(f"unfold: step is {step} but must be > 0.")
    if not array.ndim:
        return narrow(reshape(x, (1,)), 0, 0, size)
    strides = [s // array.itemsize for s in array.strides]
    shape = list(array.shape)
    shape[dim] = (n - size) // step + 1
    unit = strides[dim]
    strides[dim] = unit * step
    found = machine.view(array, (*shape, size), (*strides, unit), 0)
    return seen(Unfold, x, found, (array.shape, dim, size, step))


class AsStrided(View, plain_notes=False):
    """Any strides in the memory of ``x``."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        from .create import arange
        from .index import TakeGrad

        shape, size, stride, start = ctx.how
        order = arange(math.prod(shape), device=g._device)
        index = copy_of(machine.view(order._array, size, stride, start), order)
        flat = TakeGrad.apply(g, index, (order._array.size,), 0, 1, -1, "as_strided")
        return reshape(flat, shape)


def as_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """The memory of ``x`` with any shape, strides and offset, in elements; a view.

    storage_offset counts from the start of the memory; by default where ``x`` starts. Gradient:
    added up where elements meet; ``x`` must be without gaps and hold all elements that are shown.
    Raises ShapeError if the result would leave the memory.
    """
    size, stride = tuple(size), tuple(stride)
    if not x._flat and x._edge is not None and is_dense(x._array):
        order = order_of(x._array.shape, [x._array])
        x = x if order is None else x.permute(order)  # the same memory, row-major
    root = x if x._base is None else x._base
    first = x.storage_offset()
    start = first if storage_offset is None else storage_offset
    if storage_offset is not None and machine.is_recording():
        machine.recorder.current.counts_from_start("as_strided", root)
    if len(size) != len(stride):
        raise ShapeError("as_strided: mismatch in length of strides and shape.")
    last = start + sum([(n - 1) * s for n, s in zip(size, stride, strict=True)])
    limit = root._array.size
    if 0 not in size and (min(start, *stride, 0) < 0 or last >= limit):
        raise ShapeError(
            f"as_strided: sizes {list(size)}, strides {list(stride)} and offset {start} are out of "
            f"bounds for storage of {limit} elements."
        )
    inside = 0 in size or (x._flat and start >= first and last < first + x._array.size)
    if x._edge is not None and grad_mode.enabled and not inside:
        raise GradError(
            "as_strided: a gradient needs a contiguous x that holds all elements that are shown. "
            "Call it on the base, or on x.contiguous()."
        )
    how = (x._array.shape, size, stride, start - first)
    return seen(AsStrided, x, machine.view(root._array, size, stride, start), how)


def copy_of(array: Any, x: Tensor) -> Tensor:
    """A contiguous tensor with the elements of ``array``, a view in the memory of ``x``."""
    out = new_empty(array.shape, x._dtype, x._device)
    machine.launch(copy_kernel, out._array, array)
    return out


_PUBLIC = "as_strided diag diag_embed diagonal narrow select".split()
__all__ = [*_PUBLIC]

METHODS: dict[str, Any] = {"unfold": unfold} | {name: globals()[name] for name in _PUBLIC}
