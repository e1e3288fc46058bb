"""Some of the rows that a mask selects while a step is recorded, more of them, and their transpose.

``x[mask][k]`` is a row, an index, a range or a mask of the selected rows; ``cat`` puts some behind
others; a product of ``Turned``, the transpose, with others has known sizes. Start at ``chosen``.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..kernels import machine
from ..tensor import Tensor
from . import reduce
from .base import as_operand, normalize_dim
from .comparison import eq
from .create import arange
from .elementwise import where
from .index import index_select
from .join import cat, stack
from .linalg import matmul
from .scan import cumsum
from .selected import RULES, Selected, Unsized
from .selected_over_all import in_order
from .selected_rules import (
    as_whole,
    by_name,
    first_of,
    gated,
    kept,
    lined_up,
    product_of_rows,
    spread,
)
from .view import reshape

__all__: list[str] = []  # nothing that users call


def _all(x: Tensor) -> Tensor:
    """A mask of all rows of ``x``."""
    return x.new_full((x._array.shape[0],), True, dtype=dtypes.bool_)


def chosen(rows: Selected, key: Any) -> Any:
    """``rows[key]``: a row, some of them by an index or a mask of as many, or a range of them."""
    if type(key) is int:
        rows.shared = True
        row = reshape(_at(rows, arange(key, key + 1, device=rows._device)), rows.shape[1:])
        machine.recorder.current.freeze(row._array)  # eagerly a view, of rows that are not here
        return row
    if type(key) is Selected and key._dtype is not dtypes.bool_:  # the order of other rows
        index = kept(key.whole, key.mask, 0)
        return key.beside(gated(_at(rows, index, key.mask), key.mask))
    if isinstance(key, builtins.slice):
        return _range(rows, key)
    if key._dtype is not dtypes.bool_:
        return _at(rows, key)
    more = lined_up("index", rows, key) if type(key) is Selected else spread("index", key, rows)
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
    at = index_select(in_order(rows.mask), 0, index.clamp(0, last))
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
    named = by_name(function, args, options)
    given = list(named["tensors"])
    rows = first_of(given)
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
    x, y = by_name(function, args, options).values()
    if type(x) is not Turned:
        if type(y) is Turned:
            raise Unsized(y.rows, f"{function.__name__} with the transpose of it")
        return product_of_rows(function, *args, **options)
    rows, name = x.rows, function.__name__
    if type(y) is not Selected:
        other = spread(name, y, rows)
    else:
        other = lined_up(name, rows, y)
    return matmul(kept(rows.whole, rows.mask, 0).mT, kept(other, rows.mask, 0))


def _transposed(self: Selected, dim0: int = 0, dim1: int = 1) -> Tensor:
    """Two dims exchanged: within each row, or the rows themselves for a product."""
    first, second = [normalize_dim("transpose", d, self.rank) for d in (dim0, dim1)]
    if first and second:
        return self.view_of(self.whole.transpose(first, second))
    return self if first == second else Turned.of(self)


def _stacked(function: Callable, *args: Any, **options: Any) -> Any:
    """``stack`` of what is selected, within each row."""
    named = by_name(function, args, options)
    given = list(named["tensors"])
    rows = first_of(given)
    dim = normalize_dim("stack", named["dim"], rows.rank + 1)
    if not dim:
        raise Unsized(rows, "stack over all rows")
    return rows.beside(stack([as_whole("stack", rows, x) for x in given], dim))


for _name in ("t", "transpose", "swapaxes", "swapdims"):
    setattr(Selected, _name, _transposed)
for _name, _method in {"T": Turned.of, "mT": lambda self: _transposed(self, -2, -1)}.items():
    setattr(Selected, _name, property(_method))
RULES.update(cat=_joined, stack=_stacked, matmul=_multiplied, mm=_multiplied)
