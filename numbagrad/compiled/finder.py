"""Which Python values a function may look at: a search through what it names.

From the function go its closure, its globals and the attributes whose names occur in its code; from
these the functions, methods and objects of the user there. It finds too much rather than too
little. Functions, methods and classes are values themselves, as someone in a notebook writes them
anew: which stands in a place, and of a function the code and the defaults. Those of installed
packages stay as they are. Start reading at ``places_of``.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import inspect
import os
import reprlib
import sys
import sysconfig
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from ..tape import OUR_FILES, split_edge
from ..tensor import Tensor
from .places import ABSENT, CONTAINERS, DEFAULTS, MOST, Place, containers

_PACKAGE = __name__.partition(".")[0]
_FOREIGN = frozenset(sys.stdlib_module_names) | {"numpy", "numba", "scipy", _PACKAGE}
_CLOSED = _FOREIGN - {_PACKAGE, "types", "argparse", "collections", "_thread"}
"""Whose objects hold nothing of the user: namespaces, ``UserDict`` and ``local`` do."""

_NAMED = frozenset("__init__ __new__ __del__ __repr__ __str__ __getstate__ __setstate__".split())


def places_of(
    function: Callable[..., Any], arguments: list[Any], without: Iterable[Any] = ()
) -> tuple[list[Place], list[Any]]:
    """The places that ``function``, and the functions and methods it names, may look at; and the
    objects, modules and classes of the user that it may reach.

    without: functions that calls run themselves, and which therefore may do what they like.
    """
    finder = _Finder()
    finder.without = {id(each) for each in without}
    finder.value(function)
    for argument in arguments:
        finder.value(argument)
    finder.follow_names()
    return list(finder.places()), list(finder.objects.values())


@functools.lru_cache(maxsize=4096)
def _names_of(code: types.CodeType) -> frozenset[str]:
    """Names of globals and attributes in ``code`` and the functions inside it, as words too."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, str) and constant.isidentifier():
            names.add(constant)
        if isinstance(constant, types.CodeType):
            names |= _names_of(constant)
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def _globals_of(code: types.CodeType) -> frozenset[str]:
    """Names of globals that ``code`` and the functions inside it read or write."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname in _GLOBAL}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _globals_of(constant)
    return frozenset(names if "globals" not in names else names | _names_of(code))


_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL")


class _Finder:
    """Collects functions and objects, by what they name, until nothing new is found."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}  # a set in the order in which they were found
        self.followed: dict[int, int] = {}  # how many of the names, of each object
        self.functions: dict[int, types.FunctionType] = {}
        self.objects: dict[int, Any] = {}
        self.containers: dict[int, Any] = {}
        self.globals: dict[int, frozenset[str]] = {}  # what each function reads or writes there
        self.without: set[int] = set()
        self.walked: set[int] = set()  # modules, and objects of ours

    def value(self, value: Any) -> None:
        """Follow ``value`` if it is a function or an object of the user."""
        if isinstance(value, types.MethodType):
            self.value(value.__self__)
            value = value.__func__
        if _is_ours(type(value)):  # compiled functions and modules
            module = getattr(value, "__dict__", {}).get("_orig_mod", value)
            value = getattr(value, "_function", module)
        if isinstance(value, types.MethodType):
            self.value(value.__self__)
            value = value.__func__
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, weakref.ref):
            value = value()
        if isinstance(value, functools._lru_cache_wrapper):
            value = value.__wrapped__
        if isinstance(value, functools.partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                self.value(part)
        elif type(value) in (*CONTAINERS, tuple):
            self.elements(value)
        elif isinstance(value, property):
            self.value(value.fget)
        elif isinstance(value, functools.cached_property):
            self.value(value.func)
        elif isinstance(value, functools.partialmethod):
            self.value(value.func)
        elif isinstance(value, types.FunctionType):
            if value.__code__.co_filename in OUR_FILES:  # what @ng.no_grad() and its kin wrap
                self.value(getattr(value, "__wrapped__", None))
            elif len(self.functions) < MOST:
                if id(value) not in self.functions and id(value) not in self.without:
                    self.functions[id(value)] = value
                    self.function(value)
        elif isinstance(value, Tensor):
            self.tensor(value)
        elif _is_open(value) and (_is_module(value) or len(self.objects) < MOST):
            self.objects.setdefault(id(value), value)
            if isinstance(value, type):
                for name in _called_by_us(value):
                    self.value(vars(value)[name])
        elif _is_ours(type(value)) and hasattr(value, "__dict__") and not isinstance(value, type):
            if id(value) not in self.walked:  # as a distribution, made of others of the user
                self.walked.add(id(value))
                for each in list(vars(value).values()):
                    self.value(each)

    def tensor(self, tensor: Tensor) -> None:
        """Follow the hooks on the gradient of ``tensor``."""
        hooks = None if tensor._edge is None else split_edge(tensor._edge)[0]._hooks
        if hooks is not None:
            tables = hooks.accumulated, hooks.before, hooks.after, *hooks.tensor.values()
            for hook in [each for table in tables for each in table.values()]:
                self.value(hook)

    def module(self, module: Any) -> None:
        """Follow what runs without being named when ``module`` is called: the modules in it, its
        hooks, those of its parameters, and functions that it was given."""
        if id(module) in self.walked:
            return
        self.walked.add(id(module))
        for member in module._modules.values():
            if member is not None:
                (self.module if _is_ours(type(member)) else self.value)(member)
        for parameter in module._parameters.values():
            self.value(parameter)
        for hook in [each for table in (module._hooks or {}).values() for each in table.values()]:
            self.value(getattr(hook, "hook", hook) if _is_ours(type(hook)) else hook)
        for given in list(vars(module).values()):
            if isinstance(given, (types.FunctionType, types.MethodType, functools.partial)):
                self.value(given)

    def elements(self, value: Any) -> None:
        """Follow what is in a container, and in those in it."""
        if id(value) not in self.containers and len(value) <= MOST:
            self.containers[id(value)] = value
            for each in value.values() if isinstance(value, dict) else value:
                self.value(each)

    def function(self, function: types.FunctionType) -> None:
        """Follow what ``function`` closes over, its globals and its defaults."""
        names = _names_of(function.__code__)
        self.names.update(dict.fromkeys(sorted(names)))
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.value(default)
        for cell in _filled(function):
            self.value(cell.cell_contents)
        space = function.__globals__
        found = self.globals[id(function)] = _globals_of(function.__code__) & space.keys()
        for name in found:
            self.value(space[name])

    def follow_names(self) -> None:
        """Follow the attributes and methods of known objects whose names occur."""
        size = -1
        while size != len(self.functions) + len(self.objects) + len(self.names):
            size = len(self.functions) + len(self.objects) + len(self.names)
            for key, each in list(self.objects.items()):
                known = self.followed.get(key)
                if known is None:
                    if _is_module(each):
                        self.module(each)
                    self.value(getattr(type(each), "forward", None))
                    if not isinstance(each, types.ModuleType):
                        kind = each if isinstance(each, type) else type(each)
                        # base classes too, for super() finds their methods
                        for found in (type(each), *kind.__mro__, *_implicit(type(each))):
                            self.value(found)
                self.followed[key] = len(self.names)
                for name in list(self.names)[known or 0 :]:
                    if name in vars(each):
                        self.value(vars(each)[name])
                    elif not isinstance(each, (type, types.ModuleType)):
                        self.value(getattr(type(each), name, None))

    def places(self) -> Iterator[Place]:
        """Every place found, once."""
        seen = set()
        for place in self.each_place():
            key = id(place.holder), place.text
            if key not in seen:
                seen.add(key)
                yield place

    def each_place(self) -> Iterator[Place]:
        """Every place found, those of classes perhaps twice."""
        for function in self.functions.values():
            for name, cell in zip(function.__code__.co_freevars, _filled(function), strict=False):
                yield _place("{}.cell_contents", cell, name, cell.cell_contents)
            space = function.__globals__
            for name in sorted(self.globals[id(function)]):
                if _counts(space[name]):
                    yield _place(f"{{}}[{name!r}]", space, name, space[name])
            if not _installed(function):
                yield Place("{}.__code__", function, "__code__", function.__code__)
                for name in DEFAULTS:
                    if getattr(function, name):
                        yield Place(f"{{}}.{name}", function, name, getattr(function, name))
        yield from self.attributes_of_classes()
        for each in self.objects.values():
            own = vars(each)
            told = hasattr(type(each), "register_forward_hook")
            for name in sorted(self.names.keys() & own.keys()):
                if not _counts(own[name]):
                    continue
                if isinstance(own, dict) and not isinstance(each, types.ModuleType):
                    text = f"{{}}.get({name!r}, ABSENT)"  # it may be deleted
                    yield _place(text, own, name, own[name], told)
                    if told:
                        yield from _registered(text, own, name)
                elif getattr(each, name, None) is own[name]:  # no static method of a class
                    yield _place(f"{{}}.{name}", each, name, own[name])
            if isinstance(own, dict) and not isinstance(each, types.ModuleType):
                for name in sorted(self.names.keys() - own.keys()):
                    if _is_data(getattr(type(each), name, types)):  # it may get one of its own
                        yield Place(f"{{}}.get({name!r}, ABSENT)", own, name, ABSENT, told)

    def attributes_of_classes(self) -> Iterator[Place]:
        """What classes give their instances by name: methods and properties of the user."""
        seen = set()
        for each in self.objects.values():
            kind = each if isinstance(each, type) else type(each)
            if isinstance(each, types.ModuleType) or kind in seen or _installed(kind):
                continue
            seen.add(kind)
            for name in sorted({*self.names, *_IMPLICIT}):
                found = getattr(kind, name, None)
                if isinstance(found, property) or _is_code(found):
                    yield Place(f"{{}}.{name}", kind, name, found)


def _place(text: str, holder: Any, name: str, value: Any, told: bool = False) -> Place:
    content = containers(value)
    return Place(text, holder, name, value, told and not content, content)


def _registered(text: str, own: dict[str, Any], name: str) -> Iterator[Place]:
    """Where else a module keeps what is registered as ``name``, from which it is listed."""
    tables = [own[each] for each in _TABLES if each in own]
    if any([name in table for table in tables]):
        for table in tables:
            yield Place(text, table, name, table.get(name, ABSENT), True)


_TABLES = ("_parameters", "_buffers", "_modules")


def _called_by_us(kind: type) -> list[str]:
    """Methods of ``kind`` that run without being named: in it is what our classes call."""
    ours = {name for base in kind.__mro__ if _is_ours(base) for name in vars(base)}
    return sorted(vars(kind).keys() & {*ours, "forward", "backward"} - _NAMED)


_IMPLICIT = ("forward", "backward", "setup_context", "__call__")
"""Methods that run without being named."""


def _is_code(value: Any) -> bool:
    """Whether ``value`` is a function, a class or a kernel of the user, which may be replaced."""
    if isinstance(value, types.FunctionType):
        return value.__code__.co_filename not in OUR_FILES and not _installed(value)
    if isinstance(value, type):
        return _is_open(value) and not _installed(value)
    kernel = getattr(value, "py_func", None)
    return isinstance(kernel, types.FunctionType) and not _installed(kernel)


@functools.cache
def _folders() -> tuple[str, ...]:
    """Where installed packages and Python's own modules lie."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({os.path.join(sysconfig.get_path(kind), "") for kind in kinds})


def _installed(value: types.FunctionType | type) -> bool:
    """Whether a function or class is of an installed package, which nobody edits."""
    if isinstance(value, type):
        module = sys.modules.get(value.__module__)
        return _is_ours(value) or (getattr(module, "__file__", None) or "").startswith(_folders())
    return value.__code__.co_filename.startswith(_folders())


def _filled(function: types.FunctionType) -> list[types.CellType]:
    """The closure cells of ``function`` that hold something."""
    cells = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # an empty cell
            _ = cell.cell_contents
            cells.append(cell)
    return cells


_WRITTEN = ("<string>", dataclasses.__file__, reprlib.__file__)
"""The files of what ``dataclass`` writes and takes from elsewhere."""


def _implicit(kind: type) -> Iterator[types.FunctionType]:
    """Methods of the user's classes that run without being named: ``x()``, ``x[i]``, ``x + y``.

    Those that ``dataclass`` writes name every field. Where it is frozen these stay as they are.
    """
    frozen = dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    left_out = _WRITTEN if frozen else ()
    for each in kind.__mro__:
        if each is not object and not _is_ours(each):
            for name, method in vars(each).items():
                if name[:2] == name[-2:] == "__" and name not in _NAMED:
                    if isinstance(method, types.FunctionType):
                        if method.__code__.co_filename not in left_out:
                            yield method


def namespaces(
    function: Callable[..., Any], places: Iterable[Place], objects: Iterable[Any]
) -> list[dict[str, Any]]:
    """What the modules hold in which a function, and what it reaches, is written."""
    found: dict[int, dict[str, Any]] = {}
    for each in (function, *[place.value for place in places]):
        each = inspect.unwrap(getattr(each, "__func__", each)) if callable(each) else each
        if isinstance(each, types.FunctionType):
            found[id(each.__globals__)] = each.__globals__
    for each in (*objects, getattr(function, "__self__", None), function):
        for kind in each.__mro__ if isinstance(each, type) else type(each).__mro__:
            module = sys.modules.get(kind.__module__)
            if module is not None and _root(kind) not in (*_FOREIGN, "builtins"):
                found[id(vars(module))] = vars(module)
    return list(found.values())


def _root(kind: type | types.ModuleType) -> str:
    name = kind.__name__ if isinstance(kind, types.ModuleType) else kind.__module__
    return str(name).partition(".")[0]


def _is_ours(kind: type) -> bool:
    return _root(kind) == _PACKAGE


def _is_module(value: Any) -> bool:
    """Whether ``value`` is a module with its tables."""
    return hasattr(type(value), "register_forward_hook") and "_modules" in vars(value)


def _is_open(value: Any) -> bool:
    """Whether ``value`` is an object, class or module of the user, with attributes."""
    if isinstance(value, (types.ModuleType, type)):
        return _root(value) not in _FOREIGN and _root(value) != "builtins"
    if isinstance(value, Tensor) or not hasattr(value, "__dict__"):
        return False
    ours = _is_ours(type(value)) and not hasattr(type(value), "register_forward_hook")
    return not ours and _root(type(value)) not in _CLOSED


def _counts(value: Any) -> bool:
    """Whether a value may be replaced by another: a module is what it is."""
    return not isinstance(value, types.ModuleType)


def _is_data(value: Any) -> bool:
    """Whether what a class has stands for data of its instances: it is no code."""
    if isinstance(value, (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType)):
        return False
    plain = isinstance(value, (Tensor, int, float, bool, str, tuple)) or value is None
    held = type(value) in CONTAINERS and containers(value)
    return plain or bool(held) or _is_ours(type(value)) or _is_open(value)
