"""The vector instructions of few rows times a transposed matrix: sums along rows of both.

Tiles would turn the matrix first, which takes longer than to multiply a few rows by it. Here each
number of the result is a sum of products of whole vectors, whose lanes are added up at the end,
those of four numbers together. Start at ``rows_by_rows``; ``cpu/gemm.py`` says when it is taken.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from .half_vectors import HalfVector
from .tile import multiply_add
from .vectors import (
    VECTOR_BYTES,
    WORD,
    Rows,
    bytes_of,
    counted,
    in_machine_code,
    parts_of,
    places_from,
    shuffled,
)

__all__ = ["rows_by_rows"]

TOGETHER = 4
"""Rows of the matrix whose sums are made, and their lanes added up, side by side."""

AT_ONCE = 4 if VECTOR_BYTES == 64 else 2
"""Rows that are multiplied at once: with four of the matrix 16 sums in half of AVX-512's registers,
8 in half of AVX2's. A second tile of fewer rows would take LLVM 0.2 s."""


def _summed(builder: Any, four: list[Any]) -> Any:
    """The sums of the lanes of four vectors, as one of four lanes."""
    lanes = four[0].type.count
    group = lanes  # lanes that belong to one sum
    while len(four) > 1:
        group //= 2
        joined = []
        for x, y in zip(four[::2], four[1::2], strict=True):
            firsts = [k for k in range(2 * lanes) if k // group % 2 == 0]
            low = shuffled(builder, x, y, firsts)
            high = shuffled(builder, x, y, [k + group for k in firsts])
            joined.append(builder.fadd(low, high))
        four = joined
    (total,) = four
    while group > 1:
        group //= 2
        other = [k ^ group for k in range(lanes)]
        total = builder.fadd(total, shuffled(builder, total, total, other))
    return shuffled(builder, total, total, [k * lanes // TOGETHER for k in range(TOGETHER)])


def _sums(builder: Any, kind: Any, k: Any, x: list[Any], y: list[Any]) -> list[Any]:
    """Of the rows at each address x: its sums of products with the rows at the addresses y."""
    lanes, size = kind.count, bytes_of(kind)
    totals = [[cgutils.alloca_once(builder, kind) for _ in y] for _ in x]
    for row in totals:
        for total in row:
            builder.store(ir.Constant(kind, [0.0] * lanes), total)
    steps = builder.udiv(builder.add(k, WORD(lanes - 1)), WORD(lanes))
    with counted(builder, steps) as step:
        done = builder.mul(step, WORD(lanes))
        lines = Rows(builder, kind, 1, builder.sub(k, done))  # the last may be part of a vector
        shift = builder.mul(done, WORD(size))
        factors = [lines.load(builder.add(place, shift))[0] for place in y]
        for place, row in zip(x, totals, strict=True):
            (value,) = lines.load(builder.add(place, shift))
            for factor, total in zip(factors, row, strict=True):
                new = multiply_add(builder, value, factor, builder.load(total))
                builder.store(new, total)
    return [_summed(builder, [builder.load(total) for total in row]) for row in totals]


@in_machine_code
def rows_by_rows(builder, kind, n, m, k, x, x_row, y, y_row, start, start_row, out, out_row):
    """``out = start + x y.T``, all addresses; ``start`` 0: ``out = x y.T``.

    x is n by k, y m by k, their numbers side by side; ``*_row``: bytes from one row to the next.
    Where a tile has more rows than are left, or columns, the last one stands for those.
    """
    size = bytes_of(kind)

    def moved(first: Any, places: list[Any], row: Any) -> list[Any]:
        return [builder.add(first, builder.mul(i, row)) for i in places]

    def tile(first: Any, column: Any) -> None:
        rows, shift = places_from(builder, first, AT_ONCE, n), builder.mul(column, WORD(size))
        right = moved(y, places_from(builder, column, TOGETHER, m), y_row)
        sums = _sums(builder, kind, k, moved(x, rows, x_row), right)
        half = isinstance(kind, HalfVector)
        four = HalfVector(TOGETHER, kind.half) if half else sums[0].type
        line = Rows(builder, four, 1, builder.sub(m, column))
        line.align = size
        to = moved(builder.add(out, shift), rows, out_row)
        with builder.if_then(builder.icmp_signed("!=", start, WORD(0))):
            # All are read before any is written: one may stand here twice.
            from_ = moved(builder.add(start, shift), rows, start_row)
            old = [line.load(place)[0] for place in from_]
            for value, more, place in zip(sums, old, to, strict=True):
                line.store([builder.fadd(more, value)], place)
        with builder.if_then(builder.icmp_signed("==", start, WORD(0))):
            for value, place in zip(sums, to, strict=True):
                line.store([value], place)

    with counted(builder, parts_of(builder, m, TOGETHER)) as block:
        with counted(builder, parts_of(builder, n, AT_ONCE)) as which:
            tile(builder.mul(which, WORD(AT_ONCE)), builder.mul(block, WORD(TOGETHER)))
