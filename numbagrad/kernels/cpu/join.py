"""Putting arrays side by side."""

from __future__ import annotations

import numpy as np
from numba import prange

from ..copies import copy_lines_at
from ..inner import pasted
from ..intrinsics import address, load_at, pointer, store_at
from ..machine import kernel
from ..vectors import VECTOR_BYTES

_BLOCK = 1 << 14
"""Bytes of rows that are written together: they stay in the innermost cache."""


@kernel(grain=262144, moves=True)
def place(out, x, start):
    """out (n, w), x (n, v) C: columns start to start + v of out become x; out is kept elsewhere."""
    n, v = x.shape
    for i in prange(n):
        for j in range(v):
            # unsigned: a place that might be negative keeps LLVM from vectorising
            out[i, np.uintp(start + j)] = x[i, j]


@kernel(grain=262144, moves=True)
def place_four(out, a, b, c, d, start):
    """out (n, w), a b c d (n, any) C: columns from start on become those of a, b, c and d, one
    after the other; out is kept elsewhere."""
    n = out.shape[0]
    for i in prange(n):
        at = start
        for j in range(a.shape[1]):
            out[i, np.uintp(at + j)] = a[i, j]
        at += a.shape[1]
        for j in range(b.shape[1]):
            out[i, np.uintp(at + j)] = b[i, j]
        at += b.shape[1]
        for j in range(c.shape[1]):
            out[i, np.uintp(at + j)] = c[i, j]
        at += c.shape[1]
        for j in range(d.shape[1]):
            out[i, np.uintp(at + j)] = d[i, j]


@kernel(grain=262144, moves=True)
def interleave(out, a, b, c, d):
    """out (n, w), w from 2 to 4; a b c d (n), of which the first w become its columns; all C."""
    n, w = out.shape
    for block in prange((n + _BLOCK - 1) // _BLOCK):
        first = block * _BLOCK
        count = min(_BLOCK, n - first)
        to = pointer(address(out) + first * w * out.itemsize, out.dtype)
        p, q = _from(a, first), _from(b, first)
        r, s = _from(c, first), _from(d, first)
        # Steps that are constants, of which LLVM makes permutations of vectors.
        if w == 2:
            for i in range(count):
                to[2 * i] = p[i]
                to[2 * i + 1] = q[i]
        elif w == 3:
            for i in range(count):
                to[3 * i] = p[i]
                to[3 * i + 1] = q[i]
                to[3 * i + 2] = r[i]
        else:
            for i in range(count):
                to[4 * i] = p[i]
                to[4 * i + 1] = q[i]
                to[4 * i + 2] = r[i]
                to[4 * i + 3] = s[i]


@pasted
def _from(x, first):
    return pointer(address(x) + first * x.itemsize, x.dtype)


@kernel(grain=1 << 20)
def place_rows(out, parts):
    """out (n, w) uint8; parts (k, 3) int64: of each the address of n rows, the bytes from one to
    the next, and its bytes, w in all: rows of out become theirs one after the other."""
    n, w = out.shape
    rows = max(1, _BLOCK // max(1, w))
    for block in prange((n + rows - 1) // rows):
        first = block * rows
        count = min(rows, n - first)
        to = address(out) + first * w
        for k in range(parts.shape[0]):
            from_, step, width = parts[k, 0] + first * parts[k, 1], parts[k, 1], parts[k, 2]
            if VECTOR_BYTES:  # a constant
                copy_lines_at(pointer(to, np.uint8), to, w, from_, step, count, width)
            else:
                for i in range(count):
                    for j in range(width):
                        byte = load_at(from_ + i * step, j, out)
                        store_at(to + i * w, j, byte, out)
            to += width
