"""Rows of products of matrices and vectors, and of linalg."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from op_table import FLOATS, NO_METHOD, Case, Draw, Sample, sample, wrong

MATMUL_DTYPES = (*FLOATS, "int64")


def _of(*shape: int) -> np.ndarray:
    return np.ones(shape, "float32")


def _products(draw: Draw) -> list[Sample]:
    return [
        sample(draw(2, 3), draw(3, 4)),
        sample(draw(3), draw(3)),
        sample(draw(2, 3), draw(3)),
        sample(draw(3), draw(3, 2)),
        sample(draw(2, 2, 3), draw(2, 3, 2)),
        sample(draw(2, 2, 3), draw(3, 2)),
        sample(draw(2, 3), draw(2, 3, 2), kind="broadcast"),
        sample(draw(2, 1, 2, 3), draw(3, 3, 1), kind="broadcast"),
        sample(draw(2, 2, 3), draw(3)),
        sample(draw(3), draw(2, 3, 2)),
        sample(draw(0, 3), draw(3, 2), kind="empty"),
        sample(draw(2, 0), draw(0, 3), kind="empty"),
        sample(draw(0, 2, 3), draw(3, 2), kind="empty"),
    ]


_shapes = "cannot be multiplied|must match|inconsistent tensor size|[Ee]xpected size"
_matmul_errors = (
    wrong(_of(2, 3), _of(2, 3), raises=RuntimeError, words="cannot be multiplied"),
    wrong(_of(2, 3), _of(2), raises=RuntimeError, words="size mismatch|cannot be multiplied"),
    wrong(_of(2, 2, 3), _of(3, 3, 2), raises=RuntimeError, words="must match|[Ee]xpected size"),
    wrong(_of(), _of(2), raises=RuntimeError, words="at least 1D|1-?D"),
    wrong(
        _of(2, 3), np.ones((3, 2)), raises=RuntimeError, words="same dtype|scalar type|expected m1"
    ),
)


def _einsum(draw: Draw) -> list[Sample]:
    return [
        sample("ij,jk->ik", draw(2, 3), draw(3, 2)),
        sample("ij,kj", draw(2, 3), draw(4, 3)),
        sample("bij,bjk->bik", draw(2, 2, 3), draw(2, 3, 2)),
        sample("ij->ji", draw(2, 3)),
        sample("ii->i", draw(3, 3)),
        sample("ij->", draw(2, 3)),
        sample("i,j->ij", draw(2), draw(3)),
        sample("...i,i->...", draw(2, 2, 3), draw(3)),
        sample("ij,jk,k->i", draw(2, 3), draw(3, 2), draw(2)),
    ]


def _square(draw: Draw) -> np.ndarray:
    return (draw(3, 3) + 5 * np.eye(3)).astype(draw.dtype)


def _symmetric(x: Any) -> Any:
    return x @ x.mT if hasattr(x, "mT") else x @ x.swapaxes(-1, -2)


def _spd_call(function: str) -> Any:
    def call(x: Any) -> Any:
        import op_table

        found: Any = op_table.LIBRARY
        for part in function.split("."):
            found = getattr(found, part)
        return found(x @ x.mT)

    return call


def _linalg() -> Any:
    import op_table

    return op_table.LIBRARY.linalg


def _factors(name: str, samples: Any, call: Any, oracle: Any, **options: Any) -> Case:
    """A row of factors that are determined up to signs, which ``call`` takes away."""
    return Case(
        name, samples, oracle, call=call, rtol64=1e-9, rtol32=1e-3, repeats=False, **options
    )


def _qr(x: Any) -> Any:
    q, r = _linalg().qr(x)
    return q * q, r * r


def _qr_numpy(x: Any) -> Any:
    q, r = np.linalg.qr(x)
    return q * q, r * r


def _eigh(x: Any) -> Any:
    values, vectors = _linalg().eigh(x + x.mT)
    return values, vectors * vectors


def _eigh_numpy(x: Any) -> Any:
    values, vectors = np.linalg.eigh(x)
    return values, vectors * vectors


def _svd(x: Any) -> Any:
    u, s, vh = _linalg().svd(x, full_matrices=False)
    return u * u, s, vh * vh


def _svd_numpy(x: Any) -> Any:
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    return u * u, s, vh * vh


def _tensordot(x: Any, y: Any, dims: Any = 2) -> Any:
    return np.tensordot(x, y, dims)


def _cdist(x: Any, y: Any, p: float = 2.0) -> Any:
    return np.sum(np.abs(x[..., :, None, :] - y[..., None, :, :]) ** p, -1) ** (1 / p)


def _matrix_norm(x: Any, p: Any, dim: Any = (-2, -1), keep: bool = False) -> Any:
    return np.linalg.norm(x, p, dim, keep) if x.size else np.zeros(x.shape[:-2])


CASES = [
    Case(
        "matmul",
        _products,
        np.matmul,
        dtypes=MATMUL_DTYPES,
        rtol32=1e-5,
        errors=_matmul_errors,
    ),
    Case("operator-matmul", _products, np.matmul, call=operator.matmul, errors=_matmul_errors),
    Case(
        "mm",
        lambda d: [
            sample(d(2, 3), d(3, 4)),
            sample(d(1, 3), d(3, 1)),
            sample(d(0, 3), d(3, 2), kind="empty"),
            sample(d(2, 0), d(0, 3), kind="empty"),
        ],
        np.matmul,
        dtypes=MATMUL_DTYPES,
        errors=(
            wrong(_of(2, 3), _of(2, 3), raises=RuntimeError, words="cannot be multiplied"),
            wrong(_of(3), _of(3, 2), raises=RuntimeError, words="must be a matrix|2-?D"),
        ),
    ),
    Case(
        "bmm",
        lambda d: [
            sample(d(2, 2, 3), d(2, 3, 2)),
            sample(d(0, 2, 3), d(0, 3, 2), kind="empty"),
        ],
        np.matmul,
        errors=(
            wrong(_of(2, 2, 3), _of(3, 3, 2), raises=RuntimeError, words="[Ee]xpected size"),
            wrong(_of(2, 3), _of(2, 3, 2), raises=RuntimeError, words="must be a 3D tensor"),
        ),
    ),
    Case(
        "mv",
        lambda d: [sample(d(2, 3), d(3)), sample(d(0, 3), d(3), kind="empty")],
        np.matmul,
        errors=(wrong(_of(2, 3), _of(2), raises=RuntimeError, words="size mismatch"),),
    ),
    Case(
        "dot",
        lambda d: [sample(d(3), d(3)), sample(d(0), d(0), kind="empty")],
        np.dot,
        errors=(
            wrong(_of(2), _of(3), raises=RuntimeError, words="same number of elements"),
            wrong(_of(2, 2), _of(2), raises=RuntimeError, words="1D tensors"),
        ),
    ),
    Case("inner", lambda d: [sample(d(3), d(3)), sample(d(2, 3), d(4, 3))], np.inner),
    Case(
        "outer",
        lambda d: [sample(d(2), d(3)), sample(d(0), d(3), kind="empty")],
        np.outer,
        errors=(wrong(_of(2, 2), _of(2), raises=RuntimeError, words="1-?D"),),
    ),
    Case(
        "addmm",
        lambda d: [
            sample(d(2, 4), d(2, 3), d(3, 4)),
            sample(d(4), d(2, 3), d(3, 4), kind="broadcast"),
            sample(d(2, 4), d(2, 3), d(3, 4), beta=0.5, alpha=2),
        ],
        lambda x, a, b, beta=1, alpha=1: beta * x + alpha * (a @ b),
        inplace="addmm_",
        errors=(wrong(_of(2), _of(2, 3), _of(2, 3), raises=RuntimeError, words="cannot be mult"),),
    ),
    Case(
        "baddbmm",
        lambda d: [sample(d(2, 2, 2), d(2, 2, 3), d(2, 3, 2))],
        lambda x, a, b: x + a @ b,
        inplace="baddbmm_",
    ),
    Case(
        "einsum",
        _einsum,
        np.einsum,
        method=NO_METHOD,
        errors=(
            wrong("ij,jk->ik", _of(2, 3), _of(2, 3), raises=RuntimeError, words="broadcast|size"),
            wrong("ij", _of(2), raises=RuntimeError, words="number of (subscripts|dim)"),
            wrong("ij->ik", _of(2, 3), raises=RuntimeError, words="output"),
        ),
    ),
    Case(
        "tensordot",
        lambda d: [
            sample(d(2, 3, 4), d(3, 4, 2)),
            sample(d(2, 3), d(3, 4), dims=1),
            sample(d(2, 3, 4), d(4, 2), dims=([2, 0], [0, 1])),
        ],
        _tensordot,
        method=NO_METHOD,
    ),
    Case("kron", lambda d: [sample(d(2, 3), d(2, 2))], np.kron),
    Case("trace", lambda d: [sample(d(3, 3)), sample(d(2, 3))], np.trace),
    Case(
        "cross",
        lambda d: [sample(d(2, 3), d(2, 3), dim=1)],
        lambda x, y, dim: np.cross(x, y, axis=dim),
    ),
    Case(
        "cdist",
        lambda d: [sample(d(2, 3), d(4, 3)), sample(d(2, 3), d(4, 3), p=1.0)],
        _cdist,
        method=NO_METHOD,
        orders=1,
        rtol64=1e-10,
    ),
    Case(
        "linear",
        lambda d: [
            sample(d(2, 3), d(4, 3), d(4)),
            sample(d(2, 3), d(4, 3)),
            sample(d(3), d(4, 3), d(4)),
            sample(d(2, 2, 3), d(1, 3), d(1)),
            sample(d(0, 3), d(4, 3), d(4), kind="empty"),
        ],
        lambda x, w, b=0: x @ w.T + b,
        function="nn.functional.linear",
        method=NO_METHOD,
        errors=(
            wrong(_of(2, 3), _of(4, 2), raises=RuntimeError, words="cannot be multiplied|features"),
        ),
    ),
    Case(
        "linalg.inv",
        lambda d: [sample(_square(d))],
        np.linalg.inv,
        method=NO_METHOD,
        rtol64=1e-10,
        rtol32=1e-4,
        repeats=False,
    ),
    Case(
        "linalg.det",
        lambda d: [sample(_square(d))],
        np.linalg.det,
        method=NO_METHOD,
        rtol64=1e-10,
        rtol32=1e-4,
        repeats=False,
    ),
    Case(
        "linalg.slogdet",
        lambda d: [sample(_square(d))],
        np.linalg.slogdet,
        method=NO_METHOD,
        rtol64=1e-10,
        rtol32=1e-4,
        orders=1,
        repeats=False,
    ),
    Case(
        "linalg.cholesky",
        lambda d: [sample(_square(d))],
        lambda x: np.linalg.cholesky(_symmetric(x)),
        call=_spd_call("linalg.cholesky"),
        rtol64=1e-10,
        rtol32=1e-4,
        repeats=False,
    ),
    Case(
        "linalg.norm",
        lambda d: [sample(d(2, 3)), sample(d(2, 3), 1, dim=1), sample(d(3))],
        lambda x, p=None, dim=None: np.linalg.norm(x, p, dim),
        method=NO_METHOD,
    ),
    Case(
        "linalg.vector_norm",
        lambda d: [sample(d(2, 3)), sample(d(2, 3), 3, dim=1)],
        lambda x, p=2, dim=None: np.sum(np.abs(x) ** p, axis=dim) ** (1 / p),
        method=NO_METHOD,
    ),
    Case(
        "linalg.matrix_norm",
        lambda d: [sample(d(2, 3))],
        np.linalg.norm,
        method=NO_METHOD,
    ),
    Case(
        "linalg.matrix_norm-order",
        lambda d: [
            *[sample(d.distinct(3, 2), p) for p in (2, -2, "nuc")],
            sample(d.distinct(2, 2, 3), 2, (0, 2), True),
            *[sample(d(0, 3), p, kind="empty") for p in (2, "nuc", -1, np.inf)],
            *[sample(d(2, 3, 0), p, (1, 2), kind="empty") for p in (2, 1, -np.inf)],
        ],
        _matrix_norm,
        method=NO_METHOD,
        rtol64=1e-10,
        rtol32=1e-4,
        repeats=False,
        errors=(
            wrong(np.ones((0, 3)), -2, raises=IndexError, words="reduction dim"),
            wrong(np.ones((3, 0)), -1, raises=IndexError, words="reduction dim"),
        ),
    ),
    _factors("linalg.qr", lambda d: [sample(d(4, 3)), sample(_square(d))], _qr, _qr_numpy),
    _factors("linalg.qr-wide", lambda d: [sample(d(2, 4))], _qr, _qr_numpy, orders=1),
    _factors(
        "linalg.eigh",
        lambda d: [sample(d.distinct(3, 3)), sample(d.distinct(2, 2, 2))],
        _eigh,
        lambda x: _eigh_numpy(x + x.swapaxes(-1, -2)),
    ),
    Case(
        "linalg.eigh-errors",
        lambda d: [],
        np.linalg.eigh,
        method=NO_METHOD,
        dtypes=(),
        errors=(wrong(_of(2, 3), raises=RuntimeError, words="square"),),
    ),
    _factors(
        "linalg.eigvalsh",
        lambda d: [sample(d.distinct(3, 3))],
        lambda x: _linalg().eigvalsh(x + x.mT, "U"),
        lambda x: np.linalg.eigvalsh(x + x.T),
    ),
    _factors(
        "linalg.svd",
        lambda d: [sample(d.distinct(3, 3)), sample(d.distinct(4, 2)), sample(d.distinct(2, 2, 3))],
        _svd,
        _svd_numpy,
        errors=(wrong(_of(3), raises=RuntimeError, words="at least 2 dim"),),
    ),
    Case(
        "linalg.svdvals",
        lambda d: [sample(d.distinct(3, 2))],
        lambda x: np.linalg.svd(x, compute_uv=False),
        method=NO_METHOD,
        rtol64=1e-10,
        rtol32=1e-4,
        repeats=False,
    ),
    Case(
        "linalg.pinv",
        lambda d: [sample(d(3, 2)), sample(d(2, 2, 3)), sample(_square(d))],
        np.linalg.pinv,
        method=NO_METHOD,
        rtol64=1e-10,
        rtol32=1e-4,
        repeats=False,
    ),
    Case(
        "linalg.lstsq",
        lambda d: [sample(d(4, 2), d(4, 2)), sample(_square(d), d(3, 1)), sample(d(2, 3), d(2, 2))],
        lambda x, y: np.linalg.lstsq(x, y, rcond=None)[0],
        call=lambda x, y: _linalg().lstsq(x, y).solution,
        rtol64=1e-10,
        rtol32=1e-4,
        repeats=False,
        errors=(wrong(_of(2, 3), _of(3, 2), raises=RuntimeError, words="should match"),),
    ),
    Case(
        "vander",
        lambda d: [
            sample(d(3)),
            sample(d(3), 2),
            sample(d(2), N=4, increasing=True),
            sample(d(0), kind="empty"),
        ],
        np.vander,
        method=NO_METHOD,
        dtypes=MATMUL_DTYPES,
        orders=0,  # PyTorch changes what it has saved
        errors=(wrong(_of(2, 2), raises=RuntimeError, words="one-dimensional"),),
    ),
    Case(
        "vander-gradient",
        lambda d: [sample(d(3)), sample(d(3), 2), sample(d(2), N=4, increasing=True)],
        np.vander,
        method=NO_METHOD,
        peer=False,
    ),
]


def _logdet(x: Any) -> Any:
    sign, logabsdet = np.linalg.slogdet(x)
    return np.where(sign < 0, np.nan, logabsdet)


_oblong = wrong(_of(2, 3), raises=RuntimeError, words="square matrices")


def _short(name: str, oracle: Any, **options: Any) -> Case:
    """A row of a function of square matrices that stands beside its form in linalg."""
    return Case(
        f"linalg.{name}-short",
        lambda d: [
            sample(_square(d)),
            sample(np.stack([_square(d), 2 * _square(d)])),
            sample(np.stack([_square(d), -_square(d)]), kind="special"),
        ],
        oracle,
        function=name,
        rtol64=1e-10,
        rtol32=1e-4,
        repeats=False,
        errors=(_oblong, wrong(_of(2), raises=RuntimeError, words="square matrices|2 dimensions")),
        **options,
    )


def _power(name: str, function: str, **options: Any) -> Case:
    return Case(
        name,
        lambda d: [
            sample(_square(d), 3),
            sample(np.stack([_square(d)] * 2), 1),
            *([sample(_square(d), -2)] if d.floating else []),
        ],
        np.linalg.matrix_power,
        function=function,
        rtol64=1e-9,
        rtol32=1e-3,
        repeats=False,
        errors=(
            wrong(_of(2, 3), 2, raises=RuntimeError, words="square matrices"),
            wrong(_of(2, 2), 1.5, raises=TypeError, words="must be int"),
        ),
        **options,
    )


_pair = [_of(2, 3), _of(3, 2)]

CASES += [
    _short("det", np.linalg.det),
    _short("inverse", np.linalg.inv),
    _short("slogdet", np.linalg.slogdet, orders=1),
    _short("logdet", _logdet),
    _power("linalg.matrix_power", "linalg.matrix_power", method=NO_METHOD),
    _power("linalg.matrix_power-short", "matrix_power", dtypes=(*FLOATS, "int64")),
    Case(
        "linalg.matrix_power-zero",
        lambda d: [sample(_square(d), 0), sample(np.stack([_square(d)] * 2), 0)],
        np.linalg.matrix_power,
        function="matrix_power",
        orders=0,
    ),
    Case(
        "linalg.multi_dot",
        lambda d: [
            sample([d(2, 3), d(3, 1)]),
            sample([d(2, 3), d(3, 4), d(4, 1), d(1, 5)]),
            sample([d(3), d(3, 2), d(2)]),
            sample([d(3), d(3, 2)]),
            sample([d(0, 3), d(3, 2)], kind="empty"),
        ],
        np.linalg.multi_dot,
        method=NO_METHOD,
        errors=(
            wrong([_of(2, 3)], raises=RuntimeError, words="at least 2 tensors but got 1"),
            wrong([_of(2, 3), _of(2)], raises=RuntimeError, words="cannot be multiplied"),
            wrong([_of(2, 3), _of(3, 2, 2)], raises=RuntimeError, words="1D or 2D but got 3D"),
            wrong([*_pair, _of(2, 2).astype("float64")], raises=RuntimeError, words="same dtype"),
        ),
    ),
    Case(
        "chain_matmul",
        lambda d: [sample(d(2, 3), d(3, 4), d(4, 2)), sample(d(2, 3), d(3, 2)), sample(d(2, 3))],
        lambda *m: np.linalg.multi_dot(m) if len(m) > 1 else m[0],
        method=NO_METHOD,
        errors=(wrong(*_pair[::-1], _of(2, 2), raises=RuntimeError, words="cannot be multi"),),
    ),
]
