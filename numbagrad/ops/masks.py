"""Elements where a mask holds, and their positions. Start reading at ``nonzero``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import index as kernels
from ..kernels.cuda.runtime.array import DeviceArray
from ..tensor import Tensor, wrap
from .base import SHORT, Op, as_operand, broadcast_shape, contiguous, full, new_empty
from .elementwise import contiguous_copy, masked_fill, where
from .gather import scatter_add
from .index import Take
from .part import narrow
from .remembered import remembered
from .scan import cumsum
from .view import expand, reshape


def known_mask(key: Any) -> Any:
    """A mask with its elements, where a recording knows them; else ``key`` itself."""
    if type(key) is not Tensor or key._dtype is not dtypes.bool_ or not key._array.ndim:
        return key
    elements = machine.settled(key._array)
    return key if elements is None else wrap(elements, dtypes.bool_)


def positions(mask: Tensor) -> Tensor:
    """int64 positions, in row-major order, of the entries that are not 0."""
    host = type(mask._array) is not DeviceArray
    if host and machine.deciding("x[mask] and nonzero", mask._array):  # their number is a shape
        return wrap(np.flatnonzero(mask._array), dtypes.int64)
    if not machine.recording and mask._dtype is dtypes.bool_ and mask._array.size < SHORT:
        # One call counts and writes: 0.4 us, where two launches take 2.
        return wrap(mask._array.reshape(-1).nonzero()[0], dtypes.int64)
    flat = contiguous(mask)._array.reshape(-1)
    count = new_empty((1,), dtypes.int64, mask._device)
    machine.launch(kernels.count_nonzero, count._array, flat)
    out = new_empty((int(count.item()),), dtypes.int64, mask._device)
    if out._array.size:
        machine.launch(kernels.nonzero, out._array, flat)
    return out


def selected(x: Tensor, mask: Tensor) -> Tensor:
    """``x[mask]`` in a recording, where nobody knows how many rows that are."""
    from .selected_methods import pick  # which stands on what is written here

    return pick(x, mask)


def nonzero(x: Tensor, *, as_tuple: bool = False) -> Any:
    """(n, x.dim()) int64: the coordinates of the entries that are not 0, in order.

    as_tuple: one vector for each dimension, ready for brackets.

    >>> nonzero(tensor([0, 3, 4])).tolist()
    [[1], [2]]
    """
    as_operand("nonzero", x)
    if as_tuple and not x._array.ndim:
        x = reshape(x, (1,))
    x = known_mask(x) if machine.recording else x
    if machine.recording and x._array.ndim and machine.unknown(x._array):
        from .selected_places import places  # which stands on what is written here

        return places(x, as_tuple)
    flat = positions(x)
    shape = x._array.shape
    out = new_empty((flat._array.size, len(shape)), dtypes.int64, x._device)
    if out._array.size:
        sizes = machine.table(np.array(shape, np.int64), flat._array)
        machine.launch(kernels.unravel, out._array, flat._array, sizes)
    if as_tuple:
        return tuple([contiguous(narrow(out, 1, d, 1)).reshape(-1) for d in range(len(shape))])
    return out


def argwhere(x: Tensor) -> Tensor:
    """The coordinates of the entries that are not 0."""
    return nonzero(x)


def masked_select(x: Tensor, mask: Tensor) -> Tensor:
    """The elements of ``x`` where ``mask`` holds, in order, as a vector; they broadcast."""
    if as_operand("masked_select", mask, 1)._dtype is not dtypes.bool_:
        raise DTypeError(
            f"masked_select: expected BoolTensor for mask, got {mask._dtype}. Compare it, "
            f"mask != 0 say."
        )
    shape = broadcast_shape("masked_select", x._array.shape, mask._array.shape)
    mask = known_mask(mask) if machine.recording else mask
    if machine.recording and machine.unknown(mask._array):
        return selected(expand(x, shape), mask if mask.shape == shape else expand(mask, shape))
    flat = positions(expand(mask, shape))
    return Take.apply(expand(x, shape), flat, 0, len(shape), True, -1, "masked_select")


class MaskedScatter(Op, plain_notes=True):
    """A copy of ``x`` with the elements of ``source`` in turn where ``mask`` holds."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
        ctx.save(mask)
        ctx.shape = source._array.shape
        out = contiguous_copy(x)
        bad = machine.flag(out._array)
        machine.launch(
            kernels.masked_scatter,
            out._array.reshape(-1),
            bad,
            contiguous(mask)._array.reshape(-1),
            contiguous(source)._array.reshape(-1),
        )

        size = source._array.size

        def fail(ones: int) -> None:
            raise ShapeError(
                f"masked_scatter: Number of elements of source ({size}) < number of "
                f"ones in mask ({ones})."
            )

        machine.check(bad, fail)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        (mask,) = ctx.saved_tensors
        gx = masked_fill(g, mask, 0) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[2]:
            return (gx,)
        size = math.prod(ctx.shape)
        held = reshape(mask, (-1,))
        place = where(held, cumsum(held, 0) - 1, size)  # of what is not taken: one past the end
        beyond = full((size + 1,), 0, g._dtype, g._device)
        found = scatter_add(beyond, 0, place, reshape(g, (-1,)))
        return gx, None, reshape(narrow(found, 0, 0, size), ctx.shape)


@remembered
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """``x`` with the elements of ``source`` in turn where ``mask`` holds."""
    if as_operand("masked_scatter", mask, 1)._dtype is not dtypes.bool_:
        raise DTypeError(f"masked_scatter: only supports boolean masks, got {mask._dtype}.")
    shape = broadcast_shape("masked_scatter", x._array.shape, mask._array.shape)
    return MaskedScatter.apply(expand(x, shape), expand(mask, shape), source)


_PUBLIC = "argwhere masked_scatter masked_select nonzero".split()
__all__ = [*_PUBLIC]

METHODS: dict[str, Any] = {name: globals()[name] for name in _PUBLIC}
INPLACE: dict[str, Any] = {"masked_scatter_": masked_scatter}
