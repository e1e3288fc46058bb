"""Products of float32 on tensor cores of bfloat16, as a CPU with a matrix unit makes them.

A float32 is exactly the sum of three bfloat16, and six products of such parts make one of float32:
see ``kernels/amx.py``, whose rules for numbers that cannot be taken apart are used too. The first
launch takes both factors apart and notes the largest number that each block has seen. The second
multiplies as ``warpgroups.py`` does. It adds up the products of a slice, of 64 steps, in the tensor
cores, which cut off what does not fit into a sum instead of rounding, and the sums of slices by
ordinary additions. Where a factor has numbers that are too large or too small, all blocks multiply
float32 instead. Start reading at ``multiplied``.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint32

from ....errors import OutOfMemoryError
from ... import precision
from ...halves import BFLOAT16
from . import device
from .halves import has_groups
from .intrinsics import float32_bits, load4, round_bfloat16, store8
from .launch import start
from .pipeline import address
from .product import ADDING, MULTIPROCESSORS, added, fastest
from .product import EACH as EACH_SHARE
from .ring import BYTES, NEW, Shape, placer
from .shape import BLOCK, SINGLES, WARPS
from .squares import repeated
from .tiles import MOST
from .warp import block_max, called, pasted, split
from .warpgroups import ALIGN, CAPABILITY, begin_of_slices, matrix_ending, walker, writer
from .wgmma import DEPTH

__all__ = [
    "PARTS",
    "PEAK",
    "SHAPES",
    "in_shares",
    "multiplied",
    "plan_for",
    "read8",
    "scratch",
    "take8",
    "usual",
]

PIECE = 8
"""Numbers that a thread takes apart at once: their parts are 16 bytes each."""

PEAK = np.dtype(np.int32)

TAKERS = 528
"""Blocks that take a factor apart, at the most."""

LARGEST, LOWEST, SMALLEST = 127 + 60, 127 - 80, 2 * 127 - 76
"""Exponents of the largest numbers of both factors: that of one from which sums may overflow that
would not in float32; that up to which parts may be under 2^-126, which tensor cores need not keep;
and the sum of both up to which their products may be."""

SHAPES = {
    3: Shape(8, 1, 16, 128, DEPTH, 2, 42.0, ALIGN, 3),
    2: Shape(8, 1, 16, 128, DEPTH, 3, 21.0, ALIGN, 2),
    1: Shape(8, 1, 16, 128, DEPTH, 4, 9.5, ALIGN, 1),
}
"""By parts. A multiprocessor has one block at a time."""

PARTS = {"highest": 3, "high": 2, "medium": 1}
"""How many of each number are multiplied, by what ``set_float32_matmul_precision`` has set."""

TAKING, EACH = 4000, 0.4
"""Nanoseconds for the launch that takes factors apart, and for 1024 bytes of them."""

SHORTEST, ROOM = 128, 1 << 26
"""Steps of a share that are worth a block, and bytes of all shares at the most."""

ALLOWED = os.environ.get("NUMBAGRAD_CUDA_PARTS", "1") != "0"
"""Whether float32 may be taken apart; users may ask for kernels without tensor cores."""

MOST_BYTES = 1 << 32
"""Of parts."""


@pasted
def take8(parts, to, apart, count, v):
    """Write ``count`` parts of eight numbers, ``apart`` elements from one another; the largest bits
    of one of them, without sign."""
    v0, v1, v2, v3, v4, v5, v6, v7 = v
    peak = int32(0)
    for each in (v0, v1, v2, v3, v4, v5, v6, v7):
        peak = max(peak, int32(float32_bits(each) & int32(0x7FFFFFFF)))
    for _ in range(count):
        store8(parts, to, v0, v1, v2, v3, v4, v5, v6, v7)
        v0, v1 = v0 - round_bfloat16(v0), v1 - round_bfloat16(v1)
        v2, v3 = v2 - round_bfloat16(v2), v3 - round_bfloat16(v3)
        v4, v5 = v4 - round_bfloat16(v4), v5 - round_bfloat16(v5)
        v6, v7 = v6 - round_bfloat16(v6), v7 - round_bfloat16(v7)
        to += apart
    return peak


@pasted
def read8(x, at, step, left):
    """Eight numbers from element ``at`` on, ``step`` apart, of which ``left`` are there."""
    zero = float32(0)
    return (
        x[at], x[at + step] if left > 1 else zero, x[at + 2 * step] if left > 2 else zero,
        x[at + 3 * step] if left > 3 else zero, x[at + 4 * step] if left > 4 else zero,
        x[at + 5 * step] if left > 5 else zero, x[at + 6 * step] if left > 6 else zero,
        x[at + 7 * step] if left > 7 else zero,
    )  # fmt: skip


@called
def _take_apart(
    parts, first, x, batches, lines, length, line, step, batch, wide, block, blocks, count
):  # fmt: skip
    """Write the parts of this thread's pieces; the largest bits of one of its numbers, without
    sign. count: of parts, see ``Factor`` for the others."""
    pieces = (length + PIECE - 1) // PIECE
    pitch = pieces * PIECE
    peak = int32(0)
    piece = block * BLOCK + cuda.threadIdx.x
    while piece < batches * lines * pieces:
        row, p = split(piece, pieces)
        b, i = split(row, lines)
        at = b * batch + i * line + p * PIECE * step
        left = length - p * PIECE
        to = first + (b * count * lines + i) * pitch + p * PIECE
        if wide and left >= PIECE:
            v0, v1, v2, v3 = load4(x, at)
            v4, v5, v6, v7 = load4(x, at + 4)
        else:
            v0, v1, v2, v3, v4, v5, v6, v7 = read8(x, at, step, left)
        v = v0, v1, v2, v3, v4, v5, v6, v7
        peak = max(peak, take8(parts, to, lines * pitch, count, v))
        piece += blocks * BLOCK
    return peak


def taken_apart(
    parts, peaks, x, y, count, y_first, takers, others,
    x_batches, x_lines, x_length, x_line, x_step, x_batch, x_wide,
    y_batches, y_lines, y_length, y_line, y_step, y_batch, y_wide,
):  # fmt: skip
    """The first ``takers`` blocks take x apart, the ``others`` y, whose parts begin at y_first.

    peaks: of each block. For each factor: see ``Factor``.
    """
    shared = cuda.shared.array(WARPS, int32)
    block = cuda.blockIdx.x
    if block < takers:
        peak = _take_apart(
            parts, 0, x, x_batches, x_lines, x_length, x_line, x_step, x_batch, x_wide, block,
            takers, count,
        )  # fmt: skip
    else:
        peak = _take_apart(
            parts, y_first, y, y_batches, y_lines, y_length, y_line, y_step, y_batch, y_wide,
            block - takers, others, count,
        )  # fmt: skip
    peak = block_max(peak, shared)
    if cuda.threadIdx.x == 0:
        peaks[block] = peak


@pasted
def _exponent(peaks, begin, end, threads, room):
    """The exponent of the largest number that blocks have noted, -1 if all are 0.

    room: a word of shared memory for each warp; all threads of the block must come here.
    """
    peak, first = int32(0), begin
    while first < end:  # in which all threads go together
        at = first + cuda.threadIdx.x
        for _ in range(4):
            peak = max(peak, peaks[min(at, end - 1)])
            at += threads
        first += 4 * threads
    for mask in (16, 8, 4, 2, 1):
        peak = max(peak, cuda.shfl_xor_sync(0xFFFFFFFF, peak, mask))
    if cuda.threadIdx.x % 32 == 0:
        room[cuda.threadIdx.x // 32] = peak
    cuda.syncthreads()
    for warp in range(threads // 32):
        peak = max(peak, room[warp])
    cuda.syncthreads()
    return peak >> int32(23) if peak > int32(0) else int32(-1)


@pasted
def usual(peaks, takers, others, threads, room):
    """Whether factors can be multiplied by their parts; peaks: of ``takers`` blocks, and of the
    ``others``; threads: of the block; room: see ``_exponent``."""
    high = _exponent(peaks, 0, takers, threads, room)
    other = _exponent(peaks, takers, takers + others, threads, room)
    if max(high, other) >= LARGEST:
        return False
    return min(high, other) < 0 or (min(high, other) > LOWEST and high + other > SMALLEST)


@functools.cache
def parted_kernel(parts: int, x_by_rows: bool, y_by_rows: bool) -> Any:
    """The kernel; x_by_rows: k is the unit stride of the parts of x; y_by_rows: m of those of y."""
    shape = SHAPES[parts]
    tall = shape.rows // 64 * 128 // shape.threads
    threads, numbers = shape.threads, shape.rows * shape.cols // shape.threads
    warps = threads // 32
    walk, write = walker(BFLOAT16, shape, x_by_rows, y_by_rows), writer(shape, matrix_ending)
    tile_of = placer(shape.rows, shape.cols)

    @pasted
    def column(j, sums, first, y, at, last, y_col, v0, v1):
        """Products of two rows with two columns; at: what is read for the first column."""
        for c in range(2):
            factor = y[at + min(j * 8 + c, last) * y_col]
            sums[first + 4 * j + c] += v0 * factor
            sums[first + 4 * j + 2 + c] += v1 * factor

    columns = repeated(column, shape.cols // 8)

    @pasted
    def plain(sums, x, y, at_x, at_y, n, m, k, x_row, x_step, y_step, y_col, first_row, first_col):
        """The numbers of this thread, as ``wgmma`` would give them to it; slow.

        at_x, at_y: the first elements of the factors.
        """
        warp, lane = cuda.threadIdx.x // 32, cuda.threadIdx.x % 32
        col = first_col + lane % 4 * 2
        for i in range(numbers):
            sums[i] = float32(0)
        for step in range(k):
            at = at_y + step * y_step + min(col, m - 1) * y_col
            for i in range(tall):
                row = first_row + (warp // 4 * tall + i) * 64 + warp % 4 * 16 + lane // 4
                v0 = x[at_x + min(row, n - 1) * x_row + step * x_step]
                v1 = x[at_x + min(row + 8, n - 1) * x_row + step * x_step]
                columns(0, sums, i * (numbers // tall), y, at, max(m - 1 - col, 0), y_col, v0, v1)

    def parted(
        out, x, y, bias, given, peaks, n, m, k, x_row, x_step, y_step, y_col, out_row,
        x_batch, y_batch, out_batch, y_first, x_far, y_far, x_part, y_part, x_pile, y_pile,
        share, shares, epilogue, paired, takers, others,
    ):  # fmt: skip
        """given: the parts, those of y from y_first on; far: from row to row of them, part: from
        part to part, pile: from matrix to matrix. share: steps of a block, of which ``shares`` have
        the same tile. The others: see ``product.tiled`` and ``taken_apart``.
        """
        room = cuda.shared.array(warps, int32)
        sums = cuda.local.array(numbers, float32)
        acc = cuda.local.array(numbers, float32)
        n, m, k = int32(n), int32(m), int32(k)
        first_row, first_col = tile_of(n, m)
        # A division of 64 bits is a call, beside which ptxas lets no ``wgmma`` go on.
        part, many = uint32(cuda.blockIdx.z), uint32(shares)
        base, batch = begin_of_slices(), int64(uint32(part // many))
        begin = int32(int32(part % many) * int32(share))
        steps = int32(min(share, k - begin))
        if usual(peaks, takers, others, threads, room):
            from_x = batch * x_pile + (begin if x_by_rows else begin * x_far)
            from_y = y_first + batch * y_pile + (begin * y_far if y_by_rows else begin)
            at_x, at_y = address(given) + from_x * BYTES, address(given) + from_y * BYTES
            left, right = (at_x, n, x_far, x_part), (at_y, m, y_far, y_part)
            some = acc if parts > 1 else sums
            walk(sums, some, base, left, right, steps, first_row, first_col)
        else:
            at_x, at_y = batch * x_batch + begin * x_step, batch * y_batch + begin * y_step
            plain(
                sums, x, y, at_x, at_y, n, m, steps, x_row, x_step, y_step, y_col, first_row,
                first_col,
            )  # fmt: skip
        first_out = cuda.blockIdx.z * out_batch
        write(
            sums, base, first_row, first_col, out, bias, first_out, n, m, out_row, paired, epilogue
        )

    parted.launch_bounds = shape.threads, 1  # type: ignore[attr-defined]
    parted.capability = CAPABILITY  # type: ignore[attr-defined]
    return parted


# -- how a product is made -------------------------------------------------------------------------


@dataclass(frozen=True)
class Factor:
    """Where the numbers of a factor lie, and so its parts, whose lines are together."""

    batches: int
    lines: int
    length: int
    line: int
    """Elements from line to line, ``step`` within a line, and ``batch`` from matrix to matrix."""
    step: int
    batch: int
    wide: int
    """Whether 16 bytes can be read at once."""

    @property
    def pitch(self) -> int:
        """Numbers of a line of the parts."""
        return -(-self.length // PIECE) * PIECE

    @property
    def part(self) -> int:
        """Numbers of a part of a matrix."""
        return self.lines * self.pitch

    @property
    def takers(self) -> int:
        """Blocks that take it apart."""
        return min(-(-self.batches * self.part // (PIECE * BLOCK)), TAKERS)


def _factor(a: Any, lines: int, length: int, line: int, step: int, batches: int, batch: int) -> Any:
    wide = step == 1 and not (a.pointer % 16 or line % 4 or batch % 4)
    return Factor(1 if batch == 0 else batches, lines, length, line, step, batch, int(wide))


def in_shares(tiles: int, size: int, k: int, cost: float) -> tuple[float, int]:
    """Nanoseconds that a product takes when its steps are made in as many shares as pay, and how
    many these are. tiles: of the result, which has ``size`` bytes; cost: of a step of one."""
    filling = [MULTIPROCESSORS * rounds // tiles for rounds in (1, 2, 3)]
    best = 0.0, 0
    for shares in sorted({1, 2, 4, 8, 16, *filling} - {0}):
        if shares > 1 and (k < shares * SHORTEST or shares * size > ROOM):
            break
        rounds = -(-tiles * shares // MULTIPROCESSORS)
        time = rounds * cost * (-(-k // (shares * DEPTH)) * DEPTH)
        if shares > 1:
            time += ADDING + EACH_SHARE * shares * size / 1024
        if best[1] == 0 or time < best[0]:
            best = time, shares
    return best


def scratch(place: Any, *asked: tuple[tuple[int, ...], np.dtype]) -> list[Any] | None:
    """Memory of these shapes and dtypes, or None where there is not as much: then another kernel,
    which needs none, has this product, and what follows is not remembered for the next."""
    try:
        return [device.empty(shape, dtype, place) for shape, dtype in asked]
    except OutOfMemoryError:
        device.once()
        return None


@functools.lru_cache(4096)
def plan_for(n: int, m: int, k: int, batch: int, parts: int, numbers: int) -> int:
    """In how many shares the steps should be made, or 0 if other kernels should end sooner.

    numbers: of both factors.
    """
    shape = SHAPES[parts]
    tiles = -(-n // shape.rows) * -(-m // shape.cols) * batch
    time, shares = in_shares(tiles, 4 * n * m * batch, k, shape.cost)
    time += TAKING + EACH * numbers * (4 + BYTES * parts) / 1024
    return shares if time < fastest(SINGLES, 4, n, m, k, batch)[2] else 0


def multiplied(
    out: Any, x: Any, y: Any, bias: Any, sizes: tuple[int, int, int],
    strides: tuple[int, int, int, int], batch: int, epilogue: int,
) -> bool:  # fmt: skip
    """Make ``out = x y`` as ``matmul`` does, if the device can and it pays; whether it did.

    sizes: n, m, k; strides: of x along n and k, of y along k and m.
    """
    n, m, k = sizes
    if k == 0 or max(sizes) >= 1 << 30 or not (ALLOWED and has_groups()):
        return False
    x_row, x_step, y_step, y_col = strides
    stacked = len(out.shape) == 3
    x_batch, y_batch, out_batch = [a.strides[0] // 4 if stacked else 0 for a in (x, y, out)]
    parts = PARTS[precision.float32_products]
    x_by_rows, y_by_rows = x_step == 1 or x_row != 1, y_col == 1
    if x_by_rows:
        left = _factor(x, n, k, x_row, x_step, batch, x_batch)
    else:
        left = _factor(x, k, n, x_step, x_row, batch, x_batch)
    if y_by_rows:
        right = _factor(y, k, m, y_step, y_col, batch, y_batch)
    else:
        right = _factor(y, m, k, y_col, y_step, batch, y_batch)
    piles = [parts * f.part if f.batches > 1 else 0 for f in (left, right)]
    y_first = parts * left.batches * left.part
    room = y_first + parts * right.batches * right.part
    shares = plan_for(n, m, k, batch, parts, room // parts)
    if shares == 0 or batch * shares > MOST or room * BYTES > MOST_BYTES:
        return False
    share = -(-k // (shares * DEPTH)) * DEPTH
    shares = -(-k // share)
    takers, others = left.takers, right.takers
    asked: list[Any] = [((room,), BFLOAT16), ((takers + others,), PEAK)]
    asked += [((batch, shares, n, m), out.dtype)] if shares > 1 else []
    found = scratch(out.device, *asked)
    if found is None:
        return False
    given, peaks = found[:2]
    target = found[2] if shares > 1 else out
    forms = [(f.batches, f.lines, f.length, f.line, f.step, f.batch, f.wide) for f in (left, right)]
    start(
        taken_apart, takers + others, BLOCK, given, peaks, x, y, parts, y_first, takers, others,
        *forms[0], *forms[1],
    )  # fmt: skip
    ending, row, apart = epilogue, out.strides[-2] // 4, out_batch
    if shares > 1:
        ending, row, apart = NEW, m, n * m
    paired = not (target.pointer // 4 | row | apart) % 4
    shape = SHAPES[parts]
    start(
        parted_kernel(parts, x_by_rows, y_by_rows),
        (-(-n // shape.rows) * -(-m // shape.cols), 1, batch * shares), shape.threads,
        target, x, y, out if bias is None else bias, given, peaks, n, m, k, *strides, row,
        x_batch, y_batch, apart, y_first, left.pitch, right.pitch, left.part, right.part, *piles,
        share, shares, ending, int(paired), takers, others, shared=shape.shared,
    )  # fmt: skip
    if shares > 1:
        start(
            added, (min(batch * n, 1 << 20), -(-m // BLOCK)), BLOCK, out, target,
            out if bias is None else bias, n, m, out.strides[-2] // 4, out_batch, shares, epilogue,
            batch,
        )  # fmt: skip
    return True
