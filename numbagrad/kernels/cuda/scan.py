"""Running sums, products and extremes along the middle axis of ``x (outer, n, inner)``.

As on the CPU: float32 is accumulated in float64, integers in int64. One thread walks down each
column, one block along each row: its threads scan a piece of the row together, then the next, in an
order that depends on the shape alone.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, float64, int64

from ..halves import is_floating
from .runtime.launch import start, strided_grid
from .runtime.maths import math
from .runtime.shape import BLOCK
from .runtime.warp import inlined, split

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "logcumsumexp", "recurrence"]

_made: dict[Any, Any] = {}


@inlined
def _plus(acc, value):
    return acc + value


@inlined
def _times(acc, value):
    return acc * value


def _scans(merge: Any, neutral: int, wide: Any) -> tuple[Any, Any]:
    """Kernels for rows and columns."""

    def scan_rows(out, x, rows, n, reverse):
        shared = cuda.shared.array(BLOCK, wide)
        me = cuda.threadIdx.x
        row = cuda.blockIdx.x
        while row < rows:
            before = wide(neutral)
            first = 0
            while first < n:
                j = first + me
                at = row * n + (n - 1 - j if reverse else j)
                acc = wide(x[at]) if j < n else wide(neutral)
                # Hillis and Steele: each step adds what lies twice as far back.
                shared[me] = acc
                cuda.syncthreads()
                delta = 1
                while delta < BLOCK:
                    other = shared[me - delta] if me >= delta else wide(neutral)
                    cuda.syncthreads()
                    if me >= delta:
                        acc = merge(other, acc)
                        shared[me] = acc
                    cuda.syncthreads()
                    delta *= 2
                if j < n:
                    out[at] = merge(before, acc)
                before = merge(before, shared[BLOCK - 1])
                cuda.syncthreads()
                first += BLOCK
            row += cuda.gridDim.x

    def scan_columns(out, x, columns, n, inner, reverse):
        column = cuda.grid(1)
        while column < columns:
            o, i = split(column, inner)
            acc = wide(neutral)
            for j in range(n):
                at = (o * n + (n - 1 - j if reverse else j)) * inner + i
                acc = merge(acc, wide(x[at]))
                out[at] = acc
            column += cuda.gridsize(1)

    return scan_rows, scan_columns


def _scan(out: Any, x: Any, merge: Any, neutral: int, reverse: Any) -> None:
    outer, n, inner = x.shape
    floating = is_floating(x.dtype)
    key = merge, floating
    kernels = _made.get(key)
    if kernels is None:
        kernels = _made[key] = _scans(merge, neutral, float64 if floating else int64)
    rows, columns = kernels
    if inner == 1:
        start(rows, strided_grid(outer * BLOCK), BLOCK, out, x, outer, n, int(reverse))
    else:
        count = outer * inner
        start(columns, strided_grid(count), BLOCK, out, x, count, n, inner, int(reverse))


def cumsum(out, x, reverse):
    """out, x (outer, n, inner) C; out may be x. From the end if ``reverse``."""
    _scan(out, x, _plus, 0, reverse)


def cumprod(out, x):
    """out, x (outer, n, inner) C; out may be x."""
    _scan(out, x, _times, 1, False)


def _recurrence(out, a, b, columns, n, inner, driven, first, reverse):
    """A thread for each of ``columns``."""
    column = cuda.grid(1)
    while column < columns:
        o, i = split(column, inner)
        acc = float64(first)
        for j in range(n):
            at = (o * n + (n - 1 - j if reverse else j)) * inner + i
            out[at] = acc
            acc *= float64(a[at])
            if driven:
                acc += float64(b[at])
        column += cuda.gridsize(1)


def recurrence(out, a, b, driven, start, reverse):
    """out, a, b (outer, n, inner) C: out[0] = start, out[j] = a[j-1] out[j-1] + b[j-1].

    b is read only if ``driven``. From the end if ``reverse``.
    """
    outer, n, inner = a.shape
    columns = outer * inner
    options = columns, n, inner, int(driven), float(start), int(reverse)
    launch(_recurrence, strided_grid(columns), BLOCK, out, a, b, *options)


launch = start  # ``recurrence`` has a parameter of that name


def _logcumsumexp(out, x, columns, n, inner):
    """A thread for each of ``columns``."""
    column = cuda.grid(1)
    while column < columns:
        o, i = split(column, inner)
        most, total = float64(-math.inf), float64(0)
        for j in range(n):
            at = (o * n + j) * inner + i
            value = float64(x[at])
            if value > most:
                total = total * math.exp(most - value) + 1
                most = value
            elif value == most:
                total += 1
            else:
                total += math.exp(value - most)
            out[at] = most + math.log(total)
        column += cuda.gridsize(1)


def logcumsumexp(out, x):
    """out, x (outer, n, inner) C floating: logarithms of running sums of exponentials."""
    outer, n, inner = x.shape
    columns = outer * inner
    launch(_logcumsumexp, strided_grid(columns), BLOCK, out, x, columns, n, inner)


def _extremes(sign: int, wide: Any) -> Any:
    """The kernel; sign: 1 for the largest so far, -1 for the smallest."""

    def extremes(values, indices, x, columns, n, inner):
        column = cuda.grid(1)
        while column < columns:
            o, i = split(column, inner)
            base = o * n * inner + i
            best, place = wide(x[base]), int64(0)
            for j in range(n):
                at = base + j * inner
                this = wide(x[at])
                if sign > 0:
                    after = this >= best
                else:
                    after = this <= best
                if this != this or (best == best and after):
                    best, place = this, int64(j)
                values[at] = x[base + place * inner]
                indices[at] = place
            column += cuda.gridsize(1)

    return extremes


def _extreme(values: Any, indices: Any, x: Any, sign: int) -> None:
    outer, n, inner = x.shape
    floating = is_floating(x.dtype)
    key = "extreme", sign, floating
    kernel = _made.get(key)
    if kernel is None:
        kernel = _made[key] = _extremes(sign, float64 if floating else int64)
    columns = outer * inner
    start(kernel, strided_grid(columns), BLOCK, values, indices, x, columns, n, inner)


def cummax(values, indices, x):
    """values, indices, x (outer, n, inner) C. The last of equals, as in PyTorch; NaN stays."""
    _extreme(values, indices, x, 1)


def cummin(values, indices, x):
    """values, indices, x (outer, n, inner) C. The last of equals, as in PyTorch; NaN stays."""
    _extreme(values, indices, x, -1)
