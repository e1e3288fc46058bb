"""The machine: runs launches of assembled kernels in a space, and reports what goes wrong.

Start reading at ``Machine.run``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from . import memory
from .assemble import Code
from .loop import run_blocks

__all__ = ["Fault", "Machine"]

STEPS = 2_000_000_000
"""Instructions of a warp after which a launch is taken to be endless."""


SHARED = 163 << 10, 227 << 10
"""Bytes of shared memory that a block can ask for: compute capability 8.0, and 9.0."""


class Fault(AssertionError):
    """What a GPU might not notice: says which kernel, instruction, thread and address."""


@dataclass
class Machine:
    """Runs code in a space. order: 0 as numbered, 1 backwards, a larger number otherwise."""

    space: memory.Space
    order: int = 0
    intervals: int = 1
    steps: int = 0

    def run(
        self,
        code: Code,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: list[int],
        asked: int = 0,
    ) -> None:
        """Run a launch; raises Fault, saying where, for whatever is wrong.

        asked: bytes of shared memory beside those of the kernel's own arrays.
        """
        threads, space = math.prod(block), self.space
        box = np.zeros(memory.BOX, np.int64)
        shared, local = -(-(code.sizes["shared"] + asked) // 256) * 256, code.sizes["local"]
        assert shared + local * threads <= space.windows
        held = sum([n for _, n in code.fields.get("shared", ())])
        many = held > 48 << 10 or held + asked > SHARED[code.groups] or (code.open < 0 and asked)
        if threads > 1024 or max(grid[1:]) > 65535 or many or 8 * len(args) > 32764:
            raise Fault(
                f"{code.name}: {grid} of {block}, {held} + {asked} bytes shared, "
                f"{len(args)} arguments"
            )
        box[memory.BASE], box[memory.SHARED_SIZE] = space.base, shared
        box[memory.LOCAL], box[memory.LOCAL_SIZE] = shared, local
        box[memory.HEAP], box[memory.HEAP_END] = space.windows, space.bytes.size
        box[memory.LAUNCH] = self.intervals
        box[memory.INTERVAL] = self.intervals + 1
        box[memory.THREADS], box[memory.BUDGET] = threads, STEPS
        box[memory.STRICT] = "copy" not in code.name  # which may bring along what nobody reads
        values = dict(code.preset)
        for (register, _), value in zip(code.parameters, args, strict=True):
            values[register] = value
        preset = np.array(list(values), np.int64)
        fields = np.array(
            [(s == "local", at, n) for s, some in code.fields.items() for at, n in some]
            + [(False, code.open, asked)] * (code.open >= 0),
            np.int64,
        ).reshape(-1, 3)
        blocks = np.arange(math.prod(grid))
        if self.order == 1:
            blocks = blocks[::-1].copy()
        elif self.order > 1:
            np.random.default_rng(self.order).shuffle(blocks)
        warps = -(-threads // 32)
        registers = np.empty((warps, code.registers, 32), np.uint64)
        where = np.zeros(8, np.int64)
        shape = np.array([*block, *grid], np.int64)
        problem = run_blocks()(
            code.words, registers, preset, np.array(list(values.values()), np.uint64), shape,
            blocks, fields, self.order, space.views, box, where,
        )  # fmt: skip
        self.intervals = int(box[memory.INTERVAL]) + 1
        self.steps += STEPS - int(box[memory.BUDGET])
        if problem:
            raise Fault(self._report(code, where, block, grid, int(box[memory.INTERVAL])))

    def _report(
        self, code: Code, where: np.ndarray, block: tuple, grid: tuple, interval: int
    ) -> str:
        kind, at, thread, address, token, number = map(int, where[:6])
        at_thread = np.unravel_index(thread, block[::-1])[::-1]
        at_block = np.unravel_index(number, grid[::-1])[::-1]
        lines = [
            f"{memory.PROBLEMS[kind]}, in kernel {code.name}",
            f"  instruction {at}: {code.statements[at]}",
            f"  thread {tuple(map(int, at_thread))} of {block}, "
            f"block {tuple(map(int, at_block))} of {grid}",
        ]
        if kind == memory.BARRIERS:
            lines.append(f"  another waits at {token}: {code.statements[token]}")
        elif kind < memory.SYNC:
            lines.append(f"  address {address:#x}")
        if kind in (memory.RACE_WRITE, memory.RACE_READ):
            other = {memory.MANY: "several threads", memory.ATOMIC: "an atomic"}.get(
                token & 2047, f"thread {token & 2047}"
            )
            same = token >> 11 == interval
            lines.append(f"  the other is {other} of {'this' if same else 'another'} block")
        return "\n".join(lines)
