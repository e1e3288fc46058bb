"""Which Python values a function may look at: a search through what it names.

From the function go its closure, its globals and the attributes whose names occur in its code; from
these the functions, methods and objects of the user there. It finds too much rather than too
little. Functions, methods and classes are values themselves, as someone in a notebook writes them
anew: which stands in a place, and of a function the code and the defaults. Those of installed
packages stay as they are. Start reading at ``reach_of``.
"""

from __future__ import annotations

import dataclasses
import functools
import keyword
import operator
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..tape import OUR_FILES, split_edge
from ..tensor import Tensor
from .named import filled, globals_of, imported_by, names_of, undefined_in
from .places import (
    ABSENT,
    DEFAULTS,
    MOST,
    ClassOf,
    Lacking,
    Place,
    containers,
    is_container,
    under,
)
from .unnamed import IMPLICIT, called_by_us, implicit, implicit_items, making
from .whose import (
    attributes_of,
    counts,
    installed,
    installed_module,
    is_code,
    is_data,
    is_module,
    is_open,
    is_ours,
    of_class,
    slots_of,
)


@dataclasses.dataclass(frozen=True)
class Reach:
    """What a function may look at: Python values; the objects, modules and classes of the user
    that it may reach; the names by which; what the user has given to tensors among the arguments,
    which counts for those that are taken as they are; the functions that may run; and modules that
    they import, and nobody has imported yet."""

    places: list[Place]
    objects: list[Any]
    names: frozenset[str]
    given: list[Place]
    functions: list[types.FunctionType]
    missing: frozenset[str]


def reach_of(
    function: Callable[..., Any],
    arguments: list[Any],
    learned: Iterable[str] = (),
    without: Iterable[Any] = (),
) -> Reach:
    """What ``function``, and the functions and methods it names, may look at.

    learned: names beside those in their code. without: functions that calls run themselves, and
    which therefore may do what they like.
    """
    finder = _Finder()
    finder.names.update(dict.fromkeys(sorted(learned)))
    finder.without = {id(each) for each in without}
    finder.value(function)
    finder.given = {id(each): each for each in arguments if isinstance(each, Tensor)}
    for argument in arguments:
        (finder.hooks_of if isinstance(argument, Tensor) else finder.value)(argument)
    finder.follow_names()
    places, objects = list(finder.places()), list(finder.objects.values())
    given = list(finder.places_of_tensors(finder.given.values()))
    functions = list(finder.functions.values())
    missing = frozenset(finder.imported - sys.modules.keys())
    return Reach(places, objects, frozenset(finder.names), given, functions, missing)


_ASKING = frozenset(("__dict__", "attrgetter", "dir", "getattr", "hasattr", "vars"))
"""What stands in code that asks for attributes by names that do not."""

_PLAIN = frozenset((types.NoneType, bool, int, float, complex, str, bytes, np.ndarray))
"""Types of values in which there is nothing to follow."""


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
        self.imported: set[str] = set()
        self.walked: set[int] = set()  # modules, and objects of ours
        self.made: set[int] = set()  # classes that are named: their objects may be made
        self.tensors: dict[int, Tensor] = {}
        self.given: dict[int, Tensor] = {}  # of the arguments
        self.variables: dict[int, ContextVar[Any]] = {}
        self.optimizers: list[Any] = []  # of ours
        self.dispatching: dict[int, Any] = {}  # by ``functools.singledispatch``
        self.partials: dict[int, functools.partial[Any]] = {}
        self.foreign: dict[type, tuple[int, list[str]]] = {}  # names, as many as were known

    def value(self, value: Any) -> None:
        """Follow ``value`` if it is a function or an object of the user."""
        if type(value) in _PLAIN:  # nearly all: what has not an attribute of a name gives None
            return
        if isinstance(value, types.MethodType):
            self.value(value.__self__)
            value = value.__func__
        if is_ours(type(value)):  # compiled functions and modules
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
        if isinstance(value, operator.attrgetter):
            asked = [part for name in value.__reduce__()[1] for part in name.split(".")]
            self.names |= dict.fromkeys(asked)
        elif isinstance(value, functools.partial):
            self.partials[id(value)] = value
            for part in (value.func, *value.args, *value.keywords.values()):
                self.value(part)
        elif isinstance(value, frozenset):
            for each in value if len(value) <= MOST else ():
                self.value(each)
        elif is_container(value := under(value)):
            self.elements(value)
            if is_open(value):  # of a class of the user, with methods and attributes
                self.objects.setdefault(id(value), value)
        elif isinstance(value, property):
            self.value(value.fget)
        elif isinstance(value, functools.cached_property):
            self.value(value.func)
        elif isinstance(value, functools.partialmethod):
            self.value(value.func)
        elif isinstance(value, types.FunctionType):
            if OUR_FILES[value.__code__.co_filename]:  # what @ng.no_grad() and its kin wrap
                self.value(getattr(value, "__wrapped__", None))
                if isinstance(getattr(value, "registry", None), types.MappingProxyType):
                    self.dispatching[id(value)] = value
                    self.value(value.registry)  # type: ignore[attr-defined]
            elif len(self.functions) < MOST:
                if id(value) not in self.functions and id(value) not in self.without:
                    self.functions[id(value)] = value
                    self.function(value)
                    if vars(value) and not installed(value):
                        self.objects.setdefault(id(value), value)
        elif isinstance(value, Tensor):
            if id(value) not in self.tensors:
                self.tensors[id(value)] = value
                self.hooks_of(value)
        elif isinstance(value, ContextVar):
            if id(value) not in self.variables:
                self.variables[id(value)] = value
                self.value(value.get(None))
        elif is_open(value) and (is_module(value) or len(self.objects) < MOST):
            if isinstance(value, type):
                self.follow_class(value)
                if not installed(value) and id(value) not in self.made:
                    self.made.add(id(value))
                    for method in (*making(value), *implicit(type(value))):
                        self.value(method)
            self.objects.setdefault(id(value), value)
        elif is_ours(type(value)) and hasattr(value, "__dict__") and not isinstance(value, type):
            if id(value) not in self.walked:  # as a distribution, made of others of the user
                self.walked.add(id(value))
                for each in list(vars(value).values()):
                    self.value(each)
                self.value(getattr(value, "_hooks_of_all", None))
                if hasattr(type(value), "add_param_group"):
                    self.optimizers.append(value)

    def follow_class(self, kind: type) -> None:
        """Follow the class of an object, or one that is named."""
        if is_open(kind) and len(self.objects) < MOST:
            self.objects.setdefault(id(kind), kind)
            for name in called_by_us(kind):
                self.value(vars(kind)[name])

    def hooks_of(self, tensor: Tensor) -> None:
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
                (self.module if is_ours(type(member)) else self.value)(member)
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            self.value(tensor)
        tables = [*(module._hooks or {}).values(), *module._hooks_of_all.values()]
        for hook in [each for table in tables for each in table.values()]:
            self.value(getattr(hook, "hook", hook) if is_ours(type(hook)) else hook)
        for given in list(vars(module).values()):
            if isinstance(given, (types.FunctionType, types.MethodType, functools.partial)):
                self.value(given)

    def elements(self, value: Any) -> None:
        """Follow what is in a container, and in those in it."""
        if id(value) not in self.containers and len(value) <= MOST:
            self.containers[id(value)] = value
            for each in value.values() if isinstance(value, dict) else value:
                self.value(each)
            for key in value if isinstance(value, dict) else ():
                self.value(key)

    def function(self, function: types.FunctionType) -> None:
        """Follow what ``function`` closes over, its globals and its defaults."""
        names = names_of(function.__code__)
        self.names.update(dict.fromkeys(sorted(names)))
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self.value(default)
        for cell in filled(function):
            self.value(cell.cell_contents)
        space = function.__globals__
        imported = imported_by(function.__code__, space.get("__package__") or "")
        self.imported |= imported
        for name in imported:
            self.value(sys.modules.get(name))
        found = self.globals[id(function)] = globals_of(function.__code__) & space.keys()
        for name in found:
            self.value(space[name])

    def size(self) -> int:
        """How much is known."""
        found = len(self.functions) + len(self.objects) + len(self.names)
        return found + len(self.tensors) + len(self.variables)

    def follow_names(self) -> None:
        """Follow the attributes and methods of known objects whose names occur."""
        size = -1
        while size != (size := self.size()):
            for tensor in [*self.tensors.values(), *self.given.values()]:
                for name in self.names_for(type(tensor)):
                    self.value(getattr(tensor, name, None))
            for key, each in list(self.objects.items()):
                known = self.followed.get(key)
                if known is None:
                    if is_module(each):
                        self.module(each)
                    elif hasattr(type(each), "_hooks_of_all") and not isinstance(
                        each, type
                    ):  # an optimiser of the user
                        self.value(each._hooks)
                        self.value(each._hooks_of_all)
                    self.value(getattr(type(each), "forward", None))
                    if not isinstance(each, types.ModuleType):
                        kind = each if isinstance(each, type) else type(each)
                        # base classes too, for super() finds their methods
                        for base in (type(each), *kind.__mro__):
                            self.follow_class(base)
                        for method in implicit(type(each)):
                            self.value(method)
                self.followed[key] = len(self.names)
                own = attributes_of(each)
                if self.asks_for_all_of(each):
                    for value in list(own.values()):
                        self.value(value)
                for name in list(self.names)[known or 0 :]:
                    if name in own:
                        self.value(own[name])
                    elif not isinstance(each, (type, types.ModuleType)):
                        self.value(getattr(type(each), name, None))

    def asks_for_all_of(self, each: Any) -> bool:
        """Whether any attribute of an object may be read by a name that is in no code."""
        return type(each) is types.SimpleNamespace and not _ASKING.isdisjoint(self.names)

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
            yield from self.places_of_function(function)
        yield from self.attributes_of_classes()
        for each in self.objects.values():
            if isinstance(each, (type, types.ModuleType)):
                own = isinstance(each, type) or not installed_module(each)
                for name in sorted(self.names.keys() & vars(each).keys()):
                    value = vars(each)[name]  # no static method of a class
                    if counts(value, own) and getattr(each, name, None) is value:
                        yield _place(_text_of(name), each, name, value)
                    elif isinstance(each, type) and is_open(value):  # a descriptor of the user
                        yield _own(each, name, value)
                if isinstance(each, type):
                    yield from self.places_of_bases(each)
            else:
                yield from self.places_of_object(each)
        yield from self.places_of_tensors(self.tensors.values())
        for each in self.dispatching.values():
            yield _place("{}.registry", each, "registry", each.registry)
        for each in self.optimizers:  # less what they hold themselves
            own = vars(each)
            for name in sorted(self.names.keys() & own.keys()):
                if not name.startswith("_"):
                    yield _place(f"{{}}.get({name!r}, ABSENT)", own, name, own[name])
            yield from self.places_of_optimizer(each)
        for partial in self.partials.values():
            for name in ("args", "keywords"):
                yield _place(f"{{}}.{name}", partial, name, getattr(partial, name))
        for variable in self.variables.values():
            yield _place("{}.get(ABSENT)", variable, variable.name, variable.get(ABSENT))

    def places_of_optimizer(self, optimizer: Any) -> Iterator[Place]:
        """What the user has put into groups of an optimiser of ours, lists and dicts, of which it
        does not tell, and beside its own tensors into its state."""
        for group in optimizer._param_groups:
            for name, value in group.items():
                if name in self.names and name != "params" and containers(value):
                    yield _place(f"{{}}.get({name!r}, ABSENT)", group, name, value)
        for held in list(optimizer._state.values()):
            for name in sorted(self.names.keys() & held.keys()):
                if not isinstance(held[name], Tensor):
                    yield _place(f"{{}}.get({name!r}, ABSENT)", held, name, held[name])

    def places_of_bases(self, kind: type) -> Iterator[Place]:
        """The data that a class has from others: it may get its own."""
        for name in sorted(self.names.keys() - vars(kind).keys()):
            if is_data(of_class(kind, name)):
                yield _own(kind, name, ABSENT)

    def places_of_function(self, function: types.FunctionType) -> Iterator[Place]:
        """What a function closes over, its globals, and its code and defaults."""
        for name, cell in zip(function.__code__.co_freevars, filled(function), strict=False):
            yield _place("{}.cell_contents", cell, name, cell.cell_contents)
        space = function.__globals__
        own = not installed(function)
        for name in sorted(self.globals[id(function)]):
            if counts(space[name], own):
                yield _place(f"{{}}[{name!r}]", space, name, space[name])
        for name in sorted(undefined_in(function.__code__) - space.keys()):
            yield Place(f"{{}}.get({name!r}, ABSENT)", space, name, ABSENT)
        if not installed(function):
            yield Place("{}.__code__", function, "__code__", function.__code__)
            for name in DEFAULTS:
                if getattr(function, name):
                    yield _place(f"{{}}.{name}", function, name, getattr(function, name))

    def places_of_object(self, each: Any) -> Iterator[Place]:
        """The attributes of an object whose names occur: its own, and those it may get; and its
        class, which may be another after a reload."""
        if not hasattr(type(each), "_hooks_of_all"):  # modules tell, optimisers stay what they are
            yield ClassOf("type({})", each, "__class__", type(each))
        slots = {*slots_of(type(each))}
        for name in sorted(self.names.keys() & slots):
            yield _attribute(each, name, loose=True)
        own = getattr(each, "__dict__", None)
        if not isinstance(own, dict):
            return
        if isinstance(each, threading.local):  # each thread has a dict of its own
            for name in sorted(self.names.keys() & own.keys()):
                yield _attribute(each, name)
            lacks = Lacking(each, frozenset(self.names.keys() - own.keys()))
            yield Place("{}.all_lacking", lacks, "all_lacking", True)
            return
        if self.asks_for_all_of(each):
            yield _place("{}.__dict__", each, "__dict__", own)  # of C, it tells nobody what is read
        told = hasattr(type(each), "register_forward_hook")
        for name in sorted(self.names.keys() - slots):
            text = f"{{}}.get({name!r}, ABSENT)"  # it may be deleted
            if name not in own:
                if is_data(of_class(type(each), name)):  # it may get one of its own
                    yield Place(text, own, name, ABSENT, told)
            elif not isinstance(own[name], types.MemberDescriptorType):
                yield _place(text, own, name, own[name], told)
                if told:
                    yield from _registered(text, own, name)

    def places_of_tensors(self, tensors: Iterable[Tensor]) -> Iterator[Place]:
        """Attributes that the user has given to tensors."""
        for tensor in tensors:
            for name in self.names_for(type(tensor)):
                if hasattr(tensor, name):
                    yield _attribute(tensor, name)

    def names_for(self, kind: type) -> list[str]:
        """Of the names those that mean nothing to this class of tensors."""
        count, found = self.foreign.get(kind, (-1, []))
        if count != len(self.names):
            found = sorted(self.names.keys() - set(dir(kind)) - _OF_TENSORS)
            self.foreign[kind] = len(self.names), found
        return found

    def attributes_of_classes(self) -> Iterator[Place]:
        """What classes give their instances by name: methods and properties of the user."""
        seen = set()
        for each in self.objects.values():
            kind = each if isinstance(each, type) else type(each)
            if isinstance(each, types.ModuleType) or kind in seen or installed(kind):
                continue
            seen.add(kind)
            unnamed = [name for name, method in implicit_items(kind) if is_code(method)]
            for name in sorted({*self.names, *IMPLICIT, *unnamed}):
                there, found = of_class(kind, name), getattr(kind, name, None)
                if isinstance(there, classmethod):  # bound, it is another each time
                    yield _own(kind, name, vars(kind).get(name, ABSENT))
                elif found is there or isinstance(there, staticmethod):
                    if isinstance(found, property) or is_code(found):
                        yield Place(_text_of(name), kind, name, found)


def _text_of(name: str) -> str:
    """The attribute of a class or module, whatever it is called: pytest's have an ``@``."""
    plain = name.isidentifier() and not keyword.iskeyword(name)
    return f"{{}}.{name}" if plain else f"getattr({{}}, {name!r}, ABSENT)"


def _place(text: str, holder: Any, name: str, value: Any, told: bool = False) -> Place:
    content = containers(value)
    return Place(text, holder, name, value, told and not content, content)


def _own(kind: type, name: str, value: Any) -> Place:
    """What a class has itself."""
    return Place(f"vars({{}}).get({name!r}, ABSENT)", kind, name, value, own=True)


def _attribute(holder: Any, name: str, loose: bool = False) -> Place:
    """An attribute that has no entry in a dict, or in one that is best left alone."""
    value = getattr(holder, name, ABSENT)
    text = f"getattr({{}}, {name!r}, ABSENT)"
    return Place(text, holder, name, value, False, containers(value), loose)


_OF_TENSORS = frozenset(("_array", "_dtype"))
"""What each tensor has that their class has not."""


def _registered(text: str, own: dict[str, Any], name: str) -> Iterator[Place]:
    """Where else a module keeps what is registered as ``name``, from which it is listed."""
    tables = [own[each] for each in _TABLES if each in own]
    if any([name in table for table in tables]):
        for table in tables:
            yield Place(text, table, name, table.get(name, ABSENT), True)


_TABLES = ("_parameters", "_buffers", "_modules")
