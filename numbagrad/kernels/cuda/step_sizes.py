"""Updates that keep numbers for each array: rates of ASGD, a product of NAdam's momenta.

As the kernels of rules (``runtime/update.py``): a block walks over a chunk of one array.
"""

from __future__ import annotations

from numba import cuda, float64

from .runtime.intrinsics import as_type, pointer_at
from .runtime.launch import start
from .runtime.lists import advance, over, pointers_to
from .runtime.maths import math
from .runtime.shape import BLOCK

__all__ = ["asgd", "nadam"]


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
    advance(steps)
    lists = [params, etas, mus, averages, grads]
    over(_asgd, lists, sizes, like, steps[0], lambd, decay, sign)
    counters = pointers_to(steps, etas, mus), len(steps), steps[0]
    start(_move_rates, 1, BLOCK, *counters, lr, lambd, alpha, t0)


def _multiply_momenta(pointers, count, counter, beta1, momentum_decay):
    """pointers: steps, products of momenta; one more momentum into each of ``count`` products."""
    for t in range(cuda.threadIdx.x, count, BLOCK):
        taken = float64(pointer_at(pointers[t], counter)[0])
        now = beta1 * (1 - 0.5 * math.pow(0.96, taken * momentum_decay))
        product = pointer_at(pointers[count + t], counter)
        product[0] = product[0] * as_type(counter, now)


def _nadam(
    pointers, count, chunks, k, like, counter,
    lr, beta1, beta2, eps, decay, decoupled, momentum_decay, sign,
):  # fmt: skip
    """pointers: params, steps, products of momenta, first and second moments, gradients."""
    b1, b2 = as_type(like, beta1), as_type(like, beta2)
    c1, c2 = as_type(like, 1 - beta1), as_type(like, 1 - beta2)
    epsilon, direction = as_type(like, eps), as_type(like, sign)
    kept = as_type(like, 1 - lr * decay if decoupled else 1.0)
    added = as_type(like, 0.0 if decoupled else decay)
    c = cuda.blockIdx.x
    while c < k:
        t = chunks[3 * c]
        p = pointer_at(pointers[t], like)
        taken = float64(pointer_at(pointers[count + t], counter)[0])
        product = float64(pointer_at(pointers[2 * count + t], counter)[0])
        m = pointer_at(pointers[3 * count + t], like)
        v = pointer_at(pointers[4 * count + t], like)
        g = pointer_at(pointers[5 * count + t], like)
        now = beta1 * (1 - 0.5 * math.pow(0.96, taken * momentum_decay))
        later = beta1 * (1 - 0.5 * math.pow(0.96, (taken + 1) * momentum_decay))
        by_grad = as_type(like, lr * (1 - now) / (1 - product))
        by_first = as_type(like, lr * later / (1 - product * later))
        correction = as_type(like, 1 - math.pow(beta2, taken))
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = p[i] * kept
            d = direction * g[i]
            if added != 0:
                d += added * x
            first = b1 * m[i] + c1 * d
            second = b2 * v[i] + c2 * d * d
            m[i] = first
            v[i] = second
            root = as_type(like, math.sqrt(second / correction)) + epsilon
            p[i] = x - (by_grad * d + by_first * first) / root
        c += cuda.gridDim.x


def nadam(
    params, steps, products, firsts, seconds, grads, sizes, like,
    lr, beta1, beta2, eps, decay, decoupled, momentum_decay, sign,
):  # fmt: skip
    """Adam with Nesterov's momentum (Dozat 2016, algorithm 2).

    products: the product of the momenta of all steps so far, float32 scalars as the steps.
    """
    advance(steps)
    counters = pointers_to(steps, products), len(steps), steps[0]
    start(_multiply_momenta, 1, BLOCK, *counters, beta1, momentum_decay)
    lists = [params, steps, products, firsts, seconds, grads]
    scalars = lr, beta1, beta2, eps, decay, int(decoupled), momentum_decay, sign
    over(_nadam, lists, sizes, like, steps[0], *scalars)
