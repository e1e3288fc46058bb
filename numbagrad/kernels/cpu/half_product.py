"""A product of matrices of float16 or bfloat16, whose sums are float32 until they are written.

Start at ``half_product``. Processors that multiply pairs of bfloat16 (AVX512-BF16: Cooper Lake, Zen
4 and later ones) do so; elsewhere, and for float16, factors become float32 as they are packed.
The instructions are in ``half_tile.py``.
"""

from __future__ import annotations

import numpy as np
from numba import types

from ..amx import EDGE, STEP, begin_tiles, clear, end_tiles
from ..amx_halves import amx_finish, amx_halves, unit_takes
from ..copies import transpose
from ..half_tile import (
    LINE,
    fetch_rows,
    middle_halves,
    narrow_halves,
    pad_rows,
    pair_listed,
    pair_rows,
    round_listed,
    round_pairs,
    round_rows,
    wide_halves,
    widen_listed,
    widen_rows,
)
from ..half_type import half_type
from ..half_vectors import halves_per_word
from ..halves import BFLOAT16
from ..inner import device, pasted
from ..intrinsics import pointer
from ..machine import kernel
from ..product import LISTED, WIDE_IN, WIDE_OUT, exact_gemm, gemm
from ..tile import FULL, WIDE, scratch
from ..vectors import VECTOR_BYTES
from .gemm import by_vectors

__all__ = ["half_product", "rounded_product"]

DEPTH = 256
"""Most words along the sum in a strip of ``y``, twice as many numbers where each holds two. With
vectors of 64 bytes that is more than the innermost cache has, but sums are written half as often: 2
to 3 % faster than 128 words on a Zen 5."""

UNIT_DEPTH = 128
"""The same for the matrix unit, to which the innermost cache gives strips of 32 KB in time: three
quarters of the time of strips twice as deep."""

SHALLOW = 128
"""Words of a strip that has its room on the stack: a thread's is short."""

ROWS = 512
"""Most rows of ``x`` that a strip is multiplied with: what is packed of them stays in the second
cache for the next."""

SUMS = 1 << 18
"""Most sums in float32 that wait for the next words, if there are rows enough: a megabyte."""

FEW = 48
"""Rows of which there are more sums than that, lest strips be packed for too little."""

LANES = max(1, VECTOR_BYTES // 4)
SQUARE = max(1, LANES * VECTOR_BYTES)
ROOM_ROW = WIDE * VECTOR_BYTES
ROOM = max(1, SHALLOW * ROOM_ROW)

PAIRED = half_type(BFLOAT16)

malloc = types.ExternalFunction("malloc", types.int64(types.int64))
free = types.ExternalFunction("free", types.void(types.int64))


@kernel(outputs=0)
def half_product(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
    """``out = op(x) op(y) + start``, see ``gemm`` of ``product.py``; ``like`` points to halves.

    With ``WIDE_OUT`` added to ``transx``, start and out are float32; with ``WIDE_IN``, x and y are.
    """
    if transx < WIDE_OUT:
        if by_vectors(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
            return
    by_strips(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout)


@kernel(outputs=0)
def rounded_product(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
    """``gemm`` of float32 whose factors are rounded to bfloat16 where that is faster."""
    if rounding_pays(n, m, k):
        gemm(
            *(pointer(out, PAIRED), transx + WIDE_IN + WIDE_OUT, transy, n, m, k, x, ldx, y, ldy),
            *(start, ldstart, out, ldout),
        )
    else:
        exact_gemm(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout)


@pasted
def rounding_pays(n, m, k):
    """Whether pairs are 1.3 times as fast at least, though both factors have to be rounded first;
    small products stay exact."""
    return n >= 32 and m >= 64 and k >= 32 and n * m * k >= 1 << 20


@pasted
def even_parts(count, most, unit):
    """How many are in each of the fewest equal parts of at most ``most``, a multiple of ``unit``
    and so of all but the last part."""
    parts = (count + most - 1) // most
    return (count + parts * unit - 1) // (parts * unit) * unit


@pasted
def row_of(nbytes):
    """Bytes of a row of scratch: whole lines, and no power of two apart in the caches."""
    whole = (nbytes + LINE - 1) // LINE * LINE
    return whole + LINE if whole % 1024 == 0 else whole


@device
def by_strips(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
    """``half_product`` by tiles."""
    rounds, reads = 1, 2
    if transx >= WIDE_IN:
        transx, reads = transx - WIDE_IN, 4
    if transx >= WIDE_OUT:
        transx, rounds = transx - WIDE_OUT, 0
    each = halves_per_word(like)
    unit = unit_takes(like) != 0 and unit_pays(n, m, k)
    many = EDGE if unit else 2  # rows, and words, of which parts are a multiple
    size = 2 if rounds else 4
    x_row, y_row, out_row = ldx * reads, ldy * reads, ldout * size
    if transy == LISTED:
        y_row = ldy
    deepest = even_parts(k, each * (UNIT_DEPTH if unit else DEPTH), STEP if unit else 2)
    # What is waited for: sums of the first words, or a start, as float32.
    waits = rounds and (deepest < k or (start != 0 and ldstart != 0))
    most = min(ROWS, max(FEW, SUMS // m)) if waits else ROWS
    tallest = even_parts(n, most, many)
    sums_row = row_of(4 * m)
    sums_bytes = tallest * sums_row if waits else 0
    start_bytes = sums_row if rounds and start and ldstart == 0 else 0
    packs = transx or each == 1 or k % (STEP if unit else 2) or reads == 4
    left_bytes, words = 0, (deepest + each - 1) // each
    if packs:
        left_bytes = words * row_of(4 * tallest) if transx else tallest * row_of(4 * words)
    turned = (words + EDGE) * row_of(4 * tallest)  # where rows are that were packed by columns
    if unit and transx:
        left_bytes = turned + tallest * row_of(4 * words)
    block = 0
    room_bytes = words * ROOM_ROW + 16 * ROOM_ROW if words > SHALLOW or unit else 0
    tiles = room_bytes
    zeros = tiles + EDGE * ROOM_ROW
    told = zeros + ROOM_ROW
    if unit:
        room_bytes = told + LINE
    scratch_bytes = sums_bytes + start_bytes + left_bytes + room_bytes
    if scratch_bytes:
        block = malloc(scratch_bytes + LINE)
        if block == 0:
            raise MemoryError("matmul: no memory for the sums of a product of halves")
    sums = (block + LINE - 1) // LINE * LINE
    begins = sums + sums_bytes
    left = begins + start_bytes
    if start_bytes:
        widen_rows(like, begins, 0, start, 0, 1, m)
    room = left + left_bytes if room_bytes else scratch(ROOM)
    i = 0
    while i < n:
        rows = min(tallest, n - i)
        base, base_row = start, ldstart * 4 if start else 0
        if start_bytes:
            base = begins
        elif start and rounds:
            first = start + i * ldstart * 2
            widen_rows(like, sums, sums_row, first, ldstart * 2, rows, m)
            base, base_row = sums, sums_row
        elif start:
            base = start + i * base_row
        h = 0
        while h < k:
            deep = min(deepest, k - h)
            words = (deep + each - 1) // each
            ends = rounds and h + deep >= k
            to, to_row, to_size = sums, sums_row, 4
            if ends or not rounds:
                to, to_row, to_size = out + i * out_row, out_row, size
            first = x + (h * x_row + i * reads if transx else i * x_row + h * reads)
            place, place_row, place_col = first, x_row, 4
            if transx:
                place, place_row, place_col = left, 4, row_of(4 * rows)
                pack_lines(like, reads, left, place_col, first, x_row, deep, rows)
            elif reads == 4:
                place, place_row = left, row_of(4 * words)
                round_rows(like, left, place_row, first, x_row, rows, deep)
            elif each == 1:
                place, place_row = left, row_of(4 * deep)
                widen_rows(like, left, place_row, first, x_row, rows, deep)
            elif deep % (STEP if unit else 2):
                place, place_row = left, row_of(4 * words)
                pad_rows(like, left, place_row, first, x_row, rows, deep)
            if unit:
                steps = (words + EDGE - 1) // EDGE
                more = steps * EDGE - words
                if transx:
                    clear_lines(like, left + words * place_col, more * place_col)
                    place, place_row = left + turned, row_of(4 * words)
                    turn_words(like, left, place_col, place, place_row, steps * EDGE, rows)
                begin_tiles(like, min(EDGE, rows), room + told)
                clear_lines(like, room + words * ROOM_ROW, more * ROOM_ROW)
                clear_lines(like, room + zeros, ROOM_ROW)
            j = 0
            while j < m:
                columns = min(m - j, WIDE * LANES)
                if unit:
                    pass
                elif columns < WIDE * LANES and (FULL or columns <= (WIDE - 1) * LANES):
                    columns = min(columns, 2 * LANES)  # two vectors, or the last one
                if transy == LISTED:
                    pack_listed(like, reads, room, y + h * 8, y_row + j * reads, deep, columns)
                elif transy:
                    turn_strip(like, reads, room, y + j * y_row + h * reads, y_row, columns, deep)
                else:
                    right = y + h * y_row + j * reads
                    pack_lines(like, reads, room, ROOM_ROW, right, y_row, deep, columns)
                begin = base + j * 4 if base else 0
                strip = (
                    *(rows, words, place, place_row, place_col, room, ROOM_ROW),
                    *(begin, base_row, to + j * to_size, to_row),
                )
                if unit:
                    if begin == 0:
                        begin, base_row = room + zeros, 0
                    multiplied(
                        *(like, rows, columns, steps, place, place_row, room, room + tiles),
                        *(begin, base_row, to + j * to_size, to_row, ends),
                    )
                elif columns == WIDE * LANES if FULL else columns > (WIDE - 1) * LANES:
                    wide_halves(like, *strip, columns - (WIDE - 1) * LANES, ends)
                elif columns > LANES:
                    middle_halves(like, *strip, columns - LANES, ends)
                else:
                    narrow_halves(like, *strip, columns, ends)
                j += columns
            base, base_row = to, to_row
            h += deep
        i += rows
    if unit:
        end_tiles(like, room)
    if block:
        free(block)


@pasted
def unit_pays(n, m, k):
    """Whether the matrix unit is faster than pairs of vectors: not for few rows, of which it would
    multiply 16, nor where to enter it takes as long as all else."""
    return n >= 8 and m >= EDGE and k >= STEP and n * m * k >= 1 << 17


@pasted
def clear_lines(like, place, nbytes):
    """Write so many bytes of zeros, a whole number of vectors, to an address."""
    for j in range(0, nbytes, VECTOR_BYTES):
        clear(like, place + j)


@device
def turn_words(like, x, x_row, out, out_row, words, rows):
    """Write so many words of each row, which lie below one another at x, side by side to out."""
    floats = pointer(x, np.float32)
    for i in range(0, words, LANES):
        for j in range(0, rows, LANES):
            place, to = x + i * x_row + j * 4, out + j * out_row + i * 4
            transpose(floats, place, x_row, LANES, min(LANES, rows - j), to, out_row)


@device
def multiplied(
    like, rows, columns, steps, x, x_row, y, sums, start, start_row, out, out_row, rounds
):
    """``out = start + x y`` of a strip on the matrix unit; sums: the address of room for 16 rows.

    With the last rows some before them are multiplied again, for tiles have 16.
    """
    tiles = (columns + EDGE - 1) // EDGE
    last = columns - (tiles - 1) * EDGE
    i = 0
    while i < rows:
        again = max(0, min(i, i + EDGE - rows))
        height = min(EDGE - again, rows - i)
        amx_halves(like, tiles, steps, x + (i - again) * x_row, x_row, y, ROOM_ROW, sums)
        found = sums + again * ROOM_ROW
        amx_finish(like, tiles, height, last, found, start, start_row, out, out_row, rounds)
        i += height
        start += height * start_row
        out += height * out_row


@pasted
def pack_lines(like, reads, out, out_row, x, x_row, rows, columns):
    """Write a factor as words: x has so many rows along the sum, of numbers of ``reads`` bytes."""
    if reads == 4:
        round_pairs(like, out, out_row, x, x_row, rows, columns)
    elif halves_per_word(like) == 2:
        pair_rows(like, out, out_row, x, x_row, rows, columns)
    else:
        widen_rows(like, out, out_row, x, x_row, rows, columns)


@pasted
def pack_listed(like, reads, out, x, shift, rows, columns):
    """``pack_lines`` of a strip of rows at places in a list."""
    if reads == 4:
        round_listed(like, out, ROOM_ROW, x, shift, rows, columns)
    elif halves_per_word(like) == 2:
        pair_listed(like, out, ROOM_ROW, x, shift, rows, columns)
    else:
        widen_listed(like, out, ROOM_ROW, x, shift, rows, columns)


@device
def turn_strip(like, reads, out, x, x_row, columns, deep):
    """Write a strip of words of a factor stored by columns, ``deep`` numbers of ``reads`` bytes in
    each, at ``out``."""
    floats, paired = pointer(out, np.float32), halves_per_word(like) == 2
    words, square = deep // 2 if paired else deep, scratch(SQUARE)
    if reads == 4:
        words = (deep + 1) // 2
    i = 0
    while i < columns:
        height = min(LANES, columns - i)
        j = 0
        while j < words:
            to = out + j * ROOM_ROW + i * 4
            width = min(LANES, words - j)
            if reads == 4:
                place = x + i * x_row + j * 8
                round_rows(like, square, VECTOR_BYTES, place, x_row, height, min(32, deep - 2 * j))
                transpose(floats, square, VECTOR_BYTES, height, width, to, ROOM_ROW)
            elif paired:
                place = x + i * x_row + j * 4
                fetch_rows(like, place + LANES * x_row, x_row, LANES)
                transpose(floats, place, x_row, height, width, to, ROOM_ROW)
            else:
                place = x + i * x_row + j * 2
                fetch_rows(like, place + LANES * x_row, x_row, LANES)
                transpose(like, place, x_row, height, width, to, ROOM_ROW)
            j += LANES
        i += LANES
    if paired and reads == 2 and deep % 2:
        halves, last = pointer(x, np.uint16), pointer(out + words * ROOM_ROW, np.uint32)
        for j in range(columns):
            last[j] = halves[(j * x_row + 4 * words) // 2]
