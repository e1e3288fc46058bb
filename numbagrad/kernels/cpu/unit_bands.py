"""A convolution over bands on the matrix unit, a block of lines at a time: see ``amx_bands.py``.

The weight is taken apart once, into panels of 16 channels of the result, and the bands of a block
of lines as they are made. Lines stand side by side with the zeros between them, and so do results,
of which those at the zeros are not taken. What the unit cannot take apart, such as infinite
numbers, goes to the tiles of ``tile.py``: all images of a block. Start at ``unit_block``.
"""

from __future__ import annotations

import numpy as np

from ..amx import EDGE, LINE, PANEL_BYTES, STEP, TILE, begin_tiles, clear, end_tiles, exponent_of
from ..amx_bands import amx_bands, pair_lines, split_places, turn_places
from ..copies import transpose
from ..half_type import bits_type
from ..inner import device, keep, pasted
from ..intrinsics import address, pointer
from ..product import LISTED, gemm
from ..tile import scratch
from .amx_product import PEAK_BYTES, can_multiply, split_all
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
    beyond,
    channel_of,
    fill_bands,
    new_bands,
)
from .correlate import begin_with, block_of, lay_out, order_weight

__all__ = ["ROOM_BYTES", "extremes_of", "line_from", "list_steps", "new_lines", "new_panels"]
__all__ += ["panels_of", "step_bytes", "unit_block", "weight_panel"]

ROOM_BYTES, SQUARE = 3 * TILE, TILE
HIGHS_BYTES = 16
"""Exponents of both halves of a panel."""


@pasted
def line_from(place):
    """The first line of the cache at an address or after it."""
    return (place + LINE - 1) & -LINE


@device(allocates=True)
def new_lines(nbytes):
    """Room for so many bytes from ``line_from`` on."""
    return np.empty((nbytes + LINE) // 4 + 1, np.float32)


@pasted
def panels_of(rows):
    """Panels that have so many channels of the result."""
    return (rows + EDGE - 1) // EDGE


@pasted
def blocks_of(channels):
    """Blocks of channels, of which a tile sums up one."""
    return (channels + STEP - 1) // STEP


@device
def taps_of(plan):
    """Taps of the kernel."""
    return plan[COUNTS] - plan[ORDER]


@device
def lines_of(plan):
    """Places of a block of channels, and those after them that its taps see."""
    return (channel_of(plan) + beyond(plan) + EDGE - 1) // EDGE * EDGE


@device(allocates=True)
def list_steps(plan, channels, itemsize):
    """Where the first places of steps are, in bytes: by phase, block of channels and tap. Then for
    each tap its first row among all that are summed, and rows from one block to the next."""
    blocks, count, to, row = blocks_of(channels), taps_of(plan), 0, plan[PLACES]
    found = np.zeros(blocks * count + 2 * count, np.int64)
    rows = blocks * count
    for phase in range(plan[PHASES]):
        taps = plan[plan[COUNTS] + phase] // channels
        for i in range(taps):
            tap = plan[plan[ORDER] + to // blocks + i]
            found[rows + 2 * tap], found[rows + 2 * tap + 1] = (to + i) * STEP, taps * STEP
        for block in range(blocks):
            for i in range(taps):
                found[to] = (block * lines_of(plan) + plan[row + i] // itemsize) * LINE
                to += 1
        row += taps * channels
    return found


@pasted
def step_bytes(like):
    """Bytes of a panel for each step: of all parts of a number."""
    return PANEL_BYTES if like.itemsize == 4 else TILE


@device(allocates=True)
def new_panels(like, channels, rows, plan):
    """Room for the panels of all groups, for extremes of their exponents, and for these."""
    each = blocks_of(channels) * taps_of(plan) * step_bytes(like) + LINE + HIGHS_BYTES
    return new_lines(plan[GROUPS] * panels_of(rows) * each)


@device(allocates=True)
def weight_panel(task, weight, channels, rows, of_row, of_channel, steps, plan, out):
    """Take apart a panel of the weight: 16 channels of the result of a group.

    channels, rows: of a group, those summed over and those of the result; of_row, of_channel:
    numbers from one to the next; steps: of ``list_steps``; out: the address of ``new_panels``.
    """
    panels, count, blocks = panels_of(rows), taps_of(plan), blocks_of(channels)
    group, first, deep = task // panels, task % panels * EDGE, blocks * count * STEP
    tasks, lines, out = plan[GROUPS] * panels, min(EDGE, rows - first), line_from(out)
    begin = group * max(rows * of_row, channels * of_channel) + first * of_row
    itemsize = weight.itemsize
    ordered, square = np.empty(deep * EDGE, np.float32), scratch(SQUARE)
    for i in range(deep * EDGE):
        ordered[i] = 0
    turned = pointer(square, np.float32)
    at = blocks * count
    for c in range(channels):
        for t in range(0, count, EDGE):
            many = min(EDGE, count - t)
            from_ = address(weight) + (begin + c * of_channel + t) * itemsize
            transpose(weight, from_, of_row * itemsize, lines, many, square, LINE)
            for i in range(many):
                place = at + 2 * (t + i)
                to = (steps[place] + c // STEP * steps[place + 1] + c % STEP) * EDGE
                for j in range(EDGE):
                    ordered[to + j] = turned[i * EDGE + j]
    peaks, panel = scratch(PEAK_BYTES), deep // STEP * step_bytes(weight)
    told = out + tasks * panel + task * LINE
    clear(turned, told)
    if itemsize == 2:
        pair_lines(weight, deep // STEP, address(ordered), out + task * panel)
    else:
        clear(turned, peaks)
        clear(turned, peaks + LINE)
        split_all(
            *(turned, False, False, address(ordered), LINE, EDGE, deep, out + task * panel, 0),
            *(PANEL_BYTES, peaks, out + tasks * (panel + LINE) + task * HIGHS_BYTES, told),
        )
    keep(ordered)


@device
def extremes_of(like, panels, channels, rows, plan):
    """The least exponent of a half of a panel that is not 0, and the largest."""
    least, most, tasks = 0, 0, plan[GROUPS] * panels_of(rows)
    told = line_from(panels) + tasks * blocks_of(channels) * taps_of(plan) * step_bytes(like)
    for i in range(tasks):
        both = pointer(told + i * LINE, np.int64)
        most = max(most, both[1])
        if both[0] > 0 and (least == 0 or both[0] < least):
            least = both[0]
    return least, most


@device
def split_bands(like, bands, channels, out, plan):
    """Take apart the bands of so many channels, with zeros for what is missing of 32; the exponent
    of the largest number."""
    each, lines, blocks = channel_of(plan), lines_of(plan), blocks_of(channels)
    size = like.itemsize
    numbers = pointer(bands + channels * each * size, bits_type(like.dtype))
    for i in range((blocks * STEP - channels) * each + beyond(plan)):
        numbers[i] = 0
    peak, room = scratch(LINE), scratch(ROOM_BYTES)
    clear(pointer(peak, np.float32), peak)
    for block in range(blocks):
        first, row = bands + block * STEP * each * size, each * size
        split_places(
            *(like, lines // EDGE, first, row, EDGE * row, each, each),
            *(out + block * lines * LINE, blocks * lines * LINE, room, peak),
        )
    return exponent_of(peak)


@device
def multiply_bands(like, rows, tiles, steps, x, places, gap, factors, panel, out, parts):
    """So many tiles of places at ``x`` times all panels of a phase, to panels at ``out``."""
    room = scratch(LINE)
    begin_tiles(pointer(out, np.float32), EDGE, room)
    for c in range(0, panels_of(rows), 2):
        many = min(2, panels_of(rows) - c)
        for i in range(0, tiles, 2):
            amx_bands(
                *(like, min(2, tiles - i), many, steps, x + i * TILE, places, gap),
                *(factors + c * panel, panel, out + (c * tiles + i) * TILE, tiles * TILE, parts),
            )
    end_tiles(pointer(out, np.float32), room)


@device
def write_places(like, rows, places, given, panel, bias, out, out_row):
    """Write so many places at ``given``, all panels of a line, to a line of each channel."""
    for c in range(0, rows, EDGE):
        at, more = given + c // EDGE * panel, bias + c * like.itemsize if bias else 0
        for i in range(0, places, EDGE):
            turn_places(
                *(like, min(EDGE, places - i), min(EDGE, rows - c), at + i * LINE, more),
                *(out + c * out_row + i * like.itemsize, out_row),
            )


@device(allocates=True)
def unit_block(task, out, x, weight, ordered, bias, biased, plan, how):
    """``correlate_block`` on the unit.

    ordered: whether the weight lies as it is multiplied; how: the addresses of ``list_steps`` and
    ``new_panels``, the extremes of its exponents, and how many parts of a number to multiply.
    """
    steps, panels, ends, parts = how
    y, z, group, image, images = block_of(task, x.shape[0], plan)
    inputs, height = x.shape[1] // plan[GROUPS], out.shape[1] // plan[GROUPS]
    blocks, count = blocks_of(inputs), taps_of(plan)
    space, kind, itemsize = (x.shape[2], x.shape[3], x.shape[4]), bits_type(x.dtype), x.itemsize
    plane, together = space[0] * space[1] * space[2] * itemsize, plan[TOGETHER]
    bands = new_bands(x, blocks * STEP, plan)
    source = address(x) + (image * x.shape[1] + group * inputs) * plane
    fill_bands(
        *(kind, itemsize, address(bands), source, x.shape[1] * plane, images, together, inputs),
        *(space, z, y, plan),
    )
    gap = blocks * lines_of(plan) * LINE
    split = new_lines(step_bytes(x) // TILE * gap + 2 * TILE)
    split_at = line_from(address(split))
    high = split_bands(x, address(bands), inputs, split_at, plan)
    by_unit = parts > 0
    if itemsize == 4:  # the one part of halves may be anything
        by_unit = by_unit and can_multiply(ends[0], high) and can_multiply(ends[1], high)
    row, lines = together * plan[WIDTH], min(plan[LINES], plan[GRID + 1] - y)
    width, of_plane = lines * row, plan[PARTS] * plan[TALL] * row
    ay, ax = plan[APART + 1], plan[APART + 2]
    direct, tiles = by_unit and plan[PHASES] == 1, (width + EDGE - 1) // EDGE
    sums = new_lines(panels_of(height) * tiles * TILE)
    sums_at = line_from(address(sums))
    made = np.empty(0 if direct else ax * height * width, kind)
    turned = np.empty(0 if by_unit or ordered else weight.size, kind)
    factors = address(weight)
    if not (by_unit or ordered):
        order_weight(address(turned), weight, inputs, plan)
        factors = address(turned)
    factors += group * plan[ROWS] * height * itemsize
    of_panel = blocks * count * step_bytes(x)
    panels = line_from(panels) + group * panels_of(height) * of_panel
    od, oh, ow = out.shape[2], out.shape[3], out.shape[4]
    channel, more = image * out.shape[1] + group * height, 0
    if biased:
        more = address(bias) + group * height * itemsize
    for i in range(min(plan[DEEP], plan[GRID] - z)):
        done = 0
        for phase in range(plan[PHASES]):
            rows = plan[plan[COUNTS] + phase]
            to = address(made) + phase % ax * height * width * itemsize
            if by_unit and rows > 0:
                before = done // inputs * blocks
                multiply_bands(
                    *(x, height, tiles, rows // inputs * blocks),
                    *(split_at + i * plan[STEPS] * of_plane * LINE, steps + before * 8),
                    *(gap, panels + before * step_bytes(x), of_panel, sums_at, parts),
                )
            if by_unit and rows > 0 and not direct:
                write_places(x, height, width, sums_at, tiles * TILE, more, to, width * itemsize)
            elif not direct:
                start = to if biased else 0
                if biased or rows == 0:
                    begin_with(out, to, height, width, width, bias, biased, group * height)
                if rows > 0:
                    base = address(bands) + i * plan[STEPS] * of_plane * itemsize
                    right = address(plan) + (plan[PLACES] + done) * 8, base
                    left = factors + done * height * itemsize, rows
                    product = *left, *right, start, width, to, width
                    gemm(out, 0, LISTED, height, width, rows, *product)
            done += rows
            if not direct and phase % ax == ax - 1:
                oz, oy = (z + i) * plan[APART] + phase // (ax * ay), y * ay + phase // ax % ay
                lay_out(
                    *(out, kind, address(made), images, channel, height, oz, oy, ay, ax),
                    *(lines, row, plan[WIDTH]),
                )
        for j in range(images * lines if direct else 0):
            at = sums_at + (j // images * row + j % images * plan[WIDTH]) * LINE
            to = channel + j % images * out.shape[1]
            to = ((to * od + z + i) * oh + y + j // images) * ow
            to, of_channel = address(out) + to * itemsize, od * oh * ow * itemsize
            write_places(x, height, ow, at, tiles * TILE, more, to, of_channel)
    keep(bands)
    keep(split)
    keep(sums)
    keep(made)
    keep(turned)
