"""How a reduction along the middle axis of (outer, n, inner) is shared out among threads.

The middle axis is cut into pieces where it is long, the columns into tiles of accumulators that lie
side by side. Both depend on the shape alone, hence so do the bits of the result.
"""

from __future__ import annotations

from .inner import inner
from .intrinsics import lesser

__all__ = [
    "GRAIN",
    "LANES",
    "LARGE",
    "WIDE",
    "inlined",
    "is_deep",
    "lanes_of",
    "parts_of",
    "pieces",
    "rows_of",
]

GRAIN = 1 << 17
"""Elements from which threads pay (benchmarks: two threads gain from about 100,000 float32)."""

PIECE = 1 << 16
"""Elements of a piece: large against a task's cost, small against the last-level cache. Of columns
twice as many: what a piece gives is as long as a row, and is read again."""

LANES = 1024
"""Most accumulators side by side when inner > 1: 8 KB of float64."""

WIDE, LARGE = 4096, 1 << 22
"""So many for arrays from ``LARGE`` elements on: memory, past the caches, gives rows of fewer
columns 20 to 30 % slower."""

ROWS = 64
"""Least rows of a piece of columns: its result is read again, as a row more."""

PARTS = 64
"""Most parts of one parallel loop; each does its share of the rows with its own accumulators."""

SHARE = 1 << 12
"""Elements that are worth a part of their own."""

inlined = inner(forceinline=True, fastmath={"contract", "nsz", "reassoc"})
"""For the parts of a reduction; reordering sums is what lets LLVM vectorise them."""


def pieces(outer: int, n: int, inner: int) -> int:
    """Into how many parts to cut the middle axis of (outer, n, inner); 1 unless threads gain."""
    if outer * n * inner < GRAIN:
        return 1
    lanes = WIDE if outer * n * inner >= LARGE else LANES
    tasks = outer * -(-inner // lanes)
    if tasks >= PARTS:
        return 1
    many = -(-n * min(inner, lanes) // (PIECE if inner == 1 else 2 * PIECE))
    many = max(1, min(n, many + many % 2))  # two threads get as many
    # Results of pieces of columns are as long as the columns: no more than threads can use.
    return many if inner == 1 else max(1, min(many, n // ROWS, -(-PARTS // tasks)))


@inlined
def lanes_of(x):
    """Most accumulators side by side for columns of ``x``."""
    return WIDE if x.size >= LARGE else LANES


@inlined
def is_deep(x, columns):
    """Whether to read several rows of ``columns`` side by side, not one after another.

    The accumulators are read and written less often, but memory, past the caches, gives what lies
    one behind the other faster where rows are short: 27 GB/s instead of 14 for rows of 1 KB.
    """
    return x.size < LARGE or columns > LANES


@inlined
def rows_of(piece, n, k):
    """First and last row of ``piece``, counted over all of x (outer, n, inner)."""
    if k == 1:
        return piece * n, piece * n + n
    o, c = piece // k, piece % k
    return o * n + c * n // k, o * n + (c + 1) * n // k


@inlined
def parts_of(out, x):
    """How many shares of ``x`` threads take, one after another."""
    outer, k, inner = out.shape
    return lesser(outer * k * -(-inner // lanes_of(x)), lesser(1 + x.size // SHARE, PARTS))
