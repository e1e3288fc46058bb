"""Matrix factorisations: NumPy's LAPACK behind the manners of a kernel, outputs first.

The arrays are stacks of matrices, any strides. A singular matrix raises numpy.linalg.LinAlgError.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["cholesky", "det", "inv", "slogdet", "solve"]

Array = np.ndarray[Any, Any]


def inv(out: Array, x: Array) -> None:
    """Inverses. out, x (..., n, n)."""
    out[...] = np.linalg.inv(x)


def det(out: Array, x: Array) -> None:
    """Determinants. out (...); x (..., n, n)."""
    out[...] = np.linalg.det(x)


def slogdet(sign: Array, logabsdet: Array, x: Array) -> None:
    """Signs and logarithms of determinants. sign, logabsdet (...); x (..., n, n)."""
    sign[...], logabsdet[...] = np.linalg.slogdet(x)


def solve(out: Array, x: Array, y: Array) -> None:
    """``x out = y``. x (..., n, n); out, y (..., n, m)."""
    out[...] = np.linalg.solve(x, y)


def cholesky(out: Array, x: Array) -> None:
    """Lower triangles L with ``L L.T = x``; of x only the lower triangle is read. (..., n, n)."""
    out[...] = np.linalg.cholesky(x)
