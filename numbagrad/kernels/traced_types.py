"""``type`` of traced floats, in the place of Python's in modules that ask numbers for theirs.

``type(k) is float`` and ``TABLE[type(k)]`` are to find a float where a traced one stands. Start
reading at ``tracing_types``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from .traced_float import TracedFloat

__all__ = ["tracing_types"]


class _Asking(type):
    """The class of what stands for ``type``, which is equal to it, and does what it does."""

    def __call__(cls, *given: Any, **named: Any) -> Any:
        if cls is not _Type:  # a class of classes, made meanwhile
            return super().__call__(*given, **named)
        if len(given) == 1 and type(given[0]) is TracedFloat:
            return type(given[0].value)
        return type(*given, **named)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, type) if cls is _Type else super().__instancecheck__(value)

    def __subclasscheck__(cls, kind: Any) -> bool:
        return issubclass(kind, type) if cls is _Type else super().__subclasscheck__(kind)

    def __eq__(cls, other: object) -> bool:
        return other is cls or (cls is _Type and other is type)

    def __hash__(cls) -> int:
        return hash(type) if cls is _Type else super().__hash__()


class _Type(type, metaclass=_Asking):
    """Stands for ``type``."""


@contextmanager
def tracing_types(namespaces: Iterable[dict[str, Any]]) -> Iterator[None]:
    """A block in which ``type`` is that of the numbers that traced floats stand for, in modules
    that have none of their own. Others that run in these modules meanwhile get what they would."""
    changed = [names for names in namespaces if "type" not in names]
    try:
        for names in changed:
            names["type"] = _Type
        yield
    finally:
        for names in changed:
            names.pop("type", None)
