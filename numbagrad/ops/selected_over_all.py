"""What functions give over all rows that a mask selects: extremes, spreads, norms, orders.

Where order does not matter the rows that are not selected are given a number that changes nothing;
where it does, the selected rows are put in front of the others first. ``by_rows`` of
``selected_rules.py`` comes here. Start reading at ``OVER_ALL``, in the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ShapeError
from ..kernels import machine
from ..tensor import Tensor
from . import elementwise, extreme, reduce
from .comparison import eq
from .create import arange
from .elementwise import cast, where
from .index import index_select
from .selected import Selected, Unsized
from .selected_rules import (
    OVER_ALL,
    gated,
    kept,
    keywords_of,
    rows_of,
)
from .sort import argsort
from .view import reshape

__all__: list[str] = []  # nothing that users call


def in_order(mask: Tensor) -> Tensor:
    """The places of selected rows, in order, and behind them those of the others."""
    return argsort(mask.logical_not().to(dtypes.uint8), 0)


def packed(rows: Selected, other: Any) -> Tensor:
    """The selected rows one after another, and behind them rows of ``other``."""
    return index_select(kept(rows.whole, rows.mask, other), 0, in_order(rows.mask))


def _in_front(rows: Selected, whole: Tensor) -> Selected:
    """As many first rows of ``whole`` as are selected."""
    mask = arange(rows.mask._array.size, device=rows._device) < rows.mask.sum()
    return Selected.of(gated(whole, mask), mask, (mask, mask._version, 1))


def limit(dtype: Any, least: bool) -> Any:
    """The least number of a dtype, or the largest."""
    if dtype is dtypes.bool_:
        return not least
    if dtype.is_floating_point:
        return -math.inf if least else math.inf
    info = np.iinfo(dtype.numpy)
    return int(info.min if least else info.max)


def check_any(name: str, mask: Tensor) -> None:
    """Calls raise where nothing is selected."""

    def fail(_: int) -> None:
        raise ShapeError(
            f"{name}: Expected reduction dim to have non-zero size, but the mask selects nothing. "
            f"Use ng.where(mask.any(), ...) around numbers of which there is a sum."
        )

    machine.check(where(reduce.any(mask), -1, 0).reshape((1,))._array, fail)


# -- extremes --------------------------------------------------------------------------------------


def _extreme(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
    """The largest or least of all rows; with its place, where the function tells that."""
    name = function.__name__
    if named.get("other") is not None:
        return rows_of(function, named, rows)
    check_any(name, rows.mask)
    if name == "aminmax":
        least, most = [
            extreme.aminmax(
                kept(rows.whole, rows.mask, limit(rows._dtype, least)),
                **{k: v for k, v in named.items() if k in ("dim", "keepdim")},
            )
            for least in (False, True)
        ]
        return type(least)(least[0], most[1])
    other = limit(rows._dtype, "max" in name)
    tells = name.startswith("arg") or (name in ("max", "min") and dims is not None)
    left = packed(rows, other) if tells else kept(rows.whole, rows.mask, other)
    return function(**{k: left if v is rows else v for k, v in keywords_of(named).items()})


# -- spreads and norms -----------------------------------------------------------------------------


def variance_of_all(
    rows: Selected, dims: Any, keep: bool, correction: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The variance and the mean of all rows, where the variance is 0, and of how many numbers."""
    whole = cast(rows.whole, dtypes.float32) if rows._dtype.itemsize == 2 else rows.whole
    sizes = whole._array.shape
    times = math.prod([n for d, n in enumerate(sizes) if d and (dims is None or d in dims)])
    count = rows.mask.sum() * times
    mean = reduce.sum(kept(whole, rows.mask, 0), dims, True) / count
    apart = kept(whole - mean, rows.mask, 0)
    total = reduce.sum(apart * apart, dims, keep)
    found = total / (count - correction).clamp(min=0)
    return found, mean if keep else reshape(mean, found._array.shape), eq(found, 0), count


def _spread(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
    """``var``, ``std``, and these with the mean."""
    name, names = function.__name__, named.get("names", {})
    if not rows._dtype.is_floating_point:
        return function(rows.whole)  # which says so
    unbiased = named["dim"] if type(named.get("dim")) is bool else named["unbiased"]
    correction = named["correction"]
    correction = (1 if unbiased else 0) if correction is None else correction
    keep = names.get("keepdims", named["keepdim"])
    found, mean, none, _ = variance_of_all(rows, dims, keep, correction)
    if name.startswith("std"):  # whose gradient is 0 where it is 0
        found = where(none, found, elementwise.sqrt(where(none, 1.0, found)))
    found = cast(found, rows._dtype)
    return (found, cast(mean, rows._dtype)) if name.endswith("mean") else found


def _norm_of_all(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
    """A norm to which zeros add nothing."""
    p = 2 if named["p"] is None else named["p"]
    if not isinstance(p, str) and not p >= 0:
        raise Unsized(rows, f"{function.__name__} of order {p} over all rows")
    if p == math.inf:
        check_any(function.__name__, rows.mask)
    return _with(0)(function, named, rows, dims)


def _with(other: Any) -> Callable[..., Any]:
    """A function to which rows of ``other`` change nothing."""

    def rule(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
        if not rows._dtype.is_floating_point and isinstance(other, float):
            raise Unsized(rows, f"{function.__name__} of ints over all rows")
        left = kept(rows.whole, rows.mask, other)
        return function(**{k: left if v is rows else v for k, v in keywords_of(named).items()})

    return rule


def _rows_with(other: Any) -> Callable[..., Any]:
    """The same, of a function that gives something for each row."""
    whole = _with(other)

    def rule(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
        return rows.beside(gated(whole(function, named, rows, dims), rows.mask))

    return rule


def _normalized(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
    """Rows over their norm, to which zeros add nothing."""
    if not named["p"] >= 0:
        raise Unsized(rows, f"normalize by order {named['p']} over all rows")
    return _rows_with(0)(function, named, rows, dims)


# -- orders ----------------------------------------------------------------------------------------


def _sorted(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
    """The rows of each column in order, as many as are selected."""
    other = limit(rows._dtype, bool(named["descending"]))
    other = math.nan if other == math.inf else other  # which is behind all
    left = packed(rows, other)
    found = function(**{k: left if v is rows else v for k, v in named.items()})
    if isinstance(found, tuple):
        return type(found)(*[_in_front(rows, each) for each in found])
    return _in_front(rows, found)


def _topk(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
    """The k largest of each column, where so many are selected."""
    k = int(named["k"])

    def fail(got: int) -> None:
        raise ShapeError(f"topk: selected index k out of range: {k} of {got} that a mask selects.")

    held = rows.mask.sum()
    machine.check(where(held >= k, -1, held).reshape((1,))._array, fail)
    other = limit(rows._dtype, bool(named["largest"]))
    left = packed(rows, math.nan if other == math.inf else other)  # which is above all
    return function(**{key: left if v is rows else v for key, v in named.items()})


OVER_ALL.update(dict.fromkeys("amax amin max min argmax argmin aminmax".split(), _extreme))
OVER_ALL.update(dict.fromkeys("var std var_mean std_mean".split(), _spread))
OVER_ALL.update(dict.fromkeys("sort argsort".split(), _sorted))
OVER_ALL.update(dict.fromkeys("softmax log_softmax".split(), _rows_with(-math.inf)))
OVER_ALL.update(
    norm=_norm_of_all,
    topk=_topk,
    logsumexp=_with(-math.inf),
    softmin=_rows_with(math.inf),
    cumsum=_rows_with(0),
    cumprod=_rows_with(1),
    nanmean=_with(math.nan),
    normalize=_normalized,
)
