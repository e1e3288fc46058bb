"""What the lanes of a warp do together: shuffles, votes, products of matrices, and atomics.

PTX ISA, "shfl.sync", "vote.sync", and "Matrix Fragments for mma.m8n8k4 / mma.m16n8k4 /
mma.m16n8k8 / mma.m16n8k16".
"""

from __future__ import annotations

import numpy as np
from numba import float32, float64, int64, uint64

from . import memory
from .arithmetic import from_brain, from_half, inner
from .bits import READ, WRITE

_f32_of, _of_f32 = READ["f32"], WRITE["f32"]
_f64_of, _of_f64 = READ["f64"], WRITE["f64"]


@inner
def here(lanes, count):
    """The mask of lanes."""
    mask = uint64(0)
    for j in range(count):
        mask |= uint64(1) << uint64(lanes[j])
    return mask


@inner
def shuffle(registers, row, lanes, count, where, first):
    """``shfl.sync``: words are mode, result, whether, source, distance, clamp, members."""
    mode, present = row[1], here(lanes, count)
    values = np.empty(32, np.uint64)
    for j in range(count):
        values[lanes[j]] = registers[row[4], lanes[j]]
    for j in range(count):
        lane = lanes[j]
        far, clamp = int64(registers[row[5], lane]) & 31, int64(registers[row[6], lane])
        part, end = (clamp >> 8) & 31, clamp & 31
        low, high = lane & part, (lane & part) | (end & ~part)
        if mode == 0:
            source, there = lane - far, lane - far >= high
        elif mode == 1:
            source, there = lane + far, lane + far <= high
        elif mode == 2:
            source, there = lane ^ far, (lane ^ far) <= high
        else:
            source = low | (far & ~part)
            there = source <= high
        if not there:
            source = lane
        if not (present >> uint64(source)) & uint64(1):
            return memory.found_wrong(where, memory.MEMBERS, first + lane, source, 0)
        registers[row[2], lane] = values[source]
        registers[row[3], lane] = uint64(1) if there else uint64(0)
    return 0


@inner
def vote(registers, row, lanes, count):
    """``vote.sync`` and ``activemask``: words are which, result, predicate, members."""
    which, yes, present = row[1], uint64(0), here(lanes, count)
    for j in range(count):
        if which < 4 and registers[row[3], lanes[j]]:
            yes |= uint64(1) << uint64(lanes[j])
    for j in range(count):
        members = present
        if which < 4:
            members = registers[row[4], lanes[j]] & present
        found = yes & members
        if which == 0:
            found = uint64(found == members)
        elif which == 1:
            found = uint64(found != uint64(0))
        elif which == 2:
            found = uint64(found == members or found == uint64(0))
        elif which == 4:
            found = present
        registers[row[2], lanes[j]] = found


@inner
def factor(word, kind, high):
    """One of the two halves of a word, or its tf32, as float64."""
    if kind == 2:
        return float64(_f32_of(word & uint64(0xFFFFE000)))
    bits = (word >> uint64(16)) & uint64(0xFFFF) if high else word & uint64(0xFFFF)
    return float64(from_half(bits) if kind == 0 else from_brain(bits))


@inner
def multiply(registers, row):
    """``mma.sync`` m16n8k16 of halves and m16n8k8 of tf32: words are kind, then registers.

    Lane 4 g + t holds of the left factor rows g (registers 0 and 2) and g + 8 (1 and 3), words t
    (0 and 1) and t + 4 (2 and 3) along k; of the right one column g, words t and t + 4; of sums
    and results rows g and g + 8, columns 2 t and 2 t + 1. Here each sum is rounded once.
    """
    kind = row[1]
    each = 1 if kind == 2 else 2
    left, right = np.empty((16, 16)), np.empty((16, 8))
    for lane in range(32):
        g, t = lane // 4, lane % 4
        for n in range(4):
            word, r, w = registers[row[6 + n], lane], g + 8 * (n % 2), t + 4 * (n // 2)
            for half in range(each):
                left[r, w * each + half] = factor(word, kind, half == 1)
        for n in range(2):
            word, w = registers[row[10 + n], lane], t + 4 * n
            for half in range(each):
                right[w * each + half, g] = factor(word, kind, half == 1)
    sums = np.empty((16, 8), np.float32)
    for lane in range(32):
        for n in range(4):
            r, c = lane // 4 + 8 * (n // 2), 2 * (lane % 4) + n % 2
            total = float64(_f32_of(registers[row[12 + n], lane]))
            for k in range(8 * each):
                total += left[r, k] * right[k, c]
            sums[r, c] = float32(total)
    for lane in range(32):
        for n in range(4):
            value = sums[lane // 4 + 8 * (n // 2), 2 * (lane % 4) + n % 2]
            registers[row[2 + n], lane] = _of_f32(value)


@inner
def multiply_doubles(registers, row):
    """``mma.sync`` of float64: kind 3 is m8n8k4, 4 m16n8k4, 5 m16n8k8; words as for ``multiply``.

    Lane 4 g + t holds of the left factor, in this order, rows g and, of 16, g + 8 at step t, then
    at t + 4; of the right one column g at the same steps; of sums columns 2 t and 2 t + 1.
    """
    halves, groups = 1 if row[1] == 3 else 2, 2 if row[1] == 5 else 1
    first_left = 2 + 2 * halves
    first_right = first_left + halves * groups
    first_sum = first_right + groups
    sums = np.empty((16, 8))
    for lane in range(32):
        for n in range(2 * halves):
            r, c = lane // 4 + 8 * (n // 2), 2 * (lane % 4) + n % 2
            total = _f64_of(registers[row[first_sum + n], lane])
            for k in range(4 * groups):
                x = first_left + k // 4 * halves + n // 2
                left = _f64_of(registers[row[x], r % 8 * 4 + k % 4])
                right = _f64_of(registers[row[first_right + k // 4], c * 4 + k % 4])
                total += left * right
            sums[r, c] = total
    for lane in range(32):
        for n in range(2 * halves):
            value = sums[lane // 4 + 8 * (n // 2), 2 * (lane % 4) + n % 2]
            registers[row[2 + n], lane] = _of_f64(value)


@inner
def squares(views, box, registers, row, first, where):
    """``ldmatrix`` of four: words are turned, results, address, step.

    Lane 8 q + r gives where row r of square q begins. Lane 4 g + t gets of each square words t of
    row g; turned, numbers g of rows 2 t and 2 t + 1.
    """
    found = np.empty((4, 8, 4), np.uint64)
    for lane in range(32):
        thread, address = first + lane, int64(registers[row[6], lane]) + row[7]
        at = memory.place(box, 2, address, 16, thread)
        if at < 0:
            return memory.found_wrong(where, memory.OUTSIDE, thread, address, 0)
        if at & 15:
            return memory.found_wrong(where, memory.MISALIGNED, thread, address, 0)
        mine = box[memory.INTERVAL] << 11 | thread
        for k in range(4):
            g = (at >> 2) + k
            problem = memory.looked_at(views, g * 4, 4)
            if problem:
                return memory.found_wrong(where, problem, thread, address, k)
            if memory.other(views[8][g], mine, box, box[memory.BLOCK]):
                return memory.found_wrong(where, memory.RACE_WRITE, thread, address, views[8][g])
            if views[9][g] != mine:
                memory.read_by(views[9], g, mine, box, box[memory.BLOCK])
            found[lane // 8, lane % 8, k] = uint64(views[2][g])
    low = uint64(0xFFFF)
    for lane in range(32):
        g, t = lane // 4, lane % 4
        for q in range(4):
            word = found[q, g, t]
            if row[1]:
                shift = uint64(16 * (g % 2))
                one, two = found[q, 2 * t, g // 2] >> shift, found[q, 2 * t + 1, g // 2] >> shift
                word = one & low | (two & low) << uint64(16)
            registers[row[2 + q], lane] = word
    return 0


@inner
def atomic(views, box, registers, row, lanes, count, first, where):
    """``atom`` and ``red``: words are space, bytes, which, type, address, step, result, operands.

    Atomics among each other are no race; with plain reads and writes they are.
    """
    space, size, which, sort = row[1], row[2], row[3], row[4]
    full = uint64(0xFFFFFFFFFFFFFFFF) >> uint64(64 - 8 * size)
    for j in range(count):
        lane = lanes[j]
        thread = first + lane
        address = int64(registers[row[5], lane]) + row[6]
        at = memory.place(box, space, address, size, thread)
        if at < 0:
            return memory.found_wrong(where, memory.OUTSIDE, thread, address, 0)
        if at & (size - 1):
            return memory.found_wrong(where, memory.MISALIGNED, thread, address, 0)
        problem = memory.looked_at(views, at, size)
        if problem:
            return memory.found_wrong(where, problem, thread, address, 0)
        mine, g = box[memory.INTERVAL] << 11 | memory.ATOMIC, at >> 2
        writer, reader, begin = views[8][g], views[9][g], memory.since(box, at)
        if writer & 2047 != memory.ATOMIC and memory.other(writer, mine, box, begin):
            return memory.found_wrong(where, memory.RACE_WRITE, thread, address, writer)
        if memory.other(reader, box[memory.INTERVAL] << 11 | thread, box, begin):
            return memory.found_wrong(where, memory.RACE_READ, thread, address, reader)
        views[8][g] = mine
        old, given = memory.held(views, at, size), registers[row[8], lane] & full
        if sort == 2 and which == 0 and size == 4:
            new = _of_f32(_f32_of(old) + _f32_of(given))
        elif sort == 2 and which == 0:
            new = _of_f64(_f64_of(old) + _f64_of(given))
        else:
            new = memory.changed(which, sort, size, old, given, registers[row[9], lane] & full)
        memory.put(views, at, size, new & full)
        registers[row[7], lane] = old
    return 0
