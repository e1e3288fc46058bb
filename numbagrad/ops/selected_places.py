"""Where a mask holds, while a step is recorded: ``nonzero``, and brackets with what it gives.

Coordinates are selected rows (``selected.py``): all places of the mask, of which those count where
it holds. What stands at them in a tensor is selected likewise, and what is added or written there
leaves out the rest. Start reading at ``places`` and ``taken``.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..tensor import Tensor
from .base import full
from .create import arange
from .elementwise import where
from .index import index_add, put_slices
from .inplace import assign
from .join import cat, stack
from .part import narrow
from .selected import RULES, Selected, Unsized
from .selected_methods import cast_rows
from .selected_rules import by_name, gated, kept, lined_up, spread
from .view import expand, reshape

__all__: list[str] = []  # nothing that users call


def places(x: Tensor, as_tuple: bool) -> Any:
    """``nonzero`` of a tensor whose elements nobody knows yet."""
    shape = x._array.shape
    mask = x if x._dtype is dtypes.bool_ else x.ne(0)
    flat, key = reshape(mask.detach().clone(), (math.prod(shape),)), (mask, mask._version, 1)
    every = arange(math.prod(shape), device=x._device)
    columns = []
    for d, n in enumerate(shape):
        step = math.prod(shape[d + 1 :])
        columns.append(every // step % n if step and n else every)
    if as_tuple:
        return tuple([Selected.of(c, flat, key) for c in columns])
    return Selected.of(stack(columns, 1), flat, key)


def at_places(key: Any) -> bool:
    """Whether there are selected places between brackets."""
    parts = key if type(key) is tuple else (key,)
    return builtins.any([type(k) is Selected for k in parts])


def _index(name: str, rows: Selected, k: Selected) -> Tensor:
    """Selected places as an index of as many rows as the mask has, 0 where it does not hold."""
    if k._dtype.is_floating_point or k._dtype is dtypes.bool_ or k.rank != 1:
        raise Unsized(k, f"{name} at other than a vector of ints")
    return gated(lined_up(name, rows, k), rows.mask)


def taken(x: Tensor, key: Any) -> Selected:
    """``x[rows]`` and ``x[rows, columns, 0]``, where the key begins with selected places."""
    parts = key if type(key) is tuple else (key,)
    rows = next(k for k in parts if type(k) is Selected)
    many = [type(k) is Selected for k in parts]
    count = sum(many)
    plain = [k is None or k is ... or type(k) in (int, builtins.slice) for k in parts[count:]]
    if not builtins.all(many[:count]) or not builtins.all(plain):
        raise Unsized(rows, "such an index")
    index = [_index("index", rows, k) for k in parts[:count]]
    return rows.beside(gated(x[(*index, *parts[count:])], rows.mask))


def put(x: Tensor, key: Any, value: Any) -> None:
    """``x[rows] = value`` at selected places; the last one stands where they repeat."""
    key = key[0] if type(key) is tuple and len(key) == 1 else key
    if type(key) is not Selected:
        raise Unsized(next(k for k in key if type(k) is Selected), "writing at such an index")
    (n, *rest), index = x._array.shape, _index("setitem", key, key)
    size = key.mask._array.size
    if not isinstance(value, Tensor):
        value = full((), value, x._dtype, x._device)
    value = cast_rows(value, x)
    alone = type(value) is not Selected and value._array.ndim <= len(rest)
    if alone:
        value = expand(value, (size, *rest))
    else:
        value = _beside("setitem", key, value)
    # What is not selected goes to one row more; what is wrong beyond that, where it is told of.
    index = where(index < 0, index + n, index)
    index = where((index < 0) | (index >= n), n + 1, index)
    index = where(key.mask, index, n)
    longer = cat([x, full((1, *rest), 0, x._dtype, x._device)])
    out = put_slices(longer, expand(value, (size, *rest)), index, 0, 1, False, "index")
    assign(x, narrow(out, 0, 0, n), "setitem")


def _beside(name: str, rows: Selected, value: Tensor) -> Tensor:
    """Rows beside selected places, which may be those that are selected alone."""
    return lined_up(name, rows, value) if type(value) is Selected else spread(name, value, rows)


def _added(function: Callable, *args: Any, **options: Any) -> Any:
    """``index_add`` at selected places."""
    x, dim, index, source, *more = (named := by_name(function, args, options)).values()
    first = next(v for v in named.values() if type(v) is Selected)
    if type(x) is Selected or type(index) is not Selected or dim % x._array.ndim:
        raise Unsized(first, f"{function.__name__} other than at selected rows")
    rows = kept(_beside(function.__name__, index, source), index.mask, 0)
    return function(x, dim, _index(function.__name__, index, index), rows, alpha=more[0])


def _added_in_place(function: Callable, x: Tensor, *args: Any, **options: Any) -> Tensor:
    """``index_add_``, likewise."""
    return assign(x, _added(index_add, x, *args, **options), "index_add_")


def _picked(function: Callable, *args: Any, **options: Any) -> Any:
    """``index_select`` of selected places, or of columns of selected rows."""
    x, dim, index = (named := by_name(function, args, options)).values()
    if type(x) is Selected and type(index) is not Selected and dim % x.rank:
        return x.beside(function(x.whole, dim, index))
    if type(x) is Selected or dim % x._array.ndim:
        raise Unsized(next(v for v in named.values() if type(v) is Selected), function.__name__)
    return taken(x, index)


RULES.update(index_add=_added, index_add_=_added_in_place, index_select=_picked)
