"""What brings slices of a factor into the ring in shared memory: of a matrix, or of patches.

Each maker returns two functions. ``begin`` returns what is fixed for a thread and where its first
slice lies; ``bring`` begins the copies of a slice and returns where the next one lies. A factor may
be the sum of several parts, whose slices lie behind one another. Start reading at ``matrix``.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, int32, int64, uint32

from .intrinsics import load4
from .pipeline import copy16
from .ring import BYTES, copier
from .squares import repeated
from .warp import inlined, pasted
from .wgmma import DEPTH

__all__ = ["LINE", "NOWHERE", "matrix", "patches_across", "patches_along"]

LINE = 2 * DEPTH
"""Bytes of a row in shared memory."""

NOWHERE = -(1 << 29)
"""A coordinate from which no tap comes into the source."""


def matrix(lines: int, threads: int, along: bool, parts: int) -> tuple[Any, Any]:
    """Of a matrix. along: k is the dimension of unit stride; lines: rows or columns of a tile."""
    place, copy = copier(lines, DEPTH, threads, along, 64)
    size = LINE * lines

    @pasted
    def begin(put, first, given):
        """put: where the ring begins; first: line of the tile. given: the address of the first
        part, lines that there are, elements from line to line (or step to step), from part to part.
        """
        at, count, far, apart = given
        to, more, far, inside, step = place(int32(cuda.threadIdx.x), first, count, far)
        next_slice = int64(DEPTH * BYTES) if along else int64(DEPTH * BYTES) * int64(given[2])
        return (uint32(put + to), far, inside, step, apart * BYTES, next_slice), at + more

    @pasted
    def bring(to, fixed, at, left):
        """To the slice at ``to``; ``left`` steps are there."""
        put, far, inside, step, apart, more = fixed
        if left > int32(0):
            for p in range(parts):
                copy(uint32(put + to + p * size), at + p * apart, far, inside, step, left)
        return at + more

    return begin, bring


@pasted
def _sees(z, y, x, dz, dy, dx, depth, height, width):
    """Whether a tap at a place is inside of the source."""
    here = uint32(z + dz) < uint32(depth) and uint32(y + dy) < uint32(height)
    return here and uint32(x + dx) < uint32(width)


def patches_along(lines: int, threads: int, parts: int) -> tuple[Any, Any]:
    """Of patches, a line for each place of the result, with taps and channels along k.

    The source lies with its channels together, 8 and 8: a piece of a line is one of a place of it.
    """
    size, pieces = LINE * lines, DEPTH // 8
    apart_lines, loads = threads // pieces, lines * pieces // threads
    assert apart_lines % 8 == 0 and loads, "pieces would change places"

    @pasted
    def begin_one(s, where, z, y, x, at, places, first, many, count, image):
        line = int32(first + s * apart_lines)
        z[s], y[s], x[s], where[s] = int32(NOWHERE), int32(0), int32(0), int64(at)
        if line < count:
            picture = int32(uint32(line) // uint32(many))
            place = int64(line - picture * int32(many))
            off, z[s], y[s], x[s] = load4(places, 4 * place)
            where[s] = at + (int64(picture) * image + off) * BYTES

    @pasted
    def bring_one(s, to, where, z, y, x, there, off, dz, dy, dx, depth, height, width, apart):
        seen = there and _sees(z[s], y[s], x[s], dz, dy, dx, depth, height, width)
        source = where[s] + int64(off) * BYTES if seen else where[s]
        for p in range(parts):
            copy16(uint32(to + s * (apart_lines * LINE) + p * size), source + p * apart, seen)

    begin_all, bring_all = repeated(begin_one, loads), repeated(bring_one, loads)

    @inlined  # by Numba: what LLVM pastes may not use its arrays afterwards
    def begin(put, first, given):
        """given: the address of the first part; tables of places and of taps, see ``geometry`` in
        ``channels.py``; places of an image, and of all; the first step; elements of an image of
        the source; its sizes; pieces of a line; elements from part to part.
        """
        at, places, taps, many, count, start, image, depth, height, width, last, apart = given
        where = cuda.local.array(loads, int64)
        z = cuda.local.array(loads, int32)
        y = cuda.local.array(loads, int32)
        x = cuda.local.array(loads, int32)
        thread = int32(cuda.threadIdx.x)
        piece, row = int32(thread % pieces), int32(thread // pieces)
        begin_all(0, where, z, y, x, at, places, first + row, many, count, image)
        put = uint32(put + row * LINE + (piece ^ (row & 7)) * 16)
        fixed = put, where, z, y, x, taps, depth, height, width, last, apart * BYTES
        return fixed, int32(piece + int32(start) // int32(8))

    @pasted
    def bring(to, fixed, piece, left):
        put, where, z, y, x, taps, depth, height, width, last, apart = fixed
        if left > int32(0):
            there = piece < last
            off, dz, dy, dx = load4(taps, 4 * int64(piece if there else int32(0)))
            bring_all(
                0, uint32(put + to), where, z, y, x, there, off, dz, dy, dx, depth, height, width,
                apart,
            )  # fmt: skip
        return int32(piece + pieces)

    return begin, bring


def patches_across(lines: int, threads: int, parts: int) -> tuple[Any, Any]:
    """Of patches, a step of k for each place, with taps and channels across; given: as before."""
    size, pieces = LINE * lines, lines // 8
    apart_steps, loads = threads // pieces, DEPTH * pieces // threads
    assert apart_steps % 8 == 0 and loads, "pieces would change places"

    @pasted
    def begin_one(s, where, place, at, first, many, image):
        step = int32(first + s * apart_steps)
        picture = int32(uint32(step) // uint32(many))
        place[s] = int32(step - picture * int32(many))
        where[s] = at + int64(picture) * image * BYTES

    @pasted
    def bring_one(
        s, to, where, place, places, row, tap, dz, dy, dx, many, far, depth, height, width, apart,
        left,
    ):  # fmt: skip
        there = int32(row + s * apart_steps) < left
        off, z, y, x = load4(places, 4 * int64(place[s] if there else int32(0)))
        seen = there and _sees(z, y, x, dz, dy, dx, depth, height, width)
        source = where[s] + int64(off) * BYTES + tap if seen else where[s]
        for p in range(parts):
            copy16(uint32(to + s * (apart_steps * LINE) + p * size), source + p * apart, seen)
        place[s] = int32(place[s] + DEPTH)
        while place[s] >= int32(many):
            place[s] = int32(place[s] - int32(many))
            where[s] += far

    begin_all, bring_all = repeated(begin_one, loads), repeated(bring_one, loads)

    @inlined  # by Numba: what LLVM pastes may not use its arrays afterwards
    def begin(put, first, given):
        at, places, taps, many, _, start, image, depth, height, width, last, apart = given
        where = cuda.local.array(loads, int64)
        place = cuda.local.array(loads, int32)
        thread = int32(cuda.threadIdx.x)
        piece, row = int32(thread % pieces), int32(thread // pieces)
        begin_all(0, where, place, at, start + row, many, image)
        mine = int32(first // 8 + piece)
        off, dz, dy, dx = load4(taps, 4 * int64(mine if mine < last else int32(0)))
        dz = dz if mine < last else int32(NOWHERE)
        put = uint32(put + piece // 8 * (DEPTH * LINE) + row * LINE)
        put = uint32(put + (piece % 8 ^ (row & 7)) * 16)
        far = image * BYTES
        fixed = (
            put, where, place, places, row, int64(off) * BYTES, dz, dy, dx, many, far, depth,
            height, width, apart * BYTES,
        )  # fmt: skip
        return fixed, int32(0)

    @pasted
    def bring(to, fixed, nothing, left):
        (
            put, where, place, places, row, tap, dz, dy, dx, many, far, depth, height, width, apart,
        ) = fixed  # fmt: skip
        if left > int32(0):
            bring_all(
                0, uint32(put + to), where, place, places, row, tap, dz, dy, dx, many, far, depth,
                height, width, apart, left,
            )  # fmt: skip
        return nothing

    return begin, bring
