"""``check_finite``: a program that stops at the instruction which first makes NaN or inf.

Loops are not merged, so that each instruction is one operation; after each stand kernels that look
at what it wrote, and a Check. Start reading at ``guarded``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from ..autograd.anomaly import KINDS, raise_not_finite
from ..kernels.cpu.finite import first_bad, first_made
from ..kernels.expr import constant
from ..kernels.halves import is_floating
from ..kernels.loops import numba_name
from .passes import Pass, dead_code
from .program import (
    Buffer,
    Call,
    Check,
    Gemm,
    Instruction,
    Line,
    Loop,
    Operand,
    Program,
    Scalar,
    Slot,
    Source,
    Store,
    Value,
    View,
)

EXTERNAL = ("input", "state", "constant")


def checked_passes(wanted: str) -> tuple[Pass, ...]:
    """The passes for ``check_finite``. wanted: "nan", or "inf" for both."""
    return dead_code, zeroed, functools.partial(guarded, only_nan=wanted == "nan")


# -- passes ----------------------------------------------------------------------------------------


def zeroed(program: Program) -> Program:
    """Fill floating memory that is not written whole at first with zeros, so that nothing left
    there is found bad."""
    items: list[Instruction] = []
    seen: set[Buffer] = set()
    for i in program.instructions:
        whole = isinstance(i, (Loop, Gemm))
        for o in i.outs:
            b = o.buffer
            if b.kind in EXTERNAL or b in seen or not is_floating(b.dtype):
                continue
            seen.add(b)
            if type(i) is Instruction:
                i = _zeros(b, o.value.version, i.sources)
            elif not (whole and o.view.covers(b)):
                items.append(_zeros(b, o.value.version - 1, i.sources))
        items.append(i)
    return program.with_instructions(items)


def _zeros(buffer: Buffer, version: int, sources: tuple[Source, ...]) -> Loop:
    dtype = numba_name(buffer.dtype)
    out = Operand(Value(buffer, version), View((buffer.size,), (1,)))
    return Loop(
        (out,), (), (), sources,
        space=(buffer.size,), lines=(Line("v0", constant(0), dtype, dtype),), stores=(Store("v0"),),
    )  # fmt: skip


def guarded(program: Program, only_nan: bool) -> Program:
    """Look at what each instruction wrote, and stop before the next one."""
    items: list[Instruction] = []
    extra: list[Buffer] = []
    number = itertools.count()
    shapes = program.shapes()

    def flags(count: int) -> Buffer:
        extra.append(Buffer("work", np.dtype(np.int64), count, f"bad{next(number)}"))
        return extra[-1]

    for i in program.instructions:
        if isinstance(i, Check):
            i = replace(i, now=True)
        made = [o for o in i.outs if is_floating(o.dtype) and o.view.size]
        if not made or type(i) is Instruction:
            items.append(i)
            continue
        read = list(dict.fromkeys(_given(i)))
        given = flags(len(read)) if read else None
        for j, o in enumerate(read):
            assert given is not None
            out = Operand(Value(given, j + 1), View((1,), (1,), j))
            kept = (Value(given, j),) if j else ()
            items.append(_call(first_bad, out, (_plain(o),), kept, only_nan, i.sources))
        items.append(i)
        for o in made:
            flag = flags(1)
            out = Operand(Value(flag, 1), View((1,), (1,)))
            ins = [_plain(o)]
            if given is not None:
                ins.append(Operand(Value(given, len(read)), View((len(read),), (1,))))
            chosen = first_bad if given is None else first_made
            items.append(_call(chosen, out, tuple(ins), (), only_nan, i.sources))
            fail = _failure(i.sources, o, read, shapes)
            items.append(Check((), (out,), (), i.sources, fail=fail, now=True))
    whole = Program(program.name, (), (*program.buffers, *extra))
    return whole.with_instructions(items)


def _call(
    which: object,
    out: Operand,
    ins: tuple[Operand, ...],
    kept: tuple[Value, ...],
    only_nan: bool,
    sources: tuple[Source, ...],
) -> Call:
    slots = (Slot("out", 0), *(Slot("in", k) for k in range(len(ins))), Scalar(only_nan))
    told = tuple(Source(f"look at {s.op}", s.where) for s in sources)
    return Call((out,), ins, kept, told, kernel=which, args=slots)


def _given(i: Instruction) -> Iterator[Operand]:
    """What an instruction reads of memory that was there before the program."""
    changed = i.outs if isinstance(i, Call) or (isinstance(i, Gemm) and i.accumulate) else ()
    old = {v.buffer: v for v in i.kept}
    for o in (*i.ins, *(Operand(old[o.buffer], o.view) for o in changed if o.buffer in old)):
        fresh = o.value.version == 0 and o.buffer.kind in EXTERNAL
        if fresh and is_floating(o.dtype) and o.view.size:
            yield o


def _plain(o: Operand) -> Operand:
    """The elements of ``o``, each once: one dimension where they lie in order."""
    view = _layout(o.view)
    if view.contiguous:
        view = View((view.size,), (1,), view.offset)
    return Operand(o.value, view)


def _layout(view: View) -> View:
    """``view`` without dims that repeat or stand still."""
    kept = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1 and s != 0]
    return View(tuple(n for n, _ in kept), tuple(s for _, s in kept), view.offset)


def _failure(
    sources: tuple[Source, ...],
    out: Operand,
    read: list[Operand],
    shapes: dict[Buffer, tuple[int, ...]],
) -> Callable[[int], None]:
    """The function that raises for the number that ``first_made`` left."""

    def fail(value: int) -> None:
        code, which = divmod(value, len(read) + 1)
        at, kind = divmod(code, 3)
        o = read[which - 1] if which else out
        at, shape = _position(o, at, shapes)
        node, _, op = sources[-1].op.rpartition(".")
        told = _name(o.buffer) if which else ""
        raise_not_finite(op, node, sources[-1].where, KINDS[kind], at, shape, told)

    return fail


def _position(
    o: Operand, at: int, shapes: dict[Buffer, tuple[int, ...]]
) -> tuple[int, tuple[int, ...]]:
    """Position and shape for people, of an element that a kernel counted in ``_plain(o)``."""
    view, shape = _layout(o.view), shapes[o.buffer]
    if view.size != o.buffer.size or int(np.prod(shape)) != view.size:
        return at, view.shape
    index = np.unravel_index(at, view.shape)
    place = view.offset + sum(int(i) * s for i, s in zip(index, view.strides, strict=True))
    return place, shape


def _name(buffer: Buffer) -> str:
    """What people call memory that was there before the program."""
    memory = buffer.memory
    position = getattr(memory, "position", -1)
    if buffer.kind == "input" and getattr(memory, "kind", "") == "made":
        return "a value saved by the forward pass"
    if buffer.kind == "input" and memory is not None and memory.name:
        return memory.name
    if buffer.kind == "input":
        return f"argument {position}" if position >= 0 else "the gradient it was given"
    return "a constant" if buffer.kind == "constant" else buffer.name
