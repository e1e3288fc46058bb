"""Our own matrix product, of tiles that stay in registers.

Start at ``by_tiles``. When it is taken is in ``gemm.py``.
"""

from __future__ import annotations

from ..copies import copy_lines, copy_listed, copy_panels, transpose
from ..inner import device, pasted
from ..intrinsics import itemsize, pointer
from ..product import LISTED
from ..tile import FULL, PANEL, WIDE, middle_strip, narrow_strip, scratch, wide_strip
from ..vectors import VECTOR_BYTES

__all__ = ["by_tiles", "turned"]

DEPTH = 256 if FULL else 128
"""Rows of ``y`` in a strip, which fills half of the innermost cache or, with four vectors each, two
thirds."""

TALL = 64
"""Rows of ``x`` from which it pays to copy a strip of ``y``, to have its lines side by side."""

BLOCK = 1 << (18 if FULL else 19)
"""Bytes of ``x`` that a strip is multiplied with: they stay in the second cache for the next."""

ROOM_ROW = WIDE * VECTOR_BYTES
ROOM = DEPTH * ROOM_ROW

SHALLOW, FEW = 8, 12
"""Rows of ``y`` up to which so few rows of the result are made at a time, through all strips: it is
the writing that takes the time then, and a strip of all rows would write a line here and there.
The outer product of 1024 numbers and 1024 takes 72 us so, and took 165. Of rows that lie 4 KB apart
the innermost cache holds twelve lines."""

PACKED = 64
"""Columns from which it pays to pack a transposed ``x``, where wide tiles take whole vectors."""

PANELS = 21
"""Most float32 panels of ``x``, packed; a gap between them keeps them apart in the caches."""

GAP = 64

CLASH = 4096
"""Bytes from row to row, or a multiple, with which AVX-512 has ``x`` copied, rows with a gap: as
stored they would lie in the same few places of each cache. 1024^3 in float64 takes 31 ms for 37.
Of a transposed ``x`` each step along a row is on another page from so many bytes on."""

COPIED = 64
"""Rows of float64 that are copied at a time, of float32 nearly twice as many: threads may have a
stack of 160 KB."""

PANELS_ROOM = PANELS * (4 * PANEL * DEPTH + GAP) if FULL else COPIED * (8 * DEPTH + GAP)


@device
def by_tiles(like, transx, transy, n, m, k, x, ldx, y, ldy, start, ldstart, out, ldout):
    """``product`` by tiles. Without divisions: a small product takes as long as one of them."""
    size = itemsize(like)
    lanes = VECTOR_BYTES // size
    x_row, x_col = (size, ldx * size) if transx else (ldx * size, size)
    y_row, out_row = ldy if transy == LISTED else ldy * size, ldout * size
    base, base_row = start, ldstart * size if start else 0
    shallow = k <= SHALLOW and not transy
    # Whether lines of y lie side by side, with room after the last number.
    lined = transy or (n >= TALL and not shallow)
    room = scratch(ROOM)
    panels = scratch(PANELS_ROOM)
    worth = n >= 2 * PANEL and m >= (8 if transx else 4) * WIDE * lanes
    clash = not FULL and worth and (x_col >= CLASH if transx else x_row & (CLASH - 1) == 0)
    h = 0
    while h < k:
        depth = min(DEPTH, k - h)
        i = 0
        while i < n:
            rows = min(FEW if shallow else BLOCK // (DEPTH * size), n - i)
            left, left_row, left_col = x + i * x_row + h * x_col, x_row, x_col
            whole, panel = 0, PANEL * depth * size + GAP  # rows of x in panels; bytes of one
            if FULL and transx and m >= PACKED:
                rows = min(rows, PANELS * 4 // size * PANEL)
                whole = rows // PANEL * PANEL
                copy_panels(like, panels, panel, left, x_col, depth, rows // PANEL)
            if clash:
                left_row, left_col = depth * size + GAP, size
                rows = min(rows, PANELS_ROOM // left_row)
                if transx:
                    copied_turned(like, depth, rows, left, x_col, panels, left_row)
                else:
                    copied(like, rows, depth, left, x_row, panels, left_row)
                left = panels
            j = 0
            while j < m:
                columns = min(m - j, WIDE * lanes)
                if columns < WIDE * lanes and (columns <= (WIDE - 1) * lanes or not lined):
                    columns = min(columns, 2 * lanes)  # two vectors, or the last one
                right, right_row = y + h * y_row + j * size, y_row
                if transy == LISTED:
                    copy_listed(like, room, y + h * 8, y_row + j * size, depth, columns)
                    right, right_row = room, ROOM_ROW
                elif transy:
                    first = y + j * y_row + h * size
                    turned(like, columns, depth, first, y_row, room, ROOM_ROW)
                    right, right_row = room, ROOM_ROW
                elif lined:
                    if columns == WIDE * lanes if FULL else columns > (WIDE - 1) * lanes:
                        last = columns - (WIDE - 1) * lanes
                        copy_lines(like, room, right, y_row, depth, last)
                    else:
                        copied(like, depth, columns, right, y_row, room, ROOM_ROW)
                    right, right_row = room, ROOM_ROW
                begin = base + i * base_row + j * size if base else 0
                to = out + i * out_row + j * size
                done = 0
                if FULL and whole > 0 and columns == WIDE * lanes:
                    wide_strip(
                        *(like, whole, depth, panels, size, PANEL * size, panel - PANEL * size),
                        *(right, right_row, begin, base_row, to, out_row, 0),
                    )
                    done = whole
                strip = (
                    *(rows - done, depth, left + done * left_row, left_row, left_col, 0),
                    *(right, right_row, begin + done * base_row, base_row),
                    *(to + done * out_row, out_row),
                )
                if columns == WIDE * lanes if FULL else columns > (WIDE - 1) * lanes:
                    wide_strip(like, *strip, columns - (WIDE - 1) * lanes)
                elif columns > lanes:
                    middle_strip(like, *strip, columns - lanes)
                else:
                    narrow_strip(like, *strip, columns)
                j += columns
            i += rows
        h += DEPTH
        base, base_row = out, out_row


@pasted
def turned(like, rows, columns, x, x_row, out, out_row):
    """Write ``x``, of so many rows and columns, with these exchanged, at ``out``."""
    size = itemsize(like)
    lanes = VECTOR_BYTES // size
    i = 0
    while i < rows:
        j = 0
        while j < columns:
            place, to = x + i * x_row + j * size, out + j * out_row + i * size
            height, width = min(lanes, rows - i), min(lanes, columns - j)
            transpose(like, place, x_row, height, width, to, out_row)
            j += lanes
        i += lanes


@pasted
def copied(like, rows, columns, x, x_row, out, out_row):
    """Write ``x``, of so many rows and columns, at ``out``."""
    for i in range(rows):
        to, row = pointer(out + i * out_row, like), pointer(x + i * x_row, like)
        for j in range(columns):
            to[j] = row[j]


@pasted
def copied_turned(like, rows, columns, x, x_row, out, out_row):
    """As ``turned``, number by number, which takes less to compile."""
    gap = out_row // itemsize(like)
    for i in range(rows):
        to, row = pointer(out, like), pointer(x + i * x_row, like)
        place = i
        for j in range(columns):
            to[place] = row[j]
            place += gap
