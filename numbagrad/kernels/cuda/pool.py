"""Pooling: the largest number of each window with its place, the mean of each window.

A thread makes one number. The windows are tables as on the CPU, (o, 3) int64 in device memory. The
windows that cover an element follow one another, and its gradient is a sum over them in order.
Start reading at ``max_pool``.
"""

from __future__ import annotations

from typing import Any

from numba import cuda

from .runtime.intrinsics import as_type
from .runtime.launch import start, strided_grid
from .runtime.shape import BLOCK
from .runtime.warp import inlined, split

__all__ = ["avg_pool", "avg_pool_grad", "max_pool", "max_pool_grad"]


def _over(kernel: Any, arrays: tuple, tables: tuple, large: tuple, small: tuple) -> None:
    """Start ``kernel``, a thread for each element of the first array."""
    size = arrays[0].size
    if size:
        sizes = *large[1:], *small[1:]
        start(kernel, strided_grid(size), BLOCK, *arrays, *tables, size, *sizes)


def _max_pool(out, at, x, depth, height, width, size, d, h, w, od, oh, ow):
    """The last NaN counts as the largest, as on the CPU."""
    i = cuda.grid(1)
    while i < size:
        rest, j = split(i, ow)
        rest, y = split(rest, oh)
        plane, z = split(rest, od)
        base = plane * d * h * w
        left, right, step = width[3 * j], width[3 * j + 1], width[3 * j + 2]
        low, high, down = height[3 * y], height[3 * y + 1], height[3 * y + 2]
        iz, last, deep = depth[3 * z], depth[3 * z + 1], depth[3 * z + 2]
        place = (iz * h + low) * w + left
        best = x[base + place]
        while iz < last:
            iy = low
            while iy < high:
                line = (iz * h + iy) * w
                ix = left
                while ix < right:
                    value = x[base + line + ix]
                    if value > best or value != value:
                        best = value
                        place = line + ix
                    ix += step
                iy += down
            iz += deep
        out[i] = best
        at[i] = place
        i += cuda.gridsize(1)


def max_pool(out, at, x, depth, height, width):
    """The largest of each window, the first of equals, and where it stands in its plane.

    out, at (planes, od, oh, ow), x (planes, d, h, w): C. depth, height, width: the windows, their
    third number the step from one element to the next.
    """
    _over(_max_pool, (out, at, x), (depth, height, width), x.shape, out.shape)


@inlined
def _first_above(table, column, count, i):
    """The first of ``count`` windows whose start (column 0) or stop (1) is above ``i``."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if table[3 * middle + column] > i:
            high = middle
        else:
            low = middle + 1
    return low


@inlined
def _past(table, first, count, i):
    """The end of those windows from ``first`` on that may hold ``i``.

    Starts rise, but for those that padding and steps have moved to before the first step.
    """
    while first < count and (table[3 * first] <= i or table[3 * first] < table[3 * first + 2]):
        first += 1
    return first


def _max_pool_grad(gx, g, at, depth, height, width, size, d, h, w, od, oh, ow):
    i = cuda.grid(1)
    while i < size:
        rest, ix = split(i, w)
        rest, iy = split(rest, h)
        plane, iz = split(rest, d)
        place = (iz * h + iy) * w + ix
        left, low = _first_above(width, 1, ow, ix), _first_above(height, 1, oh, iy)
        right, high = _past(width, left, ow, ix), _past(height, low, oh, iy)
        front = _first_above(depth, 1, od, iz)
        total = as_type(gx, 0)
        for z in range(front, _past(depth, front, od, iz)):
            for y in range(low, high):
                line = ((plane * od + z) * oh + y) * ow
                for j in range(line + left, line + right):
                    if at[j] == place:
                        total += g[j]
        gx[i] = total
        i += cuda.gridsize(1)


def max_pool_grad(gx, g, at, depth, height, width):
    """Zeros, plus g at the places ``at`` of its plane, in order.

    gx (planes, d, h, w), g, at (planes, od, oh, ow): C. The windows tell where to look.
    """
    _over(_max_pool_grad, (gx, g, at), (depth, height, width), gx.shape, g.shape)


def _avg_pool(out, x, depth, height, width, size, d, h, w, od, oh, ow):
    i = cuda.grid(1)
    while i < size:
        rest, j = split(i, ow)
        rest, y = split(rest, oh)
        plane, z = split(rest, od)
        total = as_type(out, 0)
        for iz in range(depth[3 * z], depth[3 * z + 1]):
            for iy in range(height[3 * y], height[3 * y + 1]):
                line = ((plane * d + iz) * h + iy) * w
                for ix in range(width[3 * j], width[3 * j + 1]):
                    total += x[line + ix]
        divisor = depth[3 * z + 2] * height[3 * y + 2] * width[3 * j + 2]
        out[i] = total / as_type(out, divisor)
        i += cuda.gridsize(1)


def avg_pool(out, x, depth, height, width):
    """The sum of each window over the product of its third numbers; shapes as for ``max_pool``."""
    _over(_avg_pool, (out, x), (depth, height, width), x.shape, out.shape)


def _avg_pool_grad(gx, g, depth, height, width, size, d, h, w, od, oh, ow):
    i = cuda.grid(1)
    while i < size:
        rest, ix = split(i, w)
        rest, iy = split(rest, h)
        plane, iz = split(rest, d)
        total = as_type(gx, 0)
        left, right = _first_above(width, 1, ow, ix), _first_above(width, 0, ow, ix)
        low, high = _first_above(height, 1, oh, iy), _first_above(height, 0, oh, iy)
        for z in range(_first_above(depth, 1, od, iz), _first_above(depth, 0, od, iz)):
            for y in range(low, high):
                line = ((plane * od + z) * oh + y) * ow
                for j in range(left, right):
                    divisor = depth[3 * z + 2] * height[3 * y + 2] * width[3 * j + 2]
                    total += g[line + j] / as_type(gx, divisor)
        gx[i] = total
        i += cuda.gridsize(1)


def avg_pool_grad(gx, g, depth, height, width):
    """The gradient of ``avg_pool``. gx (planes, d, h, w), g (planes, od, oh, ow): C."""
    _over(_avg_pool_grad, (gx, g), (depth, height, width), gx.shape, g.shape)
