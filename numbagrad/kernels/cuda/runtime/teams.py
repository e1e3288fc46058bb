"""Teams: the threads that share a row, a warp for short rows and a block for long ones.

A row whose elements lie ``inner`` apart is one thread's, beside the neighbours of the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .grids import tile_grid
from .maths import math
from .shape import BLOCK, WARP, WARPS
from .warp import block_max, block_sum, inlined, split, warp_max, warp_sum

__all__ = ["Team", "exponentials", "grid_of", "rows_of", "team_for"]


@dataclass(frozen=True)
class Team:
    """width: threads of a team; count: teams of a block; sum, largest: ``(value, shared)``.

    A kernel counts ``base`` up by ``count`` in each block, so that all its threads come to every
    ``sum``; a team whose row is beyond the end goes over no elements.
    """

    width: int
    count: int
    sum: Callable[..., Any]
    largest: Callable[..., Any]


@inlined
def _own(value, shared):
    return value


_THREAD = Team(1, BLOCK, _own, _own)
_WARP = Team(WARP, WARPS, warp_sum, warp_max)
_BLOCK = Team(BLOCK, 1, block_sum, block_max)


def team_for(length: int, inner: int = 1) -> Team:
    """The team for rows of ``length`` elements."""
    if inner > 1:
        return _THREAD
    return _WARP if length <= 16 * WARP else _BLOCK


def grid_of(team: Team, rows: int) -> int:
    """Blocks for so many rows."""
    return tile_grid(-(-rows // team.count))


def rows_of(team: Team) -> Callable[..., Any]:
    """``(i, m, inner)``: where row ``i`` of (outer, m, inner) begins, and its step."""
    apart = team.width == 1

    @inlined
    def row(i, m, inner):
        if apart:
            outer, column = split(i, inner)
            return outer * m * inner + column, inner
        return i * m, 1

    return row


def exponentials(real: Any, team: Team) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The largest element of a row, and the sum of ``exp(x - peak)`` over it."""
    width, total_of, largest_of = team.width, team.sum, team.largest

    @inlined
    def peak_of(x, row, step, lane, end, shared):
        peak = real(-math.inf)
        for j in range(lane, end, width):
            value = x[row + j * step]
            peak = value if value > peak or value != value else peak
        return largest_of(peak, shared)

    @inlined
    def mass_of(x, row, step, lane, end, peak, shared):
        total = real(0)
        for j in range(lane, end, width):
            total += real(math.exp(x[row + j * step] - peak))
        return total_of(total, shared)

    return peak_of, mass_of
