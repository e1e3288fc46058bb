"""The gradient of a bias that was added to every row: sums of columns."""

from __future__ import annotations

from . import reduce

__all__ = ["column_sum"]


def column_sum(out, x):
    """Sums over rows, accumulated in float64. out (m) C; x (n, m) C."""
    n, m = x.shape
    if n == 0 or m == 1:
        reduce.sum(out.reshape(m, 1, 1), x.reshape(m, n, 1))
    else:
        reduce.sum(out.reshape(1, 1, m), x.reshape(1, n, m))
