"""Sums over columns: neighbouring threads take neighbouring columns, the others share out the rows.

Start reading at ``column_kernel``.
"""

from __future__ import annotations

import math

from ..kernels.cuda.runtime.shape import BLOCK, PART, PARTS, SIMULATED
from .emit_cuda_text import KernelText, LoopKernel, indented
from .program import Loop

WIDE, NARROW = (8, 4) if SIMULATED else (128, 8)
"""Most and fewest columns of a block: 32 bytes are what memory is read by."""

BUSY = 2 if SIMULATED else 256
"""Blocks that occupy a GPU; a block takes fewer columns where there would be fewer."""

MOST_LINES = 64
"""Up to so many lines are written out for several rows, whose loads are then under way at once."""


def column_kernel(
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
    text = ColumnText(loop, kept, summed, flags, pieces > 1)
    name, source = text.finish("columns", text.columns(1, columns))
    lanes = text.most_lanes()
    vector = None
    if lanes > 1:
        wide = ColumnText(loop, kept, summed, flags, pieces > 1)
        vector = wide.finish("columns", wide.columns(lanes, columns))
    return LoopKernel(loop, "columns", name, source, vector, lanes, count, length, pieces, columns)


class ColumnText(KernelText):
    """Writes a kernel of sums over columns."""

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
            inner += [f"while r + {(rows - 1) * down} < end:", *indented(body)]
        inner += ["while r < end:", *indented([*self.taken(["r"], lanes), f"r += {down}"])]
        work += ["if place < kept:", *indented(inner)]
        for k in self.sums():
            work += self.joined(k, lanes, across, down)
        last = []
        for q in range(lanes):
            last += self.indices(self.kept, f"place + {q}" if q else "place")
            place = f"(place + {q})" if q else "place"
            last += [self.ended(k, place, f"sum_{k}_{q}") for k in self.sums()]
        work += ["if deep == 0 and place < kept:", *indented(last), "task += cuda.gridDim.x"]
        return [*lines, "while task < tiles * pieces:", *indented(work)]

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
        return [*lines, *indented([*inner, "cuda.syncthreads()", "half //= 2"])]
