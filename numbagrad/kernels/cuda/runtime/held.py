"""Rows that stay in registers: read once, by 16 bytes where the layout allows it.

A row is a team's, some neighbouring threads of a warp or a block, each of which holds up to GROUPS
groups of neighbouring elements. Start reading at ``held_by``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .grids import power_of_two, tile_grid
from .intrinsics import load2, load4, store2, store4
from .shape import BLOCK, WARP
from .warp import block_max, block_sum, inlined, shuffle_xor

__all__ = ["Held", "grid_for_rows", "held_by", "lanes_of", "reader", "summed", "writer"]

GROUPS = 8
"""Most groups of a thread; their registers leave a multiprocessor at least 16 warps."""


@dataclass(frozen=True)
class Held:
    """width: threads of a row; groups: of each thread; lanes: neighbouring elements of a group."""

    width: int
    groups: int
    lanes: int

    @property
    def count(self) -> int:
        """Rows of a block."""
        return BLOCK // self.width

    @property
    def size(self) -> int:
        """Elements of a thread."""
        return self.groups * self.lanes


def lanes_of(m: int, *arrays: Any) -> int:
    """Neighbours that can be loaded at once from rows of ``m`` elements of ``arrays``."""
    lanes = 4 if max([a.itemsize for a in arrays]) <= 4 else 2
    together = 0
    for a in arrays:
        together |= a.pointer
    return 1 if m % lanes or together % 16 else lanes


def held_by(m: int, *arrays: Any) -> Held | None:
    """Who holds rows of ``m`` elements of ``arrays``; None if they are too long."""
    lanes = lanes_of(m, *arrays)
    groups = -(-m // lanes)
    most = GROUPS if lanes > 1 else 2 * GROUPS
    if groups <= WARP * GROUPS:
        width = min(power_of_two(groups), WARP)
    elif groups <= BLOCK * most:
        width = BLOCK
    else:
        return None
    return Held(width, power_of_two(-(-groups // width)), lanes)


def grid_for_rows(held: Held, rows: int) -> int:
    """Blocks for so many rows."""
    return tile_grid(-(-rows // held.count))


def reader(real: Any, held: Held) -> Callable[..., Any]:
    """``read(values, x, row, lane, end, missing)``: a thread's elements of the row at ``row``."""
    width, groups, lanes = held.width, held.groups, held.lanes

    @inlined
    def read_fours(values, x, row, lane, end, missing):
        for k in range(groups):
            j = (k * width + lane) * 4
            a, b, c, d = missing, missing, missing, missing
            if j < end:
                p, q, r, s = load4(x, row + j)
                a, b, c, d = real(p), real(q), real(r), real(s)
            values[4 * k], values[4 * k + 1], values[4 * k + 2], values[4 * k + 3] = a, b, c, d

    @inlined
    def read_twos(values, x, row, lane, end, missing):
        for k in range(groups):
            j = (k * width + lane) * 2
            a, b = missing, missing
            if j < end:
                p, q = load2(x, row + j)
                a, b = real(p), real(q)
            values[2 * k], values[2 * k + 1] = a, b

    @inlined
    def read_ones(values, x, row, lane, end, missing):
        for k in range(groups):
            j = k * width + lane
            values[k] = real(x[row + j]) if j < end else missing

    return {4: read_fours, 2: read_twos, 1: read_ones}[lanes]


def writer(held: Held) -> Callable[..., Any]:
    """``write(out, values, row, lane, end)``: a thread's elements of the row at ``row``."""
    width, groups, lanes = held.width, held.groups, held.lanes

    @inlined
    def write_fours(out, values, row, lane, end):
        for k in range(groups):
            j = (k * width + lane) * 4
            if j < end:
                a, b = values[4 * k], values[4 * k + 1]
                store4(out, row + j, a, b, values[4 * k + 2], values[4 * k + 3])

    @inlined
    def write_twos(out, values, row, lane, end):
        for k in range(groups):
            j = (k * width + lane) * 2
            if j < end:
                store2(out, row + j, values[2 * k], values[2 * k + 1])

    @inlined
    def write_ones(out, values, row, lane, end):
        for k in range(groups):
            j = k * width + lane
            if j < end:
                out[row + j] = values[k]

    return {4: write_fours, 2: write_twos, 1: write_ones}[lanes]


def summed(held: Held) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The sum and the largest, NaN if there is one, over the team: ``(value, shared)``."""
    width = held.width
    if width == BLOCK:
        return block_sum, block_max

    @inlined
    def total(value, shared):
        mask = width // 2
        while mask > 0:
            value = value + shuffle_xor(value, mask)
            mask //= 2
        return value

    @inlined
    def largest(value, shared):
        mask = width // 2
        while mask > 0:
            other = shuffle_xor(value, mask)
            value = other if other > value or other != other else value
            mask //= 2
        return value

    return total, largest
