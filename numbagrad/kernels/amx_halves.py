"""Products of bfloat16 on the matrix unit: what multiplies, and what rounds the sums.

``amx.py`` has the unit's own instructions, the loops around these are in ``cpu/half_product.py``.
"""

from __future__ import annotations

from llvmlite import ir
from numba import config, types

from .amx import (
    AMX,
    BYTE,
    EDGE,
    LINE,
    PARTS,
    STRIP,
    load_tile,
    multiply_tiles,
    tile_instruction,
)
from .half_type import HalfType
from .half_vectors import PAIRS, HalfVector
from .inner import intrinsic
from .vectors import WORD, Rows, at, counted, in_machine_code

__all__ = ["amx_finish", "amx_halves", "unit_takes"]


def unit_takes(like):
    """Whether the unit is there, may be used, and multiplies numbers such as ``like`` points to."""
    return 0


@intrinsic
def _unit_takes(typing, like):
    def generate(context, builder, signature, args):
        pairs = PAIRS and isinstance(like.dtype, HalfType) and like.dtype.name == "bfloat16"
        if not AMX or not pairs:  # what is packed is pairs only where vectors take them too
            return WORD(0)
        place = builder.module.globals.get(PARTS)
        return builder.load(place or ir.GlobalVariable(builder.module, WORD, PARTS))

    return types.int64(like), generate


if not config.DISABLE_JIT:
    unit_takes = _unit_takes


@in_machine_code
def amx_halves(builder, kind, tiles, steps, x, x_row, y, y_row, out):
    """Sums of products of the rows of ``begin_tiles`` of x and ``tiles`` times 16 columns of y.

    x, y are words, two bfloat16 along the sum: those of a row of x lie side by side, those of a
    column of y below one another, 16 a step. All are addresses, out one of rows without gaps of
    ``STRIP`` vectors of float32; x_row, y_row: bytes from row to row.
    """
    if not AMX or not isinstance(kind, HalfVector):
        return
    left, right = 6, 7
    for many in range(1, STRIP + 1):
        with builder.if_then(builder.icmp_signed("==", tiles, WORD(many))):
            for c in range(many):
                tile_instruction(builder, "tilezero", [BYTE(c)])
            with counted(builder, steps) as step:
                first = builder.add(x, builder.mul(step, WORD(LINE)))
                load_tile(builder, left, first, x_row)
                place = builder.add(y, builder.mul(step, builder.mul(y_row, WORD(EDGE))))
                for c in range(many):
                    load_tile(builder, right, builder.add(place, WORD(LINE * c)), y_row)
                    multiply_tiles(builder, c, left, right)
            for c in range(many):
                to = at(builder, builder.add(out, WORD(LINE * c)), BYTE)
                tile_instruction(builder, "tilestored64", [BYTE(c), to, WORD(STRIP * LINE)])


@in_machine_code
def amx_finish(builder, kind, tiles, rows, columns, x, start, start_row, out, out_row, rounds):
    """``out = x + start`` for so many rows of ``tiles`` vectors, rounded to halves if ``rounds``.

    All are addresses, x one of rows without gaps of ``STRIP`` vectors, start of float32, which with
    ``start_row`` 0 are the same for each row; columns: in the last vector.
    """
    if not AMX or not isinstance(kind, HalfVector):
        return
    floats = ir.VectorType(kind.element, kind.count)
    for many in range(1, STRIP + 1):
        with builder.if_then(builder.icmp_signed("==", tiles, WORD(many))):
            sums = Rows(builder, floats, many, None)
            lines, halves = (Rows(builder, each, many, columns) for each in (floats, kind))
            with counted(builder, rows) as i:
                values = sums.load(builder.add(x, builder.mul(i, WORD(STRIP * LINE))))
                old = lines.load(builder.add(start, builder.mul(i, start_row)))
                values = [builder.fadd(*pair) for pair in zip(old, values, strict=True)]
                to = builder.add(out, builder.mul(i, out_row))
                with builder.if_else(builder.icmp_signed("!=", rounds, WORD(0))) as (last, before):
                    with last:
                        halves.store(values, to)
                    with before:
                        lines.store(values, to)
