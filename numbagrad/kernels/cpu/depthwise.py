"""Convolutions in which each channel has a kernel of its own, and both of their gradients.

A product of matrices has nothing to do there: it would have one row. A channel is copied with its
zeros around it, and the kernel slides over that. Of a stride along lines, the columns that belong
to one tap lie side by side in the copy. Arguments are those of ``cpu/conv.py``, with as many groups
as channels of x; halves go there. ``ops/conv_form.py`` says when. Start at ``depthwise``.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from ..copies import copy_rectangle
from ..half_type import bits_type
from ..inner import device, keep
from ..intrinsics import address, load_at, pointer
from ..machine import kernel
from ..slide import apart, between, slide, taps_grad
from ..vectors import VECTOR_BYTES

__all__ = ["depthwise", "depthwise_input_grad", "depthwise_weight_grad"]

GRAIN = 8192
"""Elements of the largest array from which a second thread pays, as in ``cpu/conv.py``."""

BLOCK = 8
"""Channels in a task, which has one copy for all of them."""


@device
def padded_sizes(out_sizes, weight, form):
    """The sizes of a channel with its zeros: what the kernel covers in all places. And of a stride
    along lines, how many columns belong to one of its steps."""
    sd, sh, sw, _, _, _, dd, dh, dw = form
    kd, kh, kw = weight.shape[2], weight.shape[3], weight.shape[4]
    depth = (out_sizes[0] - 1) * sd + (kd - 1) * dd + 1
    height = (out_sizes[1] - 1) * sh + (kh - 1) * dh + 1
    width = (out_sizes[2] - 1) * sw + (kw - 1) * dw + 1
    return depth, height, (width + sw - 1) // sw


@device(allocates=True)
def new_copy(like, sizes, step):
    """Zeros for a channel of ``padded_sizes``, and a vector more that may be read."""
    depth, height, part = sizes
    return np.zeros(depth * height * step * part + VECTOR_BYTES // like.itemsize, like.dtype)


@device(allocates=True)
def tap_places(weight, height, part, step, dilations):
    """How many bytes beyond the first tap each is, in a copy of lines of ``step`` parts."""
    dd, dh, dw = dilations
    kd, kh, kw = weight.shape[2], weight.shape[3], weight.shape[4]
    places = np.empty(kd * kh * kw, np.int64)
    for tz in range(kd):
        for ty in range(kh):
            for tx in range(kw):
                across = tx * dw
                place = (tz * dd * height + ty * dh) * step * part
                place += across % step * part + across // step
                places[(tz * kh + ty) * kw + tx] = place * weight.itemsize
    return places


@device
def copy_in(copy, x, space, sizes, step, shifts, steps):
    """Write the channel at ``x``, of the sizes ``space``, into its copy.

    shifts: where its first number comes to stand; it may be outside. steps: from one to the next,
    of which either these or ``step``, of the parts of lines, are 1.
    """
    depth, height, width = space
    full_depth, full_height, part = sizes
    pd, ph, pw = shifts
    sd, sh, sw = steps
    line, size = step * part, copy.itemsize
    kind = bits_type(copy.dtype)
    begin, end = first_inside(pd, sd, depth, full_depth)
    top, bottom = first_inside(ph, sh, height, full_height)
    left, right = first_inside(pw, sw, width, line)
    for z in range(begin, end):
        to = address(copy) + (((z * sd + pd) * full_height + top * sh + ph) * line) * size
        source = x + ((z * height + top) * width + left) * size
        rows, columns = bottom - top, right - left
        if step == 1 and sw == 1:
            to += (left + pw) * size
            if rows > 0 and columns > 0:
                copy_rectangle(
                    *(pointer(to, kind), to, sh * line * size, source, width * size, rows, columns)
                )
        elif rows > 0 and columns > 0:
            lines = rows, columns, source, width * size, to, sh * line * size
            copy_steps(copy, *lines, left * sw + pw, sw, part, step)


@device
def copy_steps(like, rows, columns, x, x_row, to, to_row, first, sw, part, step):
    """Lines of ``copy_in``: number j to place ``first + j sw`` of a line, or that of its part."""
    size = like.itemsize
    begin = to + (first % step * part + first // step) * size
    if step == 2 and sw == 1:
        other = first + 1
        odd = to + (other % step * part + other // step) * size
        apart(like, rows, columns, x, x_row, begin, odd, to_row)
    elif step == 1 and sw == 2:
        between(like, rows, columns, x, x_row, begin, to_row)
    else:
        for phase in range(min(step, columns)):
            place = first + phase * sw
            begin = to + (place % step * part + place // step) * size
            for y in range(rows):
                row = pointer(begin + y * to_row, like.dtype)
                given = pointer(x + phase * size + y * x_row, like.dtype)
                for j in range((columns - phase + step - 1) // step):
                    row[j * sw] = given[j * step]


@device
def first_inside(shift, step, size, full):
    """From which to before which i of ``size`` is ``0 <= shift + i step < full``."""
    begin = max(0, (step - 1 - shift) // step)
    return begin, max(begin, min(size, (full - 1 - shift) // step + 1))


@device
def slide_plane(like, rows, columns, taps, x, x_row, places, weight, first, adds, out):
    """``slide`` for a plane of the result; a single line is as many as there are vectors in it."""
    size = like.itemsize
    lanes = VECTOR_BYTES // size
    if rows == 1 and columns > lanes:
        rows, width = columns // lanes, lanes * size
        slide(*(like, rows, lanes, taps, x, width, places, weight, first, adds, out, width))
        done, rows = rows * lanes, 1
        x, out, columns = x + done * size, out + done * size, columns - done
    if columns > 0:
        slide(
            *(like, rows, columns, taps, x, x_row, places, weight, first, adds),
            *(out, columns * size),
        )


@kernel(grain=GRAIN, allocates=True)
def depthwise(out, x, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """``out[n, o] = x[n, c]`` correlated with ``weight[o]``, plus ``bias[o]``, where o is of c."""
    several, size = out.shape[1] // groups, out.itemsize
    od, oh, ow = out.shape[2], out.shape[3], out.shape[4]
    space, form = (x.shape[2], x.shape[3], x.shape[4]), (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    sizes = padded_sizes((od, oh, ow), weight, form)
    _, height, part = sizes
    plane, line = space[0] * space[1] * space[2] * size, sw * part * size
    blocks = (groups + BLOCK - 1) // BLOCK
    places = tap_places(weight, height, part, sw, (dd, dh, dw))
    for task in prange(x.shape[0] * blocks):
        image, begin = task // blocks, task % blocks * BLOCK
        copy = new_copy(out, sizes, sw)
        for channel in range(begin, min(groups, begin + BLOCK)):
            source = address(x) + (image * groups + channel) * plane
            copy_in(copy, source, space, sizes, sw, (pd, ph, pw), (1, 1, 1))
            for o in range(channel * several, (channel + 1) * several):
                first = address(bias) + o * size if biased else 0
                taps, by = places.size, address(weight) + o * places.size * size
                for z in range(od):
                    from_ = address(copy) + z * sd * height * line
                    to = address(out) + ((image * out.shape[1] + o) * od + z) * oh * ow * size
                    slide_plane(
                        *(out, oh, ow, taps, from_, sh * line),
                        *(address(places), by, first, 0, to),
                    )
        keep(copy)
    keep(places)


@device
def any_infinite(weight):
    """Whether a number of a C array is infinite or NaN."""
    found = False
    for i in range(weight.size):
        found |= not abs(load_at(address(weight), i, weight)) < np.float32(np.inf)
    return found


@device
def scatter(image, channel, several, gx, g, weight, bias, biased, form):
    """``depthwise_input_grad`` of a channel, a number of g after the other."""
    sd, sh, sw, pd, ph, pw, dd, dh, dw = form
    for z in range(gx.shape[2]):
        for y in range(gx.shape[3]):
            for x in range(gx.shape[4]):
                gx[image, channel, z, y, x] = bias[channel] if biased else 0
    for o in range(channel * several, (channel + 1) * several):
        for place in np.ndindex(g.shape[2:]):
            for tap in np.ndindex(weight.shape[2:]):
                z = place[0] * sd - pd + tap[0] * dd
                y = place[1] * sh - ph + tap[1] * dh
                x = place[2] * sw - pw + tap[2] * dw
                inside = 0 <= z < gx.shape[2] and 0 <= y < gx.shape[3] and 0 <= x < gx.shape[4]
                if inside:
                    factor = weight[o, 0, tap[0], tap[1], tap[2]]
                    gx[image, channel, z, y, x] += (
                        factor * g[image, o, place[0], place[1], place[2]]
                    )


@kernel(grain=GRAIN, allocates=True)
def depthwise_input_grad(gx, g, weight, bias, biased, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``depthwise`` with respect to x, plus ``bias[c]``: the kernel slides
    backwards over a gradient with zeros around it, and between its numbers for a stride."""
    several, size = g.shape[1] // groups, gx.itemsize
    depth, height, width = gx.shape[2], gx.shape[3], gx.shape[4]
    kd, kh, kw = weight.shape[2], weight.shape[3], weight.shape[4]
    space, form = (g.shape[2], g.shape[3], g.shape[4]), (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    sizes = padded_sizes((depth, height, width), weight, (1, 1, 1, 0, 0, 0, dd, dh, dw))
    _, tall, line = sizes
    shifts = ((kd - 1) * dd - pd, (kh - 1) * dh - ph, (kw - 1) * dw - pw)
    plane, of_z, row = space[0] * space[1] * space[2] * size, height * width * size, line * size
    blocks = (groups + BLOCK - 1) // BLOCK
    places = tap_places(weight, tall, line, 1, (dd, dh, dw))
    exact = any_infinite(weight)  # times the zeros between, and around, it would be NaN
    for task in prange(gx.shape[0] * blocks):
        image, begin = task // blocks, task % blocks * BLOCK
        copy = new_copy(gx, sizes, 1)
        taps, given = places.size, pointer(address(weight), gx.dtype)
        turned = np.empty(taps, gx.dtype)
        for channel in range(begin, min(groups, begin + BLOCK)):
            if exact:
                scatter(image, channel, several, gx, g, weight, bias, biased, form)
                continue
            for i in range(several):
                o = channel * several + i
                source = address(g) + (image * g.shape[1] + o) * plane
                copy_in(copy, source, space, sizes, 1, shifts, (sd, sh, sw))
                for t in range(taps):
                    turned[t] = given[o * taps + taps - 1 - t]
                first = address(bias) + channel * size if biased and i == 0 else 0
                for z in range(depth):
                    from_ = address(copy) + z * tall * row
                    to = address(gx) + ((image * groups + channel) * depth + z) * of_z
                    slide_plane(
                        *(gx, height, width, taps, from_, row),
                        *(address(places), address(turned), first, i, to),
                    )
        keep(copy)
        keep(turned)
    keep(places)


@kernel(grain=GRAIN, allocates=True)
def depthwise_weight_grad(gweight, g, x, groups, sd, sh, sw, pd, ph, pw, dd, dh, dw):
    """The gradient of ``depthwise`` with respect to weight: a channel after the other."""
    several, size = g.shape[1] // groups, g.itemsize
    od, oh, ow = g.shape[2], g.shape[3], g.shape[4]
    space, form = (x.shape[2], x.shape[3], x.shape[4]), (sd, sh, sw, pd, ph, pw, dd, dh, dw)
    sizes = padded_sizes((od, oh, ow), gweight, form)
    _, height, part = sizes
    plane, line = space[0] * space[1] * space[2] * size, sw * part * size
    places = tap_places(gweight, height, part, sw, (dd, dh, dw))
    for channel in prange(groups):
        copy, taps = new_copy(g, sizes, sw), places.size
        sums = pointer(address(gweight) + channel * several * taps * size, g.dtype)
        for t in range(several * taps):
            sums[t] = 0
        for image in range(x.shape[0]):
            source = address(x) + (image * groups + channel) * plane
            copy_in(copy, source, space, sizes, sw, (pd, ph, pw), (1, 1, 1))
            for o in range(channel * several, (channel + 1) * several):
                to = address(gweight) + o * taps * size
                for z in range(od):
                    from_ = address(copy) + z * sd * height * line
                    of_z = address(g) + ((image * g.shape[1] + o) * od + z) * oh * ow * size
                    taps_grad(
                        *(g, oh, ow, taps, from_, sh * line),
                        *(address(places), of_z, ow * size, to),
                    )
        keep(copy)
    keep(places)
