"""A long program as functions that one loop calls; what the program repeats is compiled once.

Numba's time for one function grows with the square of its length: 1,200 lines took 12 s. And what a
loop in Python does, over time steps or over layers, is in the program as often as it ran. So each
group of instructions is written by itself, as a piece. Pieces whose text is the same but for names
and for *offsets* (places of memory, of the table, of checks) are of one kind and become one
function: it gets the address of that part of the table in which the offsets of this time are. Where
there are many that differ in sizes, as in a loop over growing parts, sizes are read there as well.
Kinds that always follow each other share a function. Start reading at ``write_long``.
"""

from __future__ import annotations

import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

from numba import types

from .emit_text import Fragment
from .program import Instruction
from .template import DONE, MARK, Entry

if TYPE_CHECKING:
    from .emit_cpu import Emitter

SECTION = 120
"""Lines of one function."""

WORTH = 12
"""Lines that take as long to compile as one more function."""

SIZES = 3
"""Functions that differ in sizes only, at most: each is made for its sizes, which is faster."""

Kind = tuple[object, ...]
"""Text without names and offsets, and the other numbers in it where they are the same each time."""


@dataclass
class Piece:
    """What one group of instructions became.

    shared: parts of it with threads, and where in the table their addresses are. text: without
    names and numbers. marks: the numbers of its markers, in order; offsets: those that may differ.
    """

    fragment: Fragment
    shared: list[tuple[int, Fragment]]
    text: str
    marks: list[int]
    kind: Kind = ()
    offsets: Sequence[int] = ()

    @property
    def fragments(self) -> list[Fragment]:
        """The piece and its parts."""
        return [self.fragment, *(part for _, part in self.shared)]

    @property
    def length(self) -> int:
        """How many lines Numba compiles."""
        return sum(not _comment(line) for f in self.fragments for line in f.lines)


def write_long(e: Emitter) -> int:
    """Write the groups of ``e`` as several functions, and the loop that calls them.

    Returns how many lines fewer Numba compiles than if all were one function.
    """
    pieces = [_piece(e, group) for group in e.groups]
    _tell_apart(e, pieces)
    slots = _slots(e, pieces)
    kept = _kept(e, pieces)
    times = Counter(piece.kind for piece in pieces)
    made: dict[Kind, tuple[int, list[int]]] = {}
    schedule: list[Entry] = []
    saved = WORTH
    for repeated, run in _runs(pieces):
        head = run[0].kind
        saved += sum(piece.length for piece in run) if head in made else -WORTH
        if not repeated:
            part, _ = _function(e, run, [[None] * len(p.offsets) for p in run], kept)
            schedule += [Entry("part", part), Entry("number", 0)]
            continue
        if head not in made:
            told = f"# This runs {times[head]} times; names and lines are those of the first."
            made[head] = _function(e, run, [slots[p.kind] for p in run], kept, told)
        part, shared = made[head]
        schedule += [Entry("part", part), Entry("place", len(e.table))]
        for at, number in zip([at for p in run for at, _ in p.shared], shared, strict=True):
            e.table[at] = Entry("part", number)
        for piece in run:
            here = dict(zip(slots[piece.kind], piece.offsets, strict=True))
            here.pop(None, None)
            e.table += [Entry("offset", _word(e.numbers[here[n]])) for n in range(len(here))]
    begin, e.table = len(e.table), e.table + schedule
    for name in ("call_for", "load", "pointer"):
        e.use(name)
    e.type("int64")
    e.lines += [
        "words = pointer(table[1], int64)",
        f"for k in range({e.number(len(schedule) // 2)}):",
        f"    at = {e.number(begin)} + 2 * k",
        "    status = call_for(load(words, at), (table, load(words, at + 1)))",
        f"    if status != {DONE}:",
        "        return status",
    ]
    return saved


def _piece(e: Emitter, group: tuple[Instruction, ...]) -> Piece:
    """The text of one group by itself."""
    outer, e.shared = e.set_aside(), []
    e.group(group)
    shared, e.shared = e.shared, None
    fragments = [e.resume(outer), *(part for _, part in shared)]
    text = "\n\n".join("\n".join(x for x in f.lines if not _comment(x)) for f in fragments)
    marks = [int(m) for m in MARK.findall(text)]
    return Piece(fragments[0], shared, _without_names(MARK.sub("#", text)), marks)


def _tell_apart(e: Emitter, pieces: Sequence[Piece]) -> None:
    """Set the kinds of pieces, and which of their numbers may differ."""
    sizes = [tuple(repr(e.numbers[m]) for m in p.marks if m not in e.movable) for p in pieces]
    different: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for piece, mine in zip(pieces, sizes, strict=True):
        different[piece.text].add(mine)
    for piece, mine in zip(pieces, sizes, strict=True):
        if len(different[piece.text]) > SIZES:
            types_of_them = tuple(type(e.numbers[m]) for m in piece.marks)
            piece.kind, piece.offsets = (piece.text, types_of_them), piece.marks
        else:
            piece.kind = piece.text, mine
            piece.offsets = [m for m in piece.marks if m in e.movable]


def _word(value: float) -> int:
    """A number as the table has it."""
    return value if isinstance(value, int) else struct.unpack("q", struct.pack("d", value))[0]


def _comment(line: str) -> bool:
    return line.lstrip().startswith("#")


_ASSIGNED = re.compile(r"^ *(?:for )?([A-Za-z_]\w*)(?: = | in )", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*|'\d+(?=\.)")


def _without_names(text: str) -> str:
    """``text``, its variables and the numbers of its loops called after when they first come."""
    own = set(_ASSIGNED.findall(text))
    order: dict[str, str] = {}

    def called(m: re.Match[str]) -> str:
        word = m[0]
        return order.setdefault(word, f"_{len(order)}") if word in own or word[0] == "'" else word

    return _NAME.sub(called, text)


def _slots(e: Emitter, pieces: Sequence[Piece]) -> dict[Kind, list[int | None]]:
    """For each offset of a kind, the number of that which is read anew each time.

    Offsets that are always equal to each other have one number. Where views begin is part of the
    text where it never differs.
    """
    times: dict[Kind, list[Sequence[int]]] = defaultdict(list)
    for piece in pieces:
        times[piece.kind].append(piece.offsets)
    found: dict[Kind, list[int | None]] = {}
    for kind, marks in times.items():
        known: dict[tuple[str, ...], int] = {}
        found[kind] = []
        for each in zip(*marks, strict=True):
            values = tuple(repr(e.numbers[m]) for m in each)
            fixed = len(set(values)) == 1 and not e.movable.get(each[0], False)
            found[kind].append(None if fixed else known.setdefault(values, len(known)))
    return found


def _runs(pieces: Sequence[Piece]) -> Iterator[tuple[bool, Sequence[Piece]]]:
    """The pieces in order, those of one function together, and whether it is called repeatedly."""
    heads = _chains(pieces)
    at, waiting, lines = 0, 0, 0
    while at < len(pieces):
        together = heads.get(pieces[at].kind, 0)
        if waiting < at and (together or lines >= SECTION):
            yield False, pieces[waiting:at]
            waiting, lines = at, 0
        if together:
            yield True, pieces[at : at + together]
            waiting = at + together
        else:
            lines += pieces[at].length
        at += together or 1
    if waiting < at:
        yield False, pieces[waiting:]


def _chains(pieces: Sequence[Piece]) -> dict[Kind, int]:
    """The kinds with which a repeated function begins, and how many pieces are in it."""
    kinds = [piece.kind for piece in pieces]
    times, pairs = Counter(kinds), Counter(pairwise(kinds))
    heads: dict[Kind, int] = {}
    lengths: dict[Kind, int] = {}
    seen: set[Kind] = set()
    head = before = None
    for piece in pieces:
        kind = piece.kind
        if kind not in seen:
            seen.add(kind)
            always = before is not None and pairs[before, kind] == times[before] == times[kind]
            if head is None or not always or lengths[head] + piece.length > SECTION:
                head, heads[kind], lengths[kind] = kind, 0, 0
            heads[head] += 1
            lengths[head] += piece.length
        before = kind
    return {k: n for k, n in heads.items() if (times[k] - 1) * lengths[k] > WORTH}


def _kept(e: Emitter, pieces: Sequence[Piece]) -> dict[str, str]:
    """What the main function gets, written to the table: how a function reads it there."""
    found = {}
    for name in sorted({name for p in pieces for f in p.fragments for name in f.passed}):
        at, kind = e.place(Entry("result")), e.passed_type(name)
        word = "float64" if kind == types.float64 else "int64"
        spot = f"pointer(table[1] + {e.number(8 * at)}, {e.type(word)})"
        e.use("store")
        e.lines.append(f"store({spot}, 0, {name if word == 'float64' else f'int64({name})'})")
        found[name] = f"load({spot}, 0)" + (" != 0" if kind == types.boolean else "")
    return found


def _function(
    e: Emitter,
    run: Sequence[Piece],
    slots: Sequence[Sequence[int | None]],
    kept: dict[str, str],
    told: str = "",
) -> tuple[int, list[int]]:
    """The part that does a run of pieces, and those of it with threads: their numbers.

    slots: of their offsets, see ``_slots``.
    """
    lines: list[str] = []
    inner: list[int] = []
    passed: dict[str, None] = {}
    needs: tuple[dict[Any, None], ...] = ({}, {}, {"load": None, "pointer": None})
    first = 0
    e.type("int64")
    for piece, mine in zip(run, slots, strict=True):
        names = {
            m: f"p{first + n}" for m, n in zip(piece.offsets, mine, strict=True) if n is not None
        }
        first += len(set(names.values()))
        floats = {name for m, name in names.items() if isinstance(e.numbers[m], float)}
        texts = [_with_offsets(f.lines, names, floats) for f in piece.fragments]
        lines += texts[0]
        passed |= dict.fromkeys(piece.fragment.passed)
        needs = tuple(a | b for a, b in zip(needs, piece.fragment.needs, strict=True))
        for (at, part), text in zip(piece.shared, texts[1:], strict=True):
            text = _renamed(e, text) if told else text
            shared = Fragment(text, part.passed, (*part.needs[:2], part.needs[2] | needs[2]))
            inner.append(e.make_part(at, shared, ["table", "at", *part.passed], True))
    lines = [f"{name} = {kept[name]}" for name in passed] + lines
    if told:
        lines = [told, *_renamed(e, lines)]
    at = e.place(Entry("part"))
    return e.make_part(at, Fragment(lines, [], needs), ["table", "at"], False), inner


def _with_offsets(lines: Sequence[str], names: dict[int, str], floats: set[str]) -> list[str]:
    """``lines``, the markers with a name replaced by what is read at ``at``."""
    used: dict[str, None] = {}

    def read(m: re.Match[str]) -> str:
        name = names.get(int(m[1]))
        if name is None:
            return m[0]
        used[name] = None
        return name

    replaced = [x if _comment(x) else MARK.sub(read, x) for x in lines]
    if not used:
        return replaced
    loads = []
    for name in used:
        word = f"load(offsets, {name[1:]})"
        loads.append(f"{name} = {f'bits_float64({word})' if name in floats else word}")
    return ["offsets = pointer(at, int64)", *loads, *replaced]


_COUNTED = re.compile(r"\b(?:t\d+(?:_\d+)?\b|(?:[xv]\d+|sums?|row)_(\d+)(?!\d))|'(\d+)(?=\.)")
"""Work buffers and temporaries, what is called after a loop, and the loop of ``load_apart``."""


def _renamed(e: Emitter, lines: list[str]) -> list[str]:
    """``lines`` with names that begin at 0: in a program of more times the text is the same."""
    given = {name for b, name in e.names.items() if b.kind != "work"}
    free = (name for name in map("t{}".format, count()) if name not in given)
    names: dict[str, str] = {name: name for name in given}
    loops: dict[str, int] = {}

    def called(m: re.Match[str]) -> str:
        loop = m[1] or m[2]
        if loop:
            return m[0].removesuffix(loop) + str(loops.setdefault(loop, len(loops)))
        if m[0] not in names:
            names[m[0]] = next(free)
        return names[m[0]]

    return _COUNTED.sub(called, "\n".join(lines)).split("\n")
