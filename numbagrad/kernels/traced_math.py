"""Functions of ``math`` on traced floats, in the place of those that a recorded function names.

``math.sqrt(1 - beta**step)`` is what optimisers do. The function of ``math`` would ask for the
value, which then decided what is recorded. Start reading at ``tracing_math``.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from types import CellType, ModuleType
from typing import Any

from . import machine
from .traced_float import TracedFloat

__all__ = ["has_math", "plain", "tracing_math"]


class _Instead:
    """What stands for a function of ``math``: equal to it, for it may be a key of a dict."""

    def __init__(self, call: Callable[..., Any], plain: Callable[..., Any]):
        functools.update_wrapper(self, plain)
        self._call = call
        self.plain = plain

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __eq__(self, other: Any) -> bool:
        return True if other is self or other is self.plain else NotImplemented

    def __reduce__(self) -> Any:
        return _of_math, (self.plain.__name__,)

    def __hash__(self) -> int:
        return hash(self.plain)

    def __repr__(self) -> str:
        return repr(self.plain)


def _of_math(name: str) -> Any:
    return getattr(math, name)


def _traced(name: str, function: Callable[[Any], float]) -> Callable[[Any], Any]:
    def traced(x: Any) -> Any:
        return x.through(f"math.{name}", function) if type(x) is TracedFloat else function(x)

    return traced


def _pow(x: Any, y: Any) -> Any:
    if type(x) is TracedFloat:
        return x.combined(y, "math.pow({}, {})", math.pow)
    if type(y) is TracedFloat:
        return y.combined(x, "math.pow({1}, {0})", lambda a, b: math.pow(b, a))
    return math.pow(x, y)


def _log(x: Any, *base: Any) -> Any:
    if TracedFloat not in (type(x), *map(type, base)):
        return math.log(x, *base)
    found = _natural(x)
    return found / _natural(*base) if base else found


def _ldexp(x: Any, i: Any) -> float:
    """Whose exponent must be an int: it is asked for."""
    x, i = [each.asked() if type(each) is TracedFloat else each for each in (x, i)]
    return math.ldexp(x, i)


_natural = _traced("log", math.log)
_NAMES = "sqrt exp expm1 exp2 log1p log2 log10 sin cos tan tanh cbrt".split()
_CALLS: dict[str, Callable[..., Any]] = {"pow": _pow, "log": _log, "ldexp": _ldexp}
_CALLS |= {name: _traced(name, getattr(math, name)) for name in _NAMES if hasattr(math, name)}
_TRACED = {name: _Instead(call, getattr(math, name)) for name, call in _CALLS.items()}
_MODULE = ModuleType("math", math.__doc__)
_MODULE.__dict__.update({**vars(math), **_TRACED})
_INSTEAD: dict[int, Any] = {id(getattr(math, name)): function for name, function in _TRACED.items()}
_INSTEAD[id(math)] = _MODULE


def plain(value: Any) -> Any:
    """``value``, or the function of ``math`` that it stands for."""
    return value.plain if type(value) is _Instead else value


def has_math(names: dict[str, Any]) -> bool:
    """Whether ``math``, or a function of it that is traced, is there."""
    return any([id(value) in _INSTEAD for value in names.values()])


@contextmanager
def tracing_math(
    namespaces: Sequence[dict[str, Any]], cells: Iterable[CellType] = (), imported: bool = False
) -> Iterator[None]:
    """A block in which ``math`` and its functions in these modules and in these cells take traced
    floats for what they are. Others that run in these modules meanwhile get what they would.

    imported: whether a function in these modules imports it.
    """
    changed = []
    for names in namespaces:
        for name, value in list(names.items()):
            if id(value) in _INSTEAD:
                changed.append((names, name, value))
    held = [(cell, cell.cell_contents) for cell in cells if id(cell.cell_contents) in _INSTEAD]
    imports = builtins.__import__
    importing = _importing(imports, {id(names) for names in namespaces})
    try:
        for names, name, value in changed:
            names[name] = _INSTEAD[id(value)]
        for cell, value in held:
            cell.cell_contents = _INSTEAD[id(value)]
        if imported:
            builtins.__import__ = importing
        yield
    finally:
        if builtins.__import__ is importing:
            builtins.__import__ = imports
        for cell, value in held:  # unless something else was put there meanwhile
            with suppress(ValueError):
                if cell.cell_contents is _INSTEAD[id(value)]:
                    cell.cell_contents = value
        for names, name, value in changed:
            if names.get(name) is _INSTEAD[id(value)]:
                names[name] = value


def _importing(imports: Callable[..., Any], spaces: Set[int]) -> Callable[..., Any]:
    """Takes the place of ``__import__`` meanwhile. spaces: ids of the modules' dicts."""

    def importing(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        if name == "math" and level == 0 and id(globals) in spaces:
            if machine.recorder.current is not None:  # of this thread
                return _MODULE
        return imports(name, globals, locals, fromlist, level)

    return importing
