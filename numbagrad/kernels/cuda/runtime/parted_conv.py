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
from ...halves import BFLOAT16, HALVES
from . import device, parted
from .halves import has_groups
from .intrinsics import load4, store4
from .launch import start, strided_grid
from .parted import PARTS, PEAK, in_shares, read8, take8, usual
from .pipeline import address
from .ring import BYTES, Shape, placer
from .shape import BLOCK, WARPS
from .squares import repeated
from .warp import block_max, called, pasted, split
from .warpgroups import ALIGN, CAPABILITY, begin_of_slices, walker, writer
from .wgmma import DEPTH

__all__ = ["SHAPES", "multiplied", "plan_for"]

PIECE = 8
"""Channels of a place that lie together."""

SIDE = 32
"""Places whose channels a block brings together at once."""

TAKERS = 528
"""Blocks that rewrite a factor, at the most."""

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

OTHERS = {3: 19e3, 2: 30e3, 1: 42e3}
"""Multiplications that the kernels of ``conv.py`` make in a microsecond, by parts."""


# -- channels together -----------------------------------------------------------------------------


@called
def _together(parts, first, x, rows, many, a, b, c, channels, count, block, blocks):
    """Write the parts of this thread's rows; the largest bits of a number, without sign.

    A row is eight and eight channels, padded by zeros; element (p, i, channel) of x for row
    p * many + i is at p * a + i * b + channel * c.
    """
    pieces = (channels + PIECE - 1) // PIECE
    pitch = pieces * PIECE
    peak = int32(0)
    lane, warp = cuda.threadIdx.x % SIDE, cuda.threadIdx.x // SIDE
    row = block * SIDE + lane
    while row < rows:
        p, i = split(row, many)
        piece = warp
        while piece < pieces:
            at = p * a + i * b + piece * PIECE * c
            v = read8(x, at, c, channels - piece * PIECE)
            to = first + row * pitch + piece * PIECE
            peak = max(peak, take8(parts, to, rows * pitch, count, v))
            piece += BLOCK // SIDE
        row += blocks * SIDE
    return peak


def channels_together(
    parts, peaks, x, y, count, y_first, takers, others,
    x_rows, x_many, x_a, x_b, x_c, x_channels, y_rows, y_many, y_a, y_b, y_c, y_channels,
):  # fmt: skip
    """The first ``takers`` blocks rewrite x, the ``others`` y, whose parts begin at y_first."""
    shared = cuda.shared.array(WARPS, int32)
    block = cuda.blockIdx.x
    if block < takers:
        peak = _together(
            parts, 0, x, x_rows, x_many, x_a, x_b, x_c, x_channels, count, block, takers
        )
    else:
        peak = _together(
            parts, y_first, y, y_rows, y_many, y_a, y_b, y_c, y_channels, count, block - takers,
            others,
        )  # fmt: skip
    peak = block_max(peak, shared)
    if cuda.threadIdx.x == 0:
        peaks[block] = peak


# -- the product -----------------------------------------------------------------------------------


@pasted
def _ending(row, col, v, out, bias, begin, n, m, many, image, line, biased, paired):
    """Write four numbers of row ``row``; places col to col + 3, ``many`` of which are an image."""
    v0, v1, v2, v3 = v
    if row < n and col < m:
        if biased:
            more = bias[row]
            v0, v1, v2, v3 = v0 + more, v1 + more, v2 + more, v3 + more
        picture = int64(uint32(col) // uint32(many))
        at = begin + picture * image + row * line + (col - picture * many)
        if paired and col + 4 <= m:
            store4(out, at, v0, v1, v2, v3)
        else:
            out[at] = v0
            if col + 1 < m:
                out[begin + _beside(col + 1, row, many, image, line)] = v1
            if col + 2 < m:
                out[begin + _beside(col + 2, row, many, image, line)] = v2
            if col + 3 < m:
                out[begin + _beside(col + 3, row, many, image, line)] = v3


@pasted
def _beside(col, row, many, image, line):
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


@functools.lru_cache(maxsize=256)
def geometry(
    source: tuple[int, ...], result: tuple[int, ...], window: tuple[int, ...], pitch: int,
    strides: tuple[int, ...], shifts: tuple[int, ...], steps: tuple[int, ...],
) -> tuple[Any, Any]:  # fmt: skip
    """Tables on the device: of the places of ``result``, and of the pieces of a patch.

    Place i of the result meets tap t at ``i * stride + shift + t * step`` of the source, which has
    ``pitch`` numbers at each place. A row of both is the numbers to go there, and coordinates.
    """
    scale = np.array([source[1] * source[2] * pitch, source[2] * pitch, pitch])

    def rows(space: tuple[int, ...], factors: Any, shifts: Any) -> Any:
        at = np.indices(space).reshape(3, -1).T * np.array(factors) + np.array(shifts)
        return np.column_stack([at @ scale, at])

    taps, pieces = rows(window, steps, (0, 0, 0)), pitch // PIECE
    taps = np.repeat(taps, pieces, 0)
    taps[:, 0] += np.tile(np.arange(pieces) * PIECE, len(taps) // pieces)
    places = rows(result, strides, shifts)
    return device.table(places.astype(np.int32)), device.table(taps.astype(np.int32))


@dataclass(frozen=True)
class Rows:
    """A factor as ``channels_together`` finds it: element (p, i, channel) of row p * many + i."""

    rows: int
    many: int
    a: int
    b: int
    c: int
    channels: int

    @property
    def pitch(self) -> int:
        """Numbers of a row when it is rewritten."""
        return -(-self.channels // PIECE) * PIECE

    @property
    def takers(self) -> int:
        """Blocks that rewrite it."""
        return min(-(-self.rows // SIDE), TAKERS)

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.rows, self.many, self.a, self.b, self.c, self.channels


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
    images, channels, *source = y.shape
    plane = math.prod(source)
    right = Rows(images * plane, plane, channels * plane, 1, plane, channels)
    if kind == "weight":
        n, _, *window = out.shape
        result = x.shape[2:]
        many = math.prod(result)
        left = Rows(images * many, many, n * many, 1, many, n)
        x_far, x_steps = left.pitch, (many, n * many, 1)
    else:
        n, result, window = out.shape[1], out.shape[2:], x.shape[2:]
        many, taps = math.prod(result), math.prod(window)
        own = x.shape[1] * taps
        first, second = (own, taps) if kind == "forward" else (taps, own)
        left = Rows(n * taps, taps, first, 1, second, channels)
        x_far, x_steps = taps * left.pitch, (first, second, 1)
    width = math.prod(window) * right.pitch
    m, k = (width, images * many) if kind == "weight" else (images * many, width)
    numbers = left.rows * left.pitch + right.rows * right.pitch
    work = n * math.prod(window) * channels * images * many
    if max(m, k, plane * right.pitch, many) >= 1 << 30 or parts * numbers * BYTES > 1 << 32:
        return False
    rows, shares = plan_for(n, m, k, parts, numbers, work)
    if not rows:
        return False
    if kind == "input":
        tables = geometry(
            tuple(source), tuple(result), tuple(window), right.pitch, (1, 1, 1), paddings,
            tuple([-d for d in dilations]),
        )  # fmt: skip
    else:
        tables = geometry(
            tuple(source), tuple(result), tuple(window), right.pitch, strides,
            tuple([-p for p in paddings]), dilations,
        )  # fmt: skip
    shape = SHAPES[parts, rows]
    share = -(-k // (shares * DEPTH)) * DEPTH
    shares = -(-k // share)
    y_first = parts * left.rows * left.pitch
    given = device.empty((parts * numbers,), out.dtype if half else BFLOAT16, out.device)
    takers, others = left.takers, right.takers
    peaks = device.empty((takers + others,), PEAK, out.device)
    start(
        channels_together, takers + others, BLOCK, given, peaks, x, y, parts, y_first, takers,
        others, *left.numbers, *right.numbers,
    )  # fmt: skip
    apart = shares > 1 or kind == "weight"
    target, to = out, (many, n * many, many)
    if apart:
        target, to = device.empty((shares, n, m), np.dtype(np.float32), out.device), (m, 0, m)
    paired = not (target.pointer % 16 or to[0] % 4)
    start(
        conv_kernel(given.dtype, parts, rows, kind == "weight", half),
        (-(-n // rows) * -(-m // shape.cols), 1, shares), shape.threads,
        target, x, y, bias, given, peaks, *tables, n, m, k, many, y_first, x_far,
        left.rows * left.pitch, right.rows * right.pitch, plane * right.pitch, *source,
        width // PIECE, channels, right.pitch // PIECE, *x_steps, share, shares, *to, n * m,
        int(biased and not apart), int(paired), takers, others, shared=shape.shared,
    )  # fmt: skip
    if apart:
        steps = (m, 1, right.pitch) if kind == "weight" else (many, m, 1)
        sizes = (channels, math.prod(window)) if kind == "weight" else (n, many)
        start(
            placed, strided_grid(out.size), BLOCK, out, target, bias, int(biased), out.size, *sizes,
            *steps, n * m, shares,
        )  # fmt: skip
    return True
