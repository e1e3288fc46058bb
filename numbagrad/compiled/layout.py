"""Which matrices between instructions are stored by columns.

A product is cheapest where the factor on the right lies by rows, and a result stored by columns
exchanges the factors: ``out.T = y.T x.T``. A matrix that only loops and products touch may be
stored either way, and so may those of a kernel that exists for both: cross entropy of few classes
has its vectors along the batch. Matrices that share a loop or such a kernel are stored alike, since
a loop over both layouts jumps through one of them. Start reading at ``by_columns``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from ..kernels.vectors import VECTOR_BYTES
from .program import Buffer, Call, Gemm, Instruction, Loop, Operand, Program, View

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

FEW, FEW_ROW = 24, 4.0
"""Cycles that a kernel which takes both layouts loses for each number of rows so short; one that
has longer rows is left alone."""

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
        if isinstance(i, (Loop, Call)):
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
    total = 0.0
    for i in instructions:
        if isinstance(i, Gemm):
            total += _cost_of_product(i, chosen)
        elif isinstance(i, Call):
            total += _cost_of_kernel(i, chosen)
        else:
            total += _cost_of_loop(i, chosen)
    return total


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


def _cost_of_kernel(i: Call, chosen: set[Buffer]) -> float:
    return sum(FEW_ROW * o.view.size for o in _matrices(i) if o.buffer not in chosen)


def _stored_by_columns(o: Operand, chosen: set[Buffer]) -> bool:
    """Whether the rows of an operand would not lie side by side."""
    row, col = o.view.strides
    return (col != 1 or (row == 1 and o.view.shape[1] > 1)) is not (o.buffer in chosen)


def _free_matrices(program: Program) -> dict[Buffer, tuple[int, int]]:
    """Shapes of the work buffers that are touched always as one matrix, and by nothing that needs
    them as they are."""
    shapes: dict[Buffer, tuple[int, int] | None] = {}
    for i in program.instructions:
        able = isinstance(i, (Loop, Gemm)) or _takes_both(i)
        for o in (*i.ins, *i.outs):
            b = o.buffer
            shape = _matrix(o.view) if able else None
            if b.kind != "work" or (b in shapes and shapes[b] != shape):
                shape = None
            shapes[b] = shape
    least = dict.fromkeys(shapes, ROWS)
    kernels = [{o.buffer for o in _matrices(i)} for i in program.instructions if _takes_both(i)]
    for _ in kernels:  # one that is not free binds those of its kernel, and they others
        for together in kernels:
            if any(shapes[b] is None for b in together):
                shapes.update(dict.fromkeys(together))
    for together in kernels:
        least.update(dict.fromkeys(together, 1))  # the kernel for long batches serves short ones
    return {
        b: shape
        for b, shape in shapes.items()
        if shape is not None and _whole(b, shape) and shape[0] >= least[b]
    }


def _takes_both(i: Instruction) -> bool:
    """Whether the kernel that is called exists for matrices by columns, and their rows are few."""
    if not isinstance(i, Call) or getattr(i.kernel, "turned", None) is None:
        return False
    return all(o.view.shape[1] < FEW for o in _matrices(i))


def _matrices(i: Instruction) -> list[Operand]:
    return [o for o in (*i.ins, *i.outs) if len(o.view.shape) == 2]


def _matrix(view: View) -> tuple[int, int] | None:
    """The shape of a row-major matrix that ``view`` is, or is the transpose of."""
    if len(view.shape) != 2 or view.offset:
        return None
    (n, m), (row, col) = view.shape, view.strides
    if (row, col) == (m, 1):
        return n, m
    return (m, n) if (row, col) == (1, n) else None


def _whole(buffer: Buffer, shape: tuple[int, int]) -> bool:
    return shape[0] * shape[1] == buffer.size and shape[1] > 1


def _turned(i: Instruction, chosen: set[Buffer]) -> Instruction:
    def turned(o: Operand) -> Operand:
        if o.buffer not in chosen:
            return o
        (n, m), (row, col) = o.view.shape, o.view.strides
        strides = (1, n) if (row, col) == (m, 1) else (m, 1)
        if isinstance(i, Call):  # its kernel takes rows for columns
            return Operand(o.value, View((m, n), (n, 1)))
        return Operand(o.value, View(o.view.shape, strides))

    if not any(o.buffer in chosen for o in (*i.ins, *i.outs)):
        return i
    ins, outs = tuple(map(turned, i.ins)), tuple(map(turned, i.outs))
    if isinstance(i, Call):
        return replace(i, ins=ins, outs=outs, kernel=i.kernel.turned())
    return replace(i, ins=ins, outs=outs)
