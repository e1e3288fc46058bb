"""Exponentials, logarithms, angles, powers, remainders as branch-free formulas that vectorise.

Numba's ``math.exp`` is a call of libm for each element. Here every function is arithmetic, bit
casts and selects, with AVX-512 tables within registers too, so that a loop around it becomes packed
instructions: 0.33 ms instead of 2.3 for the exp of 10^6 float32. Coefficients are minimax fits made
for these files (Remez exchange, 50 digits), those of ``simd/curves.py`` nearly so; the error
against the exact value is at most 2 units in the last place, which
``tests/kernels/test_simd_math.py`` checks on samples, special values included; of lgamma in
float64 it is 4 between 1 and 3, and more around its zeros below -2.

The formulas stand in ``simd``, a file for each family. ``FUNCTIONS[name, dtype]`` is the compiled
function. Numbers in the arithmetic of float32 are NumPy's: plain ones would widen it to float64;
where they are compared, or picked, plain ones do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from .simd.decorators import OPTIONS

_FAMILIES = {
    "exponential": "exp exp2 expm1 falling_exp sigmoid tanh",
    "logarithm": "log log2 log10 log1p",
    "trigonometric": "sin cos tan",
    "arc": "asin acos atan atan2",
    "hyperbolic": "sinh cosh asinh acosh atanh",
    "power": "pow",
    "root": "sqrt",
    "error": "erf erfc",
    "gamma": "lgamma",
    "division": "mod floordiv hypot",
}
OF_TWO = frozenset("atan2 pow mod floordiv hypot".split())


class _Functions(Mapping[tuple[str, str], Any]):
    """The compiled function by name and dtype. Its file is imported when it is asked for, which is
    when something that calls it is compiled: all of them take 4 ms."""

    def __init__(self) -> None:
        self._files = {
            (name, dtype): file
            for file, names in _FAMILIES.items()
            for name in names.split()
            for dtype in ("float32", "float64")
        }

    def __getitem__(self, key: tuple[str, str]) -> Any:
        name, dtype = key
        return getattr(import_module(f"{__package__}.simd.{self._files[key]}"), f"{name}_{dtype}")

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


FUNCTIONS = _Functions()


def _typed(name: str, plain: Callable[..., float]) -> Callable[..., float]:
    """A function for kernels that becomes the formula for the width of its arguments."""

    def function(x: float) -> float:
        return plain(x)

    def function_of_two(x: float, y: float) -> float:
        return plain(x, y)

    def of_whole(x: int) -> float:
        return named(float(x))  # type: ignore[call-arg]

    def of_two_whole(x: int, y: float) -> float:
        return named(float(x), float(y))  # type: ignore[call-arg]

    def choose(x: Any) -> Any:
        if isinstance(x, types.Integer):
            return of_two_whole if name in OF_TWO else of_whole
        # The Python function: Numba compiles it once here, where a call of the compiled one would
        # compile that, with its wrappers, and a caller of it. 60 ms instead of 120.
        return FUNCTIONS[name, "float32" if x == types.float32 else "float64"].py_func

    def choose_of_two(x: Any, y: Any) -> Any:
        return of_two_whole if isinstance(y, types.Integer) else choose(x)

    named, chosen = (function_of_two, choose_of_two) if name in OF_TWO else (function, choose)
    overload(named, strict=False, jit_options=OPTIONS)(chosen)
    named.__name__ = name
    numbers = "two numbers" if name in OF_TWO else "a number"
    named.__doc__ = f"``{name}`` of {numbers}, by the formula for their width in ``FUNCTIONS``."
    return named


exp = _typed("exp", math.exp)
falling_exp = _typed("falling_exp", math.exp)
exp2 = _typed("exp2", np.exp2)
expm1 = _typed("expm1", math.expm1)
log = _typed("log", math.log)
log2 = _typed("log2", math.log2)
log10 = _typed("log10", math.log10)
log1p = _typed("log1p", math.log1p)
sin = _typed("sin", math.sin)
cos = _typed("cos", math.cos)
pow = _typed("pow", np.power)
sqrt = _typed("sqrt", math.sqrt)
tan = _typed("tan", math.tan)
asin = _typed("asin", math.asin)
acos = _typed("acos", math.acos)
atan = _typed("atan", math.atan)
atan2 = _typed("atan2", math.atan2)
sinh = _typed("sinh", math.sinh)
cosh = _typed("cosh", math.cosh)
asinh = _typed("asinh", math.asinh)
acosh = _typed("acosh", math.acosh)
atanh = _typed("atanh", math.atanh)
erfc = _typed("erfc", math.erfc)
mod = _typed("mod", np.mod)
floordiv = _typed("floordiv", np.floor_divide)
hypot = _typed("hypot", math.hypot)
tanh = _typed("tanh", math.tanh)
erf = _typed("erf", math.erf)
lgamma = _typed("lgamma", math.lgamma)
sigmoid = _typed("sigmoid", lambda x: 1 / (1 + math.exp(-x)) if not x < -709 else math.exp(x))
