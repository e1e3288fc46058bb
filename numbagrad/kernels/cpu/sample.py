"""Images read between their elements, at places given as coordinates.

All is three-dimensional: a depth of 1 stands before images. at (n, p, r) holds r = 2 or 3
coordinates of each of p places, the one along a row first; see ``taps.py`` for taps, padding and
corners. kx, ky, kz: how many times the weights are differentiated along each. Start reading at
``sample``. How work is cut depends on the sizes alone.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..inner import device
from ..machine import kernel
from ..taps import tap_place, tap_weight

__all__ = ["sample", "sample_input_grad", "sample_place_grad"]

POINTS = 256
"""Places of one task, for which it reads all channels."""

CHANNELS = 8
"""Channels of one task that adds to an image; each task finds the weights anew."""

MOST = 64
"""Taps of a place: four along each of three dimensions."""

place_of, weight_of = device(tap_place), device(tap_weight)


@device
def window(offsets, weights, place, sizes, taps, padding, corners, orders):
    """Where in its plane the place reads, and with what weights: how many there are of them.

    place: its coordinates; sizes: (d, h, w).
    """
    depth, height, width = sizes
    flat = place.size == 2
    count = 0
    for i in range(1 if flat else taps):
        z, dz = 0, 1.0
        if not flat:
            t = float(place[2])
            z = place_of(t, depth, taps, i, padding, corners)
            if z < 0:
                continue
            dz = weight_of(t, taps, i, orders[2])
        for j in range(taps):
            t = float(place[1])
            y = place_of(t, height, taps, j, padding, corners)
            if y < 0:
                continue
            dy = dz * weight_of(t, taps, j, orders[1])
            for k in range(taps):
                t = float(place[0])
                x = place_of(t, width, taps, k, padding, corners)
                if x >= 0:
                    offsets[count] = (z * height + y) * width + x
                    weights[count] = dy * weight_of(t, taps, k, orders[0])
                    count += 1
    return count


@device(allocates=True)
def sample_block(out, x, at, sizes, first, last, taps, padding, corners, orders):
    """``sample`` of one image at the places from ``first`` to ``last``; x (c, d h w)."""
    offsets, weights = np.empty(MOST, np.int64), np.empty(MOST, np.float64)
    for p in range(first, last):
        count = window(offsets, weights, at[p], sizes, taps, padding, corners, orders)
        for c in range(x.shape[0]):
            total = 0.0
            for i in range(count):
                total += weights[i] * x[c, offsets[i]]
            out[c, p] = total


@kernel(grain=8192, allocates=True)
def sample(out, x, at, taps, padding, corners, kx, ky, kz):
    """``out[n, c, p]`` is the weighted sum of what place ``at[n, p]`` reads of ``x[n, c]``.

    out (n, c, p), x (n, c, d, h, w), at (n, p, r): C.
    """
    images, channels, points = out.shape
    sizes = (x.shape[2], x.shape[3], x.shape[4])
    planes = x.reshape((images, channels, x.shape[2] * x.shape[3] * x.shape[4]))
    blocks = (points + POINTS - 1) // POINTS
    for task in prange(images * blocks):
        n, first = task // blocks, task % blocks * POINTS
        last = min(first + POINTS, points)
        how = first, last, taps, padding, corners, (kx, ky, kz)
        sample_block(out[n], planes[n], at[n], sizes, *how)


@device(allocates=True)
def spread_block(gx, g, at, sizes, first, last, taps, padding, corners, orders):
    """``sample_input_grad`` of the channels from ``first`` to ``last`` of one image."""
    offsets, weights = np.empty(MOST, np.int64), np.empty(MOST, np.float64)
    for c in range(first, last):
        for i in range(gx.shape[1]):
            gx[c, i] = 0
    for p in range(at.shape[0]):
        count = window(offsets, weights, at[p], sizes, taps, padding, corners, orders)
        for c in range(first, last):
            for i in range(count):
                gx[c, offsets[i]] += weights[i] * g[c, p]


@kernel(grain=8192, allocates=True)
def sample_input_grad(gx, g, at, taps, padding, corners, kx, ky, kz):
    """The gradient of ``sample`` with respect to x: zeros, plus g where it was read, in order.

    gx (n, c, d, h, w), g (n, c, p), at (n, p, r): C.
    """
    images, channels = g.shape[:2]
    sizes = (gx.shape[2], gx.shape[3], gx.shape[4])
    planes = gx.reshape((images, channels, gx.shape[2] * gx.shape[3] * gx.shape[4]))
    blocks = (channels + CHANNELS - 1) // CHANNELS
    for task in prange(images * blocks):
        n, first = task // blocks, task % blocks * CHANNELS
        last = min(first + CHANNELS, channels)
        how = first, last, taps, padding, corners, (kx, ky, kz)
        spread_block(planes[n], g[n], at[n], sizes, *how)


@device(allocates=True)
def slope_block(out, g, x, at, sizes, first, last, taps, padding, corners, orders):
    """``sample_place_grad`` of one image at the places from ``first`` to ``last``."""
    offsets, weights = np.empty(MOST, np.int64), np.empty(MOST, np.float64)
    kx, ky, kz = orders
    for p in range(first, last):
        for axis in range(at.shape[1]):
            raised = (kx + (axis == 0), ky + (axis == 1), kz + (axis == 2))
            count = window(offsets, weights, at[p], sizes, taps, padding, corners, raised)
            total = 0.0
            for c in range(x.shape[0]):
                slope = 0.0
                for i in range(count):
                    slope += weights[i] * x[c, offsets[i]]
                total += slope * g[c, p]
            out[p, axis] = total


@kernel(grain=8192, allocates=True)
def sample_place_grad(out, g, x, at, taps, padding, corners, kx, ky, kz):
    """The gradient of ``sample`` with respect to at, a coordinate after the other.

    out (n, p, r), g (n, c, p), x (n, c, d, h, w), at (n, p, r): C.
    """
    images, channels, points = g.shape
    sizes = (x.shape[2], x.shape[3], x.shape[4])
    planes = x.reshape((images, channels, x.shape[2] * x.shape[3] * x.shape[4]))
    blocks = (points + POINTS - 1) // POINTS
    for task in prange(images * blocks):
        n, first = task // blocks, task % blocks * POINTS
        last = min(first + POINTS, points)
        how = first, last, taps, padding, corners, (kx, ky, kz)
        slope_block(out[n], g[n], planes[n], at[n], sizes, *how)
