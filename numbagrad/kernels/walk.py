"""The function that walks over arrays of any strides, in LLVM's instructions: ``walk``.

``layout.py`` plans how arrays are walked, ``_Walk`` writes the function that does it, ``nest.py``
compiles it. Start reading at ``walk``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from .copies import transpose
from .inner import intrinsic
from .layout import (
    ADDRESS,
    ARRAYS,
    COPIES,
    DIMS,
    DIRECT,
    EACH,
    HEAD,
    INNER,
    LINES,
    MODE,
    MOVED,
    NUMBER,
    OFFSET,
    ONCE,
    OPERANDS,
    OUTPUTS,
    PERIOD,
    PIECE,
    PLAIN,
    RECORD,
    ROOM,
    ROWS,
    SIZE,
    SLOT,
    STEP,
    TURNED,
    WIDTH,
)
from .pieces import CALLED, copying
from .vectors import VECTOR_BYTES, WORD, at, counted

__all__ = ["walk", "walk_at"]

LINES_TOGETHER = 4
"""Rows that are copied together."""

_WORDS = WORD.as_pointer()
_WALK = ir.FunctionType(ir.VoidType(), [WORD] * 4)


@intrinsic
def walk(typing, plan, places, first, last):
    """Compute elements ``first`` to ``last`` of a loop nest, from a whole tile on where rows are
    gathered together.

    plan: address of the words of ``layout``; places: address of the operands, as ``second_way_in``
    takes them. It is in LLVM's instructions, for in Python it would take Numba 0.8 s to compile,
    three times as long as a formula; so it takes 0.2.
    """

    def generate(context, builder, signature, args):
        function = ir.Function(builder.module, _WALK, f"walk.{builder.function.name}")
        function.attributes.add("noinline")
        function.attributes.add("optsize")
        written = _Walk(ir.IRBuilder(function.append_basic_block("entry")), *function.args)
        written.begin()
        with written.until_done(), written.b.if_else(written.whole_rows()) as (whole, parts):
            with whole:
                written.run_rows()
            with parts:
                written.gather()
                written.run()
                with written.b.if_then(written.apart):
                    written.scatter()
        written.b.ret_void()
        builder.call(function, args)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


@intrinsic
def walk_at(typing, address, plan, places, first, last):
    """``walk``, which stands at an address."""

    def generate(context, builder, signature, args):
        builder.call(builder.inttoptr(args[0], _WALK.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), generate


class _Walk:
    """Writes the function that goes over a nest.

    mine: the operands of the next call. at: of each array the address of the row's first element.
    index: where the row is in each outer dimension, ``column`` where the next element is in it.
    back, before: the same two for the first row of the next call, from which ``scatter`` goes on.
    """

    def __init__(self, builder: ir.IRBuilder, plan: Any, places: Any, first: Any, last: Any):
        self.b = builder
        self.plan = builder.inttoptr(plan, _WORDS)
        self.places = builder.inttoptr(places, _WORDS)
        self.last = last
        self.n, self.dims, self.arrays, self.outputs, self.rows, self.piece, self.period = (
            self.word(WORD(k)) for k in (INNER, DIMS, ARRAYS, OUTPUTS, ROWS, PIECE, PERIOD)
        )
        self.steady = builder.icmp_signed("!=", self.period, WORD(0))
        self.copies, self.lines = (
            builder.icmp_signed("==", self.word(WORD(COPIES)), WORD(k)) for k in (MOVED, LINES)
        )
        self.operands = self.word(WORD(OPERANDS))
        several = builder.add(self.dims, WORD(1))  # the first is read where there are none
        self.mine, self.at, self.back, self.index, self.before = (
            builder.alloca(WORD, size=count)
            for count in (self.operands, self.arrays, self.arrays, several, several)
        )
        room = builder.alloca(WORD, size=WORD(ROOM))
        room.align = 64
        self.room = builder.ptrtoint(room, WORD)
        self.first, self.column, self.filling = (builder.alloca(WORD) for _ in range(3))
        builder.store(first, self.first)
        builder.store(WORD(1), self.filling)

    def word(self, place: Any, *more: Any) -> Any:
        """The number of the plan at a place, or so many places after it."""
        for step in more:
            place = self.b.add(place, step)
        return self.b.load(self.b.gep(self.plan, [place]))

    def slot(self, table: Any, k: Any) -> Any:
        """The pointer to a number of one of the tables."""
        return self.b.gep(table, [k])

    def record(self, k: Any) -> Any:
        """Where the plan tells of array ``k``."""
        width = self.b.add(self.dims, WORD(RECORD))
        return self.b.add(self.b.add(self.dims, WORD(HEAD)), self.b.mul(k, width))

    def begin(self) -> None:
        """Find the row and the column of the first element, and whether outputs lie apart."""
        b = self.b
        apart = b.alloca(WORD)
        b.store(WORD(0), apart)
        with counted(b, self.outputs) as k:
            b.store(b.or_(b.load(apart), self.word(self.record(k), WORD(MODE))), apart)
        apart = b.icmp_signed("!=", b.load(apart), WORD(DIRECT))
        self.apart = b.and_(apart, b.not_(self.copies))
        cgutils.raw_memcpy(b, self.mine, self.places, self.operands, WORD(8))
        rest = b.alloca(WORD)
        first = b.load(self.first)
        b.store(b.urem(first, self.n), self.column)
        b.store(b.udiv(first, self.n), rest)
        with counted(b, self.dims) as d:
            size = self.word(WORD(HEAD), d)
            b.store(b.urem(b.load(rest), size), self.slot(self.index, d))
            b.store(b.udiv(b.load(rest), size), rest)
        with counted(b, self.arrays) as k:
            record, here = self.record(k), self.slot(self.at, k)
            operand = self.word(record, WORD(SLOT))
            b.store(b.load(self.slot(self.places, operand)), here)
            with counted(b, self.dims) as d:
                step = self.word(record, WORD(RECORD), d)
                gone = b.mul(step, b.load(self.slot(self.index, d)))
                b.store(b.add(b.load(here), gone), here)

    @contextmanager
    def until_done(self) -> Iterator[None]:
        """A loop over pieces. ``part``: elements of a row at a time, for ``turns`` rows."""
        b = self.b
        test, body, after = (b.append_basic_block(name) for name in ("test", "piece", "after"))
        b.branch(test)
        b.position_at_end(test)
        first = b.load(self.first)
        b.cbranch(b.icmp_signed("<", first, self.last), body, after)
        b.position_at_end(body)
        left = b.sub(self.last, first)
        self.tiled = b.icmp_signed("!=", self.rows, WORD(0))
        turns = self.lesser(self.rows, b.udiv(left, self.n))
        part = self.lesser(self.lesser(b.sub(self.n, b.load(self.column)), self.piece), left)
        self.turns = b.select(self.tiled, turns, WORD(1))
        self.part = b.select(self.tiled, self.n, part)
        yield
        b.store(WORD(0), self.filling)
        b.store(b.add(b.load(self.first), b.mul(self.turns, self.part)), self.first)
        b.branch(test)
        b.position_at_end(after)

    def whole_rows(self) -> Any:
        """Whether nothing is gathered and the next piece is a row, so that rows can follow."""
        b = self.b
        plain = b.icmp_signed("!=", self.word(WORD(PLAIN)), WORD(0))
        return b.and_(plain, b.icmp_signed("==", self.part, self.n))

    def run_rows(self) -> None:
        """Call the formula for row after row along the innermost of the outer dimensions."""
        b = self.b
        left = b.udiv(b.sub(self.last, b.load(self.first)), self.n)
        rows = b.sub(self.word(WORD(HEAD)), b.load(self.index))
        rows = self.lesser(left, rows)
        with b.if_else(self.lines) as (lines, calls):
            with lines:
                self.copy_lines(rows)
            with calls:
                self.call_for(rows)
        self.next_row(rows, self.index, self.at, self.arrays)
        more = b.mul(b.sub(rows, WORD(1)), self.n)  # than ``until_done`` counts
        b.store(b.add(b.load(self.first), more), self.first)

    def call_for(self, rows: Any) -> None:
        """Call the formula for each of so many rows."""
        b = self.b
        call = b.inttoptr(self.word(WORD(ADDRESS)), CALLED.as_pointer())
        with counted(b, rows) as row:
            with counted(b, self.arrays) as k:
                record = self.record(k)
                step, operand = self.word(record, WORD(RECORD)), self.word(record, WORD(SLOT))
                here = b.add(b.load(self.slot(self.at, k)), b.mul(row, step))
                place = self.slot(self.mine, operand)
                b.store(here, place)
                mode = self.word(record, WORD(MODE))
                with b.if_then(b.icmp_signed("==", mode, WORD(NUMBER))):
                    b.store(self.widened(here, self.word(record, WORD(SIZE))), place)
            b.call(call, [self.mine, self.n])

    def copy_lines(self, rows: Any) -> None:
        """Copy so many short rows, some at a time that stay in the nearest cache."""
        b = self.b
        starts = [b.load(self.slot(self.at, WORD(k))) for k in (0, 1)]
        steps = [self.word(self.record(WORD(k)), WORD(RECORD)) for k in (0, 1)]
        size = self.word(self.record(WORD(1)), WORD(SIZE))
        with self.by(LINES_TOGETHER, rows) as (first, some):
            to, from_ = (
                b.add(start, b.mul(first, step)) for start, step in zip(starts, steps, strict=True)
            )
            self.copy(to, steps[0], from_, steps[1], size, size, size, self.n, some)

    def lesser(self, x: Any, y: Any) -> Any:
        """The lesser of two numbers."""
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def gather(self) -> None:
        """Say where the operands of the next call are, gather what lies apart, and go on."""
        b = self.b
        filling = b.trunc(b.load(self.filling), ir.IntType(1))
        turns = b.select(filling, self.lesser(self.turns, self.period), WORD(1))
        turns = b.select(self.steady, turns, self.turns)
        with b.if_then(self.apart):
            cgutils.raw_memcpy(b, self.before, self.index, self.dims, WORD(8))
        with self.runs(turns, self.index) as (turn, rows):
            column = b.load(self.column)
            with counted(b, self.arrays) as k:
                record = self.record(k)
                operand, size, step, mode, offset = (
                    self.word(record, WORD(f)) for f in (SLOT, SIZE, STEP, MODE, OFFSET)
                )
                here = b.add(b.load(self.slot(self.at, k)), b.mul(column, step))
                room = b.add(self.room, offset)
                direct = b.icmp_signed("==", mode, WORD(DIRECT))
                number = b.icmp_signed("==", mode, WORD(NUMBER))
                with b.if_then(number):
                    b.store(self.widened(here, size), self.slot(self.mine, operand))
                turned = b.icmp_signed("==", mode, WORD(TURNED))
                with b.if_then(turned):
                    self.turn(here, step, size, room, self.slot(self.mine, operand))
                alone = b.or_(number, turned)
                with b.if_then(b.and_(b.icmp_signed("==", turn, WORD(0)), b.not_(alone))):
                    b.store(b.select(direct, here, room), self.slot(self.mine, operand))
                    b.store(here, self.slot(self.back, k))
                is_input = b.icmp_signed(">=", k, self.outputs)
                each = b.icmp_signed("==", mode, WORD(EACH))
                once = b.and_(filling, b.icmp_signed("==", mode, WORD(ONCE)))
                gathered = b.and_(is_input, b.or_(each, once))
                with b.if_then(b.and_(gathered, self.copies)):
                    self.move(here, column, rows)
                with b.if_then(b.and_(gathered, b.not_(self.copies))):
                    # What is gathered once for pieces of rows is one number: as often as any asks.
                    fixed = b.not_(b.or_(each, self.tiled))
                    count = b.select(fixed, self.piece, self.part)
                    pitch = b.mul(self.part, size)
                    to = b.add(room, b.mul(turn, pitch))
                    from_row = self.word(record, WORD(RECORD))
                    self.copy(to, pitch, here, from_row, size, step, size, count, rows)
            column = b.add(column, self.part)
            over = b.icmp_signed("==", column, self.n)
            b.store(b.select(over, WORD(0), column), self.column)
            with b.if_then(over):
                self.next_row(rows, self.index, self.at, self.arrays)
        with b.if_then(self.steady), counted(b, self.arrays) as k:
            record = self.record(k)
            mode, size, offset = (self.word(record, WORD(f)) for f in (MODE, SIZE, OFFSET))
            all_ = b.mul(b.mul(self.turns, self.part), size)
            with b.if_else(b.icmp_signed("==", mode, WORD(DIRECT))) as (direct, once):
                with direct:
                    here = b.load(self.slot(self.back, k))
                    b.store(b.add(here, all_), self.slot(self.at, k))
                with once, b.if_then(filling):
                    first = b.mul(b.mul(self.period, self.part), size)
                    self.repeat(b.add(self.room, offset), first, all_)

    def move(self, from_: Any, column: Any, rows: Any) -> None:
        """Copy rows of the second array to where those of the first are."""
        b, out = self.b, self.record(WORD(0))
        step, row = self.word(out, WORD(STEP)), self.word(out, WORD(RECORD))
        input_ = self.record(WORD(1))
        from_row, from_step, size = (self.word(input_, WORD(f)) for f in (RECORD, STEP, SIZE))
        to = b.add(b.load(self.slot(self.at, WORD(0))), b.mul(column, step))
        self.copy(to, row, from_, from_row, step, from_step, size, self.part, rows)

    def turn(self, here: Any, step: Any, size: Any, room: Any, place: Any) -> None:
        """Say at ``place`` where the row of a block is; gather the block before its first row."""
        b = self.b
        row, pitch = b.load(self.index), b.mul(size, WORD(WIDTH))
        b.store(b.add(room, b.mul(row, pitch)), place)
        with b.if_then(b.icmp_signed("==", row, WORD(0))):
            height = self.word(WORD(HEAD))
            for kind, width in ((ir.FloatType(), 4), (ir.DoubleType(), 8)):
                lanes = VECTOR_BYTES // width
                if not lanes:
                    continue
                with b.if_then(b.icmp_signed("==", size, WORD(width))):
                    with (
                        self.by(lanes, self.part) as (j, columns),
                        self.by(lanes, height) as (i, rows),
                    ):
                        from_ = b.add(here, b.add(b.mul(j, step), b.mul(i, size)))
                        to = b.add(room, b.add(b.mul(i, pitch), b.mul(j, size)))
                        b.call(
                            transpose.function_in(b.module, kind),
                            [from_, step, columns, rows, to, pitch],
                        )
            with b.if_then(b.icmp_signed("<", size, WORD(4 if VECTOR_BYTES else 9))):
                with counted(b, height) as i:
                    from_, to = b.add(here, b.mul(i, size)), b.add(room, b.mul(i, pitch))
                    self.copy(to, WORD(0), from_, WORD(0), size, step, size, self.part, WORD(1))

    @contextmanager
    def by(self, most: int, count: Any) -> Iterator[Any]:
        """A loop over ``count`` by as many as ``most`` at a time: the first, and how many."""
        b = self.b
        rounds = b.udiv(b.add(count, WORD(most - 1)), WORD(most))
        with counted(b, rounds) as k:
            first = b.mul(k, WORD(most))
            yield first, self.lesser(WORD(most), b.sub(count, first))

    def repeat(self, begin: Any, first: Any, all_: Any) -> None:
        """Write the ``first`` bytes again and again behind themselves, until there are ``all_``."""
        b = self.b
        byte = ir.IntType(8).as_pointer()
        have = cgutils.alloca_once(b, WORD)
        b.store(first, have)
        test, body, after = (b.append_basic_block(name) for name in ("more", "copy", "enough"))
        b.branch(test)
        b.position_at_end(test)
        done = b.load(have)
        b.cbranch(b.icmp_signed("<", done, all_), body, after)
        b.position_at_end(body)
        to, from_ = b.inttoptr(b.add(begin, done), byte), b.inttoptr(begin, byte)
        count = self.lesser(done, b.sub(all_, done))
        cgutils.raw_memcpy(b, to, from_, count, WORD(1))
        b.store(b.add(done, count), have)
        b.branch(test)
        b.position_at_end(after)

    def widened(self, address: Any, size: Any) -> Any:
        """The bits of the float64 that a float of ``size`` bytes at an address is."""
        b = self.b
        bits = cgutils.alloca_once(b, WORD)
        with b.if_else(b.icmp_signed("==", size, WORD(4))) as (single, double):
            with single:
                value = b.load(at(b, address, ir.FloatType()))
                b.store(b.bitcast(b.fpext(value, ir.DoubleType()), WORD), bits)
            with double:
                b.store(b.load(at(b, address, WORD)), bits)
        return b.load(bits)

    @contextmanager
    def runs(self, turns: Any, index: Any) -> Iterator[Any]:
        """A loop over ``turns`` rows: how many are done, and how many come to the end of the
        innermost of the outer dimensions, which ``next_row`` goes on by."""
        b = self.b
        done = cgutils.alloca_once(b, WORD)
        b.store(WORD(0), done)
        test, body, after = (b.append_basic_block(name) for name in ("more", "run", "enough"))
        b.branch(test)
        b.position_at_end(test)
        before = b.load(done)
        b.cbranch(b.icmp_signed("<", before, turns), body, after)
        b.position_at_end(body)
        rows = b.sub(self.word(WORD(HEAD)), b.load(index))
        rows = self.lesser(b.select(self.tiled, rows, WORD(1)), b.sub(turns, before))
        yield before, rows
        b.store(b.add(before, rows), done)
        b.branch(test)
        b.position_at_end(after)

    def next_row(self, rows: Any, index: Any, places: Any, arrays: Any) -> None:
        """Count on by so many rows, from the innermost of the outer dimensions outwards."""
        b = self.b
        step = cgutils.alloca_once(b, WORD)
        b.store(rows, step)
        with counted(b, self.dims) as d, b.if_then(b.icmp_signed("!=", b.load(step), WORD(0))):
            place = self.slot(index, d)
            old = b.load(place)
            new = b.add(old, b.load(step))
            over = b.icmp_signed("==", new, self.word(WORD(HEAD), d))
            b.store(b.select(over, WORD(0), new), place)
            gone = b.select(over, b.neg(old), b.load(step))
            b.store(b.zext(over, WORD), step)
            with counted(b, arrays) as k:
                here = self.slot(places, k)
                bytes_ = b.mul(gone, self.word(self.record(k), WORD(RECORD), d))
                b.store(b.add(b.load(here), bytes_), here)

    def copy(self, *given: Any) -> None:
        """Call the function of ``copying``."""
        self.b.call(copying(self.b.module), given)

    def run(self) -> None:
        """Call the formula, unless all has been copied."""
        with self.b.if_then(self.b.not_(self.copies)):
            self.call()

    def call(self) -> None:
        """Call the formula."""
        address = self.b.inttoptr(self.word(WORD(ADDRESS)), CALLED.as_pointer())
        self.b.call(address, [self.mine, self.b.mul(self.turns, self.part)])

    def scatter(self) -> None:
        """Write what lies apart from where it was computed."""
        b = self.b
        with self.runs(self.turns, self.before) as (turn, rows):
            with counted(b, self.outputs) as k:
                record = self.record(k)
                size, step, mode, offset = (
                    self.word(record, WORD(f)) for f in (SIZE, STEP, MODE, OFFSET)
                )
                with b.if_then(b.icmp_signed("!=", mode, WORD(DIRECT))):
                    pitch = b.mul(self.part, size)
                    from_ = b.add(b.add(self.room, offset), b.mul(turn, pitch))
                    to, row = b.load(self.slot(self.back, k)), self.word(record, WORD(RECORD))
                    self.copy(to, row, from_, pitch, step, size, size, self.part, rows)
            self.next_row(rows, self.before, self.back, self.outputs)
