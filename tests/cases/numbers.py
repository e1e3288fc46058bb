"""Rows of what looks into numbers, of functions of whole ones, of relatives of gamma and erf."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
from op_table import (
    FLOATS,
    NO_METHOD,
    NUMBERS,
    Case,
    Draw,
    Sample,
    binary,
    floating,
    same,
    sample,
    unary,
    wrong,
)

_refused: Any = {"raises": (NotImplementedError, TypeError), "words": "not implemented for"}
_floats, _ints = np.ones(3, "float32"), np.ones(3, "int64")


def _shifted(left: bool) -> Any:
    def oracle(x: Any, y: Any) -> Any:
        x, y = np.broadcast_arrays(x, y)
        inside = (y >= 0) & (y < 64)
        if left:
            return np.where(inside, x << np.where(inside, y, 0), 0)
        return x >> np.where(inside, y, 63)

    return oracle


def _shifts(draw: Draw) -> list[Sample]:
    counts = np.array([0, 1, 3]).astype(draw.dtype)
    calls = [
        sample(draw(2, 3), counts),
        sample(draw(2, 3), 2),
        sample(draw(), counts[1], kind="scalar"),
        sample(draw(0, 3), counts, kind="empty"),
    ]
    if draw.dtype == "int64":
        calls.append(sample(draw(4), np.array([-1, 63, 64, 200])))
    return calls


def _shift(name: str, left: bool) -> Case:
    return Case(
        name,
        _shifts,
        _shifted(left),
        dtypes=("int64", "int32", "int16", "int8", "uint8"),
        inplace=f"{name}_",
        orders=0,
        errors=(
            wrong(_floats, _floats, **_refused),
            wrong(_ints > 0, _ints > 0, **_refused),
            wrong(_ints, np.ones(2, "int64"), raises=RuntimeError, words="must match"),
        ),
    )


def _whole(name: str, oracle: Any) -> Case:
    return Case(
        name,
        lambda draw: [
            sample(draw(3, 4) * 6, draw(3, 4) * 4),
            sample(draw(3, 4) * 6, draw(4) * 4, kind="broadcast"),
            sample(draw(), draw(), kind="scalar"),
            sample(draw(0, 3), draw(3), kind="empty"),
        ],
        oracle,
        domain=(-6.0, 6.0),
        dtypes=("int64", "int32", "int16", "int8", "uint8"),
        inplace=f"{name}_",
        orders=0,
        errors=(
            wrong(_floats, _floats, **_refused),
            wrong(_ints > 0, _ints > 0, **_refused),
            wrong(_ints, np.ones(2, "int64"), raises=RuntimeError, words="must match"),
            wrong(_ints, 3, raises=TypeError, words="must be Tensor"),
        ),
    )


def _frexp(x: Any) -> Any:
    mantissa, exponent = np.frexp(x)
    return mantissa, np.where(np.isfinite(x), exponent, 0)


def _ldexps(draw: Draw) -> list[Sample]:
    powers = np.array([3, -2, 0])
    return [
        sample(draw(2, 3), powers),
        sample(draw(2, 3), draw(3), kind="broadcast"),
        sample(draw(), draw(), kind="scalar"),
        sample(draw(0, 3), powers, kind="empty"),
    ]


def _next(draw: Draw) -> list[Sample]:
    x = draw(2, 3)
    return [
        sample(x, draw(2, 3)),
        sample(x, draw(3), kind="broadcast"),
        sample(x, x.copy()),
        sample(draw(), draw(), kind="scalar"),
        sample(draw(0, 3), draw(3), kind="empty"),
    ]


def _orders(draw: Draw) -> list[Sample]:
    calls = [sample(n, draw(2, 3)) for n in (0, 1, 2)]
    return [*calls, sample(4, draw(2)), sample(1, draw(0, 3), kind="empty")]


def _multigamma(x: Any, p: int) -> Any:
    found = np.zeros_like(x, dtype=np.float64)
    for i in range(p):
        found = found + scipy.special.gammaln(x - i / 2)
    return found + p * (p - 1) / 4 * np.log(np.pi)


CASES = [
    unary("erfinv", scipy.special.erfinv, domain=(-0.95, 0.95), dtypes=FLOATS, inplace=True),
    unary("erfinv-ints", scipy.special.erfinv, dtypes=("int64",), domain=(-1, 1), orders=0),
    unary("i0", scipy.special.i0, domain=(-12.0, 12.0), inplace=True, special=False),
    Case(
        "polygamma",
        _orders,
        scipy.special.polygamma,
        method=NO_METHOD,
        domain=(0.3, 4.0),
        dtypes=(*FLOATS, "int64"),
        result=floating,
        rtol64=1e-8,
        errors=(wrong(-1, _floats, raises=RuntimeError, words="does not support negative n"),),
    ),
    Case(
        "polygamma-method",
        lambda draw: [sample(draw(2, 3), 1), sample(-draw(3) - 0.25, 2)],
        lambda x, n: _polygamma(n, x),
        function="polygamma",
        call=lambda x, n: x.polygamma(n),
        method="polygamma",
        inplace="polygamma_",
        domain=(0.3, 0.7),
        rtol64=1e-8,
        rtol32=1e-4,
    ),
    Case(
        "mvlgamma",
        lambda draw: [
            sample(draw(2, 3), 1),
            sample(draw(2, 3), 3),
            sample(draw(), 2, kind="scalar"),
            sample(draw(0, 2), 2, kind="empty"),
        ],
        _multigamma,
        domain=(1.2, 4.0),
        dtypes=(*FLOATS, "int64"),
        result=floating,
        inplace="mvlgamma_",
        rtol64=1e-11,
        errors=(wrong(_floats, 0, raises=RuntimeError, words="greater than or equal to 1"),),
    ),
    Case(
        "frexp",
        lambda draw: [
            sample(draw(2, 3)),
            sample(draw(), kind="scalar"),
            sample(draw(0, 3), kind="empty"),
            sample(draw.special(), kind="special"),
        ],
        _frexp,
        avoid=(-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0),
        result=(same, lambda dtype: "int32"),
        errors=(wrong(_ints, raises=RuntimeError, words="only supports floating-point dtypes"),),
    ),
    Case(
        "ldexp",
        _ldexps,
        lambda x, y: x * np.exp2(y),
        dtypes=NUMBERS,
        result=floating,
        inplace="ldexp_",
        errors=(wrong(_floats, 2, raises=TypeError, words="must be Tensor"),),
    ),
    Case(
        "nextafter",
        _next,
        np.nextafter,
        inplace="nextafter_",
        orders=0,
        errors=(
            wrong(_ints, _ints, **_refused),
            wrong(_floats, 2.0, raises=TypeError, words="must be Tensor"),
        ),
    ),
    _whole("gcd", np.gcd),
    _whole("lcm", np.lcm),
    _shift("bitwise_left_shift", True),
    _shift("bitwise_right_shift", False),
    binary(
        "rsub",
        lambda x, y, alpha=1: y - alpha * x,
        method=NO_METHOD,
        result=same,
        special=False,
        errors=(wrong(_ints > 0, _ints, raises=RuntimeError, words="bool tensor"),),
    ),
    Case(
        "rsub-alpha",
        lambda draw: [sample(draw(2, 3), draw(3), alpha=2)],
        lambda x, y, alpha=1: y - alpha * x,
        method=NO_METHOD,
    ),
]


def _polygamma(n: int, x: Any) -> Any:
    """SciPy's, which knows positive x only, reflected for n = 2."""
    if n != 2:
        return scipy.special.polygamma(n, x)
    c = 1 / np.tan(np.pi * x)
    below = scipy.special.polygamma(2, 1 - np.minimum(x, 0.5)) - np.pi**3 * 2 * c * (1 + c * c)
    return np.where(x > 0, scipy.special.polygamma(2, np.abs(x)), below)
