"""A loop instruction as the source text of one GPU kernel.

Three forms. *each*: no sums; threads walk over the elements in strides of the grid, by 128 bits
where the layout allows it. *rows*: sums over what lies together in memory; a warp or a block takes
one row, or one piece of it. *columns*: sums over the rest; neighbouring threads take neighbouring
columns, by 128 bits where that may be, and the others of a block share out the rows. A long sum is
cut into pieces, whose number depends on sizes alone, and a second kernel adds those up. What is
written is in ``emit_cuda_text.py`` and ``emit_cuda_columns.py``. Start reading at ``loop_kernel``.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..kernels.cuda.runtime.folds import parts_of
from ..kernels.halves import is_floating
from .emit_cuda_columns import column_kernel
from .emit_cuda_text import KernelText, LoopKernel
from .fusion import collapsed, renaming
from .passes import reduced
from .program import Loop, Operand, row_major


def loop_kernel(loop: Loop, flags: int = 0) -> LoopKernel:
    """Write ``loop``, which has an iteration at least; its sums go over the same dims.

    flags: how many flags of checks it keeps beside.
    """
    small = collapsed(_with_each_load_once(loop))
    over = reduced(small)
    if not any(s.mode == "sum" for s in small.stores):
        over = [frozenset()]
    assert len(set(over)) == 1, f"sums over several dims: {loop!r}"
    summed = [d for d in range(len(small.space)) if d in over[0]]
    kept = [d for d in range(len(small.space)) if d not in over[0]]
    if not any(s.mode == "sum" for s in small.stores) or not summed:
        text = KernelText(small, kept, [], flags)
        name, source = text.finish("each", text.each(1))
        lanes = text.most_lanes()
        vector = None
        if lanes > 1:
            wide = KernelText(small, kept, [], flags)
            vector = wide.finish("each", wide.each(lanes))
        return LoopKernel(small, "each", name, source, vector, lanes, small.size)
    columns = bool(kept) and kept[-1] > summed[-1]
    count = math.prod(small.space[d] for d in kept)
    length = math.prod(small.space[d] for d in summed)
    whole = all(_dense(o, kept) for o, s in zip(small.outs, small.stores, strict=True) if _sum(s))
    if columns:
        return column_kernel(small, kept, summed, flags, whole)
    pieces = parts_of(count, length, 1) if whole else 1
    draft = LoopKernel(small, "rows", "", "", None, 1, count, length, pieces)
    text = KernelText(small, kept, summed, flags, pieces > 1)
    name, source = text.finish("rows", text.rows(draft.by_block))
    return replace(draft, name=name, text=source)


def _with_each_load_once(loop: Loop) -> Loop:
    """``loop`` without a second load of what is loaded already."""
    first: dict[Operand, str] = {}
    names: dict[str, str] = {}
    for o, n in zip(loop.ins, loop.loads, strict=True):
        names[n] = first.setdefault(o, n)
    if len(first) == len(loop.ins):
        return loop
    lines = tuple(replace(line, expr=renaming(line.expr, names)) for line in loop.lines)
    stores = tuple(replace(s, line=names.get(s.line, s.line)) for s in loop.stores)
    loads = tuple(first.values())
    return replace(loop, ins=tuple(first), loads=loads, lines=lines, stores=stores)


def _sum(s: object) -> bool:
    return getattr(s, "mode", "") == "sum"


def _dense(o: Operand, kept: list[int]) -> bool:
    """Whether the results of a sum lie in the order in which they are counted."""
    sizes = tuple(o.view.shape[d] for d in kept)
    return tuple(o.view.strides[d] for d in kept) == row_major(sizes)


def dtype_of_sum(o: Operand) -> np.dtype:
    """What the sums of pieces are kept in."""
    return np.dtype(np.float64 if is_floating(o.dtype) else np.int64)
