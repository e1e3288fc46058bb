"""Products that four warps make together, and that go on beside the arithmetic: ``wgmma``.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions". Compute capability 9.0 and no other.
Both factors lie in shared memory, in slices of 64 steps of k that begin at multiples of 1024: rows
of 128 bytes, of which piece p of 16 bytes of row r is at p ^ r % 8 (the "128-byte swizzle"). A row
is 64 steps of one row or column of the result, or 64 neighbours of one step, in which case those of
the next 64 follow after the rows of all steps. Start reading at ``multiplier``.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir

from ...halves import FLOAT16
from .pipeline import NOTHING, assembly

from numba.cuda import types  # isort: skip
from numba.cuda.extending import intrinsic  # isort: skip

__all__ = ["DEPTH", "LARGE", "descriptor", "multiplier", "pairs_of", "written"]

DEPTH = 64
"""Steps of k of a slice."""

LARGE = 128 * DEPTH
"""Bytes of 64 rows or columns of a slice."""

_STEP = 16
_LONG, _SINGLE, _WORD = ir.IntType(64), ir.FloatType(), ir.IntType(32)


def descriptor(turned: bool) -> int:
    """The descriptor of a factor at address 0; add an address, divided by 16.

    turned: its rows are along the result, not along k. "Matrix Descriptor Format": the swizzle, the
    bytes from 8 rows to the next 8, and those from 64 numbers of the result to the next 64.
    """
    return 1 << 62 | 1024 >> 4 << 32 | (LARGE if turned else 16) >> 4 << 16


def pairs_of(parts: int) -> list[tuple[int, int]]:
    """Which parts of two numbers are multiplied: those whose product is not below the rounding of
    the last part. The smallest come first, which so are added to small sums."""
    pairs = [(p, q) for p in range(parts) for q in range(parts) if p + q < parts]
    return sorted(pairs, key=sum, reverse=True)


@intrinsic
def written(typing):
    """Let ``wgmma`` see what this thread has written to shared memory, once a barrier follows.

    ``wgmma`` reads by another way than ``cp.async`` writes (PTX ISA, "Async proxy").
    """

    def generate(context, builder, signature, arguments):
        assembly(builder, NOTHING, "fence.proxy.async.shared::cta;", "", ())
        return context.get_dummy_value()

    return types.void(), generate


@functools.cache
def multiplier(
    dtype: np.dtype, tall: int, cols: int, turned_x: bool, turned_y: bool,
    parts: int = 1, apart: tuple[int, int] = (0, 0),
) -> tuple[Any, Any]:  # fmt: skip
    """Functions that begin to make the product of a slice, and that wait until it is there.

    They change a local array of ``tall * cols // 2`` floats, those of this thread of ``tall`` times
    64 rows. In between nobody may write the slice, and the array is not to be touched: both name it
    as what they change, so that the compiler leaves it in its registers. A product of one part is
    added to the array. Of factors that are sums of ``parts``, which lie ``apart`` bytes from one
    another, those of the smallest parts come first, see ``pairs_of``, and the array is overwritten.
    """
    half, each = "f16" if dtype == FLOAT16 else "bf16", cols // 2
    count, pairs = tall * each, pairs_of(parts)
    name = f"wgmma.mma_async.sync.aligned.m64n{cols}k16.f32.{half}.{half}"
    ways = [(128 * _STEP if turned else 2 * _STEP) >> 4 for turned in (turned_x, turned_y)]

    def changed(context, builder, kind, array, text, numbers):
        data = context.make_array(kind)(context, builder, array).data
        first = builder.bitcast(data, _SINGLE.as_pointer())
        places = [builder.gep(first, [_WORD(i)]) for i in range(count)]
        held = [builder.load(place) for place in places]
        constraints = ["=f"] * count + ["l"] * len(numbers) + [str(i) for i in range(count)]
        result = ir.LiteralStructType([_SINGLE] * count)
        found = assembly(builder, result, text, ",".join(constraints) + ",", (*numbers, *held))
        for i, place in enumerate(places):
            builder.store(builder.extract_value(found, i), place)
        return context.get_dummy_value()

    @intrinsic
    def multiply(typing, acc, x, y):
        """x, y: descriptors of the slices."""

        def generate(context, builder, signature, arguments):
            array, x, y = arguments
            lines, numbers, places = ["wgmma.fence.sync.aligned;"], [], {}

            def at(factor, there):
                """The operand that is the descriptor of a factor, ``there`` times 16 bytes on."""
                if (factor, there) not in places:
                    places[factor, there] = count + len(numbers)
                    numbers.append(builder.add(factor, _LONG(there)))
                return places[factor, there]

            for number, (p, q) in enumerate(pairs):
                for step in range(DEPTH // _STEP):
                    adds = int(parts == 1 or number + step > 0)
                    right = at(y, (q * apart[1] >> 4) + step * ways[1])
                    for i in range(tall):
                        left = at(x, (p * apart[0] >> 4) + step * ways[0] + i * (LARGE >> 4))
                        sums = ", ".join(f"${n}" for n in range(i * each, i * each + each))
                        lines.append(
                            f"{name} {{{sums}}}, ${left}, ${right}, {adds}, 1, 1, "
                            f"{int(turned_x)}, {int(turned_y)};"
                        )
            text = "\n".join([*lines, "wgmma.commit_group.sync.aligned;"])
            return changed(context, builder, signature.args[0], array, text, numbers)

        return types.void(acc, types.int64, types.int64), generate

    @intrinsic
    def finish(typing, acc):
        def generate(context, builder, signature, arguments):
            text = "wgmma.wait_group.sync.aligned 0;"
            return changed(context, builder, signature.args[0], arguments[0], text, ())

        return types.void(acc), generate

    return multiply, finish
