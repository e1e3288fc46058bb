"""Convolution and both of its gradients: products of matrices, one factor of which is never made.

The columns of that factor are patches of the input. As in ``matmul.py`` a block makes a tile of the
result, but it gathers its slices of the patches on the way into shared memory. What a step along
channels and taps adds to a place stands in a table, made once for each set of sizes.

All is three-dimensional: fewer dimensions are sizes of 1 in front. In each of them a place of the
result meets a tap at ``(place * factor + shift + tap) / divisor`` of the source, if that is whole
and inside: going forward the factors are the strides, and for the gradient of the input, which is
gathered too, the divisors are. Start reading at ``_gathered``, then ``conv``.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import cuda

from ..halves import arithmetic
from . import reduce
from .runtime import device
from .runtime.launch import made, start
from .runtime.shape import SIMULATED
from .runtime.tiles import MOST, multiplied, tile_for
from .runtime.warp import inlined, split

__all__ = ["conv", "conv_input_grad", "conv_weight_grad"]

BLOCKS, LEAST = (6, 8) if SIMULATED else (512, 1024)
"""Blocks that share a gradient of a weight, and numbers that each sums at least; fixed, so that the
bits do not depend on the GPU."""


# -- a tile of the result --------------------------------------------------------------------------


def _lookup(real: Any, divided: bool) -> Any:
    """The function that reads what a place sees through a tap. divided: divisors are not all 1."""

    @inlined
    def along(at, divisor, size):
        """Where it stands in one dimension, or -1."""
        if divided and divisor > 1:
            if at < 0 or at % divisor != 0:
                return -1
            at //= divisor
        return at if at < size else -1

    @inlined
    def seen(x, base, taps, k, z, y, j, d, h, w, sd, sh, sw):
        iz = along(z + taps[5 * k + 2], sd, d)
        iy = along(y + taps[5 * k + 3], sh, h)
        ix = along(j + taps[5 * k + 4], sw, w)
        value = real(0)
        if iz >= 0 and iy >= 0 and ix >= 0:
            value = x[base + taps[5 * k + 1] + (iz * h + iy) * w + ix]
        return value

    return seen


def _gathered(real: Any, tile: int, depth: int, each: int, divided: bool) -> Any:
    """The kernel that makes a result with space, of a weight and a source with space.

    taps (k, 5): what a step adds to the place in the weight and in the source, and to the three
    coordinates. form: 14 numbers, see ``_forms``.
    """
    across = tile // each
    threads = across * across
    loads, pitch = tile * depth // threads, tile + 1
    seen, multiply = _lookup(real, divided), multiplied(across, depth, each)

    def gathered(
        out, weight, x, bias, taps, form, biased, n, m, k, d, h, w, sd, sh, sw,
    ):  # fmt: skip
        """n: rows, channels of the result in a group; m: columns, its places; k: steps."""
        left = cuda.shared.array((depth, pitch), real)
        right = cuda.shared.array((depth, pitch), real)
        acc = cuda.local.array((each, each), real)
        column = cuda.local.array(each, real)
        some_left = cuda.local.array(loads, real)
        some_right = cuda.local.array(loads, real)
        thread = cuda.threadIdx.x
        tx, ty = thread % across, thread // across
        first_col, first_row = cuda.blockIdx.x * tile, cuda.blockIdx.y * tile
        group = cuda.blockIdx.z
        for i in range(each):
            for j in range(each):
                acc[i, j] = real(0)
        # A thread gathers for one column, and reads weights of one step out of ``depth``.
        col = first_col + thread % tile
        image, place = split(min(col, m - 1), form[0])
        rest, px = split(place, form[2])
        pz, py = split(rest, form[1])
        px, py, pz = px * form[5] + form[8], py * form[4] + form[7], pz * form[3] + form[6]
        base = image * form[9] + group * form[10]
        row, width = thread // depth, threads // depth
        weights = group * form[11]
        begin = 0
        while begin < k + depth:  # the next slice is on its way while this one is multiplied
            if begin < k:
                step = begin + thread % depth
                for s in range(loads):
                    i = first_row + row + s * width
                    inside = i < n and step < k
                    at = weights + i * form[12] + (taps[5 * step] if inside else 0)
                    some_left[s] = weight[at] if inside else real(0)
                for s in range(loads):
                    step = begin + thread // tile + s * (threads // tile)
                    some_right[s] = real(0)
                    if col < m and step < k:
                        some_right[s] = seen(x, base, taps, step, pz, py, px, d, h, w, sd, sh, sw)
            if begin > 0:
                multiply(acc, left, right, column, tx, ty)
            cuda.syncthreads()
            if begin < k:
                for s in range(loads):
                    left[thread % depth, row + s * width] = some_left[s]
                    right[thread // tile + s * (threads // tile), thread % tile] = some_right[s]
            cuda.syncthreads()
            begin += depth
        for j in range(each):
            col = first_col + tx + j * across
            if col < m:
                image, place = split(col, form[0])
                base = image * form[13] + group * n * form[0] + place
                for i in range(each):
                    row = first_row + ty + i * across
                    if row < n:
                        value = acc[i, j]
                        if biased:
                            value += bias[group * n + row]
                        out[base + row * form[0]] = value

    return gathered


def _summed(real: Any, tile: int, depth: int, each: int) -> Any:
    """The kernel that sums products of g and x over all places, for each weight.

    taps and form: those of the convolution forward.
    """
    across = tile // each
    threads = across * across
    loads, pitch = tile * depth // threads, tile + 1
    seen, multiply = _lookup(real, False), multiplied(across, depth, each)

    def summed(
        out, g, x, taps, form, parts, n, m, k, d, h, w,
    ):  # fmt: skip
        """n: channels of g in a group; m: channels of x in a group and taps; k: places."""
        left = cuda.shared.array((depth, pitch), real)
        right = cuda.shared.array((depth, pitch), real)
        acc = cuda.local.array((each, each), real)
        column = cuda.local.array(each, real)
        some_left = cuda.local.array(loads, real)
        some_right = cuda.local.array(loads, real)
        thread = cuda.threadIdx.x
        tx, ty = thread % across, thread // across
        first_col, first_row = cuda.blockIdx.x * tile, cuda.blockIdx.y * tile
        group, part = cuda.blockIdx.z // parts, cuda.blockIdx.z % parts
        for i in range(each):
            for j in range(each):
                acc[i, j] = real(0)
        lane, width = thread // depth, threads // depth
        begin, end = part * k // parts, (part + 1) * k // parts
        first = begin
        while begin < end + depth:  # the next slice is on its way while this one is multiplied
            if begin < end:
                step = begin + thread % depth  # a thread reads for one place
                image, place = split(min(step, end - 1), form[0])
                rest, px = split(place, form[2])
                pz, py = split(rest, form[1])
                px, py, pz = px * form[5] + form[8], py * form[4] + form[7], pz * form[3] + form[6]
                base = image * form[13] + group * n * form[0] + place
                for s in range(loads):
                    i = first_row + lane + s * width
                    inside = i < n and step < end
                    some_left[s] = g[base + i * form[0]] if inside else real(0)
                base = image * form[9] + group * form[10]
                for s in range(loads):
                    j = first_col + lane + s * width
                    some_right[s] = real(0)
                    if j < m and step < end:
                        some_right[s] = seen(x, base, taps, j, pz, py, px, d, h, w, 1, 1, 1)
            if begin > first:
                multiply(acc, left, right, column, tx, ty)
            cuda.syncthreads()
            if begin < end:
                for s in range(loads):
                    left[thread % depth, lane + s * width] = some_left[s]
                    right[thread % depth, lane + s * width] = some_right[s]
            cuda.syncthreads()
            begin += depth
        groups = cuda.gridDim.z // parts
        base = (part * groups + group) * n
        for i in range(each):
            row = first_row + ty + i * across
            for j in range(each):
                col = first_col + tx + j * across
                if row < n and col < m:
                    out[(base + row) * m + col] = acc[i, j]

    return summed


def _kernel(
    make: Any, like: Any, n: int, m: int, batch: int, *options: Any
) -> tuple[Any, tuple[int, int], int]:
    """``make`` for a result (batch, n, m) in the dtype of ``like``; tiles along m, n; threads."""
    shape = tile_for(like.itemsize, n, m, batch)
    kernel = made(make, like.itemsize, *shape, *options)
    return kernel, (-(-m // shape[0]), -(-n // shape[0])), (shape[0] // shape[2]) ** 2


# -- tables ----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def _forms(
    forward: bool, x: tuple[int, ...], weight: tuple[int, ...], g: tuple[int, ...], form: tuple
) -> tuple[Any, Any]:
    """taps and form of a product, on the device, from the shapes of input, weight and output.

    form: sizes of the result's space (all, then the last two), factors, shifts, and elements of the
    source of an image and of a group, of the weight of a group and of a row, of the result of an
    image.
    """
    groups, strides, paddings, dilations = form[0], form[1:4], form[4:7], form[7:10]
    space, inputs, depth = weight[2:], weight[1], weight[0] // groups
    plane, places, count = math.prod(x[2:]), math.prod(g[2:]), math.prod(space)
    taps = np.indices(space).reshape(3, count) * np.reshape(dilations, (3, 1))
    channels = inputs if forward else depth
    channel, tap = np.divmod(np.arange(channels * count), count)
    table = np.empty((channels * count, 5), np.int64)
    table[:, 0] = np.arange(channels * count) if forward else channel * inputs * count + tap
    table[:, 1] = channel * (plane if forward else places)
    table[:, 2:] = (taps if forward else -taps)[:, tap].T
    group = depth * inputs * count
    if forward:
        numbers = [places, *g[3:], *strides, *[-p for p in paddings]]
        numbers += [x[1] * plane, inputs * plane, group, inputs * count, g[1] * places]
    else:
        numbers = [plane, *x[3:], 1, 1, 1, *paddings]
        numbers += [g[1] * places, depth * places, group, count, x[1] * plane]
    return device.table(table), device.table(np.array(numbers, np.int64))


def _launch(
    forward: bool, out: Any, x: Any, weight: Any, bias: Any, biased: int, form: tuple
) -> None:
    """``conv`` from x to out, or ``conv_input_grad`` from what is then g."""
    if not out.size:
        return
    groups = form[0]
    small, large = (out, x) if forward else (x, out)
    taps, numbers = _forms(forward, large.shape, weight.shape, small.shape, form)
    divisors = (1, 1, 1) if forward else form[1:4]
    n, m = out.shape[1] // groups, out.shape[0] * math.prod(out.shape[2:])
    kernel, tiles, threads = _kernel(_gathered, out, n, m, groups, divisors != (1, 1, 1))
    sizes = n, m, taps.shape[0], *x.shape[2:], *divisors
    for first in range(0, groups, MOST):
        arrays = *_from(first, groups, out, weight, x), bias[first * n :] if biased else bias
        grid = *tiles, min(groups - first, MOST)
        start(kernel, grid, threads, *arrays, taps, numbers, int(biased), *sizes)


def _from(first: int, groups: int, out: Any, weight: Any, x: Any) -> tuple[Any, Any, Any]:
    """The arrays from a group on: a kernel finds what follows by the strides of them all."""
    if first == 0:
        return out, weight, x
    sizes = out.shape[1], weight.shape[0], x.shape[1]
    channels, filters, inputs = (n // groups * first for n in sizes)
    return out[:, channels:], weight[filters:], x[:, inputs:]


# -- twins -----------------------------------------------------------------------------------------


def conv(out, x, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """``out[n, o] = sum over c of x[n, c] * weight[o, c]``, correlated, plus ``bias[o]``.

    out (n, co, od, oh, ow), x (n, ci, d, h, w), weight (co, ci / groups, kd, kh, kw), bias (co): C;
    without ``biased`` it may be any array of rank 1. s: strides, p: zeros in front, d: dilations.
    """
    form = groups, sd, sh, sw, pd, ph, pw, dd, dh, dw
    _launch(True, out, x, weight, bias, biased, form)


def conv_input_grad(gx, g, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``conv`` with respect to x, plus ``bias[c]``; also transposed convolution.

    gx (n, ci, d, h, w), g (n, co, od, oh, ow), weight (co, ci / groups, ...), bias (ci): C.
    """
    form = groups, sd, sh, sw, pd, ph, pw, dd, dh, dw
    _launch(False, gx, g, weight, bias, biased, form)


def conv_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``conv`` with respect to weight; shapes as there, all C."""
    if not gweight.size:
        return
    form = groups, sd, sh, sw, pd, ph, pw, dd, dh, dw
    taps, numbers = _forms(True, x.shape, gweight.shape, g.shape, form)
    n, m = gweight.shape[0] // groups, math.prod(gweight.shape[1:])
    k = g.shape[0] * math.prod(g.shape[2:])
    most = max(k // LEAST, 1)
    kernel, tiles, threads = _kernel(_summed, gweight, n, m, groups * most)
    parts = max(1, min(BLOCKS // (math.prod(tiles) * groups), most))
    shape = 1, parts, gweight.size
    partial = (
        gweight if parts == 1 else device.empty(shape, arithmetic(gweight.dtype), gweight.device)
    )
    sizes = parts, n, m, k, *x.shape[2:]
    for first in range(0, groups, MOST):  # so many groups are in one part
        some_g, some, some_x = _from(first, groups, g, partial, x)
        grid = *tiles, min(groups - first, MOST) * parts
        start(kernel, grid, threads, some, some_g, some_x, taps, numbers, *sizes)
    if parts > 1:
        reduce.sum(gweight.reshape(1, 1, gweight.size), partial)
