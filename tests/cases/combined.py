"""Rows of what is made of other ops: rearranged, statistics, and more of compositions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import op_table
from op_table import (
    ANY,
    FLOATS,
    NO_METHOD,
    NUMBERS,
    Case,
    Draw,
    Fixed,
    Sample,
    binary,
    boolean,
    floating,
    index,
    same,
    sample,
    unary,
    wrong,
)
from scipy.integrate import cumulative_trapezoid, trapezoid
from scipy.linalg import block_diag

_vector, _matrix = np.ones(3, "float32"), np.ones((2, 3), "float32")
_cube = np.ones((2, 3, 4), "float32")
_range = {"raises": IndexError, "words": "Dimension out of range"}
_size = {"raises": RuntimeError, "words": "expected src to have a size equal to the slice"}


def calls(*shapes: Any, **options: Any) -> Any:
    """Samples: each a tuple of shapes, drawn, and of other arguments; empty if a shape is."""

    def samples(draw: Draw) -> list[Sample]:
        found = []
        for shape in shapes:
            args = [draw(*a) if isinstance(a, list) else a for a in shape]
            empty = any(isinstance(a, np.ndarray) and not a.size for a in args)
            found.append(sample(*args, kind="empty" if empty else "plain", **options))
        return found

    return samples


def _written(name: str) -> Any:
    """The oracle of a copy with a part replaced."""

    def oracle(x: Any, src: Any, *how: Any, **named: Any) -> Any:
        out = x.copy()
        if name == "diagonal_scatter":
            offset, dim1, dim2 = (*how, *(0, 0, 1)[len(how) :])
            part = np.diagonal(out, offset, dim1, dim2)
            part.flags.writeable = True
        elif name == "select_scatter":
            dim, index = how
            part = np.moveaxis(out, dim, 0)[index : index + 1 or None]
            src = src[None]
        else:
            dim, start, end, step = (*how, *(0, None, None, 1)[len(how) :])
            part = np.moveaxis(np.moveaxis(out, dim, 0)[start:end:step], 0, dim)
        part[...] = src
        return out

    return oracle


def _at(x: Any, src: Any, size: Any, stride: Any, offset: int = 0) -> Any:
    out = x.copy()
    for place in np.ndindex(size):
        out.flat[offset + np.dot(place, stride)] = src[place]
    return out


def _addition(product: Any) -> Any:
    return lambda x, a, b, beta=1, alpha=1: beta * x + alpha * product(a, b)


def _float_power(x: Any, y: Any) -> Any:
    return np.float_power(x, y)


def _cov(x: Any, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    return np.cov(x, ddof=correction, fweights=fweights, aweights=aweights)


def _weighted(draw: Draw) -> list[Sample]:
    counts, parts = Fixed(np.array([1, 2, 1, 3])), Fixed(np.array([0.5, 1, 2, 0.25], draw.dtype))
    return [
        sample(draw(2, 4), fweights=counts),
        sample(draw(3, 4), aweights=parts),
        sample(draw(4), fweights=counts, aweights=parts, correction=0),
    ]


def _combinations(x: Any, r: int = 2, with_replacement: bool = False) -> Any:
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    return np.array(list(choose(x, r)), x.dtype).reshape(-1, r)


def _cartesian(*arrays: Any) -> Any:
    return np.stack(np.meshgrid(*arrays, indexing="ij"), -1).reshape(-1, len(arrays))


def _areas(rule: Any) -> Any:
    def oracle(y: Any, x: Any = None, dx: float = 1.0, dim: int = -1) -> Any:
        if not y.shape[dim]:  # SciPy's running one wants a point
            return y if rule is cumulative_trapezoid else y.sum(dim)
        return rule(y, x, dx=dx, axis=dim)

    return oracle


def _curves(draw: Draw) -> list[Sample]:
    return [
        sample(draw(2, 5)),
        sample(draw(5), draw.distinct(5)),
        sample(draw(2, 4), draw(4), dim=1),
        sample(draw(4, 3), draw(4), dim=0),
        sample(draw(2, 4), draw(2, 4)),
        sample(draw(2, 4), dx=0.5, dim=0),
        sample(draw(2, 0), draw(0), kind="empty"),
        sample(draw(0, 3), draw(0), dim=0, kind="empty"),
        sample(draw(2, 0), draw(2, 0), kind="empty"),
    ]


_points = {"raises": RuntimeError, "words": "one `x` value for each sample point"}


def _unique(x: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = 0) -> Any:
    """By Python's groupby, over slices."""
    rows = np.moveaxis(x, dim, 0)
    groups = [list(g) for _, g in itertools.groupby(range(len(rows)), lambda i: rows[i].tolist())]
    found = [np.take(x, [g[0] for g in groups], dim)]
    if return_inverse:
        found.append(np.repeat(np.arange(len(groups)), [len(g) for g in groups]))
    if return_counts:
        found.append(np.array([len(g) for g in groups]))
    return found[0] if len(found) == 1 else found


def _repeating(draw: Draw) -> list[Sample]:
    row = np.repeat(draw.distinct(3), [2, 1, 3])
    return [
        sample(row),
        sample(np.stack([row, row]), dim=1),
        sample(np.stack([row, row]), dim=0),
    ]


def _triangular(x: Any, y: Any, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    off = 1 if unitriangular else 0
    x = np.triu(x, off) if upper else np.tril(x, -off)
    x = x + np.eye(len(x)) if unitriangular else x
    return np.linalg.solve(x, y) if left else np.linalg.solve(x.T, y.T).T


def _triangles(draw: Draw) -> list[Sample]:
    x = (draw(3, 3) + 4 * np.eye(3)).astype(draw.dtype)
    return [
        sample(x, draw(3, 2), upper=True),
        sample(x, draw(2, 3), upper=False, left=False),
        sample(x, draw(3, 1), upper=True, unitriangular=True),
    ]


def _ranks(draw: Draw) -> list[Sample]:
    whole = (draw(3, 3) + 4 * np.eye(3)).astype(draw.dtype)
    whole = whole + whole.T
    flat = whole.copy()
    flat[2] = flat[:, 2] = 0
    low = np.outer([1, 2, 3], [1, 0, 2, 4]).astype(draw.dtype)
    return [
        sample(whole),
        sample(np.stack([whole, flat])),
        sample(low),
        sample(flat, hermitian=True),
        sample(whole, atol=100.0),
        sample(whole, rtol=0.9999),
    ]


def _rank(x: Any, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    values = np.linalg.svd(x, compute_uv=False)
    if rtol is None:
        rtol = 0.0 if atol is not None else max(x.shape[-2:]) * np.finfo(x.dtype).eps
    limit = np.maximum(values.max(-1) * rtol, atol or 0.0)
    return (values > limit[..., None]).sum(-1)


def _conditioned(draw: Draw) -> list[Sample]:
    x = (draw(3, 3) + 5 * np.eye(3)).astype(draw.dtype)
    return [sample(x), *[sample(x, p) for p in (-2, 1, -1, "fro", "nuc", np.inf)]]


def _tensorinv(x: Any, ind: int = 2) -> Any:
    return np.linalg.tensorinv(x, ind)


def _invertible(draw: Draw) -> list[Sample]:
    x = (draw(4, 4) + 6 * np.eye(4)).astype(draw.dtype)
    return [sample(x.reshape(2, 2, 4)), sample(x.reshape(4, 2, 2), 1)]


_lapack: dict[str, Any] = {"method": NO_METHOD, "rtol64": 1e-9, "rtol32": 1e-3, "repeats": False}
_square = np.ones((3, 3), "float32")

CASES = [
    Case(
        "linalg.cross",
        calls(([2, 3], [2, 3]), ([3], [3])),
        np.cross,
        method=NO_METHOD,
        errors=(wrong(_vector[:2], _vector[:2], raises=RuntimeError, words="length 3"),),
    ),
    Case(
        "linalg.vecdot",
        calls(([2, 3], [2, 3]), ([2, 3], [3]), ([2, 0], [2, 0])),
        lambda x, y: (x * y).sum(-1),
        method=NO_METHOD,
        errors=(wrong(_vector, np.ones(4, "float32"), raises=RuntimeError, words="must match"),),
    ),
    Case(
        "linalg.diagonal",
        calls(([2, 3, 3],), ([2, 3],)),
        lambda x: np.diagonal(x, 0, -2, -1),
        method=NO_METHOD,
        dtypes=NUMBERS,
        errors=(wrong(_vector, **_range),),
    ),
    Case(
        "linalg.solve_triangular",
        _triangles,
        _triangular,
        **_lapack,
        errors=(
            wrong(_matrix, _matrix, upper=True, raises=RuntimeError, words="square"),
            wrong(_square, _matrix, upper=True, raises=RuntimeError, words="Incompatible"),
        ),
    ),
    Case(
        "linalg.matrix_rank",
        _ranks,
        _rank,
        result=index,
        orders=0,
        method=NO_METHOD,
        errors=(wrong(_vector, raises=RuntimeError, words="."),),
    ),
    Case(
        "linalg.cond",
        _conditioned,
        np.linalg.cond,
        **_lapack,
        errors=(wrong(_matrix, 1, raises=RuntimeError, words="square"),),
    ),
    Case(
        "linalg.tensorinv",
        _invertible,
        _tensorinv,
        **_lapack,
        errors=(
            wrong(_matrix, 1, raises=RuntimeError, words="."),
            wrong(_matrix, 0, raises=RuntimeError, words="strictly positive"),
        ),
    ),
    Case("unique_consecutive", _repeating, _unique, dtypes=NUMBERS, orders=0, repeats=False),
    Case(
        "unique_consecutive-more",
        lambda draw: [
            Sample(s.args, {**s.kwargs, "return_inverse": True, "return_counts": True})
            for s in _repeating(draw)
        ],
        _unique,
        dtypes=NUMBERS,
        result=(same, index, index),
        orders=0,
        repeats=False,
    ),
    Case(
        "adjoint",
        calls(([2, 3],), ([2, 0, 3],)),
        lambda x: x.swapaxes(-1, -2),
        dtypes=NUMBERS,
        errors=(wrong(_vector, raises=RuntimeError, words="only supported on matrices"),),
    ),
    Case(
        "hsplit",
        calls(([4], 2), ([2, 4], 2), ([2, 4], (1, 3))),
        np.hsplit,
        dtypes=NUMBERS,
        errors=(
            wrong(_matrix, 2, raises=RuntimeError, words="not divisible by the split_size"),
            wrong(np.ones((), "float32"), 1, raises=(RuntimeError, IndexError), words="."),
        ),
    ),
    Case(
        "vsplit",
        calls(([4, 2], 2), ([3, 1, 2], (1,))),
        np.vsplit,
        dtypes=NUMBERS,
        errors=(wrong(_vector, 1, raises=RuntimeError, words="at least 2 dimension"),),
    ),
    Case(
        "dsplit",
        calls(([1, 2, 4], 2), ([1, 2, 3], (1,))),
        np.dsplit,
        dtypes=NUMBERS,
        errors=(wrong(_matrix, 1, raises=RuntimeError, words="at least 3 dimension"),),
    ),
    Case(
        "split_with_sizes",
        calls(([4], (1, 3)), ([2, 3], (2, 1), 1)),
        lambda x, sizes, dim=0: np.split(x, np.cumsum(sizes)[:-1], dim),
        dtypes=NUMBERS,
        errors=(wrong(_vector, (1, 1), raises=RuntimeError, words="sum exactly to 3"),),
    ),
    Case(
        "select_scatter",
        calls(([2, 3], [3], 0, 1), ([2, 3], [2], 1, -1), ([0, 3], [0], 1, 1)),
        _written("select_scatter"),
        dtypes=NUMBERS,
        errors=(wrong(_matrix, _matrix, 0, 1, **_size), wrong(_matrix, _vector, 2, 0, **_range)),
    ),
    Case(
        "slice_scatter",
        calls(
            ([4, 2], [2, 2], 0, 1, 3),
            ([2, 4], [2, 2], 1, 0, None, 2),
            ([2], [2]),
            ([3, 2], [0, 2], 0, 2, 2),
            ([0, 2], [0, 2], 0, 2, 2),
            ([3, 0], [2, 0], 0, 1, 3),
        ),
        _written("slice_scatter"),
        dtypes=NUMBERS,
        errors=(wrong(_matrix, _vector, **_size), wrong(_matrix, _matrix, 2, **_range)),
    ),
    Case(
        "diagonal_scatter",
        calls(
            ([3, 3], [3]),
            ([2, 3], [2], 1),
            ([2, 3, 2], [3, 2], 0, 0, 2),
            ([2, 0, 2], [0, 2], 0, 0, 2),
        ),
        _written("diagonal_scatter"),
        dtypes=NUMBERS,
        errors=(wrong(_matrix, _vector, **_size),),
    ),
    Case(
        "as_strided_scatter",
        calls(([3, 3], [2, 2], (2, 2), (1, 2)), ([6], [3], (3,), (2,), 1)),
        _at,
        call=lambda x, *how: op_table.LIBRARY.as_strided_scatter(x.clone().contiguous(), *how),
        dtypes=NUMBERS,
        orders=0,
    ),
    Case(
        "as_strided_scatter-gradient",  # PyTorch's differs from differences
        calls(([3, 3], [2, 2], (2, 2), (1, 2)), ([6], [3], (3,), (2,), 1)),
        _at,
        call=lambda x, *how: op_table.LIBRARY.as_strided_scatter(x.clone().contiguous(), *how),
        peer=False,
    ),
    Case(
        "as_strided_scatter-errors",
        lambda draw: [],
        np.copy,
        function="as_strided_scatter",
        dtypes=(),
        errors=(wrong(_matrix, _vector, (2,), (1,), **_size),),
    ),
    Case("diagflat", calls(([3],), ([2, 2], 1), ([2], -1), ([],)), np.diagflat, dtypes=NUMBERS),
    Case(
        "block_diag",
        calls(([2, 1], [3], []), ([1, 2], [2, 2])),
        block_diag,
        method=NO_METHOD,
        dtypes=NUMBERS,
        errors=(wrong(_cube, raises=RuntimeError, words="2 or fewer dimensions"),),
    ),
    Case(
        "cartesian_prod",
        calls(([2], [3]), ([2], [1], [2])),
        _cartesian,
        method=NO_METHOD,
        dtypes=NUMBERS,
        errors=(wrong(_matrix, raises=RuntimeError, words="Expect a 1D vector"),),
    ),
    Case(
        "combinations",
        calls(([4],), ([3], 3), ([3], 2, True), ([1], 2)),
        _combinations,
        method=NO_METHOD,
        dtypes=NUMBERS,
        errors=(
            wrong(_matrix, raises=RuntimeError, words="Expect a 1D vector"),
            wrong(_vector, -1, raises=RuntimeError, words="non-negative"),
        ),
    ),
    Case(
        "vdot",
        calls(([3], [3]), ([0], [0])),
        np.dot,
        dtypes=NUMBERS,
        errors=(wrong(_vector, np.ones(4, "float32"), raises=RuntimeError, words="size"),),
    ),
    Case(
        "ger",
        calls(([2], [3]), ([0], [3])),
        np.outer,
        dtypes=NUMBERS,
        errors=(wrong(_matrix, _vector, raises=RuntimeError, words="1-D"),),
    ),
    Case(
        "addmv",
        lambda draw: [
            sample(draw(2), draw(2, 3), draw(3)),
            sample(draw(1), draw(2, 3), draw(3), beta=2, alpha=3),
            sample(draw(2), draw(2, 0), draw(0), kind="empty"),
        ],
        _addition(np.matmul),
        inplace="addmv_",
        dtypes=FLOATS,
        errors=(wrong(_vector, _matrix, _matrix, raises=RuntimeError, words="."),),
    ),
    Case(
        "addr",
        lambda draw: [
            sample(draw(2, 3), draw(2), draw(3)),
            sample(draw(3), draw(2), draw(3), beta=2, alpha=3),
        ],
        _addition(np.outer),
        inplace="addr_",
        dtypes=FLOATS,
        errors=(wrong(_matrix, _matrix, _vector, raises=RuntimeError, words="."),),
    ),
    Case(
        "addbmm",
        lambda draw: [
            sample(draw(2, 3), draw(4, 2, 2), draw(4, 2, 3)),
            sample(draw(2, 1), draw(1, 2, 2), draw(1, 2, 3), beta=2, alpha=3),
        ],
        _addition(lambda a, b: np.matmul(a, b).sum(0)),
        inplace="addbmm_",
        dtypes=FLOATS,
        errors=(wrong(_matrix, _matrix, _matrix, raises=(RuntimeError, IndexError), words="."),),
    ),
    Case(
        "dist",
        calls(([2, 3], [2, 3]), ([2, 3], [3], 1), ([3], [3], 3)),
        lambda x, y, p=2: (np.abs(x - y) ** p).sum() ** (1 / p),
        dtypes=FLOATS,
    ),
    Case(
        "cov",
        calls(([2, 5],), ([4],)),
        _cov,
        dtypes=(*FLOATS, "int64"),
        result=floating,
        errors=(wrong(_cube, raises=RuntimeError, words="two or fewer dimensions"),),
    ),
    Case(
        "cov-weights",
        _weighted,
        _cov,
        dtypes=FLOATS,
        errors=(
            wrong(_matrix, fweights=np.ones(3, "float32"), raises=RuntimeError, words="."),
            wrong(_matrix, aweights=np.ones(2, "float32"), raises=RuntimeError, words="."),
        ),
    ),
    Case("corrcoef", calls(([2, 5],), ([3, 4],)), np.corrcoef, dtypes=FLOATS, rtol32=1e-4),
    Case(
        "trapezoid",
        _curves,
        _areas(trapezoid),
        method=NO_METHOD,
        dtypes=FLOATS,
        errors=(wrong(_matrix, np.ones(2, "float32"), **_points), wrong(_matrix, dim=2, **_range)),
    ),
    Case("trapz", _curves, _areas(trapezoid), method=NO_METHOD, dtypes=FLOATS),
    Case(
        "cumulative_trapezoid",
        _curves,
        _areas(cumulative_trapezoid),
        method=NO_METHOD,
        dtypes=FLOATS,
        errors=(wrong(_matrix, dim=2, **_range),),
    ),
    unary("fix", np.trunc, dtypes=NUMBERS, result=same, inplace=True, avoid=(-2.0, -1.0, 0, 1, 2)),
    unary(
        "positive",
        np.positive,
        dtypes=NUMBERS,
        result=same,
        errors=(wrong(np.array([True]), raises=RuntimeError, words="bool"),),
    ),
    unary("isposinf", np.isposinf, dtypes=ANY, result=boolean, orders=0),
    unary("isneginf", np.isneginf, dtypes=(*FLOATS, "int64", "bool"), result=boolean, orders=0),
    binary(
        "float_power",
        _float_power,
        domain=(0.5, 3.0),
        dtypes=(*FLOATS, "int64"),
        result=lambda dtype: "float64",
        special=False,
    ),
    binary(
        "float_power-double",
        _float_power,
        domain=(0.5, 3.0),
        dtypes=("float64",),
        inplace="float_power_",
        special=False,
    ),
    binary("logaddexp2", np.logaddexp2, dtypes=FLOATS, numbers=False, special=False),
]
