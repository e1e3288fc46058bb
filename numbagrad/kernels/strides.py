"""In which order the dimensions of arrays lie in memory, and results that lie as their operands do.

An elementwise result has the strides of its operands, as PyTorch's has: what is computed of a
transposed matrix is a transposed matrix, and each is walked as it lies. Start reading at
``order_of``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import machine

__all__ = ["common_order", "empty_in", "is_dense", "maker", "meet", "order_of", "ordered"]

Order = tuple[int, ...]
"""Dimensions from the one with the largest steps to that with the smallest."""


def order_of(shape: tuple[int, ...], arrays: Sequence[Any]) -> Order | None:
    """The order in which a result of ``shape`` lies, None where it is row-major.

    arrays: operands that broadcast to ``shape``. The first that tells which of two dimensions has
    larger steps decides, as in PyTorch's TensorIterator.
    """
    if all([a.flags.c_contiguous for a in arrays]):
        return None
    steps = []
    for a in arrays:
        missing = len(shape) - len(a.shape)
        known = zip(a.shape, a.strides, shape[missing:], strict=True)
        own = [0 if n == 1 and full != 1 else s for n, s, full in known]
        steps.append((0,) * missing + tuple(own))
    return common_order(shape, tuple(steps))


@functools.lru_cache(maxsize=4096)
def common_order(shape: tuple[int, ...], steps: tuple[tuple[int, ...], ...]) -> Order | None:
    """``order_of`` by the steps of each array along each dimension, 0 where it is broadcast."""
    if 0 in shape or any([s < 0 for each in steps for s in each]):
        return None
    order = list(range(len(shape)))[::-1]  # the innermost first
    for i in range(1, len(order)):
        at = i
        for j in range(i - 1, -1, -1):
            larger = _larger(shape, steps, order[j], order[at])
            if larger > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif larger < 0:
                break
    order.reverse()
    return None if _is_row_major(shape, order) else tuple(order)


def _larger(shape: tuple[int, ...], steps: Sequence[Sequence[int]], d: int, e: int) -> int:
    """1 where the steps along ``d`` are larger than those along ``e``, -1 where they are smaller, 0
    where no array tells."""
    for each in steps:
        mine, other = each[d], each[e]
        if mine and other:
            if mine != other:
                return 1 if mine > other else -1
            if shape[d] > shape[e]:
                return 1
    return 0


def _is_row_major(shape: tuple[int, ...], order: Sequence[int]) -> bool:
    counted = [d for d in order if shape[d] != 1]
    return counted == sorted(counted)


@functools.lru_cache(maxsize=4096)
def ordered(shape: tuple[int, ...], order: Order) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes from the outermost dimension to the innermost, and the strides in elements of an
    array of ``shape`` without gaps that lies so."""
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = step
        step *= shape[d]
    return tuple([shape[d] for d in order]), tuple(strides)


def empty_in(order: Order | None, shape: tuple[int, ...], dtype: np.dtype, device: Any) -> Any:
    """``machine.empty`` of an array that lies in ``order``."""
    if order is None:
        return machine.empty(shape, dtype, device)
    sizes, strides = ordered(shape, order)
    return machine.view(machine.empty(sizes, dtype, device), shape, strides, 0)


def is_dense(array: Any) -> bool:
    """Whether the elements of ``array`` fill its memory without gaps, in whichever order."""
    step = array.itemsize
    for s, n in sorted(zip(array.strides, array.shape, strict=True)):
        if n != 1:
            if s != step:
                return False
            step *= n
    return True


def maker(order: Order, empty: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """``empty(shape, dtype)`` of the host that gives arrays which lie in ``order``."""
    inverse = tuple([order.index(d) for d in range(len(order))])

    def make(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        return empty(tuple([shape[d] for d in order]), dtype).transpose(inverse)

    return make


def meet(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether several indices are one element: of an expanded view, or one of windows."""
    reach = 0
    for s, n in sorted([(abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1]):
        if s <= reach:
            return True
        reach += (n - 1) * s
    return False
