"""The vector instructions of our matrix product.

``strip`` keeps blocks of the result in registers while it walks along the inner dimension. All is
written for the widest vectors of this CPU. The loops around it are in ``cpu/tiled_product.py``. How
such a product is built up: Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", ACM TOMS 34 (2008).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from .inner import intrinsic
from .vectors import (
    VECTOR_BYTES,
    WORD,
    Rows,
    as_written,
    at,
    by_halves,
    bytes_of,
    call_llvm,
    counted,
    in_machine_code,
    load_number,
    spread,
    store_number,
)

__all__ = ["FULL", "HEIGHTS", "PANEL", "WIDE", "down_a_strip", "middle_strip", "multiply_add"]
__all__ += ["narrow_strip", "prefetch_rows", "scratch", "sums_of_tile", "times_vector"]
__all__ += ["vector_times", "wide_strip"]

LONGEST_STRIP = 16 if VECTOR_BYTES == 64 else 8
"""Vectors of columns of a matrix that a vector is multiplied by at a time."""

WIDE = 4 if VECTOR_BYTES == 64 else 2
"""Vectors of columns in the widest tile."""

FULL = VECTOR_BYTES == 32
"""Whether ``wide_strip`` takes whole vectors only. AVX-512 loads and stores parts as fast; a store
of a part of 256 bits takes 12 cycles on a Zen 3."""

HEIGHTS = {
    # Tiles of 24 of the 32 registers of AVX-512, 12 of the 16 of AVX2. 4 by 6 takes 10 loads for
    # 24 products where 2 by 12 takes 14, and what limits the clock of busy AVX-512 is power: with
    # the same instructions on zeros it is 1.5 times as fast. Narrower ones are for last columns.
    4: (6, 5, 4, 3, 2, 1),
    2: (12, 4, 2, 1) if VECTOR_BYTES == 64 else (6, 5, 4, 3, 2, 1),
    1: (8, 4, 2, 1),
}
"""Rows of a tile by its vectors of columns, the tallest first; every size is made up of them."""

SHARED = 4
"""Rows of the widest tile, of which two take the last seven or eight rows: the tallest would leave
one or two, and a tile of these has too few sums to keep the units that multiply at work. Seven rows
of 128 numbers, times 512 columns, take 4.4 us so and took 5.2."""

PANEL = HEIGHTS[WIDE][0]
"""Rows of the tallest and widest tile: a left factor is packed in panels of so many."""


def multiply_add(builder: Any, x: Any, y: Any, total: Any) -> Any:
    """``total + x y``, rounded once."""
    kind = total.type
    return call_llvm(builder, "fma", kind, "", kind, [x, y, total])


def sums_of_tile(
    builder: Any, rows: int, right: Rows, k: Any, x: Any, y: Any, times: Any, align: int
) -> list[list[Any]]:
    """``x y`` for so many rows, in registers: x is (address, row, column), y (address, row), where
    row and column are bytes from one to the next.

    right: the rows of y; times: ``multiply_add`` or what stands for it; align: of the address x.
    """
    kind = right.kind
    real = kind.element
    # A base for every third row: the others are at + row and + 2 row, which the address of an
    # instruction can hold, so that few registers go to addresses.
    thrice, twice = builder.mul(x[1], WORD(3)), builder.add(x[1], x[1])
    bases = [x[0]]
    while 3 * len(bases) < rows:
        bases.append(builder.add(bases[-1], thrice))
    before = builder.block
    loop, after = builder.append_basic_block("along"), builder.append_basic_block("sum")
    builder.branch(loop)  # k is at least 1

    builder.position_at_end(loop)
    step = builder.phi(WORD)
    places = [builder.phi(WORD) for _ in (y, *bases)]
    sums = [[builder.phi(kind) for _ in range(right.vectors)] for _ in range(rows)]
    y_line = right.load(places[0])
    new = []
    for i, row in enumerate(sums):
        place = places[1 + i // 3]
        if i % 3:
            place = builder.add(place, x[1] if i % 3 == 1 else twice)
        factor = spread(builder, builder.load(at(builder, place, real), align=align), kind.count)
        pairs = zip(y_line, row, strict=True)
        new.append([times(builder, factor, *pair) for pair in pairs])
    last = builder.add(step, WORD(1))
    phis = [step, *places, *[phi for row in sums for phi in row]]
    zero = ir.Constant(kind, None)
    firsts = [WORD(0), y[0], *bases] + [zero] * (rows * right.vectors)
    moved = [builder.add(places[0], y[1])] + [builder.add(p, x[2]) for p in places[1:]]
    nexts = [last, *moved, *[value for row in new for value in row]]
    for phi, first, later in zip(phis, firsts, nexts, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, loop)
    again = builder.cbranch(builder.icmp_signed("<", last, k), loop, after)
    again.set_metadata("llvm.loop", as_written(builder.module))
    builder.position_at_end(after)
    return new


def prefetch_rows(builder: Any, rows: int, lines: Rows, address: Any, row: Any) -> None:
    """Fetch so many rows that a tile is added to, or written over, while it is multiplied."""
    for _ in range(rows):
        lines.prefetch(address)
        address = builder.add(address, row)


def _tile(builder: Any, rows: int, lines: Rows, right: Rows, *operands: Any) -> None:
    """``out = start + x y`` for so many rows of ``k, x, y, start, out``: x is (address, row,
    column), the others (address, row), where row and column are bytes from one to the next.

    lines: those of start and out; right: those of y.
    """
    k, x, y, start, out = operands
    prefetch_rows(builder, rows, lines, *out)
    new = sums_of_tile(builder, rows, right, k, x, y, multiply_add, lines.align)
    with builder.if_else(builder.icmp_signed("!=", start[0], WORD(0))) as (added, alone):
        with added:
            old_row, to = start[0], out[0]
            for row in new:
                old = lines.load(old_row)
                lines.store([builder.fadd(*pair) for pair in zip(old, row, strict=True)], to)
                old_row, to = builder.add(old_row, start[1]), builder.add(to, out[1])
        with alone:
            to = out[0]
            for row in new:
                lines.store(row, to)
                to = builder.add(to, out[1])


def down_a_strip(builder: Any, heights: Any, n: Any, moving: Any, tile: Any) -> None:
    """Call ``tile(height, *places)`` for tiles that make up ``n`` rows, the tallest first.

    moving: for each place its first address, the bytes from row to row, and what more there is
    between the tallest tiles.
    """
    left = builder.alloca(WORD)
    builder.store(n, left)
    places = [builder.alloca(WORD) for _ in moving]
    for place, (first, _, _) in zip(places, moving, strict=True):
        builder.store(first, place)
    for height in heights:
        test, body, after = (
            builder.append_basic_block(f"{what}_{height}") for what in ("test", "tile", "after")
        )
        builder.branch(test)
        builder.position_at_end(test)
        here = builder.load(left)
        fits = builder.icmp_signed(">=", here, WORD(height))
        if heights == HEIGHTS[WIDE] and height > SHARED:
            for rows in (2 * SHARED - 1, 2 * SHARED):
                fits = builder.and_(fits, builder.icmp_signed("!=", here, WORD(rows)))
        builder.cbranch(fits, body, after)
        builder.position_at_end(body)
        now = [builder.load(place) for place in places]
        tile(height, *now)
        for place, at_, (_, row, gap) in zip(places, now, moving, strict=True):
            step = builder.mul(row, WORD(height))
            if gap is not None and height == heights[0]:
                step = builder.add(step, gap)
            builder.store(builder.add(at_, step), place)
        builder.store(builder.sub(here, WORD(height)), left)
        builder.branch(test)
        builder.position_at_end(after)


def _strip(vectors: int, full: bool = False) -> Any:
    def strip(
        builder, kind,
        n, k, x, x_row, x_col, x_gap, y, y_row, start, start_row, out, out_row, columns,
    ):  # fmt: skip
        """``out = start + x y`` in a strip of columns, all addresses; ``start`` 0: ``out = x y``.

        x is n by k, at least 1 by 1; ``*_row``, ``*_col``: bytes from one to the next; x_gap: what
        more there is between the tallest tiles. columns: how many there are in the last vector.
        With ``start_row`` 0 the start is the same in each row. The widest strip of AVX-512 reads
        whole vectors of y, which must lie in memory that has them, and leaves what is beyond the
        columns: a load of a part is one instruction more for the units that multiply (4 % of a
        product on an Intel Xeon).
        """
        lines = Rows(builder, kind, vectors, None if full else columns)
        whole = full or (vectors == WIDE and not FULL)
        right = Rows(builder, kind, vectors, None if whole else columns)

        def tile(height, x, start, out):
            operands = k, (x, x_row, x_col), (y, y_row), (start, start_row), (out, out_row)
            _tile(builder, height, lines, right, *operands)

        moving = (x, x_row, x_gap), (start, start_row, None), (out, out_row, None)
        down_a_strip(builder, HEIGHTS[vectors], n, moving, tile)

    return in_machine_code(strip, f"strip_{vectors}{'_full' if full else ''}")


@intrinsic(prefer_literal=True)
def scratch(typing, nbytes):
    """The address of ``nbytes``, a constant, on the stack of the calling function."""
    size = nbytes.literal_value

    def generate(context, builder, signature, args):
        with builder.goto_entry_block():  # not cgutils.alloca_once: it would write zeros
            room = builder.alloca(ir.IntType(8), size=WORD(size))
        room.align = 64
        return builder.ptrtoint(room, WORD)

    return types.int64(nbytes), generate


@in_machine_code
def times_vector(builder, kind, n, k, x, x_row, y, start, start_row, out, out_row):
    """``out = start + x y`` for a vector y of k numbers side by side; ``start`` 0: ``out = x y``.

    x is n by k, k at least 1; ``*_row``: bytes from one to the next. A row at a time would wait for
    each sum before the next.
    """
    lanes, bytes_at_once = kind.count, kind.count * bytes_of(kind)
    done = builder.alloca(WORD)
    builder.store(WORD(0), done)
    whole = builder.udiv(k, WORD(lanes))
    rest = Rows(builder, kind, 1, builder.urem(k, WORD(lanes)))
    most = Rows(builder, kind, 1, None)
    last = builder.mul(whole, WORD(bytes_at_once))
    for height in (8, 2, 1):
        before = builder.load(done)
        blocks = builder.udiv(builder.sub(n, before), WORD(height))
        with counted(builder, blocks) as block:
            first = builder.add(before, builder.mul(block, WORD(height)))
            rows = [builder.add(first, WORD(i)) for i in range(height)]
            places = [builder.add(x, builder.mul(row, x_row)) for row in rows]
            (factor,) = rest.load(builder.add(y, last))
            sums = [cgutils.alloca_once(builder, kind) for _ in rows]
            for place, total in zip(places, sums, strict=True):
                (value,) = rest.load(builder.add(place, last))
                builder.store(builder.fmul(value, factor), total)
            with counted(builder, whole) as step:
                shift = builder.mul(step, WORD(bytes_at_once))
                (factor,) = most.load(builder.add(y, shift))
                for place, total in zip(places, sums, strict=True):
                    (value,) = most.load(builder.add(place, shift))
                    new = multiply_add(builder, value, factor, builder.load(total))
                    builder.store(new, total)
            for row, total in zip(rows, sums, strict=True):
                value = by_halves(builder, builder.load(total), ir.IRBuilder.fadd)
                old_at = builder.add(start, builder.mul(row, start_row))
                to = builder.add(out, builder.mul(row, out_row))
                with builder.if_else(builder.icmp_signed("!=", start, WORD(0))) as (added, alone):
                    with added:
                        old = load_number(builder, kind, old_at)
                        store_number(builder, kind, builder.fadd(old, value), to)
                    with alone:
                        store_number(builder, kind, value, to)
        builder.store(builder.add(before, builder.mul(blocks, WORD(height))), done)


@in_machine_code
def vector_times(builder, kind, k, m, x, y, y_row, start, out):
    """``out = start + x y`` for a vector x of k numbers and y of k rows of m numbers side by side;
    ``start`` 0: ``out = x y``. As many columns at a time as half of the registers hold."""
    alone = builder.icmp_signed("==", start, WORD(0))
    old, size = builder.select(alone, out, start), WORD(bytes_of(kind))
    lanes, bytes_at_once = kind.count, kind.count * bytes_of(kind)
    left, moved = builder.alloca(WORD), builder.alloca(WORD)
    builder.store(m, left)
    builder.store(WORD(0), moved)
    for vectors in (LONGEST_STRIP, 4, 1, 0):
        columns = WORD(max(vectors, 1) * lanes)
        rows = Rows(builder, kind, max(vectors, 1), None if vectors else builder.load(left))
        count = builder.udiv(builder.load(left), columns)
        if not vectors:
            count = builder.zext(builder.icmp_signed(">", builder.load(left), WORD(0)), WORD)
        before = builder.load(moved)
        with counted(builder, count) as block:
            shift = builder.add(before, builder.mul(block, WORD(max(vectors, 1) * bytes_at_once)))
            to, from_ = builder.add(out, shift), builder.add(y, shift)
            totals = [cgutils.alloca_once(builder, kind) for _ in range(max(vectors, 1))]
            for total, value in zip(totals, rows.load(builder.add(old, shift)), strict=True):
                nothing = ir.Constant(kind, [0.0] * lanes)
                builder.store(builder.select(alone, nothing, value), total)
            with counted(builder, k) as i:
                place = builder.add(x, builder.mul(i, size))
                factor = spread(builder, load_number(builder, kind, place), lanes)
                row = rows.load(builder.add(from_, builder.mul(i, y_row)))
                for total, value in zip(totals, row, strict=True):
                    new = multiply_add(builder, factor, value, builder.load(total))
                    builder.store(new, total)
            rows.store([builder.load(t) for t in totals], to)
        builder.store(builder.sub(builder.load(left), builder.mul(count, columns)), left)
        gone = builder.mul(count, WORD(max(vectors, 1) * bytes_at_once))
        builder.store(builder.add(before, gone), moved)


wide_strip, middle_strip, narrow_strip = _strip(WIDE, full=FULL), _strip(2), _strip(1)
