"""The kernel of convolutions: a product of matrices of which the right factor is never made.

An element of that factor is gathered when a slice is brought, see ``sight.py``. The rest is
``product.py``. Start reading at ``patched``, whose tables ``geometry.py`` makes.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, int32, int64

from .product import slices, spread, teams
from .shape import SIMULATED, Tile
from .shared import copy1, copy8, copy16, fixed, standing, which
from .sight import NOWHERE, lines_of, sight
from .squares import APART, repeated, squares
from .warp import pasted, split

if not SIMULATED:  # which has no tensor cores of float64
    from .double import core_squares

__all__ = ["patched"]


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
    loads_x, rounds_x, down_x, far_x = of_x.loads, of_x.rounds, of_x.down, of_x.far
    loads_y, rounds_y, down_y, far_y = of_y.loads, of_y.rounds, of_y.down, of_y.far
    size_x = loads_x * of_x.width
    if tile.cores:
        first, place, multiply = core_squares(tile, tall)
    else:
        first, place, multiply = squares(real, tile)
    held, vectors, join, lies = teams(real, tile, place)
    size = max(2 * whole, held)
    words = 1 if parts > 1 else tile.each_col // vector  # of 16 bytes, in which a thread ends
    to_size = words * vector
    sees = sight(places, rows, cols, threads, span)
    chunk, others, columns, ring_size = sees.chunk, sees.others, sees.columns, sees.size
    mine, seen, find, hold_taps = sees.mine, sees.seen, sees.find, sees.hold_taps

    @pasted
    def hold_place(r, y, base, outside, col, m, y_base, y_image, lines, form, at):
        """Where the ``r``-th column of a thread is in y, and its bits."""
        image, place = split(min(col + r * down_y, m - 1), form[at])
        offset, bits = seen(lines, form[at + 3], place, form[at + 4], form[at + 5])
        base[r] = fixed(y, y_base + image * y_image + offset)
        outside[r] = int32(bits)

    @pasted
    def gather(s, some, entry, of_column, y, y_base, base, outside, ring, at, j):
        """The ``s``-th element of a slice whose entry of the thread is at ``at``, for column j."""
        copy8(entry, 0, ring, 2 * (at + s // rounds_y * far_y))
        some[s] = real(0)
        if places:
            copy8(of_column, 0, ring, columns + 2 * (j + s % rounds_y * down_y))
            if entry[1] & of_column[1] == 0:
                copy1(some, s, standing(y, y_base), int32(entry[0] + of_column[0]))
        elif entry[1] & outside[s % rounds_y] == 0:
            copy1(some, s, standing(y, base[s % rounds_y]), entry[0])

    @pasted
    def follow(s, some, entry, x, at_x, x_row, spare, ring, at):
        """The ``s``-th word of x where its steps are places."""
        copy1(entry, 0, ring, others + at + s // rounds_x * far_x)
        place = int64(entry[0])
        if rounds_x > 1 and s % rounds_x * down_x < spare:
            place += s % rounds_x * down_x * x_row
        if wide:
            copy16(some, s * vector, standing(x, at_x), place)
        else:
            copy1(some, s, standing(x, at_x), place)

    @pasted
    def aim(q, to, thread, ty, tx, first_col, images, lines, form, at, out_image):
        """Where the columns of the ``q``-th word are in the result."""
        _, j = lies(q, thread, ty, tx)
        for c in range(vector):
            col = first_col + j + c
            to[q * vector + c] = NOWHERE
            if places:
                if col < form[1]:
                    to[q * vector + c] = col
            elif col < form[at] * images:
                image, place = split(col, form[at])
                px, py, pz = lines_of(form[at + 3], place, form[at + 4], form[at + 5])
                to[q * vector + c] = (
                    image * out_image + lines[px + 2] + lines[py + 2] + lines[pz + 2]
                )

    @pasted
    def write(
        q, out, acc, to, bias, biased, first_bias, base, out_row, n, first_row, thread, ty, tx, even
    ):  # fmt: skip
        i, _ = lies(q, thread, ty, tx)
        i += first_row
        w = q % words * vector
        if i < n:
            if biased:
                more = bias[first_bias + i]
                for c in range(vector):
                    acc[q * vector + c] += more
            if even:
                if to[w] >= 0:
                    copy16(out, base + i * out_row + to[w], acc, q * vector)
            else:
                for c in range(vector):
                    if to[w + c] >= 0:
                        out[base + i * out_row + to[w + c]] = acc[q * vector + c]

    hold_place = repeated(hold_place, rounds_y)
    gather, follow = repeated(gather, loads_y), repeated(follow, loads_x)
    aim, write = repeated(aim, words), repeated(write, vectors)

    def product(
        out, x, y, bias, taps, lines, form, biased, n, images, x_row, x_group, x_image,
        y_group, y_image, out_row, out_group, out_image, out_share, share, shares, first_group,
        even,
    ):  # fmt: skip
        """x (groups, n, steps): a weight, or the gradient of the result; y: the source.

        form: for each phase its places in an image, its steps, the first of its taps and of its
        lines, its width and height. share: steps of a block, of which ``shares`` have the same
        tile. even: the result can be written by 16 bytes.
        """
        shared = cuda.shared.array(size, real, alignment=16)
        ring = cuda.shared.array(ring_size, int32, alignment=16)
        acc = cuda.local.array(each, real, alignment=16)
        row = cuda.local.array(row_size, real, alignment=16)
        column = cuda.local.array(column_size, real, alignment=16)
        some_x = cuda.local.array(size_x, real, alignment=16)
        some_y = cuda.local.array(loads_y, real, alignment=16)
        entry = cuda.local.array(2, int32, alignment=8)
        of_column = cuda.local.array(2, int32, alignment=8)
        base = cuda.local.array(rounds_y, int64)
        outside = cuda.local.array(rounds_y, int32)
        to = cuda.local.array(to_size, int64)
        thread, at, part_share, group, first_row, first_col = mine(n, shares)
        part = thread // team
        _, _, from_x, from_y = first(thread % team)
        k, m = form[at + 1], form[at] * images
        if places:
            k, m = m, k
        if first_col >= m:
            return
        group += first_group
        y_base, at_x = group * y_group, group * x_group
        begin = part_share * share
        if places:  # from the first image of the share on
            image, first_step = split(begin, form[0])
            y_base, at_x = y_base + image * y_image, at_x + image * x_image
        else:
            first_step = begin + form[at + 2]
        # The first slice is the short one, so that later ones need no look at where they end.
        steps = max(min(share, k - begin), 0)
        short = (steps - 1) % span + 1
        left = int32(steps - short)
        find(
            0, ring, 0, first_step, min(short, steps), taps, lines, form, x_image, y_image,
            thread,
        )  # fmt: skip
        if places:
            hold_taps(ring, thread, first_col, m, taps)
        cuda.syncthreads()
        first_step += short
        find(0, ring, span, first_step, left, taps, lines, form, x_image, y_image, thread)
        last_step = int32(first_step + left)
        j, f_y = first_y(thread)
        if not places:
            hold_place(0, y, base, outside, first_col + j, m, y_base, y_image, lines, form, at)
        y_base = fixed(y, y_base)
        j = int32(j)
        i, f_x = first_x(thread)
        spare = int32(n - first_row - i)
        at_x += min(first_row + i, n - 1) * x_row
        to_x = int32(f_x * left_row + i)
        to_y = int32(second + f_y * right_row + j)
        f_x, f_y = int32(f_x), int32(f_y)
        if places:
            at_x = fixed(x, at_x)
            follow(0, some_x, entry, x, at_x, x_row, spare, ring, f_x)
        else:
            at_x += first_step - short + f_x
            begin_x(0, some_x, x, at_x, x_row, 1, spare, min(short, steps) - f_x)
            at_x += short
        put_x(0, shared, to_x, some_x)
        gather(0, some_y, entry, of_column, y, y_base, base, outside, ring, f_y, j)
        put_y(0, shared, to_y, some_y)
        from_x = int32(from_x + part * depth * left_row)
        from_y = int32(from_y + second + part * depth * right_row)
        for i in range(each):
            acc[i] = real(0)
        cuda.syncthreads()
        here, slot = int32(0), int32(span)
        far = span if ahead else 0
        if ahead:
            if left > 0:
                if places:
                    follow(0, some_x, entry, x, at_x, x_row, spare, ring, span + f_x)
                else:
                    bring_x(0, some_x, x, at_x, x_row, 1, spare)
                gather(0, some_y, entry, of_column, y, y_base, base, outside, ring, span + f_y, j)
            slot, at_x = int32(2 * span), at_x + (0 if places else span)
        while left >= 0:
            more = int32(left - (far + chunk - span))  # steps behind those in the ring
            if more > 0 and slot & (chunk - 1) == 2 * span:
                find(
                    0, ring, slot + chunk - span, last_step - more, more, taps, lines, form,
                    x_image, y_image, which()[0],
                )  # fmt: skip
            if ahead:
                put_x(0, shared, whole - here + to_x, some_x)
                put_y(0, shared, whole - here + to_y, some_y)
            if left > far:
                if places:
                    follow(0, some_x, entry, x, at_x, x_row, spare, ring, slot + f_x)
                else:
                    bring_x(0, some_x, x, at_x, x_row, 1, spare)
                gather(0, some_y, entry, of_column, y, y_base, base, outside, ring, slot + f_y, j)
            slot, at_x = int32((slot + span) & (2 * chunk - 1)), at_x + (0 if places else span)
            left = int32(left - span)
            multiply(0, acc, row, column, shared, here + from_x, here + from_y)
            here = int32(whole - here)
            if not ahead:
                put_x(0, shared, here + to_x, some_x)
                put_y(0, shared, here + to_y, some_y)
            cuda.syncthreads()
        # Of where the block is nothing was kept: the loop needs all registers.
        thread, at, part_share, group, first_row, first_col = mine(n, shares)
        group += first_group
        ty, tx, _, _ = first(thread % team)
        join(acc, shared, column, thread // team, thread, ty, tx)
        aim(0, to, thread, ty, tx, first_col, images, lines, form, at, out_image)
        write(
            0, out, acc, to, bias, biased != 0 and part_share == 0, group * n,
            part_share * out_share + group * out_group, out_row, n,
            first_row, thread, ty, tx, even,
        )  # fmt: skip

    product.launch_bounds = threads, tile.blocks  # type: ignore[attr-defined]
    if tile.cores and tall:
        product.least = 90  # type: ignore[attr-defined]
    return product
