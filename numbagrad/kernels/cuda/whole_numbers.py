"""Greatest common divisors."""

from __future__ import annotations

from numba import cuda, int64

from .runtime.launch import start, strided_grid
from .runtime.shape import BLOCK

__all__ = ["gcd"]


def _gcd(out, x, y, n):
    """A thread for each of ``n`` pairs."""
    i = cuda.grid(1)
    while i < n:
        a, b = abs(int64(x[i])), abs(int64(y[i]))
        while b != 0:
            a, b = b, a % b
        out[i] = abs(a)  # the least number has no opposite, and stays below 0 until here
        i += cuda.gridsize(1)


def gcd(out, x, y):
    """out, x, y (n,) C ints: by Euclid's division; 0 of 0 and 0; out may be x."""
    if x.size:
        start(_gcd, strided_grid(x.size), BLOCK, out, x, y, x.size)
