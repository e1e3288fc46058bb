"""Numbers of an axis made of weighed numbers of another axis, as interpolation makes them."""

from __future__ import annotations

from numba import cuda

from .runtime.intrinsics import as_type
from .runtime.launch import start, strided_grid
from .runtime.shape import BLOCK
from .runtime.warp import split

__all__ = ["resample"]


def _resample(out, x, places, weights, size, n, k, inner, taps):
    """A thread for each of ``size`` results."""
    at = cuda.grid(1)
    while at < size:
        rest, i = split(at, inner)
        o, j = split(rest, k)
        total = weights[j] * 0
        if weights[j] != 0:
            total = weights[j] * x[(o * n + places[j]) * inner + i]
        for tap in range(1, taps):
            weight = weights[tap * k + j]
            if weight != 0:
                total += weight * x[(o * n + places[tap * k + j]) * inner + i]
        out[at] = as_type(out, total)
        at += cuda.gridsize(1)


def resample(out, x, places, weights):
    """out (outer, k, inner) C; x (outer, n, inner) floating C; places int64, weights (taps, k) C.

    out[o, j, i] is the sum over taps of weights[t, j] * x[o, places[t, j], i]. Taps after the first
    whose weight is 0 are left out. weights: of the dtype that sums of x are made in.
    """
    if out.size:
        _, k, inner = out.shape
        shape = out.size, x.shape[1], k, inner, places.shape[0]
        start(_resample, strided_grid(out.size), BLOCK, out, x, places, weights, *shape)
