"""Loops that run row by row together: a sum of each row, then what uses it.

A loop that reads the sum of a row cannot be merged with the loop that makes it, but both can share
the loop over rows, so that a row is still in the cache when it is read again. Start reading at
``groups``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from .fusion import collapsed, common_space, in_space
from .program import Buffer, Instruction, Loop, Operand, Program, Value, View

Group = tuple[Instruction, ...]


def groups(program: Program, fit: Callable[[Sequence[Loop]], bool]) -> list[Group]:
    """The instructions in order, neighbours that share a loop over rows together.

    Loops of a group have as first dim the rows. fit: whether such loops may be together.
    """
    found: list[list[Instruction]] = []
    for i in program.instructions:
        group = found[-1] if found else []
        joined = None
        if isinstance(i, Loop) and group and isinstance(group[0], Loop):
            joined = _together([x for x in group if isinstance(x, Loop)], i)
            if joined is not None and not fit(joined):
                joined = None
        if joined is None:
            found.append([i])
        else:
            found[-1] = list(joined)
    return [tuple(group) for group in found]


def _together(group: Sequence[Loop], loop: Loop) -> list[Loop] | None:
    """``group`` and ``loop`` over the same rows, or None; one of them must use a sum."""
    sums = {
        o.value for x in group for o, s in zip(x.outs, x.stores, strict=True) if s.mode == "sum"
    }
    if not any(o.value in sums for o in loop.ins) and len(group) < 2:
        return None
    if not {o.value for x in group for o in x.outs} & {o.value for o in loop.ins}:
        return None
    spaces = [tuple(n for n in x.space if n != 1) for x in (*group, loop)]
    if any(len(s) == 0 for s in spaces):
        return None
    rows = min((s[0] for s in spaces), default=0)
    shaped = []
    for x in (*group, loop):
        rest = x.size // rows if rows else 0
        wanted = (rows, rest) if rest > 1 else (rows,)
        space = common_space(x.space, wanted)
        if space is None or space[0] != rows or rest * rows != x.size:
            return None
        shaped.append(collapsed(in_space(x, space), outer=1))
    return shaped if rows > 1 and _row_by_row(shaped) else None


def _row_by_row(loops: list[Loop]) -> bool:
    """Whether no loop touches, in a row, what another writes in a different one."""
    for x in loops:
        for o, s in zip(x.outs, x.stores, strict=True):
            if s.mode == "sum" and (o.view.strides[0] == 0 or not _in_register(o)):
                return False
    for k, a in enumerate(loops):
        for b in loops[k + 1 :]:
            written = a.written | b.written
            for o in (*a.ins, *a.outs):
                for other in (*b.ins, *b.outs):
                    shared = o.buffer is other.buffer
                    if shared and o.buffer in written and not _same_rows(o, other):
                        return False
    return True


def _in_register(o: Operand) -> bool:
    """Whether the summed dims are the inner ones."""
    strides = list(o.view.strides)
    while strides and strides[-1] == 0:
        strides.pop()
    return all(strides)


def _same_rows(x: Operand, y: Operand) -> bool:
    """Whether row i of ``x`` and row i of ``y`` lie in the same part of memory, and in no other."""
    step = x.view.strides[0]
    if step == 0 or step != y.view.strides[0] or x.view.offset != y.view.offset:
        return False
    return all(_reach(o.view) < abs(step) for o in (x, y))


def _reach(v: View) -> int:
    """The distance from the first to the last element of a row."""
    return sum((n - 1) * abs(s) for n, s in zip(v.shape[1:], v.strides[1:], strict=True))


# -- rows that nobody else sees --------------------------------------------------------------------

LINE = 64
"""Bytes between the rows of two threads, at least a line of the cache."""


def without_other_rows(
    found: Sequence[Group], rows_of: Callable[[Sequence[Loop]], int]
) -> tuple[list[Group], dict[Buffer, int]]:
    """The groups, their work buffers that nothing else touches a row long: it stays in the cache.

    rows_of: how many rows at a time a group of loops works on. Also the elements from the row of
    one thread to that of the next, of each buffer that is cut so.
    """
    touched = Counter(b for group in found for b in {o.buffer for i in group for o in _all(i)})
    result, steps = [], {}
    for group in found:
        loops = [i for i in group if isinstance(i, Loop)]
        if len(group) > 1 and len(loops) == len(group):
            cut = {}
            for b in dict.fromkeys(o.buffer for x in loops for o in x.outs):
                if b.kind != "work" or touched[b] > 1 or _summed(loops, b):
                    continue
                views = [o.view for x in loops for o in _all(x) if o.buffer is b]
                kept = any(v.buffer is b for x in loops for v in x.kept)
                turned = any(s < 0 for v in views for s in v.strides)
                if kept or turned or any(v.offset != views[0].offset for v in views):
                    continue
                rows, step = rows_of(loops), 1 + max(map(_reach, views))
                if rows > 1:
                    step = -(-step * b.dtype.itemsize // LINE) * LINE // b.dtype.itemsize
                if step * rows < b.size:
                    cut[b] = Buffer("work", b.dtype, step * rows, b.name)
                    steps[cut[b]] = step
            group = tuple(_in_rows(x, cut) for x in loops)
        result.append(group)
    return result, steps


def _summed(loops: Sequence[Loop], b: Buffer) -> bool:
    """Whether one of the loops writes a sum to the buffer: that is short anyway."""
    return any(
        o.buffer is b and s.mode != "store"
        for x in loops
        for o, s in zip(x.outs, x.stores, strict=True)
    )


def _all(i: Instruction) -> list[Operand]:
    return [*i.ins, *i.outs, *(Operand(v, View((), ())) for v in i.kept)]


def _in_rows(loop: Loop, cut: dict[Buffer, Buffer]) -> Loop:
    """``loop`` on the shorter buffers, each row of which lies where the others do."""

    def moved(o: Operand) -> Operand:
        if o.buffer not in cut:
            return o
        view = View(o.view.shape, (0, *o.view.strides[1:]), 0)
        return Operand(Value(cut[o.buffer], o.value.version), view)

    return replace(loop, ins=tuple(map(moved, loop.ins)), outs=tuple(map(moved, loop.outs)))
