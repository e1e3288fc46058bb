"""What reductions are made of: kernels for rows and columns, and how one or two passes are chosen.

Start reading at ``fold``. The reductions themselves are in ``kernels/cuda/reduce.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, float64, int64

from ...halves import is_floating
from . import device
from .launch import start, strided_grid
from .shape import BLOCK, PART, PARTS, SIMULATED, WARP, WARPS
from .warp import inlined, shuffle_down

__all__ = [
    "PLAIN",
    "PRODUCTS",
    "SQUARES",
    "Reduction",
    "Source",
    "fold",
    "grid_for",
    "parts_of",
    "same",
]

NARROW = 2 * WARP if SIMULATED else 1024
"""Up to this length a row is one warp's."""


@dataclass(frozen=True, eq=False)
class Reduction:
    """The parts of a reduction: ``step(acc, value, p)``, ``merge(acc, acc)``, ``finish(acc, p)``.

    first: the neutral accumulator, for floats and for integers.
    """

    step: Callable[..., Any]
    merge: Callable[..., Any]
    finish: Callable[..., Any]
    first: tuple[float, int] = (0.0, 0)


@dataclass(frozen=True, eq=False)
class Source:
    """What is reduced: ``value(x, y, i, middle)``; middle: ``about(center, row or column)``."""

    about: Callable[..., Any]
    value: Callable[..., Any]


@inlined
def _nothing(center, at):
    return 0


@inlined
def _middle(center, at):
    return float64(center[at])


@inlined
def _plain(x, y, i, middle):
    return x[i]


@inlined
def _square(x, y, i, middle):
    away = float64(x[i]) - middle
    return away * away


@inlined
def _product(x, y, i, middle):
    return (float64(x[i]) - middle) * float64(y[i])


PLAIN = Source(_nothing, _plain)
SQUARES = Source(_middle, _square)
"""The squares of x - center, for floats."""
PRODUCTS = Source(_middle, _product)
"""The products (x - center) y, for floats."""


def _kernels(reduction: Reduction, wide: Any, again: bool, source: Source) -> tuple[Any, Any, Any]:
    """Kernels for rows by warp, rows by block, and columns.

    wide: the type of accumulators. again: whether x holds accumulators, of an earlier pass. The
    ``many`` centers belong to the rows, or the columns of all rows, in turn.
    """
    merge, finish = reduction.merge, reduction.finish
    step = _merged_step(merge) if again else reduction.step
    about, value = source.about, source.value

    def narrow(out, x, y, center, many, tasks, k, n, neutral, p):
        """A warp for each of ``tasks`` pieces of rows."""
        lane = cuda.threadIdx.x % WARP
        base = cuda.blockIdx.x * WARPS
        while base < tasks:
            task = base + cuda.threadIdx.x // WARP
            acc = wide(neutral)
            if task < tasks:
                row, piece = task // k, task % k
                i = row * n + piece * n // k + lane
                end = row * n + (piece + 1) * n // k
                middle = about(center, row % many)
                while i < end:
                    acc = step(acc, value(x, y, i, middle), p)
                    i += WARP
            delta = WARP // 2
            while delta > 0:
                acc = merge(acc, shuffle_down(acc, delta))
                delta //= 2
            if lane == 0 and task < tasks:
                out[task] = finish(acc, p)
            base += cuda.gridDim.x * WARPS

    def rows(out, x, y, center, many, tasks, k, n, neutral, p):
        """A block for each of ``tasks`` pieces of rows."""
        shared = cuda.shared.array(WARPS, wide)
        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        task = cuda.blockIdx.x
        while task < tasks:
            row, piece = task // k, task % k
            i = row * n + piece * n // k + cuda.threadIdx.x
            end = row * n + (piece + 1) * n // k
            middle = about(center, row % many)
            acc = wide(neutral)
            while i + 3 * BLOCK < end:  # four loads under way at a time
                a, b = value(x, y, i, middle), value(x, y, i + BLOCK, middle)
                c, d = value(x, y, i + 2 * BLOCK, middle), value(x, y, i + 3 * BLOCK, middle)
                acc = step(step(step(step(acc, a, p), b, p), c, p), d, p)
                i += 4 * BLOCK
            while i < end:
                acc = step(acc, value(x, y, i, middle), p)
                i += BLOCK
            delta = WARP // 2
            while delta > 0:
                acc = merge(acc, shuffle_down(acc, delta))
                delta //= 2
            if lane == 0:
                shared[warp] = acc
            cuda.syncthreads()
            if cuda.threadIdx.x == 0:
                for other in range(1, WARPS):
                    acc = merge(acc, shared[other])
                out[task] = finish(acc, p)
            cuda.syncthreads()
            task += cuda.gridDim.x

    def columns(out, x, y, center, many, tasks, k, n, inner, neutral, p):
        """A block for each of ``tasks`` pieces of WARP columns; its warps share the rows."""
        shared = cuda.shared.array(BLOCK, wide)
        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        tiles = (inner + WARP - 1) // WARP
        task = cuda.blockIdx.x
        while task < tasks:
            column = task % tiles * WARP + lane
            piece = task // tiles
            row = piece // k * n + piece % k * n // k + warp
            end = piece // k * n + (piece % k + 1) * n // k
            acc = wide(neutral)
            if column < inner:
                middle = about(center, (piece // k * inner + column) % many)
                apart = WARPS * inner
                while row + 3 * WARPS < end:
                    at = row * inner + column
                    a, b = value(x, y, at, middle), value(x, y, at + apart, middle)
                    at += 2 * apart
                    c, d = value(x, y, at, middle), value(x, y, at + apart, middle)
                    acc = step(step(step(step(acc, a, p), b, p), c, p), d, p)
                    row += 4 * WARPS
                while row < end:
                    acc = step(acc, value(x, y, row * inner + column, middle), p)
                    row += WARPS
            shared[cuda.threadIdx.x] = acc
            cuda.syncthreads()
            if warp == 0 and column < inner:
                for other in range(1, WARPS):
                    acc = merge(acc, shared[other * WARP + lane])
                out[piece * inner + column] = finish(acc, p)
            cuda.syncthreads()
            task += cuda.gridDim.x

    return narrow, rows, columns


def _merged_step(merge: Callable[..., Any]) -> Callable[..., Any]:
    @inlined
    def step(acc, value, p):
        return merge(acc, value)

    return step


@inlined
def same(acc, p):
    """The accumulator as it is: how most reductions finish."""
    return acc


_made: dict[Any, tuple[Any, Any, Any]] = {}


def _kernels_for(
    reduction: Reduction, floating: bool, again: bool, last: bool, source: Source
) -> Any:
    key = reduction, floating, again, last, source
    found = _made.get(key)
    if found is None:
        used = reduction
        if not last:
            used = Reduction(reduction.step, reduction.merge, same, reduction.first)
        found = _made[key] = _kernels(used, float64 if floating else int64, again, source)
    return found


def _pass(
    reduction: Reduction, out: Any, x: Any, p: Any, floating: bool, again: bool, last: bool,
    source: Source = PLAIN, y: Any = None, center: Any = None,
) -> None:  # fmt: skip
    """One pass from x (outer, n, inner) to out (outer, k, inner)."""
    narrow, rows, columns = _kernels_for(reduction, floating, again, last, source)
    (outer, k, inner), n = out.shape, x.shape[1]
    neutral = reduction.first[0 if floating else 1]
    arrays = out, x, x if y is None else y, x if center is None else center
    many = 1 if center is None else center.size
    if inner > 1:
        tasks = outer * k * -(-inner // WARP)
        start(columns, grid_for(tasks), BLOCK, *arrays, many, tasks, k, n, inner, neutral, p)
        return
    tasks = outer * k
    if n <= NARROW * k:
        grid = grid_for(-(-tasks // WARPS))
        start(narrow, grid, BLOCK, *arrays, many, tasks, k, n, neutral, p)
    else:
        start(rows, grid_for(tasks), BLOCK, *arrays, many, tasks, k, n, neutral, p)


def grid_for(tasks: int) -> int:
    """Blocks of a grid that walks over ``tasks``, one to a block at a time."""
    return strided_grid(tasks * BLOCK)


def parts_of(tasks: int, n: int, inner: int) -> int:
    """Into how many parts to cut ``n`` so that ``tasks`` results keep a GPU busy."""
    if tasks >= PARTS:
        return 1
    size = PART if inner == 1 else max(PART // WARP, 1)
    return max(1, min(PARTS // max(tasks, 1), n // size))


def fold(
    reduction: Reduction, out: Any, x: Any, p: Any = 0,
    source: Source = PLAIN, y: Any = None, center: Any = None,
) -> None:  # fmt: skip
    """Reduce x (outer, n, inner) to out (outer, pieces, inner).

    source: of what; y: shaped as x; center (outer, inner), or one that repeats.
    """
    (outer, k, inner), n = out.shape, x.shape[1]
    if out.size == 0:
        return
    floating = is_floating(x.dtype)
    parts = parts_of(outer * k * -(-inner // WARP), n, inner) if k == 1 else 1
    if parts == 1:
        _pass(reduction, out, x, p, floating, False, True, source, y, center)
        return
    wide = np.dtype(np.float64 if floating else np.int64)
    partial = device.empty((outer, parts, inner), wide, out.device)
    _pass(reduction, partial, x, p, floating, False, False, source, y, center)
    _pass(reduction, out, partial, p, floating, True, True)
