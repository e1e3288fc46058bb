"""The kernel of products without tensor cores: slices by way of shared memory, 16 bytes at a time.

A block makes a tile of the result. It goes along the summed dimension by slices of both operands,
each of which lies twice in shared memory: the next is stored while the one before is multiplied, so
that there is one barrier for each. The threads are ``parts`` teams; each makes the whole tile from
its share of the steps of a slice, and what they have is added in the end, in their order. So a
small result of many steps has short walks. Start reading at ``tiled``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from numba import cuda, int32

from .cores import ADD, BIAS
from .shape import SIMULATED, Tile
from .shared import copy1, copy16
from .squares import APART, repeated, squares
from .warp import barrier, inlined, pasted

if not SIMULATED:  # which has no tensor cores of float64
    from .double import core_squares

__all__ = ["added", "fastest", "product_tile", "tiled"]

MULTIPROCESSORS = 2 if SIMULATED else 132
"""Of an H100 or an H200, for which the tile is chosen."""

SHARES = (1, 2, 4) if SIMULATED else (1, 2, 4, 8, 16)
SHORTEST = 16 if SIMULATED else 64
"""In how many shares the steps may be made, and the steps of one that are worth a block."""

ADDING, EACH = (40, 0.1) if SIMULATED else (2500, 0.5)
"""Nanoseconds for the launch that adds shares, and for 1024 bytes that it reads."""

ROOM = 1 << 25
"""Bytes of shares at the most."""

SHARED = 48 << 10
"""Bytes of shared memory that a block has at the most, unless it asks for more."""

LONGEST = 1 << 30
"""Steps of a share, which are counted in 32 bits."""

NOWHERE = 1 << 40
"""A row that no result has."""


def product_tile(
    tiles: tuple[Tile, ...], itemsize: int, n: int, m: int, k: int, batch: int, many: bool = False
) -> tuple[Tile, int]:
    """The tile for a result (batch, n, m) of ``k`` steps, and in how many shares they are made.

    many: as many shares as fill a GPU may be made. Sizes alone decide, so that the bits are the
    same on every GPU.
    """
    tile, shares, _ = fastest(tiles, itemsize, n, m, k, batch, many)
    return tile, max(shares, -(-k // LONGEST))


@functools.lru_cache(4096)
def fastest(
    tiles: tuple[Tile, ...], itemsize: int, n: int, m: int, k: int, batch: int, many: bool = False
) -> tuple[Tile, int, float]:
    """What should end first, and after how many nanoseconds.

    Blocks of a multiprocessor run one after another, or each waits.
    """
    size = n * m * batch * itemsize
    best: tuple[Tile, int, float] | None = None
    for tile in tiles:
        span = tile.depth * tile.parts
        blocks = -(-n // tile.rows) * -(-m // tile.cols) * batch
        filling = [MULTIPROCESSORS * rounds // blocks for rounds in (1, 2, 3, 4)] if many else []
        for shares in sorted({*SHARES, *filling} - {0}):
            if shares > 1 and (k < shares * SHORTEST or shares * size > ROOM):
                break
            steps = max(-(-k // (shares * span)), 1) * span
            rounds = -(-blocks * shares // MULTIPROCESSORS)
            time = steps * max(tile.alone, rounds * tile.full)
            if shares > 1:
                time += ADDING + EACH * shares * size / 1024
            if best is None or time < best[2]:
                best = tile, shares, time
    assert best
    return best


@dataclass(frozen=True)
class Spread:
    """Which words of a slice a thread brings: ``loads`` of ``width`` elements.

    ``near`` neighbours read along the summed dimension. The words of a thread lie ``down`` lines
    and ``far`` steps apart: ``rounds`` of them at the same steps.
    """

    near: int
    row: int
    rounds: int
    down: int
    far: int
    loads: int
    width: int


def spread(real: Any, tile: Tile, lines: int, along: bool, wide: bool) -> Spread:
    """For a slice of ``lines`` rows or columns; along, wide: see ``slices``."""
    size = real.bitwidth // 8
    width = 16 // size if wide else 1
    span, threads = tile.depth * tile.parts, tile.threads
    loads = lines * span // (threads * width)
    assert loads * threads * width == lines * span, "more threads than a slice has words"
    near = min(min(span, 32 // size) // width, threads) if along else 1  # a sector of 32 bytes
    row = near * lines if along else lines // width
    far = max(threads // row, 1) * (near * width if along else 1)
    return Spread(near, row, max(row // threads, 1), threads // near, far, loads, width)


def slices(real: Any, tile: Tile, lines: int, along: bool, wide: bool) -> tuple[Any, ...]:
    """Where a thread begins in a slice of ``lines`` rows or columns, how it brings words, and how
    it stores them.

    along: neighbours read along the summed dimension, of unit stride, otherwise across. wide: 16
    bytes at a time: the dimension of unit stride and the other stride divide by as many elements,
    and all begins at a multiple of 16 bytes.
    """
    vector, apart = 128 // real.bitwidth, lines + APART
    words = spread(real, tile, lines, along, wide)
    near, row, rounds, width = words.near, words.row, words.rounds, words.width
    down, far, loads = words.down, words.far, words.loads

    @inlined
    def first(thread):
        """Line and step of a thread's first word."""
        if along:
            return thread // near % lines, (thread % near + thread // row * near) * width
        return thread % row * width, thread // row

    @pasted
    def bring(s, some, x, at, line, step, spare):
        """The ``s``-th word; the first is at element ``at`` of x. spare: lines that there are from
        there on. Instead of one outside another is read: nobody asks for what becomes of it.
        """
        at += s // rounds * far * step
        if rounds > 1 and s % rounds * down < spare:
            at += s % rounds * down * line
        if wide:
            copy16(some, s * vector, x, at)
        else:
            copy1(some, s, x, at)

    @pasted
    def begin_with(s, some, x, at, line, step, spare, left):
        """``bring`` where only ``left`` steps are left, for the rest zeros."""
        if s // rounds * far < left:
            bring(s, some, x, at, line, step, spare)
        else:
            for c in range(width):
                some[s * width + c] = real(0)

    @pasted
    def put(s, shared, at, some):
        """The ``s``-th word into shared memory, a row for each step; ``at``: of the first."""
        at += s // rounds * far * apart + s % rounds * down
        if wide and not along:
            copy16(shared, at, some, s * vector)
        else:
            for c in range(width):
                copy1(shared, at + c * apart, some, s * width + c)

    return first, *[repeated(each, loads) for each in (begin_with, bring, put)]


def teams(real: Any, tile: Tile, place: Any) -> tuple[int, int, Any, Any]:
    """How the squares of all teams become one tile: elements of shared memory that takes, words of
    16 bytes that a thread has afterwards, the function that adds them up, and where a word lies.

    place: where the words of a square lie, see ``squares``.
    """
    vector, parts, threads = 128 // real.bitwidth, tile.parts, tile.threads
    rows, cols, each = tile.rows, tile.cols, tile.each_row * tile.each_col
    last = parts  # teams whose squares fit into shared memory together
    while last > 1 and last * rows * cols * (real.bitwidth // 8) > SHARED:
        last //= 2
    assert 2 * last >= parts
    vectors = -(-each // (vector * parts))

    @pasted
    def lay(q, shared, acc, part, ty, tx):
        i, j = place(q, ty, tx)
        copy16(shared, (part * rows + i) * cols + j, acc, q * vector)

    @pasted
    def take(q, acc, shared, column, part, ty, tx):
        i, j = place(q, ty, tx)
        copy16(column, 0, shared, (part * rows + i) * cols + j)
        for c in range(vector):
            acc[q * vector + c] += column[c]

    @pasted
    def collect(q, acc, shared, column, thread):
        at = (thread + q * threads) * vector
        if at < rows * cols:
            copy16(acc, q * vector, shared, at)
            for p in range(1, last):
                copy16(column, 0, shared, p * rows * cols + at)
                for c in range(vector):
                    acc[q * vector + c] += column[c]

    lay, take = repeated(lay, each // vector), repeated(take, each // vector)
    collect = repeated(collect, vectors)

    @inlined
    def join(acc, shared, column, part, thread, ty, tx):
        """column: room for a word."""
        if parts > 1:
            if last < parts:
                if part >= last:
                    lay(0, shared, acc, part - last, ty, tx)
                barrier()
                if part < last:
                    take(0, acc, shared, column, part, ty, tx)
                barrier()
            if part < last:
                lay(0, shared, acc, part, ty, tx)
            barrier()
            collect(0, acc, shared, column, thread)

    @pasted
    def lies(q, thread, ty, tx):
        """Row and column in the tile of the ``q``-th word of a thread."""
        if parts > 1:
            at = (thread + q * threads) * vector
            return at // cols if at < rows * cols else NOWHERE, at % cols
        return place(q, ty, tx)

    return rows * cols * last if parts > 1 else 0, vectors, join, lies


def tiled(
    real: Any, tile: Tile, x_form: tuple[bool, bool], y_form: tuple[bool, bool], tall: bool
) -> Any:
    """The kernel for a shape; forms: ``along`` and ``wide`` of ``slices``; tall: see ``double``."""
    vector = 128 // real.bitwidth
    rows, cols, depth, parts = tile.rows, tile.cols, tile.depth, tile.parts
    each_row, each_col, threads = tile.each_row, tile.each_col, tile.threads
    span, team = depth * parts, threads // parts
    left_row, right_row = rows + APART, cols + APART
    second = span * left_row  # where the slice of y lies behind that of x
    whole = span * (left_row + right_row)
    each, ahead = each_row * each_col, tile.ahead
    row_size, column_size = each_row * max(tile.cores // 4, 1), each_col * max(tile.cores // 8, 1)
    first_x, begin_x, bring_x, put_x = slices(real, tile, rows, *x_form)
    first_y, begin_y, bring_y, put_y = slices(real, tile, cols, *y_form)
    lines_x, lines_y = [vector if form == (False, True) else 1 for form in (x_form, y_form)]
    loads_x, loads_y = rows * span // threads, cols * span // threads
    if tile.cores:
        first, place, multiply = core_squares(tile, tall)
    else:
        first, place, multiply = squares(real, tile)
    held, vectors, join, lies = teams(real, tile, place)
    size = max(2 * whole, held)

    @pasted
    def write(
        q, out, acc, column, bias, base, out_row, n, m, first_row, first_col, thread, ty, tx,
        epilogue, wide,
    ):  # fmt: skip
        i, j = lies(q, thread, ty, tx)
        i, j = first_row + i, first_col + j
        at = base + i * out_row + j
        if i < n and j < m:
            if wide:
                if epilogue == ADD:
                    copy16(column, 0, out, at)
                elif epilogue == BIAS:
                    copy16(column, 0, bias, j)
                if epilogue == ADD or epilogue == BIAS:
                    for c in range(vector):
                        acc[q * vector + c] += column[c]
                copy16(out, at, acc, q * vector)
            else:
                for c in range(vector):
                    if j + c < m:
                        value = acc[q * vector + c]
                        if epilogue == ADD:
                            value += out[at + c]
                        elif epilogue == BIAS:
                            value += bias[j + c]
                        out[at + c] = value

    write = repeated(write, vectors)

    def product(
        out, x, y, bias, n, m, k, x_row, x_step, y_step, y_col, out_row,
        x_batch, y_batch, out_batch, share, shares, epilogue, wide,
    ):  # fmt: skip
        """x_row, x_step: strides of x along n and k; y_step, y_col: of y along k and m.

        share: steps of a block, of which ``shares`` have the same tile; theirs lie ``out_batch``
        apart. wide: rows of the result can be written by 16 bytes.
        """
        shared = cuda.shared.array(size, real, alignment=16)
        acc = cuda.local.array(each, real, alignment=16)
        row = cuda.local.array(row_size, real, alignment=16)
        column = cuda.local.array(column_size, real, alignment=16)
        some_x = cuda.local.array(loads_x, real, alignment=16)
        some_y = cuda.local.array(loads_y, real, alignment=16)
        thread = cuda.threadIdx.x % threads  # so that LLVM knows what it is below
        member, part = thread % team, thread // team
        ty, tx, from_x, from_y = first(member)
        first_row, first_col = cuda.blockIdx.x * rows, cuda.blockIdx.y * cols
        batch = cuda.blockIdx.z // shares
        begin = cuda.blockIdx.z % shares * share
        # The first slice is the short one, so that later ones need no look at where they end.
        steps = min(share, k - begin)
        short = (steps - 1) % span + 1
        i, f = first_x(thread)
        spare_x, left = n - first_row - i, min(steps, short) - f
        at_x = batch * x_batch + (begin + f) * x_step
        at_x += min(first_row + i, n - lines_x) * x_row
        to_x = f * left_row + i
        begin_x(0, some_x, x, at_x, x_row, x_step, spare_x, left)
        put_x(0, shared, to_x, some_x)
        j, f = first_y(thread)
        spare_y, left = m - first_col - j, min(steps, short) - f
        at_y = batch * y_batch + (begin + f) * y_step
        at_y += min(first_col + j, m - lines_y) * y_col
        to_y = second + f * right_row + j
        begin_y(0, some_y, y, at_y, y_col, y_step, spare_y, left)
        put_y(0, shared, to_y, some_y)
        from_x += part * depth * left_row
        from_y += second + part * depth * right_row
        for i in range(each):
            acc[i] = real(0)
        cuda.syncthreads()
        at_x += short * x_step
        at_y += short * y_step
        left = int32(steps - short)
        here = 0
        if ahead and left > 0:
            bring_x(0, some_x, x, at_x, x_row, x_step, spare_x)
            bring_y(0, some_y, y, at_y, y_col, y_step, spare_y)
        far = span if ahead else 0
        at_x += far * x_step
        at_y += far * y_step
        while left >= 0:
            if ahead:
                put_x(0, shared, whole - here + to_x, some_x)
                put_y(0, shared, whole - here + to_y, some_y)
            if left > far:
                bring_x(0, some_x, x, at_x, x_row, x_step, spare_x)
                bring_y(0, some_y, y, at_y, y_col, y_step, spare_y)
            left = int32(left - span)
            at_x += span * x_step
            at_y += span * y_step
            multiply(0, acc, row, column, shared, here + from_x, here + from_y)
            here = whole - here
            if not ahead:
                put_x(0, shared, here + to_x, some_x)
                put_y(0, shared, here + to_y, some_y)
            cuda.syncthreads()
        join(acc, shared, column, part, thread, ty, tx)
        base = cuda.blockIdx.z * out_batch
        write(
            0, out, acc, column, bias, base, out_row, n, m, first_row, first_col, thread, ty, tx,
            epilogue, wide,
        )  # fmt: skip

    product.launch_bounds = tile.threads, tile.blocks  # type: ignore[attr-defined]
    if tile.cores and tall:
        product.least = 90  # type: ignore[attr-defined]
    return product


def added(out, some, bias, n, m, out_row, out_batch, shares, epilogue, batch):
    """``out`` from the shares of its steps, in their order. some (batch, shares, n, m) C."""
    row = cuda.blockIdx.x
    j = cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    while row < batch * n and j < m:
        b, i = row // n, row % n
        first = (b * shares * n + i) * m + j
        total = some[first]
        for share in range(1, shares):
            total += some[first + share * n * m]
        to = b * out_batch + i * out_row + j
        if epilogue == ADD:
            total += out[to]
        elif epilogue == BIAS:
            total += bias[j]
        out[to] = total
        row += cuda.gridDim.x
