"""Parts of what is stacked or concatenated are made where they go, not copied there afterwards.

``place`` copies a temporary to its region of a larger array. Where nothing else writes that array,
and the temporary is not changed after it was copied, both can be one memory. A product that is only
copied turned is computed turned. Start reading at ``joined_in_place``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from ..kernels.cpu.join import place
from ..kernels.product import StridedGemmKernel
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


@dataclass(frozen=True)
class Part:
    """Where a temporary goes: rows of ``width`` numbers, each at ``begin`` of a row of ``step``."""

    whole: Buffer
    begin: int
    width: int
    step: int

    def view(self, of: View) -> View | None:
        """The view of the array that ``of`` is of the temporary; None if it crosses rows."""
        if self.width == self.step:
            return View(of.shape, of.strides, of.offset + self.begin)
        row, column = divmod(of.offset, self.width)
        strides = []
        for n, s in zip(of.shape, of.strides, strict=True):
            if n > 1 and 0 <= s < self.width:
                column += (n - 1) * s
            elif n > 1 and (s < 0 or s % self.width):
                return None
            strides.append(s // self.width * self.step if s >= self.width else s)
        if column >= self.width:
            return None
        offset = row * self.step + self.begin + of.offset % self.width
        return View(of.shape, tuple(strides), offset)


WIDTH = 16
"""Numbers in a row from which it is worth to make it where there are gaps between rows."""

Parts = Mapping[Buffer, Part]
"""Of temporaries."""


def joined_in_place(program: Program) -> Program:
    """Make what ``place`` copies in the array that it is copied to."""
    instructions = program.instructions
    wholes = _only_placed(instructions)
    sources = Counter(i.ins[0].buffer for i in instructions if _is_place(i))
    parts: dict[Buffer, Part] = {}
    placed: dict[Buffer, int] = {}
    for at, i in enumerate(instructions):
        if _is_place(i) and i.outs[0].buffer in wholes:
            source = i.ins[0].buffer
            if sources[source] == 1 and source not in wholes and _is_alone(i):
                parts[source], placed[source] = _part(i), at
    for at, i in enumerate(instructions):
        for b in i.written & placed.keys():
            if at > placed[b]:
                parts.pop(b, None)
        for b in (*_crossing(i, parts), *_unfit(i, parts)):
            parts.pop(b, None)
    if not parts:
        return program
    gone = {placed[b] for b in parts}
    kept = [_moved(i, parts) for at, i in enumerate(instructions) if at not in gone]
    return program.with_instructions(_renumbered(kept, {part.whole for part in parts.values()}))


def _is_place(i: Instruction) -> bool:
    """Whether ``i`` copies rows of numbers to as many longer ones, or a run of them to another."""
    if not (isinstance(i, Call) and i.kernel is place and isinstance(i.args[2], Scalar)):
        return False
    (out,), (x,) = i.outs, i.ins
    lines = out.view.contiguous and x.view.contiguous
    whole = out.view.shape[0] == 1 or (out.view.covers(out.buffer) and x.view.shape[1] >= WIDTH)
    return lines and whole and i.args[2].text is None and out.dtype == x.dtype


def _is_alone(i: Instruction) -> bool:
    """Whether ``i`` places a whole temporary."""
    x = i.ins[0]
    return x.buffer.kind == "work" and x.view.offset == 0 and x.view.covers(x.buffer)


def _part(i: Instruction) -> Part:
    """Where a ``place`` puts its temporary."""
    assert isinstance(i, Call)
    (rows, step), width = i.outs[0].view.shape, i.ins[0].view.shape[1]
    begin = i.outs[0].view.offset + int(i.args[2].value)
    return Part(i.outs[0].buffer, begin, width, width if rows == 1 else step)


def _only_placed(instructions: Iterable[Instruction]) -> set[Buffer]:
    """Arrays of the call that are put together of parts that do not overlap, then only read."""
    regions: dict[Buffer, list[tuple[int, int]]] = defaultdict(list)
    rows: dict[Buffer, set[tuple[int, ...]]] = defaultdict(set)
    other: set[Buffer] = set()
    read: set[Buffer] = set()
    for i in instructions:
        if _is_place(i):
            whole, part = i.outs[0].buffer, _part(i)
            regions[whole].append((part.begin, part.begin + part.width))
            rows[whole].add(i.outs[0].view.shape if i.outs[0].view.shape[0] > 1 else (1, 0))
            other |= {whole} & read
            read |= {i.ins[0].buffer}
        else:
            other |= i.written
            read |= {o.buffer for o in i.ins}
    found = set()
    for whole, spans in regions.items():
        apart = all(end <= begin for (_, end), (begin, _) in pairwise(sorted(spans)))
        apart = apart and len(rows[whole]) == 1
        if whole.kind in ("fresh", "work") and whole not in other and apart:
            found.add(whole)
    return found


def _crossing(i: Instruction, parts: Parts) -> set[Buffer]:
    """Parts that ``i`` writes while it reads others of the same array, and these."""
    written = {b: parts[b].whole for b in i.written if b in parts}
    read = {o.buffer: parts[o.buffer].whole for o in i.ins if o.buffer in parts}
    found: set[Buffer] = set()
    for b, whole in written.items():
        others = {o for o, w in read.items() if w is whole and o is not b}
        if others:
            found |= others | {b}
    return found


def _unfit(i: Instruction, parts: Parts) -> set[Buffer]:
    """Parts that ``i`` touches otherwise than row by row, or that its kernel wants without gaps."""
    found = set()
    for o in (*i.ins, *i.outs):
        part = parts.get(o.buffer)
        if part is None or part.width == part.step or (_is_place(i) and o is i.ins[0]):
            continue
        gaps = isinstance(i, Call) and not isinstance(i.kernel, StridedGemmKernel)
        if gaps or part.view(o.view) is None:
            found.add(o.buffer)
    return found


def _moved(i: Instruction, parts: Parts) -> Instruction:
    """``i`` with each part in its array; versions are put right later."""
    if i.touched.isdisjoint(parts):
        return i

    def value(v: Value) -> Value:
        return Value(parts[v.buffer].whole, 0) if v.buffer in parts else v

    def operand(o: Operand) -> Operand:
        if o.buffer not in parts:
            return o
        part = parts[o.buffer]
        view = part.view(o.view)
        assert view is not None
        return Operand(Value(part.whole, 0), view)

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


def _products(program: Program) -> dict[Value, int]:
    """Where each product stands that begins with nothing."""
    return {
        i.outs[0].value: at
        for at, i in enumerate(program.instructions)
        if isinstance(i, Gemm) and not i.accumulate and not i.kept
    }


def turned_products(program: Program) -> Program:
    """``t = x y; s = copy of t turned`` becomes ``s = y' x'``."""
    items: list[Instruction | None] = list(program.instructions)
    uses = Counter(v for i in program.instructions for v in i.used)
    made = _products(program)
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
    made = _products(program)
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
    line = loop.lines[0]
    if line.rounded or line.compute != line.dtype:
        return False
    body = line.expr
    added = body.op in ("add", "plus") and [a.value for a in body.args] in (
        list(loop.loads),
        list(loop.loads)[::-1],
    )
    return added and loop.stores[0].mode == "store"


def _transposed(o: Operand) -> Operand:
    view = o.view
    return Operand(o.value, View(view.shape[::-1], view.strides[::-1], view.offset))
