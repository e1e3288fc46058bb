"""Whose a value is: the user's, whose changes count, an installed package's, or ours.

Start reading at ``is_open``.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
import types
from typing import Any

from ..tape import OUR_FILES
from ..tensor import Tensor
from .places import containers, is_container

_PACKAGE = __name__.partition(".")[0]
FOREIGN = frozenset(sys.stdlib_module_names) | {"numpy", "numba", "scipy", _PACKAGE}
_CLOSED = FOREIGN - {_PACKAGE, "types", "argparse", "collections", "_thread"}
"""Whose objects hold nothing of the user: namespaces, ``UserDict`` and ``local`` do."""


_HEAP_TYPE = 1 << 9
"""The flag of classes that are made while Python runs (``Py_TPFLAGS_HEAPTYPE``); nobody sets
attributes of the others."""


def is_code(value: Any) -> bool:
    """Whether ``value`` is a function, a class or a kernel of the user, which may be replaced."""
    if isinstance(value, types.FunctionType):
        return not OUR_FILES[value.__code__.co_filename] and not installed(value)
    if isinstance(value, type):
        return is_open(value) and not installed(value)
    if not type(value).__flags__ & _HEAP_TYPE:
        return False  # of Python's own, which have no such attribute
    kernel = inspect.getattr_static(value, "py_func", None)  # others may raise whatever they like
    return isinstance(kernel, types.FunctionType) and not installed(kernel)


@functools.cache
def folders() -> tuple[str, ...]:
    """Where installed packages and Python's own modules lie."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({os.path.join(sysconfig.get_path(kind), "") for kind in kinds})


def installed(value: types.FunctionType | type) -> bool:
    """Whether a function or class is of Python or an installed package, which nobody edits."""
    if isinstance(value, type):
        if not value.__flags__ & _HEAP_TYPE:
            return True
        module = sys.modules.get(value.__module__)
        return is_ours(value) or (getattr(module, "__file__", None) or "").startswith(folders())
    return installed_file(value.__code__.co_filename)


def installed_file(name: str) -> bool:
    """Whether a source file is of an installed package, of Python or of ours."""
    return OUR_FILES[name] or name.startswith(folders())


def installed_module(module: types.ModuleType) -> bool:
    """Whether a module is of Python, an installed package or ours."""
    return installed_file(getattr(module, "__file__", None) or "")


def package_of(kind: type | types.ModuleType) -> str:
    """The package in which a class or a module is written."""
    name = kind.__name__ if isinstance(kind, types.ModuleType) else kind.__module__
    return str(name).partition(".")[0]


def is_ours(kind: type) -> bool:
    """Whether a class is of this package."""
    return package_of(kind) == _PACKAGE


def is_module(value: Any) -> bool:
    """Whether ``value`` is a module with its tables."""
    return hasattr(type(value), "register_forward_hook") and "_modules" in vars(value)


def is_open(value: Any) -> bool:
    """Whether ``value`` is an object, class or module of the user, with attributes."""
    if isinstance(value, (types.ModuleType, type)):
        return package_of(value) not in FOREIGN and package_of(value) != "builtins"
    if isinstance(value, Tensor) or not (hasattr(value, "__dict__") or slots_of(type(value))):
        return False
    ours = is_ours(type(value)) and not hasattr(type(value), "register_forward_hook")
    return not ours and package_of(type(value)) not in _CLOSED


def slots_of(kind: type) -> list[str]:
    """Names of the attributes of instances that ``__slots__`` of the class and its bases give."""
    kinds = [each for each in kind.__mro__ if "__slots__" in vars(each)]
    kept = types.MemberDescriptorType
    return [name for each in kinds for name, part in vars(each).items() if type(part) is kept]


def attributes_of(value: Any) -> dict[str, Any]:
    """What an object has of its own: its ``__dict__`` itself, unless it has slots."""
    own: dict[str, Any] = getattr(value, "__dict__", {})
    if isinstance(value, (type, types.ModuleType)):
        return own
    slots = slots_of(type(value))
    return (
        own if not slots else {**own, **{n: getattr(value, n) for n in slots if hasattr(value, n)}}
    )


def of_class(kind: type, name: str) -> Any:
    """What a class, or one that it is made of, has as ``name``, as it stands there; else nothing
    that is data."""
    for each in kind.__mro__:
        if name in vars(each):
            return vars(each)[name]
    return types


def counts(value: Any, own: bool = True) -> bool:
    """Whether a value may be replaced by another: a slot is what it is, and so is this package and,
    where what holds it is not the user's ``own``, each installed module."""
    if isinstance(value, types.ModuleType):
        if own:
            return value.__name__ != _PACKAGE
        return is_open(value) and not installed_module(value)
    return not isinstance(value, types.MemberDescriptorType)


def is_data(value: Any) -> bool:
    """Whether what a class has stands for data of its instances: it is no code."""
    if isinstance(value, (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType)):
        return False
    plain = isinstance(value, (Tensor, int, float, bool, str, tuple)) or value is None
    held = is_container(value) and containers(value)
    return plain or bool(held) or is_ours(type(value)) or is_open(value)
