"""Max pooling undone: the largest of each window goes back to its place, all else is 0."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..tensor import Tensor
from .axes import DTYPE_WORDS
from .base import as_operand, contiguous, full
from .conv import per_dimension
from .gather import Scatter
from .pool import Sizes, _input
from .remembered import remembered

__all__: list[str] = []  # in nn.functional alone


def _output_size(name: str, small: Sizes, moves: tuple[Sizes, ...], given: Any) -> Sizes:
    """``given`` if the pooling can have come from it, by default the smallest such size."""
    rank = len(small)
    usual = tuple(
        [
            (n - 1) * stride + span - 2 * padding
            for n, span, stride, padding in zip(small, *moves, strict=True)
        ]
    )
    if given is None:
        sizes = usual
    else:
        sizes = tuple(given)
        if len(sizes) not in (rank, rank + 2):
            raise ShapeError(
                f"{name}: output_size should be a sequence containing {rank} or {rank + 2} "
                f"elements, but it has a length of {len(sizes)}."
            )
        sizes = sizes[-rank:]
        for d, (size, middle, stride) in enumerate(zip(sizes, usual, moves[1], strict=True)):
            if not middle - stride < size < middle + stride:
                raise ShapeError(
                    f'{name}: invalid output_size "{sizes}" (dim {d} must be between '
                    f"{middle - stride} and {middle + stride})."
                )
    if min(sizes) < 0:
        raise ShapeError(
            f"{name}: output_size must contain non-negative spatial dimensions, but got "
            f"{list(sizes)}. Use a smaller padding."
        )
    return sizes


def _places(name: str, x: Tensor, indices: Any) -> Tensor:
    """``indices``, if there is one for each element of ``x``."""
    at = as_operand(name, indices, 1)
    if at._dtype is not dtypes.int64:
        word = DTYPE_WORDS.get(at._dtype.name, at._dtype.name)
        raise DTypeError(
            f"{name}: elements in indices should be type int64 but got: {word}. Convert with "
            f".long()."
        )
    if at._array.shape != x._array.shape:
        raise ShapeError(
            f"{name}: Expected shape of indices to be same as that of the input tensor "
            f"({list(x._array.shape)}) but got indices tensor with shape: {list(at._array.shape)}."
        )
    return contiguous(at.detach())


def _max_unpool(
    rank: int,
    input: Any,
    indices: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    output_size: Any,
) -> Tensor:
    name = f"max_unpool{rank}d"
    x = _input(name, rank, input)
    at = _places(name, x, indices)
    spans = per_dimension(name, "kernel_size", kernel_size, rank, 1, "non-positive")
    moved = spans if stride is None else stride
    strides = per_dimension(name, "stride", moved, rank, 1, "non-positive")
    paddings = per_dimension(name, "padding", padding, rank, 0, "negative")
    lead, small = x._array.shape[:-rank], x._array.shape[-rank:]
    sizes = _output_size(name, small, (spans, strides, paddings), output_size)
    flat, dim = (*lead, math.prod(small)), len(lead)
    zeros = full((*lead, math.prod(sizes)), 0, x._dtype, x._device)
    volumes = "x".join(map(str, sizes))
    refused = f"{name}: Found an invalid max index (output volumes are of size {volumes})"
    out = Scatter.apply(zeros, dim, at.reshape(flat), x.reshape(flat), False, refused)
    return out.reshape(*lead, *sizes)


@remembered
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Zeros, and each of ``input`` at its place along the last dimension; see ``max_unpool2d``.

    >>> max_unpool1d(tensor([[3.0, 2.0]]), tensor([[1, 2]]), 2).tolist()
    [[0.0, 3.0, 2.0, 0.0]]
    """
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


@remembered
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Zeros, and each of ``input`` at its place in the flattened plane: ``max_pool2d`` undone.

    input (n, c, h, w) or (c, h, w), floating; indices: int64, of that shape, what max_pool2d
    returned. kernel_size, stride, padding: what it was called with. output_size: two sizes, or a
    whole shape, of an input for which it gives so many windows; by default the smallest. Where
    indices repeat, the last element stands and only it gets a gradient.
    Raises IndexError for a place outside of the plane, ShapeError for sizes that do not fit.

    >>> max_unpool2d(tensor([[[5.0]]]), tensor([[[2]]]), 2).tolist()
    [[[0.0, 0.0], [5.0, 0.0]]]
    """
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


@remembered
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Zeros, and each of ``input`` at its place in the flattened volume; see ``max_unpool2d``.

    >>> max_unpool3d(tensor([[[[5.0]]]]), tensor([[[[3]]]]), (1, 2, 2)).tolist()
    [[[[0.0, 0.0], [0.0, 5.0]]]]
    """
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)
