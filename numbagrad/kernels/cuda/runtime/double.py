"""Squares of float64 on tensor cores: ``mma.sync`` of 16 rows, 8 columns and 4 or 8 steps.

They multiply and add as the other units do, without rounding between, so results are as exact.
Compute capability 8.0 and later; not in the simulator. Start reading at ``core_squares``.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from . import intrinsics  # noqa: F401 - it makes ready what Numba needs
from .shape import Tile
from .shared import address, copy1
from .squares import APART, repeated
from .warp import inlined, pasted

from numba.cuda import types  # isort: skip
from numba.cuda.extending import intrinsic  # isort: skip

__all__ = ["core_squares"]


def _instruction(rows: int, steps: int) -> tuple[str, str]:
    """``mma.sync`` of so many rows and steps: its text, and the constraints of its operands."""
    sums, left, right = rows // 4, rows // 8 * (steps // 4), steps // 4
    numbers = iter(range(2 * sums + left + right))
    groups = [
        "{" + ", ".join(f"${next(numbers)}" for _ in range(count)) + "}"
        for count in (sums, left, right, sums)
    ]
    text = f"mma.sync.aligned.m{rows}n8k{steps}.row.col.f64.f64.f64.f64 {', '.join(groups)};"
    return text, ",".join(["=d"] * sums + ["d"] * (left + right + sums))


def _multiplier(steps: int, tall: bool) -> Any:
    """The intrinsic for 16 rows. tall: in one instruction, for which a GPU needs 9.0."""
    rows, some = (16, steps) if tall else (8, 4)
    text, constraints = _instruction(rows, some)

    @intrinsic
    def multiply(typing, acc, at, far, row, i, column, j):
        """Add a product to ``acc`` at ``at`` and, for rows 8 to 15, at ``at + far``.

        Lane 4 g + t holds of the left factor rows g and g + 8 at step t, then at t + 4 and so on,
        in ``row`` from i; of the right one column g at the same steps, in ``column`` from j; of
        the sums columns 2 t and 2 t + 1 of both rows. PTX ISA, "Matrix Fragments for mma.m16n8k4".
        """

        def generate(context, builder, signature, arguments):
            acc_at, at, far, row_at, i, column_at, j = arguments
            number = ir.DoubleType()

            def place(kind, memory, index, more):
                index = builder.add(index, ir.Constant(index.type, more))
                return address(context, builder, kind, memory, index)

            lower = builder.add(at, far)
            sums = [place(acc, acc_at, base, c) for base in (at, lower) for c in (0, 1)]
            left = [builder.load(place(row, row_at, i, c)) for c in range(steps // 2)]
            right = [builder.load(place(column, column_at, j, c)) for c in range(steps // 4)]
            for s in range(steps // some):
                for half in range(16 // rows):
                    mine = sums if tall else sums[2 * half : 2 * half + 2]
                    factors = left + right if tall else [left[2 * s + half], right[s]]
                    given = factors + [builder.load(a) for a in mine]
                    results = ir.LiteralStructType([number] * len(mine))
                    kind = ir.FunctionType(results, [number] * len(given))
                    # Its lanes work together: it must not move into a branch.
                    code = ir.InlineAsm(kind, text, constraints, side_effect=True)
                    found = builder.call(code, given)
                    for c, a in enumerate(mine):
                        builder.store(builder.extract_value(found, c), a)
            return context.get_dummy_value()

        whole = types.int64
        return types.void(acc, whole, whole, row, whole, column, whole), generate

    return multiply


def core_squares(tile: Tile, tall: bool) -> tuple[Any, Any, Any]:
    """As ``squares.squares``. tall: see ``_multiplier``.

    A warp makes 8 by 4 squares of threads, whose numbers lie 8 rows, and in pairs 8 columns, apart.
    A row of shared memory begins 4 numbers behind a multiple of 16, so that the reads of half a
    warp, of 4 steps and 4 rows, meet in no bank.
    """
    steps, each_row, each_col = tile.cores, tile.each_row, tile.each_col
    left_row, right_row = tile.rows + APART, tile.cols + APART
    words, groups = each_col // 2, steps // 4
    high, wide = 8 * each_row, 4 * each_col
    warps = tile.cols // wide
    assert tile.depth % steps == 0 and each_row % 2 == 0
    assert tile.threads // tile.parts % 32 == 0
    by_one, by_many = _multiplier(steps, True), _multiplier(steps, False)

    @inlined
    def first(member):
        """Row and column of a thread's first number, and what it reads first of both slices."""
        warp, group, place = member // 32, member % 32 // 4, member % 4
        i, j = warp // warps * high + group, warp % warps * wide
        return i, j + 2 * place, place * left_row + i, place * right_row + j + group

    @pasted
    def place(q, i, j):
        """Row and column in the tile of the ``q``-th word of a square that begins at i, j."""
        return i + q // words * 8, j + q % words * 8

    @pasted
    def bring_row(q, row, shared, at):
        at += q // 2 % groups * 4 * left_row + q // 2 // groups * 16 + q % 2 * 8
        copy1(row, q, shared, at)

    @pasted
    def bring_column(q, column, shared, at):
        copy1(column, q, shared, at + q % groups * 4 * right_row + q // groups * 8)

    @pasted
    def calculate_one(q, acc, row, column):
        h, w = q // words, q % words
        at, i, j = (h * each_col + w) * 2, h * 2 * groups, w * groups
        if tall:  # here, because what a kernel reads names it on disk, and an intrinsic is not read
            by_one(acc, at, each_col, row, i, column, j)
        else:
            by_many(acc, at, each_col, row, i, column, j)

    bring_row = repeated(bring_row, each_row * groups)
    bring_column = repeated(bring_column, words * groups)
    calculate_all = repeated(calculate_one, each_row // 2 * words)

    @pasted
    def multiply(s, acc, row, column, shared, left, right):
        bring_row(0, row, shared, left + s * steps * left_row)
        bring_column(0, column, shared, right + s * steps * right_row)
        calculate_all(0, acc, row, column)

    return first, place, repeated(multiply, tile.depth // steps)
