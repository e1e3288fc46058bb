"""Rows of indexing, its assignment, gather, scatter and masks."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_table import (
    ANY,
    EVERY,
    NUMBERS,
    Case,
    Draw,
    Sample,
    index,
    sample,
    wrong,
)

_ones = np.ones((2, 3), "float32")
_range = {"raises": IndexError, "words": "Dimension out of range"}
_outside = {"raises": (IndexError, RuntimeError), "words": "out of (range|bounds)"}


def get(x: Any, *key: Any) -> Any:
    """``x[key]``; one key stands alone."""
    return x[key[0] if len(key) == 1 else key]


def put(x: Any, value: Any, *key: Any) -> Any:
    """A copy of ``x`` with ``value`` assigned at ``key``."""
    x = x.clone() if hasattr(x, "clone") else x.copy()
    x[key[0] if len(key) == 1 else key] = value
    return x


def indexed(name: str, *keys: Any, shape: tuple[int, ...] = (3, 4), **options: Any) -> Case:
    """A row for reading: each of ``keys`` a tuple of what stands in the brackets."""

    kind = "empty" if 0 in shape else "plain"

    def samples(draw: Draw) -> list[Sample]:
        return [sample(draw(*shape), *key, kind=kind) for key in keys]

    options.setdefault("dtypes", NUMBERS)
    return Case(f"getitem-{name}", samples, get, call=get, **options)


def assigned(name: str, samples: Any, **options: Any) -> Case:
    """A row for assignment."""
    options.setdefault("dtypes", NUMBERS)
    return Case(f"setitem-{name}", samples, put, call=put, **options)


_rows = np.array([2, 0, 2])
_mask = np.array([[True, False, True, False]] * 2 + [[False] * 4])

READING = [
    indexed("int", (0,), (-1,), (1, 2), (np.int64(1),), dtypes=EVERY),
    indexed("slice", (slice(1, 3),), (slice(None, None, 2),), (slice(None), slice(1, None, 2))),
    indexed("slice-empty", (slice(2, 1),), (slice(5, 9),)),
    indexed("none", (None,), (slice(None), None), (None, 0, None)),
    indexed("ellipsis", (...,), (..., 1), (0, ...), (..., None)),
    indexed("tensor", (_rows,), (np.array([[0, 1], [-1, 2]]),), (np.array(1),)),
    indexed("list", ([2, 0],), ([0, 1], [3, 3])),
    indexed("tensors", (_rows, np.array([0, 3, 0])), (np.array([[1], [2]]), np.array([0, 3]))),
    indexed(
        "mixed",
        (slice(None), _rows),
        (1, _rows),
        (_rows, slice(1, 3)),
        (slice(0, 2), np.array([1, 1])),
        (None, _rows),
    ),
    indexed("apart", (_rows, slice(None), np.array([0, 1, 1])), shape=(3, 2, 2)),
    indexed("mask", (_mask,), (np.array([True, False, True]),), (np.zeros((3, 4), bool),)),
    indexed("mask-mixed", (slice(None), np.array([True, False, True, True])), (_mask[:, 0], 1)),
    indexed("empty-index", (np.zeros(0, "int64"),), (np.zeros((0, 2), "int64"),)),
    indexed("scalar", (...,), (None,), ((),), shape=()),
    indexed("of-empty", (slice(None),), (slice(None), 1), shape=(0, 3)),
    Case(
        "getitem-wrong",
        lambda d: [],
        get,
        call=get,
        dtypes=(),
        errors=(
            wrong(_ones, 2, raises=IndexError, words="out of bounds for dimension 0 with size 2"),
            wrong(_ones, 0, 0, 0, raises=IndexError, words="too many indices"),
            wrong(_ones, np.array([5]), raises=IndexError, words="out of (bounds|range)"),
            wrong(_ones, np.array([0.5]), raises=IndexError, words="indices must be"),
            wrong(_ones, np.ones(3, bool), raises=IndexError, words="mask"),
            wrong(_ones, slice(None, None, -1), raises=ValueError, words="step"),
            wrong(np.ones((), "float32"), 0, raises=IndexError, words="0-dim"),
            wrong(
                _ones,
                np.array([0, 1]),
                np.array([0, 1, 2]),
                raises=IndexError,
                words="shape mismatch|broadcast",
            ),
        ),
    ),
]

WRITING = [
    assigned(
        "number",
        lambda d: [
            sample(d(3, 4), 2, 0),
            sample(d(3, 4), 2, 1, 2),
            sample(d(3, 4), 2, slice(1, 3)),
            sample(d(3, 4), 0, ...),
            sample(d(3, 4), 1, _mask),
            sample(d(3, 4), 1, _rows),
            sample(d(), 2, ...),
        ],
        dtypes=ANY,
        result=lambda dtype: dtype,
    ),
    assigned(
        "tensor",
        lambda d: [
            sample(d(3, 4), d(4), 0),
            sample(d(3, 4), d(2, 2), slice(1, 3), slice(None, None, 2)),
            sample(d(3, 4), d(4), slice(1, 3)),
            sample(d(3, 4), d(1), 0),
            sample(d(3, 4), d(), slice(None)),
        ],
    ),
    assigned(
        "index",
        lambda d: [
            sample(d(3, 4), d(2, 4), np.array([2, 0])),
            sample(d(3, 4), d(2), np.array([2, 0]), np.array([1, 3])),
            sample(d(3, 4), d(3, 2), slice(None), np.array([3, 1])),
            sample(d(3, 4), d(4), np.array([2, 0])),
        ],
    ),
    assigned(
        "mask",
        lambda d: [sample(d(3, 4), d(4), _mask), sample(d(3, 4), d(), _mask)],
    ),
    assigned(
        "wrong",
        lambda d: [],
        dtypes=(),
        errors=(
            wrong(_ones, np.ones(2, "float32"), 0, raises=RuntimeError, words="expand|match"),
            wrong(_ones, 1.0, 2, raises=IndexError, words="out of bounds"),
            wrong(_ones, 1.0, np.array([0, 7]), raises=IndexError, words="out of (range|bounds)"),
        ),
    ),
]


def _at(shape: tuple[int, ...], dim: int, at: Any) -> tuple[Any, ...]:
    grid = list(np.indices(shape))
    grid[dim] = at
    return tuple(grid)


def gather(x: Any, dim: int, at: Any) -> Any:
    """Elements of x at positions along dim."""
    if at.ndim == 0:
        return x.reshape(-1)[at]
    return x[_at(at.shape, dim, at)]


def scatter(x: Any, dim: int, at: Any, source: Any) -> Any:
    """Copy of x with elements replaced along dim."""
    x = x.copy()
    where = _at(at.shape, dim, at)
    x[where] = source if np.ndim(source) == 0 else source[tuple(map(slice, at.shape))]
    return x


def scatter_add(x: Any, dim: int, at: Any, source: Any) -> Any:
    """Copy of x with elements added along dim."""
    x = x.copy()
    np.add.at(x, _at(at.shape, dim, at), source[tuple(map(slice, at.shape))])
    return x


JOIN = {"sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def scatter_reduce(
    x: Any, dim: int, at: Any, source: Any, reduce: str, include_self: bool = True
) -> Any:
    """Copy of x with elements joined along dim."""
    out, count = x.copy(), np.full(x.shape, int(include_self))
    where, source = _at(at.shape, dim, at), source[tuple(map(slice, at.shape))]
    if not include_self:
        start = {"sum": 0, "mean": 0, "prod": 1, "amax": x.min() - 99, "amin": x.max() + 99}
        out[where] = start[reduce]
    JOIN[reduce].at(out, where, source)
    np.add.at(count, where, 1)
    if reduce != "mean":
        return out
    return out / np.maximum(count, 1) if x.dtype.kind == "f" else out // np.maximum(count, 1)


def index_reduce(x: Any, dim: int, at: Any, source: Any, reduce: str, include_self=True) -> Any:
    """Copy of x with slices joined along dim."""
    at = np.broadcast_to(at.reshape([-1 if d == dim else 1 for d in range(x.ndim)]), source.shape)
    return scatter_reduce(x, dim, at, source, reduce, include_self)


def index_add(x: Any, dim: int, at: Any, source: Any, alpha: float = 1) -> Any:
    """Copy of x with slices added along dim."""
    x = np.moveaxis(x.copy(), dim, 0)
    np.add.at(x, at, alpha * np.moveaxis(source, dim, 0))
    return np.moveaxis(x, 0, dim)


def index_copy(x: Any, dim: int, at: Any, source: Any) -> Any:
    """Copy of x with slices replaced along dim."""
    x = np.moveaxis(x.copy(), dim, 0)
    x[at] = np.moveaxis(source, dim, 0)
    return np.moveaxis(x, 0, dim)


def index_fill(x: Any, dim: int, at: Any, value: float) -> Any:
    """Copy of x with slices filled along dim."""
    x = np.moveaxis(x.copy(), dim, 0)
    x[at] = value
    return np.moveaxis(x, 0, dim)


def index_put(x: Any, key: Any, values: Any, accumulate: bool = False) -> Any:
    """Copy of x with values at positions."""
    x = x.copy()
    if accumulate:
        np.add.at(x, key, values)
    else:
        x[key] = values
    return x


def masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    """Copy of x with the first elements of source where the mask holds."""
    x = x.copy()
    x[mask] = source[: mask.sum()]
    return x


_where = np.array([[0, 2, 0, 1], [1, 0, 2, 2]])
_once = np.array([[0, 2, 1, 0], [2, 0, 2, 1]])

CASES = [
    *READING,
    *WRITING,
    Case(
        "gather",
        lambda d: [
            sample(d(3, 4), 0, _where),
            sample(d(3, 4), 1, np.array([[3, 0], [1, 1], [2, 2]])),
            sample(d(3, 4), -1, np.array([[3], [1], [2]])),
            sample(d(3, 4), dim=0, index=_where),
            sample(d(), 0, np.array(0), kind="scalar"),
            sample(d(3, 4), 0, np.zeros((0, 4), "int64"), kind="empty"),
        ],
        lambda x, dim, index: gather(x, dim, index),
        dtypes=NUMBERS,
        errors=(
            wrong(_ones, 2, np.zeros((2, 3), "int64"), **_range),
            wrong(_ones, 0, np.full((2, 3), 2), **_outside),
            wrong(_ones, 0, np.zeros(3, "int64"), raises=RuntimeError, words="same number of dim"),
            wrong(_ones, 0, np.zeros((2, 3), "float32"), raises=RuntimeError, words="int64"),
        ),
    ),
    Case(
        "take_along_dim",
        lambda d: [sample(d(3, 4), np.array([[3, 0], [1, 1], [2, 2]]), 1)],
        np.take_along_axis,
        dtypes=NUMBERS,
    ),
    Case(
        "take",
        lambda d: [sample(d(3, 4), np.array([[3, 0], [11, -1]]))],
        np.take,
        dtypes=NUMBERS,
    ),
    Case(
        "scatter",
        lambda d: [
            sample(d(3, 4), 0, _once, d(2, 4)),
            sample(d(3, 4), 1, np.array([[3, 0], [1, 0], [2, 1]]), d(3, 2)),
            sample(d(3, 4), 0, _once, 2),
            sample(d(3, 4), 0, np.zeros((0, 4), "int64"), d(0, 4), kind="empty"),
        ],
        scatter,
        dtypes=NUMBERS,
        inplace="scatter_",
        errors=(
            wrong(_ones, 2, np.zeros((2, 3), "int64"), _ones, **_range),
            wrong(_ones, 0, np.full((2, 3), 2), _ones, **_outside),
        ),
    ),
    Case(
        "scatter-multiply",
        lambda d: [
            sample(d(3, 4), 0, _where, 2.5 if d.floating else 2, reduce="multiply"),
            sample(d(3, 4), 1, np.array([[3, 3], [1, 0]]), 3, reduce="multiply"),
        ],
        lambda x, dim, index, value, reduce: scatter_reduce(
            x, dim, index, np.full(index.shape, value), "prod"
        ),
        dtypes=NUMBERS,
        inplace="scatter_",
        orders=0,  # PyTorch has no gradient
        errors=(
            wrong(
                *(_ones, 0, np.zeros((1, 1), "int64"), 2),
                reduce="mean",
                raises=(RuntimeError, ValueError),
                words="'?add'? or '?multiply",
            ),
        ),
    ),
    Case(
        "scatter_add",
        lambda d: [
            sample(d(3, 4), 0, _where, d(2, 4)),
            sample(d(3, 4), 1, np.array([[3, 3], [1, 0], [2, 2]]), d(3, 2)),
            sample(d(3, 4), 0, np.zeros((0, 4), "int64"), d(0, 4), kind="empty"),
        ],
        scatter_add,
        dtypes=NUMBERS,
        inplace="scatter_add_",
        errors=(wrong(_ones, 0, np.full((2, 3), 2), _ones, **_outside),),
    ),
    Case(
        "scatter_reduce",
        lambda d: [
            sample(d(3, 4), 0, _where, d.distinct(2, 4), "prod"),
            sample(d(3, 4), 1, np.array([[3, 3], [1, 0], [2, 2]]), d.distinct(3, 2), "mean"),
            sample(d(3, 4), 0, _where, d.distinct(2, 4), "amax"),
            sample(d(3, 4), 0, _where, d.distinct(2, 4), "amin", include_self=False),
            sample(d(3, 4), 1, np.array([[0, 0]]), d.distinct(1, 2), "prod", include_self=False),
            sample(d(3, 4), 0, _where, d(2, 4), "sum", include_self=False),
            sample(d(3, 4), 0, np.zeros((0, 4), "int64"), d(0, 4), "mean", kind="empty"),
        ],
        scatter_reduce,
        dtypes=NUMBERS,
        inplace="scatter_reduce_",
        repeats=False,
        errors=(
            *(
                wrong(
                    *(_ones, 0, np.full((2, 3), 2), _ones, reduce),
                    include_self=own,
                    raises=(IndexError, RuntimeError),
                    words="^scatter_reduce: index 2 is out of bounds",
                )
                for reduce in ("amax", "sum", "mean")
                for own in (True, False)
            ),
            wrong(
                *(_ones, 0, np.zeros((2, 3), "int64"), _ones, "max"),
                raises=(RuntimeError, ValueError),
                words="must be either sum, prod, mean, amax or amin",
            ),
        ),
    ),
    Case(
        "index_reduce",
        lambda d: [
            sample(d(3, 4), 0, np.array([2, 0, 2]), d.distinct(3, 4), "prod"),
            sample(d(3, 4), 1, np.array([1, 1]), d.distinct(3, 2), "amax", include_self=False),
        ],
        index_reduce,
        dtypes=NUMBERS,
        inplace="index_reduce_",
        repeats=False,
        errors=(wrong(_ones, 0, np.array([5, 0]), _ones, "amin", **_outside),),
    ),
    Case(
        "index_select",
        lambda d: [
            sample(d(3, 4), 0, _rows),
            sample(d(3, 4), 1, np.array([3, 3])),
            sample(d(3, 4), -1, np.zeros(0, "int64"), kind="empty"),
        ],
        lambda x, dim, at: x.take(at, axis=dim),
        dtypes=NUMBERS,
        errors=(
            wrong(_ones, 0, np.array([2]), **_outside),
            wrong(_ones, 2, np.array([0]), **_range),
        ),
    ),
    Case(
        "index_add",
        lambda d: [
            sample(d(3, 4), 0, _rows, d(3, 4)),
            sample(d(3, 4), 1, np.array([3, 3]), d(3, 2)),
            sample(d(3, 4), 0, _rows, d(3, 4), alpha=2),
        ],
        index_add,
        dtypes=NUMBERS,
        inplace="index_add_",
        errors=(wrong(_ones, 0, np.array([2]), np.ones((1, 3), "float32"), **_outside),),
    ),
    Case(
        "index_copy",
        lambda d: [sample(d(3, 4), 0, np.array([2, 0]), d(2, 4))],
        index_copy,
        dtypes=NUMBERS,
        inplace="index_copy_",
    ),
    Case(
        "index_fill",
        lambda d: [sample(d(3, 4), 1, np.array([2, 0]), 2)],
        index_fill,
        dtypes=NUMBERS,
        inplace="index_fill_",
    ),
    Case(
        "masked_select",
        lambda d: [
            sample(d(3, 4), _mask),
            sample(d(3, 4), np.array([True, False, False, True])),
            sample(d(3, 4), np.zeros((3, 4), bool), kind="empty"),
        ],
        lambda x, mask: x[np.broadcast_to(mask, x.shape)],
        dtypes=NUMBERS,
        errors=(wrong(_ones, np.zeros((2, 3), "int64"), raises=RuntimeError, words="[Bb]ool"),),
    ),
    Case(
        "nonzero",
        lambda d: [sample(d(3, 4)), sample(d(0, 3), kind="empty"), sample(_mask)],
        lambda x: np.stack(np.nonzero(x), 1),
        dtypes=ANY,
        result=index,
        orders=0,
    ),
    Case(
        "index_put",
        lambda d: [
            sample(d(3, 4), (np.array([2, 0]),), d(4)),
            sample(d(3, 4), (np.array([2, 0]), np.array([1, 3])), d(2)),
            sample(d(3, 4), (_rows, np.array([1, 1, 1])), d(3), accumulate=True),
        ],
        index_put,
        dtypes=NUMBERS,
        inplace="index_put_",
    ),
    Case(
        "masked_scatter",
        lambda d: [sample(d(3, 4), _mask, d(5)), sample(d(3, 4), np.zeros((3, 4), bool), d(2))],
        masked_scatter,
        dtypes=NUMBERS,
        inplace="masked_scatter_",
    ),
    Case(
        "argwhere",
        lambda d: [sample(d(3, 4)), sample(_mask)],
        np.argwhere,
        dtypes=ANY,
        result=index,
        orders=0,
    ),
    Case(
        "nonzero-tuple",
        lambda d: [sample(_mask.astype(d.dtype), as_tuple=True)],
        lambda x, as_tuple: np.nonzero(x),
        dtypes=NUMBERS,
        result=index,
        orders=0,
    ),
    Case(
        "where-one",
        lambda d: [sample(_mask)],
        lambda mask: np.nonzero(mask),
        function="where",
        method="-",
        dtypes=("float64",),
        result=index,
        orders=0,
    ),
]
