"""Where values belong among sorted edges, and how many there are of each; no gradients."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import along
from ..kernels.cpu import search as kernels
from ..tensor import Tensor, wrap
from .base import as_operand, contiguous, full, new_empty, ones_like, same_device
from .create import linspace
from .elementwise import cast, where
from .extreme import extremes
from .gather import gathered
from .index import index_add
from .part import narrow
from .remembered import remembered

__all__ = ["bincount", "bucketize", "histc", "histogram", "searchsorted"]


@remembered
def searchsorted(
    edges: Tensor,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where in the sorted ``edges`` each value belongs: how many edges are smaller.

    edges: 1-D, or rows for the rows of ``values``. right, or side="right": equal edges count too.
    sorter: what ``argsort`` says of edges that are not sorted. Raises ShapeError unless the leading
    dims agree, ValueError for another side, or for "left" beside right.

    >>> searchsorted(tensor([1.0, 2.0, 3.0]), tensor([2.0, 9.0])).tolist()
    [1, 3]
    """
    as_operand("searchsorted", edges)
    if side not in (None, "left", "right"):
        raise ValueError(f"searchsorted: side can only be 'left' or 'right' but got {side}.")
    if side == "left" and right:
        raise ValueError("searchsorted: side and right can't be set to opposites; leave out right.")
    right = right or side == "right"
    if sorter is not None:
        edges = _sorted_edges(edges, sorter)
    if not isinstance(values, Tensor):
        values = full((), values, edges._dtype, edges._device)
    lead = edges._array.shape[:-1]
    shape = values._array.shape
    if edges.ndim == 0 or (lead and lead != shape[:-1]):
        raise ShapeError(
            f"searchsorted: boundaries tensor should be 1 dimension or the first N-1 dimensions of "
            f"boundaries tensor and input value tensor must match. Received {list(edges.shape)} "
            f"and {list(shape)}."
        )
    common = dtypes.promote_types(edges._dtype, values._dtype)
    edges, values = edges.detach().to(common), values.detach().to(common)
    out = new_empty(shape, dtypes.int64, values._device)
    if out._array.size:
        n = edges._array.shape[-1]
        rows = math.prod(lead)
        edges2 = contiguous(edges)._array.reshape((rows, n))
        values2 = contiguous(values)._array.reshape((rows, -1))
        target = out._array.reshape(values2.shape)
        machine.launch(kernels.search, target, edges2, values2, bool(right), bool(lead))
    return out.to(dtypes.int32) if out_int32 else out


def _sorted_edges(edges: Tensor, sorter: Tensor) -> Tensor:
    """``edges`` in the order of ``sorter``."""
    if as_operand("searchsorted", sorter)._dtype is not dtypes.int64:
        raise DTypeError(f"searchsorted: sorter must be a tensor of int64 but got {sorter._dtype}.")
    if sorter._array.shape != edges._array.shape:
        raise ShapeError(
            f"searchsorted: boundary and sorter must have the same size, but got "
            f"{list(edges.shape)} and {list(sorter.shape)}."
        )
    return gathered("searchsorted", edges.detach(), -1, sorter)


@remembered
def bucketize(
    values: Tensor, edges: Tensor, *, out_int32: bool = False, right: bool = False
) -> Any:
    """``searchsorted`` with the arguments turned around: the bucket of each value.

    >>> bucketize(tensor([0.5, 1.5]), tensor([1.0, 2.0])).tolist()
    [0, 1]
    """
    return searchsorted(edges, values, out_int32=out_int32, right=right)


def bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, 2 ... occurs in ``x``, or the sum of its weights.

    x: 1-D, ints from 0 on. minlength: least length of the result. Raises DTypeError for floats,
    ShapeError for negative ints or another shape, ValueError for a negative minlength.

    >>> bincount(tensor([0, 2, 2])).tolist()
    [1, 0, 2]
    """
    if as_operand("bincount", x)._dtype.category != 1:
        raise DTypeError(f"bincount: expected a tensor of ints, got {x._dtype}. Use x.long().")
    if minlength < 0:
        raise ValueError(f"bincount: minlength should be >= 0, got {minlength}.")
    if minlength and machine.recording and x._array.ndim == 1 and machine.unknown(x._array):
        return _counted(x, weights, minlength)
    plain = weights is None and not machine.recording  # NumPy looks for negative ones itself
    least, most = (0, -1) if plain or not x._array.size else extremes("bincount", x)
    if x._array.ndim != 1 or least < 0:
        raise _uncounted(x)
    if weights is not None and weights._array.shape != x._array.shape:
        raise ShapeError(
            f"bincount: input and weights should have the same length, got {list(x.shape)} and "
            f"{list(weights.shape)}."
        )
    if plain:
        try:
            return wrap(np.bincount(x._array, minlength=minlength), dtypes.int64)
        except ValueError:
            raise _uncounted(x) from None
    n = max(minlength, most + 1)
    x = cast(x, dtypes.int64)
    if weights is None:
        weights = ones_like(x)
    elif not weights._dtype.is_floating_point:
        weights = cast(weights, dtypes.float64)
    if x._array.size == 0:
        return full((n,), 0, weights._dtype, x._device)
    out = new_empty((n,), weights._dtype, x._device)
    column = (1, x._array.size, 1)
    which = contiguous(x)._array.reshape(column)
    values = contiguous(weights)._array.reshape(column)
    machine.launch(along.place, out._array.reshape((1, n, 1)), values, which)
    return out


def _counted(x: Tensor, weights: Tensor | None, n: int) -> Tensor:
    """``bincount`` into ``n`` entries, while a step is recorded and nobody knows the largest int;
    calls raise ShapeError where there is none for it."""
    kind = dtypes.int64 if weights is None else weights._dtype
    if not kind.is_floating_point and weights is not None:
        kind = dtypes.float64

    def fail(_: int) -> None:
        raise ShapeError(
            f"bincount: an element is negative, or not less than minlength, {n}, which is the "
            f"length of the result inside a compiled function."
        )

    wrong = ((x < 0) | (x >= n)).any()
    machine.check(where(wrong, 0, -1).reshape((1,))._array, fail)
    values = full(x._array.shape, 1, kind, x._device) if weights is None else cast(weights, kind)
    return index_add(full((n,), 0, kind, x._device), 0, where((x < 0) | (x >= n), 0, x), values)


def _uncounted(x: Tensor) -> ShapeError:
    return ShapeError(
        f"bincount: bincount only supports 1-d non-negative integral inputs; got shape "
        f"{list(x.shape)}, or a negative element."
    )


def histc(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements lie in each of ``bins`` equal parts of [min, max]; the dtype of x.

    min equal to max stands for the extremes of x. Elements outside, and NaN, are not counted.
    Raises DTypeError for ints, ValueError unless bins is positive.

    >>> histc(tensor([0.0, 1.0, 1.0, 2.0]), 2).tolist()
    [1.0, 3.0]
    """
    if not as_operand("histc", x)._dtype.is_floating_point:
        raise DTypeError(f"histc: not implemented for {x._dtype}. Convert with x.float().")
    if bins <= 0:
        raise ValueError(f"histc: bins must be > 0, got {bins}.")
    low, high = float(min), float(max)
    if low == high and x._array.size:
        low, high = map(float, extremes("histc", x))
    if low == high:
        low, high = low - 1.0, high + 1.0
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"histc: range of [{low}, {high}] is not finite and rising.")
    out = new_empty((bins,), x._dtype, x._device)
    machine.launch(kernels.histogram, out._array, contiguous(x)._array.reshape(-1), low, high)
    return out


class Histogram(NamedTuple):
    """What ``histogram`` returns."""

    hist: Tensor
    bin_edges: Tensor


def edges_of(x: Tensor, bins: int, range: Any, name: str = "histogram") -> Tensor:
    """The edges of equal bins over ``range``, or over what ``x`` spans."""
    if bins <= 0:
        raise ShapeError(f"{name}: bins must be > 0, but got {bins}.")
    if range is not None:
        low, high = map(float, range)
    elif x._array.size:
        low, high = map(float, extremes(name, x))
    else:
        low, high = 0.0, 1.0
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ShapeError(f"{name}: range [{low}, {high}] is not finite. Pass range=(min, max).")
    if low > high:
        raise ShapeError(f"{name}: min should not exceed max, but got min {low} max {high}.")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return linspace(low, high, bins + 1, dtype=x._dtype, device=x._device)


def histogram(
    x: Tensor,
    bins: Any = 100,
    *,
    range: Any = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """How many elements, or which sum of ``weight``, lie in each bin, and the edges of the bins.

    bins: how many equal ones, over ``range`` (by default what x spans), or their edges. The last
    bin includes its end; what lies outside, and NaN, is not counted. density: divided by the sum
    and by the widths. No gradient. Raises DTypeError for ints.

    >>> histogram(tensor([1.0, 2.0, 1.0]), 3, range=(0.0, 3.0)).hist.tolist()
    [0.0, 2.0, 1.0]
    """
    x = as_operand("histogram", x).detach()
    if not x._dtype.is_floating_point:
        raise DTypeError(f"histogram: not implemented for {x._dtype}. Convert with x.float().")
    given = [("weight", weight), ("bins", bins if isinstance(bins, Tensor) else None)]
    for name, value in given:
        if value is not None and value._dtype is not x._dtype:
            raise DTypeError(
                f"histogram: input tensor and {name} should have the same dtype, but got "
                f"{x._dtype} and {value._dtype}."
            )
    same_device("histogram", [x, *[value for _, value in given if value is not None]])
    if weight is not None and weight._array.shape != x._array.shape:
        raise ShapeError(
            f"histogram: if weight tensor is provided it should have the same shape as the input "
            f"tensor, {list(x.shape)}, got {list(weight.shape)}."
        )
    if isinstance(bins, Tensor) and (bins._array.ndim != 1 or bins._array.size < 2):
        raise ShapeError(
            f"histogram: bins must be 2 edges or more in one dimension, got {list(bins.shape)}."
        )
    if isinstance(bins, Tensor) and range is not None:
        raise TypeError("histogram: range is for a number of bins, but bins has their edges.")
    edges = bins if isinstance(bins, Tensor) else edges_of(x, bins, range)
    count = edges._array.shape[0] - 1
    flat = contiguous(x)._array.reshape(-1)
    each = flat if weight is None else contiguous(weight.detach())._array.reshape(-1)
    sums = new_empty((count,), dtypes.float64, x._device)
    machine.launch(
        kernels.histogram_between,
        sums._array,
        flat,
        each,
        contiguous(edges)._array,
        weight is not None,
        edges is not bins,
    )
    hist = cast(sums, x._dtype)
    if density:
        widths = narrow(edges, 0, 1, count) - narrow(edges, 0, 0, count)
        hist = hist / widths / hist.sum()
    return Histogram(hist, edges)


METHODS: dict[str, Any] = {"bincount": bincount, "histc": histc, "histogram": histogram}
