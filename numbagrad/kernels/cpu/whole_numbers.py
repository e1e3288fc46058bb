"""Greatest common divisors."""

from __future__ import annotations

from numba import prange

from ..machine import kernel

__all__ = ["gcd"]


@kernel(grain=1 << 12)
def gcd(out, x, y):
    """out, x, y (n,) C ints: by Euclid's division; 0 of 0 and 0; out may be x."""
    for i in prange(x.shape[0]):
        a, b = abs(x[i]), abs(y[i])
        while b != 0:
            a, b = b, a % b
        out[i] = abs(a)  # the least number has no opposite, and stays below 0 until here
