"""Several copies within the device by one launch: a copy by the driver costs 5 us of the host.

Start reading at ``copy_all``.
"""

from __future__ import annotations

import functools

import numpy as np
from numba import cuda

from . import device
from .array import DeviceArray
from .intrinsics import load4, pointer_at, store4
from .launch import start, strided_grid
from .shape import BLOCK, SIMULATED

__all__ = ["copy_all"]

TOGETHER = 8
"""Copies of one launch, which gets their addresses by value."""

LARGE = 1 << 16
"""Bytes from which a copy that cannot go by 16 is left to the driver."""

_WIDE = 16


@cuda.jit(device=True)
def _move(words, bytes, to, source, size):
    """``size`` bytes from one address to another. words, bytes: pointers whose types are used."""
    i, step = cuda.grid(1), cuda.gridDim.x * cuda.blockDim.x
    groups = size // 16 if (to | source) % 16 == 0 else 0
    out, given = pointer_at(to, words), pointer_at(source, words)
    while i < groups:
        a, b, c, d = load4(given, 4 * i)
        store4(out, 4 * i, a, b, c, d)
        i += step
    out, given = pointer_at(to, bytes), pointer_at(source, bytes)
    i = groups * 16 + cuda.grid(1)
    while i < size:
        out[i] = given[i]
        i += step


def _copies(
    words, bytes, to_0, source_0, size_0, to_1, source_1, size_1, to_2, source_2, size_2,
    to_3, source_3, size_3, to_4, source_4, size_4, to_5, source_5, size_5,
    to_6, source_6, size_6, to_7, source_7, size_7,
):  # fmt: skip
    """The blocks of row k of the grid make copy k."""
    row = cuda.blockIdx.y
    to, source, size = to_0, source_0, size_0
    if row == 1:
        to, source, size = to_1, source_1, size_1
    elif row == 2:
        to, source, size = to_2, source_2, size_2
    elif row == 3:
        to, source, size = to_3, source_3, size_3
    elif row == 4:
        to, source, size = to_4, source_4, size_4
    elif row == 5:
        to, source, size = to_5, source_5, size_5
    elif row == 6:
        to, source, size = to_6, source_6, size_6
    elif row == 7:
        to, source, size = to_7, source_7, size_7
    _move(words, bytes, to, source, size)


@functools.cache
def _like() -> tuple[DeviceArray, DeviceArray]:
    """Arrays of words and of bytes, for their types."""
    return device.table(np.zeros(4, np.uint32)), device.table(np.zeros(4, np.uint8))


def copy_all(pairs: list[tuple[int, int, int]]) -> None:
    """Copy on the current stream. pairs: where to, where from, how many bytes; none overlap."""
    device.once()  # the addresses are numbers
    few = []
    for to, source, size in pairs:
        if SIMULATED or (size > LARGE and (to | source) % _WIDE):
            device.driver().copy_within(to, source, size, device.current_queue())
        else:
            few.append((to, source, size))
    like = _like() if few else ()
    for first in range(0, len(few), TOGETHER):
        part = few[first : first + TOGETHER]
        longest = max([size for _, _, size in part])
        flat = [n for each in part for n in each] + [0] * 3 * (TOGETHER - len(part))
        start(_copies, (strided_grid(-(-longest // _WIDE)), len(part)), BLOCK, *like, *flat)
