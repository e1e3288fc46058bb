"""The vector instructions of a convolution of one channel: a kernel slides over a padded image.

A tap of the kernel is a place in the image, so many bytes beyond that of the result it belongs to.
``cpu/depthwise.py`` makes such images, and says where taps lie; of a stride of two columns with
``apart`` and ``between``. Start at ``slide``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from .tile import multiply_add
from .vectors import (
    WORD,
    Rows,
    at,
    by_halves,
    bytes_of,
    counted,
    in_machine_code,
    load_number,
    parts_of,
    places_from,
    shuffled,
    spread,
    store_number,
)

__all__ = ["apart", "between", "slide", "taps_grad"]

LINES = 8
"""Lines of the result that are summed at once: a sum waits four cycles for each of its products."""

TAPS = 8
"""Taps whose gradients are summed at once."""


def _zeros(builder: Any, kind: Any, count: int) -> list[Any]:
    sums = [cgutils.alloca_once(builder, kind) for _ in range(count)]
    for total in sums:
        builder.store(ir.Constant(kind, [0.0] * kind.count), total)
    return sums


@in_machine_code
def slide(builder, kind, rows, columns, taps, x, x_row, places, weight, first, adds, out, out_row):
    """``out[i, j] = first + sum over t of weight[t] x[i, j + places[t]]``, all addresses.

    rows, columns: of out; ``*_row``: bytes from line to line; places: of each tap, in bytes; first:
    where a number stands to begin with, or 0; adds: whether to what is in out. Reads whole vectors
    of x, of which those beyond the columns count for nothing.
    """
    lanes, size = kind.count, bytes_of(kind)
    whole = Rows(builder, kind, 1, None)
    begin = cgutils.alloca_once(builder, kind)
    builder.store(ir.Constant(kind, [0.0] * lanes), begin)
    with builder.if_then(builder.icmp_signed("!=", first, WORD(0))):
        builder.store(spread(builder, load_number(builder, kind, first), lanes), begin)
    with counted(builder, parts_of(builder, rows, LINES)) as block:
        lines = places_from(builder, builder.mul(block, WORD(LINES)), LINES, rows)
        starts = [builder.add(x, builder.mul(i, x_row)) for i in lines]
        ends = [builder.add(out, builder.mul(i, out_row)) for i in lines]
        with counted(builder, parts_of(builder, columns, lanes)) as part:
            column = builder.mul(part, WORD(lanes))
            shift = builder.mul(column, WORD(size))
            sums = _zeros(builder, kind, LINES)
            for total in sums:
                builder.store(builder.load(begin), total)
            with counted(builder, taps) as tap:
                place = builder.add(places, builder.mul(tap, WORD(8)))
                place = builder.add(shift, builder.load(at(builder, place, WORD), align=8))
                at_tap = builder.add(weight, builder.mul(tap, WORD(size)))
                factor = spread(builder, load_number(builder, kind, at_tap), lanes)
                for start, total in zip(starts, sums, strict=True):
                    (value,) = whole.load(builder.add(start, place))
                    new = multiply_add(builder, value, factor, builder.load(total))
                    builder.store(new, total)
            line = Rows(builder, kind, 1, builder.sub(columns, column))
            to = [builder.add(end, shift) for end in ends]
            with builder.if_then(builder.icmp_signed("!=", adds, WORD(0))):
                # All are read before any is written: one may stand here twice.
                old = [line.load(place)[0] for place in to]
                for more, total in zip(old, sums, strict=True):
                    builder.store(builder.fadd(more, builder.load(total)), total)
            for total, place in zip(sums, to, strict=True):
                line.store([builder.load(total)], place)


@in_machine_code
def taps_grad(builder, kind, rows, columns, taps, x, x_row, places, g, g_row, out):
    """``out[t] += sum over i, j of g[i, j] x[i, j + places[t]]``, all addresses; g has so many rows
    and columns."""
    lanes, size = kind.count, bytes_of(kind)
    with counted(builder, parts_of(builder, taps, TAPS)) as group:
        first = builder.mul(group, WORD(TAPS))
        these = places_from(builder, first, TAPS, taps)
        shifts = [
            builder.load(at(builder, builder.add(places, builder.mul(t, WORD(8))), WORD), align=8)
            for t in these
        ]
        sums = _zeros(builder, kind, TAPS)
        with counted(builder, parts_of(builder, columns, lanes)) as part:
            column = builder.mul(part, WORD(lanes))
            line = Rows(builder, kind, 1, builder.sub(columns, column))
            shift = builder.mul(column, WORD(size))
            with counted(builder, rows) as i:
                (factor,) = line.load(builder.add(builder.add(g, shift), builder.mul(i, g_row)))
                start = builder.add(builder.add(x, shift), builder.mul(i, x_row))
                for place, total in zip(shifts, sums, strict=True):
                    (value,) = line.load(builder.add(start, place))
                    new = multiply_add(builder, value, factor, builder.load(total))
                    builder.store(new, total)
        for i, total in enumerate(sums):
            tap = builder.add(first, WORD(i))
            with builder.if_then(builder.icmp_signed("<", tap, taps)):
                place = builder.add(out, builder.mul(tap, WORD(size)))
                found = by_halves(builder, builder.load(total), ir.IRBuilder.fadd)
                old = load_number(builder, kind, place)
                store_number(builder, kind, builder.fadd(old, found), place)


def _half(builder: Any, kind: Any, columns: Any) -> Rows:
    """Lines of half a vector, of which so many columns are touched."""
    lines = Rows(builder, ir.VectorType(kind.element, kind.count // 2), 1, columns)
    lines.align = bytes_of(kind)
    return lines


@in_machine_code
def apart(builder, kind, rows, columns, x, x_row, even, odd, to_row):
    """``even[i, j] = x[i, 2 j]`` and ``odd[i, j] = x[i, 2 j + 1]``, all addresses; columns: of x;
    ``*_row``: bytes from line to line."""
    lanes, size = kind.count, bytes_of(kind)
    with counted(builder, parts_of(builder, columns, lanes)) as part:
        done = builder.mul(part, WORD(lanes))
        left = builder.sub(columns, done)
        from_ = builder.add(x, builder.mul(done, WORD(size)))
        shift = builder.mul(part, WORD(lanes // 2 * size))
        whole = Rows(builder, kind, 1, left)
        counts = parts_of(builder, left, 2), builder.udiv(left, WORD(2))
        targets = [builder.add(to, shift) for to in (even, odd)]
        halves = [_half(builder, kind, count) for count in counts]
        with counted(builder, rows) as i:
            (value,) = whole.load(builder.add(from_, builder.mul(i, x_row)))
            down = builder.mul(i, to_row)
            for first, lines, to in zip((0, 1), halves, targets, strict=True):
                found = shuffled(builder, value, value, list(range(first, lanes, 2)))
                lines.store([found], builder.add(to, down))


@in_machine_code
def between(builder, kind, rows, columns, x, x_row, to, to_row):
    """``to[i, 2 j] = x[i, j]`` with zeros in between, all addresses; columns: of x."""
    lanes, size = kind.count, bytes_of(kind)
    half = lanes // 2
    with counted(builder, parts_of(builder, columns, half)) as part:
        done = builder.mul(part, WORD(half))
        left = builder.sub(columns, done)
        from_ = builder.add(x, builder.mul(done, WORD(size)))
        target = builder.add(to, builder.mul(done, WORD(2 * size)))
        lines = _half(builder, kind, left)
        whole = Rows(builder, kind, 1, builder.sub(builder.mul(left, WORD(2)), WORD(1)))
        nothing = ir.Constant(lines.kind, [0.0] * half)
        places = [k // 2 + half * (k % 2) for k in range(lanes)]
        with counted(builder, rows) as i:
            (value,) = lines.load(builder.add(from_, builder.mul(i, x_row)))
            found = shuffled(builder, value, nothing, places)
            whole.store([found], builder.add(target, builder.mul(i, to_row)))
