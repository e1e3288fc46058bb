"""``step.explain()``: what a compiled function runs, what that must cost, and what was fused.

Start reading at ``explanation``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..kernels.expr import FUNCTIONS, Expr, topological
from ..tables import aligned, count_text, html_table, plural, shortened, size_text, time_text
from .emit_cpu import arranged
from .memory import assign, rounded
from .program import Call, Gemm, Instruction, Loop, Operand, Program, kernel_name, label
from .rates import Rates, cache_bytes, rates
from .traced import Launch

CHEAP = frozenset("abs floor ceil trunc rint sign max min copysign isnan isinf isfinite".split())
FUNCTION_FLOPS = 20
"""Counted for exp, log, tanh and their kin: the length of their polynomials."""


@dataclass(frozen=True)
class Unfused:
    """What a program was made from: recorded launches, and the bytes of all its temporaries."""

    launches: int
    temporaries: int


def unfused(events: Sequence[Any], lowered: Program) -> Unfused:
    """Count what was recorded. lowered: the program before any pass."""
    work = [rounded(b.nbytes) for b in lowered.buffers if b.kind == "work"]
    return Unfused(sum(isinstance(e, Launch) for e in events), sum(work))


@dataclass(frozen=True)
class Row:
    """An instruction: the least that it must move and compute, and the time that takes.

    kind: "loop", "product" or "kernel". flops: None of a kernel, which is a box. bound: "memory",
    "cache" or "flops", what decides the time.
    """

    kind: str
    what: str
    shape: tuple[int, ...]
    iterations: int
    nbytes: int
    flops: int | None
    seconds: float
    bound: str


@dataclass(frozen=True)
class Explanation:
    """The rows of one program; prints as a table.

    rates: None of a program for a GPU, whose rates are not measured: its times are 0 and left out.
    how: what is said of the machine instead.
    """

    name: str
    rows: tuple[Row, ...]
    unfused: Unfused
    work: int
    rates: Rates | None
    backward: Explanation | None = None
    how: str = ""

    @property
    def seconds(self) -> float:
        """The estimate of the whole."""
        return sum(row.seconds for row in self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes that must move, if nothing stays in a register from row to row."""
        return sum(row.nbytes for row in self.rows)

    @property
    def flops(self) -> int:
        """Arithmetic of loops and products."""
        return sum(row.flops or 0 for row in self.rows)

    def count(self, kind: str) -> int:
        """Number of rows of a kind."""
        return sum(row.kind == kind for row in self.rows)

    def summary(self) -> list[str]:
        """Sentences before the table."""
        counts = [plural(self.count(kind), kind) for kind in ("loop", "product", "kernel")]
        return [
            f"{self.name}: {plural(self.unfused.launches, 'launch', 'es')} became "
            f"{counts[0]}, {counts[1]} and {counts[2]}"
            + (" called by address" if self.rates is not None else ""),
            f"work memory: {size_text(self.work)}, where the temporaries of the launches take "
            f"{size_text(self.unfused.temporaries)}",
            self.how or f"this machine: {self.rates}",
        ]

    def table(self) -> Iterator[tuple[str, ...]]:
        """The cells: a head, the rows, the total."""
        yield "", "made from", "shape", "iterations", "bytes", "flops", "time", "share", "bound by"
        total = self.seconds or 1.0
        for row in self.rows:
            flops = "" if row.flops is None else count_text(row.flops)
            shape = " x ".join(map(str, row.shape)) or "1"
            times = time_text(row.seconds), f"{row.seconds / total:.0%}", row.bound
            yield (
                row.kind, row.what, shape, count_text(row.iterations), size_text(row.nbytes), flops,
                *(times if self.rates is not None else ("", "", "")),
            )  # fmt: skip
        took = time_text(self.seconds) if self.rates is not None else ""
        whole = size_text(self.nbytes), count_text(self.flops), took
        yield "total", "", "", "", *whole, "", ""

    def __repr__(self) -> str:
        cells = [(kind, shortened(what, LONGEST), *rest) for kind, what, *rest in self.table()]
        lines = [*self.summary(), "", *aligned(cells, range(3, 8))]
        if self.backward is not None:
            lines += ["", repr(self.backward)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What Jupyter shows."""
        shown = html_table(self.summary(), list(self.table()))
        return shown + ("" if self.backward is None else self.backward._repr_html_())


def explanation(
    program: Program, made_from: Unfused, backward: Explanation | None = None, how: str = ""
) -> Explanation:
    """Explain ``program``. how: of one for a GPU, how it is run there."""
    speed = None if how else rates()
    _, work = assign([(i,) for i in program.instructions] if how else arranged(program)[0])
    held = sum(b.nbytes for b in program.buffers if b.kind != "work") + work
    near = held <= cache_bytes()
    rows = [
        row_of(i, speed, near) for i in program.instructions if isinstance(i, (Loop, Gemm, Call))
    ]
    return Explanation(program.name, tuple(rows), made_from, work, speed, backward, how)


def row_of(i: Instruction, speed: Rates | None, near: bool) -> Row:
    """The row of an instruction; without ``speed`` it has no time."""
    moved = sum(_bytes(o) for o in set(i.ins)) + sum(_bytes(o) for o in set(i.outs))
    what, computing = label(i), 0.0
    flops: int | None = None
    if isinstance(i, Loop):
        kind, shape, iterations = "loop", i.space, i.size
        sums = sum(s.mode == "sum" for s in i.stores)
        flops = i.size * (sums + sum(flops_of(line.expr) for line in i.lines))
        computing = flops / speed.loops if speed else 0.0
    elif isinstance(i, Gemm):
        (n, k), (_, m) = i.ins[0].view.shape, i.ins[1].view.shape
        kind, shape, iterations, flops = "product", (n, m, k), n * m * k, 2 * n * m * k
        wide = 2 if i.outs[0].dtype.itemsize == 8 else 1
        computing = flops / speed.products * wide if speed else 0.0
        moved += _bytes(i.outs[0]) if i.accumulate else 0
    else:
        assert isinstance(i, Call)
        kind, shape = "kernel", i.outs[0].view.shape
        iterations = sum(o.view.size for o in i.outs)
        what = what if kernel_name(i.kernel) in what else f"{kernel_name(i.kernel)}: {what}"
        moved += sum(_bytes(o) for o in i.outs if any(v.buffer is o.buffer for v in i.kept))
    if speed is None:
        return Row(kind, what, shape, iterations, moved, flops, 0.0, "")
    moving = moved / (speed.cache if near else speed.memory)
    bound = "flops" if computing > moving else "cache" if near else "memory"
    return Row(kind, what, shape, iterations, moved, flops, max(computing, moving), bound)


def _bytes(o: Operand) -> int:
    """Bytes of the elements of an operand, each counted once."""
    size = 1
    for n, s in zip(o.view.shape, o.view.strides, strict=True):
        size *= n if s or not n else 1
    return size * o.dtype.itemsize


def flops_of(body: Expr) -> int:
    """Operations in an expression; equal parts are one."""
    count = 0
    for node in topological([body]):
        if node.op == "pow":
            count += 2 * FUNCTION_FLOPS
        elif node.op in FUNCTIONS and node.op not in CHEAP:
            count += FUNCTION_FLOPS
        elif node.op not in ("input", "const"):
            count += 1
    return count


# -- text ------------------------------------------------------------------------------------------

LONGEST = 44
"""Columns of the text of what a row was made from."""
