"""Rows of rarer functions: typical values, flat positions, slopes, windows, older names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.signal
from op_table import (
    FLOATS,
    NO_METHOD,
    NUMBERS,
    Case,
    Draw,
    DTypeName,
    Fixed,
    Sample,
    float32,
    float64,
    index,
    same,
    sample,
    wrong,
)

_vector, _matrix = np.ones(3, "float32"), np.ones((2, 3), "float32")
_range: Any = {"raises": IndexError, "words": "Dimension out of range"}


def _logcumsumexp(x: Any, dim: int) -> Any:
    return np.logaddexp.accumulate(x, dim) if x.ndim else x


def _renorm(x: Any, p: Any, dim: int, maxnorm: Any) -> Any:
    rows = np.moveaxis(x, dim, 0)
    norm = (np.abs(rows.reshape(len(rows), -1)) ** p).sum(1) ** (1 / p)
    factor = np.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1)
    return np.moveaxis(rows * factor.reshape(-1, *[1] * (x.ndim - 1)), 0, dim)


def _with_nan(draw: Draw, *shape: int) -> Any:
    x = draw.distinct(*shape)
    if draw.floating:
        x.flat[:: 3 if x.size > 3 else 5] = np.nan
    return x


def _nanmedians(draw: Draw) -> list[Sample]:
    return [
        sample(draw.distinct(5)),
        sample(draw.distinct(2, 4), 1),
        sample(draw.distinct(3, 2), 0, True),
        sample(draw.distinct(), kind="scalar"),
        sample(_with_nan(draw, 7), kind="special"),
        sample(_with_nan(draw, 2, 4), -1, kind="special"),
    ]


def _nanmedian(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is None:
        known = np.sort(x[~np.isnan(x)], None)
        return known[(known.size - 1) // 2]
    order = np.argsort(x, dim, kind="stable")
    count = (~np.isnan(x)).sum(dim, keepdims=True)
    at = np.take_along_axis(order, (count - 1) // 2, dim)
    found = np.take_along_axis(x, at, dim), at
    return found if keepdim else tuple(f.squeeze(dim) for f in found)


def _mode(x: Any, dim: int = -1, keepdim: bool = False) -> Any:
    def most(row: Any) -> int:
        values, counts = np.unique(row, return_counts=True)
        return int(np.flatnonzero(row == values[counts.argmax()])[-1])

    at = np.expand_dims(np.apply_along_axis(most, dim, x), dim)
    found = np.take_along_axis(x, at, dim), at
    return found if keepdim else tuple(f.squeeze(dim) for f in found)


def _frequent(draw: Draw) -> list[Sample]:
    row = np.array([3, 1, 1, 3, 2, 3, 1]).astype(draw.dtype)
    return [
        sample(row),
        sample(np.stack([row, row[::-1]]).copy(), 1),
        sample(np.stack([row, row[::-1]]).copy(), 0, True),
        sample(np.stack([row, np.roll(row, 2), row])[:, :, None].copy(), -2, True),
    ]


def _put(x: Any, at: Any, source: Any, accumulate: bool = False) -> Any:
    out = x.copy().reshape(-1)
    if accumulate:
        np.add.at(out, at.reshape(-1), source.reshape(-1))
    else:
        out[at.reshape(-1)] = source.reshape(-1)
    return out.reshape(x.shape)


def _puts(draw: Draw) -> list[Sample]:
    return [
        sample(draw(2, 3), np.array([0, -1, 3]), draw(3)),
        sample(draw(2, 3), np.array([[0, 2], [2, 0]]), draw(2, 2), True),
        sample(draw(2, 3), np.zeros(0, "int64"), draw(0), kind="empty"),
    ]


def _slopes(x: Any, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> Any:
    dims = tuple(range(x.ndim)) if dim is None else dim
    steps = spacing if isinstance(spacing, (list, tuple)) else (spacing,)
    found = np.gradient(x, *steps, axis=dims, edge_order=edge_order)
    return tuple(found) if isinstance(found, (list, tuple)) else (found,)


def _sampled(draw: Draw) -> list[Sample]:
    points = [np.array([0.0, 1.0, 3.0, 3.5]), np.array([2.0, 1.0, 0.5])]
    points = [p.astype(draw.dtype if draw.floating else "float32") for p in points]
    return [
        sample(draw(5)),
        sample(draw(4, 3), spacing=2.0, edge_order=2),
        sample(draw(4, 3), spacing=np.array(2.0, draw.dtype)),
        sample(draw(4, 3), spacing=[0.5, 2.0]),
        sample(draw(4, 3), dim=1),
        sample(draw(4, 3), dim=(1, 0), edge_order=2),
        sample(draw(4, 3), spacing=points),
        sample(draw(4, 3), spacing=points, edge_order=2),
        sample(draw(2, 2)),
    ]


def _histograms(draw: Draw) -> list[Sample]:
    x = draw.distinct(3, 4)
    return [
        sample(x, 4, range=(-2.0, 2.0)),
        sample(x, 5),
        sample(x, np.array([-3.0, -1.0, 0.0, 2.6]).astype(draw.dtype)),
        sample(x, 4, range=(-2.0, 2.0), weight=np.abs(draw(3, 4)), density=True),
        sample(draw(0, 3), 3, kind="empty"),
    ]


def _histogram(
    x: Any, bins: Any, range: Any = None, weight: Any = None, density: Any = False
) -> Any:
    weight = None if weight is None else weight.reshape(-1)
    return np.histogram(x.reshape(-1), bins, range, density, weight)


def _nonzero(x: Any, size: int, fill_value: int = -1) -> Any:
    found = np.full((size, x.ndim), fill_value)
    there = np.argwhere(x)[:size]
    found[: len(there)] = there
    return found


def _unraveled(draw: Draw) -> list[Sample]:
    return [
        sample(np.array([3, 5, 0]).astype(draw.dtype), (2, 3)),
        sample(np.array([[3], [5]]).astype(draw.dtype), (3, 1, 2)),
        sample(np.array(5).astype(draw.dtype), 6, kind="scalar"),
        sample(np.zeros(0, draw.dtype), (2, 3), kind="empty"),
    ]


def _window(name: str, curve: str, *more: Sample, oracle: Any = None) -> Case:
    def of(n: int, periodic: bool = True) -> Any:
        return scipy.signal.get_window(curve, n, periodic) if n else np.ones(0)

    negative = wrong(-1, raises=RuntimeError, words="non-negative window_length")
    whole = wrong(3, dtype=DTypeName("int64"), raises=RuntimeError, words="floating point dtypes")
    return Case(
        name,
        lambda draw: [sample(n) for n in (7, 2, 1, 0)] + [sample(6, False), *more],
        oracle or of,
        method=NO_METHOD,
        dtypes=("float32",),
        result=float32,
        orders=0,
        errors=(negative, whole),
    )


def _kaiser(n: int, periodic: bool = True, beta: float = 12.0) -> Any:
    return scipy.signal.get_window(("kaiser", beta), n, periodic) if n else np.ones(0)


def _hamming(n: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46) -> Any:
    if n < 2:
        return np.ones(n)
    return alpha - beta * np.cos(2 * np.pi * np.arange(n) / (n if periodic else n - 1))


def _made(name: str, *samples: Sample, oracle: Any, result: Any = float32, **options: Any) -> Case:
    return Case(
        name,
        lambda draw: list(samples),
        oracle,
        method=NO_METHOD,
        dtypes=("float32",),
        result=result,
        orders=0,
        **options,
    )


def _summed_to(x: Any, *size: Any) -> Any:
    shape = size[0] if isinstance(size[0], tuple) else size
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return x.sum(tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)


def _parts(name: str, *samples: Any, oracle: Any) -> Case:
    return Case(
        name,
        lambda draw: [sample(draw(*shape), *how) for shape, *how in samples],
        oracle,
        dtypes=NUMBERS,
        errors=(wrong(_vector, samples[0][1], 3, **_range),),
    )


CASES = [
    Case(
        "logcumsumexp",
        lambda draw: [
            sample(draw(2, 3), 1),
            sample(draw(2, 3, 2), -2),
            sample(draw(4) * 200, 0),
            sample(draw(), 0, kind="scalar"),
            sample(draw(0, 3), 1, kind="empty"),
            sample(np.array([-np.inf, -np.inf, 1, 2, np.inf, 3], draw.dtype), 0, kind="special"),
            sample(np.array([1, np.nan, 2], draw.dtype), 0, kind="special"),
        ],
        _logcumsumexp,
        errors=(
            wrong(_vector, 1, **_range),
            wrong(
                np.ones(3, "int64"),
                0,
                raises=(NotImplementedError, TypeError),
                words="not implemented for",
            ),
        ),
    ),
    Case(
        "renorm",
        lambda draw: [
            sample(draw(3, 4), 2, 0, 2.0),
            sample(draw(2, 3, 2), 3, 1, 1.5),
            sample(draw(2, 2), 1, -1, 100),
        ],
        _renorm,
        inplace="renorm_",
        errors=(
            wrong(_vector, 2, 0, 1, raises=RuntimeError, words="at least 2 dimensions"),
            wrong(_matrix, -1, 0, 1, raises=RuntimeError, words="non-positive-norm"),
            wrong(_matrix, 2, 0, -1, raises=RuntimeError, words="maxnorm to be >= 0"),
            wrong(_matrix, 2, 3, 1, **_range),
            wrong(_matrix.astype("int64"), 2, 0, 1, raises=RuntimeError, words="floating point"),
        ),
    ),
    Case(
        "nanmedian",
        _nanmedians,
        _nanmedian,
        dtypes=(*FLOATS, "int64"),
        result=(same, index),
        repeats=False,
        errors=(
            wrong(_vector, 1, **_range),
            wrong(np.ones((2, 0), "float32"), 1, raises=IndexError, words="non-zero size"),
        ),
    ),
    Case(
        "mode",
        _frequent,
        _mode,
        dtypes=NUMBERS,
        result=(same, index),
        orders=0,
        repeats=False,
        errors=(
            wrong(_vector, 1, **_range),
            wrong(np.ones((2, 0), "float32"), 1, raises=IndexError, words="non-zero size"),
        ),
    ),
    Case(
        "mode-gradient",
        lambda draw: [sample(draw.distinct(2, 3), 1), sample(draw.distinct(2, 3), 0, True)],
        _mode,
        result=(same, index),
        repeats=False,
    ),
    Case(
        "put",
        _puts,
        _put,
        dtypes=NUMBERS,
        inplace="put_",
        errors=(
            wrong(
                np.ones(4, "int64"),
                np.array([0, 4]),
                np.ones(2, "int64"),
                raises=IndexError,
                words="out of (range|bounds)",
            ),
            wrong(
                _vector,
                np.array([0, 1]),
                np.ones(1, "float32"),
                raises=IndexError,
                words="same number of elements",
            ),
            wrong(_vector, np.array([0]), np.ones(1), raises=RuntimeError, words="same dtype"),
            wrong(_vector, _vector, _vector, raises=RuntimeError, words="for index"),
        ),
    ),
    Case(
        "unravel_index",
        _unraveled,
        lambda x, shape: np.unravel_index(x, shape),
        method=NO_METHOD,
        dtypes=("int64", "int32", "uint8"),
        result=index,
        orders=0,
        repeats=False,
        errors=(
            wrong(_vector, (2, 3), raises=TypeError, words="expected 'indices' to be integer"),
            wrong(np.ones(1, "int64"), (2, -3), raises=ValueError, words="negative values"),
            wrong(np.ones(1, "int64"), (0, 3), raises=RuntimeError, words="."),
            wrong(np.ones(1, "int64"), (2, 3.0), raises=TypeError, words="float"),
        ),
    ),
    Case(
        "nonzero_static",
        lambda draw: [
            sample(np.array([[1, 0], [0, 3]]).astype(draw.dtype), size=3),
            sample(np.array([[1, 0], [0, 3]]).astype(draw.dtype), size=1, fill_value=7),
            sample(draw.mask(2, 3, 2).astype(draw.dtype), size=8),
            sample(draw(0, 3), size=2, kind="empty"),
        ],
        _nonzero,
        dtypes=(*NUMBERS, "bool"),
        result=index,
        orders=0,
        errors=(wrong(_vector, size=-2, raises=RuntimeError, words="non-negative integer"),),
    ),
    Case(
        "gradient",
        _sampled,
        _slopes,
        method=NO_METHOD,
        dtypes=(*FLOATS, "int64"),
        result=lambda dtype: dtype if dtype in FLOATS else "float32",
        repeats=False,
        errors=(
            wrong(np.ones(1, "float32"), raises=RuntimeError, words="at least edge_order"),
            wrong(_vector, edge_order=3, raises=RuntimeError, words="only supports edge_order"),
            wrong(_vector, spacing=[1.0, 2.0], raises=RuntimeError, words="list of length"),
            wrong(_vector, dim=3, **_range),
            wrong(_matrix, dim=(0, 0), raises=RuntimeError, words="multiple times"),
        ),
    ),
    Case(
        "histogram",
        _histograms,
        _histogram,
        orders=0,
        repeats=False,
        errors=(
            wrong(
                np.ones(3, "int64"),
                3,
                raises=(NotImplementedError, TypeError),
                words="not implemented for",
            ),
            wrong(_vector, 0, raises=RuntimeError, words="bins must be > 0"),
            wrong(_vector, np.ones(1, "float32"), raises=RuntimeError, words="bins must be"),
            wrong(
                _vector,
                np.arange(3.0, dtype="float32"),
                range=(0.0, 1.0),
                raises=TypeError,
                words="range",
            ),
            wrong(_vector, 3, range=(2.0, 1.0), raises=RuntimeError, words="min should not exceed"),
            wrong(_vector * np.nan, 3, raises=RuntimeError, words="is not finite"),
            wrong(
                _vector, 3, weight=np.ones(2, "float32"), raises=RuntimeError, words="same shape"
            ),
            wrong(_vector, 3, weight=np.ones(3), raises=RuntimeError, words="same dtype"),
        ),
    ),
    _window("bartlett_window", "bartlett"),
    _window("hann_window", "hann"),
    _window("blackman_window", "blackman"),
    _window("hamming_window", "hamming", sample(5, True, 0.5, 0.4), oracle=_hamming),
    _window("kaiser_window", "kaiser", sample(5, False, 3.0), oracle=_kaiser),
    _made(
        "hann_window-dtype",
        sample(5, dtype=DTypeName("float64")),
        oracle=lambda n, dtype: scipy.signal.get_window("hann", n),
        result=float64,
    ),
    _made(
        "range",
        sample(1, 4),
        sample(1, 4, 0.5),
        sample(5, 1, -2),
        sample(1, 1),
        oracle=lambda start, end, step=1: np.arange(start, end + math.copysign(1e-9, step), step),
        errors=(
            wrong(5, 1, raises=RuntimeError, words="inconsistent with step sign"),
            wrong(1, 5, 0, raises=RuntimeError, words="nonzero"),
        ),
    ),
    _made(
        "range-dtype",
        sample(1, 4, dtype=DTypeName("int64")),
        oracle=lambda start, end, dtype: np.arange(start, end + 1),
        result=index,
    ),
    _made(
        "scalar_tensor",
        sample(3),
        sample(2.5),
        oracle=np.array,
        errors=(wrong([3], raises=TypeError, words="must be Number"),),
    ),
    Case(
        "frombuffer",
        lambda draw: [sample(draw(4))],
        np.copy,
        call=lambda x: _library().frombuffer(bytearray(x.numpy().tobytes()), dtype=x.dtype),
        dtypes=NUMBERS,
        orders=0,
    ),
    Case(
        "fill",
        lambda draw: [
            sample(draw(2, 3), 2),
            sample(draw(2, 3), draw()),
            sample(draw(), 2, kind="scalar"),
            sample(draw(0, 3), 2, kind="empty"),
        ],
        np.full_like,
        method=NO_METHOD,
        dtypes=NUMBERS,
        errors=(wrong(_vector, _vector, raises=RuntimeError, words="0-dimension value tensor"),),
        orders=0,
    ),
    Case(
        "fill-gradient",
        lambda draw: [sample(Fixed(draw(2, 3)), draw())],
        np.full_like,
        method=NO_METHOD,
    ),
    Case(
        "sum_to_size",
        lambda draw: [
            sample(draw(2, 3), (1, 3)),
            sample(draw(2, 3), (3,)),
            sample(draw(2, 3), 2, 1),
            sample(draw(2, 3), (2, 3)),
            sample(draw(0, 3), (1, 3), kind="empty"),
        ],
        _summed_to,
        call=lambda x, *size: x.sum_to_size(*size),
        errors=(wrong(_matrix, 2, raises=RuntimeError, words="not expandable to size"),),
    ),
    _parts(
        "unsafe_chunk",
        ((5, 2), 2),
        ((2, 3), 3, 1),
        oracle=lambda x, n, dim=0: np.array_split(x, n, dim),
    ),
    _parts(
        "unsafe_split",
        ((4, 2), 2),
        ((2, 3), 1, 1),
        oracle=lambda x, n, dim=0: np.split(x, x.shape[dim] // n, dim),
    ),
    _parts(
        "unsafe_split_with_sizes",
        ((3, 2), (1, 2)),
        ((2, 3), (2, 1), 1),
        oracle=lambda x, sizes, dim=0: np.split(x, np.cumsum(sizes)[:-1], dim),
    ),
]


def _library() -> Any:
    import op_table

    return op_table.LIBRARY
