"""Teams: the threads that share a row, a warp for short rows and a block for long ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .launch import strided_grid
from .shape import BLOCK, WARP, WARPS
from .warp import block_max, block_sum, warp_max, warp_sum

__all__ = ["Team", "grid_of", "team_for"]


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


_WARP = Team(WARP, WARPS, warp_sum, warp_max)
_BLOCK = Team(BLOCK, 1, block_sum, block_max)


def team_for(length: int) -> Team:
    """The team for rows of ``length`` elements."""
    return _WARP if length <= 16 * WARP else _BLOCK


def grid_of(team: Team, rows: int) -> int:
    """Blocks for so many rows."""
    return strided_grid(-(-rows // team.count) * BLOCK)
