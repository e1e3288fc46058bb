"""Our product of float32 matrices on the matrix unit of Intel's processors: see ``amx.py``.

Start at ``by_amx``.
"""

from __future__ import annotations

import numpy as np
from numba import types

from ..amx import (
    EDGE,
    LINE,
    PACKED,
    PANEL_BYTES,
    STEP,
    STRIP,
    amx_merge,
    amx_square,
    amx_strip,
    begin_tiles,
    clear,
    end_tiles,
    exponent_of,
    note_exponents,
    split,
)
from ..copies import transpose
from ..inner import device, pasted
from ..intrinsics import pointer
from ..tile import scratch
from .tiled_product import by_tiles

__all__ = ["STRIP_COLUMNS", "by_amx", "pack", "unit_is_faster"]

STEPS = 4
"""Most tiles along the sum: 64 columns of so many fill the innermost cache."""

ROWS = 512
"""Most rows of ``x`` that are split before they are multiplied: 384 KB."""

COLUMNS = 512
"""Most columns beside them whose sums are kept until they are whole: 1 MB, each strip without gaps,
as rows of a large matrix lie in the same few sets of a cache (1024^3: 10.4 ms in place, 8.0 so)."""

STRIP_COLUMNS = STRIP * EDGE
"""Columns of a strip."""

RIGHT_BYTES = STRIP * STEPS * PANEL_BYTES
RESULT_BYTES = 2 * EDGE * STRIP * LINE
PEAK_BYTES = 2 * LINE

LEAST = 1 << 17
"""Multiplications below which the unit is not worth to enter."""

GROUP = 8
"""Rows that go to the unit or to tiles together, whatever rows are multiplied with them. Threads
share rows by multiples of these, so that results do not depend on their number."""

LARGEST = 127 + 61
"""Exponent, as ``exponent_of`` gives it, from which sums may overflow that would not in float32."""

LOWEST = 127 - 79
"""That up to which parts of a number may be under 2^-126, which the unit takes for 0."""

SMALLEST = 2 * 127 - 74
"""Sum of two up to which parts of products may be under 2^-126: they would be 0."""

malloc = types.ExternalFunction("malloc", types.int64(types.int64))
free = types.ExternalFunction("free", types.void(types.int64))


@pasted
def unit_is_faster(n, m, k):
    """Whether the unit beats tiles, whose multiplications take twice as long, while to split a
    number takes as long as 40 of its: measured by ``python -m benchmarks gemm``."""
    work = n * m * k
    if work < LEAST:
        return False
    high, wide, deep = (n + 15) & ~15, (m + 15) & ~15, (k + 31) & ~31
    return deep * (high * wide + 40 * (n + m)) < 2 * work


@device
def by_amx(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout, parts):
    """``product`` of float32; parts: how many of each number to multiply.

    Groups of rows with numbers that are too large, infinite or NaN, and of small ones alone, are
    multiplied by tiles, and so are all rows by such a strip of y.
    """
    size, packed = 4, y
    if transy == PACKED:
        told = pointer(packed + LINE, np.int64)
        transy, y, ldy = told[0], told[1], told[2]
    else:
        packed = 0
    x_row, y_row, out_row = ldx * size, ldy * size, ldout * size
    depth = depth_of(k)
    panels = (min(n, ROWS) + EDGE - 1) // EDGE
    left_bytes = panels * (depth // STEP) * PANEL_BYTES
    right_bytes = 0 if packed else RIGHT_BYTES
    wide = min((m + STRIP_COLUMNS - 1) & -STRIP_COLUMNS, COLUMNS)
    sums_bytes = min(n, ROWS) * wide * size if k > depth else 0
    highs_bytes = (
        panels * (EDGE // GROUP) * 8 + GROUP * LINE
    )  # what a group may read past its tiles
    # A thread's stack is short.
    block = malloc(left_bytes + right_bytes + sums_bytes + highs_bytes + LINE)
    if block == 0:
        by_tiles(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout)
        return
    left = (block + LINE - 1) & -LINE
    here = left + left_bytes
    sums = here + right_bytes
    highs = sums + sums_bytes
    room, result = scratch(LINE), scratch(RESULT_BYTES)
    peaks, peak, both = scratch(PEAK_BYTES), scratch(LINE), scratch(LINE)
    lines, across = min(n, EDGE), size if transx else x_row
    begin_tiles(like, lines, room)
    # A block of the result stays in the second cache until all of the sum is in it.
    for i in range(0, n, ROWS):
        rows = min(ROWS, n - i)
        for begin in range(0, m, COLUMNS):
            end, place = min(begin + COLUMNS, m), packed + 2 * LINE
            for h in range(0, k, depth):
                deep = min(depth, k - h)
                steps = (deep + STEP - 1) // STEP
                first = x + (h * x_row + i * size if transx else i * x_row + h * size)
                panel = steps * PANEL_BYTES
                clear(like, peaks)
                clear(like, peaks + LINE)
                clear(like, both)
                split_all(
                    *(like, not transx, transx, first, x_row, rows, deep),
                    *(left, panel, PANEL_BYTES, peaks, highs, both),
                )
                least, most = pointer(both, np.int64)[0], pointer(both, np.int64)[1]
                for j in range(begin, end, STRIP_COLUMNS):
                    columns = min(STRIP_COLUMNS, m - j)
                    second = y + (j * y_row + h * size if transy else h * y_row + j * size)
                    if packed:
                        strip = place + j // EDGE * panel
                        high = exponent_of(packed)
                    else:
                        strip = here
                        clear(like, peak)
                        step = (columns + EDGE - 1) // EDGE * PANEL_BYTES
                        split_all(
                            *(like, transy, transy, second, y_row, columns, deep),
                            *(strip, PANEL_BYTES, step, peak, 0, 0),
                        )
                        high = exponent_of(peak)
                    kept = sums + (j - begin) * rows * size
                    added, added_row, to, to_row = kept, STRIP_COLUMNS, kept, STRIP_COLUMNS
                    if h == 0:
                        added_row = ldstart if start else 0
                        added = start + (i * added_row + j) * size if start else 0
                    if h + deep == k:
                        to, to_row = out + i * out_row + j * size, ldout
                    if can_multiply(least, high) and can_multiply(most, high):
                        multiplied(
                            *(like, lines, rows, columns, steps, left, strip, result),
                            *(added, added_row * size, to, to_row * size, parts),
                        )
                        continue
                    none = max(least, high) >= LARGEST
                    none = none or not can_multiply(min(most, LARGEST - 1), high)
                    count = rows if none else GROUP
                    for g in range(0, rows, count):
                        count = min(count, rows - g)
                        at = added + g * added_row * size if added else 0
                        there = to + g * to_row * size
                        if not none and can_multiply(pointer(highs, np.int64)[g // GROUP], high):
                            # Half of a panel, and whatever comes after it.
                            half = left + g // EDGE * panel + g % EDGE * LINE
                            multiplied(
                                *(like, 0, count, columns, steps, half, strip, result),
                                *(at, added_row * size, there, to_row * size, parts),
                            )
                        else:
                            by_tiles(
                                *(like, transx, transy, count, columns, deep),
                                *(first + g * across, ldx, second, ldy, at, added_row),
                                *(there, to_row),
                            )
                place += (m + EDGE - 1) // EDGE * panel
    end_tiles(like, room)
    free(block)


@pasted
def can_multiply(high, high_2):
    """Whether the unit is as good as float32 instructions for factors of these exponents."""
    if max(high, high_2) >= LARGEST:
        return False
    low = min(high, high_2)
    return low == 0 or (low > LOWEST and high + high_2 > SMALLEST)


@pasted
def depth_of(k):
    """Rows of y in a strip: all but the last have as many."""
    blocks = (k + STEP - 1) // STEP
    strips = (blocks + STEPS - 1) // STEPS
    return (blocks + strips - 1) // strips * STEP


@device
def pack(like, transy, m, k, y, ldy, out):
    """Write op(y), k by m, to ``packed_bytes(m, k)`` at out, a whole number of lines.

    There, its largest bits; how and where it is stored, which must remain; and its strips.
    """
    told = pointer(out + LINE, np.int64)
    told[0], told[1], told[2] = transy, y, ldy
    clear(like, out)
    row, size, depth, place = ldy * 4, 4, depth_of(k), out + 2 * LINE
    h = 0
    while h < k:
        deep = min(depth, k - h)
        first = y + (h * size if transy else h * row)
        j = 0
        while j < m:
            columns = min(STRIP_COLUMNS, m - j)
            step = (columns + EDGE - 1) // EDGE * PANEL_BYTES
            begin = first + j * (row if transy else size)
            split_all(
                like, transy, transy, begin, row, columns, deep, place, PANEL_BYTES, step, out, 0, 0
            )
            place += step * ((deep + STEP - 1) // STEP)
            j += columns
        h += deep


@device
def split_all(like, along, turned, x, row, count, deep, out, panel, step, peak, highs, both):
    """Split ``count`` rows or columns of a factor, ``deep`` numbers of each, into tiles at out.

    along: whether the numbers of each lie side by side; turned: whether tiles have to be
    transposed; row: bytes from row to row as stored; panel, step: bytes from 16 rows or columns to
    the next, and from 32 numbers of each. highs: where the exponents of each ``GROUP`` go, and
    ``both`` their extremes, for which peak is two vectors of zeros; 0: peak is one that comes to
    hold the largest bits of all.
    """
    size = 4
    i = 0
    while i < count:
        place, second = out, peak
        if highs and along:
            second = peak + LINE
        out += panel
        lines = min(EDGE, count - i)
        h = 0
        while h < deep:
            near, far = min(EDGE, deep - h), max(0, min(EDGE, deep - h - EDGE))
            if along:
                first = x + i * row + h * size
                split(like, lines, first, row, LINE, lines, near, lines, far, place, peak, second)
            else:
                first = x + h * row + i * size
                split(
                    *(like, EDGE, first, row, EDGE * row, near, lines, far, lines),
                    *(place, peak, second),
                )
            if turned:
                for part in range(3):
                    tile = place + part * (PANEL_BYTES // 3)
                    transpose(like, tile, LINE, EDGE, EDGE, tile, LINE)
            place += step
            h += STEP
        if highs:
            note_exponents(like, peak, not along, highs, both)
            highs += EDGE // GROUP * 8
        i += EDGE


@device
def multiplied(
    like, lines, rows, columns, steps, left, right, room, start, start_row, out, out_row, parts
):
    """``out = x y + start`` for panels of both factors.

    lines: rows of a tile of the result; room: the address of room for two panels of it. A start of
    0 adds nothing. What is added comes last, to be rounded once: also where it is what the strips
    before have come to.
    """
    tiles = (columns + EDGE - 1) // EDGE
    last = columns - (tiles - 1) * EDGE
    panel, step = steps * PANEL_BYTES, tiles * PANEL_BYTES
    begin_step, to_step = EDGE * start_row if start else 0, EDGE * out_row
    pairs = rows // (2 * EDGE)
    for c in range(0, tiles, 2):
        some, end = min(2, tiles - c), last if c + 2 >= tiles else EDGE
        x, y, to = left, right + c * PANEL_BYTES, out + c * LINE
        begin = start + c * LINE if start else 0
        for _ in range(pairs):
            if start == 0 and end == EDGE:
                amx_square(like, some, steps, x, panel, y, step, to, out_row, parts)
            else:
                amx_square(like, some, steps, x, panel, y, step, room, STRIP * LINE, parts)
                amx_merge(like, some, 2 * EDGE, end, room, begin, start_row, to, out_row)
            x += 2 * panel
            begin += 2 * begin_step
            to += 2 * to_step
    left += 2 * pairs * panel
    start += 2 * pairs * begin_step
    out += 2 * pairs * to_step
    i = 2 * pairs * EDGE
    some = STRIP if tiles == STRIP else 1
    while i < rows:
        height = min(EDGE, rows - i)
        direct = start == 0 and last == EDGE and height == lines
        to, to_row = (out, out_row) if direct else (room, STRIP * LINE)
        for c in range(0, tiles, some):
            y, there = right + c * PANEL_BYTES, to + c * LINE
            amx_strip(like, some, steps, left, y, step, there, to_row, parts)
        if not direct:
            amx_merge(like, tiles, height, last, room, start, start_row, out, out_row)
        left += panel
        out += to_step
        start += begin_step
        i += EDGE
