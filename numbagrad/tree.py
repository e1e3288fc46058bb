"""Nested tuples, lists, dicts and dataclasses as a list of leaves and a hashable description.

Of dataclasses those that hold tensors: others are settings, and leaves.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import fields
from typing import Any

from .tensor import Tensor

__all__ = ["LEAF", "children", "flatten", "made_of", "rebuild"]

LEAF = "*"


def flatten(value: Any, leaves: list[Any]) -> Any:
    """Append the leaves of ``value`` to ``leaves``; returns what ``rebuild`` needs."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind.__name__, tuple([flatten(v, leaves) for v in value])
    if kind is dict:
        return "dict", tuple([(k, flatten(v, leaves)) for k, v in value.items()])
    if kind is OrderedDict or kind is defaultdict:
        made = kind, getattr(value, "default_factory", None)
        return made, tuple([(k, flatten(v, leaves)) for k, v in value.items()])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind, tuple([flatten(v, leaves) for v in value])
    if hasattr(kind, "__dataclass_fields__"):
        inside: list[Any] = []
        names = [each.name for each in fields(value) if hasattr(value, each.name)]
        parts = tuple([(name, flatten(getattr(value, name), inside)) for name in names])
        if any([isinstance(leaf, Tensor) for leaf in inside]):
            leaves += inside
            return (kind, None), parts
    leaves.append(value)
    return LEAF


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


def made_of(kind: type, factory: Any, items: dict[Any, Any]) -> Any:
    """An OrderedDict, a defaultdict with a factory, or a dataclass without its ``__init__``."""
    if kind is OrderedDict:
        return OrderedDict(items)
    if kind is defaultdict:
        return defaultdict(factory, items)
    made: Any = object.__new__(kind)
    for name, value in items.items():
        object.__setattr__(made, name, value)
    return made
