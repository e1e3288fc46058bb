"""Updates whose step sizes are kept and moved: ASGD's for each parameter, Rprop's for each element.

As those of ``optim.py``: a block walks over a chunk of one array.
"""

from __future__ import annotations

from numba import cuda, float64

from .optim import _advance, _over
from .runtime.intrinsics import as_type, pointer_at
from .runtime.launch import start
from .runtime.lists import pointers_to
from .runtime.maths import math
from .runtime.shape import BLOCK

__all__ = ["asgd", "rprop"]


def _asgd(pointers, count, chunks, k, like, counter, lambd, decay, sign):
    """pointers: params, rates, rates of the averages, averages, gradients."""
    added, direction = as_type(like, decay), as_type(like, sign)
    c = cuda.blockIdx.x
    while c < k:
        t = chunks[3 * c]
        p = pointer_at(pointers[t], like)
        eta = float64(pointer_at(pointers[count + t], counter)[0])
        mu = float64(pointer_at(pointers[2 * count + t], counter)[0])
        a = pointer_at(pointers[3 * count + t], like)
        g = pointer_at(pointers[4 * count + t], like)
        kept, rate, weight = as_type(like, 1 - lambd * eta), as_type(like, eta), as_type(like, mu)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = p[i]
            d = direction * g[i]
            if added != 0:
                d += added * x
            x = x * kept - rate * d
            p[i] = x
            mean = a[i]
            a[i] = x if mu == 1.0 else mean + (x - mean) * weight
        c += cuda.gridDim.x


def _move_rates(pointers, count, counter, lr, lambd, alpha, t0):
    """pointers: steps, rates, rates of the averages; the rates of the next step."""
    for t in range(cuda.threadIdx.x, count, BLOCK):
        taken = float64(pointer_at(pointers[t], counter)[0])
        eta = pointer_at(pointers[count + t], counter)
        mu = pointer_at(pointers[2 * count + t], counter)
        eta[0] = as_type(counter, lr / math.pow(1 + lambd * lr * taken, alpha))
        mu[0] = as_type(counter, 1 / max(1.0, taken - t0))


def asgd(
    params, steps, etas, mus, averages, grads, sizes, like, lr, lambd, alpha, t0, decay, sign
):  # fmt: skip
    """p = (1 - lambd * eta) * p - eta * g, and averages of p (Polyak and Juditsky 1992).

    etas, mus: rates of p and of its average for this step, float32 scalars as the steps; set for
    the next one.
    """
    _advance(steps)
    lists = [params, etas, mus, averages, grads]
    _over(_asgd, lists, sizes, like, steps[0], lambd, decay, sign)
    counters = pointers_to(steps, etas, mus), len(steps), steps[0]
    start(_move_rates, 1, BLOCK, *counters, lr, lambd, alpha, t0)


def _rprop(pointers, count, chunks, k, like, minus, plus, shortest, longest, sign):
    """pointers: params, gradients before, lengths, gradients."""
    shrink, grow = as_type(like, minus), as_type(like, plus)
    low, high, direction = as_type(like, shortest), as_type(like, longest), as_type(like, sign)
    nothing = as_type(like, 0)
    c = cuda.blockIdx.x
    while c < k:
        t = chunks[3 * c]
        p = pointer_at(pointers[t], like)
        b = pointer_at(pointers[count + t], like)
        s = pointer_at(pointers[2 * count + t], like)
        g = pointer_at(pointers[3 * count + t], like)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            d = direction * g[i]
            turn = d * b[i]
            length = s[i]
            if turn > nothing:
                length *= grow
            elif turn < nothing:
                length *= shrink
                d = nothing
            elif turn != nothing:  # NaN
                length = turn
            length = low if length < low else (high if length > high else length)
            s[i] = length
            b[i] = d
            p[i] -= length if d > nothing else (-length if d < nothing else d * length)
        c += cuda.gridDim.x


def rprop(
    params, steps, before, lengths, grads, sizes, like, minus, plus, shortest, longest, sign
):  # fmt: skip
    """p -= length * sign(g): a length grows by plus while g keeps its sign, and shrinks by minus
    where it turns, where p rests once (Riedmiller and Braun 1993).

    before: the gradients of the last step, 0 where p rested.
    """
    _advance(steps)
    lists = [params, before, lengths, grads]
    _over(_rprop, lists, sizes, like, minus, plus, shortest, longest, sign)
