"""The measure of the compiler: whole training steps written by hand, each one Numba function.

What a patient engineer would do knowing the network: all parameters in one vector, all memory
allocated once, sizes as constants of the compiled code, no gradient array where the update can
take the product as it comes. Activations are kept transposed, (features, batch): then a bias is a
scalar of the inner loop, cross entropy runs along the batch, and OpenBLAS's products are faster
(88 us instead of 117 for 32 rows through 784 to 256 features). Threads share out the columns of
the batch going forward and backward, then the rows of the weights. Start at ``momentum_step``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numba
import numpy as np
from numba import prange

from numbagrad.kernels.blas import (
    NO_TRANS,
    ROW_MAJOR,
    TRANS,
    blas_alone,
    blas_restore,
    load_blas,
    sgemm,
)
from numbagrad.kernels.intrinsics import address
from numbagrad.kernels.simd.exponential import exp_float32
from numbagrad.kernels.simd.logarithm import log_float32

from .nets import Net
from .updates import BETAS, EPS, LR, MOMENTUM

F32 = np.float32
OPTIONS = {"error_model": "numpy", "nogil": True, "fastmath": {"contract", "nsz", "arcp"}}
part = numba.njit(forceinline=True, **OPTIONS)
summing = numba.njit(
    forceinline=True, **{**OPTIONS, "fastmath": {"contract", "nsz", "arcp", "reassoc"}}
)
THREADS_PAY_FROM = 1 << 21  # multiplications of one forward pass; a pair of forks costs about 5 us
SMALL_PRODUCT = 1_000_000  # up to so many multiplications OpenBLAS does without packing


@part
def multiply(transx, transy, n, m, k, x, ldx, y, ldy, beta, out, ldout):
    """``out = op(x) op(y) + beta out``; x, y, out are addresses, ``op(x)`` is n by k."""
    i32 = np.int32
    sgemm(
        i32(ROW_MAJOR), i32(TRANS if transx else NO_TRANS), i32(TRANS if transy else NO_TRANS),
        i32(n), i32(m), i32(k), F32(1), x, i32(ldx), y, i32(ldy), F32(beta), out, i32(ldout),
    )  # fmt: skip


# The parts below work on columns i to j of (features, batch) matrices that begin at an offset of
# the scratch vector s. They take rows as slices: an index that might be negative is not vectorised.


@part
def add_bias_relu(s, h, p, bias, features, batch, i, j):
    """``h = max(h + bias, 0)``."""
    for f in range(features):
        b, row = p[bias + f], s[h + f * batch + i : h + f * batch + j]
        for q in range(row.size):
            value = row[q] + b
            row[q] = F32(0) if value <= F32(0) else value


@summing
def relu_grad(s, g, h, sums, features, batch, i, j):
    """``g`` where ``h`` is positive, else 0, in place; its row sums to ``sums``."""
    for f in range(features):
        first, last = f * batch + i, f * batch + j
        g_row, h_row, total = s[g + first : g + last], s[h + first : h + last], F32(0)
        for q in range(g_row.size):
            value = g_row[q]  # read before the test, or it would be a branch
            value = value if h_row[q] > F32(0) else F32(0)
            g_row[q] = value
            total += value
        s[sums + f] = total


@summing
def cross_entropy_grad(s, z, p, bias, labels, peaks, masses, sums, classes, batch, i, j, scale):
    """Loss, summed, of the logits ``z + bias``; z becomes ``scale`` times its gradient.

    peaks, masses (batch) are scratch; sums (classes) gets the row sums of the gradient.
    """
    n = j - i
    peak, mass, label = s[peaks + i : peaks + j], s[masses + i : masses + j], labels[i:j]
    for q in range(n):
        peak[q] = F32(-np.inf)
        mass[q] = F32(0)
    for f in range(classes):
        b, row = p[bias + f], s[z + f * batch + i : z + f * batch + j]
        for q in range(n):
            value = row[q] + b
            row[q] = value
            peak[q] = value if value > peak[q] else peak[q]
    loss = F32(0)
    for q in range(n):
        loss += peak[q] - s[z + label[q] * batch + i + q]
    for f in range(classes):
        row = s[z + f * batch + i : z + f * batch + j]
        for q in range(n):
            value = exp_float32(row[q] - peak[q])
            row[q] = value
            mass[q] += value
    for q in range(n):
        loss += log_float32(mass[q])
        mass[q] = scale / mass[q]
    for f in range(classes):
        row = s[z + f * batch + i : z + f * batch + j]
        for q in range(n):
            row[q] *= mass[q]
    for q in range(n):
        s[z + label[q] * batch + i + q] -= scale
    for f in range(classes):
        row, total = s[z + f * batch + i : z + f * batch + j], F32(0)
        for q in range(n):
            total += row[q]
        s[sums + f] = total
    return loss


@part
def descend(p, b, begin, end, lr):
    """``p -= lr b`` from ``begin`` to ``end``."""
    values, steps = p[begin:end], b[begin:end]
    for i in range(values.size):
        values[i] -= lr * steps[i]


@part
def momentum_descend(p, b, at, s, sums, number, stride, parts, lr, momentum):
    """``b = momentum b + g``, then ``p -= lr b``; g is the sum of what each part left in s."""
    total = s[sums : sums + number]
    for other in range(1, parts):
        more = s[sums + other * stride :]
        for i in range(number):
            total[i] += more[i]
    values, steps = p[at : at + number], b[at : at + number]
    for i in range(number):
        steps[i] = momentum * steps[i] + total[i]
        values[i] -= lr * steps[i]


def momentum_step(net: Net, threads: int) -> Any:
    """``step(x, labels, p, b, s) -> loss`` for three layers: p, b all parameters and momenta.

    ``b = momentum b + gradient`` is one product that adds to what it finds: BLAS's beta. It is
    made in blocks of rows, each still in the cache when the parameters take it.
    """
    batch, (k, m1, m2, c) = net.batch, net.sizes
    w1, b1, w2, b2, w3, b3, _end = offsets(net)
    parts = number_of_parts(net, threads)
    h1, h2, z3, g1, g2, peaks, masses, sums = places(
        batch * m1, batch * m2, batch * c, batch * m1, batch * m2, batch, batch
    )
    biases = m1 + m2 + c
    columns = -(-batch // parts)
    block1, block2 = block_rows(m1, k, batch, parts), block_rows(m2, m1, batch, parts)
    work = batch * k * m1
    lr, momentum, scale = F32(LR), F32(MOMENTUM), F32(1 / batch)

    @numba.njit(parallel=parts > 1, **OPTIONS)
    def step(x, labels, p, b, s):
        previous = blas_alone(work)
        xx, pp, bb, ss = address(x), address(p), address(b), address(s)
        loss = F32(0)
        for t in prange(parts):
            i, j = t * columns, min(t * columns + columns, batch)
            n, mine, at = j - i, sums + t * biases, ss + 4 * i
            multiply(0, 1, m1, n, k, pp + 4 * w1, k, xx + 4 * i * k, k, 0, at + 4 * h1, batch)
            add_bias_relu(s, h1, p, b1, m1, batch, i, j)
            multiply(0, 0, m2, n, m1, pp + 4 * w2, m1, at + 4 * h1, batch, 0, at + 4 * h2, batch)
            add_bias_relu(s, h2, p, b2, m2, batch, i, j)
            multiply(0, 0, c, n, m2, pp + 4 * w3, m2, at + 4 * h2, batch, 0, at + 4 * z3, batch)
            loss += cross_entropy_grad(
                s, z3, p, b3, labels, peaks, masses, mine + m1 + m2, c, batch, i, j, scale
            )
            multiply(1, 0, m2, n, c, pp + 4 * w3, m2, at + 4 * z3, batch, 0, at + 4 * g2, batch)
            relu_grad(s, g2, h2, mine + m1, m2, batch, i, j)
            multiply(1, 0, m1, n, m2, pp + 4 * w2, m1, at + 4 * g2, batch, 0, at + 4 * g1, batch)
            relu_grad(s, g1, h1, mine, m1, batch, i, j)
        for t in prange(parts):
            for i in range(t * block1, m1, parts * block1):
                n, row = min(block1, m1 - i), w1 + i * k
                multiply(0, 0, n, k, batch, ss + 4 * (g1 + i * batch), batch, xx, k,
                         momentum, bb + 4 * row, k)  # fmt: skip
                descend(p, b, row, row + n * k, lr)
            for i in range(t * block2, m2, parts * block2):
                n, row = min(block2, m2 - i), w2 + i * m1
                multiply(0, 1, n, m1, batch, ss + 4 * (g2 + i * batch), batch, ss + 4 * h1, batch,
                         momentum, bb + 4 * row, m1)  # fmt: skip
                descend(p, b, row, row + n * m1, lr)
            if t == parts - 1:
                multiply(0, 1, c, m2, batch, ss + 4 * z3, batch, ss + 4 * h2, batch,
                         momentum, bb + 4 * w3, m2)  # fmt: skip
                descend(p, b, w3, b3, lr)
                momentum_descend(p, b, b1, s, sums, m1, biases, parts, lr, momentum)
                momentum_descend(p, b, b2, s, sums + m1, m2, biases, parts, lr, momentum)
                momentum_descend(p, b, b3, s, sums + m1 + m2, c, biases, parts, lr, momentum)
        blas_restore(previous)
        return loss * scale

    return step, np.empty(sums + parts * biases, F32)


@part
def adam(p, g, start, moments, number, size, root_scale):
    """Adam's update of all parameters; size and root_scale hold the corrections of the biases."""
    beta1, beta2 = F32(BETAS[0]), F32(BETAS[1])
    rest1, rest2 = F32(1 - BETAS[0]), F32(1 - BETAS[1])
    g, m, v = g[start:], moments[:number], moments[number:]
    for i in range(number):
        x = g[i]
        first = beta1 * m[i] + rest1 * x
        second = beta2 * v[i] + rest2 * x * x
        m[i], v[i] = first, second
        p[i] -= size * first / (np.sqrt(second) * root_scale + F32(EPS))


def adam_step(net: Net, threads: int) -> Any:
    """``step(x, labels, p, moments, s) -> loss`` for two layers.

    moments: the first, the second, and the number of steps taken, one vector. For nets so small
    that threads never pay.
    """
    batch, (k, m1, c) = net.batch, net.sizes
    w1, b1, w2, b2, end = offsets(net)
    assert number_of_parts(net, threads) == 1
    h1, z2, g1, peaks, masses, g = places(batch * m1, batch * c, batch * m1, batch, batch)
    work, scale = batch * k * m1, F32(1 / batch)

    @numba.njit(**OPTIONS)
    def step(x, labels, p, moments, s):
        previous = blas_alone(work)
        xx, pp, ss = address(x), address(p), address(s)
        multiply(0, 1, m1, batch, k, pp + 4 * w1, k, xx, k, 0, ss + 4 * h1, batch)
        add_bias_relu(s, h1, p, b1, m1, batch, 0, batch)
        multiply(0, 0, c, batch, m1, pp + 4 * w2, m1, ss + 4 * h1, batch, 0, ss + 4 * z2, batch)
        loss = cross_entropy_grad(
            s, z2, p, b2, labels, peaks, masses, g + b2, c, batch, 0, batch, scale
        )
        multiply(1, 0, m1, batch, c, pp + 4 * w2, m1, ss + 4 * z2, batch, 0, ss + 4 * g1, batch)
        relu_grad(s, g1, h1, g + b1, m1, batch, 0, batch)
        multiply(0, 1, c, m1, batch, ss + 4 * z2, batch, ss + 4 * h1, batch,
                 0, ss + 4 * (g + w2), m1)  # fmt: skip
        multiply(0, 0, m1, k, batch, ss + 4 * g1, batch, xx, k, 0, ss + 4 * (g + w1), k)
        steps = moments[2 * end] + F32(1)
        moments[2 * end] = steps
        size = F32(LR / (1 - BETAS[0] ** steps))
        root_scale = F32(1 / np.sqrt(1 - BETAS[1] ** steps))
        adam(p, s, g, moments, end, size, root_scale)
        blas_restore(previous)
        return loss * scale

    return step, np.empty(g + end, F32)


def number_of_parts(net: Net, threads: int) -> int:
    """How many parts the work is cut into, one for each thread that pays."""
    multiplications = net.batch * sum(i * o for i, o in pairwise(net.sizes))
    return threads if multiplications >= THREADS_PAY_FROM else 1


def block_rows(rows: int, columns: int, batch: int, parts: int) -> int:
    """Rows of a weight that are updated together: a small product, or all that a thread has."""
    small = SMALL_PRODUCT // (columns * batch) // 16 * 16
    return min(small, rows) if small >= 32 else -(-rows // parts)


def places(*sizes: int) -> list[int]:
    """Where blocks of ``sizes`` begin that stand one after another, and where the last ends."""
    return [0, *np.cumsum(sizes).tolist()]


def offsets(net: Net) -> list[int]:
    """Where weight and bias of each layer begin in the vector of all parameters, and its end."""
    return places(*[w.size for w in net.weights()])


def build(net: Net, threads: int) -> tuple[Any, list[np.ndarray]]:
    """The call of one step, and the weights it trains, as views of the vector."""
    load_blas()
    x, labels = net.data()
    p = np.concatenate([w.ravel() for w in net.weights()])
    if net.optimizer == "Adam":
        (step, work), state = adam_step(net, threads), np.zeros(2 * p.size + 1, F32)
    else:
        (step, work), state = momentum_step(net, threads), np.zeros_like(p)
    cuts = np.split(p, offsets(net)[1:-1])
    views = [v.reshape(w.shape) for v, w in zip(cuts, net.weights(), strict=True)]
    return (lambda: step(x, labels, p, state, work)), views
