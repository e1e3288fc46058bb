"""The vector instructions of bags: the rows of a table at some places, summed up in registers, or
the largest of them. The loops over bags are in ``cpu/bags.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from .tile import multiply_add
from .vectors import (
    WORD,
    Rows,
    at,
    bytes_of,
    counted,
    in_machine_code,
    load_number,
    parts_of,
    spread,
)

__all__ = ["largest_rows_at", "sum_rows_at"]

WIDE = 4
"""Most vectors of columns that are summed at once: enough for the additions not to wait."""

AHEAD = 12
"""So many rows before one is read it is asked for."""


class Table:
    """Bags of rows of a matrix x: pieces of an index, of which ``bags.py`` says where they begin.

    x, index, starts: addresses; starts: of ``count`` int64 or, with count 0, all bags have ``each``
    of the ``n`` entries; fewer than 2^31 where a place goes with a float32. ``bounds`` as in
    ``cpu/bags.py``.
    """

    def __init__(self, builder: Any, kind: Any, x: Any, columns: Any, index: Any, *pieces: Any):
        self.builder, self.kind, self.x, self.index = builder, kind, x, index
        self.n, self.starts, self.count, self.each = pieces
        self.columns, self.row_bytes = columns, builder.mul(columns, WORD(bytes_of(kind)))

    def word(self, array: Any, i: Any) -> Any:
        """Number i of an array of int64."""
        where = self.builder.add(array, self.builder.mul(i, WORD(8)))
        return self.builder.load(at(self.builder, where, WORD), align=8)

    def bounds(self, bag: Any) -> tuple[Any, Any]:
        """Where a bag begins, and where it ends."""
        builder, after = self.builder, self.builder.add(bag, WORD(1))
        begin, end = (cgutils.alloca_once(builder, WORD) for _ in range(2))
        builder.store(builder.mul(bag, self.each), begin)
        builder.store(builder.mul(after, self.each), end)
        with builder.if_then(builder.icmp_signed("!=", self.count, WORD(0))):
            builder.store(self.word(self.starts, bag), begin)
            builder.store(self.n, end)
            with builder.if_then(builder.icmp_signed("<", after, self.count)):
                builder.store(self.word(self.starts, after), end)
        return builder.load(begin), builder.load(end)

    def read(self, lines: Rows, column: Any, bag: Any, skip: Any, use: Any) -> None:
        """Call ``use`` with the number of each entry of a bag but ``skip``, and its row from
        ``column`` on."""
        builder = self.builder
        start = builder.add(self.x, builder.mul(column, WORD(bytes_of(self.kind))))
        begin, end = self.bounds(bag)
        last = builder.sub(self.n, WORD(1))
        with counted(builder, builder.sub(end, begin)) as passed:
            i = builder.add(begin, passed)
            later = builder.add(i, WORD(AHEAD))
            later = builder.select(builder.icmp_signed("<", later, last), later, last)
            after = builder.mul(self.word(self.index, later), self.row_bytes)
            lines.prefetch(builder.add(start, after), writes=False)
            place = self.word(self.index, i)
            with builder.if_then(builder.icmp_signed("!=", place, skip), likely=True):
                row = builder.add(start, builder.mul(place, self.row_bytes))
                use(i, lines.load(row))

    def by_columns(self, first: Any, last: Any, block: Callable[[Rows, Any, Any], None]) -> None:
        """Call ``block`` for columns of some vectors, their first, and a bag from first to before
        last; then for the columns that are left."""
        builder, lanes = self.builder, self.kind.count

        def bags(lines: Rows, column: Any) -> None:
            with counted(builder, builder.sub(last, first)) as i:
                block(lines, column, builder.add(first, i))

        whole = builder.udiv(self.columns, WORD(WIDE * lanes))
        with counted(builder, whole) as i:
            bags(Rows(builder, self.kind, WIDE, None), builder.mul(i, WORD(WIDE * lanes)))
        done = builder.mul(whole, WORD(WIDE * lanes))
        two = builder.udiv(builder.sub(self.columns, done), WORD(2 * lanes))
        with builder.if_then(builder.icmp_signed("!=", two, WORD(0))):
            bags(Rows(builder, self.kind, 2, None), done)
        done = builder.add(done, builder.mul(two, WORD(2 * lanes)))
        left = builder.sub(self.columns, done)
        with counted(builder, parts_of(builder, left, lanes)) as i:
            begin = builder.mul(i, WORD(lanes))
            lines = Rows(builder, self.kind, 1, builder.sub(left, begin))
            bags(lines, builder.add(done, begin))

    def place(self, array: Any, bag: Any, column: Any, size: int) -> Any:
        """The address of a number of a bag in a matrix as wide as x, of so many bytes each."""
        flat = self.builder.add(self.builder.mul(bag, self.columns), column)
        return self.builder.add(array, self.builder.mul(flat, WORD(size)))


def _variables(builder: Any, first: Any, count: int) -> list[Any]:
    """So many variables that begin as ``first``."""
    made = [cgutils.alloca_once(builder, first.type) for _ in range(count)]
    for variable in made:
        builder.store(first, variable)
    return made


def _count(builder: Any, found: Any) -> None:
    builder.store(builder.add(builder.load(found), WORD(1)), found)


@in_machine_code
def sum_rows_at(
    builder, kind, first, last, out, x, columns, index, n, starts, count, each, factors, skip, mean
):
    """Write the sums of rows of the bags from first to before last to those rows of out.

    Arguments: of ``Table``; factors: an address of n numbers, or 0; skip: an index that does not
    count; mean: whether to divide by how many do.
    """
    lanes, size = kind.count, bytes_of(kind)
    table = Table(builder, kind, x, columns, index, n, starts, count, each)

    def block(lines: Rows, column: Any, bag: Any) -> None:
        sums = _variables(builder, ir.Constant(kind, [0.0] * lanes), lines.vectors)
        (found,) = _variables(builder, WORD(0), 1)

        def add(i: Any, values: list[Any]) -> None:
            for value, total in zip(values, sums, strict=True):
                builder.store(builder.fadd(builder.load(total), value), total)
            _count(builder, found)

        def add_product(i: Any, values: list[Any]) -> None:
            from_ = builder.add(factors, builder.mul(i, WORD(size)))
            factor = spread(builder, load_number(builder, kind, from_), lanes)
            for value, total in zip(values, sums, strict=True):
                builder.store(multiply_add(builder, value, factor, builder.load(total)), total)

        with builder.if_else(builder.icmp_signed("==", factors, WORD(0))) as (plain, weighted):
            with plain:
                table.read(lines, column, bag, skip, add)
            with weighted:
                table.read(lines, column, bag, skip, add_product)
        several = builder.icmp_signed(">", builder.load(found), WORD(1))
        with builder.if_then(builder.and_(several, builder.icmp_signed("!=", mean, WORD(0)))):
            many = spread(builder, builder.sitofp(builder.load(found), kind.element), lanes)
            for total in sums:
                builder.store(builder.fdiv(builder.load(total), many), total)
        to = table.place(out, bag, column, size)
        lines.store([builder.load(total) for total in sums], to)

    table.by_columns(first, last, block)


@in_machine_code
def largest_rows_at(
    builder, kind, first, last, out, places, x, columns, index, n, starts, count, each, skip
):
    """Write the largest number of each column of bags to their rows of out, NaN before all, and the
    first entry that it is from to places, int64; 0 and -1 where none counts. Arguments as above."""
    lanes, size = kind.count, bytes_of(kind)
    number = ir.IntType(8 * size)
    numbers, words = ir.VectorType(number, lanes), ir.VectorType(WORD, lanes)
    table = Table(builder, kind, x, columns, index, n, starts, count, each)

    def block(lines: Rows, column: Any, bag: Any) -> None:
        best = _variables(builder, ir.Constant(kind, [0.0] * lanes), lines.vectors)
        from_ = _variables(builder, ir.Constant(numbers, [-1] * lanes), lines.vectors)
        (found,) = _variables(builder, WORD(0), 1)

        def compare(i: Any, values: list[Any]) -> None:
            none = builder.icmp_signed("==", builder.load(found), WORD(0))
            fresh = spread(builder, none, lanes)
            i = builder.trunc(i, number) if number.width < WORD.width else i
            this = spread(builder, i, lanes)
            for value, largest, place in zip(values, best, from_, strict=True):
                old = builder.load(largest)
                more = builder.fcmp_unordered(">", value, old)  # or one of both is NaN
                more = builder.and_(more, builder.fcmp_ordered("ord", old, old))
                more = builder.or_(more, fresh)
                builder.store(builder.select(more, value, old), largest)
                builder.store(builder.select(more, this, builder.load(place)), place)
            _count(builder, found)

        table.read(lines, column, bag, skip, compare)
        values = [builder.load(largest) for largest in best]
        lines.store(values, table.place(out, bag, column, size))
        to = table.place(places, bag, column, 8)
        for j, place in enumerate(from_):
            left = builder.sub(columns, builder.add(column, WORD(j * lanes)))
            line = Rows(builder, words, 1, left)
            value = builder.load(place)
            value = builder.sext(value, words) if number.width < WORD.width else value
            line.store([value], builder.add(to, WORD(8 * j * lanes)))

    table.by_columns(first, last, block)
