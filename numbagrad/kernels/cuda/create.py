"""Sequences of numbers."""

from __future__ import annotations

from numba import cuda, float64

from .runtime.launch import start as launch
from .runtime.launch import strided_grid
from .runtime.shape import BLOCK

__all__ = ["arange", "linspace"]


def _arange(out, n, start, step):
    i = cuda.grid(1)
    while i < n:
        out[i] = start + i * step
        i += cuda.gridsize(1)


def arange(out, start, step):
    """out (n,) any dtype: start + i * step, in the arithmetic of start and step."""
    launch(_arange, strided_grid(out.size), BLOCK, out, out.size, start, step)


def _linspace(out, n, start, end):
    step = (end - start) / float64(max(n - 1, 1))
    i = cuda.grid(1)
    while i < n:
        out[i] = start + step * i if 2 * i < n else end - step * (n - 1 - i)
        i += cuda.gridsize(1)


def linspace(out, start, end):
    """out (n,) any dtype: n numbers from start to end, each half counted from its own end."""
    launch(_linspace, strided_grid(out.size), BLOCK, out, out.size, float(start), float(end))
