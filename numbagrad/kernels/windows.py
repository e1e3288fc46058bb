"""The largest numbers and the sums of windows, several windows at a time, in vector instructions.

The loops around it are in ``cpu/pool.py``.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from .vectors import VECTOR_BYTES, WORD, at, counted, in_machine_code, overlapping, spread

__all__ = ["largest", "sums"]


@in_machine_code
def largest(
    builder, kind,
    out, places, x, base, count, apart, deep, deep_step, high, high_step, wide, wide_step,
):  # fmt: skip
    """Write the largest number of each of ``count`` windows, and its place, an int64.

    The first of equals; the last NaN before all. out, places: addresses; x: that of the first
    element of the first window, whose place is ``base``. apart: elements from one window to the
    next. deep, high, wide: elements of a window along its axes, below 2^31 from first to last for
    float32; ``*_step``: from one of them to the next. All but addresses count elements.
    """
    itemsize = VECTOR_BYTES // kind.count
    number = ir.IntType(8 * itemsize)
    for width, begin in overlapping(builder, kind.count, count):
        part, index = ir.VectorType(kind.element, width), ir.VectorType(number, width)
        best, which = (cgutils.alloca_once(builder, t) for t in (part, index))
        moved = builder.mul(begin, apart)
        start = builder.add(x, builder.mul(moved, WORD(itemsize)))
        builder.store(ir.Constant(part, [-math.inf] * width), best)
        builder.store(ir.Constant(index, None), which)
        with (
            counted(builder, deep) as iz,
            counted(builder, high) as iy,
            counted(builder, wide) as ix,
        ):
            offset = builder.mul(iz, deep_step)
            offset = builder.add(offset, builder.mul(iy, high_step))
            offset = builder.add(offset, builder.mul(ix, wide_step))
            place = builder.add(start, builder.mul(offset, WORD(itemsize)))
            value, before = _one_of_each(builder, part, place, apart), builder.load(best)
            wins = builder.or_(
                builder.fcmp_ordered(">", value, before),
                builder.fcmp_unordered("uno", value, value),
            )
            builder.store(builder.select(wins, value, before), best)
            known = builder.trunc(offset, number) if itemsize == 4 else offset
            known = spread(builder, known, width)
            builder.store(builder.select(wins, known, builder.load(which)), which)
        to = builder.add(out, builder.mul(begin, WORD(itemsize)))
        builder.store(builder.load(best), at(builder, to, part), align=itemsize)
        found, words = builder.load(which), ir.VectorType(WORD, width)
        if itemsize == 4:
            found = builder.zext(found, words)
        steps = builder.mul(ir.Constant(words, list(range(width))), spread(builder, apart, width))
        found = builder.add(
            found, builder.add(steps, spread(builder, builder.add(base, moved), width))
        )
        to = builder.add(places, builder.mul(begin, WORD(8)))
        builder.store(found, at(builder, to, words), align=8)


@in_machine_code
def sums(builder, kind, out, x, count, apart, deep, deep_step, high, high_step, wide):
    """Write the sums of ``count`` windows, in the order of their elements; arguments as there."""
    itemsize = VECTOR_BYTES // kind.count
    for width, begin in overlapping(builder, kind.count, count):
        part, shift = ir.VectorType(kind.element, width), builder.mul(begin, WORD(itemsize))
        total = cgutils.alloca_once(builder, part)
        builder.store(ir.Constant(part, [0.0] * width), total)
        start = builder.add(x, builder.mul(shift, apart))
        with (
            counted(builder, deep) as iz,
            counted(builder, high) as iy,
            counted(builder, wide) as ix,
        ):
            offset = builder.add(builder.mul(iz, deep_step), builder.mul(iy, high_step))
            offset = builder.mul(builder.add(offset, ix), WORD(itemsize))
            value = _one_of_each(builder, part, builder.add(start, offset), apart)
            builder.store(builder.fadd(builder.load(total), value), total)
        to = at(builder, builder.add(out, shift), part)
        builder.store(builder.load(total), to, align=itemsize)


def _one_of_each(builder: Any, part: Any, place: Any, apart: Any) -> Any:
    """The numbers at ``place`` and so many elements after one another, as one vector."""
    width = part.count
    itemsize = 4 if isinstance(part.element, ir.FloatType) else 8
    if width == 1:
        return builder.load(at(builder, place, part), align=itemsize)
    result = cgutils.alloca_once(builder, part)
    one, two = (builder.icmp_signed("==", apart, WORD(n)) for n in (1, 2))
    with builder.if_else(builder.or_(one, two)) as (near, far):
        with near:
            values = builder.load(at(builder, place, part), align=itemsize)
            builder.store(values, result)
            with builder.if_then(two):  # every other of two vectors; they share an element
                place_2 = builder.add(place, WORD((width - 1) * itemsize))
                others = builder.load(at(builder, place_2, part), align=itemsize)
                order = [*range(0, width, 2), *range(width + 1, 2 * width, 2)]
                order = ir.Constant(ir.VectorType(ir.IntType(32), width), order)
                builder.store(builder.shuffle_vector(values, others, order), result)
        with far:
            step, values = builder.mul(apart, WORD(itemsize)), ir.Constant(part, ir.Undefined)
            for lane in range(width):
                value = builder.load(at(builder, place, part.element), align=itemsize)
                values = builder.insert_element(values, value, ir.IntType(32)(lane))
                place = builder.add(place, step)
            builder.store(values, result)
    return builder.load(result)
