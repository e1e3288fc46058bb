"""Where interpolation reads, and with what weight: plain functions that both kinds of kernels use.

A place ``t`` on a line of ``size`` elements reads 1 (the nearest), 2 (linear) or 4 (cubic) of them,
number k of those. The weights are piecewise polynomials of t, so their derivatives are weights of
the same kind: that is what makes gradients of every order one kernel.
"""

from __future__ import annotations

import math

__all__ = [
    "BORDER",
    "LARGEST",
    "REFLECTION",
    "ZEROS",
    "tap_index",
    "tap_inside",
    "tap_weight",
]

ZEROS, BORDER, REFLECTION = 0, 1, 2
"""What a place outside reads: nothing, the edge, what is inside mirrored."""

LARGEST = 1e15
"""Places beyond it, and NaN, read nothing: they fit no int, or have no fraction left."""

NOWHERE = -(1 << 62)
"""The index of what reads nothing."""


def tap_index(t, taps, k):
    """The index of tap ``k`` of ``t`` on a line without end, or NOWHERE. Halves go to the even."""
    if not (t > -LARGEST and t < LARGEST):
        return NOWHERE
    below = int(math.floor(t))  # noqa: RUF046  compiled for a GPU it is a float
    if taps == 1:
        rest = t - below
        return below + (rest > 0.5 or (rest == 0.5 and (below & 1) == 1))
    return below + k + 1 - taps // 2


def tap_inside(at, size, padding, corners):
    """Which of ``size`` elements an index of ``tap_index`` reads, or -1 for none.

    corners: places outside are mirrored at the first and the last element, not at their edges.
    """
    if at >= 0 and at < size:
        return at
    if padding == ZEROS or at == NOWHERE:
        return -1
    if padding == BORDER or size == 1:
        return 0 if at < 0 else size - 1
    if corners:
        at = at % (2 * size - 2)
        return min(at, 2 * size - 2 - at)
    at = at % (2 * size)
    return min(at, 2 * size - 1 - at)


def tap_weight(t, taps, k, order):
    """The weight of tap ``k`` of ``t``, differentiated ``order`` times; t fits an int.

    Cubic: convolution with the parameter -0.75 (Keys, 1981), as most image libraries have it.
    """
    if taps == 1:
        return 1.0 if order == 0 else 0.0
    rest = t - math.floor(t)
    if taps == 2:
        if order == 0:
            return rest if k == 1 else 1.0 - rest
        return 0.0 if order > 1 else 2.0 * k - 1.0
    x = abs(rest + 1.0 - k)
    outer = k == 0 or k == 3
    a = -0.75 if outer else 1.25
    b = 3.75 if outer else -2.25
    c = -6.0 if outer else 0.0
    d = 3.0 if outer else 1.0
    value = 0.0
    if order == 0:
        value = ((a * x + b) * x + c) * x + d
    elif order == 1:
        value = (3.0 * a * x + 2.0 * b) * x + c
    elif order == 2:
        value = 6.0 * a * x + 2.0 * b
    elif order == 3:
        value = 6.0 * a
    return -value if k >= 2 and order % 2 == 1 else value
