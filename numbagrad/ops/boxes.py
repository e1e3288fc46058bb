"""How many points lie in each box of a grid: ``histogramdd``."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..tensor import Tensor
from .base import as_operand, contiguous, full, same_device
from .comparison import eq, isnan
from .elementwise import where
from .index import index_add
from .join import unbind
from .part import narrow
from .search import edges_of, searchsorted
from .view import reshape

__all__ = ["histogramdd"]


class HistogramDD(NamedTuple):
    """Counts, or sums of weights, and for each dimension the edges of its bins."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


def histogramdd(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramDD:
    """How many points, or which sum of ``weight``, lie in each box of a grid.

    input (..., N): points of N numbers. bins: how many equal ones in each dimension, one number or
    N of them, or N tensors of edges. range: 2 N numbers, the least and largest of each dimension,
    by default what the points span. weight (...): of each point. The last bin of a dimension
    includes its end; what lies outside, and NaN, is not counted. density: divided by the sum and by
    the boxes' volumes. hist has N dimensions and the dtype of input. No gradient. Raises ShapeError
    for sizes that do not fit, DTypeError for ints.

    >>> points = tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [2.0, 2.0]])
    >>> histogramdd(points, [2, 2]).hist.tolist()
    [[0.0, 1.0], [2.0, 1.0]]
    """
    x = _points(input, weight)
    n = x._array.shape[-1]
    columns = [contiguous(column) for column in unbind(reshape(x, (-1, n)), 1)]
    edges = _edges(columns, bins, range)
    sizes = [e._array.shape[0] - 1 for e in edges]
    which, total = _places(columns, edges), math.prod(sizes)
    ones = full(which._array.shape, 1, x._dtype, x._device)
    values = ones if weight is None else reshape(weight.detach(), (-1,))
    sums = index_add(full((total + 1,), 0, x._dtype, x._device), 0, which, values)
    hist = reshape(narrow(sums, 0, 0, total), sizes).clone()
    if density:
        hist = hist / hist.sum()
        for d, (limits, count) in enumerate(zip(edges, sizes, strict=True)):
            widths = narrow(limits, 0, 1, count) - narrow(limits, 0, 0, count)
            hist = hist / reshape(widths, (-1, *[1] * (n - d - 1)))
    return HistogramDD(hist, tuple(edges))


def _points(input: Tensor, weight: Tensor | None) -> Tensor:
    """The points, without history."""
    x = as_operand("histogramdd", input).detach()
    shape = x._array.shape
    if not x._dtype.is_floating_point:
        raise DTypeError(f"histogramdd: not implemented for {x._dtype}. Convert with x.float().")
    if len(shape) < 2 or not shape[-1]:
        raise ShapeError(
            f"histogramdd: input must have at least 2 dimensions, and numbers in the last, got "
            f"{list(shape)}."
        )
    if weight is None:
        return x
    same_device("histogramdd", (x, as_operand("histogramdd", weight, 3)))
    if weight._array.shape != shape[:-1] or weight._dtype is not x._dtype:
        raise ShapeError(
            f"histogramdd: weight must have the shape {list(shape[:-1])} of input without its last "
            f"dimension, and dtype {x._dtype}, got {list(weight.shape)} and {weight._dtype}."
        )
    return x


def _edges(columns: list[Tensor], bins: Any, range: Sequence[float] | None) -> list[Tensor]:
    """The edges of each dimension's bins."""
    n, dtype = len(columns), columns[0]._dtype
    each = [bins] * n if isinstance(bins, int) else list(bins)
    if len(each) != n:
        raise ShapeError(
            f"histogramdd: the size of bins must be equal to that of the innermost dimension of "
            f"the input, {n}, got {len(each)}."
        )
    if range is not None and len(range) != 2 * n:
        raise ShapeError(
            f"histogramdd: range must hold {2 * n} numbers, 2 for each of {n} dimensions, got "
            f"{len(range)}."
        )
    edges = []
    for d, (column, wanted) in enumerate(zip(columns, each, strict=True)):
        if not isinstance(wanted, Tensor):
            pair = None if range is None else range[2 * d : 2 * d + 2]
            wanted = edges_of(column, operator.index(wanted), pair, "histogramdd")
        elif wanted._array.ndim != 1 or not wanted._array.size or wanted._dtype is not dtype:
            raise ShapeError(
                f"histogramdd: bins[{d}] must hold edges in one dimension, of dtype {dtype}, got "
                f"{list(wanted.shape)} and {wanted._dtype}."
            )
        edges.append(wanted.detach())
    return edges


def _places(columns: list[Tensor], edges: list[Tensor]) -> Tensor:
    """The flat place of each point's box; one past the last for points outside."""
    found: Any = None
    outside: Any = None
    total = 1
    for column, limits in zip(columns, edges, strict=True):
        count = limits._array.shape[0] - 1
        at = searchsorted(limits, column, right=True) - 1
        at = where(eq(column, narrow(limits, 0, count, 1)), count - 1, at)
        beyond = (at < 0) | (at >= count) | isnan(column)
        outside = beyond if outside is None else outside | beyond
        found = at if found is None else found * count + at
        total *= count
    return where(outside, full((), total, dtypes.int64, columns[0]._device), found)
