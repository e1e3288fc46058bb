"""What the steps of a recurrent layer multiply by, laid out once for all of them.

Start at ``prepared`` and ``add_product``; the layers are in ``recurrent.py``.
"""

from __future__ import annotations

import numpy as np

from ..amx import LINE, PACK, PACKED, packed_bytes, packing_pays, parts_multiplied
from ..copies import copy_rectangle
from ..inner import device
from ..intrinsics import address
from ..pieces import thread_count
from ..product import gemm
from ..tile import WIDE
from ..vectors import VECTOR_BYTES
from .tiled_product import turned

__all__ = ["active", "add_product", "add_states", "copied", "prepared", "rows_of_a_task"]

ROWS = 8
"""Rows of the batch that one task carries, or twice as many."""


@device
def strip_of(like, m):
    """Columns in a strip of a factor of ``m`` columns: as many as the widest tile has."""
    return WIDE * VECTOR_BYTES // like.itemsize if VECTOR_BYTES else m


@device(allocates=True)
def prepared(weight, transposed, steps, n):
    """What each step multiplies ``n`` rows by: op(weight) as ``add_product`` likes it best.

    transposed: whether op transposes. Strips of columns, one after the other, of which a step of
    few rows reads line after line: as rows of a matrix such lines lie so far apart that the
    innermost cache has no room for a strip (64 steps of 8 rows, 128 by 512: 710 and 530 us). A
    packed factor of the matrix unit where that is faster, which has one row longer than a strip.
    Empty where there is one step alone.
    """
    rows, columns = weight.shape
    m, k = (rows, columns) if transposed else (columns, rows)
    if parts_multiplied(weight) and steps > 4 and packing_pays(min(n, ROWS), m, k):
        out = np.empty((1, packed_bytes(m, k) // weight.itemsize + LINE), weight.dtype)
        gemm(weight, PACK, transposed, 0, m, k, 0, 0, address(weight), columns, 0, 0, lined(out), 0)
        return out
    strip = strip_of(weight, m)
    count = (m + strip - 1) // max(1, strip) if steps > 1 else 0
    # A turned square of lanes is written whole, past the last row and the columns there are.
    out = np.empty((count * k + strip if count else 0, strip), weight.dtype)
    if VECTOR_BYTES:
        size = weight.itemsize
        for i in range(count):
            width, to = min(strip, m - i * strip), address(out) + i * k * strip * size
            if transposed:
                begin = address(weight) + i * strip * columns * size
                turned(weight, width, k, begin, columns * size, to, strip * size)
            else:
                begin = address(weight) + i * strip * size
                copy_rectangle(weight, to, strip * size, begin, columns * size, k, width)
    elif count:
        for h in range(k):
            for j in range(m):
                out[h, j] = weight[j, h] if transposed else weight[h, j]
    return out


@device
def rows_of_a_task(right, weight, transposed, n):
    """How many rows of the batch one task carries, given what ``prepared`` made.

    The matrix unit takes 16 rows in the time in which a packed factor comes from the second cache:
    64 steps of 16 rows, 128 by 512, take 370 us, and twice 8 rows 520. What it makes of 8 rows does
    not depend on others, so tasks may be as many as there are threads for.
    """
    m = weight.shape[0] if transposed else weight.shape[1]
    on_unit = right.size and right.shape[1] > strip_of(weight, m)
    return 2 * ROWS if on_unit and n > 2 * ROWS * (thread_count() - 1) else ROWS


@device
def lined(array):
    """The first address in an array that begins a line of the cache."""
    return (address(array) + LINE - 1) & -LINE


@device
def add_product(like, weight, transposed, right, rows, x, start, ldstart, out):
    """``out = x op(weight) + start`` for some rows; right: of ``prepared``; x, start, out:
    addresses."""
    height, width = weight.shape
    m, k = (height, width) if transposed else (width, height)
    strip, size = strip_of(like, m), like.itemsize
    if rows <= 0:
        return
    if not right.size:
        gemm(like, 0, transposed, rows, m, k, x, k, address(weight), width, start, ldstart, out, m)
    elif right.shape[1] > strip:
        gemm(like, 0, PACKED, rows, m, k, x, k, lined(right), width, start, ldstart, out, m)
    else:
        for j in range(0, m, strip):
            columns, factor = min(strip, m - j), address(right) + j * k * size
            begin, to = start + j * size if start else 0, out + j * size
            gemm(like, 0, 0, rows, columns, k, x, k, factor, strip, begin, ldstart, to, m)


@device
def add_states(like, weight, right, now, kept, before, beginning, start, ldstart, out):
    """``add_product`` for ``now`` rows: of the states ``before`` for those that are ``kept`` from
    the step before, else of the same rows of ``beginning``. All addresses."""
    wide, narrow = weight.shape[0] * like.itemsize, weight.shape[1] * like.itemsize
    for fresh in range(2):
        first, end, state = (kept, now, beginning) if fresh else (0, kept, before)
        begin = start + first * ldstart * like.itemsize
        state, to = state + first * narrow, out + first * wide
        add_product(like, weight, 1, right, end - first, state, begin, ldstart, to)


@device
def active(starts, t, first, rows):
    """How many of ``rows`` from ``first`` on take part in step t; none before and after all."""
    if t < 0 or t >= starts.size - 1:
        return 0
    return max(0, min(rows, starts[t + 1] - starts[t] - first))


@device
def copied(to, x, first, at, begin, end):
    """Write x[at + i] to to[first + i] for i from begin to before end."""
    for i in range(begin, end):
        for j in range(x.shape[1]):
            to[first + i, j] = x[at + i, j]
