"""The kernel of convolutions: a product of matrices of which the right factor is never made.

An element of that factor is what a place of the result sees through a tap. A place has an offset in
the source, and bits for the coordinates of taps that look outside from there; a tap has an offset
and the bits of its coordinates. So an element costs one addition and one test, whatever the
strides are. Of either kind a thread holds those of its columns; those of the steps lie in a ring in
shared memory and are found many slices at a time. The rest is ``product.py``. Start reading at
``patched``, whose tables ``conv.py`` makes.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, int32, int64

from .product import slices, spread, teams
from .shape import SIMULATED, Tile
from .shared import copy1, copy16, moved
from .squares import APART, repeated, squares
from .warp import inlined, pasted, split

if not SIMULATED:  # which has no tensor cores of float64
    from .double import core_squares

__all__ = ["FORM", "TAPS", "patched"]

TAPS = 30
"""Bits for coordinates of taps. Of the other two of 32 one is set in each tap and one in each place,
and both in a step that there is not, which is seen by none."""

FORM = 6
"""Numbers of a row of ``form``."""

NOWHERE = -1
"""The offset in the result of a column that it has not; the bits of a step that there is not."""


def patched(real: Any, tile: Tile, places: bool, wide: bool, tall: bool) -> Any:
    """The kernel for a shape. places: the steps are places and the columns taps, for the gradient
    of a weight, otherwise it is the other way round. wide: x is read by 16 bytes. tall: see
    ``double``.
    """
    vector = 128 // real.bitwidth
    rows, cols, depth, parts = tile.rows, tile.cols, tile.depth, tile.parts
    threads, ahead = tile.threads, tile.ahead
    span, team = depth * parts, threads // parts
    left_row, right_row = rows + APART, cols + APART
    second, whole = span * left_row, span * (left_row + right_row)
    each = tile.each_row * tile.each_col
    row_size = tile.each_row * max(tile.cores // 4, 1)
    column_size = tile.each_col * max(tile.cores // 8, 1)
    first_x, begin_x, bring_x, put_x = slices(real, tile, rows, True, wide)
    first_y, _, _, put_y = slices(real, tile, cols, places, False)
    of_x, of_y = spread(real, tile, rows, True, wide), spread(real, tile, cols, places, False)
    if tile.cores:
        first, place, multiply = core_squares(tile, tall)
    else:
        first, place, multiply = squares(real, tile)
    held, vectors, join, lies = teams(real, tile, place)
    size = max(2 * whole, held)
    words = 1 if parts > 1 else tile.each_col // vector  # of 16 bytes, in which a thread ends
    chunk = max(threads, 4 * span)  # steps that are found at a time: the ring has two of them

    @inlined
    def look(lines, at, col, count, width, height):
        """Image, place in it, offset and bits of a column or step; where its three lines are."""
        image, place = split(col, count)
        rest, px = split(place, width)
        pz, py = split(rest, height)
        px, py, pz = 4 * (at + px), 4 * (at + width + py), 4 * (at + width + height + pz)
        offset = lines[px] + lines[py] + lines[pz]
        return image, place, offset, lines[px + 1] | lines[py + 1] | lines[pz + 1], px, py, pz

    @pasted
    def find(r, ring, from_, short, begin, steps, taps, lines, at, tap, count, width, height, x_image, y_image, thread):
        """An entry of the ring: the offset of a step in y, its bits, its offset in x.

        The first slice is the short one: its steps are ``short``, then come ``span`` each.
        """
        here = from_ + thread + r * threads
        step = here if here < span else here - span + short
        offset, bits, other = 0, NOWHERE, 0
        if (here < short or here >= span) and step < steps:
            if places:
                before = begin // count
                image, other, offset, bits, _, _, _ = look(lines, at, begin + step, count, width, height)
                offset += (image - before) * y_image
                other += (image - before) * x_image
            else:
                offset, bits = taps[2 * (tap + begin + step)], taps[2 * (tap + begin + step) + 1]
        to = 4 * (here % (2 * chunk))
        ring[to], ring[to + 1], ring[to + 2] = int32(offset), int32(bits), int32(other)

    @pasted
    def hold(r, base, outside, col, m, y_base, y_image, taps, lines, at, tap, count, width, height):
        """Offset and bits of the ``r``-th column of a thread; those of the last for one outside."""
        col = min(col + r * of_y.down, m - 1)
        if places:
            offset, bits = taps[2 * (tap + col)], taps[2 * (tap + col) + 1]
        else:
            image, _, offset, bits, _, _, _ = look(lines, at, col, count, width, height)
            offset += image * y_image
        base[r], outside[r] = y_base + offset, int32(bits)

    @pasted
    def gather(s, some, entry, y, base, outside, ring, at):
        """The ``s``-th element of a slice whose entry of the thread is at ``at``."""
        r = s % of_y.rounds
        copy16(entry, 0, ring, 4 * (at + s // of_y.rounds * of_y.far))
        some[s] = real(0)
        if entry[1] & outside[r] == 0:
            copy1(some, s, moved(y, base[r]), entry[0])

    @pasted
    def follow(s, some, entry, x, at_x, x_row, spare, ring, at):
        """The ``s``-th word of x where its steps are places."""
        copy16(entry, 0, ring, 4 * (at + s // of_x.rounds * of_x.far))
        if of_x.rounds > 1 and s % of_x.rounds * of_x.down < spare:
            at_x += s % of_x.rounds * of_x.down * x_row
        if wide:
            copy16(some, s * vector, moved(x, at_x), entry[2])
        else:
            copy1(some, s, moved(x, at_x), entry[2])

    @pasted
    def aim(q, to, thread, ty, tx, first_col, m, lines, at, count, width, height, out_image):
        """Where the columns of the ``q``-th word are in the result."""
        _, j = lies(q, thread, ty, tx)
        for c in range(vector):
            col = first_col + j + c
            to[q * vector + c] = NOWHERE
            if col < m:
                to[q * vector + c] = col
                if not places:
                    image, _, _, _, px, py, pz = look(lines, at, col, count, width, height)
                    offset = lines[px + 2] + lines[py + 2] + lines[pz + 2]
                    to[q * vector + c] = image * out_image + offset

    @pasted
    def write(q, out, acc, to, bias, biased, group, base, out_row, n, first_row, thread, ty, tx, even):
        i, _ = lies(q, thread, ty, tx)
        i += first_row
        w = q % words * vector
        if i < n:
            if biased:
                more = bias[group * n + i]
                for c in range(vector):
                    acc[q * vector + c] += more
            if even and to[w] >= 0:
                copy16(out, base + i * out_row + to[w], acc, q * vector)
            elif not even:
                for c in range(vector):
                    if to[w + c] >= 0:
                        out[base + i * out_row + to[w + c]] = acc[q * vector + c]

    find, hold = repeated(find, chunk // threads), repeated(hold, of_y.rounds)
    gather, follow = repeated(gather, of_y.loads), repeated(follow, of_x.loads)
    aim, write = repeated(aim, words), repeated(write, vectors)

    def product(
        out, x, y, bias, taps, lines, form, biased, n, images, x_row, x_group, x_image,
        y_group, y_image, out_row, out_group, out_image, out_share, share, shares, phases,
        first_group, even,
    ):  # fmt: skip
        """x (groups, n, steps): a weight, or the gradient of the result; y: the source.

        form: for each phase its places in an image, its steps, the first of its taps and of its
        lines, its width and height. share: steps of a block, of which ``shares`` have
        the same tile. even: the result can be written by 16 bytes.
        """
        shared = cuda.shared.array(size, real, alignment=16)
        ring = cuda.shared.array(8 * chunk, int32, alignment=16)
        acc = cuda.local.array(each, real, alignment=16)
        row = cuda.local.array(row_size, real, alignment=16)
        column = cuda.local.array(column_size, real, alignment=16)
        some_x = cuda.local.array(of_x.loads * of_x.width, real, alignment=16)
        some_y = cuda.local.array(of_y.loads, real, alignment=16)
        entry = cuda.local.array(4, int32, alignment=16)
        base = cuda.local.array(of_y.rounds, int64)
        outside = cuda.local.array(of_y.rounds, int32)
        to = cuda.local.array(words * vector, int64)
        thread = cuda.threadIdx.x % threads  # so that LLVM knows what it is below
        member, part = thread % team, thread // team
        ty, tx, from_x, from_y = first(member)
        z = cuda.blockIdx.z
        group, phase = first_group + z // (shares * phases), z // shares % phases
        at = FORM * phase
        count, k, tap, at_line = form[at], form[at + 1], form[at + 2], form[at + 3]
        width, height, m = form[at + 4], form[at + 5], count * images
        if places:
            m, k = k, m
        high = (n + rows - 1) // rows
        first_row, first_col = cuda.blockIdx.x % high * rows, cuda.blockIdx.x // high * cols
        if first_col >= m:
            return
        begin = z % shares * share
        steps = max(min(share, k - begin), 0)
        short = (steps - 1) % span + 1
        for c in range(2):
            find(
                0, ring, c * chunk, short, begin, steps, taps, lines, at_line, tap, count, width,
                height, x_image, y_image, thread,
            )  # fmt: skip
        j, f_y = first_y(thread)
        y_base, at_x = group * y_group, group * x_group
        if places:
            y_base, at_x = y_base + begin // count * y_image, at_x + begin // count * x_image
        hold(
            0, base, outside, first_col + j, m, y_base, y_image, taps, lines, at_line, tap, count,
            width, height,
        )  # fmt: skip
        cuda.syncthreads()
        i, f_x = first_x(thread)
        spare = n - first_row - i
        at_x += min(first_row + i, n - 1) * x_row
        to_x = f_x * left_row + i
        if places:
            follow(0, some_x, entry, x, at_x, x_row, spare, ring, f_x)
        else:
            at_x += tap + begin + f_x
            begin_x(0, some_x, x, at_x, x_row, 1, spare, min(steps, short) - f_x)
            at_x += short
        put_x(0, shared, to_x, some_x)
        to_y = second + f_y * right_row + j
        gather(0, some_y, entry, y, base, outside, ring, f_y)
        put_y(0, shared, to_y, some_y)
        from_x += part * depth * left_row
        from_y += second + part * depth * right_row
        for i in range(each):
            acc[i] = real(0)
        cuda.syncthreads()
        left, here, next_ = int32(steps - short), 0, int32(span)
        far = span if ahead else 0
        if ahead:
            if left > 0:
                if places:
                    follow(0, some_x, entry, x, at_x, x_row, spare, ring, next_ + f_x)
                else:
                    bring_x(0, some_x, x, at_x, x_row, 1, spare)
                gather(0, some_y, entry, y, base, outside, ring, next_ + f_y)
            next_, at_x = int32(next_ + span), at_x + (0 if places else span)
        while left >= 0:
            if next_ % chunk == 0 and left > far:
                find(
                    0, ring, next_ + chunk, short, begin, steps, taps, lines, at_line, tap, count,
                    width, height, x_image, y_image, thread,
                )  # fmt: skip
            if ahead:
                put_x(0, shared, whole - here + to_x, some_x)
                put_y(0, shared, whole - here + to_y, some_y)
            if left > far:
                slot = next_ % (2 * chunk)
                if places:
                    follow(0, some_x, entry, x, at_x, x_row, spare, ring, slot + f_x)
                else:
                    bring_x(0, some_x, x, at_x, x_row, 1, spare)
                gather(0, some_y, entry, y, base, outside, ring, slot + f_y)
            next_, at_x = int32(next_ + span), at_x + (0 if places else span)
            left = int32(left - span)
            multiply(0, acc, row, column, shared, here + from_x, here + from_y)
            here = whole - here
            if not ahead:
                put_x(0, shared, here + to_x, some_x)
                put_y(0, shared, here + to_y, some_y)
            cuda.syncthreads()
        join(acc, shared, column, part, thread, ty, tx)
        aim(
            0, to, thread, ty, tx, first_col, m, lines, at_line, count, width, height, out_image
        )
        write(
            0, out, acc, to, bias, biased != 0 and begin == 0, group,
            z % shares * out_share + group * out_group, out_row, n, first_row, thread, ty, tx, even,
        )  # fmt: skip

    product.launch_bounds = threads, tile.blocks  # type: ignore[attr-defined]
    if tile.cores and tall:
        product.least = 90  # type: ignore[attr-defined]
    return product
