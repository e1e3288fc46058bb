"""Products on the matrix unit of Intel's processors (AMX), which multiplies bfloat16.

A float32 is exactly the sum of three bfloat16, the high, middle and low part of its 24 bits. Of the
nine products of parts of two numbers, six are above 2^-24 of theirs: the tiles add up these in
float32. XLA multiplies float32 so on TPUs; Henry, Tang and Heinecke, "Leveraging the bfloat16
Artificial Intelligence Datatype For Higher-Precision Computations", ARITH 2019. Six times as many
multiplications take half the time, as the unit does 16 times as many of them; and as it rounds once
for several of them, the sums are nearer to the exact ones than those of float32 instructions.

The loops around these instructions are in ``cpu/amx_product.py``; products of bfloat16 themselves
are in ``amx_halves.py``.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import config, types
from numba.core import cgutils

from .inner import intrinsic, pasted
from .processor import features
from .vectors import VECTOR_BYTES, WORD, Rows, at, counted, in_machine_code

__all__ = [
    "AMX",
    "BYTE",
    "EDGE",
    "LINE",
    "PACK",
    "PACKED",
    "PANEL_BYTES",
    "PARTS",
    "PRODUCTS",
    "STEP",
    "STRIP",
    "TILE",
    "amx_merge",
    "amx_square",
    "amx_strip",
    "begin_tiles",
    "clear",
    "end_tiles",
    "everywhere",
    "exponent_of",
    "load_amx",
    "load_tile",
    "multiply_tiles",
    "note_exponents",
    "packed_bytes",
    "packing_pays",
    "parts_multiplied",
    "split",
    "three_parts",
    "tile_instruction",
    "use_parts",
]

AMX = (
    VECTOR_BYTES == 64
    and sys.platform == "linux"
    and platform.machine() == "x86_64"
    and {"+amx-tile", "+amx-bf16"} <= features()
)
"""Whether this CPU has the unit. Whether this process may use it is asked by ``load_amx``."""

EDGE = 16
"""Rows and columns of a tile of the result."""

STEP = 32
"""Numbers along the sum in a tile of a factor, two by two: k with k + 16."""

TILE = 1024
"""Bytes of a tile."""

PANEL_BYTES = 3 * TILE
"""Bytes of ``EDGE`` rows or columns of a factor, ``STEP`` of each: their three parts."""

LINE = 64
"""Bytes of a line of the cache, and of a row of a tile."""

PACK, PACKED = 2, 2
"""What stands for ``transx`` and ``transy`` of ``gemm``: to pack y, and that it is packed."""

STRIP = 4
"""Tiles of the result side by side: four of the eight registers, three parts of x, and one of y."""

PARTS = "numbagrad_amx_parts"
"""The name by which compiled code knows how many parts of each number to multiply."""

_parts = ctypes.c_int64()
_PERMISSION, _TILE_DATA = 0x1023, 18  # arch_prctl's ARCH_REQ_XCOMP_PERM, and XFEATURE_XTILEDATA
_PRCTL = 158

BYTE, _INT = ir.IntType(8), ir.IntType(32)


@functools.cache
def load_amx() -> bool:
    """Ask Linux for the registers, once, and give LLVM the number of parts; whether they are ours.

    ``NUMBAGRAD_AMX=0`` asks for none. Threads have them with their process, and forked processes.
    """
    llvmlite.binding.add_symbol(PARTS, ctypes.addressof(_parts))
    if AMX and os.environ.get("NUMBAGRAD_AMX", "1") != "0":
        system = ctypes.CDLL(None, use_errno=True)
        if system.syscall(_PRCTL, _PERMISSION, _TILE_DATA) == 0:
            _parts.value = 3
            return True
    return False


def use_parts(count: int) -> None:
    """How many parts of each number to multiply, 3 for all of float32; where there is the unit."""
    if load_amx():
        _parts.value = count


def parts_multiplied(like):
    """What ``use_parts`` has set; 0 where the unit is not to be used, or for other floats than
    those of the array or pointer ``like``."""
    return 0


@intrinsic
def _parts_multiplied(typing, like):
    def generate(context, builder, signature, args):
        if not AMX or like.dtype != types.float32:
            return WORD(0)
        place = builder.module.globals.get(PARTS)
        return builder.load(place or ir.GlobalVariable(builder.module, WORD, PARTS))

    return types.int64(like), generate


if not config.DISABLE_JIT:
    parts_multiplied = _parts_multiplied


@pasted
def packed_bytes(m, k):
    """Bytes of a packed factor of ``k`` rows and ``m`` columns, which begins a line."""
    blocks = (m + EDGE - 1) // EDGE * ((k + STEP - 1) // STEP)
    return 2 * LINE + blocks * PANEL_BYTES


@pasted
def packing_pays(n, m, k):
    """Whether ``n`` rows are sooner multiplied by a packed factor than by one as stored."""
    wide, deep = (m + 15) & ~15, (k + 31) & ~31
    return 4 * wide * deep <= m * k * n


def tile_instruction(builder: Any, name: str, args: Sequence[Any]) -> None:
    """One of AMX's instructions, by LLVM's name."""
    kind = ir.FunctionType(ir.VoidType(), [a.type for a in args])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.{name}"), args)


@in_machine_code
def begin_tiles(builder, kind, rows, room):
    """Registers of so many rows, at most 16, of 64 bytes, for x and the result, of 16 for y.

    room: the address of 64 bytes to write that to.
    """
    if not AMX:
        return
    line, width = ir.VectorType(WORD, 8), 0x0040004000400040
    told = ir.Constant(line, [1, 0, width, width, 0, 0, 0, 0])
    heights = builder.or_(builder.mul(rows, WORD(0x01010101010101)), WORD(EDGE << 56))
    told = builder.insert_element(told, heights, _INT(6))
    builder.store(told, at(builder, room, line), align=64)
    tile_instruction(builder, "ldtilecfg", [at(builder, room, BYTE)])


@in_machine_code
def end_tiles(builder, kind, room):
    """Give up the registers, so that the system need not keep them."""
    if not AMX:
        return
    tile_instruction(builder, "tilerelease", [])


@in_machine_code
def clear(builder, kind, place):
    """Write a vector of zeros to an address."""
    line = ir.VectorType(WORD, 8)
    builder.store(ir.Constant(line, None), at(builder, place, line), align=64)


@in_machine_code
def split(builder, kind, height, x, row, gap, rows, columns, rows_2, columns_2, out, peak, peak_2):
    """Write the three parts of two blocks of 16 by 16 numbers, pair by pair, to tiles at out.

    height: rows of each tile that are written. x: address of the first block; the second is ``gap``
    bytes after it; row: bytes from row to row. rows, columns, rows_2, columns_2: how many of each
    block are there; zeros stand for the others. peak, peak_2: the addresses of vectors that come to
    hold the largest bits, without sign, of all lanes: of the first 8 rows, and of the others.
    """
    if not AMX or not isinstance(kind.element, ir.FloatType):
        return
    ints, half = ir.VectorType(_INT, EDGE), WORD(EDGE // 2)

    def written(first, second):
        """A loop over rows; the two: what loads a row of a block, given the row and its place."""
        with counted(builder, WORD(2)) as below:
            top = builder.mul(below, half)
            left = builder.sub(height, top)
            count = builder.select(builder.icmp_signed("<", left, half), left, half)
            chosen = builder.select(builder.icmp_signed("==", top, WORD(0)), peak, peak_2)
            place = at(builder, chosen, ints)
            largest = cgutils.alloca_once(builder, ints)
            builder.store(builder.load(place, align=64), largest)
            with counted(builder, count) as passed:
                i = builder.add(top, passed)
                begin = builder.add(x, builder.mul(i, row))
                found = [first(i, begin), second(i, builder.add(begin, gap))]
                parts = [three_parts(builder, value, largest) for value in found]
                to = builder.add(out, builder.shl(i, WORD(6)))
                for part, (one, other) in enumerate(zip(*parts, strict=True)):
                    both = builder.or_(builder.lshr(one, everywhere(16)), other)
                    there = at(builder, builder.add(to, WORD(part * TILE)), ints)
                    builder.store(both, there, align=64)
            builder.store(builder.load(largest), place, align=64)

    whole = Rows(builder, kind, 1, None)

    def some(count, lanes):
        line = Rows(builder, kind, 1, lanes)
        mask, none = line.mask, ir.Constant(line.mask.type, None)

        def load(i, begin):
            line.mask = builder.select(builder.icmp_signed("<", i, count), mask, none)
            return line.load(begin)[0]

        return load

    sizes = rows, columns, rows_2, columns_2
    filled = builder.icmp_signed("==", functools.reduce(builder.and_, sizes), WORD(EDGE))
    partly = some(rows, columns), some(rows_2, columns_2)
    with builder.if_else(filled) as (then, otherwise):
        with then:
            written(*[lambda i, begin: whole.load(begin)[0]] * 2)
        with otherwise:
            written(*partly)


def everywhere(number: int) -> Any:
    """A vector with a number in each lane."""
    return ir.Constant(ir.VectorType(_INT, EDGE), [number] * EDGE)


def three_parts(builder: Any, value: Any, largest: Any) -> list[Any]:
    """Bits of the three bfloat16 that make up each float32, in the upper halves of their words.

    largest: the place of a vector that comes to hold the largest bits, without sign.
    """
    bits = builder.bitcast(value, ir.VectorType(_INT, EDGE))
    size, before = builder.and_(bits, everywhere(0x7FFFFFFF)), builder.load(largest)
    more = builder.icmp_unsigned(">", size, before)
    builder.store(builder.select(more, size, before), largest)
    parts = []
    for _ in range(2):
        part = builder.and_(builder.add(bits, everywhere(0x8000)), everywhere(0xFFFF0000))
        value = builder.fsub(value, builder.bitcast(part, value.type))
        bits = builder.bitcast(value, bits.type)
        parts.append(part)
    # Of a float32 below 2^-111 more than 16 bits may be left, in a number too small to be normal.
    return [*parts, builder.and_(bits, everywhere(0xFFFF0000))]


@intrinsic
def exponent_of(typing, peak):
    """127 + e for the least e with 2^e at least as large as all numbers that ``split`` has seen, 0
    where all are 0; peak: the address of its vector."""

    def generate(context, builder, signature, args):
        place = at(builder, args[0], ir.VectorType(_INT, EDGE))
        return _exponent(builder, builder.load(place, align=64))

    return types.int64(types.int64), generate


@in_machine_code
def note_exponents(builder, kind, peak, lanes, exponents, both):
    """Write what ``exponent_of`` is for each half of a panel, and clear the two vectors at peak.

    lanes: whether these are lanes of the first, else each half has a vector; exponents: the address
    of both; both: of two numbers, which come to hold the least that is not 0 and the largest.
    """
    if not AMX or not isinstance(kind.element, ir.FloatType):
        return
    ints = ir.VectorType(_INT, EDGE)
    places = [at(builder, builder.add(peak, WORD(k * LINE)), ints) for k in range(2)]
    first, second = (builder.load(place, align=64) for place in places)
    for place in places:
        builder.store(ints(None), place, align=64)
    flags = ir.VectorType(ir.IntType(1), EDGE)
    upper = flags([k >= EDGE // 2 for k in range(EDGE)])
    by_lane = builder.icmp_signed("!=", lanes, WORD(0))
    halves = [
        builder.select(by_lane, builder.select(upper, ints(None), first), first),
        builder.select(by_lane, builder.select(upper, first, ints(None)), second),
    ]
    least, most = (at(builder, builder.add(both, WORD(8 * k)), WORD) for k in range(2))
    for k, half in enumerate(halves):
        value = _exponent(builder, half)
        builder.store(value, at(builder, builder.add(exponents, WORD(8 * k)), WORD))
        larger = builder.icmp_unsigned(">", value, builder.load(most))
        builder.store(builder.select(larger, value, builder.load(most)), most)
        # 0 less one is the largest of all.
        below = builder.sub(builder.load(least), WORD(1))
        less = builder.icmp_unsigned("<", builder.sub(value, WORD(1)), below)
        builder.store(builder.select(less, value, builder.load(least)), least)


def _exponent(builder: Any, peak: Any) -> Any:
    kind = ir.FunctionType(_INT, [peak.type])
    name = f"llvm.vector.reduce.umax.v{EDGE}i32"
    bits = builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [peak])
    return builder.zext(builder.lshr(builder.add(bits, _INT(0x7FFFFF)), _INT(23)), WORD)


@in_machine_code
def amx_strip(builder, kind, tiles, steps, x, y, y_step, out, out_row, parts):
    """The result of one panel of x and ``tiles`` of y, 1 or ``STRIP``: ``out = x y``.

    x, y: addresses of panels, of ``steps`` times ``PANEL_BYTES`` each, 16 columns a tile; y_step:
    bytes from step to step of y; out_row: bytes from row to row; parts: how many of each number to
    multiply.
    """
    if not AMX or not isinstance(kind.element, ir.FloatType):
        return
    lefts, right = (4, 5, 6), 7
    for many in (1, STRIP):

        def step_of(step, count, many=many):
            left = builder.add(x, builder.mul(step, WORD(PANEL_BYTES)))
            for part in range(count):
                load_tile(builder, lefts[part], builder.add(left, WORD(part * TILE)))
            place = builder.add(y, builder.mul(step, y_step))
            for c in range(many):
                held = None
                for k, part in PRODUCTS[count]:
                    if part != held:
                        load_tile(builder, right, builder.add(place, WORD(part * TILE)))
                        held = part
                    multiply_tiles(builder, c, lefts[k], right)
                place = builder.add(place, WORD(PANEL_BYTES))

        with builder.if_then(builder.icmp_signed("==", tiles, WORD(many))):
            places = [(0, c) for c in range(many)]
            _block(builder, places, steps, step_of, out, out_row, parts)


@in_machine_code
def amx_square(builder, kind, tiles, steps, x, panel, y, y_step, out, out_row, parts):
    """``amx_strip`` for two panels of x, ``panel`` bytes apart, and one or two tiles of y: the same
    bits, and each tile of y is loaded half as often."""
    if not AMX or not isinstance(kind.element, ir.FloatType):
        return
    lefts, rights = (4, 5), (6, 7)
    for many in (1, 2):
        places = [(i, c) for i in range(2) for c in range(many)]

        def step_of(step, count, many=many, places=places):
            left = builder.add(x, builder.mul(step, WORD(PANEL_BYTES)))
            place = builder.add(y, builder.mul(step, y_step))
            held = None, None
            for k, part in PRODUCTS[count]:
                if k != held[0]:
                    to = builder.add(left, WORD(k * TILE))
                    for register in lefts:
                        load_tile(builder, register, to)
                        to = builder.add(to, panel)
                if part != held[1]:
                    for c in range(many):
                        to = WORD(c * PANEL_BYTES + part * TILE)
                        load_tile(builder, rights[c], builder.add(place, to))
                held = k, part
                for result, (i, c) in enumerate(places):
                    multiply_tiles(builder, result, lefts[i], rights[c])

        with builder.if_then(builder.icmp_signed("==", tiles, WORD(many))):
            _block(builder, places, steps, step_of, out, out_row, parts)


PRODUCTS = {
    3: [(0, 2), (0, 1), (1, 1), (1, 0), (2, 0), (0, 0)],
    2: [(0, 1), (1, 0), (0, 0)],
    1: [(0, 0)],
}
"""Which part of x meets which of y, for so many parts: the pairs that are above 2^-24. Each part of
y comes once, and from pair to pair one of the two remains where that can be."""


def _block(
    builder: Any, places: list[tuple[int, int]], steps: Any, step_of: Any, out: Any, out_row: Any,
    parts: Any,
) -> None:  # fmt: skip
    """Sums in the registers from 0 on, which stand in those rows and columns of tiles; step_of:
    adds up the products of a step."""

    for result in range(len(places)):
        tile_instruction(builder, "tilezero", [BYTE(result)])
    for count in PRODUCTS:
        with builder.if_then(builder.icmp_signed("==", parts, WORD(count))):
            with counted(builder, steps) as step:
                step_of(step, count)
    for result, (i, c) in enumerate(places):
        down = builder.mul(out_row, WORD(i * EDGE))
        to = at(builder, builder.add(out, builder.add(down, WORD(c * LINE))), BYTE)
        tile_instruction(builder, "tilestored64", [BYTE(result), to, out_row])


def multiply_tiles(builder: Any, result: int, left: int, right: int) -> None:
    """Add to the sums in one register the products of two others."""
    tile_instruction(builder, "tdpbf16ps", [BYTE(result), BYTE(left), BYTE(right)])


def load_tile(builder: Any, register: int, place: Any, row: Any = None) -> None:
    """Load a register from an address; row: bytes from row to row, where there are gaps."""
    args = [BYTE(register), at(builder, place, BYTE), WORD(LINE) if row is None else row]
    tile_instruction(builder, "tileloadd64", args)


@in_machine_code
def amx_merge(builder, kind, tiles, rows, columns, x, start, start_row, out, out_row):
    """``out = x + start`` for so many rows of ``tiles`` vectors; ``start`` 0: ``out = x``.

    All are addresses, x one of rows without gaps of ``STRIP`` vectors; columns: in the last vector.
    """
    if not AMX or not isinstance(kind.element, ir.FloatType):
        return
    added = builder.icmp_signed("!=", start, WORD(0))
    for many in range(1, STRIP + 1):
        whole, lines = Rows(builder, kind, many, None), Rows(builder, kind, many, columns)

        def written(start_row: Any, whole: Rows = whole, lines: Rows = lines) -> None:
            with counted(builder, rows) as i:
                values = whole.load(builder.add(x, builder.shl(i, WORD(8))))
                if start_row is not None:
                    old = lines.load(builder.add(start, builder.mul(i, start_row)))
                    values = [builder.fadd(*pair) for pair in zip(values, old, strict=True)]
                lines.store(values, builder.add(out, builder.mul(i, out_row)))

        here = builder.icmp_signed("==", tiles, WORD(many))
        with builder.if_then(here), builder.if_else(added) as (adds, copies):
            with adds:
                written(start_row)
            with copies:
                written(None)
