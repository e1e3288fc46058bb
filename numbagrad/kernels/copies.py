"""Copies that are written in vector instructions: turned, in panels, in lines, of short lines.

The loops around them are in ``cpu/tiled_product.py`` and ``cpu/conv.py``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from .tile import FULL, PANEL, WIDE
from .vectors import (
    VECTOR_BYTES,
    WORD,
    Rows,
    at,
    counted,
    in_machine_code,
    overlapping,
    parts_of,
    shuffled,
)

__all__ = ["add_rectangle", "copy_lines", "copy_listed", "copy_panels", "copy_rectangle"]
__all__ += ["copy_lines_at", "copy_rows_at", "copy_second", "transpose", "turned"]


def turned(builder: Any, lines: list[Any]) -> list[Any]:
    """The columns of a square of vectors, as vectors.

    To interleave line i with line i + lanes / 2, log2(lanes) times over, is to transpose.
    """
    lanes, half = len(lines), len(lines) // 2
    low = [i // 2 + lanes * (i % 2) for i in range(lanes)]
    high = [half + place for place in low]
    for _ in range(lanes.bit_length() - 1):
        pairs = list(zip(lines[:half], lines[half:], strict=True))
        lines = [shuffled(builder, *pair, order) for pair in pairs for order in (low, high)]
    return lines


@in_machine_code
def transpose(builder, kind, x, x_row, rows, columns, out, out_row):
    """Write ``rows`` by ``columns`` numbers, at most a square of lanes, as columns by rows.

    x, out: addresses; x_row, out_row: bytes from row to row. ``out`` has room for the whole square;
    what lies outside the part asked for is undefined. Halves become float32.
    """
    lanes = kind.count
    given = Rows(builder, kind, 1, columns)
    last = builder.sub(rows, WORD(1))
    lines = []
    for i in range(lanes):
        within = builder.icmp_signed("<", WORD(i), last)
        row = builder.select(within, WORD(i), last)
        lines += given.load(builder.add(x, builder.mul(row, x_row)))
    lines = turned(builder, lines)
    for line in lines:
        builder.store(line, at(builder, out, kind), align=given.align)
        out = builder.add(out, out_row)


@in_machine_code
def copy_panels(builder, kind, out, out_panel, x, x_row, rows, panels):
    """Write ``rows`` of ``PANEL * panels`` numbers from the address x to as many panels at out.

    A panel has rows of ``PANEL`` numbers without gaps, of which the last may write a vector more;
    x_row, out_panel: bytes from one to the next.
    """
    width = PANEL * VECTOR_BYTES // kind.count
    vectors = -(-PANEL // kind.count)
    lines = Rows(builder, kind, vectors, WORD(PANEL - (vectors - 1) * kind.count))
    whole = Rows(builder, kind, vectors, None)
    with cgutils.for_range(builder, rows) as row:
        start = builder.add(x, builder.mul(row.index, x_row))
        first = builder.add(out, builder.mul(row.index, WORD(width)))
        with cgutils.for_range(builder, panels) as panel:
            values = lines.load(builder.add(start, builder.mul(panel.index, WORD(width))))
            whole.store(values, builder.add(first, builder.mul(panel.index, out_panel)))


@in_machine_code
def copy_lines(builder, kind, out, x, x_row, rows, columns):
    """Write ``rows`` of ``WIDE`` vectors from the address x to out, without gaps; x_row: bytes.

    columns: how many there are in the last vector, zeros come after them; with AVX2 all.
    """
    lines = Rows(builder, kind, WIDE, None if FULL else columns)
    whole = Rows(builder, kind, WIDE, None)
    with cgutils.for_range(builder, rows) as row:
        values = lines.load(builder.add(x, builder.mul(row.index, x_row)))
        whole.store(values, builder.add(out, builder.mul(row.index, WORD(WIDE * VECTOR_BYTES))))


@in_machine_code
def copy_listed(builder, kind, out, places, shift, rows, columns):
    """Write ``rows`` of so many numbers to out, in lines of ``WIDE`` vectors; all of the last.

    places: the address of int64: row i is at ``shift + places[i]``.
    """
    vectors = parts_of(builder, columns, kind.count)
    with counted(builder, rows) as i:
        place = builder.load(at(builder, builder.add(places, builder.shl(i, WORD(3))), WORD))
        row = builder.add(shift, place)
        to = builder.add(out, builder.mul(i, WORD(WIDE * VECTOR_BYTES)))
        all_ = builder.icmp_signed("==", vectors, WORD(WIDE))
        with builder.if_else(all_) as (wide, narrow):
            with wide:
                whole = Rows(builder, kind, WIDE, None)
                whole.store(whole.load(row), to)
            with narrow, counted(builder, vectors) as part:
                moved = builder.mul(part, WORD(VECTOR_BYTES))
                one = Rows(builder, kind, 1, None)
                one.store(one.load(builder.add(row, moved)), builder.add(to, moved))


@in_machine_code
def copy_rectangle(builder, kind, out, out_row, x, x_row, rows, columns):
    """Write ``rows`` by ``columns`` numbers from the address x to out; ``*_row``: bytes.

    What is written is not read. A line of ten takes 4 ns with AVX-512, LLVM's own loop over it 6.
    To add lines to one another its loop is the faster one: what a masked store wrote is slow to
    read again.
    """
    if FULL:
        _copy_columns(builder, kind, out, out_row, x, x_row, rows, columns)
        return
    lanes = WORD(kind.count)
    blocks = builder.udiv(builder.add(columns, WORD(kind.count - 1)), lanes)
    with cgutils.for_range(builder, blocks) as block:
        shift = builder.mul(block.index, WORD(VECTOR_BYTES))
        line = Rows(builder, kind, 1, builder.sub(columns, builder.mul(block.index, lanes)))
        with cgutils.for_range(builder, rows) as row:
            from_ = builder.add(builder.add(x, shift), builder.mul(row.index, x_row))
            to = builder.add(builder.add(out, shift), builder.mul(row.index, out_row))
            line.store(line.load(from_), to)


@in_machine_code
def copy_lines_at(builder, kind, out, out_row, x, x_row, rows, columns):
    """``copy_rectangle`` of bytes, which no processor masks."""
    _copy_columns(builder, kind, out, out_row, x, x_row, rows, columns)


def _copy_columns(builder, kind, out, out_row, x, x_row, rows, columns):
    """Copy rows by whole vectors, the last of which may lie over the one before it."""
    for width, begin in overlapping(builder, kind.count, columns):
        for value, to in _column(builder, kind, width, begin, x, x_row, rows, out, out_row):
            builder.store(value, to, align=VECTOR_BYTES // kind.count)


@in_machine_code
def copy_second(builder, kind, out, out_row, x, x_row, rows, columns):
    """``out[i, j] = x[i, 2 j]`` for addresses and so many rows and columns of out; ``*_row``:
    bytes. LLVM's own loop moves number by number."""
    lanes, size = kind.count, VECTOR_BYTES // kind.count
    seconds = list(range(0, 2 * lanes, 2))
    with counted(builder, parts_of(builder, columns, lanes)) as part:
        done = builder.mul(part, WORD(lanes))
        left = builder.sub(columns, done)
        spread = builder.sub(builder.mul(left, WORD(2)), WORD(1))
        line = Rows(builder, kind, 1, left)
        lows, highs = (
            Rows(builder, kind, 1, builder.sub(spread, WORD(first))) for first in (0, lanes)
        )
        from_ = builder.add(x, builder.mul(done, WORD(2 * size)))
        to = builder.add(out, builder.mul(done, WORD(size)))
        with counted(builder, rows) as i:
            here = builder.add(from_, builder.mul(i, x_row))
            (low,), (high,) = lows.load(here), highs.load(builder.add(here, WORD(VECTOR_BYTES)))
            value = shuffled(builder, low, high, seconds)
            line.store([value], builder.add(to, builder.mul(i, out_row)))


@in_machine_code
def copy_rows_at(builder, kind, out, x, row_bytes, index, count, m, skip):
    """Write the rows of x at ``count`` int64 of index to out; ``kind`` are bytes.

    out, x, index: addresses; x has m rows, negative indices count from its end. skip: an index
    whose rows become 0, or -1. What is written is not read. LLVM's own loop asks for each row
    whether the two overlap, and copies one shorter than four vectors number by number.
    """
    width, one = kind.count, ir.IntType(8)
    while width:
        part = ir.VectorType(one, width)
        fits = builder.icmp_signed(">=", row_bytes, WORD(width))
        if width < kind.count:
            fits = builder.and_(fits, builder.icmp_signed("<", row_bytes, WORD(2 * width)))
        with builder.if_then(fits):
            last = builder.sub(row_bytes, WORD(width))
            with counted(builder, count) as i:
                place = builder.load(at(builder, builder.add(index, builder.shl(i, WORD(3))), WORD))
                ended = builder.icmp_signed("<", place, WORD(0))
                place = builder.select(ended, builder.add(place, m), place)
                from_ = builder.add(x, builder.mul(place, row_bytes))
                to = builder.add(out, builder.mul(i, row_bytes))
                rest = part, to, from_, builder.icmp_signed("==", place, skip)
                if width == kind.count:
                    before = builder.udiv(builder.add(last, WORD(width - 1)), WORD(width))
                    with counted(builder, before) as block:
                        begin = builder.mul(block, WORD(width))
                        _copy(builder, *rest, begin)
                else:
                    _copy(builder, *rest, WORD(0))
                # The last part may lie over the one before it.
                _copy(builder, *rest, last)
        width //= 2


def _copy(builder, part, out, x, skipped, shift):
    """Write a vector ``part`` from so many bytes after x, or zeros, as many after out."""
    value = builder.load(at(builder, builder.add(x, shift), part), align=1)
    value = builder.select(skipped, ir.Constant(part, None), value)
    builder.store(value, at(builder, builder.add(out, shift), part), align=1)


@in_machine_code
def add_rectangle(builder, kind, out, out_row, x, x_row, rows, columns):
    """Add ``rows`` by ``columns`` numbers at the address x to those at out; ``*_row``: bytes.

    By whole vectors, then halves, and halves of those: nothing is added twice, or masked.
    """
    if isinstance(kind.element, ir.IntType):
        return  # elements that are moved as bits are added up as float32
    align, width = VECTOR_BYTES // kind.count, kind.count
    while width:
        blocks = builder.udiv(columns, WORD(width))
        if width < kind.count:
            blocks = builder.and_(blocks, WORD(1))
        with cgutils.for_range(builder, blocks) as block:
            begin = builder.mul(block.index, WORD(width))
            if width < kind.count:
                begin = builder.and_(columns, WORD(-2 * width))
            for value, to in _column(builder, kind, width, begin, x, x_row, rows, out, out_row):
                builder.store(builder.fadd(builder.load(to, align=align), value), to, align=align)
        width //= 2


def _column(builder, kind, width, begin, x, x_row, rows, out, out_row):
    """A loop over rows: ``width`` numbers from column ``begin`` on, and their place in out."""
    itemsize = VECTOR_BYTES // kind.count
    part, shift = ir.VectorType(kind.element, width), builder.mul(begin, WORD(itemsize))
    with cgutils.for_range(builder, rows) as row:
        from_ = builder.add(builder.add(x, shift), builder.mul(row.index, x_row))
        to = builder.add(builder.add(out, shift), builder.mul(row.index, out_row))
        yield builder.load(at(builder, from_, part), align=itemsize), at(builder, to, part)
