"""What objects of the user hold while a function is recorded: what it has set, and putting it back.

Of modules what they held when the recording first looked at them; of other objects, and of lists
and dicts in the places that the function names, what they held before. Start reading at ``Held``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from ..kernels import machine
from ..kernels.traced_float import TracedFloat
from .named import set_by
from .places import ABSENT, Locations, Place, containers, copied

__all__ = ["Change", "Held"]

_OF_MODULES = frozenset(("_watched", "_carried"))
"""Attributes that recordings set themselves."""

_TABLES = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True)
class _Copy:
    """A list or dict, what was in it, and the module whose attributes it has, if so."""

    container: Any
    copy: Any
    module: Any = None

    def put_back(self) -> None:
        """Let the container hold what it held."""
        if isinstance(self.container, list):
            self.container[:] = self.copy
            return
        now = self.container
        then = {k: v for k, v in self.copy.items() if k not in _OF_MODULES}
        then |= {k: now[k] for k in _OF_MODULES if self.module is not None and k in now}
        for key, value in then.items():
            if type(value) is bool and type(now.get(key)) is bool and self.module is not None:
                setattr(self.module, key, value)  # as train() and eval(), to be announced
        for key in now.keys() - then.keys():
            del now[key]
        if list(now) != [key for key in then if key in now]:
            now.clear()  # to have the order that it had
        for key, value in then.items():
            if now.get(key, ABSENT) is not value:
                now[key] = value


@dataclass(frozen=True)
class Change:
    """What a recorded function has set: ``container[key]``, or what is in a cell."""

    container: Any
    key: Any
    old: Any
    new: Any
    name: str
    module: Any = None
    watched: bool = False  # whether another recording has looked at the module
    alone: bool = False  # whether nobody else sees to it

    @property
    def is_mode(self) -> bool:
        """Whether it is as of ``module.train()``: each mode has recordings of its own."""
        return self.module is not None and type(self.old) is type(self.new) is bool

    @property
    def makes_state(self) -> bool:
        """Whether a number or such was set where there was none, as a count in a first call."""
        return self.old is ABSENT and type(self.new) in _MADE and isinstance(self.key, str)


_MADE = frozenset((bool, float, int, str, type(None), TracedFloat))


class Held:
    """What lists, dicts and objects hold before a recording."""

    def __init__(self) -> None:
        self.carried: Locations = frozenset()  # slots that the recording takes for arguments
        self.seen: dict[int, Any] = {}  # modules that were looked at
        self.modules: list[Any] = []  # those of them that were there before
        self._copies: dict[int, _Copy] = {}
        # Classes and modules, with the names they had, and those of attributes that code sets.
        self._spaces: list[tuple[Any, frozenset[str]]] = []
        self._set: set[str] = set()
        self.options: dict[tuple[int, str], tuple[dict[str, Any], str]] = {}
        self._entries: dict[tuple[int, str], tuple[dict[str, Any], str, Any]] = {}

    def note_all(self, places: list[Place], objects: Iterable[Any]) -> None:
        """Note what is in the containers of ``places`` and in ``objects``."""
        for place in places:
            for container, _ in place.content:
                self._note(container, copied(container))
        for each in objects:
            if _is_plain(each):
                self._note(vars(each), dict(vars(each)))
                self._note_inside(vars(each))
            elif isinstance(each, (type, ModuleType)):
                self._spaces.append((each, frozenset(vars(each))))
        for place in places:
            if isinstance(place.value, CodeType):
                self._set |= set_by(place.value)

    def _made(self) -> Iterator[tuple[Any, str]]:
        """Attributes that classes and modules have and did not have, of those that code sets."""
        for each, names in self._spaces:
            for name in (vars(each).keys() - names) & self._set:
                yield each, name

    def note_module(self, module: Any, own: dict[str, Any]) -> None:
        """Note the attributes of a module that is looked at, before they are changed."""
        self.seen[id(module)] = module
        if "_parameters" not in own:  # it is being made
            return
        self.modules.append(module)
        self._note(own, dict(own), module)
        for table in _TABLES:
            self._note(own[table], dict(own[table]))
        self._note_inside({k: v for k, v in own.items() if k not in _TABLES})

    def let_go(self) -> None:
        """Hold no module that has been made meanwhile: nobody else may."""
        self.seen = {id(module): module for module in self.modules}

    def note_entry(self, container: dict[str, Any], name: str) -> None:
        """Note an entry of an optimiser's dict before it is set, unless it is carried."""
        location = id(container), name
        if location not in self.carried and location not in self._entries:
            self._entries[location] = container, name, container[name]

    def note_options(self, options: dict[str, Any]) -> None:
        """Note the numbers that a user's optimiser may read."""
        names = [name for name, value in options.items() if type(value) is float]
        self.options |= {(id(options), name): (options, name) for name in names}

    def _note(self, container: Any, copy: Any, module: Any = None) -> None:
        if isinstance(container, (list, dict)):
            self._copies.setdefault(id(container), _Copy(container, copy, module))

    def _note_inside(self, own: dict[str, Any]) -> None:
        for value in own.values():
            if isinstance(value, (list, dict)):
                for container, copy in containers(value):
                    self._note(container, copy)

    def put_back(self) -> None:
        """Let everything hold what it held."""
        for each in self._copies.values():
            each.put_back()
        for container, name, old in self._entries.values():
            dict.__setitem__(container, name, old)  # without a word
        for each, name in list(self._made()):
            delattr(each, name)

    def announce(self) -> None:
        """Tell compiled functions if a module has kept another attribute: modules leave that to
        the recording."""
        copies = [c for c in self._copies.values() if c.module is not None]
        changes = [(type(old), type(new)) for c in copies for _, old, new in _changed(c)]
        if any([kinds != (bool, bool) for kinds in changes]):  # modes are announced at once
            machine.changed()

    def changes(self, places: list[Place], objects: Iterable[Any]) -> Iterator[Change]:
        """What was set: attributes of modules and objects, and what the function names."""
        tables: set[int] = set()
        for each in self._copies.values():
            if each.module is not None:
                tables |= {id(each.container), *[id(each.container[t]) for t in _TABLES]}
                watched = bool(each.copy.get("_watched"))
                for key, old, new in (*_changed(each), *self._refilled(each)):
                    yield Change(each.container, key, old, new, key, each.module, watched)
        for container, name, old in self._entries.values():
            if container[name] is not old:
                yield Change(container, name, old, container[name], name, alone=True)
        for each, name in self._made():
            yield Change(each, name, ABSENT, vars(each)[name], name)
        # Of a thread's own attributes each call takes those of its thread.
        inside = {id(vars(x)): x for x in objects if _is_plain(x)}
        inside = {i: x if isinstance(x, threading.local) else None for i, x in inside.items()}
        inside |= {id(c): None for place in places for c, _ in place.content}
        for i, local in inside.items():
            if i in self._copies and i not in tables:
                each = self._copies[i]
                for key, old, new in (*_changed(each), *self._refilled(each)):
                    holder = each.container if local is None else local
                    yield Change(holder, key, old, new, _named(each, key, places))
        for place in places:
            known = id(place.holder) in tables or id(place.holder) in inside
            if not known and place.now() is not place.value:
                yield Change(place.holder, place.name, place.value, place.now(), place.name)

    def _refilled(self, each: _Copy) -> Iterator[tuple[Any, Any, Any]]:
        """Keys of the lists in a dict that have another length, what was in each, and it."""
        if isinstance(each.container, dict):
            for key, value in each.container.items():
                copy = self._copies.get(id(value)) if type(value) is list else None
                if copy is not None and copy.container is value and len(copy.copy) != len(value):
                    yield key, copy.copy, value


def _named(each: _Copy, key: Any, places: list[Place]) -> str:
    """What people call an entry: the attribute, or the name of the list or dict."""
    for place in places:
        if any([c is each.container for c, _ in place.content]):
            return f"{place.name}[{key!r}]" if isinstance(key, (int, str)) else place.name
    return str(key)


def _changed(each: _Copy) -> Iterator[tuple[Any, Any, Any]]:
    """Keys of what was set in a container, with what was there and what is."""
    if isinstance(each.container, list):
        if len(each.container) == len(each.copy):
            pairs = enumerate(zip(each.copy, each.container, strict=True))
            yield from [(k, old, new) for k, (old, new) in pairs if old is not new]
        return
    for key, new in each.container.items():
        old = each.copy.get(key, ABSENT)
        if old is not new and not (each.module is not None and key in _OF_MODULES):
            yield key, old, new


def _is_plain(each: Any) -> bool:
    """Whether an object has nothing but its attributes: modules announce theirs, and optimisers
    keep state that is made while recording."""
    if isinstance(each, (type, ModuleType)) or isinstance(each, tuple(machine.announcing)):
        return False
    return type(getattr(each, "__dict__", None)) is dict
