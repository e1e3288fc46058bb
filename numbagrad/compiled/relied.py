"""``step.relies_on``: the Python values for which a recording holds; of others there is another.

What they are is gathered with the recording (``gathering.py``); where the code reads them is looked
up when somebody asks. Start reading at ``Gathered.explained``.
"""

from __future__ import annotations

import dis
import types
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..tables import aligned, html_table, shortened, show_file
from ..tensor import Tensor
from .places import ABSENT, CARRIED, PLAIN
from .reasons import shown_value
from .whose import installed_file

__all__ = ["Gathered", "Reading", "Reliance", "Relied", "Words", "kept", "shown"]

LONGEST = 48
"""Columns of a name or a value in the table."""

KINDS = (
    "argument", "closure", "global", "attribute", "context", "environment", "state", "condition",
    "option", "mode", "modules", "code",
)  # fmt: skip
"""What rows are of, in their order."""


@dataclass(frozen=True)
class Relied:
    """A Python value that a recording relies on.

    kind: "argument", "closure", "global", "attribute", "context" (a ``ContextVar``), "environment",
    "state" (what calls read and may set: its kind counts), "condition" (of numbers that calls
    pass), "option" (of an optimiser), "mode", "modules" (their attributes, hooks and parameters) or
    "code". name: as in the code. of: where it stands. value: as it was, or of tensors and what
    calls read in words. where: the first line that reads it, or "".
    """

    kind: str
    name: str
    of: str
    value: Any
    where: str = ""

    @property
    def shown(self) -> str:
        """The value on one line, with the length of a list, a dict or a set."""
        return shown(self.value)


class Words(str):
    """A value in words: what a recording relies on is not all of it."""


def kept(value: Any) -> Any:
    """``value``, or words in the place of what nobody should hold on to."""
    plain = type(value) in PLAIN or isinstance(value, (*_CONTAINERS, types.FunctionType))
    return value if plain or value is ABSENT else Words(shown(value))


_CONTAINERS = (list, dict, set, tuple)


def shown(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Words):
        return str(value)
    if isinstance(value, Tensor):
        return tensor_in_words(value)
    if isinstance(value, _CONTAINERS):
        inside = [*map(shown, value)]
        if isinstance(value, dict):
            inside = [f"{key!r}: {shown(each)}" for key, each in value.items()]
        held = f": {', '.join(inside)}" if inside else ""
        return f"{type(value).__name__} of {len(value)}{held}"
    if value is ABSENT or value is CARRIED:
        return repr(value)
    if type(value) in PLAIN or isinstance(value, types.FunctionType):
        return shown_value(value)
    if isinstance(value, (type, types.BuiltinFunctionType)):
        return str(value.__qualname__)
    return f"a {type(value).__name__}"


def tensor_in_words(tensor: Tensor) -> str:
    """What a recording relies on of a tensor: not its values."""
    grad = ", requires grad" if tensor._edge is not None else ""
    layout = "" if tensor._array.flags.c_contiguous else f" by {list(tensor.stride())}"
    return f"{type(tensor).__name__} {list(tensor.shape)}{layout} of {tensor.dtype}{grad}"


@dataclass(frozen=True)
class Reliance:
    """What one recording relies on; prints as a table, and may be gone through row by row."""

    name: str
    rows: tuple[Relied, ...]

    def __iter__(self) -> Iterator[Relied]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, kind: str) -> tuple[Relied, ...]:
        """The rows of one kind."""
        return tuple([row for row in self.rows if row.kind == kind])

    def summary(self) -> list[str]:
        """Sentences before the table."""
        counts = Counter(row.kind for row in self.rows)
        told = ", ".join(f"{count} of {kind}" for kind, count in counts.items())
        return [f"{self.name} was recorded for these: {told}. Another in its place is noticed."]

    def table(self) -> Iterator[tuple[str, ...]]:
        """The cells: a head, and the rows."""
        yield "", "name", "of", "value", "read at"
        for row in self.rows:
            name, value = shortened(row.name, LONGEST), shortened(row.shown, LONGEST)
            yield row.kind, name, row.of, value, row.where

    def __repr__(self) -> str:
        return "\n".join([*self.summary(), "", *aligned(list(self.table()), ())])

    def _repr_html_(self) -> str:
        """What Jupyter shows."""
        return html_table(self.summary(), list(self.table()))


@dataclass(frozen=True)
class Reading:
    """The code of a function that was found, with the ids of its globals and cells."""

    code: types.CodeType
    within: frozenset[int]

    def line(self, name: str, as_word: bool) -> str:
        """The first line that reads ``name``, or "" if none does. as_word: in quotes."""
        for code in _each_code(self.code):
            for instruction in dis.get_instructions(code):
                if instruction.argval != name or not instruction.opname.startswith("LOAD"):
                    continue
                if (instruction.opname == "LOAD_CONST") is as_word:
                    positions = instruction.positions
                    line = None if positions is None else positions.lineno
                    return f"{show_file(code.co_filename)}:{line}"
        return ""


def _each_code(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object, and those of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _each_code(constant)


@dataclass(frozen=True)
class Gathered:
    """What is kept of a recording until somebody asks.

    rows: without lines. holders: for each the id of what a function that reads it must have, or 0.
    """

    rows: tuple[Relied, ...]
    holders: tuple[int, ...]
    readings: tuple[Reading, ...]

    def explained(self, name: str) -> Reliance:
        """The table of the function called ``name``, each value once."""
        users = [each for each in self.readings if not installed_file(each.code.co_filename)]
        found: dict[tuple[str, ...], Relied] = {}
        for row, holder in zip(self.rows, self.holders, strict=True):
            told = row if row.where else replace(row, where=_line(row, holder, users))
            found.setdefault((row.kind, row.name, row.of, row.shown), told)
        return Reliance(name, tuple(sorted(found.values(), key=lambda r: KINDS.index(r.kind))))


def _line(row: Relied, holder: int, readings: Iterable[Reading]) -> str:
    """The first line that reads what a row tells of."""
    if row.kind not in ("closure", "global", "attribute", "context", "environment", "state"):
        return ""
    readings = [each for each in readings if not holder or holder in each.within]
    for as_word in (False, True):
        for each in readings:
            line = each.line(row.name, as_word)
            if line:
                return line
    return ""
