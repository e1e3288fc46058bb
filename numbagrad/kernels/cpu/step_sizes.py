"""Updates whose step sizes are kept and moved: ASGD's for each parameter, Rprop's for each element.

As those of ``optim.py``, over whole lists of arrays in one launch.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..intrinsics import load_at, store_at
from ..lists import DATA_FIELD, list_kernel
from .optim import COUNTER, GRAIN, advance, share, within

__all__ = ["asgd", "rprop"]


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


@list_kernel(outputs=4, grain=GRAIN)
def rprop(
    params, steps, before, lengths, grads, sizes, like, minus, plus, shortest, longest, sign
):  # fmt: skip
    """p -= length * sign(g): a length grows by plus while g keeps its sign, and shrinks by minus
    where it turns, where p rests once (Riedmiller and Braun 1993).

    before: the gradients of the last step, 0 where p rested.
    """
    one = like.dtype.type
    shrink, grow, low, high = one(minus), one(plus), one(shortest), one(longest)
    direction, nothing = one(sign), one(0)
    advance(steps, sizes)
    part, tasks = share(sizes)
    for k in prange(tasks):
        start = k * part
        for t in range(sizes.size):
            begin, end = within(start, part, sizes[t])
            start -= sizes[t]
            p = load_at(params[t] + DATA_FIELD, 0, sizes)
            b = load_at(before[t] + DATA_FIELD, 0, sizes)
            s = load_at(lengths[t] + DATA_FIELD, 0, sizes)
            g = load_at(grads[t] + DATA_FIELD, 0, sizes)
            for i in range(begin, end):
                d = direction * load_at(g, i, like)
                turn = d * load_at(b, i, like)
                length = load_at(s, i, like)
                if turn > nothing:
                    length *= grow
                elif turn < nothing:
                    length *= shrink
                    d = nothing
                elif turn != nothing:  # NaN
                    length = turn
                length = low if length < low else (high if length > high else length)
                store_at(s, i, length, like)
                store_at(b, i, d, like)
                step = length if d > nothing else (-length if d < nothing else d * length)
                store_at(p, i, load_at(p, i, like) - step, like)
