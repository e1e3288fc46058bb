"""Bands of an image: copies in which what one tap of a kernel sees lies side by side.

A convolution's grid of places looks at an image through taps: place j through a tap of shift a sees
number ``j step + a`` of each line, and zeros outside. A band holds that for one channel and one tap
along lines, for some images together: their lines, as the grid has them, without gaps; a tap of
another line sees the same band, so many lines further on. So a row of the matrix that convolutions
multiply by is a place in a band, and is never written out for each tap. Of a stride down the lines,
those that belong to one of its steps lie together. A plan is all that follows from the sizes, in
one array of int64 with the places below, and is the same for all dtypes. Start at ``plan_of``.
"""

from __future__ import annotations

import numpy as np

from ..half_type import bits_type
from ..inner import device
from ..intrinsics import pointer
from ..vectors import VECTOR_BYTES
from .conv import clear, inside, move
from .half_product import even_parts

__all__ = ["APART", "BACKWARD", "COUNTS", "DEEP", "FIRST", "FORWARD", "GRID", "GROUPS", "LINES"]
__all__ += ["ORDER", "OVERLAP", "PARTS", "PHASES", "PLACES", "PLANES", "ROWS", "STEPS", "SUMMED"]
__all__ += ["TALL", "TAPS", "TOGETHER", "WIDTH", "beyond", "channel_of", "fill_bands"]
__all__ += ["new_bands", "plan_of"]

GROUPS, TOGETHER, DEEP, LINES = 0, 1, 2, 3
"""Groups of channels; images, planes and lines in a block, several planes only of all lines."""

PLANES, PARTS, TALL, ACROSS, WIDTH, SHARED = 4, 5, 6, 7, 8, 9
"""Planes of a band, steps of its lines, and lines of each step; bands of a channel, numbers of an
image in a line, and whether all taps see one line: where no other follows it, and where results for
the ends of lines are made but not taken."""

ROWS, PHASES, OVERLAP = 10, 11, 12
"""Rows of the matrix in all phases, how many of these there are, and the zeros that end a line of
an image and begin the next."""

FIRST, GRID, STEPS, APART = 13, 16, 19, 22
"""By dimension: the first shift, the grid, its steps in the image, and how many places of the
result lie from one of the grid to the next, those between being of other phases."""

TAPS, ORDER, COUNTS, PLACES = 25, 26, 27, 28
"""Where lists begin: shifts of taps by dimension; taps by phase; rows of each phase; and where in
the bands, in bytes, is each row: by phase, channel and tap."""

HEAD = 29

FORWARD, BACKWARD, SUMMED = 0, 1, 2
"""What a plan is for: the convolution; the gradient of its input, from that of the output, where a
place ``phase + j stride`` sees numbers ``j + shift`` through the taps of its phase; and that of its
weight. To be given as an int64 that is no literal, for which Numba would compile all of it anew."""

ROOM = 1 << 17
"""Elements that the bands of a block may take: half of the second cache, in float32."""

WIDE = 256
"""Places from which a product is as fast as with more: several images share one up to there."""

LINE = 64
"""Places of a line from which it is left alone: it is copied once then, for all taps."""

SHARES = 8
"""Tasks that images are shared among at least, where there are so many."""


@device(allocates=True)
def plan_of(images, channels, groups, kernel, grid, form, what, itemsize, wide):
    """The plan of a convolution of so many channels of a group.

    form: strides, zeros in front, dilations; what: ``FORWARD`` or one of the others; wide: numbers
    in a line of the image, to have all taps see one line of a band, or 0.
    """
    backward, alone = what == BACKWARD, what != SUMMED
    count, total = kernel[0] * kernel[1] * kernel[2], kernel[0] + kernel[1] + kernel[2]
    phases = form[0] * form[1] * form[2] if backward else 1
    plan = np.zeros(HEAD + 2 * total + count + phases + channels * count, np.int64)
    plan[GROUPS], plan[PHASES], plan[ROWS] = groups, phases, channels * count
    plan[TAPS], plan[ORDER] = HEAD, HEAD + 2 * total
    plan[COUNTS] = plan[ORDER] + count
    plan[PLACES] = plan[COUNTS] + phases
    at = HEAD
    for i in range(3):
        stride, padding, dilation = form[i], form[3 + i], form[6 + i]
        plan[GRID + i], plan[STEPS + i], plan[APART + i] = grid[i], stride, 1
        if backward:
            plan[STEPS + i], plan[APART + i] = 1, stride
        first = 1 << 62
        for t in range(kernel[i]):
            shift = t * dilation - padding
            if backward:
                plan[at + total] = shift % stride  # the phase
                shift = (plan[at + total] - shift) // stride
            plan[at] = shift
            first = min(first, shift)
            at += 1
        plan[FIRST + i] = first
    part(plan, images, channels, kernel, alone, wide)
    order_taps(plan, kernel)
    place_rows(plan, channels, kernel, itemsize)
    return plan


@device
def part(plan, images, channels, kernel, alone, wide):
    """Say what a block is, and how large its bands are."""
    kd, kh, kw = kernel
    at, deep, tall, across = HEAD, plan[GRID], plan[GRID + 1], plan[GRID + 2]
    # Shifts grow or fall from tap to tap: the first or the last tap has the largest.
    span_z = max(plan[at], plan[at + kd - 1]) - plan[FIRST]
    span_y = max(plan[at + kd], plan[at + kd + kh - 1]) - plan[FIRST + 1]
    span_x = max(plan[at + kd + kh], plan[at + kd + kh + kw - 1]) - plan[FIRST + 2]
    together = max(1, min(images // SHARES, WIDE // max(1, tall * across)))
    room = ROOM
    if wide and not alone:
        together, room = max(1, min(images, WIDE // max(1, tall * across))), ROOM // 2
    if alone and tall == 1 and across >= LINE:
        together = 1
    together = even_parts(max(1, images), together, 1)
    plan[TOGETHER], plan[ACROSS], plan[WIDTH] = together, kw, across
    if wide or (alone and tall * together == 1):
        plan[SHARED], plan[ACROSS] = 1, min(plan[STEPS + 2], span_x + 1)
        plan[WIDTH] += span_x // plan[STEPS + 2]
    if wide and plan[STEPS + 2] == 1:
        behind = plan[FIRST + 2] + plan[WIDTH] - wide
        plan[OVERLAP] = max(0, min(-plan[FIRST + 2], behind, span_x))
        plan[WIDTH] -= plan[OVERLAP]
    plan[PARTS], more = min(plan[STEPS + 1], span_y + 1), span_y // plan[STEPS + 1]
    line = max(1, channels * plan[ACROSS] * plan[PARTS] * together * plan[WIDTH])
    plan[LINES] = even_parts(
        max(1, tall), max(1, min(tall, room // (line * (span_z + 1)) - more)), 1
    )
    plan[TALL], plan[DEEP] = plan[LINES] + more, 1
    if plan[LINES] == tall:
        planes = (room // (line * plan[TALL]) - span_z - 1) // plan[STEPS] + 1
        plan[DEEP] = even_parts(max(1, deep), max(1, min(deep, planes)), 1)
    plan[PLANES] = (plan[DEEP] - 1) * plan[STEPS] + span_z + 1


@device
def order_taps(plan, kernel):
    """List the taps by phase."""
    kd, kh, kw = kernel
    of, to = HEAD + kd + kh + kw, plan[ORDER]
    for phase in range(plan[PHASES]):
        fz, fy = phase // (plan[APART + 1] * plan[APART + 2]), phase // plan[APART + 2]
        fy, fx, begin = fy % plan[APART + 1], phase % plan[APART + 2], to
        for t in range(kd * kh * kw):
            tz, ty, tx = t // (kh * kw), t // kw % kh, t % kw
            if plan[of + tz] == fz and plan[of + kd + ty] == fy and plan[of + kd + kh + tx] == fx:
                plan[to] = t
                to += 1
        plan[plan[COUNTS] + phase] = (to - begin) * (plan[ROWS] // (kd * kh * kw))


@device
def place_rows(plan, channels, kernel, itemsize):
    """List where the rows of the matrix are."""
    kd, kh, kw = kernel
    row, at, first = plan[TOGETHER] * plan[WIDTH], plan[PLACES], plan[ORDER]
    for phase in range(plan[PHASES]):
        these = plan[plan[COUNTS] + phase] // channels
        for c in range(channels):
            for i in range(first, first + these):
                tap = plan[i]
                z = plan[HEAD + tap // (kh * kw)] - plan[FIRST]
                y = plan[HEAD + kd + tap // kw % kh] - plan[FIRST + 1]
                band, x = tap % kw, 0
                if plan[SHARED]:
                    x = plan[HEAD + kd + kh + band] - plan[FIRST + 2]
                    band, x = x % plan[STEPS + 2], x // plan[STEPS + 2]
                line = ((c * plan[ACROSS] + band) * plan[PLANES] + z) * plan[PARTS]
                line = (line + y % plan[STEPS + 1]) * plan[TALL] + y // plan[STEPS + 1]
                plan[at] = (line * row + x) * itemsize
                at += 1
        first += these


@device
def channel_of(plan):
    """Numbers in all bands of a channel."""
    lines = plan[ACROSS] * plan[PLANES] * plan[PARTS] * plan[TALL]
    return lines * plan[TOGETHER] * plan[WIDTH]


@device
def beyond(plan):
    """Places after the end of a line that its last results see, taken or not."""
    return plan[WIDTH] + plan[OVERLAP] - plan[GRID + 2]


@device(allocates=True)
def new_bands(like, channels, plan):
    """Room for the bands of a block, and vectors more that may be read."""
    count = channels * channel_of(plan) + beyond(plan) + 16 * VECTOR_BYTES // like.itemsize
    return np.empty(count, bits_type(like.dtype))


@device
def fill_bands(dtype, itemsize, bands, x, x_image, images, together, channels, space, z, y, plan):
    """Write the bands of ``images`` at the address x from plane z and line y of the grid on.

    x_image: bytes from image to image; together: images that there is room for in a line; space:
    sizes of the image.
    """
    depth, height, wide = space
    sd, sh, sw = plan[STEPS], plan[STEPS + 1], plan[STEPS + 2]
    width, tall = plan[WIDTH], plan[TALL]
    row, to = together * width, bands
    shifts = (plan[TAPS] + plan[ORDER]) // 2 - plan[ACROSS]  # of taps along lines
    for band in range(channels * plan[ACROSS]):
        c, tx = band // plan[ACROSS], band % plan[ACROSS]
        shift = plan[FIRST + 2] + tx if plan[SHARED] else plan[shifts + tx]
        left, right = inside(shift, sw, wide, 0, width)
        for plane in range(plan[PLANES] * plan[PARTS]):
            iz = z * sd + plan[FIRST] + plane // plan[PARTS]
            down = y * sh + plan[FIRST + 1] + plane % plan[PARTS]
            top, bottom = inside(down, sh, height, 0, tall)
            if not 0 <= iz < depth or right <= left:
                top = bottom = 0
            if bottom - top < tall or right - left < width or images < together:
                clear(pointer(to, dtype), tall * row)
            from_ = ((c * depth + iz) * height + down + top * sh) * wide + shift + left * sw
            for i in range(images if bottom > top else 0):
                at = to + (top * row + i * width + left) * itemsize
                moves = at, row, x + i * x_image + from_ * itemsize, sh * wide
                move(dtype, itemsize, False, *moves, bottom - top, right - left, sw)
            to += tall * row * itemsize
