"""The gradient of a convolution's weight on the matrix unit: products of bands, summed over places.

The gradient of the output is taken apart into panels of 16 channels, laid out as the bands are,
with zeros where these have zeros between lines; the bands so that the unit sums over their places,
each number beside the one 16 places further on. A tap's tiles are where it sees the band. What the
unit cannot take apart goes to ``gemm``, a line at a time. Start at ``weight_block``.
"""

from __future__ import annotations

import numpy as np

from ..amx import EDGE, LINE, PANEL_BYTES, STEP, TILE, begin_tiles, clear, end_tiles, exponent_of
from ..amx_bands import add_tiles, amx_weight, pair_rows, split_places
from ..copies import copy_rectangle, transpose
from ..half_type import bits_type
from ..inner import device, keep, pasted
from ..intrinsics import address, pointer, store_at
from ..pieces import thread_count
from ..product import WIDE_OUT, gemm
from ..tile import scratch
from .amx_product import PEAK_BYTES, can_multiply, split_all
from .bands import (
    COUNTS,
    DEEP,
    GRID,
    GROUPS,
    LINES,
    ORDER,
    PARTS,
    PLACES,
    STEPS,
    TALL,
    TOGETHER,
    WIDTH,
    beyond,
    channel_of,
    fill_bands,
    new_bands,
)
from .unit_bands import ROOM_BYTES, line_from, new_lines, panels_of, step_bytes

__all__ = ["collect_panel", "cut", "of_sums", "weight_block"]

CHUNKS = 4
"""Most chunks of images that have sums of their own."""

TERMS = 1536
"""Places that a chunk has at least, before it pays to add its sums to those of others."""

SQUARE, TILES = TILE, 4 * TILE

PANELS = 2
"""Panels of a task at least: each task takes the bands apart, so there are no more than threads."""


@device
def cut(images, places, rows, plan):
    """Into how many chunks the images are cut, and the panels of a group."""
    groups = plan[GROUPS]
    chunks = max(1, min(images, CHUNKS // groups, images * places // TERMS))
    tasks = groups * chunks
    return chunks, max(1, min((thread_count() + tasks - 1) // tasks, panels_of(rows) // PANELS))


@pasted
def of_sums(rows, channels, taps):
    """Numbers in the sums of a group."""
    return panels_of(rows) * panels_of(channels) * EDGE * EDGE * taps


@device(allocates=True)
def weight_block(task, chunks, shares, sums, g, x, plan, parts):
    """Some panels of a group, summed over a chunk of the images, added to the sums of the chunk: a
    matrix for each tap, with a row for each channel of g and a column for each of x."""
    groups, together, taps = plan[GROUPS], plan[TOGETHER], plan[COUNTS] - plan[ORDER]
    share, group, chunk = task % shares, task // shares % groups, task // (shares * groups)
    inputs, height = x.shape[1] // groups, g.shape[1] // groups
    panels, blocks = panels_of(height), panels_of(inputs)
    first = share * panels // shares * EDGE
    rows = min(height, (share + 1) * panels // shares * EDGE) - first
    space, kind, itemsize = (x.shape[2], x.shape[3], x.shape[4]), bits_type(x.dtype), x.itemsize
    plane = space[0] * space[1] * space[2] * itemsize
    deep, tall, across = plan[GRID], plan[GRID + 1], plan[GRID + 2]
    each, row = channel_of(plan), together * plan[WIDTH]
    long = (plan[LINES] * row + STEP - 1) // STEP * STEP
    lines = (each + beyond(plan) + 2 * STEP + EDGE - 1) // EDGE * EDGE
    of_plane = plan[PARTS] * plan[TALL] * row
    bands, flat = new_bands(x, blocks * EDGE, plan), np.empty(rows * long, kind)
    gap, panel = blocks * lines * LINE, long // STEP * step_bytes(x)
    apart = step_bytes(x) // TILE * gap
    split = new_lines(apart + panels_of(rows) * panel)
    bands_at = line_from(address(split))
    panels_at = bands_at + apart
    highs, held = np.zeros(2 * panels_of(rows), np.int64), np.zeros(panels_of(rows), np.int64)
    sums += ((chunk * groups + group) * of_sums(height, inputs, taps) + first * blocks * EDGE) * 4
    image, end = chunk * x.shape[0] // chunks, (chunk + 1) * x.shape[0] // chunks
    while image < end:
        images = min(together, end - image)
        source = address(x) + (image * x.shape[1] + group * inputs) * plane
        across_blocks = (tall + plan[LINES] - 1) // plan[LINES]
        for block in range((deep + plan[DEEP] - 1) // plan[DEEP] * across_blocks):
            z, y = block // across_blocks * plan[DEEP], block % across_blocks * plan[LINES]
            fill_bands(
                *(kind, itemsize, address(bands), source, x.shape[1] * plane, images),
                *(together, inputs, space, z, y, plan),
            )
            least, most = split_pairs(x, address(bands), inputs, lines, bands_at, plan)
            count = min(plan[LINES], tall - y)
            for i in range(min(plan[DEEP], deep - z)):
                given = ((image * g.shape[1] + group * height + first) * deep + z + i) * tall + y
                given = address(g) + given * across * itemsize
                of_channel = deep * tall * across * itemsize
                lay_flat(
                    *(x, address(flat), long, given, g.shape[1] * of_channel, of_channel, rows),
                    *(images, count, row, plan[WIDTH], across),
                )
                split_flat(x, address(flat), rows, long, panels_at, panel, address(highs))
                for p in range(panels_of(rows)):
                    held[p] = parts > 0 and fits(highs[2 * p], highs[2 * p + 1], least, most)
                for t in range(taps):
                    at = i * plan[STEPS] * of_plane + plan[plan[PLACES] + t] // itemsize
                    to = sums + t * panels * blocks * EDGE * EDGE * 4
                    multiply_taps(
                        *(x, held, rows, blocks, long // STEP, panels_at, panel),
                        *(bands_at + at * LINE, gap, lines * LINE, to, parts),
                    )
                    for p in range(panels_of(rows)):
                        if held[p]:
                            continue
                        some, wide = min(EDGE, rows - p * EDGE), blocks * EDGE
                        there, how = to + p * EDGE * wide * 4, WIDE_OUT if itemsize == 2 else 0
                        for j in range(images * count):
                            place = j // images * row + j % images * plan[WIDTH]
                            left = address(flat) + (p * EDGE * long + place) * itemsize, long
                            right = address(bands) + (at + place) * itemsize, each
                            product = *left, *right, there, wide, there, wide
                            gemm(x, how, 1, some, inputs, across, *product)
        image += images
    keep(bands)
    keep(flat)
    keep(split)
    keep(highs)
    keep(held)


@device
def split_pairs(like, bands, channels, lines, out, plan):
    """Take apart the bands of so many channels, with zeros for what is missing of 16: the least
    exponent of 16 channels that is not 0, and the largest."""
    each, blocks = channel_of(plan), panels_of(channels)
    size = like.itemsize
    numbers = pointer(bands + channels * each * size, bits_type(like.dtype))
    for i in range((blocks * EDGE - channels) * each + beyond(plan)):
        numbers[i] = 0
    peak, room, least, most = scratch(LINE), scratch(ROOM_BYTES), 0, 0
    for block in range(blocks):
        clear(pointer(peak, np.float32), peak)
        split_places(
            *(like, lines // EDGE, bands + block * EDGE * each * size, each * size, EDGE * size),
            *(each, each - EDGE),
            *(out + block * lines * LINE, blocks * lines * LINE, room, peak),
        )
        high = exponent_of(peak)
        most = max(most, high)
        if high > 0 and (least == 0 or high < least):
            least = high
    return least, most


@device
def lay_flat(like, to, long, g, of_image, of_channel, rows, images, lines, row, width, across):
    """Write lines of so many channels of g at an address as bands have them, and zeros between."""
    numbers, size = pointer(to, bits_type(like.dtype)), like.itemsize
    for i in range(rows * long):
        numbers[i] = 0
    for o in range(rows):
        for j in range(images):
            at, from_ = to + (o * long + j * width) * size, g + j * of_image + o * of_channel
            copy_rectangle(numbers, at, row * size, from_, across * size, lines, across)


@pasted
def fits(low, high, least, most):
    """Whether the unit may multiply a panel of two such exponents by bands of others."""
    below = can_multiply(least, low) and can_multiply(least, high)
    return below and can_multiply(most, low) and can_multiply(most, high)


@device
def split_flat(like, flat, rows, long, out, panel, highs):
    """Take apart so many rows; highs: the address of the exponents of each eight of them."""
    peaks, told = scratch(PEAK_BYTES), scratch(LINE)
    floats = pointer(flat, np.float32)
    if like.itemsize == 2:
        for o in range(rows):
            to = out + o // EDGE * panel + o % EDGE * LINE
            pair_rows(like, long // STEP, flat + o * long * 2, to)
        return
    clear(floats, told)
    clear(floats, peaks)
    clear(floats, peaks + LINE)
    split_all(
        *(floats, True, False, flat, long * 4, rows, long, out, panel, PANEL_BYTES, peaks),
        *(highs, told),
    )


@device
def multiply_taps(like, held, rows, blocks, steps, factors, panel, bands, gap, block, out, parts):
    """Add the products of a tap: of the panels that are held, and of all blocks of channels."""
    room, tiles, out_row, i = scratch(LINE), scratch(TILES), blocks * LINE, 0
    floats, panels = pointer(out, np.float32), panels_of(rows)
    begin_tiles(floats, EDGE, room)
    while i < panels:
        many = 0
        if held[i]:
            many = 2 if i + 1 < panels and held[i + 1] else 1
            for c in range(0, blocks, 2):
                given = factors + i * panel, panel, bands + c * block, gap, block
                amx_weight(like, many, min(2, blocks - c), steps, *given, tiles, parts)
                to = out + i * EDGE * out_row + c * LINE
                add_tiles(floats, many, min(2, blocks - c), tiles, to, out_row)
        i += max(1, many)
    end_tiles(floats, room)


@device
def collect_panel(task, gweight, sums, chunks, groups):
    """Write what all chunks have summed of a panel, at an address, as the weight has it."""
    height, inputs = gweight.shape[0] // groups, gweight.shape[1]
    taps = gweight.shape[2] * gweight.shape[3] * gweight.shape[4]
    panels, wide = panels_of(height), panels_of(inputs) * EDGE
    group, first = task // panels, task % panels * EDGE
    each, of_tap = of_sums(height, inputs, taps), panels * EDGE * wide * 4
    square, total = scratch(SQUARE), scratch(SQUARE)
    given, whole = pointer(square, np.float32), pointer(total, np.float32)
    for o in range(first, min(height, first + EDGE)):
        for c in range(0, inputs, EDGE):
            for t in range(0, taps, EDGE):
                many = min(EDGE, taps - t)
                for chunk in range(chunks):
                    at = sums + ((chunk * groups + group) * each + o * wide + c) * 4 + t * of_tap
                    if chunk == 0:
                        transpose(given, at, of_tap, many, EDGE, total, LINE)
                        continue
                    transpose(given, at, of_tap, many, EDGE, square, LINE)
                    for i in range(EDGE * EDGE):
                        whole[i] += given[i]
                for i in range(min(EDGE, inputs - c)):
                    place = ((group * height + o) * inputs + c + i) * taps + t
                    for j in range(many):
                        store_at(address(gweight), place + j, whole[i * EDGE + j], gweight)
