"""Gamma, Poisson and binomial numbers, and how gamma numbers move with their shape.

The draws are those of ``rejection.py``, the functions of the gamma distribution those of
``gamma.py``; all is computed in float64 and rounded. Start reading at ``standard_gamma``.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from ..gamma import gamma_functions
from ..inner import device
from ..machine import kernel
from ..rejection import samplers
from .philox import two_doubles

_u64, _f64 = np.uint64, np.float64

_gamma, _poisson, _binomial = samplers(device, math, two_doubles)
_slope, _incomplete = gamma_functions(device, math)


@kernel(grain=4096)
def standard_gamma(out, shape, state, logarithm):
    """out, shape (n,): gamma numbers of scale 1, or their logarithms; state (2,).

    Numbers too small for the dtype are the least normal one. A counter an element.
    """
    key, start = _u64(state[0]), _u64(state[1])
    least = -np.inf if logarithm else _f64(np.finfo(out.dtype).tiny)
    for i in prange(0, out.size):
        found = _gamma(key, start, i, _f64(shape[i]), logarithm)
        out[i] = least if found < least else found


@kernel(grain=4096)
def standard_gamma_grad(out, shape, x, logarithm):
    """out, shape, x (n,): the derivative of x by shape where its quantile stays.

    x: gamma numbers of scale 1, or their logarithms.
    """
    for i in prange(0, out.size):
        given = _f64(x[i])
        z = math.exp(given) if logarithm else given
        found = _slope(_f64(shape[i]), z, given if logarithm else math.log(given))
        out[i] = found if logarithm else found * z


@kernel(grain=4096)
def gammainc(out, shape, x, upper):
    """out, shape, x (n,): the regularised incomplete gamma function, the lower or upper one."""
    for i in prange(0, out.size):
        out[i] = _incomplete(_f64(shape[i]), _f64(x[i]), upper)


@kernel(grain=4096)
def poisson(out, rate, state):
    """out, rate (n,): Poisson counts; state (2,). A counter an element."""
    key, start = _u64(state[0]), _u64(state[1])
    for i in prange(0, out.size):
        out[i] = _poisson(key, start, i, _f64(rate[i]))


@kernel(grain=4096)
def binomial(out, count, p, state):
    """out, count, p (n,): binomial counts; state (2,). A counter an element."""
    key, start = _u64(state[0]), _u64(state[1])
    for i in prange(0, out.size):
        out[i] = _binomial(key, start, i, _f64(count[i]), _f64(p[i]))
