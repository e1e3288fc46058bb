"""Parts of Numba's compiler that do much for little, done sooner; what comes out is the same.

Three fifths of a compilation are Python, and some of that is work whose result is thrown away: to
add two floats Numba asks first which loop of ``np.add`` would do it, before each variable on the
stack it lets LLVM read a text that says the variable's type. While our kernels compile, functions
here stand in for Numba's; otherwise Numba is as it was. They are written for the version that
``KNOWN`` names: with another, nothing is exchanged. Start reading at ``quick``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType
from typing import Any

import numba
from numba.core import base, ir, types
from numba.core.targetconfig import TargetConfig
from numba.core.typing.npydecl import NumpyRulesArrayOperator
from numba.core.typing.templates import _IntrinsicTemplate

__all__ = ["KNOWN", "quick"]

KNOWN = ("0.68.",)
"""Begins of the versions of Numba whose functions these replace."""

_lock = threading.Lock()


def _renew_lock() -> None:
    """In the child of a fork: another thread of the parent may have held it."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)

_depth = 0
_before: list[tuple[Any, str, Any]] = []


@contextmanager
def quick() -> Iterator[None]:
    """The functions below in place of Numba's; blocks may be inside one another, and in threads."""
    global _depth
    with _lock:
        if _depth == 0 and numba.__version__.startswith(KNOWN):
            _before[:] = [(owner, name, vars(owner)[name]) for owner, name, _ in _EXCHANGED]
            for owner, name, function in _EXCHANGED:
                setattr(owner, name, function)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                while _before:
                    setattr(*_before.pop())


# -- types -----------------------------------------------------------------------------------------

_operator_on_arrays = NumpyRulesArrayOperator.generic
_typed_intrinsic = _IntrinsicTemplate.generic


def _operator(self: Any, args: Any, kws: Any) -> Any:
    """The signature of an operator as a ufunc, which is one only where there is an array."""
    if not any([isinstance(a, types.ArrayCompatible) for a in args]):
        return None
    return _operator_on_arrays(self, args, kws)


def _intrinsic(self: Any, args: Any, kws: Any) -> Any:
    """The signature of an intrinsic. Where it is known, Numba too looks into nothing else but asks
    all registries first whether there is news."""
    known = self._impl_cache.get((self.context, args, tuple(kws.items())))
    return _typed_intrinsic(self, args, kws) if known is None else known


_defaults: dict[type, dict[str, Any]] = {}


def _values(self: TargetConfig) -> dict[str, Any]:
    """All options of a target, by which each call of an overloaded function is looked up."""
    kind = type(self)
    if kind not in _defaults:
        _defaults[kind] = {name: option.default for name, option in kind.options.items()}
    return {**_defaults[kind], **self._values}


# -- variables of an instruction -------------------------------------------------------------------

_LEAVES = frozenset([str, int, float, bool, type(None), ir.Loc])


def _collect(values: Any, found: list[ir.Var]) -> None:
    for value in values:
        if type(value) in _LEAVES:
            continue
        if type(value) is ir.Var:
            found.append(value)
        elif isinstance(value, (list, tuple)):
            _collect(value, found)
        elif isinstance(value, dict):
            _collect(value.values(), found)
        elif isinstance(value, ir.Inst):
            found += value.list_vars()
        elif isinstance(value, ir.Var):
            found.append(value)


def _variables(self: Any, value: Any) -> list[ir.Var]:
    """The variables in what an instruction holds, in order."""
    found: list[ir.Var] = []
    _collect((value,), found)
    return found


# -- lowering --------------------------------------------------------------------------------------

_any_takes_loc = base._has_loc
_any_size = base.BaseContext.get_abi_sizeof
_sizes: dict[tuple[str, str], int] = {}


def _takes_loc(function: Any) -> bool:
    """Whether an implementation has a parameter ``loc``."""
    if type(function) is not FunctionType or function.__dict__:  # it may be wrapped
        return bool(_any_takes_loc(function))
    code = function.__code__
    stars = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return "loc" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]


def _size(self: Any, kind: Any) -> int:
    """Bytes of a value, for which llvmlite writes a module and reads it again."""
    text = str(kind)
    if "%" in text:  # a structure that goes by a name, which says nothing of its size
        return int(_any_size(self, kind))
    key = str(self.target_data), text
    if key not in _sizes:
        _sizes[key] = _any_size(self, kind)
    return _sizes[key]


_EXCHANGED: tuple[tuple[Any, str, Any], ...] = (
    (NumpyRulesArrayOperator, "generic", _operator),
    (_IntrinsicTemplate, "generic", _intrinsic),
    (TargetConfig, "values", _values),
    (ir.Inst, "_rec_list_vars", _variables),
    (base, "_has_loc", _takes_loc),
    (base.BaseContext, "get_abi_sizeof", _size),
)
