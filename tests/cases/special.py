"""Rows of the rarer elementwise functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
from op_table import (
    ANY,
    FLOATS,
    NUMBERS,
    Case,
    Draw,
    Sample,
    binary,
    boolean,
    floating,
    same,
    sample,
    unary,
    wrong,
)


def _fmod(x: Any, y: Any) -> Any:
    return np.fmod(x, y)


def _lgamma(x: Any) -> Any:
    return np.where(np.isneginf(x), np.inf, scipy.special.gammaln(x))  # as in C, and PyTorch


def _heaviside(draw: Draw) -> list[Sample]:
    zeros = np.zeros((2, 3), draw.dtype)
    return [
        sample(draw(2, 3), draw(2, 3)),
        sample(zeros, draw(3), kind="broadcast"),
        sample(draw(), draw(), kind="scalar"),
        sample(draw(0, 3), draw(3), kind="empty"),
    ]


_ints = np.ones(3, "int64")
_integers = wrong(_ints, raises=(NotImplementedError, TypeError), words="not implemented for")
_integer_pair = wrong(
    _ints, _ints, raises=(NotImplementedError, TypeError), words="not implemented for"
)

# PyTorch has these forms too, but cannot differentiate them.
IN_PLACE = [
    unary("asinh-in-place", np.arcsinh, aliases=("arcsinh",), inplace="asinh_", peer=False),
    unary(
        "acosh-in-place",
        np.arccosh,
        domain=(1.2, 4),
        aliases=("arccosh",),
        inplace="acosh_",
        peer=False,
    ),
    unary(
        "atanh-in-place",
        np.arctanh,
        domain=(-0.9, 0.9),
        aliases=("arctanh",),
        inplace="atanh_",
        peer=False,
    ),
]

POLES = (-2.0, -1.0, 0.0)

CASES = [
    *IN_PLACE,
    unary("exp2", np.exp2, inplace=True),
    unary("erfc", scipy.special.erfc, inplace=True),
    unary("asinh", np.arcsinh, aliases=("arcsinh",)),
    unary("acosh", np.arccosh, domain=(1.2, 4), aliases=("arccosh",)),
    unary("atanh", np.arctanh, domain=(-0.9, 0.9), aliases=("arctanh",)),
    unary("sinc", np.sinc, inplace=True, rtol32=3e-5),
    unary(
        "frac",
        lambda x: x - np.trunc(x),
        dtypes=FLOATS,
        result=same,
        avoid=(-2, -1, 0, 1, 2, 3),
        inplace=True,
        errors=(_integers,),
    ),
    unary("sgn", np.sign, result=same, special=False, orders=0, inplace=True),
    unary("signbit", np.signbit, result=boolean, orders=0),
    unary("lgamma", _lgamma, domain=(-2.8, 4), avoid=POLES, inplace=True),
    unary(
        "digamma", scipy.special.digamma, domain=(-2.8, 4), avoid=POLES, inplace=True, rtol32=1e-4
    ),
    binary("copysign", np.copysign, result=floating, avoid=(0.0,), inplace="copysign_"),
    Case(
        "copysign-zero",
        lambda d: [sample(d(4), np.array([0.0, -0.0, -np.inf, np.inf], d.dtype))],
        np.copysign,
        orders=0,
    ),
    binary("fmax", np.fmax, dtypes=ANY, numbers=False),
    binary("fmin", np.fmin, dtypes=ANY, numbers=False),
    binary("fmod", _fmod, second=(1, 3), special=False, inplace="fmod_"),
    Case(
        "fmod-negative",
        lambda d: [sample(d(2, 3), -d(2, 3) - 7), sample(d(2, 3), -2)],
        _fmod,
        dtypes=(*FLOATS, "int64"),
        avoid=(-2.0, 0.0, 2.0),
        inplace="fmod_",
    ),
    binary(
        "hypot",
        np.hypot,
        dtypes=FLOATS,
        numbers=False,
        inplace="hypot_",
        errors=(_integer_pair,),
    ),
    binary("logaddexp", np.logaddexp, dtypes=FLOATS, numbers=False, errors=(_integer_pair,)),
    binary(
        "xlogy",
        scipy.special.xlogy,
        second=(0.3, 3),
        dtypes=NUMBERS,
        result=floating,
        special=False,
        inplace="xlogy_",
    ),
    Case(
        "xlogy-zero",
        lambda d: [sample(np.zeros(4, d.dtype), np.array([0.0, 2.0, np.inf, np.nan], d.dtype))],
        scipy.special.xlogy,
        orders=0,
    ),
    Case(
        "xlogy-through-zero",
        lambda d: [sample(np.zeros(4, d.dtype), np.array([0.5, 1.0, 2.0, 3.0], d.dtype))],
        scipy.special.xlogy,
        dtypes=FLOATS,
    ),
    Case(
        "heaviside",
        _heaviside,
        np.heaviside,
        dtypes=NUMBERS,
        avoid=(0.0,),
        orders=0,
        inplace="heaviside_",
        errors=(
            wrong(
                np.ones(3), np.ones(3, "float32"), raises=(RuntimeError, TypeError), words="dtypes"
            ),
        ),
    ),
]
