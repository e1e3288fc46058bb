"""Convolution and both of its gradients: products of matrices, over columns unfolded in blocks.

All is three-dimensional: fewer dimensions are sizes of 1 in front. The columns of a block are the
patches of the input that the kernel covers at some lines of the output, one patch a column, in
scratch memory that stays in the second cache. ``conv_input_grad`` is transposed convolution too.
How work is cut depends on the sizes alone, so the result does not depend on the threads.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..blas import blas_alone, blas_restore
from ..intrinsics import address, pointer
from ..machine import device
from ..product import gemm, gemm_kernel

__all__ = ["conv", "conv_input_grad", "conv_weight_grad"]

GRAIN = 8192
"""Elements of the largest array from which a second thread pays: 5 us of work with few taps."""

ROOM = 1 << 17
"""Elements of scratch that one block of columns takes."""

TASKS = 8
"""Tasks among which the gradient of the weight is shared at least, if there are images enough."""


@device
def lines_at_once(rows, lines, width):
    """Lines of output in one block of columns of so many rows."""
    return max(1, min(lines, ROOM // max(1, rows * width)))


@device
def needs_no_columns(weight, x, out, form):
    """Whether the input is its own columns: one tap, no stride, no padding."""
    taps = weight.shape[2] * weight.shape[3] * weight.shape[4]
    strides, paddings = form[0] * form[1] * form[2], form[3] + form[4] + form[5]
    same = x.shape[2] == out.shape[2] and x.shape[3] == out.shape[3] and x.shape[4] == out.shape[4]
    return taps == 1 and strides == 1 and paddings == 0 and same


@device
def inside(offset, stride, size, count):
    """The first and the end of those ``i < count`` with ``0 <= offset + i stride < size``."""
    first = 0 if offset >= 0 else (stride - 1 - offset) // stride
    end = 0 if offset >= size else (size - 1 - offset) // stride + 1
    end = min(count, end)
    return min(first, end), end


@device
def unfold(cols, x, first, weight, out, form):
    """Write the patches under the lines of output from ``first`` on as columns.

    cols (c taps, lines of ow) C; x (c, d, h, w) C; weight and out for their sizes.
    """
    channels, depth, height, width = x.shape
    kd, kh, kw = weight.shape[2:]
    oh, ow = out.shape[3:]
    sd, sh, sw, pd, ph, pw, dd, dh, dw = form
    lines = cols.shape[1] // ow
    row = 0
    for c in range(channels):
        for tap in range(kd * kh * kw):
            tz, ty, tx = tap // (kh * kw), tap // kw % kh, tap % kw
            shift = tx * dw - pw
            left, right = inside(shift, sw, width, ow)
            z, y = first // oh, first % oh
            for line in range(lines):
                to = pointer(address(cols) + (row * lines + line) * ow * cols.itemsize, cols.dtype)
                iz, iy = z * sd - pd + tz * dd, y * sh - ph + ty * dh
                if 0 <= iz < depth and 0 <= iy < height:
                    at = ((c * depth + iz) * height + iy) * width + shift
                    line_in = pointer(address(x) + at * x.itemsize, x.dtype)
                    for j in range(left):
                        to[j] = 0
                    if sw == 1:
                        for j in range(left, right):
                            to[j] = line_in[j]
                    else:
                        for j in range(left, right):
                            to[j] = line_in[j * sw]
                    for j in range(right, ow):
                        to[j] = 0
                else:
                    for j in range(ow):
                        to[j] = 0
                y += 1
                if y == oh:
                    z, y = z + 1, 0
            row += 1


@device
def fold(x, cols, first, weight, out, form):
    """Add the columns to the places they were unfolded from; arguments as for ``unfold``."""
    channels, depth, height, width = x.shape
    kd, kh, kw = weight.shape[2:]
    oh, ow = out.shape[3:]
    sd, sh, sw, pd, ph, pw, dd, dh, dw = form
    lines = cols.shape[1] // ow
    row = 0
    for c in range(channels):
        for tap in range(kd * kh * kw):
            tz, ty, tx = tap // (kh * kw), tap // kw % kh, tap % kw
            shift = tx * dw - pw
            left, right = inside(shift, sw, width, ow)
            z, y = first // oh, first % oh
            for line in range(lines):
                iz, iy = z * sd - pd + tz * dd, y * sh - ph + ty * dh
                if 0 <= iz < depth and 0 <= iy < height:
                    at = ((c * depth + iz) * height + iy) * width + shift
                    to = pointer(address(x) + at * x.itemsize, x.dtype)
                    column = pointer(
                        address(cols) + (row * lines + line) * ow * cols.itemsize, cols.dtype
                    )
                    if sw == 1:
                        for j in range(left, right):
                            to[j] += column[j]
                    else:
                        for j in range(left, right):
                            to[j * sw] += column[j]
                y += 1
                if y == oh:
                    z, y = z + 1, 0
            row += 1


@gemm_kernel(grain=GRAIN)
def conv(out, x, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """``out[n, o] = sum over c of x[n, c] * weight[o, c]``, correlated, plus ``bias[o]``.

    out (n, co, od, oh, ow), x (n, ci, d, h, w), weight (co, ci / groups, kd, kh, kw), bias (co): C;
    without ``biased`` it may be any array of rank 1. s: strides, p: zeros in front, d: dilations.
    """
    images, channels, od, oh, ow = out.shape
    form = (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    height, inputs = channels // groups, weight.shape[1]
    rows = inputs * weight.shape[2] * weight.shape[3] * weight.shape[4]
    plane, lines = x.shape[2] * x.shape[3] * x.shape[4], od * oh
    step = lines_at_once(rows, lines, ow)
    blocks = (lines + step - 1) // step
    plain = needs_no_columns(weight, x, out, form)
    previous = blas_alone(out.size * rows)
    for task in prange(images * groups * blocks):
        image, part = task // (groups * blocks), task % (groups * blocks)
        group, first = part // blocks, part % blocks * step
        width = min(step, lines - first) * ow
        cols = np.empty((0 if plain else rows, width), x.dtype)
        if plain:
            at = (image * x.shape[1] + group * inputs) * plane + first * ow
            right, ldright = address(x) + at * x.itemsize, plane
        else:
            unfold(
                cols, x[image, group * inputs : (group + 1) * inputs], first, weight, out, form
            )
            right, ldright = address(cols), width
        at = (image * channels + group * height) * lines * ow + first * ow
        to = address(out) + at * out.itemsize
        start, ldstart = 0, 0
        if biased:
            start, ldstart = to, lines * ow
            for i in range(height):
                begin = pointer(to + i * lines * ow * out.itemsize, out.dtype)
                for j in range(width):
                    begin[j] = bias[group * height + i]
        gemm(
            *(out, 0, 0, height, width, rows),
            *(address(weight) + group * height * rows * weight.itemsize, rows, right, ldright),
            *(start, ldstart, to, lines * ow),
        )
    blas_restore(previous)


@gemm_kernel(grain=GRAIN)
def conv_input_grad(gx, g, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``conv`` with respect to x, plus ``bias[c]``; also transposed convolution.

    gx (n, ci, d, h, w), g (n, co, od, oh, ow), weight (co, ci / groups, ...), bias (ci): C.
    """
    images, channels = gx.shape[:2]
    od, oh, ow = g.shape[2:]
    form = (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    depth, inputs = g.shape[1] // groups, weight.shape[1]
    taps = weight.shape[2] * weight.shape[3] * weight.shape[4]
    plane, lines = gx.shape[2] * gx.shape[3] * gx.shape[4], od * oh
    together = max(1, min(inputs, ROOM // max(1, taps * lines * ow)))
    parts = (inputs + together - 1) // together
    step = lines_at_once(together * taps, lines, ow)
    plain = needs_no_columns(weight, gx, g, form)
    previous = blas_alone(g.size * inputs * taps)
    for task in prange(images * groups * parts):
        image, part = task // (groups * parts), task % (groups * parts)
        group, begin = part // parts, part % parts * together
        end = min(inputs, begin + together)
        rows = (end - begin) * taps
        target = gx[image, group * inputs + begin : group * inputs + end]
        flat = pointer(address(target), gx.dtype)
        for i in range(end - begin):
            value = bias[group * inputs + begin + i] if biased else gx.dtype.type(0)
            for j in range(plane):
                flat[i * plane + j] = value
        left = address(weight) + (group * depth * inputs + begin) * taps * weight.itemsize
        cols = np.empty(0 if plain else rows * step * ow, gx.dtype)
        for first in range(0, lines, step):
            width = min(step, lines - first) * ow
            at = (image * g.shape[1] + group * depth) * lines * ow + first * ow
            right = address(g) + at * g.itemsize
            if plain:
                to = address(target) + first * ow * gx.itemsize
                gemm(
                    *(gx, 1, 0, rows, width, depth, left, inputs * taps, right, lines * ow),
                    *(to, plane, to, plane),
                )
            else:
                block = cols[: rows * width].reshape((rows, width))
                gemm(
                    *(gx, 1, 0, rows, width, depth, left, inputs * taps, right, lines * ow),
                    *(0, 0, address(block), width),
                )
                fold(target, block, first, weight, g, form)
    blas_restore(previous)


@gemm_kernel(grain=GRAIN)
def conv_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``conv`` with respect to weight; shapes as there, all C."""
    images, channels, od, oh, ow = g.shape
    form = (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    height, inputs = channels // groups, gweight.shape[1]
    taps = gweight.shape[2] * gweight.shape[3] * gweight.shape[4]
    plane, lines = x.shape[2] * x.shape[3] * x.shape[4], od * oh
    together = max(1, min(inputs, ROOM // max(1, taps * lines * ow)))
    parts = (inputs + together - 1) // together
    step = lines_at_once(together * taps, lines, ow)
    plain = needs_no_columns(gweight, x, g, form)
    chunks = max(1, min(images, TASKS // (groups * parts)))
    rest = np.zeros((chunks - 1, gweight.size), gweight.dtype)
    previous = blas_alone(g.size * inputs * taps)
    gweight[:] = 0
    for task in prange(chunks * groups * parts):
        chunk, part = task // (groups * parts), task % (groups * parts)
        group, begin = part // parts, part % parts * together
        end = min(inputs, begin + together)
        rows = (end - begin) * taps
        to = address(gweight) if chunk == 0 else address(rest) + (
            (chunk - 1) * gweight.size * gweight.itemsize
        )
        to += (group * height * inputs + begin) * taps * gweight.itemsize
        cols = np.empty(0 if plain else rows * step * ow, x.dtype)
        for image in range(chunk * images // chunks, (chunk + 1) * images // chunks):
            for first in range(0, lines, step):
                width = min(step, lines - first) * ow
                source = x[image, group * inputs + begin : group * inputs + end]
                at = (image * channels + group * height) * lines * ow + first * ow
                left = address(g) + at * g.itemsize
                if plain:
                    right, ldright = address(source) + first * ow * x.itemsize, plane
                else:
                    block = cols[: rows * width].reshape((rows, width))
                    unfold(block, source, first, gweight, g, form)
                    right, ldright = address(block), width
                gemm(
                    *(gweight, 0, 1, height, rows, width, left, lines * ow, right, ldright),
                    *(to, inputs * taps, to, inputs * taps),
                )
    flat = gweight.reshape(gweight.size)
    for chunk in range(chunks - 1):
        for i in range(gweight.size):
            flat[i] += rest[chunk, i]
    blas_restore(previous)
