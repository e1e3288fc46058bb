"""The text of a kernel of a loop: places of elements, what is computed of one, forms, the module.

Sums over columns have a file of their own, ``emit_cuda_columns.py``. Start reading at
``KernelText.finish``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..kernels import store
from ..kernels.cuda.runtime.elementwise import HELPERS, LIBRARY, DeviceWriter
from ..kernels.cuda.runtime.teams import team_for
from ..kernels.halves import is_floating
from ..kernels.loops import numba_name
from .program import Loop, Operand, row_major

FAR = 1 << 31
"""Elements from which places are counted by 64 bits."""


@dataclass(frozen=True)
class LoopKernel:
    """The code of a loop. loop: over as few dims as it allows.

    form: "each", "rows" or "columns". name, text: the kernel; vector: the same by ``lanes``
    elements at a time, for addresses that are multiples of 16 bytes. kept: how many results a sum
    has; length: how many numbers are added to one; pieces: in how many parts; columns: how many a
    block takes.
    """

    loop: Loop
    form: str
    name: str
    text: str
    vector: tuple[str, str] | None = None
    lanes: int = 1
    kept: int = 1
    length: int = 1
    pieces: int = 1
    columns: int = 1

    @property
    def by_block(self) -> bool:
        """Whether a row is a block's, not a warp's."""
        return team_for(-(-self.length // self.pieces)).count == 1


class KernelText:
    """Writes one kernel. partial: its sums are of pieces, and stay in float64 or int64."""

    def __init__(
        self, loop: Loop, kept: list[int], summed: list[int], flags: int, partial: bool = False
    ):
        self.loop, self.kept, self.summed, self.partial = loop, kept, summed, partial
        self.flags = range(flags)
        reach = [1 + sum(abs(s) * (n - 1) for s, n in self.steps(o)) for o in self.operands()]
        self.count = "int64" if max([loop.size, *reach]) >= FAR else "uint32"
        self.outs = [f"out_{k}" for k in range(len(loop.outs))]
        self.ins = [f"in_{k}" for k in range(len(loop.ins))]
        self.floats = [f"f_{k}" for k in range(len(loop.scalars))]
        self.divisors = [f"by_{k}" for k, s in enumerate(loop.stores) if s.divisor != 1]
        self.types = {"int64", "uint32", "uint8", "float64"}
        self.helpers: dict[tuple[str, str], None] = {}
        self.temporaries = 0

    def operands(self) -> tuple[Operand, ...]:
        """All arrays."""
        return (*self.loop.outs, *self.loop.ins)

    @staticmethod
    def steps(o: Operand) -> list[tuple[int, int]]:
        """Stride and size of each dim."""
        return list(zip(o.view.strides, o.view.shape, strict=True))

    # -- places ----------------------------------------------------------------------------------

    def indices(self, dims: list[int], flat: str) -> list[str]:
        """Lines that take the index of each of ``dims`` from the number of an element."""
        if len(dims) < 2:
            return [f"j_{d} = {flat}" for d in dims]
        c = self.count
        lines = [f"rest = {c}({flat})"]
        for d in reversed(dims[1:]):
            size = f"{c}({self.loop.space[d]})"
            lines += [f"j_{d} = {c}(rest % {size})", f"rest = {c}(rest // {size})"]
        return [*lines, f"j_{dims[0]} = rest"]

    def place(self, o: Operand, flat: str | None = None) -> str:
        """Where the element of an operand lies, from its first; flat: the number of the element."""
        if flat is not None and o.view.strides == row_major(self.loop.space):
            return flat
        terms = [
            f"int64(j_{d})" + (f" * {s}" if s != 1 else "")
            for d, (s, _) in enumerate(self.steps(o))
            if s
        ]
        return " + ".join(terms) or "0"

    # -- one element -----------------------------------------------------------------------------

    def element(self, loaded: dict[str, str]) -> tuple[list[str], dict[str, str], dict[str, str]]:
        """Lines that compute every line of the loop, and by name the text and type of each value.

        loaded: by load, the text of its element.
        """
        loop = self.loop
        names = dict(loaded)
        kinds = {n: numba_name(o.dtype) for n, o in zip(loop.loads, loop.ins, strict=True)}
        for (n, _), text in zip(loop.scalars, self.floats, strict=True):
            names[n], kinds[n] = text, "float64"
        lines: list[str] = []
        for line in loop.lines:
            same = line.expr.op == "input" and kinds[line.expr.value] == line.dtype
            if same and not line.rounded:
                names[line.name], kinds[line.name] = names[line.expr.value], line.dtype
                continue
            t = line.compute
            self.types.add(t)
            given = {
                n: names[n] if kinds[n] == t else self.cast(names[n], False, t, kinds[n])
                for n in kinds
            }
            writer = DeviceWriter([line.expr], t == "int64", t, given, self.temporaries)
            self.temporaries += len(writer.lines)
            lines += writer.lines
            self.helpers |= dict.fromkeys((op, t) for op in writer.helpers)
            text = self.cast(writer.names[line.expr], line.expr.is_bool, line.dtype, t)
            if line.rounded:  # as if it had been stored and loaded
                text = f"round_{line.rounded}({text})"
            name = f"{line.name}_{self.temporaries}"
            self.temporaries += 1
            lines.append(f"{name} = {text}")
            names[line.name], kinds[line.name] = name, line.dtype
        return lines, names, kinds

    def cast(self, text: str, is_bool: bool, to: str, t: str) -> str:
        """The text of a value of type ``t``, or of a truth value, as one of type ``to``."""
        if to == t and not is_bool:
            return text
        if to == "boolean":
            return text if is_bool else f"({text} != {t}(0))"
        self.types.add(to)
        if is_bool or t == "boolean":
            return f"({to}(1) if {text} else {to}(0))"
        narrow = not to.startswith("float") and t.startswith("float") and to != "int64"
        return f"{to}(int64({text}))" if narrow else f"{to}({text})"

    def value(self, k: int, names: dict[str, str], kinds: dict[str, str]) -> str:
        """The text of what goes to output ``k``, as it lies in memory."""
        o, line = self.loop.outs[k], self.loop.stores[k].line
        out = numba_name(o.dtype)
        if out == "boolean":
            truth = self.cast(names[line], False, "boolean", kinds[line])
            return f"uint8(1) if {truth} else uint8(0)"
        return self.cast(names[line], False, out, kinds[line])

    def plain(self, flat: str | None = None) -> tuple[list[str], dict[str, str], dict[str, str]]:
        """Lines that load, compute and store what is not summed."""
        loop = self.loop
        loaded = {n: f"{n}_x" for n in loop.loads}
        lines = [
            f"{loaded[n]} = {a}[{self.place(o, flat)}]"
            for n, a, o in zip(loop.loads, self.ins, loop.ins, strict=True)
        ]
        computed, names, kinds = self.element(loaded)
        lines += computed
        for k, o in enumerate(loop.outs):
            if k not in self.sums():
                place = self.place(o, flat)
                lines.append(f"{self.outs[k]}[{place}] = {self.value(k, names, kinds)}")
        return lines, names, kinds

    def sums(self) -> list[int]:
        """The outputs that are summed."""
        return [k for k, s in enumerate(self.loop.stores) if s.mode == "sum" and self.summed]

    # -- the forms -------------------------------------------------------------------------------

    def most_lanes(self) -> int:
        """Elements that may be loaded at a time; 1 where the layout forbids it."""
        loop = self.loop
        widest = max([o.dtype.itemsize for o in self.operands()])
        lanes = 4 if widest <= 4 else 2
        if not loop.space or (len(loop.space) > 1 and loop.space[-1] % lanes):
            return 1
        for o in self.operands():
            *outer, inner = o.view.strides
            if inner not in (0, 1) or (inner and any(s % lanes for s in outer)):
                return 1
        return lanes if all(o.view.strides[-1] for o in loop.outs) else 1

    def each(self, lanes: int) -> list[str]:
        """Threads walk over the elements; ``lanes`` at a time."""
        walk = ["i = cuda.grid(1)", "step = cuda.gridsize(1)"]
        if lanes > 1:
            walk += [f"groups = n // {lanes}", "while i < groups:"]
            walk += indented([*self.group(lanes), "i += step"])
            if len(self.loop.space) > 1:
                return walk
            walk.append(f"i = groups * {lanes} + cuda.grid(1)")
        flat = all(o.view.strides == row_major(self.loop.space) for o in self.operands())
        index = [] if flat else self.indices(self.kept, "i")
        lines, _, _ = self.plain("i")
        return [*walk, "while i < n:", *indented([*index, *lines, "i += step"])]

    def group(self, lanes: int) -> list[str]:
        """``lanes`` neighbouring elements from number ``i * lanes`` on."""
        loop = self.loop
        lines = [f"at = i * {lanes}", *self.indices(self.kept, "at")]
        loads, loaded = self.loads(lanes, "at")
        lines += loads
        results: list[list[str]] = [[] for _ in loop.outs]
        for k in range(lanes):
            computed, names, kinds = self.element(loaded[k])
            lines += computed
            for j in range(len(loop.outs)):
                lines.append(f"o{j}_l{k} = {self.value(j, names, kinds)}")
                results[j].append(f"o{j}_l{k}")
        for j, o in enumerate(loop.outs):
            lines.append(
                f"store{lanes}({self.outs[j]}, {self.place(o, 'at')}, {', '.join(results[j])})"
            )
        return lines

    def loads(
        self, lanes: int, flat: str | None = None, row: int = 0
    ) -> tuple[list[str], list[dict[str, str]]]:
        """Lines that load ``lanes`` neighbours, and for each of them the texts by load."""
        loop, lines = self.loop, []
        loaded: list[dict[str, str]] = [{} for _ in range(lanes)]
        for n, a, o in zip(loop.loads, self.ins, loop.ins, strict=True):
            place, name = self.place(o, flat), f"{n}_r{row}" if row else n
            if lanes > 1 and o.view.strides[-1]:
                parts = [f"{name}_l{k}" for k in range(lanes)]
                lines.append(f"{', '.join(parts)} = load{lanes}({a}, {place})")
            else:
                parts = [f"{name}_l0"] * lanes
                lines.append(f"{name}_l0 = {a}[{place}]")
            for k in range(lanes):
                loaded[k][n] = parts[k]
        return lines, loaded

    def wide(self, k: int) -> str:
        """The type in which output ``k`` is summed."""
        return "float64" if is_floating(self.loop.outs[k].dtype) else "int64"

    def begun(self) -> list[str]:
        """Lines that begin the sums."""
        return [f"sum_{k} = {self.wide(k)}(0)" for k in self.sums()]

    def added(self, step: str) -> list[str]:
        """The walk of a thread over its part of the numbers to be added."""
        lines, names, kinds = self.plain()
        for k in self.sums():
            line = self.loop.stores[k].line
            value = self.cast(names[line], False, self.wide(k), kinds[line])
            lines.append(f"sum_{k} += {value}")
        index = self.indices(self.summed, "r")
        return ["while r < end:", *indented([*index, *lines, f"r += {step}"])]

    def ended(self, k: int, place: str, total: str) -> str:
        """The line that stores a sum."""
        o, s = self.loop.outs[k], self.loop.stores[k]
        if self.partial:
            return f"{self.outs[k]}[piece * kept + {place}] = {total}"
        text = total + (f" / by_{k}" if s.divisor != 1 else "")
        return f"{self.outs[k]}[{self.place(o)}] = {numba_name(o.dtype)}({text})"

    def rows(self, by_block: bool) -> list[str]:
        """A team for each row or piece of one."""
        width, teams, add = ("BLOCK", 1, "block_sum") if by_block else ("WARP", "WARPS", "warp_sum")
        kinds = dict.fromkeys(self.wide(k) for k in self.sums())
        lines = [f"shared_{t} = cuda.shared.array(WARPS, {t})" for t in kinds]
        lines += [f"lane = cuda.threadIdx.x % {width}", f"base = cuda.blockIdx.x * {teams}"]
        work = [f"task = base + cuda.threadIdx.x // {width}", *self.begun(), "place = 0"]
        work += ["piece = 0", "if task < kept * pieces:"]
        inner = ["place, piece = task // pieces, task % pieces", *self.indices(self.kept, "place")]
        inner += ["r = piece * length // pieces + lane", "end = (piece + 1) * length // pieces"]
        work += indented([*inner, *self.added(width)])
        work += [f"sum_{k} = {add}(sum_{k}, shared_{self.wide(k)})" for k in self.sums()]
        last = [
            *self.indices(self.kept, "place"),
            *(self.ended(k, "place", f"sum_{k}") for k in self.sums()),
        ]
        work += ["if lane == 0 and task < kept * pieces:", *indented(last)]
        work += [f"base += cuda.gridDim.x * {teams}"]
        walk = "while base < kept * pieces:"
        return [*lines, walk, *indented(work)]

    # -- the module ------------------------------------------------------------------------------

    def finish(self, form: str, body: list[str]) -> tuple[str, str]:
        """Name and text of a module with the kernel."""
        keep = []
        for k in self.flags:  # as ``runtime/flags.py``, without a launch
            keep += [f"if cuda.grid(1) == 0 and kept_{k}[0] < 0:", f"    kept_{k}[0] = flag_{k}[0]"]
        code = "\n".join(indented([*keep, *body]))
        sizes = ["n"] if form == "each" else ["kept", "pieces", "length"]
        by = [] if self.partial else self.divisors
        kept = [f"{name}_{k}" for k in self.flags for name in ("kept", "flag")]
        parameters = ", ".join([*sizes, *self.outs, *self.ins, *self.floats, *by, *kept])
        self.types |= {numba_name(o.dtype) for o in self.loop.outs}
        self.types.discard("boolean")
        lines = [f'"""{_told(self.loop)}"""', "", "import numpy as np"]
        lines += [f"from numba import cuda, {', '.join(sorted(self.types))}", ""]
        home = "numbagrad.kernels.cuda.runtime"
        names = "load2", "load4", "store2", "store4", "round_float16", "round_bfloat16"
        needed = [n for n in names if f"{n}(" in code]
        if needed:
            lines.append(f"from {home}.intrinsics import {', '.join(needed)}")
        library = [f"{f}_{t}" for f in sorted(LIBRARY) for t in ("float32", "float64")]
        used = [n for n in library if f"{n}(" in code]
        if used or "math." in code:
            lines.append(f"from {home}.maths import {', '.join(['math', *used])}")
        if form != "each":
            lines.append(f"from {home}.shape import BLOCK, WARP, WARPS")
            lines.append(f"from {home}.warp import block_sum, warp_sum")
        for op, t in self.helpers:
            operands = "x" if op == "sign" else "x, y"
            name = {"max": "maximum", "min": "minimum"}.get(op, op)
            lines += ["", "", "@cuda.jit(device=True)", f"def {name}_{t}({operands}):"]
            lines += ["    return " + re.sub(r"\bT\(", f"{t}(", HELPERS[op])]
        lines += ["", "", f"def NAME({parameters}):", f'    """{form}"""', code]
        text = "\n".join(lines) + "\n"
        name = store.content_name(_prefix(self.loop), text)
        return name, text.replace("NAME", name, 1)


def indented(lines: list[str]) -> list[str]:
    """``lines``, inside what stands above them."""
    return [f"    {line}" for line in lines]


def _prefix(loop: Loop) -> str:
    """A name for people and profilers."""
    ops = dict.fromkeys(s.op.rpartition(".")[2] for s in loop.sources)
    return re.sub(r"\W", "_", "_".join(ops), flags=re.ASCII)[:40] or "loop"


def _told(loop: Loop) -> str:
    """The operations of a loop, without the user's lines, which would name another file."""
    return ", ".join(dict.fromkeys(s.op for s in loop.sources)) or "loop"
