"""Factors of a convolution as ``parted_conv.py`` copies them: with their channels together.

A place has all its channels, eight by eight, 16 bytes of halves each, and what a patch takes of it
begins at a multiple of these. Start reading at ``channels_together`` and at ``geometry``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import cuda, int32

from . import device
from .parted import read8, take8
from .shape import BLOCK, WARPS
from .warp import block_max, called, split

__all__ = ["PIECE", "Rows", "channels_together", "geometry"]

PIECE = 8
"""Channels of a place that lie together."""

SIDE = 32
"""Places whose channels a block brings together at once."""

TAKERS = 528
"""Blocks that rewrite a factor, at the most."""


@called
def _together(parts, first, x, rows, many, a, b, c, channels, count, block, blocks):
    """Write the parts of this thread's rows; the largest bits of a number, without sign.

    A row is eight and eight channels, padded by zeros; element (p, i, channel) of x for row
    p * many + i is at p * a + i * b + channel * c.
    """
    pieces = (channels + PIECE - 1) // PIECE
    pitch = pieces * PIECE
    peak = int32(0)
    lane, warp = cuda.threadIdx.x % SIDE, cuda.threadIdx.x // SIDE
    row = block * SIDE + lane
    while row < rows:
        p, i = split(row, many)
        piece = warp
        while piece < pieces:
            at = p * a + i * b + piece * PIECE * c
            v = read8(x, at, c, channels - piece * PIECE)
            to = first + row * pitch + piece * PIECE
            peak = max(peak, take8(parts, to, rows * pitch, count, v))
            piece += BLOCK // SIDE
        row += blocks * SIDE
    return peak


def channels_together(
    parts, peaks, x, y, count, y_first, takers, others,
    x_rows, x_many, x_a, x_b, x_c, x_channels, y_rows, y_many, y_a, y_b, y_c, y_channels,
):  # fmt: skip
    """The first ``takers`` blocks rewrite x, the ``others`` y, whose parts begin at y_first."""
    shared = cuda.shared.array(WARPS, int32)
    block = cuda.blockIdx.x
    if block < takers:
        peak = _together(
            parts, 0, x, x_rows, x_many, x_a, x_b, x_c, x_channels, count, block, takers
        )
    else:
        peak = _together(
            parts, y_first, y, y_rows, y_many, y_a, y_b, y_c, y_channels, count, block - takers,
            others,
        )  # fmt: skip
    peak = block_max(peak, shared)
    if cuda.threadIdx.x == 0:
        peaks[block] = peak


@functools.lru_cache(maxsize=256)
def geometry(
    source: tuple[int, ...], result: tuple[int, ...], window: tuple[int, ...], pitch: int,
    strides: tuple[int, ...], shifts: tuple[int, ...], steps: tuple[int, ...],
) -> tuple[Any, Any]:  # fmt: skip
    """Tables on the device: of the places of ``result``, and of the pieces of a patch.

    Place i of the result meets tap t at ``i * stride + shift + t * step`` of the source, which has
    ``pitch`` numbers at each place. A row of both is the numbers to go there, and coordinates.
    """
    scale = np.array([source[1] * source[2] * pitch, source[2] * pitch, pitch])

    def rows(space: tuple[int, ...], factors: Any, shifts: Any) -> Any:
        at = np.indices(space).reshape(3, -1).T * np.array(factors) + np.array(shifts)
        return np.column_stack([at @ scale, at])

    taps, pieces = rows(window, steps, (0, 0, 0)), pitch // PIECE
    taps = np.repeat(taps, pieces, 0)
    taps[:, 0] += np.tile(np.arange(pieces) * PIECE, len(taps) // pieces)
    places = rows(result, strides, shifts)
    return device.table(places.astype(np.int32)), device.table(taps.astype(np.int32))


@dataclass(frozen=True)
class Rows:
    """A factor as ``channels_together`` finds it: element (p, i, channel) of row p * many + i."""

    rows: int
    many: int
    a: int
    b: int
    c: int
    channels: int

    @property
    def pitch(self) -> int:
        """Numbers of a row when it is rewritten."""
        return -(-self.channels // PIECE) * PIECE

    @property
    def takers(self) -> int:
        """Blocks that rewrite it."""
        return min(-(-self.rows // SIDE), TAKERS)

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.rows, self.many, self.a, self.b, self.c, self.channels
