"""Early returns as source text: where memory overlaps or is held, where a flag is set."""

from __future__ import annotations

from collections.abc import Sequence

from .emit_text import Text
from .program import Buffer, Check
from .template import FIRST_CHECK, HELD, OVERLAP, Argument, Entry


def check(e: Text, i: Check) -> None:
    """Stop if a kernel left a position in the flag."""
    (flag,) = i.ins
    assert i.fail is not None
    at = e.place(Entry("result", None))
    e.use("load")
    number = len(e.checks)
    e.checks.append((i.fail, at))
    e.lines += [
        f"table[{e.spot(at)}] = load({e.pointer(flag.buffer)}, {e.offset(flag.view.offset)})",
        f"if table[{e.spot(at)}] >= 0:",
        f"    return {e.spot(FIRST_CHECK + number)}",
    ]


def memory_guard(e: Text, persistent: Sequence[Buffer]) -> list[str]:
    """Return early where an input overlaps memory that is written, or where somebody else
    holds memory that this call would overwrite.

    Not for inputs that no instruction touches, as what a call finds and only sets anew.
    """
    lines = []
    written = {o.buffer for i in e.program.instructions for o in i.outs}
    met = written | {x.buffer for i in e.program.instructions for x in i.ins}
    inputs = [a for a in e.arguments if a.buffer.kind == "input" and a.buffer in met]
    bound = [b for b in e.places if isinstance(b, Buffer)]
    lasting = [b for b in bound if b.kind == "state" and b in written]
    lasting += [b for b in persistent if b in bound]
    used = [b for b in bound if b.kind == "state"]
    if inputs and lasting:
        first = ranges(e, lasting)
        for a in inputs:
            lines += overlap(e, a, first, len(lasting))
    changed = [a for a in inputs if a.buffer in written]
    if changed and used:
        first = ranges(e, used)
        for a in changed:
            lines += overlap(e, a, first, len(used))
    if changed and len(inputs) > 1:  # not a line for each pair: there may be thousands
        e.use("meet")
        begin = len(e.table)
        for a in [*changed, *(a for a in inputs if a.buffer not in written)]:
            e.table.append(Entry("number", e.places[a.buffer]))
            e.table.append(Entry("number", a.buffer.nbytes))
        places = f"{begin}, {len(inputs)}, {len(changed)}"
        lines += [f"if meet(table, {places}):", f"    return {OVERLAP}"]
    if persistent:
        e.use("held")
        begin, held = len(e.table), 2 * len(persistent)
        for k, _ in enumerate(persistent):
            for kind in ("tensor id", "tensor references", "array id", "array references"):
                e.table.append(Entry(kind, k))
        places = f"{begin}, {held}"
        lines += [f"if held(table, {places}):", f"    return {HELD}"]
    return lines


def ranges(e: Text, buffers: Sequence[Buffer]) -> int:
    """Table places of (address, bytes) pairs."""
    begin = len(e.table)
    for b in buffers:
        e.table += [Entry("buffer", b), Entry("number", b.nbytes)]
    return begin


def overlap(e: Text, a: Argument, first: int, count: int) -> list[str]:
    """Return if the memory of ``a`` meets one of the ranges."""
    e.use("overlaps")
    size = e.number(a.buffer.nbytes)
    name = e.pointers[a.buffer]
    return [
        f"if overlaps({name}_at, {size}, table, {first}, {count}):",
        f"    return {OVERLAP}",
    ]
