"""Rows of LU factors, exponentials, forms that do not raise, and older names of ng.linalg."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import op_table
import scipy.linalg
from op_table import FLOATS, NO_METHOD, Case, Draw, Sample, same, sample, wrong

_rough: dict[str, Any] = {"rtol64": 1e-9, "rtol32": 2e-3, "repeats": False}
_alone: dict[str, Any] = {"method": NO_METHOD, **_rough}


def _of(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")


_pivots = np.array([1, 2], "int32")
_singular = np.array([[1, 2], [2, 4]], "float32")
_oblong = wrong(_of(2, 3), raises=RuntimeError, words="square matrices")
_vector = wrong(_of(3), raises=RuntimeError, words="at least 2 dim|square matrices|2 dimensions")
_no_pivot = wrong(_of(2, 2), pivot=False, raises=RuntimeError, words="without pivoting")


def _int32(dtype: str) -> str:
    return "int32"


def _square(draw: Draw, n: int = 3) -> np.ndarray:
    return (draw(n, n) + 5 * np.eye(n)).astype(draw.dtype)


def _definite(draw: Draw) -> np.ndarray:
    return (np.eye(3) * 6 + np.diag([1.0, 0.5], 1) + np.diag([1.0, 0.5], -1)).astype(draw.dtype)


def _matrices(draw: Draw) -> list[Sample]:
    """Square ones whose rows are exchanged, a stack, high and wide ones."""
    x = np.roll(_square(draw), 1, 0).copy()
    return [
        sample(x),
        sample(np.stack([x, 2 * _square(draw)])),
        sample((draw(4, 2) + 3 * np.eye(4, 2)[::-1]).astype(draw.dtype)),
        sample((draw(2, 4) + 3 * np.eye(2, 4)[::-1]).astype(draw.dtype)),
    ]


def _each(function: Any) -> Any:
    """SciPy's function of a matrix for a stack of them."""

    def oracle(x: Any, **how: Any) -> Any:
        if x.ndim == 2:
            return function(x, **how)
        found = [function(m, **how) for m in x.reshape(-1, *x.shape[-2:])]
        if not found:
            return x
        if not isinstance(found[0], tuple):
            return np.stack(found)
        return tuple(np.stack(part) for part in zip(*found, strict=True))

    return oracle


def _packed(x: Any) -> Any:
    from scipy.linalg import lapack

    out, pivots, info = lapack.dgetrf(x)
    return out, pivots + 1, np.array(info)


def _solved(x: Any, y: Any, left: bool = True, adjoint: bool = False) -> Any:
    x = x.swapaxes(-1, -2) if adjoint else x
    if y.ndim == 1 or y.shape == x.shape[:-1]:
        return np.linalg.solve(x if left else x.swapaxes(-1, -2), y[..., None])[..., 0]
    if left:
        return np.linalg.solve(x, y)
    return np.linalg.solve(x.swapaxes(-1, -2), y.swapaxes(-1, -2)).swapaxes(-1, -2)


def _from_factors(factors: Any, pivots: Any, y: Any, **how: Any) -> Any:
    n = len(pivots)
    order = np.arange(n)
    for i, j in enumerate(pivots):
        order[[i, j - 1]] = order[[j - 1, i]]
    x = np.empty((n, n))
    x[order] = (np.tril(factors, -1) + np.eye(n)) @ np.triu(factors)
    return _solved(x, y, **how)


def _solutions(draw: Draw) -> list[Sample]:
    factors, pivots = scipy.linalg.lu_factor(np.roll(_square(draw), 1, 0))
    known = np.ascontiguousarray(factors), (pivots + 1).astype("int32")
    return [
        sample(*known, draw(3, 2)),
        sample(*known, draw(3, 1), adjoint=True),
        sample(*known, draw(2, 3), left=False),
        sample(*known, draw(2, 2, 3), left=False, adjoint=True),
        sample(*known, draw(2, 3, 1)),
    ]


def _squares(draw: Draw) -> list[Sample]:
    x = np.roll(_square(draw), 1, 0).copy()
    return [sample(x), sample(np.stack([x, 2 * _square(draw)]))]


def _without_info(name: str) -> Any:
    return lambda x, *y, **how: getattr(op_table.LIBRARY.linalg, name)(x, *y, **how)[0]


def _infos(name: str, bad: np.ndarray, *more: np.ndarray, info: list[int]) -> Case:
    """A row for what is said of matrices that fail: the good one beside them is right."""

    def call(x: Any, *y: Any) -> Any:
        out, found = getattr(op_table.LIBRARY.linalg, name)(x, *y)
        return found, out[0]

    def samples(draw: Draw) -> list[Sample]:
        x = np.stack([_definite(draw)[:2, :2], bad]).astype(draw.dtype)
        return [sample(x, *[m.astype(draw.dtype) for m in more])]

    return Case(
        f"linalg.{name}-fails",
        samples,
        lambda x, *y: (np.array(info), None),
        call=call,
        result=(_int32, same),
        orders=0,
        repeats=False,
    )


def _lower(oracle: Any) -> Any:
    def of_symmetric(x: Any, **how: Any) -> Any:
        return oracle(np.tril(x) + np.tril(x, -1).swapaxes(-1, -2), **how)

    return of_symmetric


def _triangle(draw: Draw) -> np.ndarray:
    return np.linalg.cholesky(_definite(draw)).astype(draw.dtype)


def _cholesky_solved(y: Any, x: Any, upper: bool = False) -> Any:
    x = np.triu(x).T if upper else np.tril(x)
    return np.linalg.solve(x @ x.T, y)


def _unpacked(x: Any, pivots: Any, data: bool = True, orders: bool = True) -> Any:
    """P, L and U; what is left out is empty."""
    m, n = x.shape[-2:]
    k = min(m, n)
    nothing = np.empty(0, x.dtype)
    lower = np.tril(x[..., :k], -1) + np.eye(m, k, dtype=x.dtype) if data else nothing
    upper = np.triu(x[..., :k, :]) if data else nothing
    if not orders:
        return nothing, lower, upper
    found = np.zeros((*x.shape[:-2], m, m), x.dtype)
    for at in np.ndindex(x.shape[:-2]):
        rows = list(range(m))
        for i, j in enumerate(pivots[at]):
            rows[i], rows[j - 1] = rows[j - 1], rows[i]
        found[(*at, rows, range(m))] = 1
    return found, lower, upper


def _triangular(
    y: Any, x: Any, upper: bool = True, turned: bool = False, ones: bool = False
) -> Any:
    x = np.triu(x) if upper else np.tril(x)
    if ones:
        x = np.where(np.eye(x.shape[-1], dtype=bool), 1, x)
    return np.linalg.solve(x.swapaxes(-1, -2) if turned else x, y)


def _quietly(name: str, *args: Any) -> Any:
    """A function that PyTorch warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(op_table.LIBRARY, name)(*args)


def _squared_parts(name: str, *how: Any) -> Any:
    """Factors that are determined up to signs, which squares take away."""

    def call(x: Any) -> Any:
        return tuple(part * part for part in getattr(op_table.LIBRARY, name)(x, *how))

    return call


def _squared_svd(x: Any) -> Any:
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    return u * u, s * s, (vh * vh).swapaxes(-1, -2)


def _vander(x: Any, N: int | None = None) -> Any:
    x = np.atleast_1d(x)
    return np.stack([x**k for k in range(x.shape[-1] if N is None else N)], -1)


def _lu(x: Any) -> Any:
    return op_table.LIBRARY.linalg.lu(x)[1:]


_check: Any = {"check_errors": True, "raises": RuntimeError}

CASES = [
    Case(
        "linalg.lu",
        _matrices,
        lambda x: _each(scipy.linalg.lu)(x)[1:],
        call=_lu,
        rtol64=1e-9,
        rtol32=2e-3,
        repeats=False,
    ),
    Case(
        "linalg.lu-order",
        _matrices,
        _each(scipy.linalg.lu),
        function="linalg.lu",
        orders=0,
        **_alone,
        errors=(_vector, _no_pivot),
    ),
    Case(
        "linalg.lu_factor",
        _squares,
        lambda x: _each(_packed)(x)[:2],
        result=(same, _int32),
        **_alone,
        errors=(
            _vector,
            _no_pivot,
            wrong(_singular, raises=RuntimeError, words=r"U\[2,2\] is zero"),
        ),
    ),
    Case(
        "linalg.lu_factor_ex",
        lambda draw: [*_squares(draw), sample(_singular.astype(draw.dtype), kind="special")],
        _each(_packed),
        result=(same, _int32, _int32),
        **_alone,
        errors=(
            _vector,
            wrong(_singular, check_errors=True, raises=RuntimeError, words="is zero"),
        ),
    ),
    Case(
        "linalg.lu_solve",
        _solutions,
        _from_factors,
        **_alone,
        errors=(
            wrong(_of(2, 2), _pivots, _of(2), raises=RuntimeError, words="."),
            wrong(_of(2, 2), _pivots, _of(3, 1), raises=RuntimeError, words="ncompatible shapes"),
            wrong(_of(2, 2), _of(2), _of(2, 1), raises=RuntimeError, words="int"),
            wrong(_of(2, 2), _pivots * 0, _of(2, 1), raises=RuntimeError, words="equal to 1"),
            wrong(_of(2, 2), _pivots + 9, _of(2, 1), raises=RuntimeError, words="lu_solve"),
            wrong(_of(2, 2), _pivots[:1], _of(2, 1), raises=RuntimeError, words="pivots per batch"),
        ),
    ),
    Case(
        "linalg.lu_solve-short",
        lambda draw: [sample(y, lu, pivots) for lu, pivots, y in [_solutions(draw)[0].args]],
        lambda y, lu, pivots: _from_factors(lu, pivots, y),
        function="lu_solve",
        **_rough,
        errors=(wrong(_of(2, 1), _of(2, 2), _of(2), raises=RuntimeError, words="int"),),
    ),
    Case(
        "linalg.lu_unpack",
        lambda draw: [
            sample(draw(3, 2), np.array([2, 3], "int32")),
            sample(draw(2, 3), np.array([2, 2], "int32")),
        ],
        lambda x, pivots: _unpacked(x, pivots)[1:],
        call=lambda x, pivots: op_table.LIBRARY.lu_unpack(x, pivots)[1:],
        rtol64=1e-9,
        rtol32=2e-3,
        repeats=False,
    ),
    Case(
        "linalg.lu_unpack-order",
        lambda draw: [
            sample(_square(draw), np.array([2, 3, 3], "int32")),
            sample(draw(4, 2), np.array([3, 4], "int32")),
            sample(draw(2, 2, 3), np.array([[1, 2], [2, 2]], "int32")),
            sample(draw(2, 2), np.array([1, 2], "int32"), False),
            sample(draw(2, 2), np.array([1, 2], "int32"), True, False),
        ],
        _unpacked,
        function="lu_unpack",
        orders=0,
        result=(same, same, same),
        **_alone,
        errors=(
            wrong(_of(2), _pivots, raises=RuntimeError, words="2 or more dimensions"),
            wrong(_of(2, 2), _of(2), raises=RuntimeError, words="int32"),
        ),
    ),
    Case(
        "linalg.triangular_solve",
        lambda draw: [
            sample(draw(3, 2), _triangle(draw), False),
            sample(draw(3, 2), _triangle(draw), False, True),
            sample(draw(2, 3, 1), _triangle(draw).T.copy()),
            sample(draw(3, 2), np.stack([_triangle(draw)] * 2), False, False, True),
        ],
        _triangular,
        function="triangular_solve",
        call=lambda *args: _quietly("triangular_solve", *args).solution,
        method=NO_METHOD,
        **_rough,
        errors=(
            wrong(_of(3), _of(3, 3), raises=RuntimeError, words="at least 2 dimensions"),
            wrong(_of(4, 1), _of(3, 3), raises=RuntimeError, words="ncompatible"),
        ),
    ),
    Case(
        "linalg.matrix_exp",
        lambda draw: [
            sample(draw(3, 3)),
            sample(draw(2, 2, 2)),
            sample(draw(0, 2, 2), kind="empty"),
        ],
        _each(scipy.linalg.expm),
        **_alone,
        errors=(
            _oblong,
            wrong(np.ones((2, 2), "int64"), raises=RuntimeError, words="floating point"),
        ),
    ),
    Case(
        "linalg.matrix_exp-short",
        lambda draw: [sample(draw(2, 2))],
        scipy.linalg.expm,
        function="matrix_exp",
        **_rough,
        errors=(_oblong,),
    ),
    Case(
        "linalg.tensorsolve",
        lambda draw: [
            sample(_square(draw, 4).reshape(2, 2, 4), draw(2, 2)),
            sample(_square(draw, 4).reshape(4, 2, 2), draw(4)),
            sample(_square(draw, 6).reshape(6, 3, 2), draw(3, 2), dims=(0,)),
        ],
        lambda x, y, dims=None: np.linalg.tensorsolve(x, y, dims),
        **_alone,
        errors=(wrong(_of(2, 3), _of(2), raises=RuntimeError, words="to satisfy the requirement"),),
    ),
    Case(
        "linalg.vander",
        lambda draw: [
            sample(draw(3)),
            sample(draw(2, 3)),
            sample(draw(2), N=4),
            sample(draw(), N=2, kind="scalar"),
        ],
        _vander,
        method=NO_METHOD,
        dtypes=(*FLOATS, "int64"),
        errors=(wrong(_of(2), N=-1, raises=RuntimeError, words="greater than 1"),),
    ),
    Case(
        "linalg.inv_ex",
        _squares,
        np.linalg.inv,
        function="linalg.inv_ex",
        call=_without_info("inv_ex"),
        rtol64=1e-9,
        rtol32=2e-3,
        repeats=False,
        errors=(_oblong, wrong(_singular, **_check, words="diagonal element 2 is zero")),
    ),
    _infos("inv_ex", _singular, info=[0, 2]),
    *(
        Case(
            f"linalg.{name}",
            lambda draw: [
                sample(_square(draw), draw(3)),
                sample(_square(draw), draw(2, 3, 2)),
                sample(np.stack([_square(draw), 2 * _square(draw)]), draw(2, 3)),
                sample(np.stack([_square(draw), 2 * _square(draw)]), draw(3, 2)),
                sample(_square(draw), draw(2, 3), left=False),
                sample(np.stack([_square(draw), 2 * _square(draw)]), draw(2, 3, 3), left=False),
                sample(draw(0, 2, 2), draw(0, 2, 1), kind="empty"),
            ],
            _solved,
            call=call,
            method=NO_METHOD,
            rtol64=1e-9,
            rtol32=2e-3,
            repeats=False,
            errors=(
                wrong(_of(2, 3), _of(2), raises=RuntimeError, words="square"),
                wrong(_singular, _of(3), raises=RuntimeError, words="."),
                wrong(_singular, _of(2), **how, words="singular"),
            ),
        )
        for name, call, how in (
            ("solve", None, {"raises": RuntimeError}),
            ("solve_ex", _without_info("solve_ex"), _check),
        )
    ),
    _infos("solve_ex", _singular, _of(2, 2, 1), info=[0, 2]),
    Case(
        "linalg.cholesky_ex",
        lambda draw: [sample(_definite(draw)), sample(np.stack([_definite(draw)] * 2))],
        _lower(np.linalg.cholesky),
        function="linalg.cholesky_ex",
        call=_without_info("cholesky_ex"),
        orders=0,
        rtol64=1e-9,
        rtol32=2e-3,
        repeats=False,
        errors=(
            _oblong,
            wrong(-_of(2, 2), **_check, words="leading minor of order 1"),
        ),
    ),
    Case(
        "linalg.cholesky_ex-gradient",
        lambda draw: [sample(_square(draw))],
        lambda x: np.linalg.cholesky(x @ x.T),
        call=lambda x: op_table.LIBRARY.linalg.cholesky_ex(x @ x.mT)[0],
        rtol64=1e-9,
        rtol32=2e-3,
        repeats=False,
    ),
    Case(
        "linalg.cholesky_ex-upper",
        lambda draw: [sample(_definite(draw))],
        lambda x: np.linalg.cholesky(x).T,
        call=lambda x: op_table.LIBRARY.linalg.cholesky_ex(x, upper=True)[0],
        orders=0,
        rtol64=1e-9,
        rtol32=2e-3,
        repeats=False,
    ),
    _infos("cholesky_ex", np.array([[1.0, 2], [2, 1]]), info=[0, 2]),
    Case(
        "linalg.pinverse",
        lambda draw: [sample(draw(3, 2)), sample(_square(draw))],
        np.linalg.pinv,
        function="pinverse",
        **_rough,
        errors=(_vector,),
    ),
    Case(
        "linalg.cholesky-short",
        lambda draw: [sample(_definite(draw)), sample(_definite(draw), True)],
        lambda x, upper=False: np.linalg.cholesky(x).T if upper else np.linalg.cholesky(x),
        function="cholesky",
        orders=0,
        **_rough,
        errors=(wrong(-_of(2, 2), raises=RuntimeError, words="positive-definite"),),
    ),
    Case(
        "linalg.cholesky_solve",
        lambda draw: [
            sample(draw(3, 2), _triangle(draw)),
            sample(draw(3, 2), _triangle(draw).T.copy(), True),
        ],
        _cholesky_solved,
        function="cholesky_solve",
        **_rough,
        errors=(
            wrong(_of(1), _of(1, 1), raises=RuntimeError, words="at least 2 dimensions"),
            wrong(_of(2, 1), _of(3, 3), raises=RuntimeError, words="ncompatible"),
        ),
    ),
    Case(
        "linalg.cholesky_inverse",
        lambda draw: [sample(_triangle(draw)), sample(_triangle(draw).T.copy(), True)],
        lambda x, upper=False: np.linalg.inv(x.T @ x if upper else x @ x.T),
        function="cholesky_inverse",
        **_rough,
        errors=(_vector,),
    ),
    Case(
        "linalg.qr-short",
        lambda draw: [sample(draw(4, 3)), sample(_square(draw))],
        lambda x: tuple(part * part for part in np.linalg.qr(x)),
        function="qr",
        call=_squared_parts("qr"),
        rtol64=1e-9,
        rtol32=2e-3,
        repeats=False,
    ),
    Case(
        "linalg.qr-short-all",
        lambda draw: [sample(draw(4, 3))],
        lambda x: tuple(part * part for part in np.linalg.qr(x, "complete")),
        function="qr",
        call=_squared_parts("qr", False),
        orders=0,
        rtol64=1e-9,
        rtol32=2e-3,
        repeats=False,
    ),
    Case(
        "linalg.svd-short",
        lambda draw: [sample(draw.distinct(3, 3)), sample(draw.distinct(4, 2))],
        _squared_svd,
        function="svd",
        call=_squared_parts("svd"),
        rtol64=1e-8,
        rtol32=2e-3,
        repeats=False,
    ),
    Case(
        "linalg.svd-short-values",
        lambda draw: [sample(draw.distinct(4, 2))],
        lambda x: (np.zeros((4, 4)), np.linalg.svd(x)[1] ** 2, np.zeros((2, 2))),
        function="svd",
        call=_squared_parts("svd", True, False),
        orders=0,
        rtol64=1e-8,
        rtol32=2e-3,
        repeats=False,
    ),
    Case(
        "linalg.nuclear_norm",
        lambda draw: [
            sample(draw.distinct(3, 2)),
            sample(draw.distinct(3, 2), True),
            sample(draw.distinct(2, 3, 2), (0, 2)),
            sample(draw.distinct(2, 3, 2)),
        ],
        lambda x, dim=(-2, -1), keepdim=False: np.linalg.norm(
            x, "nuc", (-2, -1) if dim is True else dim, dim is True or keepdim
        ),
        function="nuclear_norm",
        **_alone,
        errors=(
            wrong(_of(2), raises=RuntimeError, words="at least 2 dim"),
            wrong(_of(2, 2), 0, raises=RuntimeError, words="."),
        ),
    ),
    Case(
        "frobenius_norm",
        lambda draw: [
            sample(draw(2, 3), 1),
            sample(draw(2, 3), (0, 1), True),
            sample(draw(2, 2, 3), [0, 2]),
        ],
        lambda x, dim, keepdim=False: np.sqrt(
            (x * x).sum(tuple(np.atleast_1d(dim)), keepdims=keepdim)
        ),
        method=NO_METHOD,
        errors=(wrong(_of(2, 3), 2, raises=IndexError, words="Dimension out of range"),),
    ),
]
