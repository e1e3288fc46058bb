"""Connectionist temporal classification: how likely all alignments of a sequence are together.

Graves et al., 2006. Of a target of ``l`` labels an alignment passes ``l`` labels and the ``l + 1``
blanks before, between and after them. ``alpha`` holds, for each step and each of these states, the
logarithm of the chance of all ways there; a row of it is the blanks, then the labels, so that each
of the two is a loop without a gap. Samples never meet: each is a task of its own.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..inner import device, inner, pasted
from ..intrinsics import larger, load, store
from ..machine import kernel
from ..simd_math import exp, log

__all__ = ["ctc", "ctc_grad"]

GRAIN = 8192
"""Elements of the largest array from which a second thread pays: a step takes 20 ns a state."""

STEPS, LABELS, CLASS, TOTAL = range(4)
"""What is wrong, ``bad % 4``: a number of steps or of labels, a label, the number of all labels.
``bad // 4`` is the sample, the place among the targets, or the number."""

inlined = inner(forceinline=True)


@pasted
def _first_bad(starts, targets, steps, sizes, limit, width, classes):
    """Fill ``starts``; what is wrong, or -1."""
    total = 0
    for b in range(starts.size):
        starts[b] = total
        if steps[b] < 0 or steps[b] > limit:
            return 4 * b + STEPS
        if sizes[b] < 0 or 0 <= width < sizes[b]:
            return 4 * b + LABELS
        total += sizes[b] if width < 0 else width
    if width < 0 and total != targets.size:
        return 4 * total + TOTAL
    for b in range(starts.size):
        for i in range(starts[b], starts[b] + sizes[b]):
            if targets[i] < 0 or targets[i] >= classes:
                return 4 * i + CLASS
    return -1


@inlined
def _either(a, b, floor):
    """The logarithm of ``exp(a) + exp(b)``; floor: the lowest finite number."""
    peak = larger(larger(a, b), floor)
    return peak + log(exp(a - peak) + exp(b - peak))


@inlined
def _any(a, b, c, floor):
    """The logarithm of ``exp(a) + exp(b) + exp(c)``."""
    peak = larger(larger(larger(a, b), c), floor)
    return peak + log(exp(a - peak) + exp(b - peak) + exp(c - peak))


@device
def _ahead(alpha, x, targets, base, first, size, steps, b, blank):
    """Fill ``alpha`` of one sample from ``base`` on; the logarithm of its chance."""
    _, n, c = x.shape
    one = x.dtype.type
    none, floor = one(-np.inf), one(np.finfo(x.dtype).min)
    if steps == 0:
        return none if size else one(0)
    for s in range(2 * size + 1):
        store(alpha, base + s, none)
    store(alpha, base, load(x, b * c + blank))
    if size:
        store(alpha, base + size + 1, load(x, b * c + targets[first]))
    old = base
    for t in range(1, steps):
        row, label = (t * n + b) * c, old + size + 1
        new = label + size
        rest = load(x, row + blank)
        store(alpha, new, load(alpha, old) + rest)
        for k in range(size):
            value = _either(load(alpha, old + k + 1), load(alpha, label + k), floor)
            store(alpha, new + k + 1, value + rest)
        if size:
            value = _either(load(alpha, label), load(alpha, old), floor)
            store(alpha, new + size + 1, value + load(x, row + targets[first]))
        for k in range(1, size):
            y = targets[first + k]
            skip = none if y == targets[first + k - 1] else load(alpha, label + k - 1)
            value = _any(load(alpha, label + k), load(alpha, old + k), skip, floor)
            store(alpha, new + size + 1 + k, value + load(x, row + y))
        old = new
    end = load(alpha, old + size)
    return _either(end, load(alpha, old + 2 * size), floor) if size else end


@kernel(outputs=5, grain=GRAIN)
def ctc(losses, chance, alpha, starts, bad, x, targets, steps, sizes, width, blank, zero_infinity):
    """The loss of each sample: minus the logarithm of the chance of its target.

    losses (n), chance (n): the logarithm; alpha (t (2 targets.size + n)); starts (n) int64: where
    the targets of a sample begin; bad (1) int64: what is wrong, or -1; x (t, n, c) C: logarithms
    of chances; targets (n width), or (size) without padding where width is -1; steps, sizes (n): of
    each sample; all int64. zero_infinity: the loss of a target without an alignment is 0.
    """
    limit, n, c = x.shape
    bad[0] = _first_bad(starts, targets, steps, sizes, limit, width, c)
    if bad[0] >= 0:
        for b in range(n):
            losses[b] = np.nan
        return
    for b in prange(0, n):
        first = starts[b]
        base = limit * (2 * first + b)
        found = _ahead(alpha, x, targets, base, first, sizes[b], steps[b], b, blank)
        chance[b] = found
        losses[b] = 0 if zero_infinity and found == -np.inf else -found


@device
def _spend(gx, alpha, beta, x, targets, at, place, first, size, row, blank, scale, total):
    """Take the chance of each state at one step from the gradient of its class."""
    one = x.dtype.type
    label, after = at + size + 1, place + size + 1
    share = one(0)
    for k in range(size + 1):
        share += exp(load(alpha, at + k) + load(beta, place + k) - total)
    store(gx, row + blank, -scale * share)
    for k in range(size):
        share = exp(load(alpha, label + k) + load(beta, after + k) - total)
        i = row + targets[first + k]
        store(gx, i, load(gx, i) - scale * share)


@device
def _step_back(beta, x, targets, place, first, size, row, blank):
    """Replace ``beta`` at one step by that at the step before; its second row is a notepad."""
    one = x.dtype.type
    none, floor = one(-np.inf), one(np.finfo(x.dtype).min)
    width = 2 * size + 1
    old, new = place + width, place
    label, after = old + size + 1, new + size + 1
    rest = load(x, row + blank)
    for k in range(size + 1):
        store(beta, old + k, load(beta, new + k) + rest)
    for k in range(size):
        store(beta, label + k, load(beta, after + k) + load(x, row + targets[first + k]))
    store(beta, new + size, load(beta, old + size))
    for k in range(size):
        store(beta, new + k, _either(load(beta, old + k), load(beta, label + k), floor))
    for k in range(size - 1):
        same = targets[first + k] == targets[first + k + 1]
        skip = none if same else load(beta, label + k + 1)
        value = _any(load(beta, label + k), load(beta, old + k + 1), skip, floor)
        store(beta, after + k, value)
    if size:
        value = _either(load(beta, label + size - 1), load(beta, old + size), floor)
        store(beta, after + size - 1, value)


@kernel(outputs=2, grain=GRAIN)
def ctc_grad(
    gx, beta, g, chance, alpha, starts, bad, x, targets, steps, sizes, width, blank, zero_infinity
):
    """Gradient of ``ctc``: minus the chance, given the target, that a step is of a class.

    gx (t, n, c) C; beta (2 (2 targets.size + n)): of each state the logarithm of the chance of
    what follows, two rows for each sample; g (n); the rest as for ``ctc``, whose bad makes all 0.
    NaN where a target has no alignment, 0 with zero_infinity.
    """
    limit, n, c = x.shape
    one = x.dtype.type
    if bad[0] >= 0:
        for i in range(gx.size):
            store(gx, i, one(0))
        return
    for b in prange(0, n):
        first, size, total = starts[b], sizes[b], chance[b]
        row = 2 * size + 1
        base, place = limit * (2 * first + b), 2 * (2 * first + b)
        lost = total == -np.inf
        value = one(np.nan) if lost and not zero_infinity else one(0)
        for t in range(limit):
            for j in range(c):
                store(gx, (t * n + b) * c + j, value if t < steps[b] else one(0))
        for s in range(row):
            store(beta, place + s, one(0) if s in (size, 2 * size) else one(-np.inf))
        for back in range(0 if lost else steps[b]):
            t = steps[b] - 1 - back
            i, at = (t * n + b) * c, base + t * row
            _spend(gx, alpha, beta, x, targets, at, place, first, size, i, blank, g[b], total)
            if t:
                _step_back(beta, x, targets, place, first, size, i, blank)
