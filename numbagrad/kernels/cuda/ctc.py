"""Connectionist temporal classification: how likely all alignments of a sequence are together.

As on the CPU; a block carries a sample through its steps, its threads share the states. What goes
to one class at a step is added by the thread of the first such label, in order, so that the bits
do not depend on chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, int64

from .runtime import device
from .runtime.launch import made, start, strided_grid
from .runtime.maths import math
from .runtime.shape import BLOCK, WARPS
from .runtime.warp import block_sum, inlined, split

__all__ = ["ctc", "ctc_grad"]

STEPS, LABELS, CLASS, TOTAL = range(4)
NOWHERE = 1 << 62
_INT64 = np.dtype(np.int64)


def _check(starts, bad, targets, steps, sizes, n, labels, limit, width, classes):
    """One block fills starts and bad: the lengths first, then the labels that count."""
    places = cuda.shared.array(BLOCK, int64)
    me = cuda.threadIdx.x
    if me == 0:
        wrong, total = int64(-1), int64(0)
        for b in range(n):
            starts[b] = total
            if wrong < 0:
                if steps[b] < 0 or steps[b] > limit:
                    wrong = int64(4 * b + STEPS)
                elif sizes[b] < 0 or 0 <= width < sizes[b]:
                    wrong = int64(4 * b + LABELS)
            total += sizes[b] if width < 0 else width
        if wrong < 0 and width < 0 and total != labels:
            wrong = int64(4 * total + TOTAL)
        bad[0] = wrong
    cuda.syncthreads()
    first = int64(NOWHERE)
    if bad[0] < 0:
        for i in range(me, labels, BLOCK):
            counts = True
            if width > 0:
                b, k = split(i, width)
                counts = k < sizes[b]
            if counts and (targets[i] < 0 or targets[i] >= classes) and i < first:
                first = int64(i)
    places[me] = first
    cuda.syncthreads()
    if me == 0:
        for other in range(1, BLOCK):
            first = min(first, places[other])
        if first != NOWHERE:
            bad[0] = 4 * first + CLASS


def _logarithms(real: Any) -> tuple[Any, Any]:
    """The logarithms of the sums of two and of three exponentials."""

    @inlined
    def either(a, b):
        peak = max(a, b)
        if peak == real(-math.inf):
            return peak
        return peak + real(math.log(math.exp(a - peak) + math.exp(b - peak)))

    @inlined
    def any_of(a, b, c):
        peak = max(a, max(b, c))
        if peak == real(-math.inf):
            return peak
        return peak + real(math.log(math.exp(a - peak) + math.exp(b - peak) + math.exp(c - peak)))

    return either, any_of


def _ahead_kernel(real: Any) -> Any:
    """The loss of each sample."""
    either, any_of = _logarithms(real)
    none = -math.inf

    def ahead(
        losses, chance, alpha, starts, bad, x, targets, steps, sizes, limit, n, c, blank, zero
    ):
        me = cuda.threadIdx.x
        b = cuda.blockIdx.x
        while b < n:
            if bad[0] >= 0:
                if me == 0:
                    losses[b] = real(math.nan)
            else:
                first, size, count = starts[b], sizes[b], steps[b]
                row = 2 * size + 1
                old = limit * (2 * first + b)
                for t in range(count):
                    i = (t * n + b) * c
                    new = old + row if t > 0 else old
                    label = old + size + 1
                    for k in range(me, size + 1, BLOCK):
                        value = real(none)
                        if t == 0:
                            value = real(0) if k == 0 else real(none)
                        elif k == 0:
                            value = alpha[old]
                        else:
                            value = either(alpha[old + k], alpha[label + k - 1])
                        alpha[new + k] = value + x[i + blank]
                    for k in range(me, size, BLOCK):
                        y = targets[first + k]
                        value = real(none)
                        if t == 0:
                            value = real(0) if k == 0 else real(none)
                        elif k > 0 and targets[first + k - 1] != y:
                            value = any_of(alpha[label + k], alpha[old + k], alpha[label + k - 1])
                        else:
                            value = either(alpha[label + k], alpha[old + k])
                        alpha[new + size + 1 + k] = value + x[i + y]
                    cuda.syncthreads()
                    old = new
                if me == 0:
                    total = real(none)
                    if count == 0:
                        total = real(none) if size > 0 else real(0)
                    elif size > 0:
                        total = either(alpha[old + size], alpha[old + 2 * size])
                    else:
                        total = alpha[old]
                    chance[b] = total
                    losses[b] = real(0) if zero and total == real(none) else -total
            b += cuda.gridDim.x

    return ahead


def ctc(losses, chance, alpha, starts, bad, x, targets, steps, sizes, width, blank, zero_infinity):
    """The loss of each sample: minus the logarithm of the chance of its target.

    losses (n), chance (n): the logarithm; alpha (t (2 targets.size + n)); starts (n) int64: where
    the targets of a sample begin; bad (1) int64: what is wrong, or -1; x (t, n, c) C: logarithms
    of chances; targets (n width), or (size) without padding where width is -1; steps, sizes (n):
    of each sample; all int64. zero_infinity: the loss of a target without an alignment is 0.
    """
    limit, n, c = x.shape
    start(_check, 1, BLOCK, starts, bad, targets, steps, sizes, n, targets.size, limit, width, c)
    start(
        made(_ahead_kernel, x.itemsize), strided_grid(n * BLOCK), BLOCK, losses, chance, alpha,
        starts, bad, x, targets, steps, sizes, limit, n, c, blank, zero_infinity,
    )  # fmt: skip


def _link(ahead, bad, targets, starts, sizes, n):
    """ahead: the next label of the same class in the sample, or -1; -3 less that if not the first
    of its class.
    """
    b = cuda.blockIdx.x
    while b < n:
        first, size = starts[b], sizes[b] if bad[0] < 0 else 0
        for k in range(cuda.threadIdx.x, size, BLOCK):
            y = targets[first + k]
            following = k + 1
            while following < size and targets[first + following] != y:
                following += 1
            before = k - 1
            while before >= 0 and targets[first + before] != y:
                before -= 1
            to = following if following < size else -1
            ahead[first + k] = to if before < 0 else -3 - to
        b += cuda.gridDim.x


def _back_kernel(real: Any) -> Any:
    """The gradient of each sample, from its last step to its first."""
    either, any_of = _logarithms(real)
    none = -math.inf

    def back(
        gx, beta, shares, ahead, g, chance, alpha, starts, bad, x, targets, steps, sizes, limit, n,
        c, blank, zero,
    ):  # fmt: skip
        shared = cuda.shared.array(WARPS, real)
        me = cuda.threadIdx.x
        b = cuda.blockIdx.x
        while b < n:
            good = bad[0] < 0
            first, size = starts[b] if good else 0, sizes[b] if good else 0
            count, total = steps[b] if good else 0, chance[b] if good else real(0)
            row = 2 * size + 1
            base, place = limit * (2 * first + b), 2 * (2 * first + b)
            lost = total == real(none)
            value = real(math.nan) if lost and not zero else real(0)
            for t in range(limit):
                for j in range(me, c, BLOCK):
                    gx[(t * n + b) * c + j] = value if t < count else real(0)
            for s in range(me, row, BLOCK):
                beta[place + s] = real(0) if s == size or s == 2 * size else real(none)
            cuda.syncthreads()
            new, old = place, place + row
            for passed in range(0 if lost else count):
                t = count - 1 - passed
                i, at = (t * n + b) * c, base + t * row
                share = real(0)
                for k in range(me, size + 1, BLOCK):
                    share += real(math.exp(alpha[at + k] + beta[new + k] - total))
                    beta[old + k] = beta[new + k] + x[i + blank]
                share = block_sum(share, shared)
                for k in range(me, size, BLOCK):
                    s = size + 1 + k
                    shares[first + k] = math.exp(alpha[at + s] + beta[new + s] - total)
                    beta[old + s] = beta[new + s] + x[i + targets[first + k]]
                if me == 0:
                    gx[i + blank] = -g[b] * share
                cuda.syncthreads()
                label = old + size + 1
                for k in range(me, size, BLOCK):
                    following = ahead[first + k]
                    if following >= -1:
                        share = shares[first + k]
                        while following != -1:
                            share += shares[first + following]
                            following = ahead[first + following]
                            following = -3 - following if following < -1 else following
                        gx[i + targets[first + k]] -= g[b] * share
                    last = k + 1 == size
                    beta[new + k] = either(beta[old + k], beta[label + k])
                    if last or targets[first + k] == targets[first + k + 1]:
                        value = either(beta[label + k], beta[old + k + 1])
                    else:
                        value = any_of(beta[label + k], beta[old + k + 1], beta[label + k + 1])
                    beta[new + size + 1 + k] = value
                if me == 0:
                    beta[new + size] = beta[old + size]
                cuda.syncthreads()
            b += cuda.gridDim.x

    return back


def ctc_grad(
    gx, beta, g, chance, alpha, starts, bad, x, targets, steps, sizes, width, blank, zero_infinity
):
    """Gradient of ``ctc``: minus the chance, given the target, that a step is of a class.

    gx (t, n, c) C; beta (2 (2 targets.size + n)): of each state the logarithm of the chance of
    what follows, two rows for each sample; g (n); the rest as for ``ctc``, whose bad makes all 0.
    NaN where a target has no alignment, 0 with zero_infinity.
    """
    limit, n, c = x.shape
    grid = strided_grid(n * BLOCK)
    ahead = device.empty((targets.size,), _INT64, x.device)
    shares = device.empty((targets.size,), x.dtype, x.device)
    start(_link, grid, BLOCK, ahead, bad, targets, starts, sizes, n)
    start(
        made(_back_kernel, x.itemsize), grid, BLOCK, gx, beta, shares, ahead, g, chance, alpha,
        starts, bad, x, targets, steps, sizes, limit, n, c, blank, zero_infinity,
    )  # fmt: skip
