"""Elements picked and placed by index along the middle axis of ``(outer, n, inner)``."""

from __future__ import annotations

from numba import prange

from ..machine import kernel

__all__ = ["pick", "place"]


@kernel(grain=1 << 16, moves=True)
def pick(out, x, which):
    """out, which (outer, k, inner) C; x (outer, n, inner) C: out = x[o, which[o, j, i], i]."""
    outer, k, inner = out.shape
    for o in prange(outer):
        for j in range(k):
            for i in range(inner):
                out[o, j, i] = x[o, which[o, j, i], i]


@kernel(grain=1 << 16)
def place(out, x, which):
    """out (outer, n, inner) C; x, which (outer, k, inner) C: zeros, plus x at its places."""
    outer, k, inner = x.shape
    for o in prange(outer):
        out[o] = 0
        if inner == 1:  # of equal places in a row the sum waits for no memory
            at, total = 0, x.dtype.type(0)
            for j in range(k):
                if which[o, j, 0] != at:
                    out[o, at, 0] += total
                    at, total = which[o, j, 0], x.dtype.type(0)
                total += x[o, j, 0]
            out[o, at, 0] += total
        else:
            for j in range(k):
                for i in range(inner):
                    out[o, which[o, j, i], i] += x[o, j, i]
