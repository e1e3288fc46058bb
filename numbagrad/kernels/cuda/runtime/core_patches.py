"""Convolutions on tensor cores: halves, and float32 rounded to tf32, with sums in float32.

As in ``cores.py`` the factors lie in shared memory in words of 32 bits, two halves or one tf32
along the summed dimension, and a warp multiplies squares of 16 by 8 by ``mma``. The patches are
gathered as in ``patches.py``, see ``sight.py``; what is brought stays as it is until the slice
before it has been multiplied, so that nobody waits for memory. Compute capability 8.0 and later.
Start reading at ``core_patched``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numba import cuda, float32, int32, int64, uint32

from .intrinsics import MULTIPLY, half_bits, store2, tf32_bits
from .shape import CoreTile
from .shared import bits16, copy1, copy8, copy16, fixed, standing, which
from .sight import NOWHERE, lines_of, sight
from .squares import repeated
from .warp import inlined, pasted, split

__all__ = ["core_patched"]

LANES = 32


@functools.cache
def core_patched(dtype: np.dtype, tile: CoreTile, places: bool, wide: bool) -> Any:
    """The kernel for factors of ``dtype``. places: the steps are places and the columns taps, for
    the gradient of a weight, otherwise it is the other way round. wide: x is read by 16 bytes.
    """
    rows, cols, words, threads = tile.rows, tile.cols, tile.words, tile.threads
    across, high, broad = tile.across, tile.high, tile.wide
    halves = dtype.itemsize == 2
    each = 2 if halves else 1  # elements of a word
    raw = uint32 if halves else float32
    span = words * each
    row_words = words + 4  # so that the reads of a fragment meet in no bank
    col_step, col_word = (row_words, 1) if places else (1, cols + 8)  # of columns, of words
    size_x = rows * row_words
    whole = size_x + (cols * row_words if places else words * (cols + 8))
    sees = sight(places, rows, cols, threads, span)
    chunk, others, columns, ring_size = sees.chunk, sees.others, sees.columns, sees.size
    mine, seen, find, hold_taps = sees.mine, sees.seen, sees.find, sees.hold_taps
    near_x = words // 4 if wide else words
    loads_x, down_x = -(-rows * near_x // threads), threads // near_x
    idle = rows * near_x < threads  # some threads then bring nothing of x
    some_size = loads_x * (4 if wide else each)
    loads_y = cols * words // threads
    far_y = threads // words if places else threads // cols  # columns, or words
    assert threads >= cols and loads_y
    multiply = MULTIPLY[dtype]
    shared_size = 2 * whole
    acc_size, b_size, size_y = high * broad * 4, 2 * broad, loads_y * each

    @inlined
    def element(pointer, at):
        """An element as it is."""
        return half_bits(pointer, at) if halves else pointer[at]

    @inlined
    def word(some, at):
        """The word of what was brought at ``at``."""
        if halves:
            return some[at] | some[at + 1] << uint32(16)
        return tf32_bits(some[at])

    @pasted
    def bring_x(s, some, entry, x, at_x, moved, x_row, spare, ring, at, left):
        """The ``s``-th piece or word of x; ``left``: steps that there are from it on."""
        place = int64(moved)
        if s * down_x < spare:
            place += s * down_x * x_row
        if wide:
            if places:
                copy1(entry, 0, ring, others + at)
                place += entry[0]
            if left > 0:
                bits16(some, 4 * s, standing(x, at_x), place)
            else:
                for c in range(4):
                    some[4 * s + c] = raw(0)
        else:
            for e in range(each):
                some[each * s + e] = raw(0)
                if e < left:
                    more = int64(e)
                    if places:
                        copy1(entry, 0, ring, others + at + e)
                        more = int64(entry[0])
                    some[each * s + e] = element(standing(x, at_x), place + more)

    @pasted
    def put_x(s, shared, to, some, bits):
        """What ``bring_x`` has brought, from word ``to`` on."""
        to += s * down_x * row_words
        if wide:
            for c in range(4):
                bits[c] = some[4 * s + c] if halves else tf32_bits(some[4 * s + c])
            copy16(shared, to, bits, 0)
        else:
            bits[0] = word(some, each * s)
            copy1(shared, to, bits, 0)

    @pasted
    def bring_y(s, some, entry, of_column, y, y_base, outside, ring, at, j):
        """The ``s``-th word of y: of a column j or of steps from ``at`` on."""
        if places:
            copy8(of_column, 0, ring, columns + 2 * (j + s * far_y))
        else:
            at += s * far_y * each
        if halves:
            copy16(entry, 0, ring, 2 * at)
        else:
            copy8(entry, 0, ring, 2 * at)
        for e in range(each):
            some[each * s + e] = raw(0)
            if places:
                if entry[2 * e + 1] & of_column[1] == 0:
                    there = int32(entry[2 * e] + of_column[0])
                    some[each * s + e] = element(standing(y, y_base), there)
            elif entry[2 * e + 1] & outside == 0:
                some[each * s + e] = element(standing(y, y_base), entry[2 * e])

    @pasted
    def put_y(s, shared, to, some, bits):
        bits[0] = word(some, each * s)
        copy1(shared, to + s * far_y * (col_step if places else col_word), bits, 0)

    @inlined
    def aim(col, m, images, lines, form, at, out_image):
        """Where a column is in the result."""
        if col >= m:
            return int64(NOWHERE)
        if places:
            return int64(col)
        image, place = split(col, form[at])
        px, py, pz = lines_of(form[at + 3], place, form[at + 4], form[at + 5])
        return int64(image * out_image + lines[px + 2] + lines[py + 2] + lines[pz + 2])

    bring_x, put_x = repeated(bring_x, loads_x), repeated(put_x, loads_x)
    bring_y, put_y = repeated(bring_y, loads_y), repeated(put_y, loads_y)

    def cored(
        out, x, y, bias, taps, lines, form, biased, n, images, x_row, x_group, x_image,
        y_group, y_image, out_row, out_group, out_image, out_share, share, shares, first_group,
        even,
    ):  # fmt: skip
        """As ``patches.patched``. even: two neighbours of the result are written at once."""
        shared = cuda.shared.array(shared_size, uint32, alignment=16)
        ring = cuda.shared.array(ring_size, int32, alignment=16)
        acc = cuda.local.array(acc_size, float32)
        a = cuda.local.array(4, uint32)
        b = cuda.local.array(b_size, uint32)
        bits = cuda.local.array(4, uint32, alignment=16)
        some_x = cuda.local.array(some_size, raw, alignment=16)
        some_y = cuda.local.array(size_y, raw)
        entry = cuda.local.array(4, int32, alignment=16)
        of_column = cuda.local.array(2, int32, alignment=8)
        thread, at, part_share, group, first_row, first_col = mine(n, shares)
        k, m = form[at + 1], form[at] * images
        if places:
            k, m = m, k
        if first_col >= m:
            return
        group += first_group
        y_base, at_x = group * y_group, group * x_group
        begin = part_share * share
        if places:
            image, first_step = split(begin, form[0])
            y_base, at_x = y_base + image * y_image, at_x + image * x_image
        else:
            first_step = begin + form[at + 2]
        # The first slice is the short one, so that later ones need no look at where they end.
        steps = max(min(share, k - begin), 0)
        short = (steps - 1) % span + 1
        left = int32(steps - short)
        there = int32(min(short, steps))
        find(0, ring, 0, first_step, there, taps, lines, form, x_image, y_image, thread)
        if places:
            hold_taps(ring, thread, first_col, m, taps)
        cuda.syncthreads()
        find(0, ring, span, first_step + short, left, taps, lines, form, x_image, y_image, thread)
        last_step = int32(first_step + short + left)
        outside = int32(0)
        if places:
            j, w = thread // words, thread % words
            y_base = fixed(y, y_base)
        else:
            j, w = thread % cols, thread // cols
            image, place = split(min(first_col + j, m - 1), form[at])
            offset, found = seen(lines, form[at + 3], place, form[at + 4], form[at + 5])
            y_base = fixed(y, y_base + image * y_image + offset)
            outside = int32(found)
        to_y, f_y = int32(size_x + j * col_step + w * col_word), int32(w * each)
        i, w = thread // near_x, thread % near_x * (4 if wide else 1)
        spare = int32(n - first_row - i)
        at_x += min(first_row + i, n - 1) * x_row
        if not places:
            at_x += first_step + w * each
        at_x = fixed(x, at_x)
        to_x, f_x = int32(i * row_words + w), int32(w * each)
        moved = int32(0)
        brings = not idle or i < rows
        if brings:
            bring_x(0, some_x, entry, x, at_x, moved, x_row, spare, ring, f_x, int32(there - f_x))
        bring_y(0, some_y, entry, of_column, y, y_base, outside, ring, f_y, j)
        if brings:
            put_x(0, shared, to_x, some_x, bits)
        put_y(0, shared, to_y, some_y, bits)
        lane, warp = thread % LANES, thread // LANES
        g, t = lane // 4, lane % 4
        from_x = int32((warp // across * high * 16 + g) * row_words + t)
        from_y = int32(size_x + (warp % across * broad * 8 + g) * col_step + t * col_word)
        for c in range(acc_size):
            acc[c] = float32(0)
        cuda.syncthreads()
        here, slot = int32(0), int32(span)
        if not places:
            moved = int32(short)
        while left >= 0:
            more = int32(left - (chunk - span))  # steps behind those in the ring
            if more > 0 and slot & (chunk - 1) == 2 * span:
                find(
                    0, ring, slot + chunk - span, last_step - more, more, taps, lines, form,
                    x_image, y_image, which()[0],
                )  # fmt: skip
            if left > 0:
                if brings:
                    bring_x(
                        0, some_x, entry, x, at_x, moved, x_row, spare, ring, slot + f_x,
                        int32(span),
                    )  # fmt: skip
                bring_y(0, some_y, entry, of_column, y, y_base, outside, ring, slot + f_y, j)
            slot = int32((slot + span) & (2 * chunk - 1))
            moved = int32(moved + (0 if places else span))
            left = int32(left - span)
            for w in range(0, words, 8):
                for j2 in range(broad):
                    at_b = here + from_y + j2 * 8 * col_step + w * col_word
                    copy1(b, 2 * j2, shared, at_b)
                    copy1(b, 2 * j2 + 1, shared, at_b + 4 * col_word)
                for i in range(high):
                    at_a = here + from_x + i * 16 * row_words + w
                    copy1(a, 0, shared, at_a)
                    copy1(a, 1, shared, at_a + 8 * row_words)
                    copy1(a, 2, shared, at_a + 4)
                    copy1(a, 3, shared, at_a + 8 * row_words + 4)
                    for j2 in range(broad):
                        q = (i * broad + j2) * 4
                        acc[q], acc[q + 1], acc[q + 2], acc[q + 3] = multiply(
                            a[0], a[1], a[2], a[3], b[2 * j2], b[2 * j2 + 1],
                            acc[q], acc[q + 1], acc[q + 2], acc[q + 3],
                        )  # fmt: skip
            here = int32(whole - here)
            if brings:
                put_x(0, shared, here + to_x, some_x, bits)
            put_y(0, shared, here + to_y, some_y, bits)
            cuda.syncthreads()
        # Of where the block is nothing was kept: the loop needs all registers.
        thread, at, part_share, group, first_row, first_col = mine(n, shares)
        group += first_group
        m = form[1] if places else form[at] * images
        lane, warp = thread % LANES, thread // LANES
        first_row += warp // across * high * 16 + lane // 4
        first_col += warp % across * broad * 8 + lane % 4 * 2
        base = part_share * out_share + group * out_group
        biased = biased != 0 and part_share == 0
        for j2 in range(broad):
            to = aim(first_col + j2 * 8, m, images, lines, form, at, out_image)
            next_ = int64(NOWHERE)
            if not even:
                next_ = aim(first_col + j2 * 8 + 1, m, images, lines, form, at, out_image)
            for i in range(2 * high):
                row = first_row + i * 8
                q = (i // 2 * broad + j2) * 4 + i % 2 * 2
                if row < n and to >= 0:
                    v0, v1 = acc[q], acc[q + 1]
                    if biased:
                        v0 += bias[group * n + row]
                        v1 += bias[group * n + row]
                    place = base + row * out_row
                    if even:
                        store2(out, place + to, v0, v1)
                    else:
                        out[place + to] = v0
                        if next_ >= 0:
                            out[place + next_] = v1

    cored.launch_bounds = threads, tile.blocks  # type: ignore[attr-defined]
    return cored
