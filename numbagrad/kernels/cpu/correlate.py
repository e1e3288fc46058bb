"""A convolution over bands of the image, a block of lines at a time: see ``bands.py``.

Start at ``correlate_block``.
"""

from __future__ import annotations

import numpy as np

from ..copies import copy_rectangle
from ..half_type import bits_type, sum_type
from ..inner import device, keep
from ..intrinsics import address, load_at, pointer, store_at
from ..product import LISTED, gemm
from .bands import (
    APART,
    COUNTS,
    DEEP,
    GRID,
    GROUPS,
    LINES,
    ORDER,
    PARTS,
    PHASES,
    PLACES,
    ROWS,
    STEPS,
    TALL,
    TOGETHER,
    WIDTH,
    fill_bands,
    new_bands,
)

__all__ = ["begin_with", "block_of", "correlate_block", "lay_out", "order_weight", "tasks_of"]


@device
def begin_with(like, to, rows, row, width, bias, biased, first):
    """Write the bias of channels from ``first`` on, or zeros, to the rows at an address."""
    for i in range(rows):
        value = sum_type(like.dtype).type(0)
        if biased:
            value = load_at(address(bias), first + i, bias)
        begin = to + i * row * like.itemsize
        for j in range(width):
            store_at(begin, j, value, like)


@device
def tasks_of(images, plan):
    """How many blocks there are: of images, groups, planes and lines of the grid."""
    blocks = (images + plan[TOGETHER] - 1) // plan[TOGETHER] * plan[GROUPS]
    blocks *= (plan[GRID] + plan[DEEP] - 1) // plan[DEEP]
    return blocks * ((plan[GRID + 1] + plan[LINES] - 1) // plan[LINES])


@device
def block_of(task, images, plan):
    """Line, plane, group and image with which a block begins, and how many images it has."""
    together, lines = plan[TOGETHER], plan[LINES]
    across = (plan[GRID + 1] + lines - 1) // lines
    down = (plan[GRID] + plan[DEEP] - 1) // plan[DEEP]
    y, z = task % across * lines, task // across % down * plan[DEEP]
    group = task // (across * down) % plan[GROUPS]
    image = task // (across * down * plan[GROUPS]) * together
    return y, z, group, image, min(together, images - image)


@device(allocates=True)
def correlate_block(task, out, x, factors, bias, biased, plan):
    """Some lines of the grid, of one group of some images.

    factors: the address of a matrix for each group and phase.
    """
    groups, together, lines = plan[GROUPS], plan[TOGETHER], plan[LINES]
    y, z, group, image, images = block_of(task, x.shape[0], plan)
    itemsize = out.itemsize
    inputs, height = x.shape[1] // groups, out.shape[1] // groups
    space, kind = (x.shape[2], x.shape[3], x.shape[4]), bits_type(x.dtype)
    plane = space[0] * space[1] * space[2] * itemsize
    bands = new_bands(x, inputs, plan)
    source = address(x) + (image * x.shape[1] + group * inputs) * plane
    fill_bands(
        *(kind, itemsize, address(bands), source, x.shape[1] * plane, images, together, inputs),
        *(space, z, y, plan),
    )
    row, count = together * plan[GRID + 2], min(lines, plan[GRID + 1] - y)
    width, of_plane = count * row, plan[PARTS] * plan[TALL] * together * plan[WIDTH] * itemsize
    ay, ax = plan[APART + 1], plan[APART + 2]
    direct = together == 1 and plan[PHASES] == 1
    made = np.empty(0 if direct else ax * height * width, kind)
    od, oh, ow = out.shape[2], out.shape[3], out.shape[4]
    channel = image * out.shape[1] + group * height
    factors += group * plan[ROWS] * height * itemsize
    for i in range(min(plan[DEEP], plan[GRID] - z)):
        base, done = address(bands) + i * plan[STEPS] * of_plane, 0
        for phase in range(plan[PHASES]):
            to, ldto = address(made) + phase % ax * height * width * itemsize, width
            if direct:
                to = address(out) + ((channel * od + z + i) * oh + y) * ow * itemsize
                ldto = od * oh * ow
            start, rows = to if biased else 0, plan[plan[COUNTS] + phase]
            if biased or rows == 0:
                begin_with(out, to, height, ldto, width, bias, biased, group * height)
            if rows > 0:
                right = address(plan) + (plan[PLACES] + done) * 8, base
                left = factors + done * height * itemsize, rows
                gemm(out, 0, LISTED, height, width, rows, *left, *right, start, ldto, to, ldto)
            done += rows
            if not direct and phase % ax == ax - 1:
                oz, oy = (z + i) * plan[APART] + phase // (ax * ay), y * ay + phase // ax % ay
                lay_out(
                    *(out, kind, address(made), images, channel, height, oz, oy, ay, ax),
                    *(count, row, plan[GRID + 2]),
                )
    keep(bands)
    keep(made)


@device
def lay_out(
    out, kind, made, images, channel, height, oz, oy, ay, ax, count, row, width
):  # fmt: skip
    """Write lines that stand side by side, those of each phase across after the other, to their
    places in the images."""
    od, oh, ow = out.shape[2], out.shape[3], out.shape[4]
    itemsize = out.itemsize
    lines = min(count, (oh - oy + ay - 1) // ay)
    if oz >= od or lines <= 0:
        return
    for j in range(images):
        for o in range(height):
            to = (((channel + j * out.shape[1] + o) * od + oz) * oh + oy) * ow
            to = address(out) + to * itemsize
            from_ = made + (o * count * row + j * width) * itemsize
            if ax == 1:
                like = pointer(to, kind)
                copy_rectangle(like, to, ay * ow * itemsize, from_, row * itemsize, lines, ow)
                continue
            for line in range(lines):
                at = pointer(to + line * ay * ow * itemsize, kind)
                for fx in range(ax):
                    begin = from_ + (fx * height * count + line) * row * itemsize
                    given = pointer(begin, kind)
                    for i in range((ow - fx + ax - 1) // ax):
                        at[fx + i * ax] = given[i]


@device
def order_weight(to, weight, height, plan):
    """Write the weight at an address: for each group and phase of the input a matrix, with a row
    for each channel of the input and a column for each of the output, and tap."""
    inputs, itemsize, kind = weight.shape[1], weight.itemsize, bits_type(weight.dtype)
    count = weight.shape[2] * weight.shape[3] * weight.shape[4]
    at, done, row = pointer(to, kind), 0, inputs * count * itemsize
    for group in range(plan[GROUPS]):
        first = plan[ORDER]
        for phase in range(plan[PHASES]):
            these = plan[plan[COUNTS] + phase] // height
            for c in range(inputs):
                from_ = address(weight) + (group * height * inputs + c) * count * itemsize
                if plan[PHASES] == 1:
                    begin, line = to + done * itemsize, count * itemsize
                    copy_rectangle(at, begin, line, from_, row, height, count)
                    done += height * count
                    continue
                for o in range(height):
                    run = pointer(from_ + o * row, kind)
                    for i in range(first, first + these):
                        at[done] = run[plan[i]]
                        done += 1
            first += these
