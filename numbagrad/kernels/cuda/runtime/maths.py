"""The functions of formulas on a GPU, by name and type: NVIDIA's libdevice, or NumPy simulated.

Kernels take ``math`` from here: in the simulator Python's would raise where a GPU gives NaN or
infinity.
"""

from __future__ import annotations

import math as python_math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from .shape import SIMULATED

__all__ = ["math"]

math: Any = python_math


def _quiet(function: Callable[..., Any], where_none: float = np.nan) -> Callable[..., Any]:
    """``function`` with a GPU's answers where Python raises; float32 stays float32.

    where_none: the answer outside of the function's domain.
    """

    def quiet(*args: Any) -> Any:
        floats: list[Any] = [a for a in args if isinstance(a, np.floating)]
        dtype: Any = np.result_type(*floats or [np.float64])
        try:
            return dtype.type(function(*args))
        except ValueError:
            return dtype.type(where_none)
        except OverflowError:
            return dtype.type(np.inf)

    return quiet


def _numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    def quiet(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args)

    return quiet


if SIMULATED:
    floor_float32 = floor_float64 = np.floor
    ceil_float32 = ceil_float64 = np.ceil
    trunc_float32 = trunc_float64 = np.trunc
    rint_float32 = rint_float64 = np.rint
    exp2_float32 = exp2_float64 = np.exp2
    log2_float32 = log2_float64 = np.log2
    _named = {
        "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
        "atan": np.arctan, "atan2": np.arctan2, "atanh": np.arctanh, "copysign": np.copysign,
        "cos": np.cos, "cosh": np.cosh, "exp": np.exp, "expm1": np.expm1, "floor": np.floor,
        "hypot": np.hypot,
        "log": np.log, "log10": np.log10, "log1p": np.log1p, "pow": np.power, "sin": np.sin,
        "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh,
    }  # fmt: skip
    math = SimpleNamespace(
        inf=python_math.inf,
        nan=python_math.nan,
        erf=_quiet(python_math.erf),
        erfc=_quiet(python_math.erfc),
        lgamma=_quiet(python_math.lgamma, np.inf),
        **{name: _numpy(function) for name, function in _named.items()},
    )
else:
    from numba.cuda import libdevice

    floor_float32, floor_float64 = libdevice.floorf, libdevice.floor
    ceil_float32, ceil_float64 = libdevice.ceilf, libdevice.ceil
    trunc_float32, trunc_float64 = libdevice.truncf, libdevice.trunc
    rint_float32, rint_float64 = libdevice.rintf, libdevice.rint
    exp2_float32, exp2_float64 = libdevice.exp2f, libdevice.exp2
    log2_float32, log2_float64 = libdevice.log2f, libdevice.log2
