"""Pooling in one to three dimensions: the largest, or the mean, of each window.

A kernel is told the windows as a small table for each axis, so fixed and adaptive windows are one;
the latter are made in ``adaptive_pool.py``. Start reading at ``Windows`` and ``MaxPool``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import pool as kernels
from ..tensor import Tensor
from .autocasting import CPU, raised
from .axes import DTYPE_WORDS, Pick
from .base import Op, as_operand, contiguous, new_empty
from .conv import per_dimension
from .remembered import remembered

__all__: list[str] = []  # in nn.functional alone

Sizes = tuple[int, ...]


class Pooled(NamedTuple):
    """What max pooling returns with ``return_indices``."""

    values: Tensor
    indices: Tensor


LONGEST = 1 << 31
"""Elements from the first to the last of a window of max_pool: places within it are of 32 bits."""


@dataclass(frozen=True, eq=False)
class Windows:
    """The windows of all outputs. small, large: the sizes of space of output and input.

    tables: for each of three axes an array (o, 3) of starts, stops, and steps or divisors.
    """

    small: Sizes
    large: Sizes
    tables: tuple[Any, ...]

    def beside(self, x: Any) -> list[Any]:
        """The tables on the device of the array ``x``."""
        return [machine.table(table, x) for table in self.tables]

    def refuse_long(self) -> None:
        """Raise ShapeError if a window of the largest so is of ``LONGEST`` elements or more."""
        step, span = 1, 1
        for table, n in zip(self.tables[::-1], (*self.large[::-1], 1, 1), strict=False):
            span += int((table[:, 1] - table[:, 0] - 1).max()) * step
            step *= n
        if span >= LONGEST:
            raise ShapeError(
                f"max_pool: a window spans {span} elements of an input of {list(self.large)}, "
                f"{LONGEST - 1} at most are possible. Pool along one dimension after the other."
            )

    def cubic(self, x: Tensor, sizes: Sizes) -> Any:
        """The array of ``x``, whose last dims are ``sizes``, as (planes, d, h, w)."""
        array = contiguous(x)._array
        ones = (1,) * (3 - len(sizes))
        planes = math.prod(array.shape[: array.ndim - len(sizes)])
        return array.reshape((planes, *ones, *sizes))

    def shaped(self, x: Tensor, sizes: Sizes) -> Sizes:
        """The shape of ``x`` with other sizes of space."""
        return (*x._array.shape[: x._array.ndim - len(sizes)], *sizes)


class MaxPool(Op, remembers=True):
    """The largest of each window and its place in the plane."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, windows: Windows) -> tuple:
        small, large = windows.small, windows.large
        if math.prod(large) >= LONGEST:
            windows.refuse_long()
        shape = windows.shaped(x, small)
        out = new_empty(shape, x._dtype, x._device)
        at = new_empty(shape, dtypes.int64, x._device)
        machine.launch(
            kernels.max_pool,
            *(windows.cubic(out, small), windows.cubic(at, small), windows.cubic(x, large)),
            *windows.beside(out._array),
        )
        ctx.windows = windows
        ctx.save(at)
        return out, at

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Tensor:
        return MaxPoolGrad.apply(g, *ctx.saved_tensors, ctx.windows)


class MaxPoolGrad(Op, remembers=True):
    """Each number at the place of the largest of its window; Pick is its adjoint."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, at: Tensor, windows: Windows) -> Tensor:
        small, large = windows.small, windows.large
        ctx.size = math.prod(large)
        ctx.save(at)
        gx = new_empty(windows.shaped(g, large), g._dtype, g._device)
        machine.launch(
            kernels.max_pool_grad,
            *(windows.cubic(gx, large), windows.cubic(g, small), windows.cubic(at, small)),
            *windows.beside(gx._array),
        )
        return gx

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> Tensor:
        return Pick.apply(h, *ctx.saved_tensors, (h._array.size // ctx.size, ctx.size, 1))


class AvgPool(Op, remembers=True):
    """The mean of each window."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, windows: Windows) -> Tensor:
        ctx.windows = windows
        out = new_empty(windows.shaped(x, windows.small), x._dtype, x._device)
        arrays = windows.cubic(out, windows.small), windows.cubic(x, windows.large)
        machine.launch(kernels.avg_pool, *arrays, *windows.beside(out._array))
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return AvgPoolGrad.apply(g, ctx.windows)


class AvgPoolGrad(Op, remembers=True):
    """Each number shared by the elements of its window; AvgPool is its adjoint."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, windows: Windows) -> Tensor:
        ctx.windows = windows
        gx = new_empty(windows.shaped(g, windows.large), g._dtype, g._device)
        arrays = windows.cubic(gx, windows.large), windows.cubic(g, windows.small)
        machine.launch(kernels.avg_pool_grad, *arrays, *windows.beside(gx._array))
        return gx

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> Tensor:
        return AvgPool.apply(h, ctx.windows)


# -- windows ---------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _table(rows: tuple[tuple[int, int, int], ...]) -> np.ndarray:
    return np.array(rows, np.int64).reshape((-1, 3))


_ALONE = ((0, 1, 1),)
"""The windows of an axis of size 1 that is not there."""


def _windows(large: Sizes, axes: list[tuple]) -> Windows:
    tables = [_table(_ALONE)] * (3 - len(axes)) + [_table(rows) for rows in axes]
    return Windows(tuple([len(rows) for rows in axes]), large, tuple(tables))


def _count(size: int, span: int, stride: int, padding: int, ceil_mode: bool) -> int:
    """How many windows there are; with ceil_mode one more that starts inside, if it is cut off."""
    room = size + 2 * padding - span
    count = room // stride + 1
    if ceil_mode and room % stride and count * stride < size + padding:
        count += 1
    return count


@functools.lru_cache(maxsize=1024)
def _max_axis(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> tuple:
    span = dilation * (kernel - 1) + 1
    rows = []
    for i in range(_count(size, span, stride, padding, ceil_mode)):
        start = i * stride - padding
        stop = min(start + span, size)
        start += (max(0, -start) + dilation - 1) // dilation * dilation
        rows.append((start, stop, dilation))
    return tuple(rows)


@functools.lru_cache(maxsize=1024)
def _avg_axis(
    size: int, kernel: int, stride: int, padding: int, ceil_mode: bool, count_padding: bool
) -> tuple:
    rows = []
    for i in range(_count(size, kernel, stride, padding, ceil_mode)):
        start = i * stride - padding
        end = min(start + kernel, size + padding)
        first, stop = max(start, 0), min(end, size)
        rows.append((first, stop, end - start if count_padding else stop - first))
    return tuple(rows)


# -- what the arguments must be --------------------------------------------------------------------


def _input(name: str, rank: int, x: Any) -> Tensor:
    """``x``, if it is floating and has ``rank`` dims of space, not empty, and one or two before."""
    shape = as_operand(name, x)._array.shape
    if len(shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: Expected {rank + 1}D or {rank + 2}D (batch mode) tensor for input with "
            f"non-zero dimensions, but got: {list(shape)}."
        )
    if 0 in shape[-rank - 1 :]:
        raise ShapeError(
            f"{name}: Expected tensor with optional 0 dim batch size and other dimensions being "
            f"non-zero for input, but got: {list(shape)}."
        )
    if not x._dtype.is_floating_point:
        raise DTypeError(
            f"{name}: not implemented for '{DTYPE_WORDS[x._dtype.name]}', it needs a floating "
            f"dtype. Convert with .float()."
        )
    return x


def _moves(
    name: str, rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any = 1
) -> tuple[Sizes, Sizes, Sizes, Sizes]:
    """Sizes, strides (the sizes by default), paddings (at most half a window) and dilations."""
    sizes = per_dimension(name, "kernel_size", kernel_size, rank, 1, "non-positive")
    unset = stride is None or stride == () or stride == []
    strides = sizes if unset else per_dimension(name, "stride", stride, rank, 1, "non-positive")
    paddings = per_dimension(name, "padding", padding, rank, 0, "negative")
    dilations = per_dimension(name, "dilation", dilation, rank, 1, "non-positive")
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, sizes, strict=True)]
    if any([2 * p > s for p, s in zip(paddings, spans, strict=True)]):
        raise ShapeError(
            f"{name}: pad should be at most half of effective kernel size, but got "
            f"padding={list(paddings)} and kernel_size={list(sizes)}."
        )
    return sizes, strides, paddings, dilations


def _not_empty(name: str, shape: Sizes, axes: list[tuple]) -> None:
    if not all(axes):
        raise ShapeError(
            f"{name}: Given input size: {list(shape)}. Calculated output size: "
            f"{[len(rows) for rows in axes]}. Output size is too small; use a smaller window."
        )


def _not_in_padding(name: str, axes: list[tuple]) -> None:
    """A window without an element has no place that its gradient could go to."""
    for dim, rows in enumerate(axes, -len(axes)):
        for i, (start, stop, _) in enumerate(rows):
            if start >= stop:
                raise ShapeError(
                    f"{name}: window {i} along dim {dim} holds no element of the input, only "
                    f"padding. Use a smaller padding or dilation."
                )


def _max_pool(
    rank: int,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
    name: str = "",
) -> Any:
    name = name or f"max_pool{rank}d"
    x = _input(name, rank, input)
    moves = kernel_size, stride, padding, dilation
    windows = _planned(_max_windows, name, rank, x, moves, bool(ceil_mode))
    values, indices = MaxPool.apply(x, windows)
    return Pooled(values, indices) if return_indices else values


def _planned(plan: Any, name: str, rank: int, x: Tensor, moves: tuple, *modes: Any) -> Windows:
    """``plan`` of the shape of ``x`` and of sizes, which are found again if all are ints: 2.0 would
    be found where 2 is."""
    moves = tuple([tuple(m) if type(m) is list else m for m in moves])
    for move in moves:
        if type(move) is tuple and any([type(m) is not int for m in move]):
            return plan.__wrapped__(name, rank, x._array.shape, *moves, *modes)
    return plan(name, rank, x._array.shape, *moves, *modes)


@functools.lru_cache(maxsize=1024, typed=True)
def _max_windows(
    name: str,
    rank: int,
    shape: Sizes,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
) -> Windows:
    moves = _moves(name, rank, kernel_size, stride, padding, dilation)
    axes = [_max_axis(*each, ceil_mode) for each in zip(shape[-rank:], *moves, strict=True)]
    _not_empty(name, shape, axes)
    _not_in_padding(name, axes)
    return _windows(shape[-rank:], axes)


def _avg_pool(
    rank: int,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None = None,
    name: str = "",
) -> Tensor:
    name = name or f"avg_pool{rank}d"
    x = _input(name, rank, input)
    modes = bool(ceil_mode), bool(count_include_pad), divisor_override
    moves = kernel_size, stride, padding
    return AvgPool.apply(x, _planned(_avg_windows, name, rank, x, moves, *modes))


@functools.lru_cache(maxsize=1024, typed=True)
def _avg_windows(
    name: str,
    rank: int,
    shape: Sizes,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Windows:
    sizes, strides, paddings, _ = _moves(name, rank, kernel_size, stride, padding)
    large = shape[-rank:]
    modes = ceil_mode, count_include_pad
    axes = [_avg_axis(*e, *modes) for e in zip(large, sizes, strides, paddings, strict=True)]
    _not_empty(name, shape, axes)
    if divisor_override is not None:
        if divisor_override == 0:
            raise ShapeError(f"{name}: divisor must be not zero, got divisor_override=0.")
        numbers = [1] * (rank - 1) + [divisor_override]
        axes = [
            tuple([(a, b, number) for a, b, _ in rows])
            for rows, number in zip(axes, numbers, strict=True)
        ]
    return _windows(large, axes)


# -- functions -------------------------------------------------------------------------------------


@remembered
def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest of each window along the last dimension; see ``max_pool2d``.

    >>> max_pool1d(tensor([[1.0, 3.0, 2.0, 0.0]]), 2).tolist()
    [[3.0, 2.0]]
    """
    moves = kernel_size, stride, padding, dilation
    return _max_pool(1, input, *moves, ceil_mode, return_indices)


@remembered
def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest of each window of images (n, c, h, w) or (c, h, w), floating.

    kernel_size, stride (by default the kernel_size), padding (never the largest; at most half a
    window), dilation: ints or pairs. ceil_mode: also a last window that is cut off.
    return_indices: ``(values, indices)``, the places in the flattened plane. Gradient: to the
    element at the index, the first of equals.
    Raises ShapeError for sizes that do not fit, and for a window of nothing but padding, which
    PyTorch gives -inf and a place outside of the plane.

    >>> max_pool2d(tensor([[[1.0, 3.0], [2.0, 0.0]]]), 2, return_indices=True).indices.tolist()
    [[[1]]]
    """
    moves = kernel_size, stride, padding, dilation
    return _max_pool(2, input, *moves, ceil_mode, return_indices)


@remembered
def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest of each window of volumes; see ``max_pool2d``.

    >>> max_pool3d(ones(1, 2, 2, 2), 2).tolist()
    [[[[1.0]]]]
    """
    moves = kernel_size, stride, padding, dilation
    return _max_pool(3, input, *moves, ceil_mode, return_indices)


@remembered
def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window along the last dimension; see ``avg_pool2d``.

    >>> avg_pool1d(tensor([[1.0, 3.0, 2.0, 0.0]]), 2).tolist()
    [[2.0, 1.0]]
    """
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


@remembered
def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of images (n, c, h, w) or (c, h, w), floating.

    Windows as for ``max_pool2d``. count_include_pad: whether the zeros of the padding count;
    divisor_override: divide the sums by this instead.

    >>> avg_pool2d(tensor([[[1.0, 3.0], [2.0, 0.0]]]), 2).tolist()
    [[[1.5]]]
    """
    modes = ceil_mode, count_include_pad, divisor_override
    return _avg_pool(2, input, kernel_size, stride, padding, *modes)


@remembered
def avg_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of volumes; see ``avg_pool2d``.

    >>> avg_pool3d(ones(1, 2, 2, 2), 2).tolist()
    [[[[1.0]]]]
    """
    modes = ceil_mode, count_include_pad, divisor_override
    if machine.autocasting:
        (input,) = raised(input, on=CPU)
    return _avg_pool(3, input, kernel_size, stride, padding, *modes)
