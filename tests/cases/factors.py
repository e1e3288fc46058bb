"""Rows of Householder's reflections, matrices of low rank, segments, and counts in boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import op_table
from op_table import FLOATS, NO_METHOD, Case, Draw, Sample, sample, wrong

_rough: dict[str, Any] = {"rtol64": 1e-9, "rtol32": 2e-3, "repeats": False}
_fails: dict[str, Any] = {"raises": RuntimeError}


def _of(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")


def _reflections(x: Any, tau: Any) -> Any:
    """The product of all reflections, m by m."""
    m, k = x.shape[-2], tau.shape[-1]
    out = np.broadcast_to(np.eye(m), (*x.shape[:-2], m, m))
    for i in range(k):
        v = x[..., i].copy()
        v[..., :i], v[..., i] = 0, 1
        out = out @ (np.eye(m) - tau[..., i, None, None] * v[..., :, None] * v[..., None, :])
    return out


def _product(x: Any, tau: Any) -> Any:
    return _reflections(x, tau)[..., : x.shape[-1]]


def _multiplied(x: Any, tau: Any, y: Any, left: bool = True, transpose: bool = False) -> Any:
    q = _reflections(x, tau)
    q = q.swapaxes(-1, -2) if transpose else q
    return q @ y if left else y @ q


def _products(draw: Draw) -> list[Sample]:
    return [
        sample(draw(4, 3), draw(3)),
        sample(draw(2, 3, 3), draw(2, 2)),
        sample(draw(3, 2), 0 * draw(2), kind="special"),
        sample(draw(3, 0), draw(0), kind="empty"),
    ]


def _geqrf(x: Any) -> Any:
    from scipy.linalg import lapack

    return lapack.dgeqrf(x)[:2]


def _joined(name: str) -> Any:
    """What the factors multiply to: they themselves have signs of their own."""

    def call(x: Any, q: int, *more: Any) -> Any:
        u, s, v = getattr(op_table.LIBRARY, name)(x, q, *more)
        return (u * s.unsqueeze(-2)) @ v.mT

    return call


def _segments(draw: Draw) -> list[Sample]:
    lengths, none = np.array([2, 3]), np.array([2, 0, 3])
    rows = np.array([[1, 3], [2, 2]])
    return [
        *[sample(draw(5, 2), how, none, kind="special") for how in ("sum", "mean", "max", "prod")],
        *[sample(draw.distinct(5, 2), how, lengths) for how in ("sum", "mean", "prod")],
        *[sample(draw.distinct(5), how, lengths) for how in ("max", "min")],
        sample(draw.distinct(5), "mean", lengths, initial=0.5),
        sample(draw.distinct(2, 4, 2), "sum", rows, axis=1, initial=1.5),
        sample(draw.distinct(2, 4), "max", rows, axis=1, unsafe=True),
        sample(draw(0, 2), "sum", np.array([0, 0]), kind="empty"),
    ]


def _reduced(
    x: Any, how: str, lengths: Any, axis: int = 0, unsafe: bool = False, initial: Any = None
) -> Any:
    empty = {"sum": 0.0, "mean": np.nan, "prod": 1.0, "max": -np.inf, "min": np.inf}[how]
    shape = x.shape[:axis]
    out = np.empty((*lengths.shape, *x.shape[axis + 1 :]))
    for row in np.ndindex(shape):
        ends = np.cumsum(lengths[row])
        for k, end in enumerate(ends):
            part = x[row][end - lengths[row][k] : end]
            begin = empty if initial is None else initial
            if how == "mean":
                begin = 0.0 if initial is None else initial
                mean = (part.sum(0) + begin) / max(len(part), 1)
                out[(*row, k)] = mean if len(part) or initial is not None else np.nan
            else:
                fold = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
                out[(*row, k)] = fold[how].reduce(part, axis=0, initial=begin)
    return out


def _by_lengths(x: Any, how: str, lengths: Any, **options: Any) -> Any:
    return op_table.LIBRARY.segment_reduce(x, how, lengths=lengths, **options)


def _by_offsets(x: Any, how: str, offsets: Any, **options: Any) -> Any:
    return op_table.LIBRARY.segment_reduce(x, how, offsets=offsets, **options)


def _boxes(x: Any, bins: Any, **options: Any) -> Any:
    given = options.get("range")
    if given is not None:
        options["range"] = [given[2 * d : 2 * d + 2] for d in range(len(given) // 2)]
    weights = options.pop("weight", None)
    flat = x.reshape(-1, x.shape[-1])
    weights = None if weights is None else weights.reshape(-1)
    return np.histogramdd(flat, bins, weights=weights, **options)[0]


_points = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [2.0, 2.0], [5.0, 1.0]])
_lengths: dict[str, Any] = {"raises": RuntimeError, "words": "rows of lengths"}

CASES = [
    Case(
        "linalg.householder_product",
        _products,
        _product,
        method=NO_METHOD,
        **_rough,
        errors=(
            wrong(_of(2, 3), _of(2), words="greater than or equal", **_fails),
            wrong(_of(3), _of(3), words="at least 2 dim", **_fails),
            wrong(_of(3, 2), _of(3), words=r"tau|less than or equal", **_fails),
            wrong(_of(3, 2), np.ones(2), words="dtype", **_fails),
        ),
    ),
    Case("linalg.orgqr", _products, _product, function="orgqr", **_rough),
    Case(
        "linalg.ormqr",
        lambda draw: [
            sample(draw(4, 3), draw(3), draw(4, 2)),
            sample(draw(2, 3, 2), draw(2, 2), draw(2, 3, 3), True, True),
            sample(draw(3, 2), draw(2), draw(2, 3), False),
            sample(draw(3, 2), draw(2), draw(2, 3), False, True),
        ],
        _multiplied,
        function="ormqr",
        **_rough,
        errors=(
            wrong(_of(3, 2), _of(2), _of(2, 2), words=r"other.shape\[-2\]", **_fails),
            wrong(_of(3, 2), _of(2), np.ones((3, 2)), words="dtype", **_fails),
        ),
    ),
    Case(
        "linalg.geqrf",
        lambda draw: [sample(draw(4, 3)), sample(draw(2, 3)), sample(draw(3, 3))],
        _geqrf,
        function="geqrf",
        orders=0,
        **_rough,
        errors=(wrong(_of(3), words="at least 2 dim", **_fails),),
    ),
    Case(
        "svd_lowrank",
        lambda draw: [
            sample(draw(4, 3), 3),
            sample(draw(3, 4), 3, 0),
            sample(draw(2, 3, 4), 3, 1),
        ],
        lambda x, *how: x,
        call=_joined("svd_lowrank"),
        orders=1,  # what is 0 by rank divides a second gradient
        **_rough,
    ),
    Case(
        "pca_lowrank",
        lambda draw: [
            sample(draw(5, 3), 3),
            sample(draw(2, 3, 2), 2),
            sample(draw(4, 2), 2, False),
        ],
        lambda x, q, center=True: x - x.mean(-2, keepdims=True) * center,
        call=_joined("pca_lowrank"),
        orders=1,
        **_rough,
    ),
    Case(
        "svd_lowrank-errors",
        lambda draw: [],
        np.copy,
        function="svd_lowrank",
        method=NO_METHOD,
        dtypes=(),
        peer=False,  # PyTorch's does not look
        errors=(
            wrong(_of(3, 2), 2, -1, raises=ValueError, words="niter=-1"),
            wrong(_of(3, 2), 3, words=r"min\(m, n\)=2", **_fails),
            wrong(_of(3, 2), 2, 2, _of(2, 2, 2), words="must broadcast|broadcast", **_fails),
        ),
    ),
    Case(
        "pca_lowrank-errors",
        lambda draw: [],
        np.copy,
        function="pca_lowrank",
        method=NO_METHOD,
        dtypes=(),
        errors=(
            wrong(_of(3, 2), 3, raises=ValueError, words="not greater than min"),
            wrong(_of(3, 2), 2, True, -1, raises=ValueError, words="niter"),
        ),
    ),
    Case("segment_reduce", _segments, _reduced, call=_by_lengths, orders=1, repeats=False),
    Case(
        "segment_reduce-offsets",
        lambda draw: [
            sample(draw.distinct(5, 2), "sum", np.array([0, 2, 2, 5])),
            sample(draw.distinct(2, 4), "max", np.array([[0, 1, 4], [0, 2, 4]]), axis=1),
        ],
        lambda x, how, offsets, **options: _reduced(x, how, np.diff(offsets), **options),
        call=_by_offsets,
        orders=1,
        repeats=False,
    ),
    Case(
        "segment_reduce-twice",  # PyTorch goes once
        lambda draw: [s for s in _segments(draw) if s.kind == "plain"],
        _reduced,
        call=_by_lengths,
        repeats=False,
        peer=False,
    ),
    Case(
        "segment_reduce-errors",
        lambda draw: [],
        np.copy,
        function="segment_reduce",
        method=NO_METHOD,
        dtypes=(),
        errors=(
            wrong(_of(3), "sum", lengths=np.array([2, 2]), **_lengths),
            wrong(
                *(_of(3), "sum"),
                lengths=np.array([4, -1]),
                raises=RuntimeError,
                words="negative|rows of lengths",
            ),
            wrong(_of(3), "sum", raises=(RuntimeError, ValueError), words="lengths or offsets"),
            wrong(
                *(_of(3), "median"),
                lengths=np.array([3]),
                raises=(RuntimeError, ValueError),
                words="must be either",
            ),
            wrong(
                *(np.ones(3, "int64"), "sum"),
                lengths=np.array([3]),
                raises=(NotImplementedError, TypeError),
                words="not implemented for",
            ),
        ),
    ),
    Case(
        "histogramdd",
        lambda draw: [
            sample(_points.astype(draw.dtype), [2, 3]),
            sample(_points.astype(draw.dtype), [3, 3], range=[0.0, 3.0, 0.0, 1.5]),
            sample(
                _points.reshape(5, 1, 2).astype(draw.dtype),
                [3, 3],
                weight=draw(5, 1),
                density=True,
            ),
            sample(
                _points.astype(draw.dtype),
                [np.array([0.0, 1, 4], draw.dtype), np.array([0.0, 2], draw.dtype)],
            ),
        ],
        _boxes,
        call=lambda x, bins, **options: op_table.LIBRARY.histogramdd(x, bins, **options).hist,
        dtypes=FLOATS,
        orders=0,
        repeats=False,
        rtol32=1e-4,
    ),
    Case(
        "histogramdd-errors",
        lambda draw: [],
        np.copy,
        function="histogramdd",
        method=NO_METHOD,
        dtypes=(),
        errors=(
            wrong(_of(3), [3], words="at least 2 dim", **_fails),
            wrong(_of(3, 2), [3], words="[Ee]xpected 2|size of the innermost|bins", **_fails),
            wrong(_of(3, 2), [3, 0], words="must be > 0|be greater than 0|bins", **_fails),
            wrong(_of(3, 2), [3, 3], range=[0.0, 1.0], words="range", **_fails),
            wrong(_of(3, 2), [3, 3], weight=_of(2), words="weight", **_fails),
        ),
    ),
]
