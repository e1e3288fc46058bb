"""Looking for the first element that is NaN, infinite, or outside of a range.

What ``first_bad`` finds is one number: 3 times the row-major position, plus 0 for NaN, 1 for inf,
2 for -inf.
"""

from __future__ import annotations

from ..machine import kernel

__all__ = ["first_bad", "first_made", "first_outside"]


@kernel
def first_bad(flag, x, only_nan):
    """flag (1,) int64: 3 times the position of the first bad element, plus its kind, or -1; x any
    shape and strides."""
    flag[0] = -1
    at = 0
    for value in x.flat:
        if value != value:
            flag[0] = 3 * at
            break
        if not only_nan and value - value != 0:
            flag[0] = 3 * at + (1 if value > 0 else 2)
            break
        at += 1


@kernel
def first_made(flag, x, given, only_nan):
    """flag (1,) int64: -1 where x has no bad element; else ``code * (given.size + 1) + which``:
    which is 0 and code that of x, or the first of ``given`` (n,) that is one, counted from 1."""
    flag[0] = -1
    at = 0
    for value in x.flat:
        kind = -1
        if value != value:
            kind = 0
        elif not only_nan and value - value != 0:
            kind = 1 if value > 0 else 2
        if kind >= 0:
            flag[0] = (3 * at + kind) * (given.size + 1)
            for j in range(given.size):
                if given[j] >= 0:
                    flag[0] = given[j] * (given.size + 1) + j + 1
                    break
            break
        at += 1


@kernel(outputs=1)
def first_outside(flag, x, low, high):
    """flag (1,) int64: position of the first element not in [low, high], or -1; x (n) C."""
    low, high = x.dtype.type(low), x.dtype.type(high)
    inside = 0
    for i in range(x.size):  # no way out of the loop, which makes it one of vectors
        inside += 1 if x[i] >= low and x[i] <= high else 0
    flag[0] = -1
    if inside != x.size:
        for i in range(x.size):
            if not (x[i] >= low and x[i] <= high):
                flag[0] = i
                break
