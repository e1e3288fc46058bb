"""Convolutions of which a group has one or two channels in the result: a thread for each place.

A tile would be mostly empty. The tables are those of ``sight.py``; what a thread sees is in the
cache, for its neighbours see it too. Start reading at ``few_rows``.
"""

from __future__ import annotations

from typing import Any

from numba import cuda, int64

from .shape import BLOCK
from .shared import fixed, standing
from .sight import FORM, lines_of
from .warp import split

__all__ = ["FEW_ROWS", "FEW_STEPS", "few_rows"]

FEW_ROWS, FEW_STEPS = 2, 256
"""Channels of a group, and steps, that are made so at the most: a thread goes all steps alone."""


def few_rows(real: Any, rows: int) -> Any:
    """The kernel for so many channels of a group."""

    def product(
        out, x, y, bias, taps, lines, form, biased, images, x_row, x_group, y_group, y_image,
        out_row, out_group, out_image, first_group,
    ):  # fmt: skip
        """As ``patches.patched``."""
        acc = cuda.local.array(rows, real)
        at = FORM * cuda.blockIdx.y
        group = first_group + cuda.blockIdx.z
        col = int64(cuda.blockIdx.x) * BLOCK + cuda.threadIdx.x
        if col >= form[at] * images:
            return
        image, place = split(col, form[at])
        px, py, pz = lines_of(form[at + 3], place, form[at + 4], form[at + 5])
        outside = lines[px + 1] | lines[py + 1] | lines[pz + 1]
        there = group * y_group + image * y_image + lines[px] + lines[py] + lines[pz]
        there = fixed(y, there)
        tap, steps = form[at + 2], form[at + 1]
        weight = group * x_group + tap
        for r in range(rows):
            acc[r] = real(0)
        for step in range(steps):
            if taps[2 * (tap + step) + 1] & outside == 0:
                value = standing(y, there)[taps[2 * (tap + step)]]
                for r in range(rows):
                    acc[r] += x[weight + r * x_row + step] * value
        to = group * out_group + image * out_image + lines[px + 2] + lines[py + 2] + lines[pz + 2]
        for r in range(rows):
            value = acc[r]
            if biased:
                value += bias[group * rows + r]
            out[to + r * out_row] = value

    return product
