"""Copies to shared memory that end later: ``cp.async`` and its groups.

A copy makes what it will write unwritten, and is made when its thread waits for its group: who
reads too early reads what nobody wrote, and who reads without a barrier after that meets a write of
the same interval. Start reading at ``begin``.
"""

from __future__ import annotations

from numba import int64

from . import memory
from .arithmetic import inner

__all__ = ["begin", "finish"]

SIZE = 16
"""Bytes of a copy."""

MOST = memory.COPIES
BEGUN, ENDED, GROUPS, SEEN = memory.BEGUN, memory.ENDED, memory.GROUPS, memory.SEEN


@inner
def begin(views, box, registers, row, lanes, count, first, where):
    """``cp.async`` of 16 bytes: words are address and step in shared, in global, ignored or -1."""
    for j in range(count):
        lane = lanes[j]
        thread = first + lane
        address = int64(registers[row[1], lane]) + row[2]
        to = memory.place(box, 2, address, SIZE, thread)
        if to < 0:
            return memory.found_wrong(where, memory.OUTSIDE, thread, address, 0)
        if to & (SIZE - 1):
            return memory.found_wrong(where, memory.MISALIGNED, thread, address, 0)
        mine = box[memory.INTERVAL] << 11 | thread
        for k in range(to, to + SIZE, 4):
            writer, reader = views[8][k >> 2], views[9][k >> 2]
            if views[4][k] == 0:
                return memory.found_wrong(where, memory.FREED, thread, address, 0)
            if memory.other(writer, mine, box, box[memory.BLOCK]):
                return memory.found_wrong(where, memory.RACE_WRITE, thread, address, writer)
            if memory.other(reader, mine, box, box[memory.BLOCK]):
                return memory.found_wrong(where, memory.RACE_READ, thread, address, reader)
            views[8][k >> 2] = mine
            views[6][k >> 2] = 0x01010101
        source = int64(-1)
        if row[5] < 0 or registers[row[5], lane] == 0:
            address = int64(registers[row[3], lane]) + row[4]
            source = memory.place(box, 1, address, SIZE, thread)
            if source < 0:
                return memory.found_wrong(where, memory.OUTSIDE, thread, address, 0)
            if source & (SIZE - 1):
                return memory.found_wrong(where, memory.MISALIGNED, thread, address, 0)
            for k in range(source, source + SIZE, 4):
                problem = memory.looked_at(views, k, 4)
                if problem == memory.FREED or (problem and box[memory.STRICT]):
                    return memory.found_wrong(where, problem, thread, address, 0)
                writer = views[8][k >> 2]
                if memory.other(writer, mine, box, box[memory.LAUNCH]):
                    return memory.found_wrong(where, memory.RACE_WRITE, thread, address, writer)
                if views[9][k >> 2] != mine:
                    memory.read_by(views[9], k >> 2, mine, box, box[memory.LAUNCH])
        queue, counts = views[12][thread], views[13][thread]
        if counts[BEGUN] - counts[ENDED] == MOST:
            return memory.found_wrong(where, memory.UNKNOWN, thread, address, 0)
        entry = queue[counts[BEGUN] % MOST]
        entry[0], entry[1], entry[2] = to, source, counts[GROUPS]
        counts[BEGUN] += 1
    return 0


@inner
def finish(views, box, row, lanes, count, first):
    """``commit_group`` (word 1 is 0), and ``wait_group`` until at most so many groups as word 2
    says are left."""
    for j in range(count):
        thread = first + lanes[j]
        queue, counts = views[12][thread], views[13][thread]
        if row[1] == 0:
            counts[GROUPS] += 1
            continue
        while counts[ENDED] < counts[BEGUN]:
            entry = queue[counts[ENDED] % MOST]
            if entry[2] >= counts[GROUPS] - row[2]:
                break
            for k in range(0, SIZE, 4):
                to = (entry[0] + k) >> 2
                views[2][to] = views[2][(entry[1] + k) >> 2] if entry[1] >= 0 else 0
                views[6][to] = 0x03030303
                views[8][to] = box[memory.INTERVAL] << 11 | thread
            counts[ENDED] += 1
            counts[SEEN] = 0
