"""The vector instructions of products of halves: strips of tiles, and how factors are packed.

Factors are packed in words of 32 bits, of which a tile multiplies one of each with one instruction:
two bfloat16 beside each other along the sum, where the processor multiplies pairs, and else a
float32. Sums are float32, and are rounded to halves when the last word has been added. Tiles are
those of ``tile.py``; the loops around these functions are in ``cpu/half_product.py``.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from .half_vectors import PAIRS, SHORT, HalfVector, add_pairs, narrowed
from .tile import FULL, HEIGHTS, WIDE, down_a_strip, multiply_add, prefetch_rows, sums_of_tile
from .vectors import VECTOR_BYTES, WORD, Rows, at, counted, in_machine_code

__all__ = ["LINE", "fetch_rows", "middle_halves", "narrow_halves", "pad_rows", "pair_listed"]
__all__ += ["pair_rows", "round_listed", "round_pairs", "round_rows", "wide_halves", "widen_listed"]
__all__ += ["widen_rows"]

LINE = 2 * VECTOR_BYTES
"""Bytes of which rows of packed words are a multiple."""


def _strip(vectors: int, full: bool = False) -> Any:
    def strip(
        builder, kind,
        n, k, x, x_row, x_col, y, y_row, start, start_row, out, out_row, columns, rounds,
    ):  # fmt: skip
        """``out = start + x y`` in a strip of columns, all addresses; ``start`` 0: ``out = x y``.

        x, y are words, n by k and k by whole vectors; ``*_row``, ``*_col``: bytes from one to the
        next. columns: how many there are in the last vector. start is float32, and so is out,
        but halves if ``rounds``. With ``start_row`` 0 the start is the same in each row.
        """
        if not isinstance(kind, HalfVector):
            return
        paired = PAIRS and kind.half == "bfloat16"
        times, align = (add_pairs, 2) if paired else (multiply_add, 4)
        words = ir.VectorType(kind.element, kind.count)
        right = Rows(builder, words, vectors, None)
        floats, halves = (Rows(builder, each, vectors, None if full else columns)
                          for each in (words, kind))  # fmt: skip

        def tile(height, x, start, out):
            prefetch_rows(builder, height, floats, out, out_row)
            new = sums_of_tile(
                builder, height, right, k, (x, x_row, x_col), (y, y_row), times, align
            )
            new = _plus(builder, floats, new, start, start_row)
            with builder.if_else(builder.icmp_signed("!=", rounds, WORD(0))) as (last, before):
                for branch, lines in ((last, halves), (before, floats)):
                    with branch:
                        to = out
                        for row in new:
                            lines.store(row, to)
                            to = builder.add(to, out_row)

        moving = (x, x_row, None), (start, start_row, None), (out, out_row, None)
        down_a_strip(builder, HEIGHTS[vectors], n, moving, tile)

    return in_machine_code(strip, f"half_strip_{vectors}{'_full' if full else ''}")


def _plus(builder: Any, lines: Rows, sums: Any, start: Any, start_row: Any) -> Any:
    """Rows of sums, with rows at an address added to them if that is not 0."""
    before = builder.block
    adding, after = (builder.append_basic_block(name) for name in ("adding", "added"))
    builder.cbranch(builder.icmp_signed("!=", start, WORD(0)), adding, after)
    builder.position_at_end(adding)
    more = []
    for row in sums:
        old = lines.load(start)
        more.append([builder.fadd(*pair) for pair in zip(old, row, strict=True)])
        start = builder.add(start, start_row)
    builder.branch(after)
    builder.position_at_end(after)
    found = []
    for row, other in zip(sums, more, strict=True):
        phis = [builder.phi(value.type) for value in row]
        for phi, value, sum_ in zip(phis, row, other, strict=True):
            phi.add_incoming(value, before)
            phi.add_incoming(sum_, adding)
        found.append(phis)
    return found


wide_halves, middle_halves, narrow_halves = _strip(WIDE, full=FULL), _strip(2), _strip(1)


AHEAD = 32
"""Rows ahead of which a factor is fetched as it is packed: they lie too far apart for the processor
to see what comes next."""


@in_machine_code
def fetch_rows(builder, kind, place, row, rows):
    """Fetch what is at an address, and ``row`` bytes further, so many times; it need not exist."""
    with counted(builder, rows) as i:
        fetch(builder, builder.add(place, builder.mul(i, row)))


def fetch(builder: Any, address: Any) -> None:
    """Fetch a line of memory that will be read, if there is any."""
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [builder.inttoptr(address, byte), number(0), number(3), number(1)])


def _both_ways(build: Any) -> tuple[Any, Any]:
    """What ``build`` writes where rows of x lie ``x_row`` bytes from one another, and where x is
    the address of a list of their places, in bytes beyond ``x_row``: ``LISTED`` of ``product.py``.
    """

    def regular(builder, kind, out, out_row, x, x_row, rows, columns):
        build(builder, kind, False, out, out_row, x, x_row, rows, columns)

    def listed(builder, kind, out, out_row, x, x_row, rows, columns):
        build(builder, kind, True, out, out_row, x, x_row, rows, columns)

    regular.__doc__ = listed.__doc__ = build.__doc__
    name = build.__name__.removeprefix("_")
    return in_machine_code(regular, name), in_machine_code(listed, f"{name}_listed")


def _row(builder, listed, x, x_row, i):
    """The address of row ``i``."""
    if not listed:
        return builder.add(x, builder.mul(i, x_row))
    place = at(builder, builder.add(x, builder.shl(i, WORD(3))), WORD)
    return builder.add(x_row, builder.load(place))


@contextmanager
def _two_rows(builder, listed, out, out_row, x, x_row, rows):
    """A loop over pairs of rows of x: both addresses, whether there is the second, and where they
    go."""
    last = builder.sub(rows, WORD(1))
    with counted(builder, builder.lshr(builder.add(rows, WORD(1)), WORD(1))) as i:
        above = builder.shl(i, WORD(1))
        there = builder.icmp_signed("<", above, last)
        next_ = builder.select(there, builder.or_(above, WORD(1)), above)
        first, second = (_row(builder, listed, x, x_row, j) for j in (above, next_))
        yield first, second, there, builder.add(out, builder.mul(i, out_row))


def _pair_rows(builder, kind, listed, out, out_row, x, x_row, rows, columns):
    """Write the halves of rows 2 i and 2 i + 1 of x side by side, as words, to row i of out.

    out, x: addresses; ``*_row``: bytes, out has whole ``LINE``s. Zeros stand for what is beyond
    the rows and columns of x.
    """
    if not PAIRS:
        return
    lanes = 2 * kind.count
    numbers = ir.VectorType(ir.IntType(32), lanes)
    orders = [
        ir.Constant(numbers, [base + i // 2 + lanes * (i % 2) for i in range(lanes)])
        for base in (0, lanes // 2)
    ]
    ahead = builder.mul(x_row, WORD(AHEAD))
    with _two_rows(builder, listed, out, out_row, x, x_row, rows) as (first, second, there, to):
        for (line,), chunk in _chunks(builder, ir.VectorType(SHORT, lanes), columns):
            shift = builder.mul(chunk, WORD(VECTOR_BYTES))
            for row in () if listed else (first, second):
                fetch(builder, builder.add(builder.add(row, shift), ahead))
            (one,), (other,) = (line.load(builder.add(row, shift)) for row in (first, second))
            other = builder.select(there, other, ir.Constant(other.type, None))
            place = builder.add(to, builder.mul(chunk, WORD(LINE)))
            for order in orders:
                words = builder.shuffle_vector(one, other, order)
                builder.store(words, at(builder, place, words.type), align=4)
                place = builder.add(place, WORD(VECTOR_BYTES))


@in_machine_code
def pad_rows(builder, kind, out, out_row, x, x_row, rows, columns):
    """Write rows of halves from x with zeros behind them, up to whole vectors, to out.

    out, x: addresses; ``*_row``: bytes.
    """
    if PAIRS:
        bits = ir.VectorType(SHORT, 2 * kind.count)
        _copy_rows(builder, bits, False, out, out_row, x, x_row, rows, columns)


def _widen_rows(builder, kind, listed, out, out_row, x, x_row, rows, columns):
    """Write rows of halves from x as float32, with zeros behind them, up to whole vectors, to out.

    out, x: addresses; ``*_row``: bytes.
    """
    _copy_rows(builder, kind, listed, out, out_row, x, x_row, rows, columns)


@in_machine_code
def round_rows(builder, kind, out, out_row, x, x_row, rows, columns):
    """Write rows of float32 from x as bfloat16, with zeros behind them, up to whole vectors.

    out, x: addresses; ``*_row``: bytes.
    """
    if not PAIRS:
        return
    words = ir.VectorType(kind.element, kind.count)
    ahead = builder.mul(x_row, WORD(AHEAD))
    with counted(builder, rows) as i:
        first = builder.add(x, builder.mul(i, x_row))
        to = builder.add(out, builder.mul(i, out_row))
        for lines, chunk in _chunks(builder, words, columns, 2):
            from_ = builder.add(first, builder.mul(chunk, WORD(LINE)))
            there = builder.add(to, builder.mul(chunk, WORD(VECTOR_BYTES)))
            for line, half in zip(lines, (0, 1), strict=True):
                place = builder.add(from_, WORD(half * VECTOR_BYTES))
                fetch(builder, builder.add(place, ahead))
                bits = narrowed(builder, line.load(place)[0], kind.half)
                to_half = builder.add(there, WORD(half * VECTOR_BYTES // 2))
                builder.store(bits, at(builder, to_half, bits.type), align=2)


def _round_pairs(builder, kind, listed, out, out_row, x, x_row, rows, columns):
    """``pair_rows`` of float32, rounded to bfloat16."""
    if not PAIRS:
        return
    words, ints = (ir.VectorType(each, kind.count) for each in (kind.element, ir.IntType(32)))
    ahead = builder.mul(x_row, WORD(AHEAD))
    sixteen = ir.Constant(ints, [16] * kind.count)
    with _two_rows(builder, listed, out, out_row, x, x_row, rows) as (first, second, there, to):
        for (line,), chunk in _chunks(builder, words, columns):
            shift, bits = builder.mul(chunk, WORD(VECTOR_BYTES)), []
            for row in (first, second):
                place = builder.add(row, shift)
                if not listed:
                    fetch(builder, builder.add(place, ahead))
                short = narrowed(builder, line.load(place)[0], kind.half)
                bits.append(builder.zext(short, ints))
            other = builder.select(there, bits[1], ir.Constant(ints, None))
            value = builder.or_(bits[0], builder.shl(other, sixteen))
            builder.store(value, at(builder, builder.add(to, shift), ints), align=4)


def _copy_rows(builder, kind, listed, out, out_row, x, x_row, rows, columns):
    ahead = builder.mul(x_row, WORD(AHEAD))
    with counted(builder, rows) as i:
        first = _row(builder, listed, x, x_row, i)
        to = builder.add(out, builder.mul(i, out_row))
        for (line,), chunk in _chunks(builder, kind, columns):
            shift = builder.mul(chunk, WORD(kind.count * line.align))
            from_ = builder.add(first, shift)
            if not listed:
                fetch(builder, builder.add(from_, ahead))
            (value,) = line.load(from_)
            place = builder.add(to, builder.mul(chunk, WORD(VECTOR_BYTES)))
            builder.store(value, at(builder, place, value.type), align=2)


def _chunks(builder: Any, kind: Any, columns: Any, vectors: int = 1) -> Any:
    """A loop over so many whole vectors of a row at a time, then the rest: what loads each, and the
    number of the chunk."""
    lanes = WORD(vectors * kind.count)
    whole, rest = builder.udiv(columns, lanes), builder.urem(columns, lanes)
    with counted(builder, whole) as chunk:
        yield [Rows(builder, kind, 1, None)] * vectors, chunk
    with builder.if_then(builder.icmp_signed("!=", rest, WORD(0))):
        firsts = [builder.sub(rest, WORD(j * kind.count)) for j in range(vectors)]
        yield [Rows(builder, kind, 1, left) for left in firsts], whole


pair_rows, pair_listed = _both_ways(_pair_rows)
round_pairs, round_listed = _both_ways(_round_pairs)
widen_rows, widen_listed = _both_ways(_widen_rows)
