"""Gamma, Poisson and binomial numbers, and how gamma numbers move with their shape.

A thread makes an element by the functions of ``rejection.py`` and ``gamma.py``, as the CPU does, so
that the numbers are the CPU's but for the last bits of logarithms. Threads of a warp wait for the
one with the most attempts: a few. Start reading at ``standard_gamma``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float64

from ..gamma import gamma_functions
from ..rejection import samplers
from .philox import two_doubles
from .runtime.launch import start, strided_grid
from .runtime.maths import math
from .runtime.shape import BLOCK
from .runtime.warp import called

__all__ = ["binomial", "gammainc", "poisson", "standard_gamma", "standard_gamma_grad"]

ON_THE_HOST = ("state",)
"""Parameters that are read on the host."""

_gamma, _poisson, _binomial = samplers(called, math, two_doubles)
_slope, _incomplete = gamma_functions(called, math)


def _each(kernel: Any, out: Any, *args: Any) -> None:
    """Start ``kernel(out, ..., n)``, a thread for each element of ``out``."""
    if out.size:
        start(kernel, strided_grid(out.size), BLOCK, out, *args, out.size)


def _standard_gamma(out, shape, seed, first, logarithm, least, n):
    i = cuda.grid(1)
    while i < n:
        found = _gamma(seed, first, i, float64(shape[i]), logarithm)
        out[i] = least if found < least else found
        i += cuda.gridsize(1)


def standard_gamma(out, shape, state, logarithm):
    """out, shape (n,): gamma numbers of scale 1, or their logarithms; state (2,).

    Numbers too small for the dtype are the least normal one. A counter an element.
    """
    least = -np.inf if logarithm else float(np.finfo(out.dtype).tiny)
    _each(_standard_gamma, out, shape, state[0], state[1], logarithm, least)


def _standard_gamma_grad(out, shape, x, logarithm, n):
    i = cuda.grid(1)
    while i < n:
        given = float64(x[i])
        z = math.exp(given) if logarithm else given
        found = _slope(float64(shape[i]), z, given if logarithm else math.log(given))
        out[i] = found if logarithm else found * z
        i += cuda.gridsize(1)


def standard_gamma_grad(out, shape, x, logarithm):
    """out, shape, x (n,): the derivative of x by shape where its quantile stays.

    x: gamma numbers of scale 1, or their logarithms.
    """
    _each(_standard_gamma_grad, out, shape, x, logarithm)


def _gammainc(out, shape, x, upper, n):
    i = cuda.grid(1)
    while i < n:
        out[i] = _incomplete(float64(shape[i]), float64(x[i]), upper)
        i += cuda.gridsize(1)


def gammainc(out, shape, x, upper):
    """out, shape, x (n,): the regularised incomplete gamma function, the lower or upper one."""
    _each(_gammainc, out, shape, x, upper)


def _poisson_each(out, rate, seed, first, n):
    i = cuda.grid(1)
    while i < n:
        out[i] = _poisson(seed, first, i, float64(rate[i]))
        i += cuda.gridsize(1)


def poisson(out, rate, state):
    """out, rate (n,): Poisson counts; state (2,). A counter an element."""
    _each(_poisson_each, out, rate, state[0], state[1])


def _binomial_each(out, count, p, seed, first, n):
    i = cuda.grid(1)
    while i < n:
        out[i] = _binomial(seed, first, i, float64(count[i]), float64(p[i]))
        i += cuda.gridsize(1)


def binomial(out, count, p, state):
    """out, count, p (n,): binomial counts; state (2,). A counter an element."""
    _each(_binomial_each, out, count, p, state[0], state[1])
