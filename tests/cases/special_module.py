"""Rows of ``ng.special``: Bessel's functions, the normal distribution, zeta, incomplete gamma."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
from op_table import FLOATS, NO_METHOD, Case, Draw, Sample, binary, floating, sample, unary, wrong

_floats, _ints = np.ones(3, "float32"), np.ones(3, "int64")
_refused: Any = {"raises": (NotImplementedError, TypeError), "words": "not implemented for"}


def _row(name: str, oracle: Any, **options: Any) -> Case:
    options.setdefault("dtypes", (*FLOATS, "int64"))
    return unary(f"special.{name}", oracle, function=f"special.{name}", method=NO_METHOD, **options)


def _incomplete(name: str, oracle: Any) -> Case:
    return Case(
        name,
        lambda draw: [
            sample(draw(2, 3), draw(2, 3)),
            sample(draw(2, 3), draw(3), kind="broadcast"),
            sample(draw(), draw(), kind="scalar"),
            sample(draw(0, 3), draw(3), kind="empty"),
        ],
        oracle,
        domain=(0.3, 4.0),
        orders=1,
        inplace=f"{name}_",
        rtol64=1e-10,
        errors=(
            wrong(_ints, _ints, **_refused),
            wrong(_floats, 2.0, raises=TypeError, words="must be Tensor"),
            wrong(_floats, np.ones(2, "float32"), raises=RuntimeError, words="must match"),
        ),
    )


def _zetas(draw: Draw) -> list[Sample]:
    q = np.array([-1.5, -0.3, 0.4]).astype(draw.dtype)
    return [
        sample(2.5, draw(2, 3)),
        sample(3, q),
        sample(np.array([[2], [3]]), q, kind="broadcast"),
        sample(2, draw(0, 3), kind="empty"),
    ]


def _zeta(s: Any, q: Any) -> Any:
    """SciPy's, and terms one by one below 0, where it knows none."""
    s, q = np.asarray(s, "float64"), np.asarray(q, "float64")
    ahead = sum(np.where(q + k < 0, np.abs(q + k) ** -s * np.sign(q + k) ** s, 0) for k in range(3))
    return ahead + scipy.special.zeta(s, np.where(q < 0, q - np.floor(q), q))


# PyTorch has these with errors up to 1e-8: at 4.79 its bessel_j0 is 7e-9 away.
WAVES = {
    "bessel_j0": scipy.special.j0,
    "bessel_j1": scipy.special.j1,
    "bessel_y0": scipy.special.y0,
    "bessel_y1": scipy.special.y1,
}

CASES = [
    _row("i0e", scipy.special.i0e, domain=(-12.0, 12.0), avoid=(0.0,)),
    _row("i1", scipy.special.i1, domain=(-12.0, 12.0), special=False),
    _row("i1e", scipy.special.i1e, domain=(-12.0, 12.0), avoid=(0.0,)),
    *[
        _row(n, f, domain=(-20.0, 20.0), orders=0, special=False, peer=False)
        for n, f in WAVES.items()
    ],
    _row("erfcx", scipy.special.erfcx),
    _row("ndtr", scipy.special.ndtr),
    _row("log_ndtr", scipy.special.log_ndtr, domain=(-6.0, 3.0)),
    _row("ndtri", scipy.special.ndtri, domain=(0.05, 0.95), dtypes=FLOATS),
    _row("entr", scipy.special.entr, domain=(0.05, 3.0)),
    binary(
        "special.xlog1py",
        scipy.special.xlog1py,
        function="special.xlog1py",
        method=NO_METHOD,
        second=(-0.7, 3),
        result=floating,
        special=False,
    ),
    Case(
        "special.xlog1py-zero",
        lambda d: [sample(np.zeros(4, d.dtype), np.array([-1.0, 2.0, np.inf, np.nan], d.dtype))],
        scipy.special.xlog1py,
        method=NO_METHOD,
        orders=0,
    ),
    Case(
        "special.zeta",
        lambda draw: [
            sample(draw(2, 3), draw(2, 3)),
            sample(draw(2, 3), draw(3), kind="broadcast"),
            sample(draw(), draw(), kind="scalar"),
        ],
        _zeta,
        method=NO_METHOD,
        domain=(1.2, 5.0),
        orders=0,
    ),
    Case(
        "special.zeta-second",
        _zetas,
        _zeta,
        method=NO_METHOD,
        domain=(0.3, 5.0),
        rtol64=1e-10,
        errors=(wrong(2, 3.0, raises=TypeError, words="."),),
    ),
    _incomplete("igamma", scipy.special.gammainc),
    _incomplete("igammac", scipy.special.gammaincc),
    *[
        _row(name, oracle, domain=(0.3, 2.0), special=False, dtypes=("float64",))
        for name, oracle in (
            ("psi", scipy.special.psi),
            ("gammaln", scipy.special.gammaln),
            ("expit", scipy.special.expit),
        )
    ],
]
