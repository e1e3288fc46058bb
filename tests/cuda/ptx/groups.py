"""What four warps do together: ``wgmma``, its fence, groups and waits. Begin at ``product``.

Each warp makes its 16 of 64 rows at once. What would be wrong on a GPU is kept in states of each
thread: that no fence came before, that nobody waited before a barrier or the end, and that what a
thread copied to shared memory was not made visible (``fence.proxy.async``) between the end of its
copies and the barrier.
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int64, uint64

from . import memory
from .arithmetic import from_brain, from_half, inner
from .bits import READ, WRITE

__all__ = ["ordered", "product"]

_f32_of, _of_f32 = READ["f32"], WRITE["f32"]
FENCED, GOING, SEEN = memory.FENCED, memory.GOING, memory.SEEN
SWIZZLE, LEAST = 1, 1024
"""Of descriptors: rows of 128 bytes. What 8 of them take, and begin at a multiple of."""


@inner
def _halves(views, box, given, turned, first, count, brain, found, where, thread):
    """found[:count, :16]: a factor by its descriptor, from row or column ``first`` on."""
    if given >> uint64(62) != uint64(SWIZZLE) or (given >> uint64(49)) & uint64(7):
        return memory.found_wrong(where, memory.UNKNOWN, thread, int64(given), 0)
    start = int64(given & uint64(0x3FFF)) << 4
    leading = int64((given >> uint64(16)) & uint64(0x3FFF)) << 4
    stride = int64((given >> uint64(32)) & uint64(0x3FFF)) << 4
    for n in range(first, first + count):
        for k in range(16):
            if turned:
                at = n // 64 * leading + k // 8 * stride + k % 8 * 128 + n % 64 * 2
            else:
                at = n // 8 * stride + n % 8 * 128 + k * 2
            at += start
            at ^= ((at >> 7) & 7) << 4
            place = memory.place(box, 2, at, 2, thread)
            if place < 0:
                return memory.found_wrong(where, memory.OUTSIDE, thread, at, 0)
            problem = memory.looked_at(views, place, 2)
            if problem:
                return memory.found_wrong(where, problem, thread, at, 0)
            writer, mine = views[8][place >> 2], box[memory.INTERVAL] << 11 | thread
            if writer >> 11 == box[memory.INTERVAL]:
                return memory.found_wrong(where, memory.RACE_WRITE, thread, at, writer)
            if writer & 2047 < 1024 and views[13][writer & 2047, SEEN] < writer >> 11:
                return memory.found_wrong(where, memory.UNSEEN, thread, at, writer)
            if views[9][place >> 2] != mine:
                memory.read_by(views[9], place >> 2, mine, box, box[memory.BLOCK])
            bits = uint64(views[1][place >> 1])
            found[n - first, k] = float64(from_brain(bits) if brain else from_half(bits))
    return 0


@inner
def product(views, box, registers, words, at, first, where):
    """``wgmma.mma_async``: words are columns, whether of bfloat16, the descriptors, whether each
    factor is turned, how many rows of registers follow, 16 in each, and whether it adds to them.

    Lane 4 g + t of a warp holds of its 16 rows g and g + 8, and of columns 2 t and 2 t + 1 of 8.
    """
    row = words[at]
    cols, brain = row[1], row[2] == 1
    x, y = registers[row[3], 0], registers[row[4], 0]
    for lane in range(32):
        if registers[row[3], lane] != x or registers[row[4], lane] != y:
            return memory.found_wrong(where, memory.UNKNOWN, first + lane, 0, 0)
        state = views[13][first + lane]
        if state[FENCED] == 0:
            return memory.found_wrong(where, memory.UNFENCED, first + lane, 0, 0)
        state[GOING] = 1
    left, right = np.empty((16, 16)), np.empty((cols, 16))
    down = first // 32 % 4 * 16
    problem = _halves(views, box, x, row[5] == 1, down, 16, brain, left, where, first)
    if problem == 0:
        problem = _halves(views, box, y, row[6] == 1, 0, cols, brain, right, where, first)
    if problem:
        return problem
    for lane in range(32):
        for n in range(cols // 2):
            r, c = lane // 4 + 8 * (n % 4 // 2), n // 4 * 8 + 2 * (lane % 4) + n % 2
            register = words[at + 1 + n // 16, 1 + n % 16]
            total = float64(_f32_of(registers[register, lane])) if row[8] else 0.0
            for k in range(16):
                total += left[r, k] * right[c, k]
            registers[register, lane] = _of_f32(float32(total))
    return 0


@inner
def ordered(views, box, row, lanes, count, first):
    """Word 1: 0 ``wgmma.fence``, 1 its ``commit_group``, 2 ``wait_group 0``, 3
    ``fence.proxy.async``."""
    for j in range(count):
        state = views[13][first + lanes[j]]
        if row[1] == 0:
            state[FENCED] = 1
        elif row[1] == 1:
            state[GOING] = 2 if state[GOING] else 0
        elif row[1] == 3:
            state[SEEN] = box[memory.INTERVAL]
        elif state[GOING] == 2:
            state[GOING] = state[FENCED] = 0
