"""Passes from Program to Program that do not merge loops; each keeps what the program computes.

``optimise`` runs them all, with ``verify`` after each. Merging loops is in ``fusion.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..kernels.expr import constant
from .epilogues import with_relu
from .fusion import fuse, tidy
from .joined import biased_products, joined_in_place, turned_products
from .layout import by_columns
from .parts import parts_alone
from .program import (
    Buffer,
    Call,
    Gemm,
    Instruction,
    Line,
    Loop,
    Operand,
    Program,
    Value,
    View,
    is_copy,
)
from .traced import is_pure
from .updates import beside_products
from .verify import verify

Pass = Callable[[Program], Program]


def optimise(program: Program, passes: tuple[Pass, ...] | None = None) -> Program:
    """The program that is emitted. passes: ``PASSES``, or others."""
    for each in PASSES if passes is None else passes:
        program = each(program)
    return verify(program)


# -- dead code -------------------------------------------------------------------------------------


def dead_code(program: Program) -> Program:
    """Drop what nobody sees: values that are neither read nor the last of memory that lasts."""
    needed = {v for b, v in program.final.items() if b.lasts and b.kind != "constant"}
    kept: list[Instruction] = []
    for i in reversed(program.instructions):
        alive = [o.value in needed for o in i.outs]
        if not any(alive) and not i.effect:
            continue
        if isinstance(i, Loop) and not all(alive):
            i = _without_outs(i, alive)
        needed.update(i.used)
        kept.append(i)
    return program.with_instructions(reversed(kept))


def _without_outs(loop: Loop, alive: list[bool]) -> Loop:
    outs = tuple(o for o, a in zip(loop.outs, alive, strict=True) if a)
    stores = tuple(s for s, a in zip(loop.stores, alive, strict=True) if a)
    buffers = {o.buffer for o in outs}
    kept = tuple(v for v in loop.kept if v.buffer in buffers)
    return tidy(replace(loop, outs=outs, stores=stores, kept=kept))


# -- copies ----------------------------------------------------------------------------------------


def forward_copies(program: Program) -> Program:
    """Read the original instead of a plain copy of it, where neither changes afterwards."""
    items = list(program.instructions)
    writes: dict[Buffer, int] = {}
    for i in items:
        for o in i.outs:
            writes[o.buffer] = writes.get(o.buffer, 0) + 1
    renamed: dict[Value, tuple[Value, int]] = {}
    kept: list[Instruction] = []
    for i in items:
        i = _with_renamed(i, renamed)
        if isinstance(i, Loop) and is_copy(i):
            (out,), (x,) = i.outs, i.ins
            plain = out.view.contiguous and x.view.contiguous and out.view.offset == 0
            settled = writes[out.buffer] == 1 and writes.get(x.buffer, 0) <= (
                1 if x.buffer.kind in ("work", "fresh") else 0
            )
            whole = out.view.covers(out.buffer)
            if plain and settled and whole and out.buffer.kind == "work" and not i.kept:
                renamed[out.value] = (x.value, x.view.offset)
                continue
        kept.append(i)
    return program.with_instructions(kept)


def copy_to_result(program: Program) -> Program:
    """Make a value where its plain copy would go: ``t = ...; result = copy(t)``."""
    for at, i in enumerate(program.instructions):
        if not (isinstance(i, Loop) and is_copy(i) and not i.kept):
            continue
        (out,), (x,) = i.outs, i.ins
        source, target = x.buffer, out.buffer
        if source.kind != "work" or target.kind != "fresh" or source.size != target.size:
            continue
        if not (out.view.contiguous and x.view.contiguous and x.view.covers(source)):
            continue
        others = [j for j in program.instructions if j is not i]
        touched = {o.buffer for j in others for o in (*j.ins, *j.outs)}
        last = max(k for k, j in enumerate(program.instructions) if source in j.written)
        if target in touched or last > at:
            continue
        moved = [_in_buffer(j, source, target) for j in others]
        return copy_to_result(program.with_instructions(moved))
    return program


def _with_renamed(i: Instruction, renamed: dict[Value, tuple[Value, int]]) -> Instruction:
    if not any(v in renamed for v in i.used):
        return i

    def moved(o: Operand) -> Operand:
        if o.value not in renamed:
            return o
        value, offset = renamed[o.value]
        return Operand(value, View(o.view.shape, o.view.strides, o.view.offset + offset))

    return replace(i, ins=tuple(map(moved, i.ins)))


def _in_buffer(i: Instruction, old: Buffer, new: Buffer) -> Instruction:
    def value(v: Value) -> Value:
        return Value(new, v.version) if v.buffer is old else v

    def operand(o: Operand) -> Operand:
        return Operand(value(o.value), o.view) if o.buffer is old else o

    if not any(v.buffer is old for v in (*i.used, *(o.value for o in i.outs))):
        return i
    return replace(
        i,
        ins=tuple(map(operand, i.ins)),
        outs=tuple(map(operand, i.outs)),
        kept=tuple(map(value, i.kept)),
    )


# -- constants -----------------------------------------------------------------------------------


def constants(program: Program) -> Program:
    """Write a value that is one literal everywhere into the loops that read it."""
    known: dict[Value, Line] = {}
    kept: list[Instruction] = []
    for i in program.instructions:
        if isinstance(i, Loop) and any(o.value in known for o in i.ins):
            i = _with_literals(i, known)
        if isinstance(i, Loop) and len(i.outs) == 1 and not i.kept and len(i.lines) == 1:
            (out,), (line,) = i.outs, i.lines
            literal = line.expr.op == "const" and i.stores[0].mode == "store"
            if literal and out.view.covers(out.buffer):
                known[out.value] = line
        kept.append(i)
    return program.with_instructions(kept)


def _with_literals(loop: Loop, known: dict[Value, Line]) -> Loop:
    lines, ins, loads = [], [], []
    for o, name in zip(loop.ins, loop.loads, strict=True):
        if o.value in known:
            line = known[o.value]
            value = constant(line.expr.value)
            lines.append(Line(name, value, line.dtype, line.dtype, line.rounded))
        else:
            ins.append(o)
            loads.append(name)
    return tidy(replace(loop, ins=tuple(ins), loads=tuple(loads), lines=(*lines, *loop.lines)))


# -- common subexpressions -------------------------------------------------------------------------


def common(program: Program) -> Program:
    """Compute once what is computed twice from the same values."""
    writes: dict[Buffer, int] = {}
    for i in program.instructions:
        for o in i.outs:
            writes[o.buffer] = writes.get(o.buffer, 0) + 1
    seen: dict[object, Instruction] = {}
    renamed: dict[Value, tuple[Value, int]] = {}
    kept = []
    for i in program.instructions:
        i = _with_renamed(i, renamed)
        key = _meaning(i)
        private = all(o.buffer.kind == "work" and writes[o.buffer] == 1 for o in i.outs)
        if key is not None and private and not i.kept:
            first = seen.get(key)
            if first is not None:
                for mine, theirs in zip(i.outs, first.outs, strict=True):
                    renamed[mine.value] = (theirs.value, 0)
                continue
            seen[key] = i
        kept.append(i)
    return program.with_instructions(kept)


def _meaning(i: Instruction) -> object:
    """What an instruction computes, or None where it may not be left out."""
    views = tuple(o.view for o in i.outs)
    sizes = tuple((o.buffer.size, o.dtype) for o in i.outs)
    if isinstance(i, Loop):
        lines = tuple((x.name, x.expr, x.compute, x.dtype, x.rounded) for x in i.lines)
        return ("loop", views, sizes, i.ins, i.space, i.loads, i.scalars, lines, i.stores)
    if isinstance(i, Gemm):
        return ("gemm", views, sizes, i.ins)
    if isinstance(i, Call) and is_pure(i.kernel) and not any(callable(a) for a in i.args):
        return ("call", views, sizes, i.ins, id(i.kernel), i.args)
    return None


# -- accumulation ----------------------------------------------------------------------------------


def accumulate(program: Program) -> Program:
    """``t = x y; h = h + t`` becomes ``h += x y``: BLAS adds for free."""
    items = list(program.instructions)
    uses: dict[Value, int] = {}
    for i in items:
        for v in i.used:
            uses[v] = uses.get(v, 0) + 1
    made = {i.outs[0].value: i for i in items if isinstance(i, Gemm) and not i.accumulate}
    gone: set[int] = set()
    replaced: dict[int, Instruction] = {}
    for i in items:
        if not (isinstance(i, Loop) and len(i.outs) == 1 and len(i.ins) == 2 and len(i.lines) == 1):
            continue
        line, out = i.lines[0], i.outs[0]
        if line.expr.op not in ("add", "plus") or {a.value for a in line.expr.args} != set(i.loads):
            continue
        if i.stores[0].mode != "store" or out.dtype.kind != "f":
            continue
        for held, product in (i.ins, i.ins[::-1]):
            gemm = made.get(product.value)
            fits = gemm is not None and uses[product.value] == 1 and gemm.outs[0].dtype == out.dtype
            if not fits or gemm is None or held.buffer is not out.buffer:
                continue
            same = held.view == out.view and held.view.contiguous and product.view.contiguous
            between = items[items.index(gemm) + 1 : items.index(i)]
            quiet = all(out.buffer not in j.written for j in between)
            read = {g.buffer for g in gemm.ins}
            undisturbed = all(read.isdisjoint(j.written) for j in between)
            apart = out.buffer not in read  # BLAS may not write what it reads
            if same and quiet and undisturbed and apart and product.view.covers(product.buffer):
                shape = gemm.outs[0].view.shape
                view = View(shape, gemm.outs[0].view.strides, out.view.offset)
                replaced[id(i)] = Gemm(
                    (Operand(out.value, view),),
                    gemm.ins,
                    tuple(dict.fromkeys((*i.kept, held.value))),
                    (*gemm.sources, *i.sources),
                    accumulate=True,
                )
                gone.add(id(gemm))
                break
    kept = [replaced.get(id(i), i) for i in items if id(i) not in gone]
    return program.with_instructions(kept)


PASSES: tuple[Pass, ...] = (
    dead_code,
    forward_copies,
    constants,
    common,
    dead_code,
    parts_alone,
    accumulate,
    turned_products,
    by_columns,
    fuse,
    dead_code,
    copy_to_result,
    dead_code,
    joined_in_place,
    biased_products,
    beside_products,
)


def reduced(loop: Loop) -> list[frozenset[int]]:
    """Over which dims each sum of ``loop`` goes."""
    return [
        frozenset(d for d, n in enumerate(loop.space) if n != 1 and o.view.strides[d] == 0)
        for o, s in zip(loop.outs, loop.stores, strict=True)
        if s.mode == "sum"
    ]


def fuse_for_gpu(program: Program) -> Program:
    """``fuse``, but sums over different dims stay apart: the threads share out what is kept."""
    return fuse(program, lambda loop: len(set(reduced(loop))) < 2)


GPU_PASSES: tuple[Pass, ...] = (
    dead_code,
    forward_copies,
    constants,
    common,
    dead_code,
    parts_alone,
    accumulate,
    with_relu,
    fuse_for_gpu,
    dead_code,
    copy_to_result,
    dead_code,
)
"""What is done for a GPU: matrices stay by rows, and updates apart from products."""
