"""Nested tuples, lists, dicts, dataclasses and objects as leaves and a hashable description.

Of dataclasses and objects those that hold tensors: others are settings, and leaves. Objects of
classes that somebody wrote as data are asked for by ``objects``: see ``_object``.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from types import SimpleNamespace
from typing import Any

import numpy as np

from .devices import Device
from .dtypes import DType
from .kernels.traced_float import TracedFloat
from .tensor import Tensor

__all__ = ["LEAF", "blanks", "children", "flatten", "forget_cached", "made_of", "rebuild"]

LEAF = "*"

MOST = 1000
"""Leaves of an object that is taken apart."""

Above = tuple[int, ...] | None


@dataclass(frozen=True)
class Attribute:
    """An attribute of a dict: what stands there for a key that no item has."""

    name: str


@dataclass(frozen=True)
class Itself:
    """That a dict is its own ``__dict__``, or which of its attributes are its items too."""

    names: tuple[str, ...] | None = None


TUPLE = "tuple"
"""Stands in the description of a tuple of a class of its own."""

OBJECT = "object"
"""Stands in the description of an object for what is special about its class: nothing."""


def flatten(value: Any, leaves: list[Any], objects: Above = None) -> Any:
    """Append the leaves of ``value`` to ``leaves``; returns what ``rebuild`` needs.

    objects: () to take objects and subclasses of dict apart too, which are leaves else; inside of
    objects their ids.
    """
    if isinstance(value, Tensor):
        leaves.append(value)
        return LEAF
    kind: Any = type(value)
    if kind is tuple or kind is list:
        return kind.__name__, tuple([flatten(v, leaves, objects) for v in value])
    if kind is dict:
        return "dict", tuple([(k, flatten(v, leaves, objects)) for k, v in value.items()])
    if kind is OrderedDict or kind is defaultdict:
        made = kind, getattr(value, "default_factory", None)
        return made, tuple([(k, flatten(v, leaves, objects)) for k, v in value.items()])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind, tuple([flatten(v, leaves, objects) for v in value])
    if kind is deque or (isinstance(value, tuple) and _has_tensors_alone(value)):
        special = value.maxlen if isinstance(value, deque) else TUPLE
        return (kind, special), tuple(
            [(k, flatten(v, leaves, objects)) for k, v in enumerate(value)]
        )
    if objects is not None and id(value) not in objects and _is_open(kind):
        spec = (_mapping if issubclass(kind, dict) else _object)(value, leaves, objects)
        if spec is not None:
            return spec
    elif hasattr(kind, "__dataclass_fields__") and not issubclass(kind, dict):
        inside: list[Any] = []
        names = [each.name for each in fields(value) if hasattr(value, each.name)]
        parts = tuple([(name, flatten(getattr(value, name), inside, objects)) for name in names])
        if any([isinstance(leaf, Tensor) for leaf in inside]):
            leaves += inside
            return (kind, None), parts
    leaves.append(value)
    return LEAF


def _has_tensors_alone(value: tuple[Any, ...]) -> bool:
    """Whether a tuple of a class of its own has tensors, and no attributes beside them."""
    plain = not getattr(value, "__dict__", None)
    return plain and any([isinstance(each, Tensor) for each in value])


_MADE = (object.__new__, dict.__new__, OrderedDict.__new__, SimpleNamespace.__new__)
_OURS = __name__.partition(".")[0]


@functools.lru_cache(maxsize=512)
def _is_open(kind: type) -> bool:
    """Whether an object of this class is what is in its ``__dict__``, and in it if it is a dict.

    Dataclasses say themselves what is in them. Our own classes have state of their own.
    """
    if kind.__new__ not in _MADE or not kind.__dictoffset__ or issubclass(kind, defaultdict):
        return False
    if hasattr(kind, "__dataclass_fields__") and not issubclass(kind, dict):
        return False
    for each in kind.__mro__:
        ours = str(each.__module__).partition(".")[0] == _OURS
        if ours or vars(each).get("__slots__") or "__del__" in vars(each):
            return False
    return True


_PLAIN = (
    Tensor, TracedFloat, np.ndarray, np.generic, int, float, complex, str, bytes, type(None), Enum,
    slice, range, DType, Device,
)  # fmt: skip
"""What may be in an object that is taken apart. Another may look at the object by itself."""


def _object(value: Any, leaves: list[Any], above: tuple[int, ...]) -> Any:
    """An object that holds nothing but data, with tensors; else None.

    One with a leaf of the tape is a model: who holds it knows it, and its ``.grad``.
    """
    inside: list[Any] = []
    above = (*above, id(value))
    parts = tuple([(name, flatten(v, inside, above)) for name, v in vars(value).items()])
    if len(inside) > MOST or not all([isinstance(leaf, _PLAIN) for leaf in inside]):
        return None
    tensors = [leaf for leaf in inside if isinstance(leaf, Tensor)]
    if not tensors or any([t.requires_grad and t.is_leaf for t in tensors]):
        return None
    leaves += inside
    return (type(value), OBJECT), parts


def _mapping(value: Any, leaves: list[Any], above: tuple[int, ...]) -> Any:
    """A subclass of dict: its items, and the attributes that are not among them."""
    kind, above = type(value), (*above, id(value))
    own = vars(value)
    items: list[tuple[Any, Any]] = list(_base(kind).items(value))
    if own is value:
        made = Itself()
    else:
        missing = object()
        same = [name for name, v in own.items() if dict.get(value, name, missing) is v]
        made = Itself(tuple(same))
        items += [(Attribute(k), v) for k, v in own.items() if k not in same]
    return (kind, made), tuple([(key, flatten(v, leaves, above)) for key, v in items])


def _base(kind: type) -> Any:
    return OrderedDict if issubclass(kind, OrderedDict) else dict


def rebuild(spec: Any, leaves: list[Any]) -> Any:
    """The value that ``flatten`` took apart, with ``leaves`` (consumed) in its places."""
    if spec == LEAF:
        return leaves.pop(0)
    kind, parts = spec
    if kind == "dict":
        return {k: rebuild(p, leaves) for k, p in parts}
    if type(kind) is tuple:
        return made_of(kind[0], kind[1], {k: rebuild(p, leaves) for k, p in parts})
    values = [rebuild(p, leaves) for p in parts]
    if kind == "list":
        return values
    return tuple(values) if kind == "tuple" else kind(*values)


def opened(spec: Any, leaves: Iterator[Any], found: list[Any]) -> Any:
    """``spec`` whose tensors that have ``made_of_parts``, which tells a function and its arguments,
    are calls. The leaves, and such arguments in their places, are appended to ``found``."""
    if spec != LEAF:
        kind, parts = spec
        if kind == "dict" or type(kind) is tuple:
            return kind, tuple([(k, opened(p, leaves, found)) for k, p in parts])
        return kind, tuple([opened(p, leaves, found) for p in parts])
    leaf = next(leaves)
    told = getattr(leaf, "made_of_parts", None) if isinstance(leaf, Tensor) else None
    if told is None:
        found.append(leaf)
        return LEAF
    function, parts = told()
    found += parts
    return function, (LEAF,) * len(parts)


def children(spec: Any) -> list[tuple[Any, Any]]:
    """Keys and forms of what a container holds, from what ``flatten`` told of it; of a leaf none.

    >>> children(flatten({"a": [1, 2]}, []))
    [('a', ('list', ('*', '*')))]
    """
    if spec == LEAF:
        return []
    kind, parts = spec
    if kind == "dict" or type(kind) is tuple:
        return list(parts)
    return list(enumerate(parts))


def blanks(spec: Any) -> Iterator[Any]:
    """For each object in a description, and each dataclass, one of its class that is empty."""
    if spec == LEAF:
        return
    kind, _ = spec
    made = kind[0] if type(kind) is tuple else tuple
    if made not in (OrderedDict, defaultdict, deque) and not issubclass(made, tuple):
        yield made_of(kind[0], Itself(()) if type(kind[1]) is Itself else kind[1], {})
    for _, part in children(spec):
        yield from blanks(part)


def forget_cached(value: Any, spec: Any) -> None:
    """Drop what ``cached_property`` has kept in objects since ``spec`` was told of ``value``."""
    if spec == LEAF:
        return
    held = value
    if type(spec[0]) is tuple and spec[0][1] is OBJECT:
        held, names = vars(value), dict(spec[1])
        for name in held.keys() - names.keys():
            if isinstance(getattr(type(value), name, None), functools.cached_property):
                del held[name]
    for key, part in children(spec):
        if part != LEAF and type(held) in (dict, list, tuple):
            if key in held if type(held) is dict else key < len(held):
                forget_cached(held[key], part)


def made_of(kind: Any, made: Any, items: dict[Any, Any]) -> Any:
    """An OrderedDict, a defaultdict with a factory, a deque, or an object without its ``__init__``.

    made: what ``flatten`` says beside the class: the factory, the length, TUPLE, OBJECT, Itself,
    None of a dataclass.
    """
    if kind is OrderedDict:
        return OrderedDict(items)
    if kind is defaultdict:
        return defaultdict(made, items)
    if kind is deque:
        return deque(items.values(), made)
    if made is TUPLE:
        return tuple.__new__(kind, items.values())
    if made is OBJECT:
        found = kind.__new__(kind)
        found.__dict__.update(items)
        return found
    if type(made) is Itself:
        return _made_mapping(kind, made, items)
    found = object.__new__(kind)
    for name, value in items.items():
        object.__setattr__(found, name, value)
    return found


def _made_mapping(kind: Any, made: Itself, items: dict[Any, Any]) -> Any:
    found, base = kind.__new__(kind), _base(kind)
    if made.names is None:
        found.__dict__ = found
    for key, value in items.items():
        if type(key) is Attribute:
            found.__dict__[key.name] = value
        else:
            base.__setitem__(found, key, value)
    for name in made.names or ():
        found.__dict__[name] = items[name]
    return found
