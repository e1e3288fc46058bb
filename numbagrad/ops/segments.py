"""Sums, means and extremes of segments that lie one after another: ``segment_reduce``."""

from __future__ import annotations

import math
from typing import Any

from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .base import as_operand, full, normalize_dim, same_device
from .comparison import eq
from .create import arange
from .elementwise import where
from .index import index_add
from .part import narrow
from .remembered import remembered
from .scan import cumsum, diff
from .scatter_reduce import index_reduce
from .search import searchsorted
from .view import reshape

__all__ = ["segment_reduce"]

EMPTY = {"sum": 0.0, "mean": math.nan, "prod": 1.0, "max": -math.inf, "min": math.inf}
"""What a segment without elements is reduced to."""


@remembered
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """What segments of dimension ``axis``, one after another, are reduced to.

    data: floating, (..., n, ...) with n the size of axis. reduce: "sum", "mean", "prod", "max" or
    "min". lengths (..., k) int64: of each segment, with the dimensions of data before axis;
    together n. Or offsets (..., k + 1): where segments begin, from 0, and the end, n. The result is
    (..., k, ...). initial: what joins each segment, the sum of a mean too; a segment without
    elements is reduced to it, by default to 0, NaN, 1, -inf or inf. unsafe: accepted, and changes
    nothing: lengths are always checked. indices: not supported, nor by PyTorch. Gradient: to data;
    equal extremes share it. Raises ShapeError for lengths that are negative or do not add up to n.

    >>> x = tensor([1.0, 2.0, 3.0, 4.0])
    >>> segment_reduce(x, "sum", lengths=tensor([1, 3])).tolist()
    [1.0, 9.0]
    """
    name = "segment_reduce"
    if reduce not in EMPTY:
        raise ValueError(
            f"{name}: reduce argument must be either sum, prod, mean, max or min, got {reduce!r}."
        )
    axis = normalize_dim(name, axis, as_operand(name, data)._array.ndim)
    if not data._dtype.is_floating_point:
        raise DTypeError(f"{name}: not implemented for {data._dtype}. Convert with data.float().")
    lengths = _lengths(data, axis, lengths, indices, offsets)
    shape = data._array.shape
    lead, n, rest = shape[:axis], shape[axis], shape[axis + 1 :]
    outer, count = math.prod(lead), lengths._array.shape[-1]
    ends = cumsum(lengths, -1)
    _check(lengths, ends, n)
    rows, device = arange(outer, device=data._device).unsqueeze(-1), data._device
    ends = reshape(reshape(ends, (outer, count)) + rows * n, (outer * count,))
    which = searchsorted(ends, arange(outer * n, device=device), right=True)
    flat = reshape(data, (outer * n, *rest))
    begin = EMPTY[reduce] if initial is None else float(initial)
    total = full((outer * count, *rest), begin, data._dtype, device)
    if reduce in ("sum", "mean"):
        held = reshape(lengths, (outer * count, *[1] * len(rest)))
        if reduce == "mean":
            total = where(eq(held, 0), total, 0.0 if initial is None else begin)
        out = index_add(total, 0, which, flat)
        out = out if reduce == "sum" else out / held.clamp(min=1)
    else:
        kind = {"prod": "prod", "max": "amax", "min": "amin"}[reduce]
        out = index_reduce(total, 0, which, flat, kind)
    return reshape(out, (*lead, count, *rest))


def _lengths(data: Tensor, axis: int, lengths: Any, indices: Any, offsets: Any) -> Tensor:
    """The lengths of segments, of whichever of both was given."""
    name = "segment_reduce"
    if indices is not None:
        raise NotImplementedError(
            f"{name}: indices based reduction is not supported. Give lengths or offsets, or use "
            f"index_reduce."
        )
    if (lengths is None) == (offsets is None):
        raise ValueError(f"{name}: expected either lengths or offsets, one of both.")
    called = "lengths" if offsets is None else "offsets"
    found = as_operand(name, lengths if offsets is None else offsets, 2)
    same_device(name, (data, found))
    if found._dtype.is_floating_point or found._dtype.category == 0:
        raise DTypeError(f"{name}: {called} must be integers, got {found._dtype}.")
    lead = data._array.shape[:axis]
    if found._array.ndim != axis + 1 or found._array.shape[:-1] != lead:
        raise ShapeError(
            f"{name}: expected {called} of shape {[*lead, 'k']} for data "
            f"{list(data._array.shape)} and axis {axis}, got {list(found._array.shape)}."
        )
    if offsets is None:
        return found
    if not found._array.shape[-1]:
        raise ShapeError(f"{name}: offsets must hold one number more than there are segments.")
    begin = narrow(found, -1, 0, 1)
    # What the first segment begins after counts as a length that does not fit.
    steps = diff(found, dim=-1)
    return where(eq(begin, 0), steps, -1) if steps._array.size else steps


def _check(lengths: Tensor, ends: Tensor, n: int) -> None:
    """Raise ShapeError where lengths are negative or do not add up to ``n``."""

    def fail(_: int) -> None:
        raise ShapeError(
            f"segment_reduce: Expected all rows of lengths to be non-negative and to sum to "
            f"data.size(axis), {n}; offsets begin at 0 and end there."
        )

    *rows, count = lengths._array.shape
    if not lengths._array.size:
        if n and math.prod(rows):
            fail(0)
        return
    wrong = (lengths < 0).any() | narrow(ends, -1, count - 1, 1).ne(n).any()
    machine.check(where(wrong, 0, -1).reshape((1,))._array, fail)
