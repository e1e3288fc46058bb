"""What functions give over all rows that a mask selects: extremes, spreads, norms, orders.

Where order does not matter the rows that are not selected are given a number that changes nothing;
where it does, the selected rows are put in front of the others first. ``Turned`` is the transpose
of selected rows, for a product with others. Start reading at ``OVER_ALL``; ``_by_rows`` of
``selected_rules.py`` comes here.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ShapeError
from ..kernels import machine
from ..tensor import Tensor
from . import elementwise, extreme, reduce
from .base import as_operand, normalize_dim
from .comparison import eq
from .create import arange
from .elementwise import cast, where
from .index import index_select
from .join import cat, stack
from .linalg import matmul
from .scan import cumsum
from .selected import RULES, Selected, Unsized
from .selected_rules import (
    OVER_ALL,
    _first,
    _given,
    _kept,
    _lined_up,
    _named,
    _product,
    _rows_of,
    as_whole,
    gated,
    spread,
)
from .sort import argsort
from .view import reshape

__all__: list[str] = []  # nothing that users call


def _all(x: Tensor) -> Tensor:
    """A mask of all rows of ``x``."""
    return x.new_full((x._array.shape[0],), True, dtype=dtypes.bool_)


def _order(mask: Tensor) -> Tensor:
    """The places of selected rows, in order, and behind them those of the others."""
    return argsort(mask.logical_not().to(dtypes.uint8), 0)


def _packed(rows: Selected, other: Any) -> Tensor:
    """The selected rows one after another, and behind them rows of ``other``."""
    return index_select(_kept(rows.whole, rows.mask, other), 0, _order(rows.mask))


def _in_front(rows: Selected, whole: Tensor) -> Selected:
    """As many first rows of ``whole`` as are selected."""
    mask = arange(rows.mask._array.size, device=rows._device) < rows.mask.sum()
    return Selected.of(gated(whole, mask), mask, (mask, mask._version, 1))


def _limit(dtype: Any, least: bool) -> Any:
    """The least number of a dtype, or the largest."""
    if dtype is dtypes.bool_:
        return not least
    if dtype.is_floating_point:
        return -math.inf if least else math.inf
    info = np.iinfo(dtype.numpy)
    return int(info.min if least else info.max)


def _check_any(name: str, mask: Tensor) -> None:
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
        return _rows_of(function, named, rows)
    _check_any(name, rows.mask)
    if name == "aminmax":
        least, most = [
            extreme.aminmax(
                _kept(rows.whole, rows.mask, _limit(rows._dtype, least)),
                **{k: v for k, v in named.items() if k in ("dim", "keepdim")},
            )
            for least in (False, True)
        ]
        return type(least)(least[0], most[1])
    other = _limit(rows._dtype, "max" in name)
    tells = name.startswith("arg") or (name in ("max", "min") and dims is not None)
    left = _packed(rows, other) if tells else _kept(rows.whole, rows.mask, other)
    return function(**{k: left if v is rows else v for k, v in _given(named).items()})


# -- spreads and norms -----------------------------------------------------------------------------


def _variance(
    rows: Selected, dims: Any, keep: bool, correction: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The variance and the mean of all rows, and where the variance is 0."""
    whole = cast(rows.whole, dtypes.float32) if rows._dtype.itemsize == 2 else rows.whole
    sizes = whole._array.shape
    times = math.prod([n for d, n in enumerate(sizes) if d and (dims is None or d in dims)])
    count = rows.mask.sum() * times
    mean = reduce.sum(_kept(whole, rows.mask, 0), dims, True) / count
    apart = _kept(whole - mean, rows.mask, 0)
    total = reduce.sum(apart * apart, dims, keep)
    found = total / (count - correction).clamp(min=0)
    return found, mean if keep else reshape(mean, found._array.shape), eq(found, 0)


def _spread(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
    """``var``, ``std``, and these with the mean."""
    name, names = function.__name__, named.get("names", {})
    if not rows._dtype.is_floating_point:
        return function(rows.whole)  # which says so
    unbiased = named["dim"] if type(named.get("dim")) is bool else named["unbiased"]
    correction = named["correction"]
    correction = (1 if unbiased else 0) if correction is None else correction
    keep = names.get("keepdims", named["keepdim"])
    found, mean, none = _variance(rows, dims, keep, correction)
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
        _check_any(function.__name__, rows.mask)
    return _with(0)(function, named, rows, dims)


def _with(other: Any) -> Callable[..., Any]:
    """A function to which rows of ``other`` change nothing."""

    def rule(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
        if not rows._dtype.is_floating_point and isinstance(other, float):
            raise Unsized(rows, f"{function.__name__} of ints over all rows")
        left = _kept(rows.whole, rows.mask, other)
        return function(**{k: left if v is rows else v for k, v in _given(named).items()})

    return rule


def _rows_with(other: Any) -> Callable[..., Any]:
    """The same, of a function that gives something for each row."""
    whole = _with(other)

    def rule(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
        return rows.beside(gated(whole(function, named, rows, dims), rows.mask))

    return rule


# -- orders ----------------------------------------------------------------------------------------


def _sorted(function: Callable, named: dict[str, Any], rows: Selected, dims: Any) -> Any:
    """The rows of each column in order, as many as are selected."""
    other = _limit(rows._dtype, bool(named["descending"]))
    other = math.nan if other == math.inf else other  # which is behind all
    left = _packed(rows, other)
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
    other = _limit(rows._dtype, bool(named["largest"]))
    left = _packed(rows, math.nan if other == math.inf else other)  # which is above all
    return function(**{key: left if v is rows else v for key, v in named.items()})


# -- rows of rows ----------------------------------------------------------------------------------


def chosen(rows: Selected, key: Any) -> Any:
    """``rows[key]``: a row, some of them by an index or a mask of as many, or a range of them."""
    if type(key) is int:
        rows.shared = True
        row = reshape(_at(rows, arange(key, key + 1, device=rows._device)), rows.shape[1:])
        machine.recorder.current.freeze(row._array)  # eagerly a view, of rows that are not here
        return row
    if type(key) is Selected and key._dtype is not dtypes.bool_:  # the order of other rows
        index = _kept(key.whole, key.mask, 0)
        return key.beside(gated(_at(rows, index, key.mask), key.mask))
    if isinstance(key, builtins.slice):
        return _range(rows, key)
    if key._dtype is not dtypes.bool_:
        return _at(rows, key)
    more = _lined_up("index", rows, key) if type(key) is Selected else spread("index", key, rows)
    return _of_these(rows, rows.mask & more)


def _at(rows: Selected, index: Tensor, asked: Tensor | None = None) -> Tensor:
    """The rows at places among them; asked: a mask of the places that count."""
    count = rows.mask.sum()
    index = where(index < 0, index + count, index)
    wrong = (index < 0) | (index >= count)
    wrong = reduce.any(wrong if asked is None else wrong & asked)

    def fail(_: int) -> None:
        raise IndexError("index: an index is out of bounds for the rows that a mask selects.")

    machine.check(where(wrong, 0, -1).reshape((1,))._array, fail)
    last = max(rows.mask._array.size - 1, 0)
    at = index_select(_order(rows.mask), 0, index.clamp(0, last))
    return index_select(gated(rows.whole, rows.mask), 0, at)


def _range(rows: Selected, key: builtins.slice) -> Selected:
    """The rows of a range of places among them."""
    count, step = rows.mask.sum(), 1 if key.step is None else key.step
    if step < 1:
        raise Unsized(rows, "an index of rows from behind")
    place = cumsum(rows.mask, 0) - 1
    begin = _bound(0 if key.start is None else key.start, count)
    mask = rows.mask & (place >= begin)
    if key.stop is not None:
        mask = mask & (place < _bound(key.stop, count))
    if step > 1:
        mask = mask & eq((place - begin) % step, 0)
    rows.shared = True
    found = _of_these(rows, mask)
    found.shared = True
    return found


def _of_these(rows: Selected, mask: Tensor) -> Selected:
    """Some of the selected rows; those that are left out reach no more."""
    return Selected.of(gated(rows.whole, mask), mask, (mask, mask._version, 1))


def _bound(at: int, count: Tensor) -> Any:
    return at if at >= 0 else (count + at).clamp(min=0)


def _joined(function: Callable, *args: Any, **options: Any) -> Any:
    """``cat`` of selected rows: one after another, or side by side."""
    named = _named(function, args, options)
    given = list(named["tensors"])
    rows = _first(given)
    dim = normalize_dim("cat", named["dim"], rows.rank)
    if dim:
        return rows.beside(cat([as_whole("cat", rows, x) for x in given], dim))
    wholes = [x.whole if type(x) is Selected else as_operand("cat", x) for x in given]
    masks = [x.mask if type(x) is Selected else _all(x) for x in given]
    mask = cat(masks)
    found = cat([gated(w, m) for w, m in zip(wholes, masks, strict=True)])
    return Selected.of(found, mask, (mask, mask._version, 1))


class Turned(Tensor):
    """The transpose of selected rows: a product with rows of the same mask has known sizes."""

    rows: Selected

    @classmethod
    def of(cls, rows: Selected) -> Turned:
        """The transpose of ``rows`` (n, k)."""
        if rows.rank != 2:
            raise Unsized(rows, "a transpose of other than a matrix")
        found: Turned = object.__new__(cls)
        found.rows, found._dtype, found._device = rows, rows._dtype, rows._device
        return found

    @property
    def _array(self) -> Any:
        raise Unsized(self.rows, "the transpose of it, but in a product,", ("matmul", "mm"))

    @property
    def T(self) -> Selected:
        """The rows."""
        return self.rows

    mT = T

    def t(self) -> Selected:
        """The rows."""
        return self.rows

    def made_of_parts(self) -> tuple[Callable[..., Tensor], tuple[Tensor, Tensor]]:
        """How calls make what a compiled function returns of it."""
        return _turned, self.rows.made_of_parts()[1]


def _turned(whole: Tensor, mask: Tensor) -> Tensor:
    return whole[mask].T


def _multiplied(function: Callable, *args: Any, **options: Any) -> Any:
    """A product with selected rows, or of their transpose with as many rows."""
    x, y = _named(function, args, options).values()
    if type(x) is not Turned:
        if type(y) is Turned:
            raise Unsized(y.rows, f"{function.__name__} with the transpose of it")
        return _product(function, *args, **options)
    rows, name = x.rows, function.__name__
    if type(y) is not Selected:
        other = spread(name, y, rows)
    else:
        other = _lined_up(name, rows, y)
    return matmul(_kept(rows.whole, rows.mask, 0).mT, _kept(other, rows.mask, 0))


def _transposed(self: Selected, dim0: int = 0, dim1: int = 1) -> Tensor:
    """Two dims exchanged: within each row, or the rows themselves for a product."""
    first, second = [normalize_dim("transpose", d, self.rank) for d in (dim0, dim1)]
    if first and second:
        return self.view_of(self.whole.transpose(first, second))
    return self if first == second else Turned.of(self)


def _stacked(function: Callable, *args: Any, **options: Any) -> Any:
    """``stack`` of what is selected, within each row."""
    named = _named(function, args, options)
    given = list(named["tensors"])
    rows = _first(given)
    dim = normalize_dim("stack", named["dim"], rows.rank + 1)
    if not dim:
        raise Unsized(rows, "stack over all rows")
    return rows.beside(stack([as_whole("stack", rows, x) for x in given], dim))


for _name in ("t", "transpose", "swapaxes", "swapdims"):
    setattr(Selected, _name, _transposed)
for _name, _method in {"T": Turned.of, "mT": lambda self: _transposed(self, -2, -1)}.items():
    setattr(Selected, _name, property(_method))
RULES.update(cat=_joined, stack=_stacked, matmul=_multiplied, mm=_multiplied)


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
)
