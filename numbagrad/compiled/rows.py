"""Loops that run row by row together: a sum of each row, then what uses it.

A loop that reads the sum of a row cannot be merged with the loop that makes it, but both can share
the loop over rows, so that a row is still in the cache when it is read again. Start reading at
``groups``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .fusion import common_space, in_space
from .program import Instruction, Loop, Operand, Program

Group = tuple[Instruction, ...]


def groups(program: Program, alone: Callable[[Loop], bool]) -> list[Group]:
    """The instructions in order, neighbours that share a loop over rows together.

    Loops of a group have as first dim the rows. alone: whether a loop is to stay by itself.
    """
    found: list[list[Instruction]] = []
    for i in program.instructions:
        group = found[-1] if found else []
        joined = None
        if isinstance(i, Loop) and not alone(i) and group and isinstance(group[0], Loop):
            joined = _together([x for x in group if isinstance(x, Loop)], i)
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
        shaped.append(in_space(x, space))
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
    return all(_reach(o) < abs(step) for o in (x, y))


def _reach(o: Operand) -> int:
    """The distance from the first to the last element of a row."""
    return sum((n - 1) * abs(s) for n, s in zip(o.view.shape[1:], o.view.strides[1:], strict=True))
