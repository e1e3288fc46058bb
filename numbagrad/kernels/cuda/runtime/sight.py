"""What a block of a convolution sees: offsets and bits of places and taps, and the steps ahead.

An element of the patches is what a place of the result sees through a tap. A place has an offset in
the source, and bits for the coordinates of taps that look outside from there; a tap has an offset
and the bits of its coordinates. So an element costs one addition and one test, whatever the
strides are. Of either kind a thread knows those of its columns; those of the steps lie in a ring in
shared memory and are found many slices at a time. Start reading at ``sight``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numba import int32, int64, uint32

from .shared import which
from .squares import repeated
from .warp import inlined, pasted

__all__ = ["FORM", "NOWHERE", "TAPS", "Sight", "lines_of", "sight"]

TAPS = 30
"""Bits for coordinates of taps. Of the other two of 32 one is set in each tap, one in each place,
and both in a step that there is not, which is seen by none."""

FORM = 6
"""Numbers of a row of ``form``."""

NOWHERE = -1
"""The offset in the result of a column that it has not; the bits of a step that there is not."""


@inlined
def _cut(at, size):
    """Quotient and rest of two ints of 31 bits."""
    whole = int32(uint32(at) // uint32(size))
    return whole, int32(at - whole * size)


@inlined
def lines_of(at, place, width, height):
    """Where the three lines of a place are."""
    rest, px = _cut(place, width)
    pz, py = _cut(rest, height)
    return 4 * (at + px), 4 * (at + width + py), 4 * (at + width + height + pz)


@dataclass(frozen=True)
class Sight:
    """Functions of a kernel, and where its ring has what: ``chunk`` steps are found at a time, of
    which it has two; from ``others`` on lie their offsets in x, from ``columns`` on columns."""

    chunk: int
    others: int
    columns: int
    size: int
    mine: Any
    seen: Any
    find: Any
    hold_taps: Any


def sight(places: bool, rows: int, cols: int, threads: int, span: int) -> Sight:
    """For tiles of so many rows and columns, and slices of ``span`` steps. places: the steps are
    places and the columns taps, otherwise it is the other way round."""
    chunk = max(threads, 4 * span)
    others, columns = 4 * chunk, 6 * chunk
    assert chunk & (chunk - 1) == 0

    @inlined
    def mine(n, shares):
        """The thread; row of ``form``, share, group, first row and first column of its block."""
        thread, block, row, group = which()
        high, shares = int32((n + rows - 1) // rows), int32(shares)
        at, share = FORM * int32(row // shares), int32(row % shares)
        # So that LLVM knows what the thread is.
        thread = int32(thread % threads)
        return thread, at, share, group, int32(block % high * rows), int64(block // high) * cols

    @inlined
    def seen(lines, at, place, width, height):
        """Offset and bits of a place."""
        px, py, pz = lines_of(at, place, width, height)
        return (
            lines[px] + lines[py] + lines[pz],
            lines[px + 1] | lines[py + 1] | lines[pz + 1],
        )

    @pasted
    def find(r, ring, to, first, left, taps, lines, form, x_image, y_image, thread):
        """An entry of the ring: offset of a step in y and bits, then elsewhere its offset in x.

        to: where the entries begin; first, left: the first of the steps, in places from that of
        the share's first image on, and how many there are.
        """
        i = thread + r * threads
        offset, bits, other = 0, NOWHERE, 0
        if i < left:
            if places:
                image, other = _cut(first + i, form[0])
                offset, bits = seen(lines, form[3], other, form[4], form[5])
                offset += image * y_image
                other += image * x_image
            else:
                offset, bits = taps[2 * (first + i)], taps[2 * (first + i) + 1]
        i = (i + to) & (2 * chunk - 1)
        ring[2 * i], ring[2 * i + 1] = int32(offset), int32(bits)
        if places:
            ring[others + i] = int32(other)

    @inlined
    def hold_taps(ring, thread, first_col, m, taps):
        """Offset and bits of the columns behind the ring: there are more than registers for them.

        For one outside those of the last.
        """
        for i in range(thread, cols, threads):
            col, to = min(first_col + i, m - 1), columns + 2 * i
            ring[to], ring[to + 1] = taps[2 * col], taps[2 * col + 1]

    size = columns + 2 * cols if places else others
    find = repeated(find, chunk // threads)
    return Sight(chunk, others, columns, size, mine, seen, find, hold_taps)
