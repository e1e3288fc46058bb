"""Reductions along the middle axis of ``x (outer, n, inner)``; see ``runtime/folds.py``.

As on the CPU ``out`` is (outer, pieces, inner). float32 is accumulated in float64, integers and
bools in int64. Rows are summed by warps or blocks, columns by threads side by side. A long
reduction with few results is shared by a number of blocks that depends on the shape alone; a second
pass joins their parts, so the bits do not depend on the GPU.
"""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda, float64, int64

from ..halves import is_floating
from .runtime.folds import SQUARES, Reduction, fold, grid_for, same
from .runtime.launch import start, strided_grid
from .runtime.maths import math
from .runtime.shape import BLOCK, WARP, WARPS
from .runtime.warp import inlined, shuffle_down

__all__ = [
    "abs_amax",
    "abs_amin",
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "mean",
    "nansum",
    "norm",
    "norm1",
    "norm2",
    "norm3",
    "prod",
    "squares",
    "sum",
]


@inlined
def _add(acc, value, p):
    return acc + value


@inlined
def _plus(acc, other):
    return acc + other


@inlined
def _over(acc, p):
    return acc / p


@inlined
def _multiply(acc, value, p):
    return acc * value


@inlined
def _times(acc, other):
    return acc * other


@inlined
def _count(acc, value, p):
    return acc + (1 if value != 0 else 0)


@inlined
def _is_zero(acc, value, p):
    return acc + (1 if value == 0 else 0)


@inlined
def _some(acc, p):
    return 1 if acc != 0 else 0


@inlined
def _none(acc, p):
    return 0 if acc != 0 else 1


@inlined
def _higher(acc, other):
    return other if other > acc or other != other else acc


@inlined
def _lower(acc, other):
    return other if other < acc or other != other else acc


@inlined
def _keep_high(acc, value, p):
    return value if value > acc or value != value else acc


@inlined
def _keep_low(acc, value, p):
    return value if value < acc or value != value else acc


@inlined
def _keep_far(acc, value, p):
    return abs(value) if abs(value) > acc or value != value else acc


@inlined
def _keep_near(acc, value, p):
    return abs(value) if abs(value) < acc or value != value else acc


@inlined
def _add_size(acc, value, p):
    return acc + abs(value)


@inlined
def _add_square(acc, value, p):
    return acc + float64(value) * float64(value)


@inlined
def _add_cube(acc, value, p):
    size = abs(float64(value))
    return acc + size * size * size


@inlined
def _add_number(acc, value, p):
    return acc + (value if value == value else 0.0)


@inlined
def _cube_root(acc, p):
    return math.pow(acc, 1.0 / 3.0)


@inlined
def _add_power(acc, value, p):
    return acc + math.pow(abs(float64(value)), p)


@inlined
def _square_root(acc, p):
    return math.sqrt(acc)


@inlined
def _root(acc, p):
    return math.pow(acc, 1.0 / p)


_LOW, _HIGH = (-math.inf, -(2**63)), (math.inf, 2**63 - 1)
SUM = Reduction(_add, _plus, same)
MEAN = Reduction(_add, _plus, _over)
PROD = Reduction(_multiply, _times, same, (1.0, 1))
ANY = Reduction(_count, _plus, _some)
ALL = Reduction(_is_zero, _plus, _none)
COUNT = Reduction(_count, _plus, same)
AMAX = Reduction(_keep_high, _higher, same, _LOW)
AMIN = Reduction(_keep_low, _lower, same, _HIGH)
ABS_AMAX = Reduction(_keep_far, _higher, same, _LOW)
ABS_AMIN = Reduction(_keep_near, _lower, same, _HIGH)
NORM1 = Reduction(_add_size, _plus, same)
NORM2 = Reduction(_add_square, _plus, _square_root)
NORM3 = Reduction(_add_cube, _plus, _cube_root)
NANSUM = Reduction(_add_number, _plus, same)
NORM = Reduction(_add_power, _plus, _root)


def sum(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) C."""
    fold(SUM, out, x)


def mean(out, x, count):
    """out (outer, pieces, inner) C; x (outer, n, inner) C: the sum of x, divided by ``count``."""
    fold(MEAN, out, x, float(count))


def nansum(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C: the sum of what is not NaN."""
    fold(NANSUM, out, x)


def prod(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) C."""
    fold(PROD, out, x)


def any(out, x):
    """out (outer, pieces, inner) bool C; x (outer, n, inner) C. NaN counts as true."""
    fold(ANY, out, x)


def all(out, x):
    """out (outer, pieces, inner) bool C; x (outer, n, inner) C. NaN counts as true."""
    fold(ALL, out, x)


def count_nonzero(out, x):
    """out (outer, pieces, inner) int64 C; x (outer, n, inner) C. Pieces are joined by ``sum``."""
    fold(COUNT, out, x)


def amax(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) C, n > 0. NaN if there is one."""
    fold(AMAX, out, x)


def amin(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) C, n > 0. NaN if there is one."""
    fold(AMIN, out, x)


def abs_amax(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C, n > 0: the infinity norm."""
    fold(ABS_AMAX, out, x)


def abs_amin(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C, n > 0: least magnitude."""
    fold(ABS_AMIN, out, x)


def norm1(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C: sum of magnitudes."""
    fold(NORM1, out, x)


def norm2(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C: root of the sum of squares."""
    fold(NORM2, out, x)


def norm3(out, x):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C: root of the sum of cubes."""
    fold(NORM3, out, x)


def norm(out, x, p):
    """out (outer, pieces, inner) C; x (outer, n, inner) floating C: p-norm, p float, not 0."""
    fold(NORM, out, x, float(p))


def squares(out, x, center, divisor):
    """out (outer, pieces, inner) C; x (outer, n, inner) C; center (outer, 1, inner) C.

    The sum of (x - center)**2, divided by ``divisor``.
    """
    fold(MEAN, out, x, float(divisor), SQUARES, center=center)


# -- positions of extremes -------------------------------------------------------------------------


@functools.cache
def _extreme_kernels(sign: int, wide: Any) -> tuple[Any, Any]:
    """Kernels for rows and columns; sign: 1 for the largest, -1 for the smallest."""

    @inlined
    def before(value, at, best, place):
        """Whether ``value`` goes before ``best``: it is more extreme, NaN, or equal and earlier."""
        if place < 0 or at < 0:
            return place < 0
        if value != value or best != best:
            return value != value and (best == best or at < place)
        if value == best:
            return at < place
        return value > best if sign > 0 else value < best

    def rows(values, indices, x, tasks, k, n):
        """A block for each of ``tasks`` pieces of rows."""
        shared = cuda.shared.array(WARPS, wide)
        places = cuda.shared.array(WARPS, int64)
        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        task = cuda.blockIdx.x
        while task < tasks:
            row, piece = task // k, task % k
            i = piece * n // k + cuda.threadIdx.x
            end = (piece + 1) * n // k
            best, place = wide(0), int64(-1)
            while i < end:
                value = wide(x[row * n + i])
                if before(value, i, best, place):
                    best, place = value, int64(i)
                i += BLOCK
            delta = WARP // 2
            while delta > 0:
                value, at = shuffle_down(best, delta), shuffle_down(place, delta)
                if at >= 0 and before(value, at, best, place):
                    best, place = value, at
                delta //= 2
            if lane == 0:
                shared[warp], places[warp] = best, place
            cuda.syncthreads()
            if cuda.threadIdx.x == 0:
                for other in range(1, WARPS):
                    value, at = shared[other], places[other]
                    if at >= 0 and before(value, at, best, place):
                        best, place = value, at
                values[task] = x[row * n + place]
                indices[task] = place
            cuda.syncthreads()
            task += cuda.gridDim.x

    def columns(values, indices, x, count, k, n, inner):
        """A thread for each of ``count`` results."""
        task = cuda.grid(1)
        while task < count:
            piece, column = task // inner, task % inner
            row, part = piece // k, piece % k
            best, place = wide(0), int64(-1)
            for j in range(part * n // k, (part + 1) * n // k):
                value = wide(x[(row * n + j) * inner + column])
                if before(value, j, best, place):
                    best, place = value, int64(j)
            values[task] = x[(row * n + place) * inner + column]
            indices[task] = place
            task += cuda.gridsize(1)

    return rows, columns


def _find(values: Any, indices: Any, x: Any, sign: int) -> None:
    (outer, k, inner), n = values.shape, x.shape[1]
    floating = is_floating(x.dtype)
    rows, columns = _extreme_kernels(sign, float64 if floating else int64)
    if inner > 1:
        count = values.size
        start(columns, strided_grid(count), BLOCK, values, indices, x, count, k, n, inner)
    else:
        tasks = outer * k
        start(rows, grid_for(tasks), BLOCK, values, indices, x, tasks, k, n)


def argmax(values, indices, x):
    """values, indices (outer, pieces, inner) C; x (outer, n, inner) C, n > 0.

    The first of equals; the first NaN before all. Indices count along the whole middle axis.
    """
    _find(values, indices, x, 1)


def argmin(values, indices, x):
    """values, indices (outer, pieces, inner) C; x (outer, n, inner) C, n > 0.

    The first of equals; the first NaN before all. Indices count along the whole middle axis.
    """
    _find(values, indices, x, -1)
