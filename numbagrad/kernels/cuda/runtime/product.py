"""The kernel of products without tensor cores: slices by way of shared memory, 16 bytes at a time.

A block makes a tile of the result. It goes along the summed dimension by slices of both operands,
each of which lies twice in shared memory: the next is stored while the one before is multiplied, so
that there is one barrier for each. The threads are ``parts`` teams; each makes the whole tile from
its share of the steps of a slice, and what they have is added in the end, in their order. So a
small result of many steps has short walks. Start reading at ``tiled``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numba import cuda, int32

from .cores import ADD, BIAS
from .shape import SIMULATED
from .shared import copy1, copy16
from .warp import inlined, pasted

__all__ = ["Tile", "added", "product_tile", "tiled"]

APART = 4
"""Elements between rows in shared memory: what a warp stores by columns meets in no bank twice."""


@dataclass(frozen=True)
class Tile:
    """The shape of a tile, and who makes it."""

    rows: int
    cols: int
    depth: int
    """Steps that a team goes between two barriers."""
    parts: int
    """Teams of threads."""
    each_row: int
    each_col: int
    """Rows and columns of a thread: multiples of as many as there are in 16 bytes."""
    blocks: int = 1
    """Blocks that should fit into a multiprocessor."""

    @property
    def threads(self) -> int:
        return self.rows * self.cols // (self.each_row * self.each_col) * self.parts


if SIMULATED:
    TILES: tuple[Tile, ...] = (Tile(8, 8, 4, 1, 4, 4), Tile(4, 4, 4, 2, 4, 4))
    WIDE_TILES = TILES
else:
    TILES = Tile(128, 128, 8, 1, 8, 8, 2), Tile(64, 64, 8, 2, 4, 8, 2), Tile(32, 32, 8, 8, 4, 8)
    WIDE_TILES = Tile(128, 64, 8, 1, 8, 4), Tile(64, 64, 8, 1, 4, 4, 2), Tile(32, 32, 8, 4, 4, 4, 2)
"""Tiles for float32 and for float64, from the largest."""

BUSY = 2 if SIMULATED else 120
"""Blocks from which on a GPU counts as busy: the H100 and the H200 have 132 multiprocessors."""

SHARED = 48 << 10
"""Bytes of shared memory that a block has at the most, unless it asks for more."""

LONGEST = 1 << 30
"""Steps of a share, which are counted in 32 bits."""


def product_tile(itemsize: int, n: int, m: int, k: int, batch: int) -> tuple[Tile, int]:
    """The tile for a result (batch, n, m) of ``k`` steps, and in how many shares they are made.

    Sizes alone decide, so that the bits are the same on every GPU.
    """
    for tile in WIDE_TILES if itemsize == 8 else TILES:
        enough = -(-n // tile.rows) * -(-m // tile.cols) * batch >= BUSY
        if enough and 2 * min(n, m) >= min(tile.rows, tile.cols):
            break
    return tile, max(-(-k // LONGEST), 1)


def repeated(step: Any, count: int) -> Any:
    """``step(i, ...)`` to ``step(i + count - 1, ...)``: LLVM leaves long loops as they are.

    An array in registers has to be indexed by constants.
    """
    if count == 1:
        return step
    first, second = repeated(step, count // 2), repeated(step, count - count // 2)

    @pasted
    def both(i, *args):
        first(i, *args)
        second(i + count // 2, *args)

    return both


def slices(real: Any, tile: Tile, lines: int, along: bool, wide: bool) -> tuple[Any, ...]:
    """Where a thread begins in a slice of ``lines`` rows or columns, how it brings words, and how
    it stores them.

    along: neighbours read along the summed dimension, of unit stride, otherwise across. wide: 16
    bytes at a time: the dimension of unit stride and the other stride divide by as many elements,
    and all begins at a multiple of 16 bytes.
    """
    size = real.bitwidth // 8
    vector = 16 // size
    width = vector if wide else 1
    span, threads, apart = tile.depth * tile.parts, tile.threads, lines + APART
    loads = lines * span // (threads * width)
    assert loads * threads * width == lines * span, "more threads than a slice has words"
    # Neighbours along read a sector of 32 bytes. The words of a thread lie ``down`` lines and
    # ``far`` steps apart: ``rounds`` of them at the same steps.
    near = min(min(span, 32 // size) // width, threads) if along else 1
    row = near * lines if along else lines // width
    rounds = max(row // threads, 1)
    down = threads // near
    far = max(threads // row, 1) * (near * width if along else 1)

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


def squares(real: Any, tile: Tile) -> Any:
    """How a thread adds the product of its team's share of a slice to its square.

    Rows and columns of a thread are words of 16 bytes that lie apart, so that neighbours read
    neighbouring words.
    """
    vector = 128 // real.bitwidth
    depth, each_row, each_col = tile.depth, tile.each_row, tile.each_col
    down, across = tile.rows // each_row * vector, tile.cols // each_col * vector
    left_row, right_row = tile.rows + APART, tile.cols + APART

    @pasted
    def multiply(step, acc, row, column, shared, left, right):
        for h in range(each_row // vector):
            copy16(row, h * vector, shared, left + step * left_row + h * down)
        for h in range(each_col // vector):
            copy16(column, h * vector, shared, right + step * right_row + h * across)
        for i in range(each_row):
            for j in range(each_col):
                acc[i * each_col + j] += row[i] * column[j]

    return repeated(multiply, depth)


def tiled(real: Any, tile: Tile, x_form: tuple[bool, bool], y_form: tuple[bool, bool]) -> Any:
    """The kernel for a shape; forms: ``along`` and ``wide`` of ``slices``."""
    vector = 128 // real.bitwidth
    rows, cols, depth, parts = tile.rows, tile.cols, tile.depth, tile.parts
    each_row, each_col, threads = tile.each_row, tile.each_col, tile.threads
    span, team = depth * parts, threads // parts
    across, down = cols // each_col, rows // each_row
    lanes = min(across, 8)  # of a warp, in a row
    warps = across // lanes
    left_row, right_row = rows + APART, cols + APART
    second = span * left_row  # where the slice of y lies behind that of x
    whole = span * (left_row + right_row)
    last = parts  # teams whose squares fit into shared memory together
    while last > 1 and last * rows * cols * (real.bitwidth // 8) > SHARED:
        last //= 2
    assert 2 * last >= parts
    size = max(2 * whole, rows * cols * last if parts > 1 else 0)
    each = each_row * each_col
    vectors = -(-each // (vector * parts))
    words = each_col // vector
    first_x, begin_x, bring_x, put_x = slices(real, tile, rows, *x_form)
    first_y, begin_y, bring_y, put_y = slices(real, tile, cols, *y_form)
    lines_x, lines_y = [vector if form == (False, True) else 1 for form in (x_form, y_form)]
    loads_x, loads_y = rows * span // threads, cols * span // threads
    multiply = squares(real, tile)

    @pasted
    def place(q, tx, ty):
        """Row and column in the tile of the ``q``-th word of a thread's square."""
        i = ty * vector + q // words // vector * (vector * down) + q // words % vector
        return i, tx * vector + q % words * (vector * across)

    @pasted
    def lay(q, shared, acc, part, tx, ty):
        i, j = place(q, tx, ty)
        copy16(shared, (part * rows + i) * cols + j, acc, q * vector)

    @pasted
    def take(q, acc, shared, column, part, tx, ty):
        i, j = place(q, tx, ty)
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

    @pasted
    def write(
        q, out, acc, column, bias, base, out_row, n, m, first_row, first_col, thread, tx, ty,
        epilogue, wide,
    ):  # fmt: skip
        if parts > 1:
            at = (thread + q * threads) * vector
            i, j = at // cols, at % cols
            if at >= rows * cols:
                return
        else:
            i, j = place(q, tx, ty)
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

    lay, take = repeated(lay, each_row * words), repeated(take, each_row * words)
    collect, write = repeated(collect, vectors), repeated(write, vectors)

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
        row = cuda.local.array(each_row, real, alignment=16)
        column = cuda.local.array(each_col, real, alignment=16)
        some_x = cuda.local.array(loads_x, real, alignment=16)
        some_y = cuda.local.array(loads_y, real, alignment=16)
        thread = cuda.threadIdx.x % threads  # so that LLVM knows what it is below
        member, part = thread % team, thread // team
        tx = member % lanes + member // 32 % warps * lanes
        ty = member % 32 // lanes + member // 32 // warps * (32 // lanes)
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
        from_x = part * depth * left_row + ty * vector
        from_y = second + part * depth * right_row + tx * vector
        for i in range(each):
            acc[i] = real(0)
        cuda.syncthreads()
        at_x += short * x_step
        at_y += short * y_step
        left = int32(steps - short)
        here = 0
        while left >= 0:
            if left > 0:
                bring_x(0, some_x, x, at_x, x_row, x_step, spare_x)
                bring_y(0, some_y, y, at_y, y_col, y_step, spare_y)
            left = int32(left - span)
            at_x += span * x_step
            at_y += span * y_step
            multiply(0, acc, row, column, shared, here + from_x, here + from_y)
            here = whole - here
            put_x(0, shared, here + to_x, some_x)
            put_y(0, shared, here + to_y, some_y)
            cuda.syncthreads()
        if parts > 1:
            if last < parts:
                if part >= last:
                    lay(0, shared, acc, part - last, tx, ty)
                cuda.syncthreads()
                if part < last:
                    take(0, acc, shared, column, part, tx, ty)
                cuda.syncthreads()
            if part < last:
                lay(0, shared, acc, part, tx, ty)
            cuda.syncthreads()
            collect(0, acc, shared, column, thread)
        base = cuda.blockIdx.z * out_batch
        write(
            0, out, acc, column, bias, base, out_row, n, m, first_row, first_col, thread, tx, ty,
            epilogue, wide,
        )  # fmt: skip

    product.launch_bounds = tile.threads, tile.blocks  # type: ignore[attr-defined]
    return product


def added(out, some, bias, n, m, out_row, out_batch, shares, epilogue, batch):
    """``out`` from the shares of its steps, in their order. some (batch, shares, n, m) C."""
    at = cuda.grid(1)
    while at < batch * n * m:
        b, i, j = at // (n * m), at // m % n, at % m
        first = b * shares * n * m + i * m + j
        total = some[first]
        for share in range(1, shares):
            total += some[first + share * n * m]
        to = b * out_batch + i * out_row + j
        if epilogue == ADD:
            total += out[to]
        elif epilogue == BIAS:
            total += bias[j]
        out[to] = total
        at += cuda.gridsize(1)
