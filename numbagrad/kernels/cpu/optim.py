"""How updates walk over whole parameter lists, and gradient norms, one launch each.

An update lays all arrays end to end and cuts them into tasks; an element depends on no other, so
the cuts change nothing. What it does to an element is a rule, see ``kernels/update.py``. A norm is
summed by chunks that do not depend on the number of threads. Nothing is allocated for an update:
what NumPy calls cost to compile is more than all the loops. Tables named ``params grads ...`` hold
ids of arrays, see ``lists.py``.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..inner import device, inner, pasted
from ..intrinsics import load_at, store_at
from ..lists import DATA_FIELD, list_kernel
from ..machine import kernel

CHUNK = 8192
TASKS = 64
"""Most tasks of an update: each walks the list of sizes to find its elements."""
GRAIN = 65536

COUNTER = np.empty(0, np.float32)
"""For ``load_at``: step counters and their like are float32 scalars."""


@pasted
def share(sizes):
    """Elements of each task of an update, and the number of tasks."""
    total = 0
    for t in range(sizes.size):
        total += sizes[t]
    part = (total + TASKS - 1) // TASKS
    part = part if part > CHUNK else CHUNK
    return part, (total + part - 1) // part


@pasted
def within(start, part, size):
    """The elements begin to end of an array of ``size`` that are among ``part`` from ``start``."""
    end = start + part
    return (start if start > 0 else 0), (end if end < size else size)


@pasted
def least(like):
    """What the moments of gradients are cut off below: the least number that is no denormal.

    Those of a dead unit shrink to denormals, which take 20 times as long, and stay denormals, for
    the smallest of them times 0.9 is rounded up again.
    """
    return like.dtype.type(1.2e-38 if like.itemsize == 4 else 2.3e-308)


@pasted
def advance(steps, sizes):
    """Add one to each step counter, a float32 scalar. sizes: any int64 array."""
    for t in range(steps.size):
        counter = load_at(steps[t] + DATA_FIELD, 0, sizes)
        store_at(counter, 0, load_at(counter, 0, COUNTER) + np.float32(1), COUNTER)


@device(allocates=True)
def data_of(ids):
    """Addresses of the elements of the arrays whose object ids are given."""
    pointers = np.empty_like(ids)
    for t in range(ids.size):
        pointers[t] = load_at(ids[t] + DATA_FIELD, 0, ids)
    return pointers


@device(allocates=True)
def chunks_of(sizes):
    """(k, 3) table of all chunks: which array, first element, end."""
    total = 0
    for t in range(sizes.size):
        total += (sizes[t] + CHUNK - 1) // CHUNK
    table = np.empty((total, 3), np.int64)
    k = 0
    for t in range(sizes.size):
        for begin in range(0, sizes[t], CHUNK):
            table[k, 0] = t
            table[k, 1] = begin
            table[k, 2] = min(begin + CHUNK, sizes[t])
            k += 1
    return table


@inner(fastmath={"contract", "nsz", "reassoc"})
def square_sum(pointer, begin, end, like):
    """Sum of squares in float64, in as many lanes as LLVM takes: of a chunk always as many."""
    total = 0.0
    for i in range(begin, end):
        x = np.float64(load_at(pointer, i, like))
        total += x * x
    return total


@device
def power_sum(pointer, begin, end, like, power):
    """Sum of ``|x| ** power``; the largest ``|x|`` if power is infinite, NaN if any is NaN."""
    total = 0.0
    for i in range(begin, end):
        x = abs(np.float64(load_at(pointer, i, like)))
        if power == np.inf:
            total = x if x > total or x != x else total
        else:
            total += x**power
    return total


@list_kernel(grain=GRAIN, allocates=True)
def power_sums(out, grads, sizes, like, power):
    """out (1,) float64: the sum over all arrays of ``|g| ** power``; the maximum if infinite."""
    g = data_of(grads)
    chunks = chunks_of(sizes)
    partial = np.empty(chunks.shape[0])
    for k in prange(chunks.shape[0]):
        t, begin, end = chunks[k]
        if power == 2.0:
            partial[k] = square_sum(g[t], begin, end, like)
        else:
            partial[k] = power_sum(g[t], begin, end, like, power)
    total = 0.0
    for k in range(partial.size):
        if power == np.inf:
            total = partial[k] if partial[k] > total or partial[k] != partial[k] else total
        else:
            total += partial[k]
    out[0] = total


@kernel
def norm_of_sums(out, sums, power):
    """out (1,); sums (n,) float64, one from each call of ``power_sums``."""
    if power == np.inf:
        total = 0.0
        for k in range(sums.size):
            total = sums[k] if sums[k] > total or sums[k] != sums[k] else total
        out[0] = total
    else:
        total = 0.0
        for k in range(sums.size):
            total += sums[k]
        out[0] = total ** (1 / power)


@list_kernel(grain=GRAIN)
def clip_norm(grads, norm, sizes, like, largest):
    """g *= min(1, largest / (norm + 1e-6)); norm (1,)."""
    ratio = largest / (np.float64(norm[0]) + 1e-6)
    factor = like.dtype.type(1 if ratio > 1 else ratio)
    part, tasks = share(sizes)
    if factor == 1:  # nothing is clipped, as in most steps
        tasks = 0
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            for i in range(begin, end):
                store_at(g, i, factor * load_at(g, i, like), like)


@list_kernel(grain=GRAIN)
def clip_value(grads, sizes, like, largest):
    """g is moved into -largest .. largest; NaN stays."""
    high = like.dtype.type(largest)
    part, tasks = share(sizes)
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            for i in range(begin, end):
                x = load_at(g, i, like)
                x = high if x > high else x
                store_at(g, i, -high if x < -high else x, like)
