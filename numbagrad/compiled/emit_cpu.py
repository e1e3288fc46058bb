"""A program as the source text of one Numba function, and what its table must hold.

The function gets one int64 ``table`` (addresses of bound memory, of kernels, and the numbers that
differ from call to call), the arrays of this call, and floats. Its text is a *template*: every size
is a marker, so that a program recorded for another batch size has the same text and other numbers.
Start reading at ``emit``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..kernels.machine import threads
from .counts import WORDS
from .emit_call import call
from .emit_guard import check, memory_guard
from .emit_long import write_long
from .emit_loop import CHUNKS, WORTH_THREADS, LoopText, effort
from .emit_product import product, product_and_update, with_updates
from .emit_text import Text, tuple_text
from .fusion import collapsed
from .program import Buffer, Call, Check, Gemm, Instruction, Loop, Program
from .rows import Group, groups, without_other_rows
from .template import DONE, OTHER_SHAPE, Argument, Entry, Template

HEAVY = 4_000_000
"""Multiplications, about 100 us of them, from which a call lets go of the interpreter lock."""

MIDDLE, LONG = 100, 400
"""Lines from which a program is cut into several functions: if that saves lines, and anyway."""

SAVED = 100
"""Lines to compile that are worth some nanoseconds in each call."""


ROWS = 16
"""Rows from which loops over rows are together where they have threads."""


class Emitter(Text):
    """Writes one program."""

    def __init__(self, program: Program, persistent: Sequence[Buffer], counts: int, timed: bool):
        found, steps = arranged(program)
        self.groups = with_updates(found)
        super().__init__(program, self.groups)
        self.steps = steps
        self.persistent = persistent
        self.counts = counts
        self.timed = timed
        self.stamps: list[tuple[int, tuple[Instruction, ...]]] = []

    def group(self, group: tuple[Instruction, ...]) -> None:
        """Write what runs together, and what notes when it has ended."""
        self.together(group)
        if self.timed:
            self.stamp(group)

    def stamp(self, group: tuple[Instruction, ...] = ()) -> None:
        """Write down the time, after ``group``."""
        at = self.place(Entry("result"))
        self.stamps.append((at, group))
        self.simd["clock:ticks"] = None
        self.lines.append(f"table[{self.spot(at)}] = ticks()")

    def together(self, group: Sequence[Instruction]) -> None:
        """Write one instruction, or several loops inside of one loop over rows."""
        if len(group) == 1:
            self.instruction(group[0])
            return
        first, second = group[:2]
        if isinstance(first, Gemm) and isinstance(second, Call):
            product_and_update(self, first, second)
            return
        loops = [i for i in group if isinstance(i, Loop)]
        if any(shared_out(loop) for loop in loops):
            outer = self.set_aside()
            self.one_name = True
            self.row_by_row(loops, True)
            self.one_name = False
            self.shared_part(outer)
        else:
            self.row_by_row(loops, False)

    def row_by_row(self, loops: Sequence[Loop], shared: bool) -> None:
        """Write several loops inside of one loop over rows, which threads may share."""
        rows = self.number(loops[0].space[0])
        begin = [f"for i0 in range({rows}):"]
        if shared:
            chunks = self.number(chunks_of(loops))
            span = f"{rows} * c // {chunks}, {rows} * (c + 1) // {chunks}"
            begin = [f"for c in prange({chunks}):", f"    for i0 in range({span}):"]
            self.chunk = "c"
        indent, inside, costly = "    " * len(begin), [], False
        for loop in loops:
            self.effort += loop.size * (1 + len(loop.ins) + len(loop.outs))
            outer, self.lines = self.lines, []
            self.comment(loop)
            text = LoopText(self, loop, False, among_threads=shared)
            inside += [*self.lines, *text.lines(outer=1)]
            self.lines, costly = outer, costly or text.costly
        if shared and costly:
            begin.insert(1, "    wide()")
        self.chunk = ""
        told = f"# {len(loops)} loops, row by row:"
        self.lines += [told, *begin, *(f"{indent}{line}" for line in inside)]

    def instruction(self, i: Instruction) -> None:
        """Write one instruction."""
        if isinstance(i, Loop):
            self.comment(i)
            self.loop(collapsed(i))
        elif isinstance(i, Gemm):
            self.comment(i)
            product(self, i)
        elif isinstance(i, Call):
            self.comment(i)
            call(self, i)
        elif isinstance(i, Check):
            check(self, i)

    def loop(self, loop: Loop) -> None:
        """A nest of loops around scalar code, here or, where threads pay, as a part."""
        if 0 in loop.space:
            return
        self.effort += loop.size * (1 + len(loop.ins) + len(loop.outs))
        if shared_out(loop):
            self.part(loop)
        else:
            self.lines += LoopText(self, loop, False).lines()

    def part(self, loop: Loop) -> None:
        """A function of its own, compiled with threads and called by its address."""
        outer = self.set_aside()
        self.one_name = True
        self.lines = LoopText(self, loop, True).lines()
        self.one_name = False
        self.shared_part(outer)

    def finish(self) -> Template:
        """The text of the module."""
        program = self.program
        params = [f"{self.pointers[a.buffer]}_array" for a in self.arguments]
        params += [f"f_{k}" for k in range(len(self.floats))]
        params += [f"h{k}_{j}" for k, (_, t) in enumerate(self.hyper) for j in range(len(t))]
        fits = []
        for a in self.arguments:
            if a.shape is not None:
                shape = tuple_text([self.number(n) for n in a.shape])
                fits.append(f"fits({self.pointers[a.buffer]}_array, {shape})")
        guard = []
        if fits:
            self.use("fits")
            joined = " and ".join(fits)
            guard = [f"if not ({joined}):", f"    return {OTHER_SHAPE}"]
        body = [*guard, "work = table[0]", *self.declared, *memory_guard(self, self.persistent)]
        if self.alone:
            self.simd["blas:blas_alone"] = self.simd["blas:blas_restore"] = None
            body.append(f"before = blas_alone({1 << 20})")
            for line in self.lines:
                if line.lstrip().startswith("return "):
                    body.append(f"{line[: -len(line.lstrip())]}blas_restore(before)")
                body.append(line)
            body.append("blas_restore(before)")
        else:
            body += self.lines
        heavy = self.effort > HEAVY or any(e.kind == "python" for e in self.table)
        if self.counts and not heavy:
            self.use("move_counts")
            body.append(f"move_counts(table, {len(self.table)}, {self.counts})")
            self.table += [Entry("count", k) for k in range(WORDS * self.counts)]
        body.append(f"return {DONE}")
        text = self.function(["table", *params], body)
        return Template(
            program.name,
            text,
            self.parts,
            self.numbers,
            self.table,
            self.arguments,
            self.hyper,
            self.floats,
            self.checks,
            self.work + self.scratch,
            heavy,
            tuple(self.products),
            tuple(self.stamps),
        )


def emit(
    program: Program,
    arguments: list[Argument],
    persistent: Sequence[Buffer] = (),
    counts: int = 0,
    timed: bool = False,
) -> Template:
    """The template of ``program``.

    arguments: the arrays that each call passes, in order. persistent: fresh buffers that are not
    passed, but used again unless somebody else holds them. counts: version counters to move at
    the end, unless the program is heavy: that one does not hold the interpreter lock. timed: write
    down when each group of instructions ends.
    """

    def begun() -> Emitter:
        emitter = Emitter(program, persistent, counts, timed)
        for argument in arguments:
            emitter.argument(argument)
        if timed:
            emitter.stamp()
        return emitter

    length = sum(map(_length, program.instructions))
    if length > MIDDLE:
        emitter = begun()
        if write_long(emitter) > SAVED or length > LONG:
            return emitter.finish()
    emitter = begun()
    for group in emitter.groups:
        emitter.group(group)
    return emitter.finish()


def _length(i: Instruction) -> int:
    """About how many lines of text an instruction becomes."""
    return 8 + len(i.ins) + len(i.outs) + len(i.lines) if isinstance(i, Loop) else 3


def arranged(program: Program) -> tuple[list[Group], dict[Buffer, int]]:
    """The instructions in groups that run together, see ``rows.py``."""
    return without_other_rows(groups(program, _rows_enough), chunks_of)


def _rows_enough(loops: Sequence[Loop]) -> bool:
    """Whether loops over rows may be together: threads share no less than each loop alone."""
    return loops[0].space[0] >= ROWS or not any(shared_out(loop) for loop in loops)


def chunks_of(loops: Sequence[Loop]) -> int:
    """In how many parts loops over rows are shared out."""
    return min(loops[0].space[0], CHUNKS) if any(shared_out(loop) for loop in loops) else 1


def shared_out(loop: Loop) -> bool:
    """Whether a loop is compiled with threads. One that sums is on one thread too: the same code
    adds up in the same order."""
    sums = any([store.mode != "store" for store in loop.stores])
    return bool(loop.space) and (sums or threads() > 1) and effort(loop) >= WORTH_THREADS
