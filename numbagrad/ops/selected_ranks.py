"""Order statistics of all rows that a mask selects: medians, quantiles, the k-th of them.

NaN stands behind all numbers: the rows that are not selected are NaN, and the functions that leave
NaN out do the rest. See ``selected_over_all.py``. Start reading at ``_median``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..errors import ShapeError
from ..kernels import machine
from ..tensor import Tensor
from . import reduce
from .comparison import isnan
from .compositions import nanquantile
from .elementwise import where
from .extreme import argmax
from .gather import gather
from .selected import RULES, Selected, Unsized
from .selected_over_all import check_any, limit, packed
from .selected_rules import OVER_ALL, by_name, by_rows, dims_of, first_of, kept, keywords_of
from .sort import Sorted, sort
from .typical import nanmedian
from .view import expand, reshape, squeeze

__all__: list[str] = []  # nothing that users call


def _is_nan(rows: Selected) -> Tensor:
    return isnan(kept(rows.whole, rows.mask, 0).detach())


def _quantiles(function: Callable, *args: Any, **options: Any) -> Any:
    """``quantile`` and ``nanquantile``, of all rows or within each."""
    named = by_name(function, args, options)
    rows, q = named["x"], named["q"]
    if type(rows) is not Selected:
        raise Unsized(first_of(named.values()), f"{function.__name__} with such a q")
    dims = dims_of(function, named, rows)
    if isinstance(q, Tensor) and q._array.ndim and dims is not None and 0 not in dims:
        raise Unsized(rows, f"{function.__name__} of each row with several q")
    check_any(function.__name__, rows.mask)
    return by_rows(function, **named)


def _quantile(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
    """``quantile`` and ``nanquantile``."""
    name = function.__name__
    if not rows._dtype.is_floating_point:
        return function(rows.whole, 0.5)  # which says so
    left = kept(rows.whole, rows.mask, math.nan)
    found = nanquantile(left, **{k: v for k, v in keywords_of(named).items() if v is not rows})
    if name == "nanquantile":
        return found
    axis = {} if dims is None else {"dim": 0}
    wrong = reduce.any(_is_nan(rows), **axis, keepdim=named["keepdim"] and dims is not None)
    return where(wrong, math.nan, found)


def _at_place(rows: Selected, place: Tensor, keep: bool) -> Sorted:
    """The elements of each column that ``place`` says of them in order, and where they stand."""
    largest = limit(rows._dtype, False)
    left = packed(rows, math.nan if largest == math.inf else largest)
    order = sort(left.detach(), 0, stable=True).indices
    shape = (1, *left._array.shape[1:])
    at = gather(order, 0, expand(reshape(place, place._array.shape or (1,) * len(shape)), shape))
    values = gather(left, 0, at)
    return Sorted(values, at) if keep else Sorted(squeeze(values, 0), squeeze(at, 0))


def _median(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
    """``median`` and ``nanmedian``."""
    name, floats = function.__name__, rows._dtype.is_floating_point
    if dims is None:
        if not floats:
            check_any(name, rows.mask)
            rows = rows.flatten()
            return _at_place(rows, (rows.mask.sum() - 1).clamp(min=0) // 2, False).values
        found = nanmedian(kept(rows.whole, rows.mask, math.nan))
        return found if name == "nanmedian" else where(_is_nan(rows).any(), math.nan, found)
    check_any(name, rows.mask)
    keep, known = named["keepdim"], rows.mask.sum()
    if floats:
        known = known - reduce.sum(_is_nan(rows), 0, True)
    found = _at_place(rows, (known - 1).clamp(min=0) // 2, keep)
    if not floats or name == "nanmedian":
        return found
    wrong = reduce.any(_is_nan(rows), 0, keep)
    first = argmax(isnan(packed(rows, math.nan).detach()).long(), 0, keep)
    return Sorted(where(wrong, math.nan, found.values), where(wrong, first, found.indices))


def _kth(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
    """``kthvalue``, where so many are selected."""
    k = int(named["k"])
    if dims is None:
        raise Unsized(rows, "kthvalue of all elements")

    def fail(got: int) -> None:
        raise ShapeError(
            f"kthvalue(): selected number k out of range: {k} of {got} that a mask selects. "
            f"Count from 1."
        )

    held = rows.mask.sum()
    machine.check(where((held >= k) & (k >= 1), -1, held).reshape((1,))._array, fail)
    return _at_place(rows, held * 0 + (k - 1), named["keepdim"])


RULES.update(quantile=_quantiles, nanquantile=_quantiles)
OVER_ALL.update(
    median=_median, nanmedian=_median, quantile=_quantile, nanquantile=_quantile, kthvalue=_kth
)
