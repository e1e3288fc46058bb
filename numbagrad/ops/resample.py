"""One dimension with another size: each place takes weighed numbers of some others.

``Taps`` says from which, with which weights, and the same for the gradient, which is the same
operation turned around. Start reading at ``resampled``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes
from ..kernels import machine
from ..kernels.cpu import resample as kernels
from ..tensor import Tensor
from .axes import form_along
from .base import Op, constant, contiguous, new_empty

__all__: list[str] = []  # nothing that users call


@dataclass(frozen=True, eq=False)
class Taps:
    """places int64, weights float64 (taps, k): what each of k places takes from which of n.

    A place that takes less than the others has weights of 0 behind its own.
    """

    n: int
    places: np.ndarray
    weights: np.ndarray

    @functools.cached_property
    def narrow(self) -> np.ndarray:
        """The weights in float32."""
        return self.weights.astype(np.float32)

    @functools.cached_property
    def turned(self) -> Taps:
        """What each of the n places gives to the k."""
        k = self.places.shape[1]
        targets = np.broadcast_to(np.arange(k), self.places.shape)
        return _taps(k, self.n, self.places.ravel(), targets.ravel(), self.weights.ravel())


def taps(n: int, places: np.ndarray, weights: np.ndarray) -> Taps:
    """Taps of places and weights (taps, k), of which a place may name another more than once."""
    k = places.shape[1]
    at = np.broadcast_to(np.arange(k), places.shape)
    return _taps(n, k, at.ravel(), places.ravel(), weights.ravel())


def _taps(n: int, k: int, at: np.ndarray, places: np.ndarray, weights: np.ndarray) -> Taps:
    """Taps of k places: ``at`` takes of ``places`` with ``weights``; what stands twice is added."""
    keys, which = np.unique(at * n + places, return_inverse=True)
    sums = np.bincount(which, weights, keys.size)
    keys, sums = keys[sums != 0], sums[sums != 0]
    at, places = keys // n, keys % n
    counts = np.bincount(at, minlength=k)
    rows = np.arange(keys.size) - np.repeat(np.cumsum(counts) - counts, counts)
    most = max(1, int(counts.max(initial=0)))
    found = np.zeros((most, k), np.int64), np.zeros((most, k))
    found[0][rows, at], found[1][rows, at] = places, sums
    return Taps(n, *found)


class Resample(Op, remembers=True):
    """Dimension ``dim`` by ``Taps``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, how: Taps) -> Tensor:
        ctx.dim, ctx.how = dim, how
        shape, k = x._array.shape, how.places.shape[1]
        out = new_empty((*shape[:dim], k, *shape[dim + 1 :]), x._dtype, x._device)
        if out._array.size == 0:
            return out
        outer, n, inner = form_along("", shape, dim)
        places = constant(how.places, dtypes.int64, x)._array
        if x._dtype is dtypes.float64:
            weights = constant(how.weights, dtypes.float64, x)._array
        else:
            weights = constant(how.narrow, dtypes.float32, x)._array
        x3 = contiguous(x)._array.reshape((outer, n, inner))
        target = out._array.reshape((outer, k, inner))
        machine.launch(kernels.resample, target, x3, places, weights)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return Resample.apply(g, ctx.dim, ctx.how.turned)


def resampled(x: Tensor, dim: int, how: Taps) -> Tensor:
    """``x`` floating, whose dimension ``dim`` has ``how.n`` places, by ``how``.

    Linear: differentiable to any order.
    """
    return Resample.apply(x, dim, how)
