"""Convolution and both of its gradients: products of matrices, over columns unfolded in blocks.

All is three-dimensional: fewer dimensions are sizes of 1 in front. The columns of a block are the
patches of the input that the kernel covers at some lines of the output, one patch a column, in
scratch memory that stays in the second cache. ``conv_input_grad`` is transposed convolution too.
How work is cut depends on the sizes alone, so the result does not depend on the threads. Columns of
halves are halves, moved as bits; what columns or images add up to is float32 until it is whole.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..blas import blas_alone, blas_restore
from ..copies import add_rectangle, copy_rectangle, copy_second
from ..half_type import bits_type, sum_type
from ..inner import device, keep
from ..intrinsics import address, load_at, pointer, store_at
from ..product import WIDE_OUT, gemm, gemm_kernel
from ..tile import FULL
from ..vectors import VECTOR_BYTES

__all__ = ["conv", "conv_input_grad", "conv_weight_grad"]

GRAIN = 8192
"""Elements of the largest array from which a second thread pays: 5 us of work with few taps."""

ROOM = 1 << 17
"""Elements of scratch that one block of columns takes."""

FEW = 16
"""Columns below which a product is narrower than its best tiles."""

DEEP = 16
"""Channels in a part of the weight's gradient, at least."""

LINE = 16
"""Numbers of float32 in a line of the cache."""

TASKS = 8
"""Tasks among which the gradient of the weight is shared at least, if there are images enough for
``TERMS`` products in each, or channels."""

TERMS = 256
"""Products of which a number is the sum before it pays to add it to those of other images."""


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
def sizes(x, weight, out):
    """The sizes of space: of the input, of the kernel, of the output."""
    return (
        *(x.shape[2], x.shape[3], x.shape[4]),
        *(weight.shape[2], weight.shape[3], weight.shape[4]),
        *(out.shape[2], out.shape[3], out.shape[4]),
    )


@device
def fold_or_unfold(dtype, itemsize, adds, cols, x, channels, first, lines, space, form):
    """Write patches of the image at ``x`` as columns, or add columns to where they came from.

    cols, x: addresses of (channels taps, lines ow) and (channels, d, h, w), both C; the columns are
    those of the lines of output from ``first`` on. adds: to x, which is written instead.
    """
    depth, height, width, kd, kh, kw, _, oh, ow = space
    sd, sh, sw, pd, ph, pw, dd, dh, dw = form
    start_z, start_y = first // max(1, oh), first % max(1, oh)
    for image in range(channels):
        for tap in range(kd * kh):
            tz, ty = tap // kh, tap % kh
            down = ty * dh - ph
            for tx in range(kw):
                across = tx * dw - pw
                left, right = inside(across, sw, width, 0, ow)
                row = (image * kd * kh + tap) * kw + tx
                line, z, y = 0, start_z, start_y
                while line < lines:  # those of one depth
                    count = min(oh - y, lines - line)
                    iz = z * sd - pd + tz * dd
                    top, bottom = inside(down, sh, height, y, y + count)
                    bottom = bottom if 0 <= iz < depth else top
                    column = cols + (row * lines + line) * ow * itemsize
                    if not adds and (bottom - top < count or right - left < ow):
                        clear(pointer(column, dtype), count * ow)
                    at = ((image * depth + iz) * height + top * sh + down) * width
                    at += across + left * sw
                    column += ((top - y) * ow + left) * itemsize
                    moves = column, ow, x + at * itemsize, sh * width, bottom - top, right - left
                    move(dtype, itemsize, adds, *moves, sw)
                    line, z, y = line + count, z + 1, 0


@device
def inside(shift, step, size, first, last):
    """From which to before which j of those from first to last ``0 <= shift + j step < size``."""
    begin, end = -shift, size - shift
    if step > 1:  # a division takes longer than all the rest
        begin, end = (step - 1 - shift) // step, (size - 1 - shift) // step + 1
    begin = min(last, max(first, begin))
    return begin, max(begin, min(last, end))


@device
def move(dtype, itemsize, adds, column, column_row, x, x_row, rows, columns, step):
    """Write lines of an image at ``x`` as a column, or add a column to them.

    column, x: addresses; ``*_row``: elements from line to line; step: from one of x to the next.
    """
    if VECTOR_BYTES:  # a constant: elsewhere the rectangles are not compiled
        if step == 1 and (not adds or FULL):
            to_row, at_row = column_row * itemsize, x_row * itemsize
            like = pointer(x, dtype)
            if adds:
                add_rectangle(like, x, at_row, column, to_row, rows, columns)
            else:
                copy_rectangle(like, column, to_row, x, at_row, rows, columns)
            return
        if step == 2 and not adds and not FULL:
            to_row, at_row = column_row * itemsize, x_row * itemsize
            copy_second(pointer(x, dtype), column, to_row, x, at_row, rows, columns)
            return
    for i in range(rows):
        to = pointer(column + i * column_row * itemsize, dtype)
        at = pointer(x + i * x_row * itemsize, dtype)
        if adds and step == 1:
            for j in range(columns):
                at[j] += to[j]
        elif adds:
            for j in range(columns):
                at[j * step] += to[j]
        else:
            for j in range(columns):
                to[j] = at[j * step]


@device(allocates=True)
def conv_block(task, blocks, step, plain, out, x, weight, bias, biased, groups, form):
    """A block of lines of one group of one image."""
    image, part = task // (groups * blocks), task % (groups * blocks)
    group, first = part // blocks, part % blocks * step
    space = sizes(x, weight, out)
    plane, lines, ow = space[0] * space[1] * space[2], space[6] * space[7], space[8]
    channels, inputs, itemsize = out.shape[1], weight.shape[1], out.itemsize
    height, rows = channels // groups, inputs * space[3] * space[4] * space[5]
    count = min(step, lines - first)
    width = count * ow
    right = address(x) + (image * x.shape[1] + group * inputs) * plane * itemsize
    kind = bits_type(x.dtype)
    cols = np.empty(0 if plain else rows * width, kind)
    if plain:
        right, ldright = right + first * ow * itemsize, plane
    else:
        where = address(cols), right, inputs, first, count
        fold_or_unfold(kind, itemsize, False, *where, space, form)
        right, ldright = address(cols), width
    to = address(out) + ((image * channels + group * height) * lines + first) * ow * itemsize
    start, ldstart = 0, 0
    if biased:
        start, ldstart = to, lines * ow
        for i in range(height):
            begin = to + i * lines * ow * itemsize
            value = load_at(address(bias), group * height + i, bias)
            for j in range(width):
                store_at(begin, j, value, out)
    left = address(weight) + group * height * rows * itemsize
    product = left, rows, right, ldright, start, ldstart, to, lines * ow
    gemm(out, 0, 0, height, width, rows, *product)
    keep(cols)


@gemm_kernel(grain=GRAIN, takes_halves=True, allocates=True)
def conv(out, x, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """``out[n, o] = sum over c of x[n, c] * weight[o, c]``, correlated, plus ``bias[o]``.

    out (n, co, od, oh, ow), x (n, ci, d, h, w), weight (co, ci / groups, kd, kh, kw), bias (co): C;
    without ``biased`` it may be any array of rank 1. s: strides, p: zeros in front, d: dilations.
    """
    form = (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    rows, lines = weight.size // weight.shape[0], out.shape[2] * out.shape[3]
    step = lines_at_once(rows, lines, out.shape[4])
    blocks = (lines + step - 1) // step
    plain = needs_no_columns(weight, x, out, form)
    previous = blas_alone(out.size * rows)
    for task in prange(0, out.shape[0] * groups * blocks):
        conv_block(task, blocks, step, plain, out, x, weight, bias, biased, groups, form)
    blas_restore(previous)


@device
def channels_at_once(weight, g):
    """Channels of the input whose columns are made together, for the gradients."""
    taps = weight.shape[2] * weight.shape[3] * weight.shape[4]
    room = ROOM // max(1, taps * g.shape[2] * g.shape[3] * g.shape[4])
    return max(1, min(weight.shape[1], room))


@device(allocates=True)
def input_grad_block(task, parts, plain, gx, g, weight, bias, biased, groups, form):
    """Some channels of one group of one image."""
    image, part = task // (groups * parts), task % (groups * parts)
    space = sizes(gx, weight, g)
    plane, lines, ow = space[0] * space[1] * space[2], space[6] * space[7], space[8]
    taps, inputs, itemsize = space[3] * space[4] * space[5], weight.shape[1], gx.itemsize
    depth, together = g.shape[1] // groups, channels_at_once(weight, g)
    group, begin = part // parts, part % parts * together
    channels = min(inputs - begin, together)
    rows, step = channels * taps, lines_at_once(channels * taps, lines, ow)
    channel = group * inputs + begin
    target = address(gx) + (image * gx.shape[1] + channel) * plane * itemsize
    kind, size, wide, given = sum_type(gx.dtype), itemsize, 0, target
    if itemsize == 2:
        size, wide = 4, WIDE_OUT
    sums = np.empty(channels * plane if wide else 0, kind)
    if wide:
        target = address(sums)
    flat = pointer(target, kind)
    for i in range(channels):
        value = kind.type(0)
        if biased:
            value = load_at(address(bias), channel + i, bias)
        for j in range(plane):
            flat[i * plane + j] = value
    left = address(weight) + (group * depth * inputs + begin) * taps * itemsize
    right = address(g) + (image * g.shape[1] + group * depth) * lines * ow * itemsize
    cols = np.empty(0 if plain else rows * step * ow, kind)
    for first in range(0, lines, step):
        count = min(step, lines - first)
        shape = rows, count * ow, depth
        factors = left, inputs * taps, right + first * ow * itemsize, lines * ow
        if plain:
            to = target + first * ow * size
            gemm(gx, 1 + wide, 0, *shape, *factors, to, plane, to, plane)
        else:
            gemm(gx, 1 + wide, 0, *shape, *factors, 0, 0, address(cols), count * ow)
            where = address(cols), target, channels, first, count
            fold_or_unfold(kind, size, True, *where, space, form)
    if wide:
        for i in range(channels * plane):
            store_at(given, i, flat[i], gx)
    keep(cols)
    keep(sums)


@gemm_kernel(grain=GRAIN, takes_halves=True, allocates=True)
def conv_input_grad(gx, g, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``conv`` with respect to x, plus ``bias[c]``; also transposed convolution.

    gx (n, ci, d, h, w), g (n, co, od, oh, ow), weight (co, ci / groups, ...), bias (ci): C.
    """
    form = (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    together = channels_at_once(weight, g)
    parts = (weight.shape[1] + together - 1) // together
    plain = needs_no_columns(weight, gx, g, form)
    previous = blas_alone(g.size * (weight.size // weight.shape[0]))
    for task in prange(0, gx.shape[0] * groups * parts):
        input_grad_block(task, parts, plain, gx, g, weight, bias, biased, groups, form)
    blas_restore(previous)


@device
def turned(weight, groups):
    """Whether the weight's gradient is summed with its rows as columns: of the two factors, both
    of which lie in memory along the sum, the product copies the one on the right, the smaller."""
    height = weight.shape[0] // groups
    return weight.size // max(1, weight.shape[0]) > height >= FEW


@device(allocates=True)
def weight_grad_block(task, chunks, together, parts, plain, to, g, x, weight, groups, form):
    """``together`` channels of one group, summed over a chunk of the images, written at ``to``."""
    chunk, part = task // (groups * parts), task % (groups * parts)
    space = sizes(x, weight, g)
    plane, lines, ow = space[0] * space[1] * space[2], space[6] * space[7], space[8]
    taps, inputs, itemsize = space[3] * space[4] * space[5], weight.shape[1], g.itemsize
    height = g.shape[1] // groups
    group, begin = part // parts, part % parts * together
    channels = min(inputs - begin, together)
    rows, step = channels * taps, lines_at_once(channels * taps, lines, ow)
    across, whole = turned(weight, groups), inputs * taps
    kind, size, wide = bits_type(x.dtype), itemsize, 0
    if itemsize == 2:
        size, wide = 4, WIDE_OUT
    to += (group * height * whole + begin * taps * (height if across else 1)) * size
    cols = np.empty(0 if plain else rows * step * ow, kind)
    images, start = x.shape[0], 0
    for image in range(chunk * images // chunks, (chunk + 1) * images // chunks):
        left = address(g) + (image * g.shape[1] + group * height) * lines * ow * itemsize
        source = address(x) + (image * x.shape[1] + group * inputs + begin) * plane * itemsize
        for first in range(0, lines, step):
            count = min(step, lines - first)
            right, ldright = source + first * ow * itemsize, plane
            if not plain:
                where = address(cols), source, channels, first, count
                fold_or_unfold(kind, itemsize, False, *where, space, form)
                right, ldright = address(cols), count * ow
            one, other = (left + first * ow * itemsize, lines * ow), (right, ldright)
            if across:
                gemm(g, wide, 1, rows, height, count * ow, *other, *one, start, height, to, height)
            else:
                gemm(g, wide, 1, height, rows, count * ow, *one, *other, start, whole, to, whole)
            start = to
    keep(cols)


@gemm_kernel(grain=GRAIN, takes_halves=True, allocates=True)
def conv_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``conv`` with respect to weight; shapes as there, all C."""
    form = (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    plain = needs_no_columns(gweight, x, g, form)
    inputs, together = gweight.shape[1], channels_at_once(gweight, g)
    parts = (inputs + together - 1) // together
    terms = g.size // max(1, g.shape[1])
    chunks = max(1, min(x.shape[0], TASKS // (groups * parts), terms // TERMS))
    share = max(1, TASKS // (groups * chunks))
    together = min(together, max(DEEP, (inputs + share - 1) // share))
    parts = (inputs + together - 1) // together
    size, height = gweight.size, gweight.shape[0] // groups
    rows = size // max(1, gweight.shape[0])
    sums = np.empty(chunks * size, sum_type(gweight.dtype))
    if g.size == 0:  # else each number is written
        clear(pointer(address(sums), sum_type(gweight.dtype)), sums.size)
    previous = blas_alone(g.size * rows)
    for task in prange(0, chunks * groups * parts):
        to = address(sums) + task // (groups * parts) * size * sums.itemsize
        cut = chunks, together, parts, plain
        weight_grad_block(task, *cut, to, g, x, gweight, groups, form)
    for begin in range(size, chunks * size, size):
        for j in range(size):
            sums[j] += sums[begin + j]
    down, right = (1, height) if turned(gweight, groups) else (rows, 1)
    for begin in range(0, rows, LINE):  # columns of a line of the cache, for they may lie apart
        for channel in range(gweight.shape[0]):
            group, i = channel // height, channel % height
            first = group * height * rows + i * down
            for j in range(begin, min(rows, begin + LINE)):
                store_at(address(gweight), channel * rows + j, sums[first + j * right], gweight)
    keep(sums)
    blas_restore(previous)


@device
def clear(x, size):
    """Zeros at a pointer."""
    for i in range(size):
        x[i] = 0
