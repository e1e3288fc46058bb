"""Pooling: the largest number of each window with its place, the mean of each window.

All is three-dimensional: fewer dimensions are sizes of 1 in front. The windows are those of all
outputs along one axis, (o, 3): where a window starts and stops, both inside the input, and a
third number.
"""

from __future__ import annotations

from numba import prange

from ..inner import device
from ..machine import kernel

__all__ = ["avg_pool", "avg_pool_grad", "max_pool", "max_pool_grad"]


@device
def max_plane(out, at, x, depth, height, width):
    """``max_pool`` of one plane: out, at (od, oh, ow); x (d, h, w)."""
    rows, columns = x.shape[1:]
    for z in range(out.shape[0]):
        for y in range(out.shape[1]):
            for j in range(out.shape[2]):
                best = x[depth[z, 0], height[y, 0], width[j, 0]]
                place = (depth[z, 0] * rows + height[y, 0]) * columns + width[j, 0]
                left, right, step = width[j, 0], width[j, 1], width[j, 2]
                iz = depth[z, 0]
                while iz < depth[z, 1]:
                    iy = height[y, 0]
                    while iy < height[y, 1]:
                        ix = left
                        while ix < right:
                            value = x[iz, iy, ix]
                            # No branch: half of them would be predicted wrongly.
                            larger = (value > best) | (value != value)
                            best = value if larger else best
                            place = (iz * rows + iy) * columns + ix if larger else place
                            ix += step
                        iy += height[y, 2]
                    iz += depth[z, 2]
                out[z, y, j], at[z, y, j] = best, place


@kernel(outputs=2, grain=16384)
def max_pool(out, at, x, depth, height, width):
    """The largest of each window, the first of equals, and where it stands in its plane.

    out, at (planes, od, oh, ow), x (planes, d, h, w): C. depth, height, width: the windows, their
    third number the step from one element to the next. The last NaN counts as the largest.
    """
    for p in prange(x.shape[0]):
        max_plane(out[p], at[p], x[p], depth, height, width)


@kernel(grain=16384)
def max_pool_grad(gx, g, at, depth, height, width):
    """Zeros, plus g at the places ``at`` of its plane, in order.

    gx (planes, d, h, w), g, at (planes, od, oh, ow): C. The windows are for the twin on a GPU: it
    looks through them for what belongs to an element.
    """
    planes = gx.shape[0]
    places, elements = g.size // max(planes, 1), gx.size // max(planes, 1)
    flat_gx = gx.reshape((planes, elements))
    flat_g, flat_at = g.reshape((planes, places)), at.reshape((planes, places))
    for p in prange(planes):
        for i in range(elements):
            flat_gx[p, i] = 0
        for j in range(places):
            flat_gx[p, flat_at[p, j]] += flat_g[p, j]


@device
def mean_plane(out, x, depth, height, width):
    """``avg_pool`` of one plane."""
    for z in range(out.shape[0]):
        for y in range(out.shape[1]):
            for j in range(out.shape[2]):
                total = x.dtype.type(0)
                for iz in range(depth[z, 0], depth[z, 1]):
                    for iy in range(height[y, 0], height[y, 1]):
                        for ix in range(width[j, 0], width[j, 1]):
                            total += x[iz, iy, ix]
                out[z, y, j] = total / x.dtype.type(depth[z, 2] * height[y, 2] * width[j, 2])


@kernel(grain=16384)
def avg_pool(out, x, depth, height, width):
    """The sum of each window over the product of its third numbers; shapes as for ``max_pool``."""
    for p in prange(x.shape[0]):
        mean_plane(out[p], x[p], depth, height, width)


@device
def spread_plane(gx, g, depth, height, width):
    """``avg_pool_grad`` of one plane."""
    for z in range(gx.shape[0]):
        for y in range(gx.shape[1]):
            for j in range(gx.shape[2]):
                gx[z, y, j] = 0
    for z in range(g.shape[0]):
        for y in range(g.shape[1]):
            for j in range(g.shape[2]):
                part = g[z, y, j] / g.dtype.type(depth[z, 2] * height[y, 2] * width[j, 2])
                for iz in range(depth[z, 0], depth[z, 1]):
                    for iy in range(height[y, 0], height[y, 1]):
                        for ix in range(width[j, 0], width[j, 1]):
                            gx[iz, iy, ix] += part


@kernel(grain=16384)
def avg_pool_grad(gx, g, depth, height, width):
    """The gradient of ``avg_pool``. gx (planes, d, h, w), g (planes, od, oh, ow): C."""
    for p in prange(gx.shape[0]):
        spread_plane(gx[p], g[p], depth, height, width)
