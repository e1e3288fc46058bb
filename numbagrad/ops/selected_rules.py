"""What functions give for rows that a mask selects while a step is recorded: see ``selected.py``.

Of what goes element by element or row by row the result is computed for all rows, selected or not.
No value of a row that is not selected reaches another, and no gradient: there is a gate where rows
come in, where they go out, and before what all rows share. A gate is ``where(mask, x, 1)``, whose
gradient is 0 where the mask does not hold, also in the place of NaN. Start reading at ``as_whole``.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..errors import ShapeError
from ..kernels import machine
from ..tensor import Tensor
from . import reduce
from .base import normalize_dims
from .elementwise import cast, where
from .masks import masked_scatter
from .remembered import plainly
from .selected import RULES, Selected, Unsized
from .view import expand, reshape

__all__: list[str] = []  # nothing that users call


def beside_rows(mask: Tensor, whole: Tensor) -> Tensor:
    """``mask`` (n) with as many dimensions as ``whole``."""
    return reshape(mask, (*mask._array.shape, *[1] * (whole._array.ndim - 1)))


def kept(whole: Tensor, mask: Tensor, other: Any) -> Tensor:
    """``whole`` where ``mask`` (n) holds, else a number."""
    kind = whole._dtype
    number = bool(other) if kind is dtypes.bool_ else other
    number = float(other) if kind.is_floating_point else number
    found: Tensor = where(beside_rows(mask, whole), whole, number)
    return found


def gated(whole: Tensor, mask: Tensor) -> Tensor:
    """``whole`` where ``mask`` (n) holds; no gradient passes where it does not. Numbers there are
    such as have a logarithm and a root, whole ones name a class and a row."""
    return kept(whole, mask, 1 if whole._dtype.is_floating_point else 0)


# -- operands beside selected rows -----------------------------------------------------------------


def first_of(args: Any) -> Selected:
    return next(a for a in args if type(a) is Selected)


def as_whole(name: str, rows: Selected, x: Any) -> Any:
    """An operand beside ``rows``, as it stands beside their whole."""
    if not isinstance(x, Tensor):
        return x
    if type(x) is Selected:
        if x.rank != rows.rank:
            raise ShapeError(
                f"{name}: of what masks select {x.rank} and {rows.rank} dimensions do not "
                f"broadcast. Use unsqueeze(1) for a column of one number for each row."
            )
        return lined_up(name, rows, x)
    shape = x._array.shape
    if len(shape) > rows.rank:
        raise Unsized(rows, f"{name} with a tensor of shape {list(shape)}")
    if len(shape) == rows.rank and shape[0] != 1:
        return spread(name, x, rows)
    if x._edge is None:
        return x
    widest = rows.whole._array.shape
    sizes = [b if a == 1 else a for a, b in zip((1,) * rows.rank, widest, strict=True)]
    for k in range(1, len(shape) + 1):
        sizes[-k] = widest[-k] if shape[-k] == 1 else shape[-k]
    sizes[0] = widest[0]
    return gated(expand(x, tuple(sizes)), rows.mask)


def lined_up(name: str, rows: Selected, other: Selected) -> Tensor:
    """The whole of ``other``, whose mask has to be that of ``rows``: else a call raises."""
    one, two = rows.key, other.key
    if one[0] is two[0] and one[1:] == two[1:] and one[0]._version == one[1]:
        return other.whole
    n, m = rows.mask._array.size, other.mask._array.size
    if n != m:
        raise ShapeError(
            f"{name}: what is selected by masks of {n} and of {m} elements cannot be compiled "
            f"together. Use the same mask."
        )

    def fail(_: int) -> None:
        raise ShapeError(
            f"{name}: two masks select different elements, and a compiled function takes the "
            f"elements of one beside those of another only where they are the same. Rows that are "
            f"sorted, or some of those that a mask selects, stand in other places than these."
        )

    differs = reduce.any(rows.mask.logical_xor(other.mask))
    machine.check(where(differs, 0, -1).reshape((1,))._array, fail)
    return other.whole


def spread(name: str, x: Tensor, rows: Selected) -> Tensor:
    """``x`` (number of rows, ...), each row where one is selected, and no row elsewhere.

    Calls raise ShapeError where there are more or fewer.
    """
    have, mask = x._array.shape, rows.mask
    count, rest = have[0], have[1:]

    def fail(got: int) -> None:
        raise ShapeError(
            f"{name}: shape mismatch: a tensor of shape {list(have)} does not fit the {got} "
            f"rows that a mask selects."
        )

    held = mask.sum()
    machine.check(where(held.eq(count), -1, held).reshape((1,))._array, fail)
    shape = (mask._array.size, *rest)
    wide = expand(reshape(mask, (*mask._array.shape, *[1] * len(rest))), shape)
    empty = x.new_full(shape, 1 if x._dtype.is_floating_point else 0)
    # One row more, for fewer rows than are selected are told of above.
    return gated(masked_scatter(empty, wide, x), mask)


def pointwise(op: Any, args: tuple) -> Selected:
    """An elementwise op of selected rows and what broadcasts to each."""
    rows = widest_of(args)
    return rows.beside(op(*[as_whole(op.name, rows, a) for a in args]))


def widest_of(args: tuple) -> Selected:
    """The rows among ``args`` whose whole has most elements: others broadcast to them."""
    found = [a for a in args if type(a) is Selected]
    return max(found, key=lambda rows: rows.whole._array.size)


# -- rules -----------------------------------------------------------------------------------------


@functools.cache
def _signature(function: Callable) -> inspect.Signature:
    return inspect.signature(plainly(function))


def by_name(function: Callable, args: tuple, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, defaults included."""
    bound = _signature(function).bind(*args, **options)
    bound.apply_defaults()
    return dict(bound.arguments)


def keywords_of(named: dict[str, Any]) -> dict[str, Any]:
    """Keywords for a call with ``named`` arguments."""
    return {k: v for k, v in named.items() if k != "names"} | named.get("names", {})


def dims_of(function: Callable, named: dict[str, Any], rows: Selected) -> tuple[int, ...] | None:
    """The dims over which a function goes, None for all."""
    dim = named.get("names", {}).get("axis", named.get("dim"))
    if dim is None or dim == () or type(dim) is bool:
        return None
    return normalize_dims(function.__name__, dim, rows.rank)


def by_rows(function: Callable, *args: Any, **options: Any) -> Any:
    """A function that goes along dims within each row."""
    named = by_name(function, args, options)
    rows = first_of(named.values())
    if isinstance(named.get("dim"), Tensor):  # an operand: ``max`` of two
        return rows_of(function, named, rows)
    dims = dims_of(function, named, rows)
    if dims is not None and 0 not in dims:
        return rows_of(function, named, rows)
    rule = OVER_ALL.get(function.__name__)
    if rule is None:
        raise Unsized(rows, f"{function.__name__} over all rows")
    return rule(function, named, rows, dims)


OVER_ALL: dict[str, Callable[..., Any]] = {}
"""By the name of a function, what it gives over all rows: called with the function, its arguments
by name, the rows among them, and the dims, None for all. ``selected_over_all`` fills it."""


def rows_of(function: Callable, named: dict[str, Any], rows: Selected) -> Any:
    """What a function gives for all rows."""
    name = function.__name__
    found = function(**{k: as_whole(name, rows, v) for k, v in keywords_of(named).items()})
    if isinstance(found, tuple):
        return type(found)(*[rows.beside(each) for each in found])
    return rows.beside(found)


def _folded(function: Callable, *args: Any, **options: Any) -> Any:
    """A sum, a product, any or all: of all rows, or within each."""
    neutral = {"sum": 0, "nansum": 0, "count_nonzero": 0, "any": 0, "prod": 1, "all": 1}
    named = by_name(function, args, options)
    rows = first_of(named.values())
    dims = dims_of(function, named, rows)
    if dims is not None and 0 not in dims:
        return rows_of(function, named, rows)
    left = kept(rows.whole, rows.mask, neutral[function.__name__])
    given = {k: left if v is rows else v for k, v in keywords_of(named).items()}
    return function(**given)


def _mean(function: Callable, *args: Any, **options: Any) -> Any:
    """The mean of all rows, or within each."""
    named = by_name(function, args, options)
    rows = first_of(named.values())
    dims = dims_of(function, named, rows)
    kind = named["dtype"]
    if dims is not None and 0 not in dims:
        return rows_of(function, named, rows)
    whole = rows.whole if kind is None else cast(rows.whole, dtypes.to_dtype(kind))
    if not whole._dtype.is_floating_point:
        return function(whole)  # which says so
    sizes = whole._array.shape
    times = math.prod([n for d, n in enumerate(sizes) if d and (dims is None or d in dims)])
    wide = dtypes.float32 if whole._dtype.itemsize == 2 else whole._dtype  # a sum may be too large
    left = cast(kept(whole, rows.mask, 0), wide)
    total = reduce.sum(left, dims, named["names"].get("keepdims", named["keepdim"]))
    return cast(total / (rows.mask.sum() * times), whole._dtype)


def product_of_rows(function: Callable, *args: Any, **options: Any) -> Any:
    """``linear`` and products of rows with a matrix, whose gradient adds up those of all rows."""
    named = by_name(function, args, options)
    rows, *shared = named.values()
    other = [s for s in shared if type(s) is Selected]
    if type(rows) is not Selected or other or rows.rank < 2 or shared[0]._array.ndim != 2:
        raise Unsized((other or [rows])[0], f"{function.__name__} with other than a matrix")
    return _sharing(function, rows, shared)


def _norm(function: Callable, *args: Any, **options: Any) -> Any:
    """A norm within each row, whose weights all rows share."""
    rows, shape, *shared = by_name(function, args, options).values()
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if type(rows) is not Selected or len(sizes) >= rows.rank:
        raise Unsized(first_of(args), f"{function.__name__} over all rows")
    return _sharing(function, rows, [shape, *shared])


def _slope(function: Callable, *args: Any, **options: Any) -> Any:
    """``prelu``, whose slopes all rows share."""
    rows, *shared = by_name(function, args, options).values()
    if type(rows) is not Selected:
        raise Unsized(first_of(shared), f"{function.__name__} with such slopes")
    return _sharing(function, rows, shared)


def _sharing(function: Callable, rows: Selected, shared: list[Any]) -> Selected:
    """What a function gives for each row and what all rows share."""
    found = function(gated(rows.whole, rows.mask), *shared)
    return rows.beside(gated(found, rows.mask))


def _embedding(function: Callable, *args: Any, **options: Any) -> Any:
    """Rows of a table at selected places."""
    named = by_name(function, args, options)
    rows = named["input"]
    if type(rows) is not Selected:
        raise Unsized(first_of(named.values()), "embedding in a table")
    if named["max_norm"] is not None or named["scale_grad_by_freq"]:
        raise Unsized(rows, "embedding with max_norm or scale_grad_by_freq")
    named["input"] = kept(rows.whole, rows.mask, 0)
    return rows.beside(gated(function(**named), rows.mask))


def _gather(function: Callable, *args: Any, **options: Any) -> Any:
    """Numbers of each row, by an index that has a row for each."""
    named = by_name(function, args, options)
    index, rows = named["index"], next(iter(named.values()))
    if type(rows) is not Selected:
        raise Unsized(first_of(named.values()), "gather from other rows")
    if type(index) is Selected:
        named["index"] = index.beside(kept(index.whole, index.mask, 0))
    elif index._array.ndim == rows.rank and index._array.shape[0] == 1:
        raise Unsized(rows, "gather by an index of one row")
    return by_rows(function, **named)


def _flip(function: Callable, *args: Any, **options: Any) -> Any:
    """Each row turned round."""
    named = by_name(function, args, options)
    rows, dims = first_of(named.values()), named["dims"]
    dims = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
    if 0 in normalize_dims("flip", tuple(dims), rows.rank):
        raise Unsized(rows, "flip over all rows")
    return rows.beside(function(rows.whole, dims))


def _one_hot(function: Callable, *args: Any, **options: Any) -> Any:
    """A row of zeros and a 1 for each selected class."""
    named = by_name(function, args, options)
    rows = first_of(named.values())
    return rows.beside(function(kept(rows.whole, rows.mask, 0), named["num_classes"]))


_ROW_BY_ROW = """
    glu softmax log_softmax softmin logsumexp amax amin argmax argmin max min var std norm normalize
    cumsum cumprod sort argsort topk nanmean cosine_similarity aminmax var_mean std_mean
    median nanmedian kthvalue
"""
RULES.update(dict.fromkeys(_ROW_BY_ROW.split(), by_rows))
RULES.update(dict.fromkeys("sum prod any all count_nonzero nansum".split(), _folded))
RULES.update(dict.fromkeys("linear matmul mm".split(), product_of_rows))
RULES.update(
    gather=_gather,
    mean=_mean,
    embedding=_embedding,
    layer_norm=_norm,
    rms_norm=_norm,
    prelu=_slope,
    flip=_flip,
    one_hot=_one_hot,
)
