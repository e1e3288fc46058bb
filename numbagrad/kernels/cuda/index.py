"""Reading and writing at computed places.

Arrays are seen as (n, m, k): the indexed dimension, what is before it and what is after it. Every
kernel checks its indices first: ``bad`` (1,) int64 becomes the position of the first index out of
range, or -1; then nothing is read or written outside. Entries that meet in one place are added, or
written, in the order of their index: where they may meet, a stable sort brings them together and
one thread does them all. Start reading at ``take``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from . import reduce, scan
from .runtime import device, elementwise
from .runtime.intrinsics import as_type
from .runtime.launch import start, strided_grid
from .runtime.places import check, slice_keys, sorted_pairs
from .runtime.shape import BLOCK
from .runtime.warp import inlined, split

__all__ = [
    "add_at",
    "combine",
    "count_nonzero",
    "fill_at",
    "fill_where",
    "gather",
    "masked_scatter",
    "nonzero",
    "one_hot",
    "put_at",
    "scatter",
    "scatter_add",
    "scatter_join",
    "take",
    "unravel",
]

# -- reading ---------------------------------------------------------------------------------------


def _take(out, bad, x, index, size, j, m, k, skip):
    """A thread for each of ``size`` elements."""
    if bad[0] >= 0:
        return
    i = cuda.grid(1)
    while i < size:
        row, c = split(i, k)
        a, b = split(row, j)
        at = index[b]
        at = at + m if at < 0 else at
        out[i] = as_type(out, 0) if at == skip else x[(a * m + at) * k + c]
        i += cuda.gridsize(1)


def take(out, bad, x, index, wrap, skip):
    """out (n, j, k), x (n, m, k) C; index (j,) int64: out[:, i] is x[:, index[i]].

    wrap: negative indices count from the end. skip: an index whose rows become 0, or -1.
    """
    _, j, k = out.shape
    m = x.shape[1]
    check(bad, index, m, wrap)
    size = out.size
    if size:
        start(_take, strided_grid(size), BLOCK, out, bad, x, index, size, j, m, k, skip)


def _gather(out, bad, x, index, size, j, m, k):
    """A thread for each of ``size`` elements."""
    if bad[0] >= 0:
        return
    i = cuda.grid(1)
    while i < size:
        row, c = split(i, k)
        a, _ = split(row, j)
        out[i] = x[(a * m + index[i]) * k + c]
        i += cuda.gridsize(1)


def gather(out, bad, x, index):
    """out, index (n, j, k); x (n, m, k) C: out[a, b, c] is x[a, index[a, b, c], c]."""
    _, j, k = out.shape
    m = x.shape[1]
    check(bad, index, m, False)
    if out.size:
        start(_gather, strided_grid(out.size), BLOCK, out, bad, x, index, out.size, j, m, k)


# -- writing where entries may meet ----------------------------------------------------------------


def _element_keys(keys, places, bad, index, size, j, m, k):
    """keys: the flat place in (n, m, k) that each element of index (n, j, k) means."""
    i = cuda.grid(1)
    while i < size:
        row, c = split(i, k)
        a, _ = split(row, j)
        at = index[i] if bad[0] < 0 else 0
        keys[i] = (a * m + at) * k + c
        places[i] = i
        i += cuda.gridsize(1)


def _join_slices(out, bad, x, keys, places, size, n, j, r, m, k, skip, add):
    """A thread for each column of each entry; the first of those that meet does them all."""
    if bad[0] >= 0:
        return
    i = cuda.grid(1)
    while i < size:
        entry, column = split(i, n * k)
        a, c = split(column, k)
        at = keys[entry]
        if at != skip and (entry == 0 or keys[entry - 1] != at):
            to = (a * m + at) * k + c
            total = out[to] if add else as_type(out, 0)
            while entry < j and keys[entry] == at:
                row, _ = split(places[entry], r)
                value = x[(a * (j // r) + row) * k + c]
                total = as_type(out, total + value) if add else value
                entry += 1
            out[to] = total
        i += cuda.gridsize(1)


def _slices(out: Any, bad: Any, x: Any, index: Any, wrap: bool, skip: int, add: int) -> None:
    n, m, k = out.shape
    j = index.size
    check(bad, index, m, wrap)
    if not x.size:
        return
    keys, places = sorted_pairs(slice_keys, bad, index, m, j, m)
    size = n * j * k
    shape = size, n, j, j // x.shape[1], m, k, skip, add
    start(_join_slices, strided_grid(size), BLOCK, out, bad, x, keys, places, *shape)


def add_at(out, bad, x, index, wrap, skip):
    """out (n, m, k), x (n, j, k) C; index (j r,): x[:, i] is added to out at r entries of index.

    out is read too. wrap, skip: as in ``take``.
    """
    _slices(out, bad, x, index, wrap, skip, 1)


def put_at(out, bad, x, index, wrap):
    """out (n, m, k), x (n, j, k) C; index (j,): out[:, index[i]] becomes x[:, i], the last wins."""
    _slices(out, bad, x, index, wrap, -1, 0)


@inlined
def _joined(total, value, how):
    """What stands where both meet. how: -1 value, 0 the sum, 1 the product, 2 or 3 an extreme."""
    if how == -1:
        return value
    if how == 0:
        return total + value
    if how == 1:
        return total * value
    other = value > total if how == 2 else value < total
    return value if other or value != value else total


def _join_elements(out, bad, x, keys, places, size, how):
    """A thread for each element; the first of those that meet does them all."""
    if bad[0] >= 0:
        return
    i = cuda.grid(1)
    while i < size:
        at = keys[i]
        if i == 0 or keys[i - 1] != at:
            total = out[at]
            entry = i
            while entry < size and keys[entry] == at:
                total = as_type(out, _joined(total, x[places[entry]], how))
                entry += 1
            out[at] = total
        i += cuda.gridsize(1)


def _elements(out: Any, bad: Any, x: Any, index: Any, how: int) -> None:
    _, m, k = out.shape
    j = index.shape[1]
    check(bad, index, m, False)
    size = index.size
    if size:
        keys, places = sorted_pairs(_element_keys, bad, index, out.size, size, j, m, k)
        start(_join_elements, strided_grid(size), BLOCK, out, bad, x, keys, places, size, how)


def scatter(out, bad, x, index):
    """out (n, m, k); x, index (n, j, k) C: out[a, index[a, b, c], c] becomes x[a, b, c]."""
    _elements(out, bad, x, index, -1)


def scatter_add(out, bad, x, index):
    """out (n, m, k); x, index (n, j, k) C: x[a, b, c] is added to out[a, index[a, b, c], c]."""
    _elements(out, bad, x, index, 0)


def scatter_join(out, bad, x, index, how):
    """out (n, m, k); x, index (n, j, k) C: x[a, b, c] joins out[a, index[a, b, c], c].

    how: 1 multiplies, 2 keeps the larger, 3 the smaller. out is read too.
    """
    _elements(out, bad, x, index, how)


# -- writing where it does not matter who comes last -----------------------------------------------


def _fill_at(out, bad, index, size, j, m, k, value):
    """A thread for each of ``size`` writes."""
    if bad[0] >= 0:
        return
    i = cuda.grid(1)
    while i < size:
        row, c = split(i, k)
        a, b = split(row, j)
        at = index[b]
        at = at + m if at < 0 else at
        out[(a * m + at) * k + c] = as_type(out, value)
        i += cuda.gridsize(1)


def fill_at(out, bad, index, value):
    """out (n, m, k) C; index (j,), negative ones from the end: out[:, index] becomes value."""
    n, m, k = out.shape
    j = index.size
    check(bad, index, m, True)
    size = n * j * k
    if size:
        start(_fill_at, strided_grid(size), BLOCK, out, bad, index, size, j, m, k, value)


def _fill_where(out, mask, size, k, value):
    i = cuda.grid(1)
    while i < size:
        row, _ = split(i, k)
        if mask[row] != 0:
            out[i] = as_type(out, value)
        i += cuda.gridsize(1)


def fill_where(out, mask, value):
    """out (m, k) C; mask (m,) bool: the rows where mask holds become value."""
    if out.size:
        size, k = out.size, out.shape[1]
        start(_fill_where, strided_grid(size), BLOCK, out, mask, size, k, value)


def _combine(out, bad, index, n, m, first):
    if bad[0] >= 0:
        return
    i = cuda.grid(1)
    while i < n:
        at = index[i] + m if index[i] < 0 else index[i]
        out[i] = at if first else out[i] * m + at
        i += cuda.gridsize(1)


def combine(out, bad, index, m, first):
    """out, index (j,) int64: out is out * m + index, or index if first; index counted in [-m, m).

    Called for one dimension after the other, it gives positions in all of them together.
    """
    check(bad, index, m, True)
    n = out.size
    if n:
        start(_combine, strided_grid(n), BLOCK, out, bad, index, n, m, int(first))


def _one_hot(out, bad, index, size, m):
    if bad[0] >= 0:
        return
    i = cuda.grid(1)
    while i < size:
        row, c = split(i, m)
        out[i] = 1 if index[row] == c else 0
        i += cuda.gridsize(1)


def one_hot(out, bad, index):
    """out (j, m), index (j,) int64: 1 in the column that index says, else 0."""
    check(bad, index, out.shape[1], False)
    if out.size:
        start(_one_hot, strided_grid(out.size), BLOCK, out, bad, index, out.size, out.shape[1])


# -- masks -----------------------------------------------------------------------------------------


def count_nonzero(out, x):
    """out (1,) int64: how many entries of the flat x are not 0."""
    reduce.count_nonzero(out.reshape(1, 1, 1), x.reshape(1, x.size, 1))


def _truth(out, x, n):
    i = cuda.grid(1)
    while i < n:
        out[i] = 1 if x[i] != 0 else 0
        i += cuda.gridsize(1)


def _ranks(x: Any) -> Any:
    """(n,) int64: how many of the entries of x up to each are not 0."""
    n = x.size
    ones = device.empty((1, n, 1), np.dtype(np.int64), x.device)
    start(_truth, strided_grid(n), BLOCK, ones, x, n)
    scan.cumsum(ones, ones, False)
    return ones


def _nonzero(out, x, ranks, n):
    i = cuda.grid(1)
    while i < n:
        if x[i] != 0:
            out[ranks[i] - 1] = i
        i += cuda.gridsize(1)


def nonzero(out, x):
    """out (j,) int64: the positions of the flat x that are not 0; there are j."""
    if x.size:
        start(_nonzero, strided_grid(x.size), BLOCK, out, x, _ranks(x), x.size)


def _unravel(out, flat, shape, n, rank):
    i = cuda.grid(1)
    while i < n:
        rest = flat[i]
        for d in range(rank - 1, -1, -1):
            rest, out[i * rank + d] = split(rest, shape[d])
        i += cuda.gridsize(1)


def unravel(out, flat, shape):
    """out (j, r), flat (j,), shape (r,) int64: positions as coordinates in shape."""
    n, rank = flat.size, shape.size
    if n:
        start(_unravel, strided_grid(n), BLOCK, out, flat, shape, n, rank)


def _masked_scatter(out, mask, x, ranks, n, size, bad):
    i = cuda.grid(1)
    while i < n:
        at = ranks[i] - 1
        if mask[i] != 0 and at < size:
            out[i] = x[at]
        if i == n - 1:
            bad[0] = ranks[i] if ranks[i] > size else -1
        i += cuda.gridsize(1)


def masked_scatter(out, bad, mask, x):
    """out, mask flat; x flat: the next entry of x wherever mask holds; out is kept elsewhere.

    bad (1,): -1, or how many entries would have been needed where x has too few.
    """
    n = out.size
    if not n:
        elementwise.fill(bad, -1)
        return
    start(_masked_scatter, strided_grid(n), BLOCK, out, mask, x, _ranks(mask), n, x.size, bad)
