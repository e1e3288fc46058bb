"""Adding rows of float16 and bfloat16 at computed places: each sum in float32, rounded once.

Only rows that an index names are read and written, where a float32 copy would be one of all of
them: a vocabulary has many more rows than a batch has words.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..inner import keep
from ..intrinsics import lesser, load, stack, store
from ..machine import kernel
from .index import first_bad

__all__ = ["add_at_of_halves"]

_ROWS = 64
"""Rows of the result that are one task."""

_WIDTH = 512
"""Columns whose sums are kept at a time."""


@kernel(outputs=2, grain=65536, loads_halves=True, allocates=True)
def add_at_of_halves(out, bad, x, index, wrap, skip):
    """``add_at`` whose out and x are halves.

    The entries of index that name a row are a list, in their order: ``heads`` (m,) has the first,
    ``others`` what follows each.
    """
    n, m, k = out.shape
    bad[0] = first_bad(index, m, wrap)
    if bad[0] >= 0:
        return
    rows = x.shape[1]
    r = index.size // max(1, rows)
    heads, others = np.empty(m, np.int64), np.empty(index.size, np.int64)
    for at in range(m):
        heads[at] = -1
    for b in range(index.size - 1, -1, -1):
        at = index[b]
        at = at + m if at < 0 else at
        if at != skip:
            others[b] = heads[at]
            heads[at] = b
    for task in prange((m + _ROWS - 1) // _ROWS):
        sums = stack(_WIDTH, np.float32(0))
        for at in range(task * _ROWS, lesser(m, (task + 1) * _ROWS)):
            if heads[at] < 0:
                continue
            for a in range(n):
                for start in range(0, k, _WIDTH):
                    width, place = lesser(k - start, _WIDTH), (a * m + at) * k + start
                    for c in range(width):
                        store(sums, c, load(out, place + c))
                    b = heads[at]
                    while b >= 0:
                        source = (a * rows + b // r) * k + start
                        for c in range(width):
                            store(sums, c, load(sums, c) + load(x, source + c))
                        b = others[b]
                    for c in range(width):
                        store(out, place + c, load(sums, c))
    keep(heads)
    keep(others)
