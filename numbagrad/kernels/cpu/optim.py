"""Optimiser updates and gradient norms over whole parameter lists, one launch each.

Elements of all arrays are cut into chunks that do not depend on the number of threads; start
reading at ``sgd``. Tables named ``params grads ...`` hold ids of arrays, see ``lists.py``.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from ..intrinsics import load_at, store_at
from ..lists import DATA_FIELD, list_kernel
from ..machine import device, kernel

CHUNK = 8192
GRAIN = 65536

_POINTER = np.empty(0, np.int64)
_COUNTER = np.empty(0, np.float32)


@device
def data_of(ids):
    """Addresses of the elements of the arrays whose object ids are given."""
    pointers = np.empty_like(ids)
    for t in range(ids.size):
        pointers[t] = load_at(ids[t] + DATA_FIELD, 0, _POINTER)
    return pointers


@device
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


@device
def advance(steps):
    """Add one to each step counter, a float32 scalar; return the new counts."""
    pointers = data_of(steps)
    counts = np.empty(steps.size, np.float64)
    for t in range(steps.size):
        count = load_at(pointers[t], 0, _COUNTER) + np.float32(1)
        store_at(pointers[t], 0, count, _COUNTER)
        counts[t] = count
    return counts


@list_kernel(grain=GRAIN)
def sgd(params, grads, sizes, like, lr, decay, sign):
    """p -= lr * g, with g = sign * grad + decay * p."""
    p, g = data_of(params), data_of(grads)
    chunks = chunks_of(sizes)
    one = like.dtype.type
    for k in prange(chunks.shape[0]):
        t, begin, end = chunks[k]
        pt, gt = p[t], g[t]
        for i in range(begin, end):
            x = load_at(pt, i, like)
            d = one(sign) * load_at(gt, i, like)
            if decay != 0:
                d += one(decay) * x
            store_at(pt, i, x - one(lr) * d, like)


@list_kernel(outputs=2, grain=GRAIN)
def momentum_sgd(
    params, buffers, grads, sizes, like, lr, decay, sign, momentum, dampening, nesterov
):
    """b = momentum * b + (1 - dampening) * g; p -= lr * b, or lr * (g + momentum * b)."""
    p, b, g = data_of(params), data_of(buffers), data_of(grads)
    chunks = chunks_of(sizes)
    one = like.dtype.type
    for k in prange(chunks.shape[0]):
        t, begin, end = chunks[k]
        pt, bt, gt = p[t], b[t], g[t]
        for i in range(begin, end):
            x = load_at(pt, i, like)
            d = one(sign) * load_at(gt, i, like)
            if decay != 0:
                d += one(decay) * x
            buffer = one(momentum) * load_at(bt, i, like) + one(1 - dampening) * d
            store_at(bt, i, buffer, like)
            d = d + one(momentum) * buffer if nesterov else buffer
            store_at(pt, i, x - one(lr) * d, like)


@device
def adam_chunk(
    begin, end, p, m, v, w, g, like, size, scale, beta1, beta2, eps, shrink, decay, amsgrad, sign
):
    """Elements begin to end of one parameter; w, the largest v, counts only if amsgrad."""
    one = like.dtype.type
    b1, b2, c1, c2 = one(beta1), one(beta2), one(1 - beta1), one(1 - beta2)
    step_size, root_scale, epsilon = one(size), one(scale), one(eps)
    kept, added, direction = one(shrink), one(decay), one(sign)
    for i in range(begin, end):
        x = load_at(p, i, like) * kept
        d = direction * load_at(g, i, like)
        if added != 0:
            d += added * x
        first = b1 * load_at(m, i, like) + c1 * d
        second = b2 * load_at(v, i, like) + c2 * d * d
        store_at(m, i, first, like)
        store_at(v, i, second, like)
        if amsgrad:
            second = max(second, load_at(w, i, like))
            store_at(w, i, second, like)
        store_at(p, i, x - step_size * first / (np.sqrt(second) / root_scale + epsilon), like)


@list_kernel(outputs=5, grain=GRAIN)
def adam(
    params, steps, firsts, seconds, maxima, grads, sizes, like,
    lr, beta1, beta2, eps, decay, decoupled, sign,
):  # fmt: skip
    """Adam (Kingma and Ba 2015, algorithm 1); decoupled: AdamW (Loshchilov and Hutter 2019).

    maxima: empty, or the largest v so far: AMSGrad (Reddi et al. 2018).
    """
    p, g, m, v = data_of(params), data_of(grads), data_of(firsts), data_of(seconds)
    amsgrad = maxima.size > 0
    w = data_of(maxima) if amsgrad else v
    counts = advance(steps)
    chunks = chunks_of(sizes)
    shrink = 1 - lr * decay if decoupled else 1.0
    added = 0.0 if decoupled else decay
    for k in prange(chunks.shape[0]):
        t, begin, end = chunks[k]
        size = lr / (1 - beta1 ** counts[t])
        scale = math.sqrt(1 - beta2 ** counts[t])
        adam_chunk(
            begin, end, p[t], m[t], v[t], w[t], g[t], like,
            size, scale, beta1, beta2, eps, shrink, added, amsgrad, sign,
        )  # fmt: skip


@device
def rmsprop_chunk(
    begin, end, p, v, m, b, g, like, lr, alpha, eps, decay, momentum, centered, with_momentum, sign
):
    """Elements begin to end of one parameter; m counts only if centered, b only with_momentum."""
    one = like.dtype.type
    keep, new = one(alpha), one(1 - alpha)
    rate, epsilon, added, direction, inertia = (
        one(lr),
        one(eps),
        one(decay),
        one(sign),
        one(momentum),
    )
    for i in range(begin, end):
        x = load_at(p, i, like)
        d = direction * load_at(g, i, like)
        if added != 0:
            d += added * x
        second = keep * load_at(v, i, like) + new * d * d
        store_at(v, i, second, like)
        if centered:
            first = keep * load_at(m, i, like) + new * d
            store_at(m, i, first, like)
            second -= first * first
        step = d / (np.sqrt(second) + epsilon)
        if with_momentum:
            step += inertia * load_at(b, i, like)
            store_at(b, i, step, like)
        store_at(p, i, x - rate * step, like)


@list_kernel(outputs=5, grain=GRAIN)
def rmsprop(
    params, steps, seconds, firsts, buffers, grads, sizes, like,
    lr, alpha, eps, decay, momentum, sign,
):  # fmt: skip
    """RMSprop (Hinton 2012); firsts: empty unless centered; buffers: empty without momentum."""
    p, g, v = data_of(params), data_of(grads), data_of(seconds)
    centered, with_momentum = firsts.size > 0, buffers.size > 0
    m = data_of(firsts) if centered else v
    b = data_of(buffers) if with_momentum else v
    advance(steps)
    chunks = chunks_of(sizes)
    for k in prange(chunks.shape[0]):
        t, begin, end = chunks[k]
        rmsprop_chunk(
            begin, end, p[t], v[t], m[t], b[t], g[t], like,
            lr, alpha, eps, decay, momentum, centered, with_momentum, sign,
        )  # fmt: skip


@list_kernel(outputs=3, grain=GRAIN)
def adagrad(params, steps, sums, grads, sizes, like, lr, lr_decay, eps, decay, sign):
    """s += g * g; p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps) (Duchi 2011)."""
    p, g, s = data_of(params), data_of(grads), data_of(sums)
    counts = advance(steps)
    chunks = chunks_of(sizes)
    one = like.dtype.type
    for k in prange(chunks.shape[0]):
        t, begin, end = chunks[k]
        pt, gt, st = p[t], g[t], s[t]
        rate = one(lr / (1 + (counts[t] - 1) * lr_decay))
        for i in range(begin, end):
            x = load_at(pt, i, like)
            d = one(sign) * load_at(gt, i, like)
            if decay != 0:
                d += one(decay) * x
            total = load_at(st, i, like) + d * d
            store_at(st, i, total, like)
            store_at(pt, i, x - rate * d / (np.sqrt(total) + one(eps)), like)


@device
def square_sum(pointer, begin, end, like):
    """Sum of squares in float64, in eight lanes: their order is fixed and they vectorise."""
    lanes = np.zeros(8)
    last = begin + (end - begin) // 8 * 8
    for i in range(begin, last, 8):
        for lane in range(8):
            x = np.float64(load_at(pointer, i + lane, like))
            lanes[lane] += x * x
    for i in range(last, end):
        x = np.float64(load_at(pointer, i, like))
        lanes[i - last] += x * x
    return lanes.sum()


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


@list_kernel(grain=GRAIN)
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
    g = data_of(grads)
    chunks = chunks_of(sizes)
    ratio = largest / (np.float64(norm[0]) + 1e-6)
    factor = like.dtype.type(1 if ratio > 1 else ratio)
    for k in prange(chunks.shape[0]):
        t, begin, end = chunks[k]
        gt = g[t]
        for i in range(begin, end):
            store_at(gt, i, factor * load_at(gt, i, like), like)


@list_kernel(grain=GRAIN)
def clip_value(grads, sizes, like, largest):
    """g is moved into -largest .. largest; NaN stays."""
    g = data_of(grads)
    chunks = chunks_of(sizes)
    high = like.dtype.type(largest)
    for k in prange(chunks.shape[0]):
        t, begin, end = chunks[k]
        gt = g[t]
        for i in range(begin, end):
            x = load_at(gt, i, like)
            x = high if x > high else x
            store_at(gt, i, -high if x < -high else x, like)
