"""Which matrices between instructions are stored by columns.

With few rows BLAS makes ``out.T = y.T x.T`` faster than ``out``: 85 us instead of 120 for 32 rows
through 784 to 256 features. A matrix that only loops and products touch may be stored either way.
"""

from __future__ import annotations

from dataclasses import replace

from .program import Buffer, Gemm, Instruction, Loop, Operand, Program, View

ROWS = 64
"""Most rows of a product that is better stored by columns; at 128 rows nothing is gained."""


DEPTH = 256
"""Least length of its sums: below, small products of a stored transpose are the dearer ones."""


def by_columns(program: Program) -> Program:
    """Store products of few rows by columns, and what loops make of them in the same shape."""
    shapes = _free_matrices(program)
    chosen: set[Buffer] = set()
    for i in program.instructions:
        if isinstance(i, Gemm) and i.ins[0].view.shape[1] >= DEPTH:
            b = i.outs[0].buffer
            n, m = shapes.get(b, (0, 0))
            if 0 < n <= ROWS and n < m and i.outs[0].view.shape == (n, m):
                chosen.add(b)
        elif isinstance(i, Loop) and any(o.buffer in chosen for o in i.ins):
            same = {shapes[o.buffer] for o in i.ins if o.buffer in chosen}
            chosen |= {o.buffer for o in i.outs if shapes.get(o.buffer) in same}
    if not chosen:
        return program
    return program.with_instructions(_turned(i, chosen) for i in program.instructions)


def _free_matrices(program: Program) -> dict[Buffer, tuple[int, int]]:
    """Shapes of the work buffers that loops and products alone touch, always as one matrix."""
    shapes: dict[Buffer, tuple[int, int] | None] = {}
    for i in program.instructions:
        for o in (*i.ins, *i.outs):
            b = o.buffer
            shape = _matrix(o.view) if isinstance(i, (Loop, Gemm)) else None
            if b.kind != "work" or (b in shapes and shapes[b] != shape):
                shape = None
            shapes[b] = shape
    return {b: shape for b, shape in shapes.items() if shape is not None and _whole(b, shape)}


def _matrix(view: View) -> tuple[int, int] | None:
    """The shape of a row-major matrix that ``view`` is, or is the transpose of."""
    if len(view.shape) != 2 or view.offset:
        return None
    (n, m), (row, col) = view.shape, view.strides
    if (row, col) == (m, 1):
        return n, m
    return (m, n) if (row, col) == (1, n) else None


def _whole(buffer: Buffer, shape: tuple[int, int]) -> bool:
    return shape[0] * shape[1] == buffer.size and min(shape) > 1


def _turned(i: Instruction, chosen: set[Buffer]) -> Instruction:
    def turned(o: Operand) -> Operand:
        if o.buffer not in chosen:
            return o
        (n, m), (row, col) = o.view.shape, o.view.strides
        strides = (1, n) if (row, col) == (m, 1) else (m, 1)
        return Operand(o.value, View(o.view.shape, strides))

    if not any(o.buffer in chosen for o in (*i.ins, *i.outs)):
        return i
    return replace(i, ins=tuple(map(turned, i.ins)), outs=tuple(map(turned, i.outs)))
