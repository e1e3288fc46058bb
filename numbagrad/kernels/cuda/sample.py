"""Images read between their elements, at places given as coordinates.

A thread makes one number of a result. What the places add to an image is sorted by the element it
goes to, stably, and one thread sums all that meets there: in the order of the CPU. Start reading
at ``sample``; names as on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float64, int64

from ..taps import tap_index, tap_inside, tap_weight
from .runtime import device, elementwise
from .runtime.intrinsics import as_type
from .runtime.launch import start, strided_grid
from .runtime.radix import sort_pairs
from .runtime.shape import BLOCK
from .runtime.warp import called, split

__all__ = ["sample", "sample_input_grad", "sample_place_grad"]

_INT64, _FLOAT64 = np.dtype(np.int64), np.dtype(np.float64)

_index_of, _inside_of, _weight_of = called(tap_index), called(tap_inside), called(tap_weight)


@called
def _place_of(t, size, taps, k, padding, corners):
    """Where along an axis of ``size`` tap ``k`` of ``t`` reads, or -1."""
    return _inside_of(_index_of(t, taps, k), size, padding, corners)


@called
def _offset(at, base, rank, k, d, h, w, taps, padding, corners):
    """Where in its plane the place at ``base`` reads with tap ``k`` of all, or -1."""
    z = int64(0)
    if rank == 3:
        z = _place_of(float64(at[base + 2]), d, taps, k // (taps * taps), padding, corners)
    y = _place_of(float64(at[base + 1]), h, taps, k // taps % taps, padding, corners)
    x = _place_of(float64(at[base]), w, taps, k % taps, padding, corners)
    if z < 0 or y < 0 or x < 0:
        return int64(-1)
    return (z * h + y) * w + x


@called
def _weight(at, base, rank, k, taps, kx, ky, kz):
    """The weight of tap ``k``, if it reads something."""
    weight = float64(1)
    if rank == 3:
        weight = _weight_of(float64(at[base + 2]), taps, k // (taps * taps), kz)
    weight *= _weight_of(float64(at[base + 1]), taps, k // taps % taps, ky)
    return weight * _weight_of(float64(at[base]), taps, k % taps, kx)


def _sample(
    out, x, at, size, channels, points, rank, count, d, h, w, taps, padding, corners, kx, ky, kz,
):  # fmt: skip
    i = cuda.grid(1)
    while i < size:
        plane, p = split(i, points)
        n, _ = split(plane, channels)
        base = (n * points + p) * rank
        total = float64(0)
        for k in range(count):
            offset = _offset(at, base, rank, k, d, h, w, taps, padding, corners)
            if offset >= 0:
                weight = _weight(at, base, rank, k, taps, kx, ky, kz)
                total += weight * x[plane * d * h * w + offset]
        out[i] = as_type(out, total)
        i += cuda.gridsize(1)


def sample(out, x, at, taps, padding, corners, kx, ky, kz):
    """``out[n, c, p]`` is the weighted sum of what place ``at[n, p]`` reads of ``x[n, c]``.

    out (n, c, p), x (n, c, d, h, w), at (n, p, r): C.
    """
    if out.size:
        rank = at.shape[2]
        sizes = *out.shape[1:], rank, taps**rank, *x.shape[2:], taps, padding, corners, kx, ky, kz
        start(_sample, strided_grid(out.size), BLOCK, out, x, at, out.size, *sizes)


def _windows(
    keys, places, weights, at, size, points, rank, count, plane, nowhere, d, h, w,
    taps, padding, corners, kx, ky, kz,
):  # fmt: skip
    """keys: the element that each tap of each place goes to, of all images, or ``nowhere``."""
    i = cuda.grid(1)
    while i < size:
        place, k = split(i, count)
        n, _ = split(place, points)
        base = place * rank
        offset = _offset(at, base, rank, k, d, h, w, taps, padding, corners)
        weight = float64(0)
        if offset >= 0:
            weight = _weight(at, base, rank, k, taps, kx, ky, kz)
        weights[i] = weight
        keys[i] = nowhere if offset < 0 else n * plane + offset
        places[i] = i
        i += cuda.gridsize(1)


def _join_windows(
    gx, g, keys, places, weights, size, entries, channels, points, count, plane, nowhere
):
    """A thread for each channel of each entry; the first of those that meet does them all."""
    i = cuda.grid(1)
    while i < size:
        entry, c = split(i, channels)
        to = keys[entry]
        if to != nowhere and (entry == 0 or keys[entry - 1] != to):
            n, offset = split(to, plane)
            line = n * channels + c
            total = as_type(gx, 0)
            while entry < entries and keys[entry] == to:
                place, _ = split(places[entry], count)
                value = weights[places[entry]] * g[line * points + place - n * points]
                total = as_type(gx, total + value)
                entry += 1
            gx[line * plane + offset] = total
        i += cuda.gridsize(1)


def sample_input_grad(gx, g, at, taps, padding, corners, kx, ky, kz):
    """The gradient of ``sample`` with respect to x: zeros, plus g where it was read, in order.

    gx (n, c, d, h, w), g (n, c, p), at (n, p, r): C.
    """
    if not gx.size:
        return
    elementwise.fill(gx, 0)
    images, points, rank = at.shape
    channels, count, plane = gx.shape[1], taps**rank, gx.size // (images * gx.shape[1])
    entries, nowhere = images * points * count, images * plane
    if not entries:
        return
    keys: Any = device.empty((1, entries), _INT64, gx.device)
    places: Any = device.empty((1, entries), _INT64, gx.device)
    weights = device.empty((entries,), _FLOAT64, gx.device)
    sizes = entries, points, rank, count, plane, nowhere, *gx.shape[2:]
    how = taps, padding, corners, kx, ky, kz
    start(_windows, strided_grid(entries), BLOCK, keys, places, weights, at, *sizes, *how)
    keys, places = sort_pairs(keys, places, nowhere.bit_length())
    size = entries * channels
    sizes = size, entries, channels, points, count, plane, nowhere
    start(_join_windows, strided_grid(size), BLOCK, gx, g, keys, places, weights, *sizes)


def _slopes(
    out, g, x, at, size, channels, points, rank, count, d, h, w, taps, padding, corners, kx, ky, kz,
):  # fmt: skip
    """A thread for each coordinate of each place."""
    i = cuda.grid(1)
    while i < size:
        place, axis = split(i, rank)
        n, p = split(place, points)
        ix = kx + 1 if axis == 0 else kx
        iy = ky + 1 if axis == 1 else ky
        iz = kz + 1 if axis == 2 else kz
        total = float64(0)
        for k in range(count):
            offset = _offset(at, place * rank, rank, k, d, h, w, taps, padding, corners)
            if offset >= 0:
                weight = _weight(at, place * rank, rank, k, taps, ix, iy, iz)
                for c in range(channels):
                    line = n * channels + c
                    total += weight * x[line * d * h * w + offset] * g[line * points + p]
        out[i] = as_type(out, total)
        i += cuda.gridsize(1)


def sample_place_grad(out, g, x, at, taps, padding, corners, kx, ky, kz):
    """The gradient of ``sample`` with respect to at, a coordinate after the other.

    out (n, p, r), g (n, c, p), x (n, c, d, h, w), at (n, p, r): C.
    """
    if out.size:
        rank = at.shape[2]
        sizes = *g.shape[1:], rank, taps**rank, *x.shape[2:], taps, padding, corners, kx, ky, kz
        start(_slopes, strided_grid(out.size), BLOCK, out, g, x, at, out.size, *sizes)
