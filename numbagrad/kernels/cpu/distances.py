"""Distances of rows, of order 1 and 2, and their gradients, without the differences in memory."""

from __future__ import annotations

from math import sqrt

from numba import prange

from ..inner import device
from ..intrinsics import load, stack, store
from ..machine import kernel

__all__ = ["cdist", "cdist_grad", "pdist", "pdist_grad"]

RUN = 512
"""Numbers that are added in the dtype of x; runs of them in float64."""

LANES = 256
"""Numbers that are added side by side."""


@device
def _apart(out, at, x, turned, i, begin, end, stride, p):
    """The distances of the row of ``x`` from place i on and of the columns of ``turned`` between
    two places, whose rows are ``stride`` long, into ``out`` from place at on."""
    k = x.shape[x.ndim - 1]
    lanes, totals = stack(LANES, x.dtype.type(0)), stack(LANES, 0.0)
    for first in range(begin, end, LANES):
        count = min(LANES, end - first)
        for lane in range(count):
            totals[lane] = 0.0
        for run in range(0, k, RUN):
            for lane in range(count):
                lanes[lane] = x.dtype.type(0)
            for c in range(run, min(k, run + RUN)):
                value, row = load(x, i + c), first + c * stride
                if p == 1:
                    for lane in range(count):
                        lanes[lane] += abs(value - load(turned, row + lane))
                else:
                    for lane in range(count):
                        away = value - load(turned, row + lane)
                        lanes[lane] += away * away
            for lane in range(count):
                totals[lane] += lanes[lane]
        to = at + first - begin
        for lane in range(count):
            total = totals[lane] if p == 1 else sqrt(totals[lane])
            store(out, to + lane, x.dtype.type(total))


@device
def _add_slope(lanes, g, apart, x, y, i, j, count, p):
    """Add to ``lanes`` what ``g`` gives to ``count`` numbers of x from place i on, for ``_apart``
    of these and of y from j on, which is ``apart``."""
    if p == 1:
        for c in range(count):
            away = load(x, i + c) - load(y, j + c)
            lanes[c] += g if away > 0 else (-g if away < 0 else away * 0)
    elif apart != 0:
        scale = g / apart
        for c in range(count):
            lanes[c] += scale * (load(x, i + c) - load(y, j + c))


@kernel(grain=4096)
def cdist(out, x, turned, p):
    """The distance of each row of x and each of y. out (b, n, m), x (b, n, k), turned (b, k, m): C,
    the columns of which are the rows of y. p: 1 or 2.
    """
    batch, n, m = out.shape
    k = x.shape[2]
    for row in prange(0, batch * n):
        begin = row // n * k * m
        _apart(out, row * m, x, turned, row * k, begin, begin + m, m, p)


@device
def _grad_of_row(gx, g, out, x, y, row, first, at, m, p):
    """``cdist_grad`` of one row; first: the first of its m rows of y; at: its first distance."""
    k = x.shape[2]
    lanes = stack(LANES, x.dtype.type(0))
    for begin in range(0, k, LANES):
        count = min(LANES, k - begin)
        for c in range(count):
            lanes[c] = x.dtype.type(0)
        for j in range(m):
            ends = row * k + begin, (first + j) * k + begin
            _add_slope(lanes, load(g, at + j), load(out, at + j), x, y, *ends, count, p)
        for c in range(count):
            store(gx, row * k + begin + c, lanes[c])


@kernel(grain=4096)
def cdist_grad(gx, g, out, x, y, p):
    """The gradient of ``cdist`` by x. gx, x (b, n, k), g, out (b, n, m), y (b, m, k): C."""
    batch, n, m = out.shape
    for row in prange(0, batch * n):
        _grad_of_row(gx, g, out, x, y, row, row // n * m, row * m, m, p)


@kernel(grain=4096)
def pdist(out, x, turned, p):
    """The distance of each two rows, in the order 0 and 1, 0 and 2 ... out (n (n - 1) / 2), x
    (n, k), turned (k, n): C, its transpose. p: 1 or 2."""
    n, k = x.shape
    for i in prange(0, n):
        _apart(out, i * (2 * n - i - 1) // 2, x, turned, i * k, i + 1, n, n, p)


@device
def _grad_of_pairs(gx, g, out, x, i, p):
    """``pdist_grad`` of row i."""
    n, k = x.shape
    lanes = stack(LANES, x.dtype.type(0))
    for begin in range(0, k, LANES):
        count = min(LANES, k - begin)
        for c in range(count):
            lanes[c] = x.dtype.type(0)
        for j in range(n):
            low, high = min(i, j), max(i, j)
            if low != high:
                at = low * (2 * n - low - 1) // 2 + high - low - 1
                ends = i * k + begin, j * k + begin
                _add_slope(lanes, load(g, at), load(out, at), x, x, *ends, count, p)
        for c in range(count):
            store(gx, i * k + begin + c, lanes[c])


@kernel(grain=4096)
def pdist_grad(gx, g, out, x, p):
    """The gradient of ``pdist``. gx, x (n, k), g, out (n (n - 1) / 2): C."""
    for i in prange(0, x.shape[0]):
        _grad_of_pairs(gx, g, out, x, i, p)
