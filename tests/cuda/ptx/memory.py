"""One address space for the machine: its bytes, and for each byte what may be done with it.

The space begins with a window for the shared memory of the block that runs and one for the local
memory of its threads; the rest is global memory. Beside the bytes lies a state for each (nobody's,
given out, written), and for each word who wrote and who read it last, as a token: the number of the
interval between two barriers of a block, and the thread. So a read or write is known to be a race
whatever order the threads happen to run in:

- another thread of the block, in the same interval, did the other of two, one of them a write;
- another block of the same launch did, whenever.

Bytes and halves have tokens of their own, for neighbours may belong to different threads; a race
between a halfword and the word around it is not seen. Equal values written by several threads are
no race. Start reading at ``load``.
"""

from __future__ import annotations

import numpy as np
from numba import int64, uint64

from .arithmetic import inner

__all__ = ["GIVEN", "PROBLEMS", "WRITTEN", "Space", "load", "store"]

GIVEN, WRITTEN = 1, 3
"""States of a byte, beside 0: nobody's."""

LANES = 32
COPIES = 512
"""Copies of a thread that may be under way."""

MANY, ATOMIC = 2047, 2046
"""In place of a thread in a token: several threads, or one that took its turn."""

BASE, SHARED, SHARED_SIZE, LOCAL, LOCAL_SIZE, HEAP, HEAP_END = range(7)
LAUNCH, BLOCK, INTERVAL, THREADS, BUDGET, STRICT = range(7, 13)
BOX = 13
"""What a launch tells the machine: places of the windows, numbers of intervals, threads, and
whether what was never written may not be read."""

OUTSIDE, FREED, UNWRITTEN, MISALIGNED, RACE_WRITE, RACE_READ = range(1, 7)
SYNC, BARRIERS, TRAP, ENDLESS, MEMBERS, UNKNOWN, UNFENCED, UNSEEN, UNWAITED = range(7, 16)
BEGUN, ENDED, GROUPS, FENCED, GOING, SEEN = range(6)
"""What is kept for each thread: copies, see ``copies``; whether ``wgmma`` may begin, whether one is
going on (1) and in a group (2), and the interval in which it last made visible what it copied."""
PROBLEMS = {
    OUTSIDE: "an address outside of that memory",
    FREED: "memory that is not part of any array",
    UNWRITTEN: "memory that nothing was written to",
    MISALIGNED: "an address that is no multiple of its width",
    RACE_WRITE: "a race with a write",
    RACE_READ: "a race with a read",
    SYNC: "not all named threads of the warp came here: some have ended or wait elsewhere",
    BARRIERS: "threads of one block wait at different barriers",
    TRAP: "the kernel gave up",
    ENDLESS: "the kernel does not end",
    UNKNOWN: "an instruction that the machine does not know",
    UNFENCED: "no wgmma.fence since the last was waited for",
    UNSEEN: "what another thread copied, and did not make visible by fence.proxy.async",
    UNWAITED: "a wgmma that nobody waited for",
    MEMBERS: "a thread reads the register of one that is not there",
}


class Space:
    """The arrays; ``views`` is what the compiled functions take."""

    def __init__(self, size: int, windows: int):
        """size: of all, windows: of it, bytes for shared and local memory."""
        raw = np.zeros(size + 4096, np.uint8)
        start = -raw.ctypes.data % 4096
        self.bytes = raw[start : start + size]
        self.states = np.zeros(size, np.uint8)
        self.base = self.bytes.ctypes.data
        self.windows = windows
        wide = tuple(self.bytes.view(t) for t in (np.uint16, np.uint32, np.uint64))
        states = tuple(self.states.view(t) for t in (np.uint16, np.uint32, np.uint64))
        words = tuple(np.zeros(size // 4, np.int64) for _ in range(2))
        apart = tuple(np.zeros(size, np.int64) for _ in range(2))
        # Of each thread of a block: copies under way (to, from or -1, group), and what is kept.
        rest = np.zeros((1024, COPIES, 3), np.int64), np.zeros((1024, 6), np.int64)
        self.views = (self.bytes, *wide, self.states, *states, *words, *apart, *rest)

    def mark(self, address: int, size: int, state: int) -> None:
        """Let bytes be nobody's, given out or written."""
        at = address - self.base
        self.states[at : at + size] = state


@inner
def place(box, space, address, size, thread):
    """Where in the bytes an address lies, in the window or memory of its space; else -1."""
    low, length = box[HEAP], box[HEAP_END] - box[HEAP]
    if space == 2:
        low, length, at = box[SHARED], box[SHARED_SIZE], box[SHARED] + address
    elif space == 3:
        low, length = box[LOCAL] + thread * box[LOCAL_SIZE], box[LOCAL_SIZE]
        at = low + address
    else:
        at = address - box[BASE]
        if space == 0 and at < box[HEAP]:
            if at >= box[LOCAL]:
                low, length = box[LOCAL] + thread * box[LOCAL_SIZE], box[LOCAL_SIZE]
            else:
                low, length = box[SHARED], box[SHARED_SIZE]
    return at if low <= at and at + size <= low + length else int64(-1)


@inner
def since(box, at):
    """The first interval that matters at a place: shared memory is of one block."""
    return box[BLOCK] if at < box[LOCAL] else box[LAUNCH]


@inner
def other(token, mine, box, begin):
    """Whether ``token`` is of another thread that no barrier keeps apart from ``mine``."""
    interval = token >> 11
    if interval < begin:
        return False
    if interval < box[BLOCK]:
        return True
    return interval == box[INTERVAL] and (token & 2047) != (mine & 2047)


@inner
def read_by(readers, at, mine, box, begin):
    """Note a read. Those of several threads, or of several blocks, are noted as such."""
    token = readers[at]
    interval = token >> 11
    if interval < begin:
        readers[at] = mine
    elif interval < box[BLOCK]:
        readers[at] = begin << 11 | MANY
    elif interval == box[INTERVAL] and token != mine:
        readers[at] = interval << 11 | MANY
    else:
        readers[at] = mine


@inner
def found_wrong(where, kind, thread, address, token):
    """Keep what went wrong, for the report."""
    where[0], where[2], where[3], where[4] = kind, thread, address, token
    return kind


@inner
def looked_at(views, at, size):
    """0 if bytes may be read, else the problem."""
    states = views[4]
    problem = 0
    for k in range(at, at + size):
        if states[k] == 0:
            return FREED
        if states[k] != WRITTEN:
            problem = UNWRITTEN
    return problem


@inner
def load(views, box, registers, row, lanes, count, first, where):
    """``ld`` of some lanes of a warp whose first thread is ``first``."""
    space, size, many, signed = row[1], row[2], row[3], row[4]
    for j in range(count):
        lane = lanes[j]
        thread = first + lane
        address = int64(registers[row[5], lane]) + row[6]
        at = place(box, space, address, size * many, thread)
        if at < 0:
            return found_wrong(where, OUTSIDE, thread, address, 0)
        if at & (size * many - 1):
            return found_wrong(where, MISALIGNED, thread, address, 0)
        mine = box[INTERVAL] << 11 | thread
        raced, begin = at >= box[HEAP] or at < box[LOCAL], since(box, at)
        for k in range(many):
            if size == 4:
                fine = views[6][at >> 2] == 0x03030303
                value = uint64(views[2][at >> 2])
            elif size == 8:
                fine = views[7][at >> 3] == 0x0303030303030303
                value = views[3][at >> 3]
            elif size == 2:
                fine = views[5][at >> 1] == 0x0303
                value = uint64(views[1][at >> 1])
            else:
                fine = views[4][at] == WRITTEN
                value = uint64(views[0][at])
            if not fine:
                problem = looked_at(views, at, size)
                if problem == FREED or box[STRICT]:
                    return found_wrong(where, problem, thread, address, k)
            if raced:
                if size >= 4:
                    writers, readers, g = views[8], views[9], at >> 2
                else:
                    writers, readers, g = views[10], views[11], at
                if other(writers[g], mine, box, begin):
                    return found_wrong(where, RACE_WRITE, thread, address, writers[g])
                if readers[g] != mine:
                    read_by(readers, g, mine, box, begin)
            if signed and size < 8:
                shift = uint64(64 - 8 * size)
                value = uint64(int64(value << shift) >> int64(shift))
            registers[row[7 + k], lane] = value
            at += size
    return 0


@inner
def put(views, at, size, value):
    """Write one element, of which ``written`` was asked."""
    if size == 4:
        views[2][at >> 2] = np.uint32(value)
        views[6][at >> 2] = 0x03030303
    elif size == 8:
        views[3][at >> 3] = value
        views[7][at >> 3] = 0x0303030303030303
    elif size == 2:
        views[1][at >> 1] = np.uint16(value)
        views[5][at >> 1] = 0x0303
    else:
        views[0][at] = np.uint8(value)
        views[4][at] = WRITTEN


@inner
def held(views, at, size):
    """The element at a place."""
    if size == 4:
        return uint64(views[2][at >> 2])
    if size == 8:
        return views[3][at >> 3]
    if size == 2:
        return uint64(views[1][at >> 1])
    return uint64(views[0][at])


@inner
def store(views, box, registers, row, lanes, count, first, where):
    """``st``; words as for ``load``."""
    space, size, many = row[1], row[2], row[3]
    ones = uint64(0xFFFFFFFFFFFFFFFF) >> uint64(64 - 8 * size)
    for j in range(count):
        lane = lanes[j]
        thread = first + lane
        address = int64(registers[row[5], lane]) + row[6]
        at = place(box, space, address, size * many, thread)
        if at < 0:
            return found_wrong(where, OUTSIDE, thread, address, 0)
        if at & (size * many - 1):
            return found_wrong(where, MISALIGNED, thread, address, 0)
        mine = box[INTERVAL] << 11 | thread
        raced, begin = at >= box[HEAP] or at < box[LOCAL], since(box, at)
        for k in range(many):
            if views[4][at] == 0 or views[4][at + size - 1] == 0:
                return found_wrong(where, FREED, thread, address, k)
            value = registers[row[7 + k], lane] & ones
            if raced:
                if size >= 4:
                    writers, readers, g = views[8], views[9], at >> 2
                else:
                    writers, readers, g = views[10], views[11], at
                if other(writers[g], mine, box, begin) and held(views, at, size) != value:
                    return found_wrong(where, RACE_WRITE, thread, address, writers[g])
                if other(readers[g], mine, box, begin) and held(views, at, size) != value:
                    return found_wrong(where, RACE_READ, thread, address, readers[g])
                writers[g] = mine
            put(views, at, size, value)
            at += size
    return 0


@inner
def changed(which, sort, size, old, given, more):
    """What ``atom`` leaves in memory; sort: 0 unsigned, 1 signed, 2 float."""
    wide = size == 8
    if which == 6:
        return given
    if which == 7:
        return more if old == given else old
    if which == 3:
        return old & given
    if which == 4:
        return old | given
    if which == 5:
        return old ^ given
    if which == 8:
        return uint64(0) if old >= given else old + uint64(1)
    if which == 9:
        return given if old == uint64(0) or old > given else old - uint64(1)
    if which == 0:
        return old + given
    less = old < given
    if sort == 1:
        shift = int64(0 if wide else 32)
        less = int64(old) << shift < int64(given) << shift
    return old if less == (which == 1) else given
