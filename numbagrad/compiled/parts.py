"""Zeros to which parts are added that lie apart: each part is written where it goes instead.

Gradients of slices are added to zeros one after the other. Where no element gets two of them there
is nothing to add to, and where each gets one the zeros are not needed. Start reading at
``parts_alone``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from .program import Buffer, Instruction, Loop, Operand, Program, View

LARGEST = 1 << 24
"""Elements of an array up to which it is looked at: there is a byte for each."""


def parts_alone(program: Program) -> Program:
    """Write what would be added to zeros, and make no zeros where all is written."""
    items = list(program.instructions)
    places: dict[Buffer, list[int]] = defaultdict(list)
    for at, i in enumerate(items):
        for b in i.touched:
            places[b].append(at)
    for b, touching in places.items():
        first = items[touching[0]]
        if b.kind in ("work", "fresh") and b.size <= LARGEST and _fills(first):
            _written(items, b, touching)
    return program.with_instructions(items)


def _fills(i: Instruction) -> bool:
    """Whether ``i`` writes zeros to all of an array, and does nothing else."""
    if not isinstance(i, Loop) or i.ins or i.scalars or (len(i.lines), len(i.outs)) != (1, 1):
        return False
    expr, (out,) = i.lines[0].expr, i.outs
    zeros = expr.op == "const" and expr.value == 0 and i.stores[0].mode == "store"
    return zeros and out.view.covers(out.buffer)


def _written(items: list[Instruction], b: Buffer, touching: list[int]) -> None:
    """Turn parts that are added to ``b``, which ``touching`` touch, into parts that are written."""
    taken = np.zeros(b.size, np.bool_)
    reads = False
    for at in touching[1:]:
        i = items[at]
        out = _part(i, b)
        if out is None:
            break
        there, adds = _elements(taken, out.view), any(o.buffer is b for o in i.ins)
        if adds and not there.any():
            assert isinstance(i, Loop)
            items[at] = _alone(i, b)
        else:
            reads = reads or (adds and not there.all())
        there[...] = True
    if not reads and taken.all():
        fill = items[touching[0]]
        items[touching[0]] = Instruction(fill.outs, (), (), fill.sources)


def _elements(taken: np.ndarray, view: View) -> np.ndarray:
    """Which elements of a view are taken, to be written too."""
    return np.ndarray(view.shape, np.bool_, taken, view.offset if view.size else 0, view.strides)


def _part(i: Instruction, b: Buffer) -> Operand | None:
    """The part of ``b`` that ``i`` writes, or adds to and does nothing else; None if it does more
    to it."""
    if not isinstance(i, Loop) or len(i.outs) != 1 or i.stores[0].mode != "store":
        return None
    (out,) = i.outs
    if out.buffer is not b or not out.view.distinct:
        return None
    held = [n for n, o in zip(i.loads, i.ins, strict=True) if o.buffer is b]
    if not held:
        return out
    same = all(o.view == out.view for o in i.ins if o.buffer is b)
    if not same or len(held) != 1 or len(i.ins) != 2 or i.scalars or len(i.lines) != 1:
        return None
    expr = i.lines[0].expr
    adds = expr.op in ("add", "plus") and {a.value for a in expr.args} == set(i.loads)
    return out if adds else None


def _alone(loop: Loop, b: Buffer) -> Loop:
    """What ``loop`` adds to ``b``, written there."""
    (k,) = [k for k, o in enumerate(loop.ins) if o.buffer is not b]
    line, name = loop.lines[0], loop.loads[k]
    (expr,) = [a for a in line.expr.args if a.value == name]
    lines = (replace(line, expr=expr),)
    return replace(loop, ins=(loop.ins[k],), loads=(name,), lines=lines)
