"""What reductions are made of: kernels for rows and columns, and how one or two passes are chosen.

Start reading at ``fold``. The reductions themselves are in ``kernels/cuda/reduce.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, float64, int64

from . import device
from .launch import start, strided_grid
from .shape import BLOCK, PART, PARTS, SIMULATED, WARP, WARPS
from .warp import inlined, shuffle_down

__all__ = ["Reduction", "fold", "grid_for", "launch_pass", "parts_of", "same"]

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


def _kernels(reduction: Reduction, wide: Any, again: bool) -> tuple[Any, Any, Any]:
    """Kernels for rows by warp, rows by block, and columns.

    wide: the type of accumulators. again: whether x holds accumulators, of an earlier pass.
    """
    merge, finish = reduction.merge, reduction.finish
    step = _merged_step(merge) if again else reduction.step

    def narrow(out, x, tasks, k, n, neutral, p):
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
                while i < end:
                    acc = step(acc, x[i], p)
                    i += WARP
            delta = WARP // 2
            while delta > 0:
                acc = merge(acc, shuffle_down(acc, delta))
                delta //= 2
            if lane == 0 and task < tasks:
                out[task] = finish(acc, p)
            base += cuda.gridDim.x * WARPS

    def rows(out, x, tasks, k, n, neutral, p):
        """A block for each of ``tasks`` pieces of rows."""
        shared = cuda.shared.array(WARPS, wide)
        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        task = cuda.blockIdx.x
        while task < tasks:
            row, piece = task // k, task % k
            i = row * n + piece * n // k + cuda.threadIdx.x
            end = row * n + (piece + 1) * n // k
            acc = wide(neutral)
            while i + 3 * BLOCK < end:  # four loads under way at a time
                a, b, c, d = x[i], x[i + BLOCK], x[i + 2 * BLOCK], x[i + 3 * BLOCK]
                acc = step(step(step(step(acc, a, p), b, p), c, p), d, p)
                i += 4 * BLOCK
            while i < end:
                acc = step(acc, x[i], p)
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

    def columns(out, x, tasks, k, n, inner, neutral, p):
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
                while row + 3 * WARPS < end:
                    at = row * inner + column
                    a, b = x[at], x[at + WARPS * inner]
                    c, d = x[at + 2 * WARPS * inner], x[at + 3 * WARPS * inner]
                    acc = step(step(step(step(acc, a, p), b, p), c, p), d, p)
                    row += 4 * WARPS
                while row < end:
                    acc = step(acc, x[row * inner + column], p)
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


def _kernels_for(reduction: Reduction, floating: bool, again: bool, last: bool) -> Any:
    key = reduction, floating, again, last
    found = _made.get(key)
    if found is None:
        used = reduction
        if not last:
            used = Reduction(reduction.step, reduction.merge, same, reduction.first)
        found = _made[key] = _kernels(used, float64 if floating else int64, again)
    return found


def launch_pass(
    reduction: Reduction, out: Any, x: Any, p: Any, floating: bool, again: bool, last: bool
) -> None:
    """One pass from x (outer, n, inner) to out (outer, k, inner)."""
    narrow, rows, columns = _kernels_for(reduction, floating, again, last)
    (outer, k, inner), n = out.shape, x.shape[1]
    neutral = reduction.first[0 if floating else 1]
    if inner > 1:
        tasks = outer * k * -(-inner // WARP)
        start(columns, grid_for(tasks), BLOCK, out, x, tasks, k, n, inner, neutral, p)
        return
    tasks = outer * k
    if n <= NARROW * k:
        start(narrow, grid_for(-(-tasks // WARPS)), BLOCK, out, x, tasks, k, n, neutral, p)
    else:
        start(rows, grid_for(tasks), BLOCK, out, x, tasks, k, n, neutral, p)


def grid_for(tasks: int) -> int:
    """Blocks of a grid that walks over ``tasks``, one to a block at a time."""
    return strided_grid(tasks * BLOCK)


def parts_of(tasks: int, n: int, inner: int) -> int:
    """Into how many parts to cut ``n`` so that ``tasks`` results keep a GPU busy."""
    if tasks >= PARTS:
        return 1
    size = PART if inner == 1 else max(PART // WARP, 1)
    return max(1, min(PARTS // max(tasks, 1), n // size))


def fold(reduction: Reduction, out: Any, x: Any, p: Any = 0) -> None:
    """Reduce x (outer, n, inner) to out (outer, pieces, inner)."""
    (outer, k, inner), n = out.shape, x.shape[1]
    if out.size == 0:
        return
    floating = x.dtype.kind == "f"
    parts = parts_of(outer * k * -(-inner // WARP), n, inner) if k == 1 else 1
    if parts == 1:
        launch_pass(reduction, out, x, p, floating, False, True)
        return
    wide = np.dtype(np.float64 if floating else np.int64)
    partial = device.empty((outer, parts, inner), wide, out.device)
    launch_pass(reduction, partial, x, p, floating, False, False)
    launch_pass(reduction, out, partial, p, floating, True, True)
