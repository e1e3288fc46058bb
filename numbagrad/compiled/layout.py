"""Which matrices between instructions are stored by columns.

A product is cheapest where the factor on the right lies by rows, and a result stored by columns
exchanges the factors: ``out.T = y.T x.T``. A matrix that only loops and products touch may be
stored either way. Matrices that share a loop are stored alike, since a loop over both layouts
jumps through one of them. Start reading at ``by_columns``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from ..kernels.tile import VECTOR_BYTES
from .program import Buffer, Gemm, Instruction, Loop, Operand, Program, View

ROWS = 32
"""Least rows of a matrix that may be turned: with smaller batches, which come in many sizes, all
programs keep one layout and so share one compilation."""

PACKED = 0.37
"""Cycles to turn over one number of a factor on the right that is stored by columns."""

JUMP = 1.0
"""Cycles that a loop loses for each number of a matrix stored otherwise than what it writes."""

SHORT, SHORT_ROW = 24, 0.5
"""Cycles that a loop loses for each number where rows are so short: LLVM unrolls such an inner loop
and makes vectors of the outer one, by gathers and scatters."""

TILE = 25.0
"""Cycles to begin and end a tile of the result."""


def by_columns(program: Program) -> Program:
    """Store the matrices of each family by columns if that costs fewer cycles."""
    shapes = _free_matrices(program)
    families = _families(program, shapes)
    chosen: set[Buffer] = set()
    for _ in range(3):  # a family may follow another that has turned
        before = set(chosen)
        for family, touching in families:
            other = chosen ^ family
            if _cost(touching, other) < _cost(touching, chosen):
                chosen = other
        if chosen == before:
            break
    if not chosen:
        return program
    return program.with_instructions(_turned(i, chosen) for i in program.instructions)


def _families(
    program: Program, shapes: dict[Buffer, tuple[int, int]]
) -> list[tuple[set[Buffer], list[Instruction]]]:
    """Free matrices that loops bring together, and the instructions that touch each family."""
    family: dict[Buffer, set[Buffer]] = {b: {b} for b in shapes}
    for i in program.instructions:
        if isinstance(i, Loop):
            free = [o.buffer for o in (*i.ins, *i.outs) if o.buffer in shapes]
            for a, b in pairwise(free):
                if shapes[a] == shapes[b] and family[a] is not family[b]:
                    family[a] |= family[b]
                    for member in family[b]:
                        family[member] = family[a]
    touching: dict[int, list[Instruction]] = {}
    for i in program.instructions:
        operands = (*i.ins, *i.outs)
        for members in {id(family[o.buffer]) for o in operands if o.buffer in shapes}:
            touching.setdefault(members, []).append(i)
    distinct = {id(members): members for members in family.values()}
    return [(members, touching[key]) for key, members in distinct.items()]


def _cost(instructions: Iterable[Instruction], chosen: set[Buffer]) -> float:
    """Estimated cycles that depend on the layout; ``chosen`` are stored by columns."""
    return sum(
        _cost_of_product(i, chosen) if isinstance(i, Gemm) else _cost_of_loop(i, chosen)
        for i in instructions
    )


def _cost_of_product(i: Gemm, chosen: set[Buffer]) -> float:
    (out,), (x, y) = i.outs, i.ins
    (n, k), m = x.view.shape, y.view.shape[1]
    right = y
    if _stored_by_columns(out, chosen):
        n, m, right = m, n, x
    lanes = max(VECTOR_BYTES, 16) // out.dtype.itemsize
    vectors = -(-m // lanes)
    tiles = -(-vectors // 2) * -(-n // 12)
    by_columns = _stored_by_columns(right, chosen) is not (right is x)
    return vectors * n * k / 2 + TILE * tiles + (PACKED * m * k if by_columns else 0.0)


def _cost_of_loop(i: Instruction, chosen: set[Buffer]) -> float:
    """What jumping costs: the matrices that lie otherwise than most, and rows that are short."""
    ways = {False: 0, True: 0}
    short = 0.0
    for o in (*i.ins, *i.outs):
        if _matrix(o.view) is not None:
            turned = _stored_by_columns(o, chosen)
            ways[turned] += o.view.size
            if o.view.shape[not turned] < SHORT:
                short = SHORT_ROW * o.view.size
    return JUMP * min(ways.values()) + short


def _stored_by_columns(o: Operand, chosen: set[Buffer]) -> bool:
    """Whether the rows of an operand would not lie side by side."""
    row, col = o.view.strides
    return (col != 1 or (row == 1 and o.view.shape[1] > 1)) is not (o.buffer in chosen)


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
    return shape[0] * shape[1] == buffer.size and shape[0] >= ROWS and shape[1] > 1


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
