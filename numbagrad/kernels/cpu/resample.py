"""Numbers of an axis made of weighed numbers of another axis, as interpolation makes them."""

from __future__ import annotations

from numba import prange

from ..inner import inner as inlined
from ..intrinsics import lesser, load, stack, store
from ..machine import kernel

__all__ = ["resample"]

LANES = 1024
"""Accumulators side by side: 4 KB, so that they stay in the first cache beside what is read."""


@inlined
def _first(x, places, weights, base, j):
    """What the first tap gives to place j; 0 where there is none, whatever x is."""
    weight = load(weights, j)
    return weight * load(x, base + load(places, j)) if weight != 0 else weight * 0


@inlined
def _along_row(out, x, places, weights, o):
    """Line ``o`` of the outer axis where inner is 1.

    Number by number, into memory that might be what is read: LLVM would gather vectors, for which
    processors that guard against Downfall take several times as long.
    """
    k, n, taps = out.shape[1], x.shape[1], places.shape[0]
    base, to = o * n, o * k
    if taps == 1:
        for j in range(k):
            store(out, to + j, _first(x, places, weights, base, j))
    elif taps == 2:
        for j in range(k):
            total = _first(x, places, weights, base, j)
            weight = load(weights, k + j)
            if weight != 0:
                total += weight * load(x, base + load(places, k + j))
            store(out, to + j, total)
    else:
        for j in range(k):
            total = _first(x, places, weights, base, j)
            for at in range(k + j, taps * k, k):
                weight = load(weights, at)
                if weight == 0:
                    break
                total += weight * load(x, base + load(places, at))
            store(out, to + j, total)


@inlined
def _halves(places, weights):
    """Whether all numbers are made of two, which follow one another."""
    taps, k = places.shape
    found = taps == 2
    if found:
        for j in range(k):
            at = load(places, 0) + 2 * j
            found &= (load(places, j) == at) & (load(places, k + j) == at + 1)
            found &= (load(weights, j) != 0) & (load(weights, k + j) != 0)
    return found


@inlined
def _along_pairs(out, x, places, weights, o):
    """``_along_row`` where they do: both of a vector of pairs are read at once."""
    k = out.shape[1]
    base, to = o * x.shape[1] + load(places, 0), o * k
    for j in range(k):
        total = load(weights, j) * load(x, base + 2 * j)
        store(out, to + j, total + load(weights, k + j) * load(x, base + 2 * j + 1))


@inlined
def _across_rows(out, x, places, weights, task):
    """One of outer * k rows of ``inner`` numbers."""
    _, k, inner = out.shape
    n, taps = x.shape[1], places.shape[0]
    o, j = task // k, task % k
    lanes = stack(LANES, load(weights, 0))
    for first in range(0, inner, LANES):
        count = lesser(LANES, inner - first)
        source, weight = (o * n + load(places, j)) * inner + first, load(weights, j)
        for lane in range(count):
            lanes[lane] = weight * load(x, source + lane) if weight != 0 else weight * 0
        for tap in range(1, taps):
            weight = load(weights, tap * k + j)
            if weight != 0:
                source = (o * n + load(places, tap * k + j)) * inner + first
                for lane in range(count):
                    lanes[lane] += weight * load(x, source + lane)
        for lane in range(count):
            store(out, task * inner + first + lane, lanes[lane])


@kernel(grain=1 << 16)
def resample(out, x, places, weights):
    """out (outer, k, inner) C; x (outer, n, inner) floating C; places int64, weights (taps, k) C.

    out[o, j, i] is the sum over taps of weights[t, j] * x[o, places[t, j], i]. Taps after the first
    whose weight is 0 are left out. weights: of the dtype that sums of x are made in.
    """
    outer, k, inner = out.shape
    halves = _halves(places, weights)
    for task in prange(0, outer if inner == 1 else outer * k):
        if inner == 1 and halves:
            _along_pairs(out, x, places, weights, task)
        elif inner == 1:
            _along_row(out, x, places, weights, task)
        else:
            _across_rows(out, x, places, weights, task)
