"""A loop instruction as the source text of one GPU kernel.

Three forms. *each*: no sums; threads walk over the elements in strides of the grid, by 128 bits
where the layout allows it. *rows*: sums over what lies together in memory; a warp or a block takes
one row, or one piece of it. *columns*: sums over the rest; neighbouring threads take neighbouring
columns, by 128 bits where that may be, and the others of a block share out the rows. A long sum is
cut into pieces, whose number depends on sizes alone, and a second kernel adds those up.
Start reading at ``loop_kernel``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

import numpy as np

from ..kernels import store
from ..kernels.cuda.runtime.elementwise import HELPERS, LIBRARY, DeviceWriter
from ..kernels.cuda.runtime.folds import parts_of
from ..kernels.cuda.runtime.shape import BLOCK, PART, PARTS, SIMULATED
from ..kernels.cuda.runtime.teams import team_for
from ..kernels.halves import is_floating
from ..kernels.loops import numba_name
from .fusion import collapsed, renaming
from .passes import reduced
from .program import Loop, Operand, row_major

WIDE, NARROW = (8, 4) if SIMULATED else (128, 8)
"""Most and fewest columns of a block: 32 bytes are what memory is read by."""

BUSY = 2 if SIMULATED else 256
"""Blocks that occupy a GPU; a block takes fewer columns where there would be fewer."""

MOST_LINES = 64
"""Up to so many lines are written out for several rows, whose loads are then under way at once."""

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


def loop_kernel(loop: Loop, flags: int = 0) -> LoopKernel:
    """Write ``loop``, which has an iteration at least; its sums go over the same dims.

    flags: how many flags of checks it keeps beside.
    """
    small = collapsed(_with_each_load_once(loop))
    over = reduced(small)
    if not any(s.mode == "sum" for s in small.stores):
        over = [frozenset()]
    assert len(set(over)) == 1, f"sums over several dims: {loop!r}"
    summed = [d for d in range(len(small.space)) if d in over[0]]
    kept = [d for d in range(len(small.space)) if d not in over[0]]
    if not any(s.mode == "sum" for s in small.stores) or not summed:
        text = KernelText(small, kept, [], flags)
        name, source = text.finish("each", text.each(1))
        lanes = text.most_lanes()
        vector = None
        if lanes > 1:
            wide = KernelText(small, kept, [], flags)
            vector = wide.finish("each", wide.each(lanes))
        return LoopKernel(small, "each", name, source, vector, lanes, small.size)
    columns = bool(kept) and kept[-1] > summed[-1]
    count = math.prod(small.space[d] for d in kept)
    length = math.prod(small.space[d] for d in summed)
    whole = all(_dense(o, kept) for o, s in zip(small.outs, small.stores, strict=True) if _sum(s))
    if columns:
        return _column_kernel(small, kept, summed, flags, whole)
    pieces = parts_of(count, length, 1) if whole else 1
    draft = LoopKernel(small, "rows", "", "", None, 1, count, length, pieces)
    text = KernelText(small, kept, summed, flags, pieces > 1)
    name, source = text.finish("rows", text.rows(draft.by_block))
    return replace(draft, name=name, text=source)


def _column_kernel(
    loop: Loop, kept: list[int], summed: list[int], flags: int, whole: bool
) -> LoopKernel:
    """The kernel of sums over columns; whole: they may be made in pieces."""
    count = math.prod(loop.space[d] for d in kept)
    length = math.prod(loop.space[d] for d in summed)
    most = max(1, length // (PART // 16)) if whole and length > PART // 8 else 1
    columns = WIDE
    while columns > NARROW and -(-count // columns) * most < BUSY:
        columns //= 2
    pieces = max(1, min(PARTS // -(-count // columns), most))
    text = KernelText(loop, kept, summed, flags, pieces > 1)
    name, source = text.finish("columns", text.columns(1, columns))
    lanes = text.most_lanes()
    vector = None
    if lanes > 1:
        wide = KernelText(loop, kept, summed, flags, pieces > 1)
        vector = wide.finish("columns", wide.columns(lanes, columns))
    return LoopKernel(loop, "columns", name, source, vector, lanes, count, length, pieces, columns)


def _with_each_load_once(loop: Loop) -> Loop:
    """``loop`` without a second load of what is loaded already."""
    first: dict[Operand, str] = {}
    names: dict[str, str] = {}
    for o, n in zip(loop.ins, loop.loads, strict=True):
        names[n] = first.setdefault(o, n)
    if len(first) == len(loop.ins):
        return loop
    lines = tuple(replace(line, expr=renaming(line.expr, names)) for line in loop.lines)
    stores = tuple(replace(s, line=names.get(s.line, s.line)) for s in loop.stores)
    loads = tuple(first.values())
    return replace(loop, ins=tuple(first), loads=loads, lines=lines, stores=stores)


def _sum(s: object) -> bool:
    return getattr(s, "mode", "") == "sum"


def _dense(o: Operand, kept: list[int]) -> bool:
    """Whether the results of a sum lie in the order in which they are counted."""
    sizes = tuple(o.view.shape[d] for d in kept)
    return tuple(o.view.strides[d] for d in kept) == row_major(sizes)


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
            walk += _in([*self.group(lanes), "i += step"])
            if len(self.loop.space) > 1:
                return walk
            walk.append(f"i = groups * {lanes} + cuda.grid(1)")
        flat = all(o.view.strides == row_major(self.loop.space) for o in self.operands())
        index = [] if flat else self.indices(self.kept, "i")
        lines, _, _ = self.plain("i")
        return [*walk, "while i < n:", *_in([*index, *lines, "i += step"])]

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
        return ["while r < end:", *_in([*index, *lines, f"r += {step}"])]

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
        work += _in([*inner, *self.added(width)])
        work += [f"sum_{k} = {add}(sum_{k}, shared_{self.wide(k)})" for k in self.sums()]
        last = [
            *self.indices(self.kept, "place"),
            *(self.ended(k, "place", f"sum_{k}") for k in self.sums()),
        ]
        work += ["if lane == 0 and task < kept * pieces:", *_in(last)]
        work += [f"base += cuda.gridDim.x * {teams}"]
        walk = "while base < kept * pieces:"
        return [*lines, walk, *_in(work)]

    def columns(self, lanes: int, columns: int) -> list[str]:
        """A block for so many columns, ``lanes`` to a thread, or a piece of them."""
        across = columns // lanes
        down = BLOCK // across
        kinds = dict.fromkeys(self.wide(k) for k in self.sums())
        lines = [f"shared_{t} = cuda.shared.array({BLOCK * lanes // 2}, {t})" for t in kinds]
        lines += [f"lane, deep = cuda.threadIdx.x % {across}, cuda.threadIdx.x // {across}"]
        lines += [f"tiles = (kept + {columns - 1}) // {columns}", "task = cuda.blockIdx.x"]
        work = [f"place = task * {columns} + lane * {lanes}"]
        if self.partial:
            work = [f"place, piece = task % tiles * {columns} + lane * {lanes}, task // tiles"]
        work += [f"sum_{k}_{q} = {self.wide(k)}(0)" for k in self.sums() for q in range(lanes)]
        inner = [*self.indices(self.kept, "place"), "r, end = int64(deep), length"]
        if self.partial:
            inner[-1] = "r = piece * length // pieces + deep"
            inner.append("end = (piece + 1) * length // pieces")
        rows = 4 if lanes == 1 else 2
        if (len(self.loop.lines) + len(self.ins)) * lanes * rows <= MOST_LINES:
            several = [f"r + {j * down}" if j else "r" for j in range(rows)]
            body = [*self.taken(several, lanes), f"r += {rows * down}"]
            inner += [f"while r + {(rows - 1) * down} < end:", *_in(body)]
        inner += ["while r < end:", *_in([*self.taken(["r"], lanes), f"r += {down}"])]
        work += ["if place < kept:", *_in(inner)]
        for k in self.sums():
            work += self.joined(k, lanes, across, down)
        last = []
        for q in range(lanes):
            last += self.indices(self.kept, f"place + {q}" if q else "place")
            place = f"(place + {q})" if q else "place"
            last += [self.ended(k, place, f"sum_{k}_{q}") for k in self.sums()]
        work += ["if deep == 0 and place < kept:", *_in(last), "task += cuda.gridDim.x"]
        return [*lines, "while task < tiles * pieces:", *_in(work)]

    def taken(self, rows: list[str], lanes: int) -> list[str]:
        """Lines that take ``lanes`` columns of ``rows``; all loads are before what is stored."""
        loop, sums = self.loop, self.sums()
        plain = [k for k in range(len(loop.outs)) if k not in sums]
        lines: list[str] = []
        loaded = []
        for u, row in enumerate(rows):
            lines += self.indices(self.summed, row)
            loads, found = self.loads(lanes, row=u)
            lines += [*loads, *[f"at_{k}_{u} = {self.place(loop.outs[k])}" for k in plain]]
            loaded.append(found)
        for u in range(len(rows)):
            results: dict[int, list[str]] = {k: [] for k in plain}
            for q in range(lanes):
                computed, names, kinds = self.element(loaded[u][q])
                lines += computed
                for k in plain:
                    results[k].append(f"o{k}_{u}_{q}")
                    lines.append(f"o{k}_{u}_{q} = {self.value(k, names, kinds)}")
                for k in sums:
                    line = loop.stores[k].line
                    value = self.cast(names[line], False, self.wide(k), kinds[line])
                    lines.append(f"sum_{k}_{q} += {value}")
            for k, values in results.items():
                at = f"at_{k}_{u}"
                if lanes > 1:
                    lines.append(f"store{lanes}({self.outs[k]}, {at}, {', '.join(values)})")
                else:
                    lines.append(f"{self.outs[k]}[{at}] = {values[0]}")
        return lines

    def joined(self, k: int, lanes: int, across: int, down: int) -> list[str]:
        """Lines that add up what the threads beneath each other have summed."""
        table, half = f"shared_{self.wide(k)}", BLOCK // 2
        spots = [f"{table}[{q * half} + lane + {across} * " for q in range(lanes)]
        lines = [f"half = {down // 2}", "while half > 0:"]
        inner = ["if deep >= half and deep < 2 * half:"]
        inner += [f"    {spot}(deep - half)] = sum_{k}_{q}" for q, spot in enumerate(spots)]
        inner += ["cuda.syncthreads()", "if deep < half:"]
        inner += [f"    sum_{k}_{q} += {spot}deep]" for q, spot in enumerate(spots)]
        return [*lines, *_in([*inner, "cuda.syncthreads()", "half //= 2"])]

    # -- the module ------------------------------------------------------------------------------

    def finish(self, form: str, body: list[str]) -> tuple[str, str]:
        """Name and text of a module with the kernel."""
        keep = []
        for k in self.flags:  # as ``runtime/flags.py``, without a launch
            keep += [f"if cuda.grid(1) == 0 and kept_{k}[0] < 0:", f"    kept_{k}[0] = flag_{k}[0]"]
        code = "\n".join(_in([*keep, *body]))
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


def _in(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _prefix(loop: Loop) -> str:
    """A name for people and profilers."""
    ops = dict.fromkeys(s.op.rpartition(".")[2] for s in loop.sources)
    return re.sub(r"\W", "_", "_".join(ops), flags=re.ASCII)[:40] or "loop"


def _told(loop: Loop) -> str:
    """The operations of a loop, without the user's lines, which would name another file."""
    return ", ".join(dict.fromkeys(s.op for s in loop.sources)) or "loop"


def dtype_of_sum(o: Operand) -> np.dtype:
    """What the sums of pieces are kept in."""
    return np.dtype(np.float64 if is_floating(o.dtype) else np.int64)
