"""The updates of one element, as formulas: what each optimiser does to p with the gradient g.

After ``*`` come the options, as numbers; before it what is kept for the element, in the order in
which it is returned. ``kernel_of`` makes of a rule one kernel for whole lists of parameters, see
``kernels/update.py``; rules of one's own go through ``optim.elementwise``. NAdam and ASGD, which
keep numbers for each array too, and Adafactor, which keeps rows and columns, have kernels by hand.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from ..kernels.lists import ListKernel
from ..kernels.update import Rule

__all__ = ["kernel_of"]


@functools.cache
def kernel_of(rule: Callable) -> ListKernel:
    """The one kernel of a rule: lists as ``Rule.kernel`` says, then -1 to climb or 1, options."""
    return Rule(rule).kernel()


def decayed(g, p, decay):
    """The gradient with that of ``decay / 2 * p ** 2``; no NaN of an infinite p without decay."""
    return g + decay * p if decay != 0 else g


def corrected(lr, beta1, step):
    """The rate for a first moment that started at 0."""
    return lr / (1 - beta1**step)


def root(second, beta2, eps, step):
    """The root of a second moment that started at 0; a division less than it looks."""
    return math.sqrt(second) * (1 / math.sqrt(1 - beta2**step)) + eps


def sgd(p, g, *, lr, decay):
    g = decayed(g, p, decay)
    return p - lr * g


def momentum_sgd(p, g, buffer, *, lr, decay, momentum, dampening, nesterov):
    g = decayed(g, p, decay)
    buffer = momentum * buffer + (1 - dampening) * g
    return p - lr * (g + momentum * buffer if nesterov else buffer), buffer


def adam(p, g, first, second, step, *, lr, beta1, beta2, eps, decay, decoupled):
    """Kingma and Ba, 2015, algorithm 1; decoupled: Loshchilov and Hutter, 2019."""
    p = p * (1 - lr * decay if decoupled else 1)
    g = decayed(g, p, 0 if decoupled else decay)
    first = beta1 * first + (1 - beta1) * g
    second = beta2 * second + (1 - beta2) * g * g
    by = corrected(lr, beta1, step) * first / root(second, beta2, eps, step)
    return p - by, first, second


def amsgrad(p, g, first, second, largest, step, *, lr, beta1, beta2, eps, decay, decoupled):
    """Adam by the largest mean square so far (Reddi et al., 2018)."""
    p = p * (1 - lr * decay if decoupled else 1)
    g = decayed(g, p, 0 if decoupled else decay)
    first = beta1 * first + (1 - beta1) * g
    second = beta2 * second + (1 - beta2) * g * g
    largest = max(largest, second)
    by = corrected(lr, beta1, step) * first / root(largest, beta2, eps, step)
    return p - by, first, second, largest


def radam(p, g, first, second, step, *, lr, beta1, beta2, eps, decay, decoupled):
    """Liu et al., 2020, algorithm 2: plain momentum until the variance is known."""
    p = p * (1 - lr * decay if decoupled else 1)
    g = decayed(g, p, 0 if decoupled else decay)
    first = beta1 * first + (1 - beta1) * g
    second = beta2 * second + (1 - beta2) * g * g
    correction = 1 - beta2**step
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * step * beta2**step / correction
    worth = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    rate = corrected(lr, beta1, step)
    if length > 5:
        rate = rate * math.sqrt(worth * correction)
        return p - rate * first / (math.sqrt(second) + eps), first, second
    return p - rate * first, first, second


def adamax(p, g, first, bound, step, *, lr, beta1, beta2, eps, decay):
    """Kingma and Ba, 2015, algorithm 2."""
    g = decayed(g, p, decay)
    first = beta1 * first + (1 - beta1) * g
    bound = max(beta2 * bound, abs(g) + eps)
    return p - corrected(lr, beta1, step) * first / bound, first, bound


def lion(p, g, first, *, lr, beta1, beta2, decay):
    """Chen et al., 2023, algorithm 2."""
    mixed = beta1 * first + (1 - beta1) * g
    by = lr if mixed > 0 else (-lr if mixed < 0 else mixed)  # 0 stays, and NaN spreads
    return p * (1 - lr * decay) - by, beta2 * first + (1 - beta2) * g


def adagrad(p, g, total, step, *, lr, lr_decay, eps, decay):
    """Duchi, Hazan and Singer, 2011."""
    g = decayed(g, p, decay)
    total = total + g * g
    return p - lr / (1 + (step - 1) * lr_decay) * g / (math.sqrt(total) + eps), total


def adadelta(p, g, second, moved, step, *, lr, rho, eps, decay):
    """Zeiler, 2012, algorithm 1."""
    g = decayed(g, p, decay)
    second = rho * second + (1 - rho) * g * g
    by = g * (math.sqrt(moved + eps) / math.sqrt(second + eps))
    return p - lr * by, second, rho * moved + (1 - rho) * by * by


def rmsprop(p, g, second, step, *, lr, alpha, eps, decay):
    """Hinton, 2012."""
    g = decayed(g, p, decay)
    second = alpha * second + (1 - alpha) * g * g
    return p - lr * (g / (math.sqrt(second) + eps)), second


def rmsprop_centered(p, g, second, first, step, *, lr, alpha, eps, decay):
    g = decayed(g, p, decay)
    second = alpha * second + (1 - alpha) * g * g
    first = alpha * first + (1 - alpha) * g
    by = g / (math.sqrt(second - first * first) + eps)
    return p - lr * by, second, first


def rmsprop_momentum(p, g, second, buffer, step, *, lr, alpha, eps, decay, momentum):
    g = decayed(g, p, decay)
    second = alpha * second + (1 - alpha) * g * g
    buffer = g / (math.sqrt(second) + eps) + momentum * buffer
    return p - lr * buffer, second, buffer


def rmsprop_centered_momentum(
    p, g, second, first, buffer, step, *, lr, alpha, eps, decay, momentum
):
    g = decayed(g, p, decay)
    second = alpha * second + (1 - alpha) * g * g
    first = alpha * first + (1 - alpha) * g
    buffer = g / (math.sqrt(second - first * first) + eps) + momentum * buffer
    return p - lr * buffer, second, first, buffer


def rprop(p, g, before, length, step, *, minus, plus, shortest, longest):
    """Riedmiller and Braun, 1993: where the gradient turns its sign p rests once, before is 0."""
    turn = g * before
    if turn > 0:
        length = length * plus
    elif turn < 0:
        length = length * minus
        g = 0
    elif turn != 0:  # NaN
        length = turn
    length = shortest if length < shortest else (longest if length > longest else length)
    by = length if g > 0 else (-length if g < 0 else g * length)
    return p - by, g, length
