"""Binary search in sorted rows, and histograms."""

from __future__ import annotations

from numba import cuda, float64, int64

from .runtime import elementwise
from .runtime.launch import start, strided_grid
from .runtime.shape import BLOCK
from .runtime.warp import inlined, split

__all__ = ["histogram", "histogram_between", "search"]


@inlined
def _less(x, y):
    """x < y, with NaN above all."""
    return x < y or (y != y and x == x)


def _search(out, edges, values, size, k, n, right, rows):
    """A thread for each of ``size`` values."""
    at = cuda.grid(1)
    while at < size:
        row, _ = split(at, k)
        base = row * n if rows else 0
        value = values[at]
        low, high = 0, n
        while low < high:
            middle = (low + high) // 2
            edge = edges[base + middle]
            before = not _less(value, edge) if right else _less(edge, value)
            if before:
                low = middle + 1
            else:
                high = middle
        out[at] = low
        at += cuda.gridsize(1)


def search(out, edges, values, right, rows):
    """out, values (m, k) C; edges (m or 1, n) C sorted: how many edges come before each value.

    Equal edges come before it if ``right``. rows: whether each row has its own edges.
    """
    size, k, n = values.size, values.shape[1], edges.shape[1]
    if size:
        options = size, k, n, int(right), int(rows)
        start(_search, strided_grid(size), BLOCK, out, edges, values, *options)


def _histogram(out, x, n, bins, low, high):
    """A block for each of ``bins``: no two threads write one number."""
    part = cuda.shared.array(BLOCK, int64)
    each = cuda.blockIdx.x
    while each < bins:
        count = 0
        for i in range(cuda.threadIdx.x, n, BLOCK):
            value = x[i]
            if low <= value and value <= high:
                at = int((value - low) / (high - low) * bins)
                count += 1 if min(at, bins - 1) == each else 0
        part[cuda.threadIdx.x] = count
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            for other in range(1, BLOCK):
                count += part[other]
            out[each] = count
        cuda.syncthreads()
        each += cuda.gridDim.x


def histogram(out, x, low, high):
    """out (bins,) C; x (n,) floating C: how many lie in each equal part of [low, high]."""
    elementwise.fill(out, 0)
    bins = out.shape[0]
    if x.size:
        options = x.size, bins, float(low), float(high)
        start(_histogram, strided_grid(bins * BLOCK), BLOCK, out, x, *options)


def _histogram_between(out, x, weight, edges, n, bins, weighted):
    """A block for each of ``bins``: sums are added up in one order."""
    part = cuda.shared.array(BLOCK, float64)
    each = cuda.blockIdx.x
    while each < bins:
        total = 0.0
        low, high = edges[each], edges[each + 1]
        for i in range(cuda.threadIdx.x, n, BLOCK):
            value = x[i]
            if low <= value and (value < high or (value == high and each == bins - 1)):
                total += float64(weight[i]) if weighted else 1.0
        part[cuda.threadIdx.x] = total
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            for other in range(1, BLOCK):
                total += part[other]
            out[each] = total
        cuda.syncthreads()
        each += cuda.gridDim.x


def histogram_between(out, x, weight, edges, weighted, even):
    """out (bins,) float64 C; x, weight (n,) floating C; edges (bins + 1,) C sorted: the sum of the
    weights between each two edges, how many there are unless ``weighted``; weight is then unread.
    """
    elementwise.fill(out, 0)
    bins = out.shape[0]
    if x.size:
        options = x.size, bins, int(weighted)
        grid = strided_grid(bins * BLOCK)
        start(_histogram_between, grid, BLOCK, out, x, weight, edges, *options)
