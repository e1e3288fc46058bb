"""Methods that run without being named: operators, and what classes of ours call.

Start reading at ``implicit``.
"""

from __future__ import annotations

import dataclasses
import reprlib
import types
from collections.abc import Iterator

from .whose import is_ours

__all__ = ["IMPLICIT", "called_by_us", "implicit", "implicit_items", "making"]

_NAMED = frozenset("__init__ __new__ __del__ __repr__ __str__ __getstate__ __setstate__".split())


_WRITTEN = ("<string>", dataclasses.__file__, reprlib.__file__)
"""The files of what ``dataclass`` writes and takes from elsewhere."""


def implicit(kind: type) -> Iterator[types.FunctionType]:
    """Methods of the user's classes that run without being named: ``x()``, ``x[i]``, ``x + y``."""
    return (method for _, method in implicit_items(kind))


def implicit_items(kind: type) -> Iterator[tuple[str, types.FunctionType]]:
    """Those of ``implicit``, each after what it is called there.

    Those that ``dataclass`` writes name every field. Where it is frozen these stay as they are.
    """
    frozen = dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    left_out = _WRITTEN if frozen else ()
    for each in kind.__mro__:
        if each is not object and not is_ours(each):
            for name, method in vars(each).items():
                if name[:2] == name[-2:] == "__" and name not in _NAMED:
                    if isinstance(method, types.FunctionType):
                        if method.__code__.co_filename not in left_out:
                            yield name, method


def making(kind: type) -> Iterator[types.FunctionType]:
    """Methods of the user's classes that run where an object of ``kind`` is made and used."""
    yield from implicit(kind)
    for each in kind.__mro__:
        if each is not object and not is_ours(each):
            for name in ("__init__", "__new__"):
                method = vars(each).get(name)
                method = getattr(method, "__func__", method)  # of a static method
                if isinstance(method, types.FunctionType):
                    if method.__code__.co_filename not in _WRITTEN:
                        yield method


def called_by_us(kind: type) -> list[str]:
    """Methods of ``kind`` that run without being named: in it is what our classes call."""
    ours = {name for base in kind.__mro__ if is_ours(base) for name in vars(base)}
    return sorted(vars(kind).keys() & {*ours, "forward", "backward"} - _NAMED)


IMPLICIT = ("forward", "backward", "setup_context", "__call__")
"""Methods that run without being named."""
