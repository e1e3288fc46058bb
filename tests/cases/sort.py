"""Rows of sorting and searching."""

from __future__ import annotations

from typing import Any

import numpy as np
from op_table import (
    FLOATS,
    NO_METHOD,
    NUMBERS,
    Case,
    Draw,
    Fixed,
    Sample,
    boolean,
    index,
    same,
    sample,
    wrong,
)

_ones = np.ones((2, 3), "float32")
_range = wrong(_ones, 2, raises=IndexError, words="Dimension out of range")
_empty = {"raises": RuntimeError, "words": "input tensor must be non-empty"}
_NO_QUANTILE = (
    wrong(np.ones((2, 0), "float32"), 0.5, **_empty),
    wrong(np.ones((2, 0), "float32"), np.ones(1, "float32"), 0, **_empty),
)


def _samples(draw: Draw) -> list[Sample]:
    return [
        sample(draw.distinct(5)),
        sample(draw.distinct(2, 3)),
        sample(draw.distinct(2, 3), 0),
        sample(draw.distinct(2, 3, 2), 1, True),
        sample(draw.distinct(2, 3), dim=-1, descending=True),
        sample(draw.distinct(), kind="scalar"),
        sample(draw.distinct(0, 3), kind="empty"),
        sample(draw.distinct(0, 3), 0, kind="empty"),
    ]


def _some_nan(draw: Draw) -> np.ndarray:
    values = draw.distinct(2, 5)
    values[0, 1] = values[1, 3] = values[1, 4] = np.nan
    return values


def argsort(x: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Positions in order; equal elements keep theirs."""
    if x.ndim == 0:
        return np.int64(0)
    if not descending:
        return np.argsort(x, axis=dim, kind="stable")
    return np.argsort(-x.astype("float64"), axis=dim, kind="stable")


def _take(x: Any, at: Any, dim: int = -1) -> Any:
    return np.take_along_axis(x, at, dim) if x.ndim else x


def _sort(x: Any, dim: int = -1, descending: bool = False) -> Any:
    at = argsort(x, dim, descending)
    return _take(x, at, dim), at


def _stable(x: Any, stable: bool, dim: int = -1, descending: bool = False) -> Any:
    return _sort(x, dim, descending)


def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if x.ndim == 0:
        return x, np.int64(0)
    at = argsort(x, dim, descending=largest).take(range(k), axis=dim)
    return _take(x, at, dim), at


def _kth(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    at = argsort(x, dim).take([k - 1], axis=dim)
    value = _take(x, at, dim)
    return (value, at) if keepdim else (value.squeeze(dim), at.squeeze(dim))


def _unique(x: Any, return_inverse: bool = False, return_counts: bool = False) -> Any:
    found = np.unique(x, return_inverse=return_inverse, return_counts=return_counts)
    return found


CASES = [
    Case("sort", _samples, _sort, dtypes=NUMBERS, result=(same, index), errors=(_range,)),
    Case(
        "sort-ties",
        lambda d: [
            sample(np.array([2, 1, 2, 1, 1], d.dtype), stable=True),
            sample(np.array([2, 1, 2, 1, 1], d.dtype), stable=True, descending=True),
        ],
        lambda x, **k: _stable(x, **k),
        dtypes=NUMBERS,
        result=(same, index),
        orders=0,
    ),
    Case(
        "msort",
        lambda d: [sample(d.distinct(4, 2)), sample(d.distinct(5))],
        lambda x: np.sort(x, axis=0),
        dtypes=NUMBERS,
    ),
    Case(
        "argsort",
        _samples,
        argsort,
        dtypes=NUMBERS,
        result=index,
        orders=0,
        errors=(_range,),
    ),
    Case(
        "topk",
        lambda d: [
            sample(d.distinct(6), 3),
            sample(d.distinct(2, 4), 2, 1),
            sample(d.distinct(3, 2), 2, 0, False),
            sample(d.distinct(3, 2), k=1, dim=-2),
            sample(d.distinct(), 1, kind="scalar"),
            sample(d.distinct(3), 0, kind="empty"),
        ],
        _topk,
        dtypes=NUMBERS,
        result=(same, index),
        errors=(
            wrong(_ones, 4, raises=RuntimeError, words="out of range"),
            wrong(_ones, 1, 2, raises=IndexError, words="Dimension out of range"),
        ),
    ),
    Case(
        "kthvalue",
        lambda d: [sample(d.distinct(5), 2), sample(d.distinct(2, 3), 1, 0, keepdim=True)],
        _kth,
        dtypes=NUMBERS,
        result=(same, index),
    ),
    Case(
        "unique",
        lambda d: [
            sample(np.array([3, 1, 2, 3, 1], d.dtype)),
            sample(np.array([[3, 1], [1, 2]], d.dtype)),
            sample(d(0), kind="empty"),
        ],
        _unique,
        dtypes=NUMBERS,
        orders=0,
    ),
    Case(
        "unique-all",
        lambda d: [
            sample(np.array([3, 1, 2, 3], d.dtype), return_inverse=True, return_counts=True)
        ],
        _unique,
        dtypes=NUMBERS,
        result=(same, index, index),
        orders=0,
    ),
    Case(
        "searchsorted",
        lambda d: [
            sample(np.sort(d.distinct(5)), d(2, 3)),
            sample(np.sort(d.distinct(5)), d(4), right=True),
        ],
        lambda edges, x, right=False: np.searchsorted(edges, x, "right" if right else "left"),
        dtypes=NUMBERS,
        result=index,
        orders=0,
        method=NO_METHOD,
    ),
    Case(
        "bucketize",
        lambda d: [sample(d(2, 3), np.sort(d.distinct(5)))],
        lambda x, edges: np.searchsorted(edges, x, "left"),
        dtypes=FLOATS,
        result=index,
        orders=0,
        method=NO_METHOD,
    ),
    Case(
        "bincount",
        lambda d: [
            sample(np.array([0, 2, 2, 1], d.dtype)),
            sample(np.array([0, 2], d.dtype), minlength=5),
        ],
        lambda x, minlength=0: np.bincount(x, minlength=minlength),
        dtypes=("int64",),
        result=index,
        orders=0,
        errors=(
            wrong(np.array([1, -2]), raises=RuntimeError, words="1-d non-negative"),
            wrong(np.array([[1, 2]]), raises=RuntimeError, words="1-d non-negative"),
            wrong(
                np.array([1, 2]), minlength=-1, raises=(RuntimeError, ValueError), words="minlength"
            ),
        ),
    ),
    Case(
        "histc",
        lambda d: [sample(d(2, 10), 4, -3, 3)],
        lambda x, bins, low, high: np.histogram(x, bins, (low, high))[0],
        orders=0,
    ),
    Case(
        "quantile",
        lambda d: [
            sample(d.distinct(7), 0.3),
            sample(d.distinct(2, 5), 0.6, 1),
            sample(d.distinct(3, 5), Fixed(np.array([0.25, 1.0], d.dtype)), 0, True),
            sample(d.distinct(2, 5), 0.3, dim=-1, interpolation="nearest"),
            sample(d.distinct(2, 5), 0.3, interpolation="midpoint"),
        ],
        lambda x, q, dim=None, keepdim=False, interpolation="linear": np.quantile(
            x, q, dim, keepdims=keepdim, method=interpolation
        ),
        rtol64=1e-9,
        errors=(
            *_NO_QUANTILE,
            wrong(_ones, 1.5, raises=(RuntimeError, ValueError), words="in the range"),
            wrong(_ones, 0.5, 2, raises=IndexError, words="Dimension out of range"),
        ),
    ),
    Case(
        "nanquantile",
        lambda d: [
            sample(d.distinct(7), 0.3),
            sample(d.distinct(2, 5), Fixed(np.array([0.25, 1.0], d.dtype)), 0, True),
            sample(_some_nan(d), 0.6, 1, kind="special"),
            sample(_some_nan(d), np.array([0.25, 1.0], d.dtype), 1, True, kind="special"),
            sample(_some_nan(d), 0.3, dim=-1, interpolation="nearest", kind="special"),
            sample(_some_nan(d), 0.3, interpolation="midpoint", kind="special"),
        ],
        lambda x, q, dim=None, keepdim=False, interpolation="linear": np.nanquantile(
            x, q, dim, keepdims=keepdim, method=interpolation
        ),
        rtol64=1e-9,
        errors=(
            *_NO_QUANTILE,
            wrong(_ones, 1.5, raises=(RuntimeError, ValueError), words="in the range"),
            wrong(_ones, 0.5, 2, raises=IndexError, words="Dimension out of range"),
        ),
    ),
    Case(
        "isin",
        lambda d: [
            sample(d.distinct(2, 3), d.distinct(3)),
            sample(d.distinct(4), d.distinct(2, 2), invert=True),
        ],
        np.isin,
        dtypes=(*FLOATS, "int64"),
        result=boolean,
        orders=0,
        method=NO_METHOD,
        peer=False,  # PyTorch's refuses a test tensor with gaps
    ),
]
