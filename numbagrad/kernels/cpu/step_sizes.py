"""Updates that keep numbers for each array: rates of ASGD, a product of NAdam's momenta.

As the kernels of rules (``kernels/update.py``), over whole lists of arrays in one launch.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from ..intrinsics import load_at, store_at
from ..lists import DATA_FIELD, list_kernel
from .optim import COUNTER, GRAIN, advance, least, share, within

__all__ = ["asgd", "nadam"]


@list_kernel(outputs=5, grain=GRAIN)
def asgd(
    params, steps, etas, mus, averages, grads, sizes, like, lr, lambd, alpha, t0, decay, sign
):  # fmt: skip
    """p = (1 - lambd * eta) * p - eta * g, and averages of p (Polyak and Juditsky 1992).

    etas, mus: rates of p and of its average for this step, float32 scalars as the steps; set for
    the next one.
    """
    one = like.dtype.type
    added, direction = one(decay), one(sign)
    advance(steps, sizes)
    part, tasks = share(sizes)
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            a = load_at(averages[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            eta = np.float64(load_at(load_at(etas[t] + DATA_FIELD, 0, sizes), 0, COUNTER))
            mu = load_at(load_at(mus[t] + DATA_FIELD, 0, sizes), 0, COUNTER)
            kept, rate, weight, copied = one(1 - lambd * eta), one(eta), one(mu), mu == 1
            for i in range(begin, end):
                x = load_at(p, i, like)
                d = direction * load_at(g, i, like)
                if added != 0:
                    d += added * x
                x = x * kept - rate * d
                store_at(p, i, x, like)
                mean = load_at(a, i, like)
                store_at(a, i, x if copied else mean + (x - mean) * weight, like)
    for t in range(steps.size):
        count = np.float64(load_at(load_at(steps[t] + DATA_FIELD, 0, sizes), 0, COUNTER))
        eta = lr / (1 + lambd * lr * count) ** alpha
        mu = 1 / max(1.0, count - t0)
        store_at(load_at(etas[t] + DATA_FIELD, 0, sizes), 0, np.float32(eta), COUNTER)
        store_at(load_at(mus[t] + DATA_FIELD, 0, sizes), 0, np.float32(mu), COUNTER)


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
