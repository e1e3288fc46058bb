"""Parts of what is stacked or concatenated are made where they go, not copied there afterwards.

``place`` copies a temporary to its region of a larger array. Where nothing else writes that array,
and the temporary is not changed after it was copied, both can be one memory. A product that is only
copied turned is computed turned. Start reading at ``joined_in_place``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from ..kernels.cpu.join import place
from .program import (
    Buffer,
    Call,
    Gemm,
    Instruction,
    Loop,
    Operand,
    Program,
    Scalar,
    Value,
    View,
    is_copy,
    row_major,
)

Parts = Mapping[Buffer, tuple[Buffer, int]]
"""For a temporary the array it becomes a part of, and where it begins in it."""


def joined_in_place(program: Program) -> Program:
    """Make what ``place`` copies in the array that it is copied to."""
    instructions = program.instructions
    wholes = _only_placed(instructions)
    sources = Counter(i.ins[0].buffer for i in instructions if _is_place(i))
    parts: dict[Buffer, tuple[Buffer, int]] = {}
    placed: dict[Buffer, int] = {}
    for at, i in enumerate(instructions):
        if _is_place(i) and i.outs[0].buffer in wholes:
            source = i.ins[0].buffer
            if sources[source] == 1 and source not in wholes and _is_alone(i):
                parts[source], placed[source] = (i.outs[0].buffer, _begin(i)), at
    for at, i in enumerate(instructions):
        for b in i.written & placed.keys():
            if at > placed[b]:
                parts.pop(b, None)
        for b in _crossing(i, parts):
            parts.pop(b, None)
    if not parts:
        return program
    gone = {placed[b] for b in parts}
    kept = [_moved(i, parts) for at, i in enumerate(instructions) if at not in gone]
    return program.with_instructions(_renumbered(kept, {whole for whole, _ in parts.values()}))


def _is_place(i: Instruction) -> bool:
    """Whether ``i`` copies one run of numbers to one run of numbers."""
    if not (isinstance(i, Call) and i.kernel is place and isinstance(i.args[2], Scalar)):
        return False
    (out,), (x,) = i.outs, i.ins
    lines = out.view.contiguous and x.view.contiguous
    return lines and out.view.shape[0] == 1 and i.args[2].text is None and out.dtype == x.dtype


def _is_alone(i: Instruction) -> bool:
    """Whether ``i`` places a whole temporary."""
    x = i.ins[0]
    return x.buffer.kind == "work" and x.view.offset == 0 and x.view.covers(x.buffer)


def _begin(i: Instruction) -> int:
    assert isinstance(i, Call)
    return i.outs[0].view.offset + int(i.args[2].value)


def _only_placed(instructions: Iterable[Instruction]) -> set[Buffer]:
    """Arrays of the call that are put together of parts that do not overlap, then only read."""
    regions: dict[Buffer, list[tuple[int, int]]] = defaultdict(list)
    other: set[Buffer] = set()
    read: set[Buffer] = set()
    for i in instructions:
        if _is_place(i):
            whole, begin = i.outs[0].buffer, _begin(i)
            regions[whole].append((begin, begin + i.ins[0].view.size))
            other |= {whole} & read
            read |= {i.ins[0].buffer}
        else:
            other |= i.written
            read |= {o.buffer for o in i.ins}
    found = set()
    for whole, spans in regions.items():
        apart = all(end <= begin for (_, end), (begin, _) in pairwise(sorted(spans)))
        if whole.kind in ("fresh", "work") and whole not in other and apart:
            found.add(whole)
    return found


def _crossing(i: Instruction, parts: Parts) -> set[Buffer]:
    """Parts that ``i`` writes while it reads others of the same array, and these."""
    written = {b: parts[b][0] for b in i.written if b in parts}
    read = {o.buffer: parts[o.buffer][0] for o in i.ins if o.buffer in parts}
    found: set[Buffer] = set()
    for b, whole in written.items():
        others = {o for o, w in read.items() if w is whole and o is not b}
        if others:
            found |= others | {b}
    return found


def _moved(i: Instruction, parts: Parts) -> Instruction:
    """``i`` with each part in its array; versions are put right later."""
    if i.touched.isdisjoint(parts):
        return i

    def value(v: Value) -> Value:
        return Value(parts[v.buffer][0], 0) if v.buffer in parts else v

    def operand(o: Operand) -> Operand:
        if o.buffer not in parts:
            return o
        view, (whole, begin) = o.view, parts[o.buffer]
        return Operand(Value(whole, 0), View(view.shape, view.strides, view.offset + begin))

    return replace(
        i,
        ins=tuple(map(operand, i.ins)),
        outs=tuple(map(operand, i.outs)),
        kept=tuple(map(value, i.kept)),
    )


def _renumbered(items: Iterable[Instruction], wholes: set[Buffer]) -> list[Instruction]:
    """The instructions with the values of ``wholes`` counted anew, each keeping the one before."""
    version = dict.fromkeys(wholes, 0)
    found = []
    for i in items:
        if i.touched.isdisjoint(wholes):
            found.append(i)
            continue
        now = {b: Value(b, n) for b, n in version.items()}
        ins = [Operand(now.get(o.buffer, o.value), o.view) for o in i.ins]
        kept = [v for v in i.kept if v.buffer not in wholes]
        kept += [now[b] for b in wholes if b in i.written and version[b]]
        outs = []
        for o in i.outs:
            if o.buffer in wholes:
                version[o.buffer] += 1
                o = Operand(Value(o.buffer, version[o.buffer]), o.view)
            outs.append(o)
        found.append(replace(i, ins=tuple(ins), outs=tuple(outs), kept=tuple(kept)))
    return found


def turned_products(program: Program) -> Program:
    """``t = x y; s = copy of t turned`` becomes ``s = y' x'``."""
    items: list[Instruction | None] = list(program.instructions)
    uses = Counter(v for i in program.instructions for v in i.used)
    made = {
        i.outs[0].value: at
        for at, i in enumerate(program.instructions)
        if isinstance(i, Gemm) and not i.accumulate and not i.kept
    }
    for at, i in enumerate(program.instructions):
        if not (isinstance(i, Loop) and is_copy(i) and i.ins[0].value in made):
            continue
        before = made[i.ins[0].value]
        gemm = program.instructions[before]
        (t,), (out,), x = gemm.outs, i.outs, i.ins[0]
        rows, columns = t.view.shape
        plain = t.view.contiguous and t.view.offset == 0 and t.view.covers(t.buffer)
        turned = x.view == View((columns, rows), (1, columns)) and out.view.contiguous
        between = program.instructions[before + 1 : at]
        read = {o.buffer for o in gemm.ins}
        settled = all(read.isdisjoint(j.written) for j in between) and out.buffer not in read
        private = t.buffer.kind == "work" and uses[t.value] == 1
        if plain and turned and settled and private and min(rows, columns) > 1:
            view = View((columns, rows), row_major((columns, rows)), out.view.offset)
            ins = tuple(_transposed(o) for o in reversed(gemm.ins))
            outs = (Operand(out.value, view),)
            items[at] = Gemm(outs, ins, i.kept, (*gemm.sources, *i.sources))
            items[before] = None
    return program.with_instructions(i for i in items if i is not None)


def biased_products(program: Program) -> Program:
    """``t = x y; h = t + row`` becomes a product that begins with the row."""
    items: list[Instruction | None] = list(program.instructions)
    uses = Counter(v for i in program.instructions for v in i.used)
    made = {
        i.outs[0].value: at
        for at, i in enumerate(program.instructions)
        if isinstance(i, Gemm) and not i.accumulate and not i.kept
    }
    for at, i in enumerate(program.instructions):
        if not (isinstance(i, Loop) and _is_sum_of_two(i)):
            continue
        (out,) = i.outs
        for t, row in (i.ins, i.ins[::-1]):
            before = made.get(t.value, at)
            gemm = program.instructions[before]
            if before == at or uses[t.value] != 1 or not isinstance(gemm, Gemm):
                continue
            n, m = gemm.outs[0].view.shape
            strides = (*[0] * (len(i.space) - 1), 1)
            repeated = i.space[-1:] == (m,) and row.view.strides == strides
            whole = t.view.contiguous and t.view.covers(t.buffer) and out.view.contiguous
            whole = whole and gemm.outs[0].view == View((n, m), (m, 1))
            read = {o.buffer for o in gemm.ins}
            between = program.instructions[before + 1 : at]
            settled = all(read.isdisjoint(j.written) for j in between)
            apart = out.buffer not in read and out.buffer is not row.buffer
            here = t.buffer is out.buffer and t.view.offset == out.view.offset
            private = t.buffer.kind == "work" or here
            alike = t.dtype == row.dtype == out.dtype
            if repeated and whole and settled and apart and private and alike:
                begin = Operand(row.value, View((m,), (1,), row.view.offset))
                outs = (Operand(out.value, View((n, m), (m, 1), out.view.offset)),)
                items[at] = Gemm(outs, (*gemm.ins, begin), i.kept, (*gemm.sources, *i.sources))
                items[before] = None
                break
    return program.with_instructions(i for i in items if i is not None)


def _is_sum_of_two(loop: Loop) -> bool:
    """Whether all that a loop does is to add two arrays."""
    if len(loop.outs) != 1 or len(loop.ins) != 2 or len(loop.lines) != 1 or loop.scalars:
        return False
    body = loop.lines[0].expr
    added = body.op in ("add", "plus") and [a.value for a in body.args] in (
        list(loop.loads),
        list(loop.loads)[::-1],
    )
    return added and loop.stores[0].mode == "store"


def _transposed(o: Operand) -> Operand:
    view = o.view
    return Operand(o.value, View(view.shape[::-1], view.strides[::-1], view.offset))
