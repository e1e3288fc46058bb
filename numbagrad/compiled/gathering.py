"""Gathering what a recording relies on, for ``step.relies_on`` (``relied.py``) to show.

Start reading at ``gathered``.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from ..kernels.traced_float import Count
from ..tables import show_file
from .carried import Recorded
from .finder import Reach
from .guards import arguments_in
from .places import ABSENT, Place
from .reasons import KEY
from .relied import Gathered, Reading, Relied, Words, kept
from .shown import without_parentheses

__all__ = ["gathered"]

Found = Iterator[tuple[Relied, int]]
"""Rows, each with the id of what a function that reads it must have, or 0."""


def gathered(found: Recorded, reach: Reach, key: tuple[Any, ...], leaves: list[Any]) -> Gathered:
    """What ``found`` relies on. key: the signature, of arguments with these leaves."""
    recorder = found.recording.recorder
    rows: list[tuple[Relied, int]] = []
    owners = {id(getattr(each, "__dict__", None)): each for each in reach.objects}
    for place in found.places:
        rows += _of_place(place, owners)
    others = [*_arguments(leaves, recorder.pinned), *_state(found)]
    for (k, name), (value, content) in recorder.asked.of_arguments.items():
        there = kept(content[0][1] if content else value)
        others.append(Relied("attribute", name, f"argument {k}", there))
    for text, answer in recorder.conditions.items():
        asked = without_parentheses(arguments_in(text))
        others.append(Relied("condition", asked, "arguments", answer))
    for _, value in recorder.reads:
        named = isinstance(value, bytes)
        name = "the values of a tensor or array" if named else "options that decide what is run"
        kind = "attribute" if named else "option"
        others.append(Relied(kind, name, "", Words(f"{len(value)} bytes") if named else value))
    for name, mode in zip(KEY[1:], key[1:], strict=False):
        plain = mode is None or isinstance(mode, (bool, int))
        others.append(Relied("mode", name, "", mode if plain else Words(str(mode) or "nothing")))
    others += _modules(recorder.held.modules)
    rows += [(row, 0) for row in others]
    readings = [
        Reading(f.__code__, frozenset([id(f.__globals__), *map(id, f.__closure__ or ())]))
        for f in reach.functions
    ]
    return Gathered(tuple([r for r, _ in rows]), tuple([i for _, i in rows]), tuple(readings))


def _of_place(place: Place, owners: dict[int, Any]) -> Found:
    """The row of a place, unless another tells the same. owners: of attributes, by their dict."""
    holder, name, value = place.holder, place.name, kept(place.shown)
    if place.decode is not None:
        yield Relied("environment", place.decode(name), "os.environ", value), 0
    elif isinstance(holder, types.CellType):
        yield Relied("closure", name, "", value), id(holder)
    elif isinstance(holder, ContextVar):
        yield Relied("context", name, "ContextVar", value), 0
    elif isinstance(holder, types.FunctionType):
        code = holder.__code__
        where = f"{show_file(code.co_filename)}:{code.co_firstlineno}"
        what = "the code" if name == "__code__" else "the defaults"
        yield Relied("code", holder.__qualname__, holder.__module__, Words(what), where), 0
    elif isinstance(holder, dict) and id(holder) in owners:
        if not (place.told and value is ABSENT):
            yield Relied("attribute", name, type(owners[id(holder)]).__qualname__, value), 0
    elif isinstance(holder, dict):
        if "__name__" in holder:  # not the table of a module, which has it as an attribute too
            yield Relied("global", name, holder["__name__"], value), id(holder)
    elif isinstance(holder, types.ModuleType):
        yield Relied("global", name, holder.__name__, value), 0
    elif isinstance(holder, type):
        written = isinstance(value, (types.FunctionType, Words))
        kind = "code" if written else "attribute"
        yield Relied(kind, name, holder.__qualname__, value), 0
    else:
        yield Relied("attribute", name, type(holder).__qualname__, value), 0


def _arguments(leaves: list[Any], pinned: set[int]) -> Iterator[Relied]:
    for k, leaf in enumerate(leaves):
        value = kept(leaf)
        if type(leaf) in (float, Count) and k not in pinned:
            kind = "float" if type(leaf) is float else "whole number"
            value = Words(f"a {kind}, read at each call")
        elif type(leaf) is Count:
            value = int(leaf)
        yield Relied("argument", f"argument {k}", "", value)


def _state(found: Recorded) -> Iterator[Relied]:
    """What calls read where it stands, and may set."""
    if found.carried is not None:
        for slot, then in zip(found.carried.slots, found.carried.then, strict=True):
            told = f"a {slot.number.__name__}" if slot.number is not None else then
            yield Relied("state", slot.name, "", Words(f"{told}, read at each call"))


def _modules(modules: Iterable[Any]) -> Iterator[Relied]:
    """The modules that were looked at, those that are trained and those that are not."""
    for training in (True, False):
        names = [type(each).__name__ for each in modules if each.training is training]
        if names:
            told = ", ".join(n if k == 1 else f"{k} {n}" for n, k in Counter(names).items())
            yield Relied("modules", told, "attributes, hooks", Words(f"training={training}"))
