"""Runs of elements that are equal to the one before them. NaN are never equal.

Start reading at ``runs``.
"""

from __future__ import annotations

from ..inner import pasted
from ..intrinsics import load, store
from ..machine import kernel

__all__ = ["count_runs", "runs"]


@kernel
def count_runs(out, x):
    """out (1,) int64: how many runs there are in the flat x, which has an element or more."""
    total = 1
    for i in range(1, x.size):
        total += 1 if load(x, i) != load(x, i - 1) else 0
    out[0] = total


@pasted
def last_run(x):
    """Where the last run of the flat x begins."""
    last = x.size - 1
    while last > 0 and not load(x, last) != load(x, last - 1):
        last -= 1
    return last


@kernel(outputs=3)
def runs(values, inverse, counts, x):
    """values (j,): the first of each run of the flat x (n,), of which there are j.

    inverse (n,) int64: the run that each element is in, or of size 0. counts (j,) int64: how many
    are in each, or of size 0.
    """
    n, j, last = x.size, values.size, last_run(x)
    store(values, 0, load(x, 0))
    at = 1
    for i in range(1, last + 1):
        value = load(x, i)
        store(values, at, value)  # written again until one counts: half of branches would be wrong
        at += 1 if value != load(x, i - 1) else 0
    if inverse.size:
        store(inverse, 0, 0)
        at = 0
        for i in range(1, n):
            at += 1 if load(x, i) != load(x, i - 1) else 0
            store(inverse, i, at)
    if counts.size:
        store(counts, 0, 0)
        at = 1
        for i in range(1, last + 1):
            store(counts, at, i)
            at += 1 if load(x, i) != load(x, i - 1) else 0
        for k in range(j - 1):
            store(counts, k, load(counts, k + 1) - load(counts, k))
        store(counts, j - 1, n - load(counts, j - 1))
