"""The compiled loops of the machine: over the instructions of a warp, and over blocks and barriers.

Their text is generated from ``table`` and compiled by Numba once. The lanes of a warp that stand at
the least instruction run together, until they reach one where others stand, so that branches come
together again. A warp runs until all its lanes wait at a barrier or have ended; then the next.
Start reading at ``_BLOCKS``, then ``_LOOP``.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import re
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np

from numbagrad.kernels import store

from . import arithmetic, bits, copies, groups, memory, warp
from .assemble import CONTROL, DOUBLES
from .table import ROWS

__all__ = ["run_blocks"]

RUNNING, WAITING, AT_BARRIER, ENDED, NOBODY = range(5)
"""What a lane does; one that waits is at an instruction for which others are missing."""

_LOOP = '''
def run_warp(words, registers, at_of, does, first, live, views, box, where):
    """Run one warp until each lane is at a barrier or has ended; 0, or the problem."""
    lanes = np.empty(32, np.int64)
    last_chance = False
    while True:
        at, others = BIG, BIG
        for lane in range(32):
            if does[lane] == RUNNING:
                if at_of[lane] < at:
                    at, others = at_of[lane], at
                elif at < at_of[lane] < others:
                    others = at_of[lane]
        if at == BIG:
            for lane in range(32):
                if does[lane] == WAITING:
                    at = min(at, at_of[lane])
            if at == BIG:
                return 0
            for lane in range(32):
                if does[lane] == WAITING and at_of[lane] == at:
                    does[lane] = RUNNING
            last_chance = True
        count = s(0)
        for lane in range(32):
            if does[lane] == RUNNING and at_of[lane] == at:
                lanes[count] = lane
                count += 1
        while True:
            row = words[at]
            op = row[0]
            box[BUDGET] -= 1
            if op == JUMP:
                at = row[1]
                if box[BUDGET] < 0:
                    where[1] = at
                    return found_wrong(where, ENDLESS, first, 0, 0)
                if at >= others:
                    break
                continue
            elif op == BRANCH:
                taken = 0
                for j in range(count):
                    taken += int64(registers[row[2], lanes[j]]) == row[3]
                if taken == 0:
                    at += 1
                elif taken == count:
                    at = row[1]
                    if box[BUDGET] < 0:
                        where[1] = at
                        return found_wrong(where, ENDLESS, first, 0, 0)
                else:
                    for j in range(count):
                        lane = lanes[j]
                        jumps = int64(registers[row[2], lane]) == row[3]
                        at_of[lane] = row[1] if jumps else at + 1
                    count = s(0)
                    break
                if at >= others:
                    break
                continue
            elif (op == EXIT or op == BARRIER) and views[13][first + lanes[0], GOING]:
                where[1] = at
                return found_wrong(where, UNWAITED, first + lanes[0], 0, 0)
            elif op == EXIT:
                for j in range(count):
                    does[lanes[j]] = ENDED
                count = s(0)
                break
            elif op == BARRIER or op == REDUCE:
                for j in range(count):
                    does[lanes[j]] = AT_BARRIER
                    at_of[lanes[j]] = at
                count = s(0)
                break
            elif op == SHUFFLE or op == VOTE or op == MMA or op == SQUARES or op == PRODUCT:
                needed = live
                if op == SHUFFLE or (op == VOTE and row[1] < 4):
                    needed = np.uint64(0)
                    for j in range(count):
                        needed |= registers[row[7 if op == SHUFFLE else 4], lanes[j]]
                elif op == VOTE:
                    needed = np.uint64(0)
                if needed & live & ~here(lanes, count):
                    if last_chance:
                        where[1] = at
                        return found_wrong(where, SYNC, first + lanes[0], 0, 0)
                    for j in range(count):
                        does[lanes[j]] = WAITING
                        at_of[lanes[j]] = at
                    count = s(0)
                    break
                last_chance = False
                problem = 0
                if op == SHUFFLE:
                    problem = shuffle(registers, row, lanes, count, where, first)
                elif op == VOTE:
                    vote(registers, row, lanes, count)
                elif op == SQUARES:
                    problem = squares(views, box, registers, row, first, where)
                elif op == PRODUCT:
                    problem = product(views, box, registers, words, at, first, where)
                elif row[1] >= DOUBLES:
                    multiply_doubles(registers, row)
                else:
                    multiply(registers, row)
                if problem:
                    where[1] = at
                    return problem
                if op == PRODUCT:
                    at += row[7]
            elif op == LOAD:
                problem = load(views, box, registers, row, lanes, count, first, where)
                if problem:
                    where[1] = at
                    return problem
            elif op == STORE:
                problem = store(views, box, registers, row, lanes, count, first, where)
                if problem:
                    where[1] = at
                    return problem
            elif op == CHANGE:
                problem = atomic(views, box, registers, row, lanes, count, first, where)
                if problem:
                    where[1] = at
                    return problem
            elif op == COPY:
                problem = begin(views, box, registers, row, lanes, count, first, where)
                if problem:
                    where[1] = at
                    return problem
            elif op == GROUP:
                finish(views, box, row, lanes, count, first)
            elif op == ORDERED:
                ordered(views, box, row, lanes, count, first)
            elif op == TO_GENERIC or op == FROM_GENERIC:
                for j in range(count):
                    base = box[BASE]
                    if row[1] == 1:
                        base = int64(0)
                    elif row[1] == 2:
                        base += box[SHARED]
                    else:
                        base += box[LOCAL] + (first + lanes[j]) * box[LOCAL_SIZE]
                    value = int64(registers[row[3], lanes[j]])
                    value = value + base if op == TO_GENERIC else value - base
                    registers[row[2], lanes[j]] = np.uint64(value)
            elif op == FENCE:
                if row[1] == 1:
                    where[1] = at
                    return found_wrong(where, TRAP, first, 0, 0)
            elif op == TRAP_:
                where[1] = at
                return found_wrong(where, TRAP, first + lanes[0], 0, 0)
ROWS_HERE
            else:
                where[1] = at
                return found_wrong(where, UNKNOWN, first, 0, 0)
            at += 1
            if at >= others:
                break
        for j in range(count):
            at_of[lanes[j]] = at
'''

_BLOCKS = '''
def run_blocks(words, registers, preset, values, shape, order, fields, seed, views, box, where):
    """Run the blocks of ``order``; shape: threads, then blocks, along x, y and z."""
    threads = box[THREADS]
    warps = (threads + 31) // 32
    at_of, does = np.zeros((warps, 32), np.int64), np.zeros((warps, 32), np.int64)
    live = np.zeros(warps, np.uint64)
    for block in order:
        box[BLOCK] = box[INTERVAL]
        states = views[4]
        views[13][:] = 0
        states[box[SHARED] : box[SHARED] + box[SHARED_SIZE]] = 0
        states[box[LOCAL] : box[LOCAL] + threads * box[LOCAL_SIZE]] = 0
        for f in range(fields.shape[0]):
            for t in range(threads if fields[f, 0] else 1):
                low = box[LOCAL] + t * box[LOCAL_SIZE] if fields[f, 0] else box[SHARED]
                states[low + fields[f, 1] : low + fields[f, 1] + fields[f, 2]] = 1
        registers[:] = np.uint64(0x5A5A5A5A5A5A5A5A)
        for w in range(warps):
            for p in range(preset.size):
                registers[w, preset[p], :] = values[p]
            live[w] = np.uint64(0)
            for lane in range(32):
                t = w * 32 + lane
                does[w, lane] = RUNNING if t < threads else NOBODY
                at_of[w, lane] = 0
                if t < threads:
                    live[w] |= np.uint64(1) << np.uint64(lane)
                own = (
                    t % shape[0], t // shape[0] % shape[1], t // (shape[0] * shape[1]),
                    shape[0], shape[1], shape[2],
                    block % shape[3], block // shape[3] % shape[4],
                    block // (shape[3] * shape[4]),
                    shape[3], shape[4], shape[5], lane, w,
                )  # fmt: skip
                for k in range(14):
                    registers[w, k, lane] = np.uint64(own[k])
        while True:
            for k in range(warps):
                w = warps - 1 - k if seed == 1 else (k + seed) % warps
                problem = run_warp(
                    words, registers[w], at_of[w], does[w], w * 32, live[w], views, box, where
                )
                if problem:
                    where[5] = block
                    return problem
            meet, waiting = int64(-1), 0
            for w in range(warps):
                for lane in range(32):
                    if does[w, lane] == AT_BARRIER:
                        waiting += 1
                        if meet >= 0 and at_of[w, lane] != meet:
                            where[0], where[1], where[2] = BARRIERS, at_of[w, lane], w * 32 + lane
                            where[4], where[5] = meet, block
                            return BARRIERS
                        meet = at_of[w, lane]
            if waiting == 0:
                break
            box[INTERVAL] += 1
            row = words[meet]
            found = 0
            if row[0] == REDUCE:
                for w in range(warps):
                    for lane in range(32):
                        if does[w, lane] == AT_BARRIER and registers[w, row[3], lane]:
                            found += 1
                if row[1] == 1:
                    found = int64(found == waiting)
                elif row[1] == 2:
                    found = int64(found > 0)
            for w in range(warps):
                for lane in range(32):
                    if does[w, lane] == AT_BARRIER:
                        does[w, lane] = RUNNING
                        at_of[w, lane] = meet + 1
                        if row[0] == REDUCE:
                            registers[w, row[2], lane] = np.uint64(found)
        box[INTERVAL] += 1
    return 0
'''

_GROUP = 40
"""Rows of the table in one compiled function: Numba's passes are not made for five hundred."""

_HEAD = """def group{begin}(op, registers, row, lanes, count):
    j = 0
    to = row[1]
    while j < count:
        t = lanes[j]
        j += 1
"""

_ROW = """        {choice} op == {number}:  # {name}
{reads}            registers[to, t] = of_{result}({expression})
"""


def _text() -> str:
    """The loop, and for each group of rows of the table a function with a case for each.

    Every name is of one case alone: Numba looks for definitions through all the branches.
    """
    texts, calls, numbered = [], [], list(enumerate(ROWS.items(), len(CONTROL)))
    for begin in range(0, len(numbered), _GROUP):
        cases = ""
        for number, (name, row) in numbered[begin : begin + _GROUP]:
            reads = "".join(
                f"            {letter}{number} = {kind}_of(registers[row[{2 + k}], t])\n"
                for k, (letter, kind) in enumerate(zip("abcd", row.operands, strict=False))
            )
            own = re.sub(r"\b([abcd])\b", rf"\g<1>{number}", row.expression)
            shown = {"choice": "elif" if cases else "if", "number": number, "name": name}
            cases += _ROW.format(reads=reads, result=row.result, expression=own, **shown)
        texts.append(_HEAD.format(begin=begin) + cases)
        calls.append(
            f"            elif {numbered[begin][0]} <= op < {numbered[begin][0] + _GROUP}:\n"
            f"                group{begin}(op, registers, row, lanes, count)\n"
        )
    return "\n\n".join([*texts, _LOOP.replace("ROWS_HERE\n", "".join(calls)), _BLOCKS])


def _stamp() -> str:
    """What the compiled loop is made from."""
    modules = (arithmetic, bits, copies, groups, memory, warp, sys.modules[__name__])
    digest = hashlib.sha256(b"".join(Path(str(m.__file__)).read_bytes() for m in modules))
    return f"{digest.hexdigest()} {_text()} {numba.__version__}"


def _kept(function: Any) -> Any:
    """Numba's dispatcher, with code on disk for the next process."""
    dispatcher = arithmetic.inner(function)
    dispatcher._cache = store.KernelCache(function, _stamp())
    return dispatcher


@functools.cache
def run_blocks() -> Any:
    """The compiled loops."""
    module = store.load_source(_text(), "ptx_loop")
    names = {name.upper(): number for name, number in CONTROL.items()}
    names["TRAP_"] = names.pop("TRAP")
    names |= {k: v for k, v in vars(memory).items() if k.isupper()}
    names |= {k: v for k, v in globals().items() if k in _STATES}
    names |= dict(vars(arithmetic).items()) | {"np": np, "math": math, "BIG": 1 << 62}
    names |= {f"{kind}_of": read for kind, read in bits.READ.items()}
    names |= {f"of_{kind}": write for kind, write in bits.WRITE.items()}
    names |= {n: getattr(bits, n) for n in ("fma32", "fma64", "root32", "root64")}
    names |= {n: getattr(warp, n) for n in _OF_WARPS}
    names |= {"DOUBLES": DOUBLES, "begin": copies.begin, "finish": copies.finish}
    names |= {"product": groups.product, "ordered": groups.ordered}
    names |= {"load": memory.load, "store": memory.store, "found_wrong": memory.found_wrong}
    names |= {"u": numba.uint64, "s": numba.int64}
    own = module.__dict__
    own.update(
        {k: v for k, v in names.items() if k not in ("__name__", "__file__", "__builtins__")}
    )
    own["run_warp"] = arithmetic.inner(own["run_warp"])
    groups_of_rows = [name for name in own if name.startswith("group") and name[5:].isdigit()]
    for name in groups_of_rows:
        own[name] = _kept(own[name])
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        groups_of_rows.reverse()  # so that each finds on disk what another has compiled
    for name in groups_of_rows:
        own[name].compile(_GROUPS_TYPES)
    return _kept(own["run_blocks"])


_WORDS, _ROW_OF_WORDS = numba.int64[::1], numba.uint64[:, ::1]
_GROUPS_TYPES = numba.int64, _ROW_OF_WORDS, _WORDS, _WORDS, numba.int64


_OF_WARPS = ("here", "shuffle", "vote", "multiply", "multiply_doubles", "squares", "atomic")
_STATES = ("RUNNING", "WAITING", "AT_BARRIER", "ENDED", "NOBODY")
