"""Rows of the reductions and the running sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
from op_table import (
    ANY,
    FLOATS,
    NO_METHOD,
    NUMBERS,
    Case,
    Draw,
    DTypeName,
    Sample,
    boolean,
    float64,
    floating,
    index,
    same,
    sample,
    summed,
    wrong,
)

_ones = np.ones((2, 3), "float32")
_ints = np.ones((2, 3), "int64")
OUT_OF_RANGE = wrong(_ones, 2, raises=IndexError, words="Dimension out of range")
REPEATED = wrong(_ones, (0, 0), raises=RuntimeError, words="appears multiple times")
EMPTY = np.ones((0, 3), "float32")


def reduction(draw: Draw) -> list[Sample]:
    """All elements; one dim, counted from either end; several; kept."""
    return [
        sample(draw(2, 3)),
        sample(draw(2, 3, 2), 1),
        sample(draw(2, 3, 2), -1),
        sample(draw(2, 3), 0, keepdim=True),
        sample(draw(2, 3, 2), (0, 2)),
        sample(draw(2, 3, 2), (0, -2), keepdim=True),
        sample(draw(2, 3), dim=1),
        sample(draw(), kind="scalar"),
        sample(draw(), 0, kind="scalar"),
        sample(draw(0, 3), kind="empty"),
        sample(draw(0, 3), 0, kind="empty"),
        sample(draw(0, 3), 1, kind="empty"),
    ]


def without_empty(samples: Any) -> Any:
    """The same samples where an empty one has no value."""
    return lambda draw: [s for s in samples(draw) if s.kind != "empty"]


def one_dim(draw: Draw) -> list[Sample]:
    """A reduction that takes one dim and needs elements there."""
    return [
        sample(draw.distinct(2, 3), 0),
        sample(draw.distinct(2, 3, 2), 1),
        sample(draw.distinct(2, 3, 2), -1),
        sample(draw.distinct(2, 3), 1, keepdim=True),
        sample(draw.distinct(), 0, kind="scalar"),
        sample(draw.distinct(0, 3), 1, kind="empty"),
    ]


def whole(draw: Draw) -> list[Sample]:
    """All elements, no two equal."""
    return [sample(draw.distinct(2, 3)), sample(draw.distinct(), kind="scalar")]


def distinct_dims(draw: Draw) -> list[Sample]:
    """``reduction`` on elements of which no two are equal."""
    return [
        sample(draw.distinct(2, 3)),
        sample(draw.distinct(2, 3, 2), 1),
        sample(draw.distinct(2, 3, 2), (0, 2)),
        sample(draw.distinct(2, 3), -1, keepdim=True),
        sample(draw.distinct(), kind="scalar"),
        sample(draw.distinct(0, 3), 1, kind="empty"),
    ]


def axes(function: Any) -> Any:
    """A NumPy reduction with PyTorch's names."""

    def oracle(x: Any, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
        if np.ndim(x) == 0:
            dim = None
        return function(x, axis=dim, keepdims=keepdim, **kwargs)

    return oracle


def with_index(value: Any, position: Any) -> Any:
    """A reduction that gives (value, index)."""

    def oracle(x: Any, dim: int, keepdim: bool = False) -> Any:
        if x.ndim == 0:
            return x, np.int64(0)
        return value(x, axis=dim, keepdims=keepdim), position(x, axis=dim, keepdims=keepdim)

    return oracle


def argument(function: Any) -> Any:
    """argmax and argmin."""

    def oracle(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        return function(x, axis=dim if x.ndim else None, keepdims=keepdim)

    return oracle


def median(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """PyTorch's: the lower of the two in the middle."""
    if axis is None:
        return np.sort(x.reshape(-1))[(x.size - 1) // 2] if x.size else np.nan
    middle = np.sort(x, axis=axis).take([(x.shape[axis] - 1) // 2], axis=axis)
    return middle if keepdims else middle.squeeze(axis)


def median_position(x: Any, axis: int, keepdims: bool = False) -> Any:
    """Where the median stands."""
    at = np.argsort(x, axis=axis).take([(x.shape[axis] - 1) // 2], axis=axis)
    return at if keepdims else at.squeeze(axis)


def variance(function: Any) -> Any:
    """var and std with a correction."""

    def oracle(
        x: Any, dim: Any = None, keepdim: bool = False, correction: int = 1, unbiased: bool = True
    ) -> Any:
        correction = correction if unbiased else 0
        return function(x, axis=dim, keepdims=keepdim, ddof=correction)

    return oracle


def spread(draw: Draw) -> list[Sample]:
    """Samples of var and std, where two elements at least are averaged."""
    return [
        sample(draw(2, 3)),
        sample(draw(2, 3, 2), 1),
        sample(draw(2, 3), 0, keepdim=True),
        sample(draw(2, 3, 2), (0, 2)),
        sample(draw(2, 3), unbiased=False),
        sample(draw(2, 3), dim=1, correction=0),
    ]


def norm(x: Any, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Any:
    """A vector norm over the dims."""
    x = np.abs(x)
    if p in (np.inf, -np.inf):
        return (np.max if p > 0 else np.min)(x, axis=dim, keepdims=keepdim)
    if p == 0:
        return np.sum(x != 0, axis=dim, keepdims=keepdim)
    return np.sum(x**p, axis=dim, keepdims=keepdim) ** (1 / p)


def norms(draw: Draw) -> list[Sample]:
    """Orders and dims of norm."""
    return [
        sample(draw(2, 3)),
        sample(draw(2, 3), 2, 1),
        sample(draw(2, 3), 1),
        sample(draw(2, 3), 3, 0, keepdim=True),
        sample(draw(2, 3), p=2, dim=-1),
        sample(draw.distinct(2, 3), float("inf")),
        sample(draw(), kind="scalar"),
    ]


def running(draw: Draw) -> list[Sample]:
    """Samples of cumsum and cumprod."""
    return [
        sample(draw(2, 3), 0),
        sample(draw(2, 3, 2), 1),
        sample(draw(4), -1),
        sample(draw(2, 3), dim=1),
        sample(draw(), 0, kind="scalar"),
        sample(draw(0, 3), 0, kind="empty"),
    ]


def along(function: Any) -> Any:
    """A NumPy running sum with PyTorch's name of the axis."""
    return lambda x, dim: function(x, axis=dim) if x.ndim else x


_logsumexp_error = wrong(_ones, 2, raises=IndexError, words="Dimension out of range")
_no_elements = wrong(EMPTY, raises=RuntimeError, words=r"input.numel\(\) == 0")
_no_elements_dim = wrong(EMPTY, 0, raises=IndexError, words="reduction dim 0")

CASES = [
    Case(
        "sum",
        reduction,
        axes(np.sum),
        dtypes=ANY,
        result=summed,
        errors=(OUT_OF_RANGE, REPEATED),
    ),
    Case(
        "sum-dtype",
        lambda d: [sample(d(2, 3), dtype=DTypeName("float64"))],
        lambda x, dtype: np.sum(x, dtype=dtype),
        dtypes=ANY,
        result=float64,
        orders=0,
    ),
    Case(
        "mean",
        reduction,
        axes(np.mean),
        errors=(OUT_OF_RANGE, wrong(_ints, raises=RuntimeError, words="floating point")),
    ),
    Case(
        "prod",
        lambda d: [
            sample(d(2, 3)),
            sample(d(2, 3, 2), 1),
            sample(d(2, 3), -1, keepdim=True),
            sample(d(), kind="scalar"),
            sample(d(0, 3), kind="empty"),
            sample(d(0, 3), 0, kind="empty"),
        ],
        axes(np.prod),
        dtypes=NUMBERS,
        result=summed,
        errors=(OUT_OF_RANGE,),
    ),
    Case(
        "prod-zeros",
        lambda d: [
            sample(np.array([[1, 0, 3], [0, 0, 2]], d.dtype)),
            sample(np.array([[1, 0, 3], [0, 0, 2]], d.dtype), 1),
        ],
        axes(np.prod),
    ),
    Case("max", whole, np.max, dtypes=ANY, errors=(_no_elements,)),
    Case("min", whole, np.min, dtypes=ANY, errors=(_no_elements,)),
    Case(
        "max-dim",
        one_dim,
        with_index(np.max, np.argmax),
        dtypes=NUMBERS,
        result=(same, index),
        errors=(OUT_OF_RANGE, _no_elements_dim),
    ),
    Case(
        "min-dim",
        one_dim,
        with_index(np.min, np.argmin),
        dtypes=NUMBERS,
        result=(same, index),
        errors=(OUT_OF_RANGE, _no_elements_dim),
    ),
    Case(
        "max-pair",
        lambda d: [sample(d(2, 3), d(3))],
        np.maximum,
        dtypes=NUMBERS,
    ),
    Case("amax", distinct_dims, axes(np.max), dtypes=NUMBERS, errors=(OUT_OF_RANGE,)),
    Case("amin", distinct_dims, axes(np.min), dtypes=NUMBERS, errors=(OUT_OF_RANGE,)),
    Case(
        "aminmax",
        lambda d: [sample(d.distinct(2, 3)), sample(d.distinct(2, 3), dim=1)],
        lambda x, dim=None: (np.min(x, axis=dim), np.max(x, axis=dim)),
        dtypes=NUMBERS,
        errors=(
            wrong(EMPTY, raises=RuntimeError, words="aminmax"),
            wrong(EMPTY, dim=0, raises=IndexError, words="aminmax.*reduction dim 0"),
        ),
    ),
    Case(
        "argmax",
        lambda d: [*whole(d), *one_dim(d)],
        argument(np.argmax),
        dtypes=NUMBERS,
        result=index,
        orders=0,
        errors=(OUT_OF_RANGE, wrong(EMPTY, raises=IndexError, words="argmax")),
    ),
    Case(
        "argmin",
        lambda d: [*whole(d), *one_dim(d)],
        argument(np.argmin),
        dtypes=NUMBERS,
        result=index,
        orders=0,
        errors=(OUT_OF_RANGE, wrong(EMPTY, raises=IndexError, words="argmin")),
    ),
    Case(
        "all", reduction, axes(np.all), dtypes=(*FLOATS, "int64", "bool"), result=boolean, orders=0
    ),
    Case(
        "any", reduction, axes(np.any), dtypes=(*FLOATS, "int64", "bool"), result=boolean, orders=0
    ),
    Case(
        "count_nonzero",
        lambda d: [sample(d(2, 3)), sample(d(2, 3), 1), sample(d(0, 3), kind="empty")],
        lambda x, dim=None: np.count_nonzero(x, axis=dim),
        dtypes=ANY,
        result=index,
        orders=0,
    ),
    Case(
        "var",
        spread,
        variance(np.var),
        errors=(OUT_OF_RANGE, wrong(_ints, raises=RuntimeError, words="floating point")),
    ),
    Case("std", spread, variance(np.std), errors=(OUT_OF_RANGE,)),
    Case(
        "var_mean",
        spread,
        lambda x, dim=None, **k: (
            variance(np.var)(x, dim, **k),
            np.mean(x, axis=dim, keepdims=k.get("keepdim", False)),
        ),
        method=NO_METHOD,
    ),
    Case(
        "std_mean",
        spread,
        lambda x, dim=None, **k: (
            variance(np.std)(x, dim, **k),
            np.mean(x, axis=dim, keepdims=k.get("keepdim", False)),
        ),
        method=NO_METHOD,
    ),
    Case("norm", norms, norm, avoid=(0.0,)),
    Case(
        "logsumexp",
        lambda d: [
            sample(d(2, 3), 1),
            sample(d(2, 3, 2), (0, 2)),
            sample(d(2, 3), 0, keepdim=True),
            sample(d(), 0, kind="scalar"),
            sample(d(0, 3), 1, kind="empty"),
        ],
        axes(scipy.special.logsumexp),
        dtypes=(*FLOATS, "int64"),
        result=floating,
        errors=(_logsumexp_error,),
    ),
    Case(
        "median",
        lambda d: [
            *whole(d),
            sample(d.distinct(5)),
            *[sample(d(0, 3), kind="empty") for _ in range(d.floating)],
        ],
        median,
        dtypes=NUMBERS,
    ),
    Case(
        "median-dim",
        lambda d: [s for s in one_dim(d) if s.kind == "plain"],
        with_index(median, median_position),
        dtypes=NUMBERS,
        repeats=False,
        result=(same, index),
    ),
    Case(
        "nansum",
        lambda d: [sample(np.array([1, np.nan, 2], d.dtype)), sample(d(2, 3), 1)],
        axes(np.nansum),
        orders=0,
    ),
    Case(
        "nanmean",
        lambda d: [sample(np.array([1, np.nan, 2], d.dtype)), sample(d(2, 3), 1)],
        axes(np.nanmean),
        orders=0,
    ),
    Case(
        "cumsum",
        running,
        along(np.cumsum),
        dtypes=NUMBERS,
        result=summed,
        inplace="cumsum_",
        errors=(OUT_OF_RANGE,),
    ),
    Case(
        "cumprod",
        running,
        along(np.cumprod),
        dtypes=NUMBERS,
        result=summed,
        avoid=(0.0,),
        inplace="cumprod_",
        errors=(OUT_OF_RANGE,),
    ),
    Case(
        "cummax",
        lambda d: [sample(d.distinct(2, 3), 1)],
        lambda x, dim: (
            np.maximum.accumulate(x, axis=dim),
            np.argmax(
                np.expand_dims(x, -2) >= np.maximum.accumulate(x, axis=dim)[..., None], axis=-1
            ),
        ),
        result=(same, index),
    ),
    Case(
        "cummin",
        lambda d: [sample(d.distinct(2, 3), 1)],
        lambda x, dim: (
            np.minimum.accumulate(x, axis=dim),
            np.argmax(
                np.expand_dims(x, -2) <= np.minimum.accumulate(x, axis=dim)[..., None], axis=-1
            ),
        ),
        result=(same, index),
    ),
    Case(
        "diff",
        lambda d: [sample(d(2, 4)), sample(d(3, 2), dim=0), sample(d(5), n=2)],
        lambda x, n=1, dim=-1: np.diff(x, n, axis=dim),
    ),
]
