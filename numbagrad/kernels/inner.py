"""Decorators of functions that only compiled code calls.

They have no way in from Python, which takes Numba 20 to 50 ms to make: called from there they
crash the process, so they are for functions within our own kernels alone. Numba is not asked
anything before something that is being compiled calls one: 200 of its dispatchers would take an
import 30 ms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
from numba import types
from numba.core.typing.templates import make_intrinsic_template

from .numba_compiler import InnerCompiler

__all__ = ["OPTIONS", "Inner", "Intrinsic", "device", "exchanged", "inner", "intrinsic", "keep"]
__all__ += ["pasted"]

OPTIONS = {
    "error_model": "numpy",
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


class Inner:
    """What stands for a function until Numba compiles a call of it.

    Numba reads ``_numba_type_``, ``targetoptions`` and ``py_func`` of what it finds by a name.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]):
        self.py_func = function
        self.targetoptions = options
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    @functools.cached_property
    def dispatcher(self) -> Any:
        """Numba's own object, made when it is asked for."""
        return numba.njit(pipeline_class=InnerCompiler, **self.targetoptions)(self.py_func)

    @property
    def _numba_type_(self) -> Any:
        return self.dispatcher._numba_type_

    def __repr__(self) -> str:
        return f"<inner function {self.__name__}>"


class Intrinsic:
    """What stands for a function that writes LLVM's code until Numba compiles a call of it."""

    def __init__(self, define: Callable[..., Any], prefer_literal: bool):
        self._define, self._prefer_literal = define, prefer_literal
        self.__name__ = define.__name__
        functools.update_wrapper(self, define)

    @functools.cached_property
    def _numba_type_(self) -> Any:
        make = functools.partial(make_intrinsic_template, prefer_literal=self._prefer_literal)
        return types.Function(make(self, self._define, self.__name__))

    def __call__(self, *args: Any) -> Any:
        """Raise NotImplementedError: there is nothing for Python to call."""
        raise NotImplementedError(f"{self} is for compiled code alone")

    def __deepcopy__(self, memo: Any) -> Intrinsic:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: x for name, x in self.__dict__.items() if name != "_numba_type_"}

    def __repr__(self) -> str:
        return f"<intrinsic {self.__name__}>"


def intrinsic(define: Callable[..., Any] | None = None, *, prefer_literal: bool = False) -> Any:
    """``numba.extending.intrinsic`` without its 0.2 ms for each at import.

    define: called with Numba's typing context and the types of the arguments, gives a signature and
    what generates the code. prefer_literal: whether the types of constants say which they are.
    """
    if define is None:
        return functools.partial(intrinsic, prefer_literal=prefer_literal)
    return Intrinsic(define, prefer_literal)


def inner(
    function: Callable[..., Any] | None = None, *, allocates: bool = False, **options: Any
) -> Any:
    """``numba.njit`` for a function of this kind, with further options of Numba.

    allocates: whether it makes arrays or returns any; then its callers must be told so too.
    """
    if function is None:
        return functools.partial(inner, allocates=allocates, **options)
    if numba.config.DISABLE_JIT:
        return function
    return Inner(function, {**OPTIONS, "_nrt": allocates, **options})


def exchanged(function: Any, **others: Any) -> Any:
    """``function``, where others stand for functions that it finds by these names.

    To pass them would do too, but their addresses in this process became part of the code, which
    then cannot be kept on disk.
    """
    text = getattr(function, "py_func", function)
    unknown = others.keys() - set(text.__code__.co_names)
    assert not unknown, f"{text.__name__} does not look for {sorted(unknown)}"
    made = FunctionType(text.__code__, {**text.__globals__, **others}, text.__name__)
    made.__module__, made.__qualname__ = text.__module__, text.__qualname__
    return Inner(made, function.targetoptions) if isinstance(function, Inner) else made


device = inner(inline="never")
"""Decorator of a function that stays one in machine code, or that LLVM inlines as it sees fit."""

pasted = inner(inline="always")
"""Decorator of a short function whose statements Numba puts in the place of its call: 3 to 20 ms
of compiling, where a function of its own costs 30 to 60. It is called without ``*``."""


@device
def keep(array):
    """Nothing: Numba frees an array after its last use by name, and an address is none."""
