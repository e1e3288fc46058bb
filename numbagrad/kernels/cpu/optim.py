"""Optimiser updates and gradient norms over whole parameter lists, one launch each.

An update lays all arrays end to end and cuts them into tasks; an element depends on no other, so
the cuts change nothing. A norm is summed by chunks that do not depend on the number of threads.
Nothing is allocated for an update: what NumPy calls cost to compile is more than all the loops.
Start reading at ``sgd``. Tables named ``params grads ...`` hold ids of arrays, see ``lists.py``.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from ..inner import device, pasted
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


@list_kernel(grain=GRAIN, by_element=True)
def sgd(params, grads, sizes, like, lr, decay, sign):
    """p -= lr * g, with g = sign * grad + decay * p."""
    one = like.dtype.type
    part, tasks = share(sizes)
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            for i in range(begin, end):
                x = load_at(p, i, like)
                d = one(sign) * load_at(g, i, like)
                if decay != 0:
                    d += one(decay) * x
                store_at(p, i, x - one(lr) * d, like)


@list_kernel(outputs=2, grain=GRAIN, by_element=True)
def momentum_sgd(
    params, buffers, grads, sizes, like, lr, decay, sign, momentum, dampening, nesterov
):
    """b = momentum * b + (1 - dampening) * g; p -= lr * b, or lr * (g + momentum * b)."""
    one = like.dtype.type
    tiny = least(like)
    part, tasks = share(sizes)
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            b = load_at(buffers[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            for i in range(begin, end):
                x = load_at(p, i, like)
                d = one(sign) * load_at(g, i, like)
                if decay != 0:
                    d += one(decay) * x
                buffer = one(momentum) * load_at(b, i, like) + one(1 - dampening) * d
                buffer = one(0) if abs(buffer) < tiny else buffer
                store_at(b, i, buffer, like)
                d = d + one(momentum) * buffer if nesterov else buffer
                store_at(p, i, x - one(lr) * d, like)


@list_kernel(outputs=5, grain=GRAIN)
def adam(
    params, steps, firsts, seconds, maxima, grads, sizes, like,
    lr, beta1, beta2, eps, decay, decoupled, sign,
):  # fmt: skip
    """Adam (Kingma and Ba 2015, algorithm 1); decoupled: AdamW (Loshchilov and Hutter 2019).

    maxima: empty, or the largest v so far: AMSGrad (Reddi et al. 2018).
    """
    one = like.dtype.type
    b1, b2, c1, c2, epsilon = one(beta1), one(beta2), one(1 - beta1), one(1 - beta2), one(eps)
    tiny = least(like)
    kept, added = one(1 - lr * decay if decoupled else 1.0), one(0.0 if decoupled else decay)
    direction = one(sign)
    amsgrad = maxima.size > 0
    advance(steps, sizes)
    part, tasks = share(sizes)
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            if begin >= end:
                continue
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            m = load_at(firsts[t] + DATA_FIELD, 0, sizes)
            v = load_at(seconds[t] + DATA_FIELD, 0, sizes)
            w = load_at((maxima if amsgrad else seconds)[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            count = load_at(load_at(steps[t] + DATA_FIELD, 0, sizes), 0, COUNTER)
            step_size = one(lr / (1 - beta1 ** np.float64(count)))
            root_scale = one(1 / math.sqrt(1 - beta2 ** np.float64(count)))  # a division less
            for i in range(begin, end):
                x = load_at(p, i, like) * kept
                d = direction * load_at(g, i, like)
                if added != 0:
                    d += added * x
                first = b1 * load_at(m, i, like) + c1 * d
                second = b2 * load_at(v, i, like) + c2 * d * d
                first = one(0) if abs(first) < tiny else first
                second = one(0) if second < tiny else second
                store_at(m, i, first, like)
                store_at(v, i, second, like)
                if amsgrad:
                    largest = load_at(w, i, like)
                    second = largest if largest > second else second
                    store_at(w, i, second, like)
                x -= step_size * first / (math.sqrt(second) * root_scale + epsilon)
                store_at(p, i, x, like)


@list_kernel(outputs=5, grain=GRAIN)
def rmsprop(
    params, steps, seconds, firsts, buffers, grads, sizes, like,
    lr, alpha, eps, decay, momentum, sign,
):  # fmt: skip
    """RMSprop (Hinton 2012); firsts: empty unless centered; buffers: empty without momentum."""
    one = like.dtype.type
    tiny = least(like)
    keep, new, rate, epsilon = one(alpha), one(1 - alpha), one(lr), one(eps)
    added, direction, inertia = one(decay), one(sign), one(momentum)
    centered, with_momentum = firsts.size > 0, buffers.size > 0
    advance(steps, sizes)
    part, tasks = share(sizes)
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            v = load_at(seconds[t] + DATA_FIELD, 0, sizes)
            m = load_at((firsts if centered else seconds)[t] + DATA_FIELD, 0, sizes)
            b = load_at((buffers if with_momentum else seconds)[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            for i in range(begin, end):
                x = load_at(p, i, like)
                d = direction * load_at(g, i, like)
                if added != 0:
                    d += added * x
                second = keep * load_at(v, i, like) + new * d * d
                second = one(0) if second < tiny else second
                store_at(v, i, second, like)
                if centered:
                    first = keep * load_at(m, i, like) + new * d
                    first = one(0) if abs(first) < tiny else first
                    store_at(m, i, first, like)
                    second -= first * first
                step = d / (math.sqrt(second) + epsilon)
                if with_momentum:
                    step += inertia * load_at(b, i, like)
                    step = one(0) if abs(step) < tiny else step
                    store_at(b, i, step, like)
                store_at(p, i, x - rate * step, like)


@list_kernel(outputs=3, grain=GRAIN)
def adagrad(params, steps, sums, grads, sizes, like, lr, lr_decay, eps, decay, sign):
    """s += g * g; p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps) (Duchi 2011)."""
    one = like.dtype.type
    advance(steps, sizes)
    part, tasks = share(sizes)
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            s = load_at(sums[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            count = load_at(load_at(steps[t] + DATA_FIELD, 0, sizes), 0, COUNTER)
            rate = one(lr / (1 + (np.float64(count) - 1) * lr_decay))
            for i in range(begin, end):
                x = load_at(p, i, like)
                d = one(sign) * load_at(g, i, like)
                if decay != 0:
                    d += one(decay) * x
                total = load_at(s, i, like) + d * d
                store_at(s, i, total, like)
                store_at(p, i, x - rate * d / (math.sqrt(total) + one(eps)), like)


@list_kernel(outputs=4, grain=GRAIN)
def adadelta(params, steps, seconds, deltas, grads, sizes, like, lr, rho, eps, decay, sign):
    """d = g * sqrt(deltas + eps) / sqrt(seconds + eps); p -= lr * d (Zeiler 2012, algorithm 1)."""
    one = like.dtype.type
    tiny = least(like)
    keep, new, epsilon = one(rho), one(1 - rho), one(eps)
    rate, added, direction = one(lr), one(decay), one(sign)
    advance(steps, sizes)
    part, tasks = share(sizes)
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            v = load_at(seconds[t] + DATA_FIELD, 0, sizes)
            u = load_at(deltas[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            for i in range(begin, end):
                x = load_at(p, i, like)
                d = direction * load_at(g, i, like)
                if added != 0:
                    d += added * x
                second = keep * load_at(v, i, like) + new * d * d
                second = one(0) if second < tiny else second
                store_at(v, i, second, like)
                moved = load_at(u, i, like)
                d *= math.sqrt(moved + epsilon) / math.sqrt(second + epsilon)
                moved = keep * moved + new * d * d
                store_at(u, i, one(0) if moved < tiny else moved, like)
                store_at(p, i, x - rate * d, like)


@list_kernel(outputs=4, grain=GRAIN)
def adamax(
    params, steps, firsts, largest, grads, sizes, like, lr, beta1, beta2, eps, decay, sign
):  # fmt: skip
    """p -= lr / (1 - beta1 ** step) * m / u, u the decaying maximum of |g| (Kingma and Ba 2015,
    algorithm 2).
    """
    one = like.dtype.type
    tiny = least(like)
    b1, b2, c1, epsilon = one(beta1), one(beta2), one(1 - beta1), one(eps)
    added, direction = one(decay), one(sign)
    advance(steps, sizes)
    part, tasks = share(sizes)
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            m = load_at(firsts[t] + DATA_FIELD, 0, sizes)
            u = load_at(largest[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            count = load_at(load_at(steps[t] + DATA_FIELD, 0, sizes), 0, COUNTER)
            rate = one(lr / (1 - beta1 ** np.float64(count)))
            for i in range(begin, end):
                x = load_at(p, i, like)
                d = direction * load_at(g, i, like)
                if added != 0:
                    d += added * x
                first = b1 * load_at(m, i, like) + c1 * d
                first = one(0) if abs(first) < tiny else first
                store_at(m, i, first, like)
                bound = b2 * load_at(u, i, like)
                size = abs(d) + epsilon
                bound = bound if bound > size or bound != bound else size
                store_at(u, i, bound, like)
                store_at(p, i, x - rate * first / bound, like)


@list_kernel(outputs=5, grain=GRAIN)
def nadam(
    params, steps, products, firsts, seconds, grads, sizes, like,
    lr, beta1, beta2, eps, decay, decoupled, momentum_decay, sign,
):  # fmt: skip
    """Adam with Nesterov's momentum (Dozat 2016, algorithm 2).

    products: the product of the momenta of all steps so far, float32 scalars as the steps.
    """
    one = like.dtype.type
    tiny = least(like)
    b1, b2, c1, c2, epsilon = one(beta1), one(beta2), one(1 - beta1), one(1 - beta2), one(eps)
    kept, added = one(1 - lr * decay if decoupled else 1.0), one(0.0 if decoupled else decay)
    direction = one(sign)
    advance(steps, sizes)
    for t in range(sizes.size):
        count = np.float64(load_at(load_at(steps[t] + DATA_FIELD, 0, sizes), 0, COUNTER))
        now = beta1 * (1 - 0.5 * 0.96 ** (count * momentum_decay))
        product = load_at(products[t] + DATA_FIELD, 0, sizes)
        store_at(product, 0, load_at(product, 0, COUNTER) * np.float32(now), COUNTER)
    part, tasks = share(sizes)
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            m = load_at(firsts[t] + DATA_FIELD, 0, sizes)
            v = load_at(seconds[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            count = np.float64(load_at(load_at(steps[t] + DATA_FIELD, 0, sizes), 0, COUNTER))
            product = np.float64(load_at(load_at(products[t] + DATA_FIELD, 0, sizes), 0, COUNTER))
            now = beta1 * (1 - 0.5 * 0.96 ** (count * momentum_decay))
            later = beta1 * (1 - 0.5 * 0.96 ** ((count + 1) * momentum_decay))
            by_grad = one(lr * (1 - now) / (1 - product))
            by_first = one(lr * later / (1 - product * later))
            correction = one(1 - beta2**count)
            for i in range(begin, end):
                x = load_at(p, i, like) * kept
                d = direction * load_at(g, i, like)
                if added != 0:
                    d += added * x
                first = b1 * load_at(m, i, like) + c1 * d
                second = b2 * load_at(v, i, like) + c2 * d * d
                first = one(0) if abs(first) < tiny else first
                second = one(0) if second < tiny else second
                store_at(m, i, first, like)
                store_at(v, i, second, like)
                root = math.sqrt(second / correction) + epsilon
                store_at(p, i, x - (by_grad * d + by_first * first) / root, like)


@list_kernel(outputs=4, grain=GRAIN)
def radam(
    params, steps, firsts, seconds, grads, sizes, like,
    lr, beta1, beta2, eps, decay, decoupled, sign,
):  # fmt: skip
    """Adam whose step is scaled by what its variance is worth; plain momentum while that is not
    known (Liu et al. 2020, algorithm 2).
    """
    one = like.dtype.type
    tiny = least(like)
    b1, b2, c1, c2, epsilon = one(beta1), one(beta2), one(1 - beta1), one(1 - beta2), one(eps)
    kept, added = one(1 - lr * decay if decoupled else 1.0), one(0.0 if decoupled else decay)
    direction = one(sign)
    longest = 2 / (1 - beta2) - 1
    advance(steps, sizes)
    part, tasks = share(sizes)
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            m = load_at(firsts[t] + DATA_FIELD, 0, sizes)
            v = load_at(seconds[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            count = np.float64(load_at(load_at(steps[t] + DATA_FIELD, 0, sizes), 0, COUNTER))
            correction = 1 - beta2**count
            length = longest - 2 * count * beta2**count / correction
            rectified = length > 5
            rate = lr / (1 - beta1**count)
            if rectified:
                worth = (length - 4) * (length - 2) * longest
                worth /= (longest - 4) * (longest - 2) * length
                rate *= math.sqrt(worth * correction)
            step_size = one(rate)
            for i in range(begin, end):
                x = load_at(p, i, like) * kept
                d = direction * load_at(g, i, like)
                if added != 0:
                    d += added * x
                first = b1 * load_at(m, i, like) + c1 * d
                second = b2 * load_at(v, i, like) + c2 * d * d
                first = one(0) if abs(first) < tiny else first
                second = one(0) if second < tiny else second
                store_at(m, i, first, like)
                store_at(v, i, second, like)
                step = step_size * first
                if rectified:
                    step /= math.sqrt(second) + epsilon
                store_at(p, i, x - step, like)


@list_kernel(outputs=2, grain=GRAIN)
def lion(params, firsts, grads, sizes, like, lr, beta1, beta2, decay, sign):
    """p -= lr * sign(beta1 * m + (1 - beta1) * g), after decay (Chen et al. 2023, algorithm 2)."""
    one = like.dtype.type
    tiny = least(like)
    b1, b2, c1, c2 = one(beta1), one(beta2), one(1 - beta1), one(1 - beta2)
    kept, rate, direction = one(1 - lr * decay), one(lr), one(sign)
    part, tasks = share(sizes)
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            m = load_at(firsts[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            for i in range(begin, end):
                d = direction * load_at(g, i, like)
                held = load_at(m, i, like)
                mixed = b1 * held + c1 * d
                # 0 stays, and NaN spreads.
                step = rate if mixed > 0 else (-rate if mixed < 0 else mixed)
                store_at(p, i, load_at(p, i, like) * kept - step, like)
                first = b2 * held + c2 * d
                store_at(m, i, one(0) if abs(first) < tiny else first, like)


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


@device(allocates=True)
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
