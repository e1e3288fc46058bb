"""Convolutions over bands of the image, and both of their gradients: see ``bands.py``.

Arguments and results are those of ``cpu/conv.py``; ``ops/conv_form.py`` says when. The gradient of
the input is a convolution of the output's gradient, for a stride one of each of its phases: of
inputs that as many taps reach. The gradient of the weight has all taps of a line in one product.
Start at ``correlate.py``.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..blas import blas_alone, blas_restore
from ..copies import copy_rectangle, transpose
from ..half_type import bits_type, sum_type
from ..inner import device, keep
from ..intrinsics import address, load_at, pointer, store_at
from ..product import WIDE_OUT, gemm, gemm_kernel
from ..vectors import VECTOR_BYTES
from .bands import (
    BACKWARD,
    DEEP,
    FIRST,
    FORWARD,
    GRID,
    GROUPS,
    LINES,
    PARTS,
    PLANES,
    ROWS,
    STEPS,
    SUMMED,
    TALL,
    TAPS,
    TOGETHER,
    fill_bands,
    new_bands,
    plan_of,
)
from .conv import GRAIN, TASKS, clear
from .correlate import correlate_block, order_weight, tasks_of
from .depthwise import any_infinite

__all__ = ["banded", "banded_input_grad", "banded_weight_grad"]

LANES = max(1, VECTOR_BYTES // 4)


@gemm_kernel(grain=GRAIN, takes_halves=True, allocates=True)
def banded(out, x, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """``out[n, o] = sum over c of x[n, c] * weight[o, c]``, correlated, plus ``bias[o]``."""
    form = (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    kernel = (weight.shape[2], weight.shape[3], weight.shape[4])
    grid = (out.shape[2], out.shape[3], out.shape[4])
    inputs, what = weight.shape[1], FORWARD + 0 * groups
    plan = plan_of(x.shape[0], inputs, groups, kernel, grid, form, what, out.itemsize, 0)
    previous = blas_alone(out.size * plan[ROWS])
    for task in prange(0, tasks_of(x.shape[0], plan)):
        correlate_block(task, out, x, address(weight), bias, biased, plan)
    blas_restore(previous)
    keep(plan)


@device
def gather_image(image, gx, g, weight, bias, biased, groups, form):
    """``banded_input_grad`` of an image, a number after the other: of no zeros outside."""
    sd, sh, sw, pd, ph, pw, dd, dh, dw = form
    kd, kh, kw = weight.shape[2], weight.shape[3], weight.shape[4]
    od, oh, ow = g.shape[2], g.shape[3], g.shape[4]
    inputs, height = weight.shape[1], weight.shape[0] // groups
    taps, width, tall = kd * kh * kw, gx.shape[4], gx.shape[3]
    each = gx.shape[2] * tall * width
    for place in range(gx.shape[1] * each):
        channel, z = place // each, place // (tall * width) % gx.shape[2]
        y, x = place // width % tall, place % width
        total = sum_type(gx.dtype).type(0)
        if biased:
            total += load_at(address(bias), channel, bias)
        for t in range(taps):
            iz, iy = z + pd - t // (kh * kw) * dd, y + ph - t // kw % kh * dh
            ix = x + pw - t % kw * dw
            oz, oy, ox = iz // sd, iy // sh, ix // sw
            fits = oz * sd == iz and oy * sh == iy and ox * sw == ix
            if fits and 0 <= oz < od and 0 <= oy < oh and 0 <= ox < ow:
                for o in range(channel // inputs * height, (channel // inputs + 1) * height):
                    at = (((image * g.shape[1] + o) * od + oz) * oh + oy) * ow + ox
                    of = (o * inputs + channel % inputs) * taps + t
                    factor = load_at(address(weight), of, weight)
                    total += factor * load_at(address(g), at, g)
        store_at(address(gx), image * gx.shape[1] * each + place, total, gx)


@gemm_kernel(grain=GRAIN, takes_halves=True, allocates=True)
def banded_input_grad(gx, g, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``banded`` with respect to x, plus ``bias[c]``."""
    form = (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    kernel = (weight.shape[2], weight.shape[3], weight.shape[4])
    grid = (
        (gx.shape[2] + sd - 1) // sd,
        (gx.shape[3] + sh - 1) // sh,
        (gx.shape[4] + sw - 1) // sw,
    )
    height = g.shape[1] // groups
    plan = plan_of(
        g.shape[0], height, groups, kernel, grid, form, BACKWARD + 0 * groups, gx.itemsize, 0
    )
    exact = any_infinite(weight)  # times the zeros outside it would be NaN
    ordered, tasks = np.empty(weight.size, bits_type(weight.dtype)), g.shape[0]
    if not exact:
        order_weight(address(ordered), weight, height, plan)
        tasks = tasks_of(tasks, plan)
    previous = blas_alone(gx.size * plan[ROWS])
    for task in prange(0, tasks):
        if exact:
            gather_image(task, gx, g, weight, bias, biased, groups, form)
        else:
            correlate_block(task, gx, g, address(ordered), bias, biased, plan)
    blas_restore(previous)
    keep(ordered)
    keep(plan)


@device(allocates=True)
def weight_grad_block(task, chunks, to, g, x, gweight, plan):
    """A group, summed over a chunk of the images, added at ``to``: for each line of taps a matrix,
    with a row for each channel and tap of the line and a column for each channel of g."""
    groups, itemsize, size, wide = plan[GROUPS], g.itemsize, g.itemsize, 0
    chunk, group, kind = task // groups, task % groups, bits_type(x.dtype)
    if itemsize == 2:
        size, wide = 4, WIDE_OUT
    kh, kw = gweight.shape[3], gweight.shape[4]
    inputs, height = gweight.shape[1], g.shape[1] // groups
    space = (x.shape[2], x.shape[3], x.shape[4])
    deep, tall, across = plan[GRID], plan[GRID + 1], plan[GRID + 2]
    plane, of_g = space[0] * space[1] * space[2] * itemsize, deep * tall * across
    bands = new_bands(x, inputs, plan)
    together = plan[TOGETHER]
    gathered = np.empty(height * plan[LINES] * together * across if together > 1 else 0, kind)
    image, end = chunk * x.shape[0] // chunks, (chunk + 1) * x.shape[0] // chunks
    to += group * gweight.size // groups * size
    n = inputs * kw
    while image < end:
        images = min(together, end - image)
        row = images * across
        of_plane = plan[PARTS] * plan[TALL] * row
        source = address(x) + (image * x.shape[1] + group * inputs) * plane
        blocks = (tall + plan[LINES] - 1) // plan[LINES]
        for block in range((deep + plan[DEEP] - 1) // plan[DEEP] * blocks):
            z, y = block // blocks * plan[DEEP], block % blocks * plan[LINES]
            fill_bands(
                *(kind, itemsize, address(bands), source, x.shape[1] * plane, images, images),
                *(inputs, space, z, y, plan),
            )
            count = min(plan[LINES], tall - y)
            for i in range(min(plan[DEEP], deep - z)):
                right = (image * g.shape[1] + group * height) * of_g
                right = address(g) + (right + ((z + i) * tall + y) * across) * itemsize
                ldright = of_g
                if images > 1:
                    for j in range(images * height):
                        at = (j % height * count * images + j // height) * across * itemsize
                        from_ = (j // height * g.shape[1] + j % height) * of_g * itemsize
                        copy_rectangle(
                            *(pointer(right, kind), address(gathered) + at, row * itemsize),
                            *(right + from_, across * itemsize, count, across),
                        )
                    right, ldright = address(gathered), count * row
                for t in range(gweight.shape[2] * kh):
                    tz = plan[plan[TAPS] + t // kh] - plan[FIRST]
                    ty = plan[plan[TAPS] + gweight.shape[2] + t % kh] - plan[FIRST + 1]
                    line = ty % plan[STEPS + 1] * plan[TALL] + ty // plan[STEPS + 1]
                    left = address(bands) + (i * plan[STEPS] + tz) * of_plane * itemsize
                    left += line * row * itemsize
                    sums, ldleft = to + t * n * height * size, plan[PLANES] * of_plane
                    gemm(
                        *(g, wide, 1, n, height, count * row, left, ldleft, right, ldright),
                        *(sums, height, sums, height),
                    )
        image += images
    keep(bands)
    keep(gathered)


@device(allocates=True)
def collect(gweight, sums, chunks, groups):
    """Write what chunks have summed, at an address, as the weight has it."""
    kw, lines = gweight.shape[4], gweight.shape[2] * gweight.shape[3]
    size, height = gweight.size, gweight.shape[0] // groups
    rows, n = size // gweight.shape[0], gweight.shape[1] * kw
    kind = sum_type(gweight.dtype)
    given, wide = pointer(sums, kind), 4 if gweight.itemsize == 2 else gweight.itemsize
    for chunk in range(1, chunks):
        more = pointer(sums + chunk * size * wide, kind)
        for i in range(size):
            given[i] += more[i]
    places = np.empty(n, np.int64)
    for j in range(n):
        places[j] = j // kw * lines * kw + j % kw
    square, lanes = np.empty(LANES * LANES, kind), VECTOR_BYTES // wide
    for t in range(groups * lines):
        group, line = t // lines, t % lines
        for o in range(0, height, lanes):
            for j in range(0, n, lanes):
                across, down = min(lanes, height - o), min(lanes, n - j)
                from_ = sums + ((t * n + j) * height + o) * wide
                line_bytes = height * wide
                transpose(given, from_, line_bytes, down, across, address(square), VECTOR_BYTES)
                for i in range(across):
                    first = (group * height + o + i) * rows + line * kw
                    for k in range(down):
                        value = square[i * lanes + k]
                        store_at(address(gweight), first + places[j + k], value, gweight)
    keep(places)
    keep(square)


@gemm_kernel(grain=GRAIN, takes_halves=True, allocates=True)
def banded_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``banded`` with respect to weight."""
    form = (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    kernel = (gweight.shape[2], gweight.shape[3], gweight.shape[4])
    grid = (g.shape[2], g.shape[3], g.shape[4])
    inputs, what = gweight.shape[1], SUMMED + 0 * groups
    plan = plan_of(x.shape[0], inputs, groups, kernel, grid, form, what, g.itemsize, 0)
    chunks = max(1, min(x.shape[0], TASKS // groups))
    sums = np.empty(chunks * gweight.size, sum_type(gweight.dtype))
    clear(pointer(address(sums), sum_type(gweight.dtype)), sums.size)
    previous = blas_alone(g.size * plan[ROWS])
    for task in prange(0, chunks * groups):
        to = address(sums) + task // groups * gweight.size * sums.itemsize
        weight_grad_block(task, chunks, to, g, x, gweight, plan)
    collect(gweight, address(sums), chunks, groups)
    blas_restore(previous)
    keep(sums)
    keep(plan)
