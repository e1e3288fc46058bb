"""What the text of a program is made into: markers for numbers, a table, and their descriptions.

Every size in the text is a marker, so that a program recorded for another batch size has the same
text and other numbers. Start reading at ``Template``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types

from ..kernels import store
from .program import Buffer, Instruction

DONE, OTHER_SHAPE, OVERLAP, HELD, FIRST_CHECK = 0, 1, 2, 3, 16
"""What the function returns: the number of a failed check is added to FIRST_CHECK."""

MARK = re.compile("⟦(\\d+)⟧")
"""Stands for the number of that place in ``Template.numbers``."""


def whole(text: str) -> str:
    """The expression of a number among the arguments of a call that is a whole one."""
    return f"index({text})"


def type_of_argument(text: str) -> Any:
    """The Numba type of a number that a call passes, by its expression."""
    return types.int64 if text.startswith("index(") else types.float64


@dataclass(frozen=True)
class Argument:
    """An array that the function gets: an input, or fresh memory.

    shape: checked by the function; None where Python has checked the layout. offset: of the first
    element in the buffer.
    """

    buffer: Buffer
    shape: tuple[int, ...] | None
    offset: int = 0


@dataclass(frozen=True)
class Entry:
    """One place of the table.

    kind: "work", "buffer" (address of bound memory), "pointer to" (how list kernels find an array:
    what looks like an object whose data pointer is place ``what``), "table" (its own address),
    "place" (the address of place ``what``), "kernel", "part", "number", "offset" (a number of which
    the compiled code does not depend), "count" (a word of ``counts.words``) or "result" (written by
    the function).
    """

    kind: str
    what: Any = None
    offset: int = 0


@dataclass(frozen=True)
class KernelUse:
    """A kernel called by address, and the types of its arguments."""

    kernel: Any
    signature: tuple[Any, ...]
    parallel: bool


@dataclass(frozen=True)
class Part:
    """A function that the main one calls with the table and numbers of these types.

    It is a loop that is shared out among threads, or one section of a long program, which returns
    what the program is to return if that is not DONE.
    """

    text: str
    kinds: tuple[Any, ...]
    threads: bool


@dataclass
class Template:
    """Source text with markers for numbers, and all that a call needs to know."""

    name: str
    text: str
    parts: list[Part]
    numbers: list[int | float]
    table: list[Entry]
    arguments: list[Argument]
    hyper: list[tuple[Callable[[], tuple], tuple]]  # callables and the types they gave
    floats: list[str]  # expressions of numbers among the arguments, passed each time
    checks: list[tuple[Callable[[int], None], int]]  # failure and the table place of the flag
    work: int  # bytes
    heavy: bool  # whether it runs so long that other Python threads should run meanwhile
    products: tuple[np.dtype, ...]  # dtypes of matrices that it multiplies
    stamps: tuple[tuple[int, tuple[Instruction, ...]], ...]  # places of times, and what ended then

    @property
    def shape(self) -> tuple[Any, ...]:
        """What must be equal for two templates to share compiled code."""
        table = tuple(
            (e.kind, None if e.kind == "offset" else _kernel_identity(e.what)) for e in self.table
        )
        parts = tuple(part.text for part in self.parts)
        return (
            self.text,
            parts,
            table,
            len(self.arguments),
            tuple(t for _, t in self.hyper),
            tuple(map(type_of_argument, self.floats)),
            self.heavy,
        )

    def source(self, varying: dict[int, str]) -> tuple[str, str]:
        """Text and function name. varying: names of the numbers that are read from the table's end,
        in order of first appearance, by their position; equal names are one number."""
        return self._render(self.text, self.name, varying)

    def part_source(self, index: int, varying: dict[int, str]) -> tuple[str, str]:
        """``source`` of a part."""
        return self._render(self.parts[index].text, f"{self.name}_part", varying)

    def _render(self, text: str, prefix: str, varying: dict[int, str]) -> tuple[str, str]:
        names = list(dict.fromkeys(varying.values()))
        kinds = {varying[k]: type(self.numbers[k]) for k in varying}
        used = {varying.get(int(m)) for m in MARK.findall(text)}

        def shown(m: re.Match[str]) -> str:
            k = int(m[1])
            return varying.get(k) or repr(self.numbers[k])

        text = MARK.sub(shown, text)
        loads = ""
        for j, name in enumerate(names):
            value = f"table[{len(self.table) + j}]"
            value = value if kinds[name] is int else f"bits_float64({value})"
            loads += f"    {name} = {value}\n" if name in used else ""
        text = text.replace("    SIZES\n", loads)
        bare = store.without_comments(text)  # they tell of lines, which move with any edit
        name = store.content_name(f"compiled_{prefix}", bare)  # as `numbagrad cache` counts
        return text.replace("NAME", name, 1), name


def _kernel_identity(what: Any) -> Any:
    if isinstance(what, KernelUse):
        return id(what.kernel), what.signature
    return what if isinstance(what, (int, str)) else None
