"""Why a compiled function was recorded again, in words: which guard of a recording failed.

Guards are text (``guards.py``); here each is looked at by itself, after the fact. Start reading at
``changed_guard`` and ``changed_key``.
"""

from __future__ import annotations

import re
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any

from ..kernels.traced_float import Count
from ..tables import shortened, show_file
from .guards import Writer

__all__ = ["FIRST", "KEY", "OTHER_VALUE", "changed_guard", "changed_key", "shown_value"]

FIRST = "the first call"
OTHER_VALUE = " is another: "
SHARED = "arguments share memory with each other, or with what the function writes or closes over"

KEY = (
    "the number or nesting of the arguments",
    "whether gradients are recorded",
    "inference mode",
    "the number of threads",
    "whether NaN or infinities are looked for",
    "the default dtype",
    "the default device",
    "autocast",
)
"""What the first parts of a signature are; the others are the arguments."""

_SAME = "which argument before is the same object"

_TENSOR = (
    "the class, dtype or device",
    "the shape",
    "the strides",
    "whether it requires grad",
    _SAME,
)
"""What the parts of a tensor's signature are."""

_RULES = (
    (r"a(\d+)\._grad", "argument {0} has a gradient, or has none any more"),
    (r"a(\d+)\._edge", "argument {0} requires grad, or does not any more"),
    (r"a(\d+)\._array\.strides", "argument {0} has other strides"),
    (r"a(\d+) != ", "argument {0} decided something by its value, which is another"),
    (r"a(\d+) is a(\d+)", "arguments {0} and {1} are one tensor"),
    (r"a(\d+) is not a(\d+)", "arguments {0} and {1} are one tensor no more"),
    (r"a(\d+)\b", "argument {0} is another"),
    (r"(t\w+)\._grad", "the gradient of {0} is there, or is not any more, or is another tensor"),
    (r"(t\w+)\._array", "the memory of {0} is another: .data was set, or it was moved"),
    (r"(t\w+)\._edge", "{0} requires grad, or does not any more"),
    (r"machine\.epoch", "a mode, a hook, or an attribute of a module is another"),
    (r"grad_mode\.anomaly", "somebody watches for NaN or measures time, or does not any more"),
)
"""Patterns of guards, and what they tell."""


def changed_guard(w: Writer, leaves: list[Any]) -> str:
    """What makes the recording of ``w`` refuse the arguments ``leaves``."""
    names = {**w.names, **{f"a{k}": leaf for k, leaf in enumerate(leaves)}}
    for name, cell in w.cells.items():
        with suppress(ValueError):  # it is empty
            names[name] = cell.cell_contents
    said = SHARED
    for text in _each(w):
        try:
            failed = eval(text, {}, names)
        except Exception:  # what it looks at is no longer of the kind that it was
            failed = True
        if failed:
            said = _in_words(w, text, names)
            if "machine.epoch" not in text:  # which has many causes: look for a better word
                break
    return said


def _each(w: Writer) -> list[str]:
    """All guards, with those of what is told in the place of the one that stands for them."""
    found = []
    for text in w.guards:
        found += [*w.told, *w.options] if "still()" in text else [text]
    return found


def _in_words(w: Writer, text: str, names: dict[str, Any]) -> str:
    if text in w.why:
        what, now, then = w.why[text]
        try:
            value = eval(now, {}, names)
        except Exception:
            return what
        return f"{what} is {shown_value(value)}, was {shown_value(then)}"
    for pattern, words in _RULES:
        found = re.search(pattern, text)
        if found:
            name, *others = found.groups() or ("",)
            held: Any = names.get(name)
            if hasattr(held, "shape"):
                name = f"a captured tensor of shape {list(held.shape)}"
            return words.format(name, *others)
    return f"a guard: {text}"


def shown_value(value: Any) -> str:
    """A value for people: of functions where they are written, of bytes how many."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    code = value.__code__ if isinstance(value, FunctionType) else value
    if isinstance(code, CodeType):
        name = getattr(value, "__qualname__", code.co_name)
        return f"{name} at {show_file(code.co_filename)}:{code.co_firstlineno}"
    return shortened(repr(value), 40)


def changed_key(new: tuple, old: tuple) -> str:
    """What differs in the signature of a call from that of the recording before it."""
    for what, now, then in zip(KEY, new, old, strict=False):
        if now != then:
            return f"{what} is another" if what is KEY[0] else f"{what}: {now}, was {then}"
    for k, (now, then) in enumerate(zip(new[len(KEY) :], old[len(KEY) :], strict=False)):
        if now == then:
            continue
        if not (isinstance(now, tuple) and isinstance(then, tuple) and len(now) == len(then) == 5):
            return f"argument {k}{OTHER_VALUE}{_argument(now)}, was {_argument(then)}"
        for what, n, t in zip(_TENSOR, now, then, strict=True):
            if n != t:
                if what is _SAME:
                    return f"argument {k} is {_same_as(n)}, was {_same_as(t)}"
                return f"{what} of argument {k}: {_part(n)}, was {_part(t)}"
    return SHARED


def _same_as(place: int | None) -> str:
    return "a tensor of its own" if place is None else f"the same object as argument {place}"


def _argument(part: Any) -> str:
    if isinstance(part, tuple) and len(part) == 2:
        return shown_value(part[1])
    if part is Count:
        return "any whole number"
    return "a tensor" if isinstance(part, tuple) else "a float"


def _part(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], type):
        kind, dtype, away = value
        return f"{kind.__name__} of {dtype} on {'a GPU' if away else 'the CPU'}"
    return "C-contiguous" if value is None else str(value)
