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
from .grids import power_of_two, tile_grid
from .intrinsics import load2, load4
from .launch import start
from .shape import BLOCK, PART, PARTS, SIMULATED, WARP, WARPS
from .warp import inlined, shuffle_down, split

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


DEEP = 8
"""Rows of columns that a thread has under way before it adds the first: on an H200 64 Mi float32 as
(16384, 4096) took 73 us, 77 by four, and 84 where each was added as soon as it was there."""

FEW_ROWS = 8
"""Rows that a thread should have where columns are summed."""

FEW_TILES = 2 if SIMULATED else 64
"""Blocks from which on a sum of columns is not spread over more, each of which reads less."""


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
    """What is reduced: ``value(x, y, i, middle)``; middle: ``about(center, row or column)``.

    of: ``of(x[i], middle)``, the same where it takes no y: neighbours can be loaded at once.
    """

    about: Callable[..., Any]
    value: Callable[..., Any]
    of: Callable[..., Any] | None = None


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
def _itself(value, middle):
    return value


@inlined
def _squared(value, middle):
    away = float64(value) - middle
    return away * away


@inlined
def _square(x, y, i, middle):
    away = float64(x[i]) - middle
    return away * away


@inlined
def _product(x, y, i, middle):
    return (float64(x[i]) - middle) * float64(y[i])


PLAIN = Source(_nothing, _plain, _itself)
SQUARES = Source(_middle, _square, _squared)
"""The squares of x - center, for floats."""
PRODUCTS = Source(_middle, _product)
"""The products (x - center) y, for floats."""


def _taking(step: Any, source: Source, lanes: int) -> tuple[Any, Any, Any]:
    """What adds ``lanes`` neighbours to one accumulator, to one each, and of ``DEEP`` rows."""
    value, of = source.value, source.of

    @inlined
    def run(acc, a, b, c, d, e, f, g, h, p):
        acc = step(step(step(step(acc, a, p), b, p), c, p), d, p)
        return step(step(step(step(acc, e, p), f, p), g, p), h, p)

    @inlined
    def run_of(acc, a, b, c, d, e, f, g, h, m, p):
        return run(
            acc, of(a, m), of(b, m), of(c, m), of(d, m), of(e, m), of(f, m), of(g, m), of(h, m), p
        )

    @inlined
    def one(acc, x, y, i, middle, p):
        return step(acc, value(x, y, i, middle), p)

    @inlined
    def two(acc, x, y, i, middle, p):
        a, b = load2(x, i)
        return step(step(acc, of(a, middle), p), of(b, middle), p)

    @inlined
    def four(acc, x, y, i, middle, p):
        a, b, c, d = load4(x, i)
        acc = step(step(acc, of(a, middle), p), of(b, middle), p)
        return step(step(acc, of(c, middle), p), of(d, middle), p)

    @inlined
    def one_each(accs, x, y, i, middles, p):
        accs[0] = step(accs[0], value(x, y, i, middles[0]), p)

    @inlined
    def two_each(accs, x, y, i, middles, p):
        a, b = load2(x, i)
        accs[0] = step(accs[0], of(a, middles[0]), p)
        accs[1] = step(accs[1], of(b, middles[1]), p)

    @inlined
    def four_each(accs, x, y, i, middles, p):
        a, b, c, d = load4(x, i)
        accs[0] = step(accs[0], of(a, middles[0]), p)
        accs[1] = step(accs[1], of(b, middles[1]), p)
        accs[2] = step(accs[2], of(c, middles[2]), p)
        accs[3] = step(accs[3], of(d, middles[3]), p)

    @inlined
    def one_deep(accs, x, y, i, apart, middles, p):
        m = middles[0]
        a, b = value(x, y, i, m), value(x, y, i + apart, m)
        c, d = value(x, y, i + 2 * apart, m), value(x, y, i + 3 * apart, m)
        e, f = value(x, y, i + 4 * apart, m), value(x, y, i + 5 * apart, m)
        g, h = value(x, y, i + 6 * apart, m), value(x, y, i + 7 * apart, m)
        accs[0] = run(accs[0], a, b, c, d, e, f, g, h, p)

    @inlined
    def two_deep(accs, x, y, i, apart, middles, p):
        a0, a1 = load2(x, i)
        b0, b1 = load2(x, i + apart)
        c0, c1 = load2(x, i + 2 * apart)
        d0, d1 = load2(x, i + 3 * apart)
        e0, e1 = load2(x, i + 4 * apart)
        f0, f1 = load2(x, i + 5 * apart)
        g0, g1 = load2(x, i + 6 * apart)
        h0, h1 = load2(x, i + 7 * apart)
        accs[0] = run_of(accs[0], a0, b0, c0, d0, e0, f0, g0, h0, middles[0], p)
        accs[1] = run_of(accs[1], a1, b1, c1, d1, e1, f1, g1, h1, middles[1], p)

    @inlined
    def four_deep(accs, x, y, i, apart, middles, p):
        a0, a1, a2, a3 = load4(x, i)
        b0, b1, b2, b3 = load4(x, i + apart)
        c0, c1, c2, c3 = load4(x, i + 2 * apart)
        d0, d1, d2, d3 = load4(x, i + 3 * apart)
        e0, e1, e2, e3 = load4(x, i + 4 * apart)
        f0, f1, f2, f3 = load4(x, i + 5 * apart)
        g0, g1, g2, g3 = load4(x, i + 6 * apart)
        h0, h1, h2, h3 = load4(x, i + 7 * apart)
        accs[0] = run_of(accs[0], a0, b0, c0, d0, e0, f0, g0, h0, middles[0], p)
        accs[1] = run_of(accs[1], a1, b1, c1, d1, e1, f1, g1, h1, middles[1], p)
        accs[2] = run_of(accs[2], a2, b2, c2, d2, e2, f2, g2, h2, middles[2], p)
        accs[3] = run_of(accs[3], a3, b3, c3, d3, e3, f3, g3, h3, middles[3], p)

    return {
        1: (one, one_each, one_deep),
        2: (two, two_each, two_deep),
        4: (four, four_each, four_deep),
    }[lanes]


@inlined
def _piece_of(task, k, n):
    """Row of a task, first and last of the piece of ``n`` that is its own, and whether it ends."""
    if k == 1:
        return task, int64(0), int64(n), True
    row, piece = split(task, k)
    return row, piece * n // k, (piece + 1) * n // k, piece == k - 1


def _kernels(
    reduction: Reduction, wide: Any, again: bool, source: Source, lanes: int
) -> tuple[Any, Any, Any]:
    """Kernels for rows by part of a warp, rows by block, and columns.

    wide: the type of accumulators. again: whether x holds accumulators, of an earlier pass. The
    ``many`` centers belong to the rows, or the columns of all rows, in turn. lanes: neighbours that
    are loaded at once; rows are multiples of them, or there is only one.
    """
    merge, finish = reduction.merge, reduction.finish
    step = _merged_step(merge) if again else reduction.step
    about, value = source.about, source.value
    take, take_each, take_deep = _taking(step, source, lanes)
    spots = BLOCK * lanes

    @inlined
    def along(x, y, row, first, last, ends, n, middle, lane, width, neutral, p):
        """A thread's part of the groups from ``first`` to ``last`` of a row."""
        acc = wide(neutral)
        i, end = row * n + (first + lane) * lanes, row * n + last * lanes
        apart = width * lanes
        while i + 3 * apart < end:  # four loads under way at a time
            acc = take(acc, x, y, i, middle, p)
            acc = take(acc, x, y, i + apart, middle, p)
            acc = take(acc, x, y, i + 2 * apart, middle, p)
            acc = take(acc, x, y, i + 3 * apart, middle, p)
            i += 4 * apart
        while i < end:
            acc = take(acc, x, y, i, middle, p)
            i += apart
        if lanes > 1 and ends:
            i = row * n + last * lanes + lane
            while i < (row + 1) * n:
                acc = step(acc, value(x, y, i, middle), p)
                i += width
        return acc

    def narrow(out, x, y, center, many, tasks, k, n, width, neutral, p):
        """``width`` threads, a power of two and part of a warp, for each of ``tasks`` pieces."""
        lane, count = cuda.threadIdx.x % width, BLOCK // width
        base = cuda.blockIdx.x * count
        while base < tasks:
            task = base + cuda.threadIdx.x // width
            acc = wide(neutral)
            if task < tasks:
                row, first, last, ends = _piece_of(task, k, n // lanes)
                middle = about(center, row % many)
                acc = along(x, y, row, first, last, ends, n, middle, lane, width, neutral, p)
            delta = width // 2
            while delta > 0:
                acc = merge(acc, shuffle_down(acc, delta))
                delta //= 2
            if lane == 0 and task < tasks:
                out[task] = finish(acc, p)
            base += cuda.gridDim.x * count

    def rows(out, x, y, center, many, tasks, k, n, neutral, p):
        """A block for each of ``tasks`` pieces of rows."""
        shared = cuda.shared.array(WARPS, wide)
        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        task = cuda.blockIdx.x
        while task < tasks:
            row, first, last, ends = _piece_of(task, k, n // lanes)
            middle = about(center, row % many)
            at = cuda.threadIdx.x
            acc = along(x, y, row, first, last, ends, n, middle, at, BLOCK, neutral, p)
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

    def columns(out, x, y, center, many, tasks, k, n, inner, across, neutral, p):
        """A block for each of ``tasks`` pieces of ``across`` groups of columns.

        across: a power of two; the threads beneath each other share out the rows.
        """
        shared = cuda.shared.array(spots, wide)
        accs, middles = cuda.local.array(lanes, wide), cuda.local.array(lanes, float64)
        lane, deep, down = cuda.threadIdx.x % across, cuda.threadIdx.x // across, BLOCK // across
        tiles = (inner + across * lanes - 1) // (across * lanes)
        task = cuda.blockIdx.x
        while task < tasks:
            piece, tile = split(task, tiles)
            column = (tile * across + lane) * lanes
            outer, first, last, _ = _piece_of(piece, k, n)
            row, end = outer * n + first + deep, outer * n + last
            for q in range(lanes):
                accs[q] = wide(neutral)
            if column < inner:
                for q in range(lanes):
                    middles[q] = about(center, (outer * inner + column + q) % many)
                at, apart = row * inner + column, down * inner
                while row + (DEEP - 1) * down < end:
                    take_deep(accs, x, y, at, apart, middles, p)
                    row += DEEP * down
                    at += DEEP * apart
                while row < end:
                    take_each(accs, x, y, at, middles, p)
                    row += down
                    at += apart
            half = down // 2
            while half > 0:
                if deep >= half and deep < 2 * half:
                    for q in range(lanes):
                        shared[((deep - half) * across + lane) * lanes + q] = accs[q]
                cuda.syncthreads()
                if deep < half:
                    for q in range(lanes):
                        other = shared[(deep * across + lane) * lanes + q]
                        accs[q] = merge(accs[q], other)
                cuda.syncthreads()
                half //= 2
            if deep == 0 and column < inner:
                for q in range(lanes):
                    out[piece * inner + column + q] = finish(accs[q], p)
            task += cuda.gridDim.x

    if reduction.first == (0.0, 0):  # 64 registers, of which those of extremes want more
        columns.launch_bounds = BLOCK, 4  # type: ignore[attr-defined]
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
    reduction: Reduction, floating: bool, again: bool, last: bool, source: Source, lanes: int
) -> Any:
    key = reduction, floating, again, last, source, lanes
    found = _made.get(key)
    if found is None:
        used = reduction
        if not last:
            used = Reduction(reduction.step, reduction.merge, same, reduction.first)
        wide = float64 if floating else int64
        found = _made[key] = _kernels(used, wide, again, source, lanes)
    return found


def _lanes_of(x: Any, source: Source) -> int:
    """Neighbours that are loaded at once from x (outer, n, inner)."""
    outer, n, inner = x.shape
    lanes = 4 if x.itemsize <= 4 else 2
    whole = inner % lanes == 0 if inner > 1 else n % lanes == 0 or outer == 1
    return lanes if source.of and whole and x.pointer % 16 == 0 else 1


def _across(inner: int, lanes: int, n: int) -> int:
    """Threads side by side over groups of ``lanes`` columns of ``n`` rows.

    More than a warp where the others of a block would have few rows each, and it is one of many.
    """
    groups = -(-inner // lanes)
    across = min(WARP, power_of_two(groups))
    while across < BLOCK and n < FEW_ROWS * (BLOCK // across) and groups >= 2 * across * PARTS:
        across *= 2
    return across


def _spread(pieces: int, groups: int, across: int, n: int) -> int:
    """``across``, or less where few blocks would have long columns: more threads share these."""
    while across > 4 and pieces * -(-groups // across) < FEW_TILES:
        if n < 2 * DEEP * (BLOCK // across):
            break
        across //= 2
    return across


def _width(tasks: int, groups: int) -> int:
    """Threads for each of ``tasks`` rows of so many groups: one each, or four where rows abound."""
    width = min(WARP, power_of_two(groups))
    if groups >= 4 and tasks * width >= PARTS * BLOCK:
        width = min(width, power_of_two(-(-groups // 4)))
    return width


def _pass(
    reduction: Reduction, out: Any, x: Any, p: Any, floating: bool, again: bool, last: bool,
    source: Source = PLAIN, y: Any = None, center: Any = None,
) -> None:  # fmt: skip
    """One pass from x (outer, n, inner) to out (outer, k, inner)."""
    lanes = _lanes_of(x, source)
    narrow, rows, columns = _kernels_for(reduction, floating, again, last, source, lanes)
    (outer, k, inner), n = out.shape, x.shape[1]
    neutral = reduction.first[0 if floating else 1]
    arrays = out, x, x if y is None else y, x if center is None else center
    many = 1 if center is None else center.size
    if inner > 1:
        across = _spread(outer * k, -(-inner // lanes), _across(inner, lanes, n // k), n // k)
        tasks = outer * k * -(-inner // (across * lanes))
        numbers = many, tasks, k, n, inner, across, neutral, p
        start(columns, grid_for(tasks), BLOCK, *arrays, *numbers)
        return
    tasks = outer * k
    if n <= NARROW * k:
        width = _width(tasks, -(-n // (k * lanes)))
        grid = grid_for(-(-tasks * width // BLOCK))
        start(narrow, grid, BLOCK, *arrays, many, tasks, k, n, width, neutral, p)
    else:
        start(rows, grid_for(tasks), BLOCK, *arrays, many, tasks, k, n, neutral, p)


def grid_for(tasks: int) -> int:
    """Blocks of a grid that walks over ``tasks``, one to a block at a time."""
    return tile_grid(tasks)


def parts_of(tasks: int, n: int, inner: int) -> int:
    """Into how many parts to cut ``n`` so that ``tasks`` results keep a GPU busy."""
    if tasks >= PARTS:
        return 1
    size = PART
    if inner > 1:
        size = max(PART // WARP, 1)
        if n >= 2 * size:  # worth a second launch, so that a thread need have DEEP rows alone
            size = max(size // 4, 1)
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
    lanes = _lanes_of(x, source)
    tiles = -(-inner // (_across(inner, lanes, n) * lanes))
    parts = parts_of(outer * k * tiles, n, inner) if k == 1 else 1
    if parts == 1:
        _pass(reduction, out, x, p, floating, False, True, source, y, center)
        return
    wide = np.dtype(np.float64 if floating else np.int64)
    partial = device.empty((outer, parts, inner), wide, out.device)
    _pass(reduction, partial, x, p, floating, False, False, source, y, center)
    _pass(reduction, out, partial, p, floating, True, True)
