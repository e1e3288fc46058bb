"""What a recorded function asks for by names that nobody can read in its code.

``finder.py`` looks for the names that stand in code. While a function is recorded the user's
objects tell what of them is asked for by any name, ``getattr(s, "".join(parts))``, ``vars(s)``,
``operator.attrgetter``, or in vain, ``hasattr(s, "flag")``; and so do tensors and ``os.environ``.
Start reading at ``Asked``.
"""

from __future__ import annotations

import _collections_abc
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType, FunctionType, ModuleType
from typing import Any

from ..kernels import machine
from ..tape import OUR_FILES
from ..tensor import Tensor
from .places import ABSENT, Content, Place, containers
from .whose import attributes_of, installed_file, of_class

__all__ = ["Asked", "noting_reads"]


class Asked:
    """What one recording has been told. objects: of the user, that it may reach."""

    def __init__(self, objects: Iterable[Any] = ()) -> None:
        self.objects = {id(each): each for each in objects}
        self.tensors: dict[int, Tensor] = {}  # that lived before
        self.names: dict[str, None] = {}  # by which something was asked for that was there
        self.whole: dict[int, None] = {}  # ids of objects whose ``__dict__`` was looked at
        self.absent: dict[tuple[int, str], None] = {}
        self.methods: dict[tuple[int, str], Any] = {}  # of its class, that an object was asked for
        # What the user has given to tensors among the arguments, and a copy of what is in it.
        self.of_arguments: dict[tuple[int, str], tuple[Any, Content]] = {}
        self.environment: dict[Any, tuple[dict[Any, Any], Any]] = {}  # variables, where they are

    def names_beside(self, known: frozenset[str]) -> frozenset[str]:
        """Names that are not known, by which something was found."""
        names = dict.fromkeys(self.names)
        for i in self.whole:
            names |= dict.fromkeys(attributes_of(self.objects[i]))
        return frozenset(names) - known

    def places(self) -> Iterator[Place]:
        """What calls compare beside the places of names."""
        for i in self.whole:
            own = self.objects[i].__dict__
            yield Place("{}.__dict__", self.objects[i], "__dict__", own, False, containers(own))
        for i, name in self.absent:
            holder = self.objects.get(i, self.tensors.get(i))
            if not hasattr(holder, name):
                yield Place(f"getattr({{}}, {name!r}, ABSENT)", holder, name, ABSENT)
            elif not isinstance(holder, (type, ModuleType)):  # its ``__getattr__`` has it
                own = getattr(holder, "__dict__", None)
                if isinstance(own, dict) and name not in own:
                    yield Place(f"{{}}.get({name!r}, ABSENT)", own, name, ABSENT)
        for (_, name), each in self.methods.items():  # it may get one of its own
            own = each.__dict__
            if name not in own and not isinstance(each, threading.local):
                yield Place(f"{{}}.get({name!r}, ABSENT)", own, name, ABSENT)
        for key, (data, value) in self.environment.items():
            yield Place(f"{{}}.get({key!r}, ABSENT)", data, key, value, decode=_decoded)

    def note(self, each: Any, name: str, found: bool) -> None:
        """Note that ``name`` of an object was asked for, by whoever called who calls this."""
        if id(each) in self.objects and _is_user_asking(name, 3):
            if name == "__dict__" and found:
                self.whole[id(each)] = None
            elif found:
                self.names[name] = None
                self.note_method(each, name)
            elif not isinstance(each, ModuleType) or not _installed(each):
                self.absent[id(each), name] = None

    def note_ours(self, each: Any, name: str) -> None:
        """``note_method`` of an optimiser of ours, where the user asks, two calls away."""
        if _is_user_asking(name, 3):
            self.note_method(each, name)

    def note_method(self, each: Any, name: str) -> None:
        """Note that an object was asked for ``name``, if that is code of its class, and no entry
        of a module, which tells of its own."""
        kind = type(each)
        if issubclass(kind, (type, ModuleType)) or hasattr(kind, "register_forward_hook"):
            return
        if isinstance(of_class(kind, name), _CODE):
            with suppress(AttributeError):  # one with slots has no dict
                if name not in object.__getattribute__(each, "__dict__"):
                    self.methods[id(each), name] = each


_CODE = (FunctionType, staticmethod, classmethod, type)


def _installed(module: ModuleType) -> bool:
    return installed_file(str(vars(module).get("__file__") or ""))


def _decoded(value: Any) -> Any:
    return value if value is ABSENT else os.fsdecode(value)


def _is_user_asking(name: str, depth: int) -> bool:
    """Whether the code that asks, ``depth`` frames away, is the user's, and not for what every
    object has."""
    if name[:2] == name[-2:] == "__" and name != "__dict__":
        return False
    return not OUR_FILES[sys._getframe(depth).f_code.co_filename]


def _asked() -> Asked | None:
    recorder = machine.recorder.current
    return None if recorder is None else recorder.asked


@contextmanager
def noting_reads(asked: Asked) -> Iterator[None]:
    """Let objects, tensors and the environment tell the recorder of this thread what is read."""
    objects = list(asked.objects.values())
    modules = [each for each in objects if type(each) is ModuleType]
    kinds = {type(each): None for each in objects if not isinstance(each, (type, ModuleType))}
    ours = tuple(machine.announcing)  # see ``watch.py``
    ways: list[tuple[type, Any]] = [
        (kind, kind.__getattribute__) for kind in kinds if not issubclass(kind, ours)
    ]
    environment = type(os.environ)
    look_up = environment.__getitem__
    set_there = []
    try:
        for kind, way in ways:
            with suppress(TypeError):  # a class of C
                own = "__getattribute__" in vars(kind)
                type.__setattr__(kind, "__getattribute__", _noting(way))
                set_there.append((kind, way if own else None))
        for each in modules:
            each.__class__ = _Noting
        Tensor.__getattr__ = _absent_of_tensor  # type: ignore[method-assign]
        environment.__getitem__ = _noting_variable(look_up)  # type: ignore[method-assign]
        yield
    finally:
        for kind, own_way in set_there:
            if own_way is None:
                type.__delattr__(kind, "__getattribute__")
            else:
                type.__setattr__(kind, "__getattribute__", own_way)
        for each in modules:
            each.__class__ = ModuleType
        del Tensor.__getattr__
        environment.__getitem__ = look_up  # type: ignore[method-assign]


def _noting(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Takes the place of the ``__getattribute__`` of a class meanwhile."""

    def noting(each: Any, name: str) -> Any:
        asked = _asked()
        if asked is None:
            return look_up(each, name)
        try:
            value = look_up(each, name)
        except AttributeError:
            asked.note(each, name, False)
            raise
        asked.note(each, name, True)
        return value

    return noting


class _Noting(ModuleType):
    """The class of the user's modules meanwhile."""

    __getattribute__ = _noting(ModuleType.__getattribute__)


def _absent_of_tensor(tensor: Any, name: str) -> Any:
    """``Tensor.__getattr__`` meanwhile: what the user has given an argument, its stand-in has."""
    recorder = machine.recorder.current
    dunder = name[:2] == name[-2:] == "__"
    if recorder is not None and not dunder and not hasattr(type(tensor), name):
        if id(tensor) in recorder.arguments:
            position, leaf = recorder.arguments[id(tensor)]
            value = _own(leaf, name)
            if value is not ABSENT or _is_user_asking(name, 2):
                recorder.asked.of_arguments[position, name] = value, containers(value)
            if value is not ABSENT:
                return value
        elif id(tensor) in recorder.others and _is_user_asking(name, 2):
            recorder.asked.tensors[id(tensor)] = tensor
            recorder.asked.absent[id(tensor), name] = None
    return object.__getattribute__(tensor, name)  # raises once more: it may be another error


def _own(tensor: Any, name: str) -> Any:
    try:
        return object.__getattribute__(tensor, name)
    except AttributeError:
        return ABSENT


def _noting_variable(look_up: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Takes the place of the ``__getitem__`` of ``os.environ`` meanwhile."""

    def noting(environment: Any, key: Any) -> Any:
        asked = _asked()
        if asked is not None and _is_written_by_user(sys._getframe(1)):
            data, encoded = environment._data, environment.encodekey(key)
            asked.environment.setdefault(encoded, (data, data.get(encoded, ABSENT)))
        return look_up(environment, key)

    return noting


def _is_written_by_user(frame: FrameType | None) -> bool:
    """Whether the code of a frame, but for what it calls of Python's, is the user's."""
    while frame is not None and frame.f_code.co_filename in _BETWEEN:
        frame = frame.f_back
    name = "" if frame is None else frame.f_code.co_filename
    return not installed_file(name)


_BETWEEN = (os.__file__, _collections_abc.__file__, Mapping.get.__code__.co_filename)
"""Where ``os.getenv`` and ``os.environ.get`` are written."""
