"""Where work buffers lie: one piece of memory, reused as soon as a value is dead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .program import Buffer, Instruction, Loop

ALIGN = 64


def assign(groups: Sequence[Sequence[Instruction]]) -> tuple[dict[Buffer, int], int]:
    """Byte offsets of the work buffers, and how many bytes they need together.

    groups: instructions in order; those of one group run at the same time.
    """
    first, last = lifetimes(groups)
    offsets: dict[Buffer, int] = {}
    living: dict[Buffer, tuple[int, int]] = {}  # offset and bytes
    total = 0
    for at, group in enumerate(groups):
        outs = dict.fromkeys(o.buffer for i in group for o in i.outs)
        starting = [b for b in outs if first.get(b) == at]
        ending = {b for b in living if last[b] == at}
        for b in starting:
            only = group[0] if len(group) == 1 else None
            heir = _inherited(only, b, ending) if isinstance(only, Loop) else None
            if heir is not None:
                place = living.pop(heir)
                ending.discard(heir)
                living[b] = (place[0], rounded(b.nbytes))
                offsets[b] = place[0]
                continue
            size = rounded(b.nbytes)
            offset = _gap(living.values(), size)
            offsets[b], living[b] = offset, (offset, size)
            total = max(total, offset + size)
        for b in [b for b in living if last[b] <= at]:
            del living[b]
    return offsets, total


def rounded(nbytes: int) -> int:
    """``nbytes`` up to whole cache lines."""
    return -(-max(nbytes, 1) // ALIGN) * ALIGN


def lifetimes(
    groups: Sequence[Sequence[Instruction]],
) -> tuple[dict[Buffer, int], dict[Buffer, int]]:
    """Of each work buffer the first and the last group that touches it."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for at, group in enumerate(groups):
        values = [o.value for i in group for o in i.outs]
        for b in [v.buffer for v in [*values, *(v for i in group for v in i.used)]]:
            if b.kind == "work":
                first.setdefault(b, at)
                last[b] = at
    return first, last


def _inherited(loop: Loop, out: Buffer, ending: set[Buffer]) -> Buffer | None:
    """A buffer that dies in ``loop`` and is read just where ``out`` is written."""
    mine = [o for o in loop.outs if o.buffer is out]
    if len(mine) != 1 or not mine[0].view.covers(out):
        return None
    if loop.stores[loop.outs.index(mine[0])].mode != "store":
        return None
    for o in loop.ins:
        b = o.buffer
        fits = b in ending and b.dtype == out.dtype and b.size == out.size
        if fits and all(other.view == mine[0].view for other in loop.ins if other.buffer is b):
            if all(other.buffer is not b for other in loop.outs):
                return b
    return None


def _gap(living: Iterable[tuple[int, int]], size: int) -> int:
    """The lowest offset where ``size`` bytes are free."""
    offset = 0
    for start, length in sorted(living):
        if offset + size <= start:
            break
        offset = max(offset, start + length)
    return offset
