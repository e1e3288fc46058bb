"""How far iterators have come that a recorded function finds: ``next(batches)`` would run once.

Python has no word for it. A generator stands at an instruction, with variables; iterators of C tell
what ``pickle`` would write of them, how many are left, or what they refer to; a file where it is.
Start reading at ``Iterators``.
"""

from __future__ import annotations

import contextlib
import gc
import io
import warnings
from collections.abc import Iterable
from types import BuiltinMethodType, GeneratorType, MethodWrapperType
from typing import Any

from ..errors import RecordingError
from .places import Place

__all__ = ["Iterators"]

_DEEPEST = 5
"""How many iterators within iterators are looked at."""

_OF_C = ("builtins", "itertools")
_PLAIN = (int, float, str, bytes, type(None))


class Iterators:
    """Those among ``places`` and ``arguments``, and how far they are now."""

    def __init__(self, places: Iterable[Place], arguments: Iterable[Any]):
        self.found: list[tuple[str, Any, Any]] = []
        for place in places:
            self._note(place.name, place.value)
            for container, _ in place.content:
                if isinstance(container, (dict, list)):
                    among = container.values() if isinstance(container, dict) else container
                    for value in list(among):
                        self._note(place.name, value)
        for k, value in enumerate(arguments):
            self._note(f"argument {k}", value)

    def _note(self, name: str, value: Any) -> None:
        if type(value) is MethodWrapperType and value.__name__ == "__next__":
            value = value.__self__
        if _is_iterator(value):
            self.found.append((name, value, _progress(value)))

    def check(self) -> None:
        """Raise if one has been taken from."""
        for name, value, before in self.found:
            if _progress(value) != before:
                raise RecordingError(
                    f"compile: the compiled function takes the next of {name!r} "
                    f"({type(value).__name__}), which a compiled call would not do. Take it "
                    f"outside, and pass it as an argument."
                )


class _Same:
    """Equal to what stands for the same object, which it keeps."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: Any) -> bool:
        return type(other) is _Same and self.value is other.value


def _is_iterator(value: Any) -> bool:
    kind = type(value)
    if issubclass(kind, io.IOBase):
        return _is_read(value)
    return kind is GeneratorType or (kind.__module__ in _OF_C and hasattr(kind, "__next__"))


def _is_read(file: Any) -> bool:
    """Whether a file is read alone: what is written to one is a log."""
    try:
        return bool(file.readable() and not file.writable())
    except (OSError, ValueError):  # it is closed
        return False


def _progress(value: Any, depth: int = _DEEPEST) -> Any:
    """What is another once ``value``, or an iterator that it takes from, has been taken from."""
    if type(value) in _PLAIN:
        return value
    if type(value) is tuple:
        return tuple([_progress(each, depth) for each in value])
    if type(value) is BuiltinMethodType and isinstance(value.__self__, io.IOBase):
        value = value.__self__  # of the readline of a file
    if not _is_iterator(value):
        return _Same(value)
    if depth == 0:
        return None
    if isinstance(value, io.IOBase):
        return _position(value)
    if type(value) is GeneratorType:
        frame = value.gi_frame
        if frame is None or value.gi_running:
            return frame is None
        return frame.f_lasti, _inside(value, depth)
    return _told(value, depth), _inside(value, depth)


def _told(value: Any, depth: int) -> Any:
    """How far an iterator of C says that it is."""
    with contextlib.suppress(TypeError):  # of one without an end
        if hasattr(value, "__length_hint__"):
            return value.__length_hint__()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python 3.12 and 3.13
            reduced = value.__reduce__()[1:]
    except (NotImplementedError, TypeError):
        return repr(value)
    return _progress(reduced, depth - 1)


def _inside(value: Any, depth: int) -> list[Any]:
    """Of what an iterator refers to: the variables of a generator, what its loops go over.

    Not of tuples: some of C are not whole, and only their owner may read them.
    """
    return [_progress(x, depth - 1) for x in gc.get_referents(value) if type(x) is not tuple]


def _position(file: Any) -> Any:
    try:
        return file.tell()
    except (OSError, ValueError):  # it is closed, a pipe, or iterated over
        buffer = getattr(file, "buffer", None)
        return None if buffer is None or buffer is file else _position(buffer)
