"""Optimiser updates of large parameters, put beside the products that make their gradients.

An update of all parameters comes at the end of a step, when a large gradient has left the cache.
Where nothing stands between, its parameter is updated by itself, right after the product, and the
emitter runs the two on the same rows in turn. Start reading at ``beside_products``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..kernels.lists import ListKernel
from .program import Call, Check, Gemm, Instruction, Operand, Program, Slot

LARGE = 1 << 16
"""Elements from which a gradient is worth the split: 0.25 MB of float32."""


def beside_products(program: Program) -> Program:
    """Split updates of large parameters off and move each behind its gradient's product."""
    items = list(program.instructions)
    for call in [i for i in items if isinstance(i, Call) and _is_update(i)]:
        for entry in reversed(range(_length(call))):
            at = items.index(call)
            single, rest = _split(call, entry)
            product = _product(items[:at], single)
            if product is None or not _free_to_move(items[items.index(product) + 1 : at], single):
                continue
            items[at : at + 1] = [rest] if rest is not None else []
            items.insert(items.index(product) + 1, single)
            if rest is None:
                break
            call = rest
    return program.with_instructions(items)


def in_step(gemm: Instruction, call: Instruction) -> bool:
    """Whether ``call`` is an update, of one parameter, whose gradient the product makes by rows."""
    if not (isinstance(gemm, Gemm) and isinstance(call, Call)) or not _is_update(call):
        return False
    return _length(call) == 1 and _product([gemm], call) is gemm


def _is_update(call: Call) -> bool:
    lists = [a for a in call.args if isinstance(a, tuple)]
    plain = all(isinstance(a, tuple) or callable(a) for a in call.args)
    by_element = isinstance(call.kernel, ListKernel) and call.kernel.by_element
    return by_element and plain and len({len(a) for a in lists if a}) == 1


def _length(call: Call) -> int:
    return max(len(a) for a in call.args if isinstance(a, tuple))


def operands(call: Call, entry: int) -> list[Operand]:
    """What the lists of an update hold for one parameter."""
    sides = {"in": call.ins, "out": call.outs}
    lists = [a for a in call.args if isinstance(a, tuple) and a]
    return [sides[a[entry].side][a[entry].index] for a in lists]


def _split(call: Call, entry: int) -> tuple[Call, Call | None]:
    """The update of one parameter, and that of the others."""
    single = _part(call, [entry])
    others = [k for k in range(_length(call)) if k != entry]
    return single, _part(call, others) if others else None


def _part(call: Call, entries: list[int]) -> Call:
    outs: list[Operand] = []
    ins: list[Operand] = []

    def taken(slot: Slot) -> Slot:
        here, there = (ins, call.ins) if slot.side == "in" else (outs, call.outs)
        here.append(there[slot.index])
        return Slot(slot.side, len(here) - 1)

    args: list[Any] = []
    for a in call.args:
        args.append(tuple(taken(a[k]) for k in entries) if isinstance(a, tuple) and a else a)
    written = {o.buffer for o in outs}
    kept = tuple(v for v in call.kept if v.buffer in written)
    return replace(call, outs=tuple(outs), ins=tuple(ins), kept=kept, args=tuple(args))


def _product(before: Sequence[Instruction], single: Call) -> Gemm | None:
    """The product that makes the gradient of an update, all of it and row after row."""
    parts = operands(single, 0)
    size = parts[0].view.size
    if size < LARGE or any(o.view.size != size or not o.view.contiguous for o in parts):
        return None
    for i in before:
        if isinstance(i, Gemm) and not i.accumulate and len(i.ins) == 2:
            (out,) = i.outs
            made = any(o.value is out.value for o in single.ins)
            if made and out.view.contiguous and out.view.size == size and out.view.shape[0] > 1:
                return None if _packs(i) else i
    return None


def _packs(i: Gemm) -> bool:
    """Whether the right factor is stored by columns, to be turned over for each block of rows."""
    row, col = i.ins[1].view.strides
    return bool(col != 1 and row == 1)


def _free_to_move(between: list[Instruction], single: Call) -> bool:
    """Whether an update may run before these: they do not touch what it writes, nor stop."""
    return not any(isinstance(i, Check) or single.written & i.touched for i in between)
