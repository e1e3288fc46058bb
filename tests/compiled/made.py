"""Programs made by hand, for what recorded functions seldom do. Start reading at ``Maker``."""

from __future__ import annotations

import numpy as np

from numbagrad.compiled.lower import Lowering
from numbagrad.compiled.program import (
    Buffer,
    Gemm,
    Line,
    Loop,
    Operand,
    Program,
    Store,
    View,
    row_major,
)
from numbagrad.compiled.traced import Memory
from numbagrad.compiled.verify import verify
from numbagrad.kernels.expr import Expr, constant, expr, symbol

X0, X1 = symbol("x0"), symbol("x1")
COPY, DOUBLE, SUM = X0, expr("mul", X0, constant(2.0)), expr("add", X0, X1)
FLOAT64 = np.dtype(np.float64)


def whole(*shape: int) -> View:
    """A contiguous view."""
    return View(shape, row_major(shape))


class Maker:
    """Instructions on named buffers, written one after the other."""

    def __init__(self) -> None:
        self.lowering = Lowering({}, {}, set())
        self.buffers: dict[str, Buffer] = {}

    def buffer(self, kind: str, name: str, size: int) -> Buffer:
        """A new buffer of float64."""
        memory = None if kind == "work" else Memory(kind, FLOAT64, size, 0, name=name)
        self.buffers[name] = Buffer(kind, FLOAT64, size, name, memory)
        return self.buffers[name]

    def read(self, name: str, view: View) -> Operand:
        """What a buffer holds now."""
        return self.lowering.reading(self.buffers[name], view)

    def loop(
        self, out: tuple[str, View], body: Expr, *ins: tuple[str, View], mode: str = "store"
    ) -> None:
        """``out = body(ins)`` for every index."""
        loads = tuple(self.read(*i) for i in ins)
        name, view = out
        target, kept = self.lowering.writing(self.buffers[name], view, mode == "store")
        if mode == "sum":
            kept = ()
        self.lowering.add(
            Loop(
                (target,), loads, kept, (), space=view.shape,
                loads=tuple(f"x{k}" for k in range(len(ins))),
                lines=(Line("v0", body, "float64", "float64"),), stores=(Store("v0", mode),),
            )
        )  # fmt: skip

    def product(self, out: str, x: str, y: str, n: int = 4) -> None:
        """``out = x @ y`` of (n, n) matrices."""
        ins = self.read(x, whole(n, n)), self.read(y, whole(n, n))
        target, _ = self.lowering.writing(self.buffers[out], whole(n, n))
        self.lowering.add(Gemm((target,), ins, (), ()))

    def program(self) -> Program:
        """What was written, verified."""
        empty = Program("made", (), tuple(self.buffers.values()))
        return verify(empty.with_instructions(self.lowering.instructions))

    def given(self) -> dict[Memory, np.ndarray]:
        """Numbers in every input and state."""
        rng = np.random.default_rng(0)
        lasting = [b for b in self.buffers.values() if b.kind in ("input", "state")]
        return {b.memory: rng.uniform(-1, 1, b.size) for b in lasting if b.memory is not None}


def accumulation(disturbed: bool = False, itself: bool = False) -> Maker:
    """``h = h + x @ y``. disturbed: x changes in between; itself: x is h."""
    m = Maker()
    for kind, name in (("state", "x"), ("state", "y"), ("state", "h"), ("work", "t")):
        m.buffer(kind, name, 16)
    m.product("t", "h" if itself else "x", "y")
    if disturbed:
        m.loop(("x", whole(16)), DOUBLE, ("x", whole(16)))
    m.loop(("h", whole(16)), SUM, ("h", whole(16)), ("t", whole(16)))
    return m


def result_of_a_value_written_later() -> Maker:
    """``t = x @ y; result = t; t = y @ x; z = 2 t``."""
    m = Maker()
    for kind, name in (
        ("input", "x"), ("input", "y"), ("fresh", "result"), ("state", "z"), ("work", "t"),
    ):  # fmt: skip
        m.buffer(kind, name, 16)
    v = whole(16)
    m.product("t", "x", "y")
    m.loop(("result", v), COPY, ("t", v))
    m.product("t", "y", "x")
    m.loop(("z", v), DOUBLE, ("t", v))
    return m


def shifted() -> Maker:
    """``t = 2 x; x[1:] = t[:-1]; z = x``: what is read and written overlaps."""
    m = Maker()
    for kind, name in (("state", "x"), ("state", "z"), ("work", "t")):
        m.buffer(kind, name, 6)
    v = whole(6)
    m.loop(("t", v), DOUBLE, ("x", v))
    m.loop(("x", View((5,), (1,), 1)), COPY, ("t", View((5,), (1,), 0)))
    m.loop(("z", v), SUM, ("x", v), ("t", v))
    return m


def sums() -> Maker:
    """Rows, columns and all of one product summed, and a sum used again."""
    m = Maker()
    for kind, name, size in (
        ("input", "x", 12), ("fresh", "rows", 3), ("fresh", "columns", 4), ("fresh", "all", 1),
        ("fresh", "z", 12), ("work", "t", 12),
    ):  # fmt: skip
        m.buffer(kind, name, size)
    v = whole(3, 4)
    m.loop(("t", v), DOUBLE, ("x", v))
    m.loop(("rows", View((3, 4), (1, 0))), COPY, ("t", v), mode="sum")
    m.loop(("columns", View((3, 4), (0, 1))), COPY, ("t", v), mode="sum")
    m.loop(("all", View((3, 4), (0, 0))), COPY, ("t", v), mode="sum")
    m.loop(("z", v), SUM, ("t", v), ("rows", View((3, 4), (1, 0))))
    return m


def rows_that_meet() -> Maker:
    """``s = x[:3].sum(1); x[1:] = 2 s``: row by row it would sum what it has just written."""
    m = Maker()
    for kind, name, size in (("state", "x", 16), ("fresh", "s", 3)):
        m.buffer(kind, name, size)
    rows = View((3, 4), (1, 0))
    m.loop(("s", rows), COPY, ("x", whole(3, 4)), mode="sum")
    m.loop(("x", View((3, 4), (4, 1), 4)), DOUBLE, ("s", rows))
    return m


def rows_used_again() -> Maker:
    """``t = 2 x; s = t.sum(1); z = t + s[:, None]; y = t @ t``: t outlives its rows."""
    m = Maker()
    for kind, name, size in (
        ("input", "x", 16), ("work", "s", 4), ("work", "t", 16), ("fresh", "z", 16),
        ("fresh", "y", 16),
    ):  # fmt: skip
        m.buffer(kind, name, size)
    v, rows = whole(4, 4), View((4, 4), (1, 0))
    m.loop(("t", v), DOUBLE, ("x", v))
    m.loop(("s", rows), COPY, ("t", v), mode="sum")
    m.loop(("z", v), SUM, ("t", v), ("s", rows))
    m.product("y", "t", "t")
    return m


def parts(*begins: int, size: int = 2) -> Maker:
    """``g = 0; g[begin : begin + size] += 2 x[...]`` for each, in the way of gradients of slices;
    ``z = 2 g``. The first is copied there."""
    m = Maker()
    names = [f"t{k}" for k in range(len(begins))]
    for kind, name, length in (("input", "x", 6), ("work", "g", 6), ("fresh", "z", 6)):
        m.buffer(kind, name, length)
    for name in names:
        m.buffer("work", name, size)
    v = whole(size)
    m.loop(("g", whole(6)), constant(0))
    for k, (begin, name) in enumerate(zip(begins, names, strict=True)):
        at = View((size,), (1,), begin)
        m.loop((name, v), DOUBLE, ("x", at))
        if k:
            m.loop(("g", at), SUM, ("g", at), (name, v))
        else:
            m.loop(("g", at), COPY, (name, v))
    m.loop(("z", whole(6)), DOUBLE, ("g", whole(6)))
    return m


def overwritten_in_part() -> Maker:
    """``g = 0; g[:2] = 2 x; g[1:3] = x``: index by index the second would be written over."""
    m = Maker()
    for kind, name, size in (("input", "x", 2), ("fresh", "g", 6)):
        m.buffer(kind, name, size)
    m.loop(("g", whole(6)), constant(0))
    m.loop(("g", whole(2)), DOUBLE, ("x", whole(2)))
    m.loop(("g", View((2,), (1,), 1)), COPY, ("x", whole(2)))
    return m


MADE = {
    "accumulation": accumulation,
    "accumulation, disturbed": lambda: accumulation(disturbed=True),
    "accumulation of itself": lambda: accumulation(itself=True),
    "result of a value written later": result_of_a_value_written_later,
    "shifted": shifted,
    "sums": sums,
    "rows that meet": rows_that_meet,
    "rows used again": rows_used_again,
    "overwritten in part": overwritten_in_part,
    "parts of all": lambda: parts(4, 2, 0),
    "parts of some": lambda: parts(3, 0),
    "parts that meet": lambda: parts(0, 1, 3),
    "parts that meet and leave out": lambda: parts(1, 0, 3, size=3),
}
