"""Convolutions on tensor cores by ``wgmma``: products whose right factor, the patches, is not made.

As in ``parted.py`` a float32 is the sum of three bfloat16; halves are taken as they are. The first
launch writes both factors with their channels together, eight by eight, so that eight channels of a
place are 16 bytes, which a copy takes from there to where a patch has them in shared memory. Zeros
stand for what is outside. Going forward, and for the gradient of the input, where strides are 1,
rows of the result are channels and columns are places, and k goes along taps and channels; for the
gradient of the weight columns are taps and channels and k goes along places. Start reading at
``multiplied``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint32

from ... import precision
from ...halves import BFLOAT16, FLOAT32, HALVES
from . import parted
from .channels import PIECE, Rows, channels_together, geometry
from .halves import has_groups
from .intrinsics import load4, store4
from .launch import start, strided_grid
from .parted import PARTS, PEAK, in_shares, scratch, usual
from .pipeline import address
from .ring import BYTES, Shape, placer
from .shape import BLOCK
from .squares import repeated
from .warp import pasted, split
from .warpgroups import ALIGN, CAPABILITY, begin_of_slices, walker, writer
from .wgmma import DEPTH

__all__ = ["SHAPES", "multiplied", "plan_for"]

SHAPES = {
    (3, 64): Shape(4, 1, 16, 128, DEPTH, 2, 50.0, ALIGN, 3),
    (3, 128): Shape(8, 1, 16, 128, DEPTH, 2, 46.0, ALIGN, 3),
    (2, 64): Shape(4, 1, 16, 128, DEPTH, 3, 30.0, ALIGN, 2),
    (2, 128): Shape(8, 1, 16, 128, DEPTH, 3, 25.0, ALIGN, 2),
    (1, 64): Shape(4, 1, 16, 128, DEPTH, 4, 14.0, ALIGN, 1),
    (1, 128): Shape(8, 1, 16, 128, DEPTH, 4, 14.0, ALIGN, 1),
}
"""By parts and rows of a tile; times as in ``halves.SHAPES``."""

TAKING, EACH = 5000, 0.6
"""Nanoseconds for the launch that rewrites factors, and for 1024 bytes that it moves."""

MOST_PLACES = 1 << 18
"""Of an image of the result, for each of which a table has 16 bytes."""

OTHERS = {3: 19e3, 2: 30e3, 1: 42e3}
"""Multiplications that the kernels of ``conv.py`` make in a nanosecond, by parts."""


# -- the product -----------------------------------------------------------------------------------


@pasted
def _ending(row, col, v, out, bias, begin, n, m, many, image, line, biased, paired):
    """Write four numbers of row ``row``; places col to col + 3, ``many`` of which are an image."""
    v0, v1, v2, v3 = v
    if row < n and col < m:
        if biased:
            more = bias[row]
            v0, v1, v2, v3 = v0 + more, v1 + more, v2 + more, v3 + more
        at = begin + _place(col, row, many, image, line)
        if paired and col + 4 <= m:
            store4(out, at, v0, v1, v2, v3)
        else:
            out[at] = v0
            if col + 1 < m:
                out[begin + _place(col + 1, row, many, image, line)] = v1
            if col + 2 < m:
                out[begin + _place(col + 2, row, many, image, line)] = v2
            if col + 3 < m:
                out[begin + _place(col + 3, row, many, image, line)] = v3


@pasted
def _place(col, row, many, image, line):
    picture = int64(uint32(col) // uint32(many))
    return picture * image + row * line + (col - picture * many)


@functools.cache
def conv_kernel(dtype: np.dtype, parts: int, rows: int, across: bool, whole: bool) -> Any:
    """The kernel; rows: of a tile; across: taps and channels are columns, and places go along k.

    whole: the factors are halves, which need not be taken apart.
    """
    shape = SHAPES[parts, rows]
    threads, numbers = shape.threads, rows * shape.cols // shape.threads
    tall, warps = rows // 64 * 128 // threads, threads // 32
    walk = walker(dtype, shape, not across, across, patches=True)
    write, tile_of = writer(shape, _ending), placer(shape.rows, shape.cols)

    @pasted
    def seen(y, places, taps, picture, place, q, i, channels, pieces, depth, height, width):
        """Channel i of piece q of the patch at a place."""
        _, z, h, w = load4(places, 4 * int64(place))
        _, dz, dh, dw = load4(taps, 4 * int64(q))
        c = uint32(q) % uint32(pieces) * uint32(PIECE) + uint32(i)
        z, h, w = z + dz, h + dh, w + dw
        value = float32(0)
        if c < channels and 0 <= z < depth and 0 <= h < height and 0 <= w < width:
            value = y[(((picture * channels + c) * depth + z) * height + h) * width + w]
        return value

    @pasted
    def factor_of(col, y, places, taps, at, many, *sizes):
        """What of y is multiplied in step ``at`` for a column."""
        if across:
            picture, place = uint32(at) // uint32(many), uint32(at) % uint32(many)
            return seen(y, places, taps, picture, place, col // uint32(8), col % uint32(8), *sizes)
        picture, place = col // uint32(many), col % uint32(many)
        q, i = uint32(at) // uint32(8), uint32(at) % uint32(8)
        return seen(y, places, taps, picture, place, q, i, *sizes)

    @pasted
    def column(j, sums, first, factors, v0, v1):
        for c in range(2):
            sums[first + 4 * j + c] += v0 * factors[2 * j + c]
            sums[first + 4 * j + 2 + c] += v1 * factors[2 * j + c]

    columns, neighbours = repeated(column, shape.cols // 8), shape.cols // 4

    @pasted
    def plain(
        sums, x, y, places, taps, n, m, begin, k, many, x_row, x_a, x_b, first_row, first_col,
        channels, pieces, depth, height, width,
    ):  # fmt: skip
        """The numbers of this thread, as ``wgmma`` would give them to it; slow."""
        factors = cuda.local.array(neighbours, float32)
        warp, lane = cuda.threadIdx.x // 32, cuda.threadIdx.x % 32
        for i in range(numbers):
            sums[i] = float32(0)
        for step in range(begin, begin + k):
            if across:  # step: of places; x: images apart by x_a
                part, rest = uint32(step) // uint32(many), uint32(step) % uint32(many)
                there = True
            else:  # of taps, and of channels, apart by x_a
                q = uint32(step) // uint32(8)
                rest = q // uint32(pieces)
                part = q % uint32(pieces) * uint32(8) + uint32(step) % uint32(8)
                there = part < channels
            for j in range(neighbours):
                col = first_col + lane % 4 * 2 + j // 2 * 8 + j % 2
                factors[j] = factor_of(
                    uint32(min(col, m - 1)), y, places, taps, step, many, channels, pieces, depth,
                    height, width,
                )  # fmt: skip
            for i in range(tall):
                row = first_row + (warp // 4 * tall + i) * 64 + warp % 4 * 16 + lane // 4
                at = part * x_a + rest * x_b
                v0 = x[min(row, n - 1) * x_row + at] if there else float32(0)
                v1 = x[min(row + 8, n - 1) * x_row + at] if there else float32(0)
                columns(0, sums, i * (numbers // tall), factors, v0, v1)

    def convolved(
        out, x, y, bias, given, peaks, places, taps, n, m, k, many, y_first, x_far, x_part, y_part,
        image, depth, height, width, last, channels, pieces, x_row, x_a, x_b, share, shares,
        out_many, out_image, out_row, out_share, biased, paired, takers, others,
    ):  # fmt: skip
        """given: the rewritten factors, that of y from y_first on; x_far: from row to row of x,
        part: from part to part; image: of an image of y. places, taps: see ``geometry``, of which
        an image has ``many`` places and a patch ``last`` pieces. The result has its places by
        images of ``out_many``. The others are of the factors as they were.
        """
        room = cuda.shared.array(warps, int32)
        sums = cuda.local.array(numbers, float32)
        acc = cuda.local.array(numbers, float32)
        n, m, k = int32(n), int32(m), int32(k)
        first_row, first_col = tile_of(n, m)
        base = begin_of_slices()
        begin = int32(int32(cuda.blockIdx.z) * int32(share))
        steps = int32(min(share, k - begin))
        if whole or usual(peaks, takers, others, threads, room):
            at_x = address(given) + (begin * x_far if across else int64(begin)) * BYTES
            left = at_x, n, x_far, x_part
            at_y = address(given) + y_first * BYTES
            right = (at_y, places, taps, many, m, begin, image, depth, height, width, last, y_part)
            walk(sums, acc if parts > 1 else sums, base, left, right, steps, first_row, first_col)
        else:
            plain(
                sums, x, y, places, taps, n, m, begin, steps, many, x_row, x_a, x_b, first_row,
                first_col, channels, pieces, depth, height, width,
            )  # fmt: skip
        write(
            sums, base, first_row, first_col, out, bias, cuda.blockIdx.z * out_share, n, m,
            out_many, out_image, out_row, biased, paired,
        )  # fmt: skip

    convolved.launch_bounds = shape.threads, 1  # type: ignore[attr-defined]
    convolved.capability = CAPABILITY  # type: ignore[attr-defined]
    return convolved


def placed(out, some, bias, biased, size, b_size, c_size, a_step, b_step, c_step, apart, shares):
    """Number (a, b, c) of out is the sum of ``shares`` numbers of some, ``apart`` elements from one
    another, and the bias of b."""
    e = cuda.grid(1)
    while e < size:
        rest, c = split(e, c_size)
        a, b = split(rest, b_size)
        at = a * a_step + b * b_step + c * c_step
        total = some[at]
        for share in range(1, shares):
            total += some[at + share * apart]
        if biased:
            total += bias[b]
        out[e] = total
        e += cuda.gridsize(1)


# -- how a convolution is made ---------------------------------------------------------------------


@functools.lru_cache(4096)
def plan_for(n: int, m: int, k: int, parts: int, numbers: int, work: int) -> tuple[int, int]:
    """Rows of a tile, and in how many shares the steps should be made; 0 if other kernels should
    end sooner. numbers: of both rewritten factors; work: multiplications of the convolution."""
    best, least = (0, 0), 4000 + work / OTHERS[parts]
    taking = TAKING + EACH * numbers * (4 + BYTES * parts) / 1024
    for rows in (64, 128):
        shape = SHAPES[parts, rows]
        tiles = -(-n // rows) * -(-m // shape.cols)
        time, shares = in_shares(tiles, 4 * n * m, k, shape.cost)
        if taking + time < least:
            least, best = taking + time, (rows, shares)
    return best


@dataclass(frozen=True)
class Sizes:
    """Of a convolution as a product: rows and columns of the result, steps, and both factors.

    source, result, window: the space of what patches are taken of, of the places, and of the taps.
    """

    n: int
    m: int
    k: int
    left: Rows
    right: Rows
    left_line: int
    """Numbers from line to line of the rewritten left factor."""
    left_steps: tuple[int, int, int]
    """Numbers of the left factor as it was from row to row, from image or channel to the next, and
    from place or tap."""
    source: tuple[int, ...]
    result: tuple[int, ...]
    window: tuple[int, ...]

    @property
    def numbers(self) -> int:
        """Of both rewritten factors."""
        return self.left.rows * self.left.pitch + self.right.rows * self.right.pitch

    @property
    def work(self) -> int:
        """Multiplications."""
        places = self.right.rows // self.right.many * math.prod(self.result)
        return self.n * math.prod(self.window) * self.right.channels * places

    @property
    def fit(self) -> bool:
        """Whether a kernel can count in 32 bits, and a table of places is small."""
        image = math.prod(self.source) * self.right.pitch
        return max(self.m, self.k, image) < 1 << 30 and math.prod(self.result) <= MOST_PLACES


@functools.lru_cache(1024)
def sizes_of(kind: str, out: tuple[int, ...], x: tuple[int, ...], y: tuple[int, ...]) -> Sizes:
    """Those for a result, and for the factors of ``multiplied``, of these shapes."""
    images, channels, *source = y
    plane = math.prod(source)
    right = Rows(images * plane, plane, channels * plane, 1, plane, channels)
    if kind == "weight":
        n, result, window = out[0], x[2:], out[2:]
        many, width = math.prod(result), math.prod(window) * right.pitch
        left = Rows(images * many, many, n * many, 1, many, n)
        steps = many, n * many, 1
        return Sizes(n, width, images * many, left, right, left.pitch, steps, y[2:], result, window)
    n, result, window = out[1], out[2:], x[2:]
    taps, places = math.prod(window), images * math.prod(result)
    own = x[1] * taps
    first, second = (own, taps) if kind == "forward" else (taps, own)
    left = Rows(n * taps, taps, first, 1, second, channels)
    steps, line = (first, second, 1), taps * left.pitch
    return Sizes(n, places, taps * right.pitch, left, right, line, steps, y[2:], result, window)


def multiplied(
    kind: str, out: Any, x: Any, y: Any, bias: Any, biased: int, form: tuple[int, ...]
) -> bool:
    """Make a convolution ("forward") or one of its gradients ("input", "weight") as ``conv.py``
    does, if the device can and it pays; whether it did.

    x: the weight, but for its own gradient g; y: what patches are taken of. form: groups, strides,
    paddings, dilations.
    """
    groups, strides, paddings, dilations = form[0], form[1:4], form[4:7], form[7:10]
    half = out.dtype in HALVES
    if groups != 1 or not out.size or not y.size or not x.size or not has_groups():
        return False
    if out.itemsize > 4 or (kind == "input" and strides != (1, 1, 1)):
        return False
    if not (half or parted.ALLOWED):
        return False
    parts = 1 if half else PARTS[precision.float32_products]
    sizes = sizes_of(kind, out.shape, x.shape, y.shape)
    if not sizes.fit or parts * sizes.numbers * BYTES > 1 << 32:
        return False
    n, m, k = sizes.n, sizes.m, sizes.k
    rows, shares = plan_for(n, m, k, parts, sizes.numbers, sizes.work)
    if not rows:
        return False
    steps, shifts = dilations, tuple([-p for p in paddings])
    if kind == "input":  # whose strides are 1
        steps, shifts = tuple([-d for d in dilations]), paddings
    left, right = sizes.left, sizes.right
    units = (sizes.source[1] * sizes.source[2], sizes.source[2], 1)
    reaches = zip(sizes.result, strides, shifts, sizes.window, steps, units, strict=True)
    reach = sum([(a * s + abs(b) + c * abs(d)) * unit for a, s, b, c, d, unit in reaches])
    if reach * right.pitch >= 1 << 31:
        return False  # what tables hold has 32 bits
    tables = geometry(sizes.source, sizes.result, sizes.window, right.pitch, strides, shifts, steps)
    share = -(-k // (shares * DEPTH)) * DEPTH
    shares, shape = -(-k // share), SHAPES[parts, rows]
    y_first = parts * left.rows * left.pitch
    takers, others = left.takers, right.takers
    many, apart = math.prod(sizes.result), shares > 1 or kind == "weight"
    asked: list[Any] = [((parts * sizes.numbers,), out.dtype if half else BFLOAT16)]
    asked += [((takers + others,), PEAK), *[((shares, n, m), FLOAT32)] * apart]
    found = scratch(out.device, *asked)
    if found is None:
        return False
    given, peaks = found[:2]
    target, to = (found[2], (m, 0, m)) if apart else (out, (many, n * many, many))
    start(
        channels_together, takers + others, BLOCK, given, peaks, x, y, parts, y_first, takers,
        others, *left.numbers, *right.numbers,
    )  # fmt: skip
    paired = not (target.pointer % 16 or to[0] % 4)
    start(
        conv_kernel(given.dtype, parts, rows, kind == "weight", half),
        (-(-n // rows) * -(-m // shape.cols), 1, shares), shape.threads,
        target, x, y, bias, given, peaks, *tables, n, m, k, many, y_first, sizes.left_line,
        left.rows * left.pitch, right.rows * right.pitch, math.prod(sizes.source) * right.pitch,
        *sizes.source, tables[1].shape[0], right.channels, right.pitch // PIECE, *sizes.left_steps,
        share, shares, *to, n * m, int(biased and not apart), int(paired), takers, others,
        shared=shape.shared,
    )  # fmt: skip
    if apart:
        space = (right.channels, math.prod(sizes.window)) if kind == "weight" else (n, many)
        along = (m, 1, right.pitch) if kind == "weight" else (many, m, 1)
        start(
            placed, strided_grid(out.size), BLOCK, out, target, bias, int(biased), out.size, *space,
            *along, n * m, shares,
        )  # fmt: skip
    return True
