"""The matrix unit's instructions for convolutions: what takes bands apart, multiplies, and turns.

A tile of the first factor has a place of the image in each row, 32 of its channels side by side. So
a tap's tile is where the tap sees the band, as many rows further on, and nothing is unfolded or
copied for it; results come with their channels side by side too, and are turned as they are
written. ``amx.py`` tells of the parts of a number, of which bfloat16 has one; the loops around
these are in ``cpu/unit_bands.py``.
"""

from __future__ import annotations

from llvmlite import ir

from .amx import (
    AMX,
    BYTE,
    EDGE,
    LINE,
    PANEL_BYTES,
    PRODUCTS,
    TILE,
    everywhere,
    load_tile,
    multiply_tiles,
    three_parts,
    tile_instruction,
)
from .copies import turned
from .half_vectors import SHORT, HalfVector
from .vectors import WORD, Rows, at, bytes_of, counted, in_machine_code, load_number, spread

__all__ = [
    "add_tiles",
    "amx_bands",
    "amx_weight",
    "pair_lines",
    "pair_rows",
    "split_places",
    "turn_places",
]


@in_machine_code
def split_places(builder, kind, blocks, x, row, second, some, some_2, out, gap, room, peak):
    """Write the three parts of 16 channels, ``row`` bytes apart at x, of so many times 16 places:
    each number beside the one ``second`` bytes after it.

    some, some_2: places of which there are numbers, and others beside them; zeros stand for more.

    out: where the first part of the first place goes, and each next one a line further; gap: bytes
    from part to part; room: the address of three tiles; peak: that of a vector that comes to hold
    the largest bits, without sign, of all lanes. Of halves there is one part.
    """
    if not AMX or not isinstance(kind.element, ir.FloatType):
        return
    half = isinstance(kind, HalfVector)
    size, count = 2 if half else 4, 1 if half else 3
    ints = ir.VectorType(ir.IntType(32), EDGE)
    line, largest = Rows(builder, kind, 1, None), builder.alloca(ints)
    builder.store(builder.load(at(builder, peak, ints), align=64), largest)
    with counted(builder, blocks) as block:
        first = builder.add(x, builder.mul(block, WORD(EDGE * size)))
        with counted(builder, WORD(EDGE)) as i:
            one = builder.add(first, builder.mul(i, row))
            pair = one, builder.add(one, second)
            there = [
                _lanes(builder, builder.sub(n, builder.shl(block, WORD(4)))) for n in (some, some_2)
            ]
            to = builder.add(room, builder.mul(i, WORD(LINE)))
            if half:
                word = _words(builder, pair, there)
                sizes = builder.shl(word, everywhere(16)), builder.and_(word, everywhere(~0xFFFF))
                for size_of in sizes:
                    size_of, before = (
                        builder.and_(size_of, everywhere(0x7FFFFFFF)),
                        builder.load(largest),
                    )
                    more = builder.icmp_unsigned(">", size_of, before)
                    builder.store(builder.select(more, size_of, before), largest)
                builder.store(word, at(builder, to, ints), align=64)
            else:
                nothing = ir.Constant(kind, None)
                values = [line.load(place)[0] for place in pair]
                values = [builder.select(m, v, nothing) for m, v in zip(there, values, strict=True)]
                parts = [three_parts(builder, value, largest) for value in values]
                for low, high in zip(*parts, strict=True):
                    both = builder.or_(builder.lshr(low, everywhere(16)), high)
                    builder.store(both, at(builder, to, ints), align=64)
                    to = builder.add(to, WORD(TILE))
        with counted(builder, WORD(count)) as part:
            begin = builder.add(room, builder.mul(part, WORD(TILE)))
            to = builder.add(out, builder.mul(part, gap))
            to = builder.add(to, builder.mul(block, WORD(TILE)))
            words = [
                builder.load(at(builder, builder.add(begin, WORD(i * LINE)), ints), align=64)
                for i in range(EDGE)
            ]
            for i, word in enumerate(turned(builder, words)):
                builder.store(word, at(builder, builder.add(to, WORD(i * LINE)), ints), align=64)
    builder.store(builder.load(largest), at(builder, peak, ints), align=64)


def _lanes(builder, count):
    """Which of 16 lanes are among the first ``count``."""
    places = ir.Constant(ir.VectorType(WORD, EDGE), list(range(EDGE)))
    return builder.icmp_signed("<", places, spread(builder, count, EDGE))


def _words(builder, pair, there=()):
    """16 halves at each of two addresses as words of two, zeros for those that are not there."""
    halves, ints = ir.VectorType(SHORT, EDGE), ir.VectorType(ir.IntType(32), EDGE)
    given = [builder.load(at(builder, place, halves), align=2) for place in pair]
    given = (
        [builder.select(m, v, halves(None)) for m, v in zip(there, given, strict=True)]
        if there
        else given
    )
    low, high = (builder.zext(bits, ints) for bits in given)
    return builder.or_(low, builder.shl(high, everywhere(16)))


@in_machine_code
def pair_rows(builder, kind, steps, x, out):
    """Write a row of halves at x, 32 a step, to a row of the tile of each step: each half beside
    the one 16 further on."""
    if not AMX or not isinstance(kind, HalfVector):
        return
    ints = ir.VectorType(ir.IntType(32), EDGE)
    with counted(builder, steps) as step:
        first = builder.add(x, builder.mul(step, WORD(LINE)))
        word = _words(builder, (first, builder.add(first, WORD(LINE // 2))))
        to = builder.add(out, builder.mul(step, WORD(TILE)))
        builder.store(word, at(builder, to, ints), align=64)


@in_machine_code
def pair_lines(builder, kind, steps, x, out):
    """Write 32 lines of 16 float32 at x for each step, which are halves, to a tile: those of each
    line beside those 16 lines further on."""
    if not AMX or not isinstance(kind, HalfVector):
        return
    ints = ir.VectorType(ir.IntType(32), EDGE)
    with counted(builder, steps) as step:
        first = builder.add(x, builder.mul(step, WORD(2 * TILE)))
        to = builder.add(out, builder.mul(step, WORD(TILE)))
        for i in range(EDGE):
            places = [builder.add(first, WORD(i * LINE + k * TILE)) for k in range(2)]
            low, high = (builder.load(at(builder, place, ints), align=4) for place in places)
            word = builder.or_(builder.lshr(low, everywhere(16)), high)
            builder.store(word, at(builder, builder.add(to, WORD(i * LINE)), ints), align=64)


def _squares(builder, panels, tiles, lefts_of, rights_of, steps, stored, parts):
    """One or two tiles of rows times one or two of columns.

    panels, tiles: how many of each; lefts_of, rights_of: the addresses of a part of a step's tiles,
    given how many. The largest products come last, when the sums of all others are there to be
    added up with them: so few of the sums are rounded where they are large.
    """
    lefts, rights = (4, 5), (6, 7)

    def step_of(step, products, high, many):
        held = None, None
        for k, part in products:
            if k != held[0]:
                for register, place in zip(lefts, lefts_of(step, k, high), strict=False):
                    load_tile(builder, register, place)
            if part != held[1]:
                for register, place in zip(rights, rights_of(step, part, many), strict=False):
                    load_tile(builder, register, place)
            held = k, part
            for i in range(high):
                for c in range(many):
                    multiply_tiles(builder, i * many + c, lefts[i], rights[c])

    for high, many in ((1, 1), (1, 2), (2, 1), (2, 2)):
        these = builder.and_(
            builder.icmp_signed("==", panels, WORD(high)),
            builder.icmp_signed("==", tiles, WORD(many)),
        )
        with builder.if_then(these):
            for result in range(high * many):
                tile_instruction(builder, "tilezero", [BYTE(result)])
            for count, products in PRODUCTS.items():
                with builder.if_then(builder.icmp_signed("==", parts, WORD(count))):
                    for some in (products[:-1], products[-1:]):
                        with counted(builder, steps) as step:
                            step_of(step, some, high, many)
            for result in range(high * many):
                to, row = stored(*divmod(result, many))
                tile_instruction(
                    builder, "tilestored64", [BYTE(result), at(builder, to, BYTE), row]
                )


def _step_bytes(kind):
    """Bytes of a panel for each step."""
    return TILE if isinstance(kind, HalfVector) else PANEL_BYTES


@in_machine_code
def amx_bands(
    builder, kind, tiles, panels, steps, x, places, gap, y, panel, out, out_panel, parts
):  # fmt: skip
    """One or two tiles of places times one or two panels of channels of the result.

    x: the address of the first place; places: that of a list of how many bytes further each step's
    is; gap: from part to part; y: the address of panels of ``split_all``, ``panel`` bytes apart;
    out: where the first place goes, of 16 channels a line; out_panel: bytes to those of the next
    panel; parts: how many of each number to multiply.
    """
    if not AMX or not isinstance(kind.element, ir.FloatType):
        return

    def seen(step, part, count):
        place = at(builder, builder.add(places, builder.shl(step, WORD(3))), WORD)
        first = builder.add(x, builder.load(place))
        return _apart(builder, builder.add(first, builder.mul(gap, WORD(part))), WORD(TILE), count)

    def of_weight(step, part, count):
        first = builder.add(y, builder.mul(step, WORD(_step_bytes(kind))))
        return _apart(builder, builder.add(first, WORD(part * TILE)), panel, count)

    def stored(i, c):
        to = builder.add(out, builder.mul(out_panel, WORD(c)))
        return builder.add(to, WORD(i * TILE)), WORD(LINE)

    _squares(builder, tiles, panels, seen, of_weight, steps, stored, parts)


def _apart(builder, first, gap, count):
    """So many addresses."""
    return [builder.add(first, builder.mul(gap, WORD(i))) for i in range(count)]


@in_machine_code
def amx_weight(builder, kind, panels, blocks, steps, x, panel, y, gap, block, out, parts):
    """One or two panels of x times one or two blocks of 16 channels of bands, a tile after the
    other.

    x: the address of panels of ``split_all``, ``panel`` bytes apart, of 32 places a step; y: that
    of the first place of the bands; gap: bytes from part to part; block: from block to block;
    parts: how many of each number to multiply.
    """
    if not AMX or not isinstance(kind.element, ir.FloatType):
        return

    def given(step, part, count):
        first = builder.add(x, builder.mul(step, WORD(_step_bytes(kind))))
        return _apart(builder, builder.add(first, WORD(part * TILE)), panel, count)

    def seen(step, part, count):
        first = builder.add(y, builder.mul(step, WORD(2 * TILE)))
        return _apart(builder, builder.add(first, builder.mul(gap, WORD(part))), block, count)

    def stored(i, c):
        return builder.add(out, WORD((2 * i + c) * TILE)), WORD(LINE)

    _squares(builder, panels, blocks, given, seen, steps, stored, parts)


@in_machine_code
def add_tiles(builder, kind, panels, blocks, x, out, out_row):
    """Add what ``amx_weight`` has written at x to rows of a matrix at ``out``.

    out_row: bytes from row to row.
    """
    if not AMX or not isinstance(kind.element, ir.FloatType):
        return
    line = Rows(builder, kind, 1, None)
    with counted(builder, panels) as i, counted(builder, blocks) as c:
        tile = builder.add(x, builder.mul(builder.add(builder.shl(i, WORD(1)), c), WORD(TILE)))
        to = builder.add(out, builder.mul(i, builder.mul(out_row, WORD(EDGE))))
        to = builder.add(to, builder.mul(c, WORD(LINE)))
        for row in range(EDGE):
            more = line.load(builder.add(tile, WORD(row * LINE)))[0]
            line.store([builder.fadd(line.load(to)[0], more)], to)
            to = builder.add(to, out_row)


@in_machine_code
def turn_places(builder, kind, places, channels, x, bias, out, out_row):
    """Write so many places, at most 16, of lines of 16 channels at x as lines of places.

    bias: the address of a number for each channel, to be added, or 0; out_row: bytes from channel
    to channel of the result.
    """
    if not AMX or not isinstance(kind.element, ir.FloatType):
        return
    floats, last = ir.VectorType(kind.element, EDGE), builder.sub(places, WORD(1))
    line, given = Rows(builder, floats, 1, None), []
    for i in range(EDGE):
        row = builder.select(builder.icmp_signed("<", WORD(i), last), WORD(i), last)
        given += line.load(builder.add(x, builder.mul(row, WORD(LINE))))
    some, biased = Rows(builder, kind, 1, places), builder.icmp_signed("!=", bias, WORD(0))
    bias = builder.select(biased, bias, x)
    for c, value in enumerate(turned(builder, given)):
        with builder.if_then(builder.icmp_signed("<", WORD(c), channels)):
            more = load_number(builder, kind, builder.add(bias, WORD(bytes_of(kind) * c)))
            sums = builder.fadd(value, spread(builder, more, EDGE))
            value = builder.select(biased, sums, value)
            some.store([value], builder.add(out, builder.mul(out_row, WORD(c))))
