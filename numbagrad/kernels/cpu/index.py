"""Reading and writing at computed places.

Arrays are seen as (n, m, k): the indexed dimension, what is before it and what is after it. Every
kernel checks its indices: ``bad`` (1,) int64 becomes the position of the first index out of range,
or -1; then nothing was read or written outside. Entries that meet in one place are added or
written in the order of their index, whatever the number of threads. Start reading at ``take``.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..copies import copy_rows_at
from ..inner import pasted
from ..intrinsics import address, load, load_apart, pointer, store, store_apart
from ..machine import kernel
from ..vectors import VECTOR_BYTES

# Columns that one thread owns where rows may meet: enough for a cache line of every dtype.
_WIDTH = 64

# Entries of an index that one task checks and reads: they stay in the innermost cache.
_BLOCK = 1024


@pasted
def first_bad(index, m, wrap):
    """Position of the first entry of the flat ``index`` outside [0, m), or [-m, m) with wrap."""
    low = -m if wrap else 0
    signs = 0  # negative once one of two differences was: two thirds of the time of comparing
    for i in range(index.size):
        signs |= (index[i] - low) | (m - 1 - index[i])
    if signs < 0:
        for i in range(index.size):
            if index[i] < low or index[i] >= m:
                return i
    return -1


@pasted
def _all_good(index, start, stop, m):
    """Whether the entries of the flat ``index`` from start to stop are in [0, m)."""
    signs = 0
    for i in range(start, stop):
        at = index[np.uintp(i)]  # a signed one might be negative, which costs the SIMD form
        signs |= at | (m - 1 - at)
    return signs >= 0


@kernel(grain=65536, outputs=2, moves=True)
def take(out, bad, x, index, wrap, skip):
    """out (n, j, k), x (n, m, k) C; index (j,) int64: out[:, i] is x[:, index[i]].

    wrap: negative indices count from the end. skip: an index whose rows become 0, or -1.
    """
    n, j, k = out.shape
    m = x.shape[1]
    bad[0] = first_bad(index, m, wrap)
    if bad[0] >= 0:
        return
    zero, nbytes, rows = x.dtype.type(0), k * x.itemsize, max(1, _BLOCK // max(1, k))
    blocks = (j + rows - 1) // rows
    for block in prange(n * blocks):
        a = block // blocks
        start = (block - a * blocks) * rows
        stop = min(start + rows, j)
        if k == 1:
            for i in range(start, stop):
                at = load_apart(index, i, "0.0.2")
                at = at + m if at < 0 else at
                value = load_apart(x, a * m + at, "0.0.2")
                store_apart(out, a * j + i, zero if at == skip else value, "0.1.2")
        elif VECTOR_BYTES:  # a constant
            to = address(out) + (a * j + start) * nbytes
            copy_rows_at(
                *(pointer(to, np.uint8), to, address(x) + a * m * nbytes, nbytes),
                *(address(index) + 8 * start, stop - start, m, skip),
            )
        else:
            for i in range(start, stop):
                b = np.uintp(i)
                at = index[b]
                at = at + m if at < 0 else at
                for c in range(k):
                    out[a, b, c] = zero if at == skip else x[a, np.uintp(at), c]


@kernel(grain=65536, outputs=2)
def add_at(out, bad, x, index, wrap, skip):
    """out (n, m, k), x (n, j, k) C; index (j r,): x[:, i] is added to out at r entries of index.

    out is read too. wrap, skip: as in ``take``.
    """
    n, m, k = out.shape
    bad[0] = first_bad(index, m, wrap)
    if bad[0] >= 0:
        return
    rows = x.shape[1]
    r = index.size // max(1, rows)
    if k == 1:
        for a in prange(n):
            row, turn = a * rows, 0  # counted: a loop over r inside takes a quarter more
            for b in range(index.size):
                at = load(index, b)
                at = at + m if at < 0 else at
                if at != skip:
                    store(out, a * m + at, load(out, a * m + at) + load(x, row))
                turn += 1
                if turn == r:
                    row, turn = row + 1, 0
        return
    blocks = (k + _WIDTH - 1) // _WIDTH
    for block in prange(n * blocks):
        a = block // blocks
        start = (block - a * blocks) * _WIDTH
        stop = min(start + _WIDTH, k)
        for row in range(rows):
            for b in range(row * r, (row + 1) * r):
                at = index[b]
                at = at + m if at < 0 else at
                if at != skip:
                    for i in range(start, stop):
                        c = np.uintp(i)  # a signed one might be negative, which costs the SIMD form
                        out[a, at, c] += x[a, row, c]


@kernel(grain=65536, outputs=2, moves=True)
def put_at(out, bad, x, index, wrap):
    """out (n, m, k), x (n, j, k) C; index (j,): out[:, index[i]] becomes x[:, i], the last wins."""
    n, m, k = out.shape
    bad[0] = first_bad(index, m, wrap)
    if bad[0] >= 0:
        return
    if k == 1:
        for a in prange(n):
            for b in range(index.size):
                at = index[b]
                at = at + m if at < 0 else at
                out[a, np.uintp(at), 0] = x[a, b, 0]
        return
    blocks = (k + _WIDTH - 1) // _WIDTH
    for block in prange(n * blocks):
        a = block // blocks
        start = (block - a * blocks) * _WIDTH
        stop = min(start + _WIDTH, k)
        for b in range(index.size):
            at = index[b]
            at = at + m if at < 0 else at
            for i in range(start, stop):
                c = np.uintp(i)
                out[a, at, c] = x[a, b, c]


@kernel(outputs=2)
def fill_at(out, bad, index, value):
    """out (n, m, k) C; index (j,), negative ones from the end: out[:, index] becomes value."""
    n, m, k = out.shape
    bad[0] = first_bad(index, m, True)
    if bad[0] >= 0:
        return
    number = out.dtype.type(value)
    for a in range(n):
        for b in range(index.size):
            at = index[b]
            at = at + m if at < 0 else at
            for c in range(k):
                out[a, at, c] = number


@kernel(grain=65536)
def fill_where(out, mask, value):
    """out (m, k) C; mask (m,) bool: the rows where mask holds become value."""
    m, k = out.shape
    number = out.dtype.type(value)
    for a in prange(m):
        if mask[a]:
            for c in range(k):
                out[a, c] = number


@kernel(grain=65536, outputs=2, moves=True)
def gather(out, bad, x, index):
    """out, index (n, j, k); x (n, m, k) C: out[a, b, c] is x[a, index[a, b, c], c].

    With an index out of range what is written in out is undefined.
    """
    n, j, k = out.shape
    m = x.shape[1]
    entries, rows = index.reshape(-1), max(1, _BLOCK // max(1, k))
    values, numbers = x.reshape(-1), out.reshape(-1)
    bad[0] = -1
    if j * k == 1:  # one of each row: the classes that a loss looks at
        for block in prange((n + rows - 1) // rows):
            start, stop = block * rows, min(n, (block + 1) * rows)
            if _all_good(entries, start, stop, m):
                for i in range(start, stop):
                    numbers[np.uintp(i)] = values[np.uintp(i * m + entries[np.uintp(i)])]
            else:
                bad[0] = 0
        if bad[0] >= 0:
            bad[0] = first_bad(entries, m, False)
        return
    blocks = (j + rows - 1) // rows
    for block in prange(n * blocks):  # each is checked and then read, while it is in a cache
        a = block // blocks
        start = (block - a * blocks) * rows
        stop = min(start + rows, j)
        if not _all_good(entries, (a * j + start) * k, (a * j + stop) * k, m):
            bad[0] = 0
        elif k == 1:
            for i in range(a * j + start, a * j + stop):
                at = a * m + load_apart(entries, i, "0.0.2")
                store_apart(numbers, i, load_apart(values, at, "0.0.2"), "0.1.2")
        else:
            for i in range(start, stop):
                b = np.uintp(i)
                for c in range(k):
                    out[a, b, c] = x[a, np.uintp(index[a, b, c]), c]
    if bad[0] >= 0:
        bad[0] = first_bad(entries, m, False)


@kernel(grain=65536, outputs=2, moves=True)
def scatter(out, bad, x, index):
    """out (n, m, k); x, index (n, j, k) C: out[a, index[a, b, c], c] becomes x[a, b, c]."""
    n, m, k = out.shape
    j = index.shape[1]
    entries = index.reshape(-1)
    bad[0] = -1
    for stage in range(2):  # around one parallel loop, for each is compiled by itself
        for a in prange(n):
            if stage == 0:
                if not _all_good(entries, a * j * k, (a + 1) * j * k, m):
                    bad[0] = 0
            elif k == 1:
                for b in range(j):
                    out[a, np.uintp(index[a, b, 0]), 0] = x[a, b, 0]
            else:
                for b in range(j):
                    for c in range(k):
                        out[a, np.uintp(index[a, b, c]), c] = x[a, b, c]
        if bad[0] >= 0:
            bad[0] = first_bad(entries, m, False)
            return


@kernel(grain=65536, outputs=3, moves=True)
def gather_standing(out, bad, seen, x, index):
    """out, index (n, j, k); x (n, m, k) C: out[a, b, c] is x[a, index[a, b, c], c] where no later b
    names that place, and 0 elsewhere. seen (n, m, k) uint8 is 1 at places that were named."""
    n, j, k = index.shape
    m, zero = x.shape[1], x.dtype.type(0)
    bad[0] = first_bad(index.reshape(-1), m, False)
    if bad[0] >= 0:
        return
    for a in prange(n):
        for b in range(m):
            for c in range(k):
                seen[a, np.uintp(b), c] = 0
        for b in range(j - 1, -1, -1):
            for c in range(k):
                at = np.uintp(index[a, np.uintp(b), c])
                out[a, np.uintp(b), c] = x[a, at, c] if seen[a, at, c] == 0 else zero
                seen[a, at, c] = 1


@kernel(grain=65536, outputs=2)
def scatter_add(out, bad, x, index):
    """out (n, m, k); x, index (n, j, k) C: x[a, b, c] is added to out[a, index[a, b, c], c]."""
    n, m, k = out.shape
    j = index.shape[1]
    entries = index.reshape(-1)
    bad[0] = -1
    for stage in range(2):  # around one parallel loop, for each is compiled by itself
        for a in prange(n):
            if stage == 0:
                if not _all_good(entries, a * j * k, (a + 1) * j * k, m):
                    bad[0] = 0
            elif k == 1:
                for b in range(j):
                    out[a, np.uintp(index[a, b, 0]), 0] += x[a, b, 0]
            else:
                for b in range(j):
                    for c in range(k):
                        out[a, np.uintp(index[a, b, c]), c] += x[a, b, c]
        if bad[0] >= 0:
            bad[0] = first_bad(entries, m, False)
            return


@pasted
def _joined(total, value, how):
    """``total`` times ``value``, or the larger (how 2) or smaller (3) of them; NaN stays."""
    if how == 1:
        return total * value
    other = value > total if how == 2 else value < total
    return value if other or value != value else total


@kernel(grain=65536, outputs=2)
def scatter_join(out, bad, x, index, how):
    """out (n, m, k); x, index (n, j, k) C: x[a, b, c] joins out[a, index[a, b, c], c].

    how: 1 multiplies, 2 keeps the larger, 3 the smaller. out is read too.
    """
    n, m, k = out.shape
    bad[0] = first_bad(index.reshape(-1), m, False)
    if bad[0] >= 0:
        return
    for a in prange(n):
        for b in range(index.shape[1]):
            for c in range(k):
                at = np.uintp(index[a, b, c])
                out[a, at, c] = _joined(out[a, at, c], x[a, b, c], how)


@kernel(outputs=2)
def combine(out, bad, index, m, first):
    """out, index (j,) int64: out is out * m + index, or index if first; index counted in [-m, m).

    Called for one dimension after the other, it gives positions in all of them together.
    """
    bad[0] = first_bad(index, m, True)
    if bad[0] >= 0:
        return
    for i in range(out.size):
        at = index[i] + m if index[i] < 0 else index[i]
        out[i] = at if first else out[i] * m + at


@kernel
def count_nonzero(out, x):
    """out (1,) int64: how many entries of the flat x are not 0."""
    total = 0
    for i in range(x.size):
        total += 1 if x[i] else 0
    out[0] = total


@kernel
def nonzero(out, x):
    """out (j,) int64: the positions of the flat x that are not 0; there are j."""
    at, j = 0, out.size
    for i in range(x.size):
        if at == j:
            return
        out[np.uintp(at)] = i  # written again until one counts: half of branches would be wrong
        at += 1 if x[i] else 0


@kernel
def unravel(out, flat, shape):
    """out (j, r), flat (j,), shape (r,) int64: positions as coordinates in shape."""
    last = shape.size - 1
    start, stop = 0, -1
    for i in range(flat.size):
        at = flat[i]
        if start <= at < stop:  # in the row of the one before: a division takes 5 ns
            for d in range(last):
                out[i, d] = out[i - 1, d]
            out[i, last] = at - start
            continue
        rest = at
        for d in range(last, -1, -1):
            out[i, d] = rest % shape[d]
            rest //= shape[d]
        start = at - out[i, last]
        stop = start + shape[last]


@kernel(outputs=2)
def one_hot(out, bad, index):
    """out (j, m), index (j,) int64: 1 in the column that index says, else 0."""
    bad[0] = first_bad(index, out.shape[1], False)
    if bad[0] >= 0:
        return
    for i in range(index.size):
        for c in range(out.shape[1]):
            out[i, c] = 0
        out[i, index[i]] = 1


@kernel(outputs=2, moves=True)
def masked_scatter(out, bad, mask, x):
    """out, mask flat; x flat: the next entry of x wherever mask holds; out is kept elsewhere.

    bad (1,): -1, or how many entries would have been needed where x has too few.
    """
    at = 0
    for i in range(out.size):
        if mask[i]:
            if at < x.size:
                out[i] = x[at]
            at += 1
    bad[0] = at if at > x.size else -1
