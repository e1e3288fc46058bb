"""Optimiser updates and gradient norms over whole parameter lists, one launch each.

The arrays are cut into chunks, a block takes one after the other; an element depends on no other,
so the cuts change nothing. Norms are added up in an order that depends on the sizes alone. Adam and
its like count their steps on the device, in a launch of one block before the update. Start reading
at ``sgd``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float64

from .runtime import device
from .runtime.intrinsics import as_type, pointer_at
from .runtime.launch import start, strided_grid
from .runtime.lists import chunks_of, pointers_to
from .runtime.maths import math
from .runtime.shape import BLOCK, WARPS
from .runtime.warp import block_max, block_sum

__all__ = [
    "adadelta",
    "adagrad",
    "adam",
    "adamax",
    "clip_norm",
    "clip_value",
    "lion",
    "momentum_sgd",
    "nadam",
    "norm_of_sums",
    "power_sums",
    "radam",
    "rmsprop",
    "sgd",
]


def _over(kernel: Any, lists: list[Any], sizes: Any, like: Any, *scalars: Any) -> None:
    """Start ``kernel(pointers, count, chunks, k, like, *scalars)``."""
    chunks, k = chunks_of(sizes)
    if k:
        arrays = pointers_to(*lists), len(sizes), chunks, k, like
        start(kernel, strided_grid(k * BLOCK), BLOCK, *arrays, *scalars)


def _count_steps(pointers, count, like):
    """Add one to each of ``count`` float32 counters."""
    for t in range(cuda.threadIdx.x, count, BLOCK):
        step = pointer_at(pointers[t], like)
        step[0] = step[0] + as_type(like, 1)


def _advance(steps: Any) -> None:
    start(_count_steps, 1, BLOCK, pointers_to(steps), len(steps), steps[0])


def _sgd(pointers, count, chunks, k, like, lr, decay, sign):
    rate, added, direction = as_type(like, lr), as_type(like, decay), as_type(like, sign)
    c = cuda.blockIdx.x
    while c < k:
        t = chunks[3 * c]
        p = pointer_at(pointers[t], like)
        g = pointer_at(pointers[count + t], like)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = p[i]
            d = direction * g[i]
            if decay != 0:
                d += added * x
            p[i] = x - rate * d
        c += cuda.gridDim.x


def sgd(params, grads, sizes, like, lr, decay, sign):
    """p -= lr * g, with g = sign * grad + decay * p."""
    _over(_sgd, [params, grads], sizes, like, lr, decay, sign)


def _momentum_sgd(pointers, count, chunks, k, like, lr, decay, sign, momentum, dampening, nesterov):
    rate, added, direction = as_type(like, lr), as_type(like, decay), as_type(like, sign)
    inertia, fresh = as_type(like, momentum), as_type(like, 1 - dampening)
    c = cuda.blockIdx.x
    while c < k:
        t = chunks[3 * c]
        p = pointer_at(pointers[t], like)
        b = pointer_at(pointers[count + t], like)
        g = pointer_at(pointers[2 * count + t], like)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = p[i]
            d = direction * g[i]
            if decay != 0:
                d += added * x
            buffer = inertia * b[i] + fresh * d
            b[i] = buffer
            d = d + inertia * buffer if nesterov else buffer
            p[i] = x - rate * d
        c += cuda.gridDim.x


def momentum_sgd(
    params, buffers, grads, sizes, like, lr, decay, sign, momentum, dampening, nesterov
):
    """b = momentum * b + (1 - dampening) * g; p -= lr * b, or lr * (g + momentum * b)."""
    scalars = lr, decay, sign, momentum, dampening, nesterov
    _over(_momentum_sgd, [params, buffers, grads], sizes, like, *scalars)


def _adam(
    pointers, count, chunks, k, like, counter,
    lr, beta1, beta2, eps, decay, decoupled, sign, amsgrad,
):  # fmt: skip
    """pointers: params, steps, first and second moments, largest second moments, gradients."""
    b1, b2 = as_type(like, beta1), as_type(like, beta2)
    c1, c2 = as_type(like, 1 - beta1), as_type(like, 1 - beta2)
    epsilon, direction = as_type(like, eps), as_type(like, sign)
    kept = as_type(like, 1 - lr * decay if decoupled else 1.0)
    added = as_type(like, 0.0 if decoupled else decay)
    c = cuda.blockIdx.x
    while c < k:
        t = chunks[3 * c]
        p = pointer_at(pointers[t], like)
        step = pointer_at(pointers[count + t], counter)
        m = pointer_at(pointers[2 * count + t], like)
        v = pointer_at(pointers[3 * count + t], like)
        w = pointer_at(pointers[4 * count + t], like)
        g = pointer_at(pointers[5 * count + t], like)
        taken = float64(step[0])
        step_size = as_type(like, lr / (1 - math.pow(beta1, taken)))
        root_scale = as_type(like, 1 / math.sqrt(1 - math.pow(beta2, taken)))
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = p[i] * kept
            d = direction * g[i]
            if added != 0:
                d += added * x
            first = b1 * m[i] + c1 * d
            second = b2 * v[i] + c2 * d * d
            m[i] = first
            v[i] = second
            if amsgrad:
                largest = w[i]
                second = largest if largest > second else second
                w[i] = second
            root = as_type(like, math.sqrt(second)) * root_scale
            p[i] = x - step_size * first / (root + epsilon)
        c += cuda.gridDim.x


def adam(
    params, steps, firsts, seconds, maxima, grads, sizes, like,
    lr, beta1, beta2, eps, decay, decoupled, sign,
):  # fmt: skip
    """Adam (Kingma and Ba 2015, algorithm 1); decoupled: AdamW (Loshchilov and Hutter 2019).

    maxima: empty, or the largest v so far: AMSGrad (Reddi et al. 2018).
    """
    _advance(steps)
    lists = [params, steps, firsts, seconds, maxima or seconds, grads]
    scalars = lr, beta1, beta2, eps, decay, int(decoupled), sign, int(bool(maxima))
    _over(_adam, lists, sizes, like, steps[0], *scalars)


def _rmsprop(
    pointers, count, chunks, k, like, lr, alpha, eps, decay, momentum, sign, centered, moving,
):  # fmt: skip
    """pointers: params, second moments, first moments, buffers, gradients."""
    keep, new, rate = as_type(like, alpha), as_type(like, 1 - alpha), as_type(like, lr)
    epsilon, added = as_type(like, eps), as_type(like, decay)
    direction, inertia = as_type(like, sign), as_type(like, momentum)
    c = cuda.blockIdx.x
    while c < k:
        t = chunks[3 * c]
        p = pointer_at(pointers[t], like)
        v = pointer_at(pointers[count + t], like)
        m = pointer_at(pointers[2 * count + t], like)
        b = pointer_at(pointers[3 * count + t], like)
        g = pointer_at(pointers[4 * count + t], like)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = p[i]
            d = direction * g[i]
            if added != 0:
                d += added * x
            second = keep * v[i] + new * d * d
            v[i] = second
            if centered:
                first = keep * m[i] + new * d
                m[i] = first
                second -= first * first
            step = d / (as_type(like, math.sqrt(second)) + epsilon)
            if moving:
                step += inertia * b[i]
                b[i] = step
            p[i] = x - rate * step
        c += cuda.gridDim.x


def rmsprop(
    params, steps, seconds, firsts, buffers, grads, sizes, like,
    lr, alpha, eps, decay, momentum, sign,
):  # fmt: skip
    """RMSprop (Hinton 2012); firsts: empty unless centered; buffers: empty without momentum."""
    _advance(steps)
    lists = [params, seconds, firsts or seconds, buffers or seconds, grads]
    flags = int(bool(firsts)), int(bool(buffers))
    _over(_rmsprop, lists, sizes, like, lr, alpha, eps, decay, momentum, sign, *flags)


def _adagrad(pointers, count, chunks, k, like, counter, lr, lr_decay, eps, decay, sign):
    """pointers: params, steps, sums, gradients."""
    epsilon, added, direction = as_type(like, eps), as_type(like, decay), as_type(like, sign)
    c = cuda.blockIdx.x
    while c < k:
        t = chunks[3 * c]
        p = pointer_at(pointers[t], like)
        step = pointer_at(pointers[count + t], counter)
        s = pointer_at(pointers[2 * count + t], like)
        g = pointer_at(pointers[3 * count + t], like)
        rate = as_type(like, lr / (1 + (float64(step[0]) - 1) * lr_decay))
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = p[i]
            d = direction * g[i]
            if added != 0:
                d += added * x
            total = s[i] + d * d
            s[i] = total
            p[i] = x - rate * d / (as_type(like, math.sqrt(total)) + epsilon)
        c += cuda.gridDim.x


def adagrad(params, steps, sums, grads, sizes, like, lr, lr_decay, eps, decay, sign):
    """s += g * g; p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps) (Duchi 2011)."""
    _advance(steps)
    lists = [params, steps, sums, grads]
    _over(_adagrad, lists, sizes, like, steps[0], lr, lr_decay, eps, decay, sign)


def _adadelta(pointers, count, chunks, k, like, lr, rho, eps, decay, sign):
    """pointers: params, second moments, moments of the steps, gradients."""
    keep, new, epsilon = as_type(like, rho), as_type(like, 1 - rho), as_type(like, eps)
    rate, added, direction = as_type(like, lr), as_type(like, decay), as_type(like, sign)
    c = cuda.blockIdx.x
    while c < k:
        t = chunks[3 * c]
        p = pointer_at(pointers[t], like)
        v = pointer_at(pointers[count + t], like)
        u = pointer_at(pointers[2 * count + t], like)
        g = pointer_at(pointers[3 * count + t], like)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = p[i]
            d = direction * g[i]
            if added != 0:
                d += added * x
            second = keep * v[i] + new * d * d
            v[i] = second
            moved = u[i]
            root = as_type(like, math.sqrt(second + epsilon))
            d *= as_type(like, math.sqrt(moved + epsilon)) / root
            u[i] = keep * moved + new * d * d
            p[i] = x - rate * d
        c += cuda.gridDim.x


def adadelta(params, steps, seconds, deltas, grads, sizes, like, lr, rho, eps, decay, sign):
    """d = g * sqrt(deltas + eps) / sqrt(seconds + eps); p -= lr * d (Zeiler 2012, algorithm 1)."""
    _advance(steps)
    _over(_adadelta, [params, seconds, deltas, grads], sizes, like, lr, rho, eps, decay, sign)


def _adamax(pointers, count, chunks, k, like, counter, lr, beta1, beta2, eps, decay, sign):
    """pointers: params, steps, first moments, largest gradients, gradients."""
    b1, b2, c1 = as_type(like, beta1), as_type(like, beta2), as_type(like, 1 - beta1)
    epsilon, added, direction = as_type(like, eps), as_type(like, decay), as_type(like, sign)
    c = cuda.blockIdx.x
    while c < k:
        t = chunks[3 * c]
        p = pointer_at(pointers[t], like)
        step = pointer_at(pointers[count + t], counter)
        m = pointer_at(pointers[2 * count + t], like)
        u = pointer_at(pointers[3 * count + t], like)
        g = pointer_at(pointers[4 * count + t], like)
        rate = as_type(like, lr / (1 - math.pow(beta1, float64(step[0]))))
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = p[i]
            d = direction * g[i]
            if added != 0:
                d += added * x
            first = b1 * m[i] + c1 * d
            m[i] = first
            bound = b2 * u[i]
            size = abs(d) + epsilon
            bound = bound if bound > size or bound != bound else size
            u[i] = bound
            p[i] = x - rate * first / bound
        c += cuda.gridDim.x


def adamax(
    params, steps, firsts, largest, grads, sizes, like, lr, beta1, beta2, eps, decay, sign
):  # fmt: skip
    """p -= lr / (1 - beta1 ** step) * m / u, u the decaying maximum of |g| (Kingma and Ba 2015,
    algorithm 2).
    """
    _advance(steps)
    lists = [params, steps, firsts, largest, grads]
    _over(_adamax, lists, sizes, like, steps[0], lr, beta1, beta2, eps, decay, sign)


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
    _advance(steps)
    counters = pointers_to(steps, products), len(steps), steps[0]
    start(_multiply_momenta, 1, BLOCK, *counters, beta1, momentum_decay)
    lists = [params, steps, products, firsts, seconds, grads]
    scalars = lr, beta1, beta2, eps, decay, int(decoupled), momentum_decay, sign
    _over(_nadam, lists, sizes, like, steps[0], *scalars)


def _radam(
    pointers, count, chunks, k, like, counter, lr, beta1, beta2, eps, decay, decoupled, sign,
):  # fmt: skip
    """pointers: params, steps, first and second moments, gradients."""
    b1, b2 = as_type(like, beta1), as_type(like, beta2)
    c1, c2 = as_type(like, 1 - beta1), as_type(like, 1 - beta2)
    epsilon, direction = as_type(like, eps), as_type(like, sign)
    kept = as_type(like, 1 - lr * decay if decoupled else 1.0)
    added = as_type(like, 0.0 if decoupled else decay)
    longest = 2 / (1 - beta2) - 1
    c = cuda.blockIdx.x
    while c < k:
        t = chunks[3 * c]
        p = pointer_at(pointers[t], like)
        taken = float64(pointer_at(pointers[count + t], counter)[0])
        m = pointer_at(pointers[2 * count + t], like)
        v = pointer_at(pointers[3 * count + t], like)
        g = pointer_at(pointers[4 * count + t], like)
        power = math.pow(beta2, taken)
        correction = 1 - power
        length = longest - 2 * taken * power / correction
        rectified = length > 5
        rate = lr / (1 - math.pow(beta1, taken))
        if rectified:
            worth = (length - 4) * (length - 2) * longest
            worth /= (longest - 4) * (longest - 2) * length
            rate *= math.sqrt(worth * correction)
        step_size = as_type(like, rate)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = p[i] * kept
            d = direction * g[i]
            if added != 0:
                d += added * x
            first = b1 * m[i] + c1 * d
            second = b2 * v[i] + c2 * d * d
            m[i] = first
            v[i] = second
            step = step_size * first
            if rectified:
                step /= as_type(like, math.sqrt(second)) + epsilon
            p[i] = x - step
        c += cuda.gridDim.x


def radam(
    params, steps, firsts, seconds, grads, sizes, like,
    lr, beta1, beta2, eps, decay, decoupled, sign,
):  # fmt: skip
    """Adam whose step is scaled by what its variance is worth; plain momentum while that is not
    known (Liu et al. 2020, algorithm 2).
    """
    _advance(steps)
    lists = [params, steps, firsts, seconds, grads]
    scalars = lr, beta1, beta2, eps, decay, int(decoupled), sign
    _over(_radam, lists, sizes, like, steps[0], *scalars)


def _lion(pointers, count, chunks, k, like, lr, beta1, beta2, decay, sign):
    """pointers: params, first moments, gradients."""
    b1, b2 = as_type(like, beta1), as_type(like, beta2)
    c1, c2 = as_type(like, 1 - beta1), as_type(like, 1 - beta2)
    kept, rate = as_type(like, 1 - lr * decay), as_type(like, lr)
    direction = as_type(like, sign)
    c = cuda.blockIdx.x
    while c < k:
        t = chunks[3 * c]
        p = pointer_at(pointers[t], like)
        m = pointer_at(pointers[count + t], like)
        g = pointer_at(pointers[2 * count + t], like)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            d = direction * g[i]
            held = m[i]
            mixed = b1 * held + c1 * d
            # 0 stays, and NaN spreads.
            step = rate if mixed > 0 else (-rate if mixed < 0 else mixed)
            p[i] = p[i] * kept - step
            m[i] = b2 * held + c2 * d
        c += cuda.gridDim.x


def lion(params, firsts, grads, sizes, like, lr, beta1, beta2, decay, sign):
    """p -= lr * sign(beta1 * m + (1 - beta1) * g), after decay (Chen et al. 2023, algorithm 2)."""
    _over(_lion, [params, firsts, grads], sizes, like, lr, beta1, beta2, decay, sign)


# -- norms -----------------------------------------------------------------------------------------


def _power_sums(pointers, count, chunks, k, like, partial, power):
    """partial (k,) float64: of each chunk the sum of ``|g| ** power``, or the maximum."""
    shared = cuda.shared.array(WARPS, float64)
    c = cuda.blockIdx.x
    while c < k:
        g = pointer_at(pointers[chunks[3 * c]], like)
        total = float64(0)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = abs(float64(g[i]))
            if power == math.inf:
                total = x if x > total or x != x else total
            elif power == 2.0:
                total += x * x
            else:
                total += math.pow(x, power)
        if power == math.inf:
            total = block_max(total, shared)
        else:
            total = block_sum(total, shared)
        if cuda.threadIdx.x == 0:
            partial[c] = total
        cuda.syncthreads()
        c += cuda.gridDim.x


def _join(out, partial, k, power, root):
    """One block: out[0] is the sum (or maximum) of k numbers; with root its 1 / power."""
    shared = cuda.shared.array(WARPS, float64)
    total = float64(0)
    for i in range(cuda.threadIdx.x, k, BLOCK):
        x = partial[i]
        if power == math.inf:
            total = x if x > total or x != x else total
        else:
            total += x
    if power == math.inf:
        total = block_max(total, shared)
    else:
        total = block_sum(total, shared)
    if cuda.threadIdx.x == 0:
        out[0] = math.pow(total, 1 / power) if root and power != math.inf else total


def power_sums(out, grads, sizes, like, power):
    """out (1,) float64: the sum over all arrays of ``|g| ** power``; the maximum if infinite."""
    chunks, k = chunks_of(sizes)
    partial = device.empty((max(k, 1),), np.dtype(np.float64), out.device)
    if k:
        arrays = pointers_to(grads), len(sizes), chunks, k, like, partial
        start(_power_sums, strided_grid(k * BLOCK), BLOCK, *arrays, power)
    start(_join, 1, BLOCK, out, partial, k, power, 0)


def norm_of_sums(out, sums, power):
    """out (1,); sums (n,) float64, one from each call of ``power_sums``."""
    start(_join, 1, BLOCK, out, sums, sums.size, power, 1)


def _clip_norm(pointers, count, chunks, k, like, norm, largest):
    ratio = largest / (float64(norm[0]) + 1e-6)
    factor = as_type(like, 1.0 if ratio > 1 else ratio)
    c = cuda.blockIdx.x
    while c < k:
        g = pointer_at(pointers[chunks[3 * c]], like)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            g[i] = factor * g[i]
        c += cuda.gridDim.x


def clip_norm(grads, norm, sizes, like, largest):
    """g *= min(1, largest / (norm + 1e-6)); norm (1,)."""
    _over(_clip_norm, [grads], sizes, like, norm, largest)


def _clip_value(pointers, count, chunks, k, like, largest):
    high = as_type(like, largest)
    c = cuda.blockIdx.x
    while c < k:
        g = pointer_at(pointers[chunks[3 * c]], like)
        for i in range(chunks[3 * c + 1] + cuda.threadIdx.x, chunks[3 * c + 2], BLOCK):
            x = g[i]
            x = high if x > high else x
            g[i] = -high if x < -high else x
        c += cuda.gridDim.x


def clip_value(grads, sizes, like, largest):
    """g is moved into -largest .. largest; NaN stays."""
    _over(_clip_value, [grads], sizes, like, largest)
