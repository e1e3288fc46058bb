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
def _add_slopes(lanes, g, apart, at, step, shrinks, x, y, i, j, count, many, p):
    """Add to ``lanes`` what g gives to ``count`` numbers of x from place i on, for ``_apart`` of
    these and of those of ``many`` rows of y, the first from place j on.

    The first's g and distance are at place ``at``, the next ``step`` further, the one after that as
    much less ``shrinks``, and so on. Four rows at a time, for the sum is read and written for each.
    """
    k, row = x.shape[x.ndim - 1], 0
    while p == 2 and row + 4 <= many:
        a = _over(g, apart, at)
        at, step = at + step, step - shrinks
        b = _over(g, apart, at)
        at, step = at + step, step - shrinks
        c = _over(g, apart, at)
        at, step = at + step, step - shrinks
        d = _over(g, apart, at)
        at, step = at + step, step - shrinks
        to = j + row * k
        for lane in range(count):
            value = load(x, i + lane)
            to_a, to_b = value - load(y, to + lane), value - load(y, to + k + lane)
            to_c, to_d = value - load(y, to + 2 * k + lane), value - load(y, to + 3 * k + lane)
            lanes[lane] += (a * to_a + b * to_b) + (c * to_c + d * to_d)
        row += 4
    while row < many:
        _add_slope(lanes, g, apart, at, x, y, i, j + row * k, count, p)
        at, step, row = at + step, step - shrinks, row + 1


@device
def _over(g, apart, at):
    """g over the distance that it is of, 0 where that is 0."""
    distance = load(apart, at)
    return load(g, at) / distance if distance != 0 else g.dtype.type(0)


@device
def _add_slope(lanes, g, apart, at, x, y, i, j, count, p):
    """``_add_slopes`` of one row."""
    if p == 1:
        value = load(g, at)
        for c in range(count):
            away = load(x, i + c) - load(y, j + c)
            lanes[c] += value if away > 0 else (-value if away < 0 else away * 0)
    else:
        scale = _over(g, apart, at)
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
        ends = row * k + begin, first * k + begin
        _add_slopes(lanes, g, out, at, 1, 0, x, y, *ends, count, m, p)
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
        # Its distances to the rows before it lie n - 2, n - 3 and so on apart.
        to = i * k + begin
        _add_slopes(lanes, g, out, i - 1, n - 2, 1, x, x, to, begin, count, i, p)
        at, after = i * (2 * n - i - 1) // 2, to + k
        _add_slopes(lanes, g, out, at, 1, 0, x, x, to, after, count, n - 1 - i, p)
        for c in range(count):
            store(gx, i * k + begin + c, lanes[c])


@kernel(grain=4096)
def pdist_grad(gx, g, out, x, p):
    """The gradient of ``pdist``. gx, x (n, k), g, out (n (n - 1) / 2): C."""
    for i in prange(0, x.shape[0]):
        _grad_of_pairs(gx, g, out, x, i, p)
