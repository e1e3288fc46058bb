"""Typical values: the middle one without NaN, ``nanmedian``, and the most frequent, ``mode``."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..tensor import Tensor
from .axes import Axes, axes
from .base import Op, as_operand, full, normalize_dim
from .comparison import isnan, logical_not, ne
from .create import arange
from .elementwise import clamp, where
from .extreme import Amax, argmax
from .gather import gather
from .join import cat
from .part import narrow
from .reduce import sum as sum_
from .remembered import remembered
from .scan import cummax
from .sort import Sorted, _result, median, sort
from .view import reshape, squeeze

__all__ = ["mode", "nanmedian"]


def _chosen(x: Tensor, dim: int, index: Tensor, keepdim: bool) -> Sorted:
    """The elements at ``index``, which has size 1 along ``dim``, and where they stand."""
    values = gather(x, dim, index)
    if keepdim:
        return Sorted(values, index)
    return Sorted(squeeze(values, dim), squeeze(index, dim))


def _middle(x: Tensor, dim: int) -> Tensor:
    """Where along ``dim`` the lower middle one of the elements that are not NaN stands."""
    order = sort(x.detach(), dim).indices  # NaN stands last
    known = sum_(logical_not(isnan(x.detach())), dim, True)
    return gather(order, dim, clamp(known - 1, 0) // 2)


class NanMedian(Op, plain_notes=True):
    """The lower middle one of all elements that are not NaN; ties share the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, over: Axes) -> Tensor:
        ctx.axes = over
        flat = reshape(x, (x._array.size,))
        out = reshape(gather(flat, 0, _middle(flat, 0)), ())
        ctx.save(x, out)
        return out

    backward = staticmethod(Amax.backward)


@remembered
def nanmedian(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the two middle values that are not NaN; along ``dim`` as ``(values, indices)``.

    NaN where there is nothing else. Gradient: as of ``median``. Raises IndexError if ``dim`` is out
    of range or has no elements.

    >>> nanmedian(tensor([1.0, float("nan"), 3.0, 2.0])).item()
    2.0
    """
    if not as_operand("nanmedian", x)._dtype.is_floating_point:
        return median(x, dim, keepdim)
    if dim is None:
        if not x._array.size:
            return median(x)
        return NanMedian.apply(x, axes("nanmedian", x, None))
    _result("nanmedian", x, dim, keepdim)
    if not x._array.ndim:
        return Sorted(x.clone(), full((), 0, dtypes.int64, x._device))
    dim = normalize_dim("nanmedian", dim, x._array.ndim)
    return _chosen(x, dim, _middle(x, dim), keepdim)


@remembered
def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> Sorted:
    """The most frequent value along ``dim``, the smallest of several, as ``(values, indices)``.

    The index is that of its last occurrence. Each NaN counts as another value. Gradient: to the
    element at the index. Raises IndexError if ``dim`` is out of range or has no elements.

    >>> mode(tensor([3, 1, 1, 3, 2])).values.item()
    1
    """
    _result("mode", as_operand("mode", x), dim, keepdim)
    if not x._array.ndim:
        return Sorted(x.clone(), full((), 0, dtypes.int64, x._device))
    rank = x._array.ndim
    dim = normalize_dim("mode", dim, rank)
    n = x._array.shape[dim]
    ordered, order = sort(x.detach(), dim)
    place = reshape(arange(n, device=x._device), (n,) + (1,) * (rank - 1 - dim))
    after = ne(narrow(ordered, dim, 1, n - 1), narrow(ordered, dim, 0, n - 1))
    first = narrow(place, 0, 0, 1) * narrow(order, dim, 0, 1) * 0
    begins = cat([first, where(after, narrow(place, 0, 1, n - 1), 0)], dim)
    length = place - cummax(begins, dim).values
    if not length._array.size:
        return _chosen(x, dim, narrow(order, dim, 0, 1), keepdim)
    return _chosen(x, dim, gather(order, dim, argmax(length, dim, True)), keepdim)


METHODS: dict[str, Any] = {"mode": mode, "nanmedian": nanmedian}
