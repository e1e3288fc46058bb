"""What comes of a row of a reduction: by lanes, or sums and extremes in vector instructions.

Of a loop over a row LLVM makes vectors by itself, but it joins their lanes one after the other, and
takes what is left over at the end number by number: of 128 float32 both take as long as the rest.
Start reading at ``by_lanes``, then at ``_row``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import overload

from .half_type import computed
from .inner import OPTIONS
from .intrinsics import address, itemsize, load, stack, start
from .shares import inlined
from .vectors import VECTOR_BYTES, WORD, Rows, by_halves, bytes_of, counted, in_machine_code

__all__ = ["by_lanes", "least_row", "most_row", "number_row", "product_row", "sum_row"]

LONG = 1 << 13
"""Elements from which a row is read in its four quarters at once, not from its begin to its end:
one core sums 40 MB at 34 GB/s then instead of 19 (a Zen 3). Of four short rows at once, which lie
in a cache, nothing is gained."""

ABREAST = 32
"""Accumulators of a row without vector instructions; each takes in four numbers at a time."""


@inlined
def by_lanes(x, i, end, begin, step, four, merge, p):
    """What comes of the elements from i to before ``end``."""
    acc = begin(x)
    if end - i >= 4 * ABREAST:
        abreast = stack(ABREAST, acc)
        for lane in range(ABREAST):
            abreast[lane] = begin(x)
        turns, apart, stride = (end - i) // (4 * ABREAST), ABREAST, 4 * ABREAST
        if end - i >= LONG:
            apart, stride = turns * ABREAST, ABREAST
        for turn in range(turns):
            for lane in range(ABREAST):
                at = i + turn * stride + lane
                a, b = load(x, at), load(x, at + apart)
                c, d = load(x, at + 2 * apart), load(x, at + 3 * apart)
                abreast[lane] = four(step, abreast[lane], a, b, c, d, p)
        i += turns * 4 * ABREAST
        half = ABREAST // 2
        while half > 0:
            for lane in range(half):
                abreast[lane] = merge(abreast[lane], abreast[lane + half])
            half //= 2
        acc = abreast[0]
    for j in range(i, end):
        acc = step(acc, load(x, j), p)
    return acc


class _Fold(NamedTuple):
    """How vectors are taken in: ``one(builder, total, vector)``, ``four(builder, total, a, b, c,
    d)``; how totals are joined, and what comes of the last number.

    begin: of a new total. short: bytes from which a row is faster so than number by number.
    """

    begin: float
    one: Callable[..., Any]
    four: Callable[..., Any]
    join: Callable[..., Any]
    last: Callable[..., Any]
    widens: bool
    short: int


def _row(fold: _Fold) -> Callable[..., None]:
    """What writes the fold of ``n`` numbers from ``x`` on to ``out``.

    Two vectors of each of four places are taken in at a time, then vectors one by one, of which the
    last may be a part.
    """

    def build(builder, kind, n, x, out):
        size, lanes = WORD(kind.count * bytes_of(kind)), kind.count
        wide = ir.VectorType(ir.DoubleType(), lanes) if fold.widens else kind
        totals = [cgutils.alloca_once(builder, wide) for _ in range(2)]
        for total in totals:
            builder.store(ir.Constant(wide, [fold.begin] * lanes), total)
        row = Rows(builder, kind, 2, None)
        turns = builder.udiv(n, WORD(8 * lanes))
        long = builder.icmp_signed(">=", n, WORD(LONG))
        apart = builder.mul(builder.select(long, turns, WORD(1)), builder.mul(size, WORD(2)))
        step = builder.mul(size, builder.select(long, WORD(2), WORD(8)))
        with counted(builder, turns) as turn:
            first = builder.add(x, builder.mul(turn, step))
            places = [builder.add(first, builder.mul(apart, WORD(k))) for k in range(4)]
            for total, *four in zip(totals, *[row.load(place) for place in places], strict=True):
                builder.store(fold.four(builder, builder.load(total), *four), total)
        x = builder.add(x, builder.mul(turns, builder.mul(size, WORD(8))))
        n = builder.sub(n, builder.mul(turns, WORD(8 * lanes)))
        whole = builder.udiv(n, WORD(lanes))
        with counted(builder, whole) as turn:
            (value,) = Rows(builder, kind, 1, None).load(builder.add(x, builder.mul(turn, size)))
            builder.store(fold.one(builder, builder.load(totals[0]), value), totals[0])
        rest = builder.urem(n, WORD(lanes))
        with builder.if_then(builder.icmp_signed(">", rest, WORD(0))):
            part = Rows(builder, kind, 1, rest)
            (value,) = part.load(builder.add(x, builder.mul(whole, size)))
            value = builder.select(part.mask, value, ir.Constant(kind, [fold.begin] * lanes))
            builder.store(fold.one(builder, builder.load(totals[0]), value), totals[0])
        value = fold.join(builder, *map(builder.load, totals))
        value = fold.last(builder, by_halves(builder, value, fold.join))
        builder.store(value, builder.inttoptr(out, value.type.as_pointer()))

    return build


# -- sums: four numbers are added up in their own width, then in float64 ---------------------------


def _add(builder: Any, total: Any, value: Any) -> Any:
    if value.type != total.type:
        value = builder.fpext(value, total.type)
    return builder.fadd(total, value)


def _add_four(builder: Any, total: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return _add(builder, total, builder.fadd(builder.fadd(a, b), builder.fadd(c, d)))


def _number(builder: Any, value: Any) -> Any:
    """``value``, where NaN 0."""
    return builder.select(builder.fcmp_ordered("ord", value, value), value, value.type(None))


def _add_number(builder: Any, total: Any, value: Any) -> Any:
    return _add(builder, total, _number(builder, value))


def _add_four_numbers(builder: Any, total: Any, *four: Any) -> Any:
    return _add_four(builder, total, *[_number(builder, value) for value in four])


# -- products: in float64, where four may be more than float32 can hold ----------------------------


def _multiply(builder: Any, total: Any, value: Any) -> Any:
    if value.type != total.type:
        value = builder.fpext(value, total.type)
    return builder.fmul(total, value)


def _multiply_four(builder: Any, total: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    if a.type != total.type:
        a, b, c, d = [builder.fpext(value, total.type) for value in (a, b, c, d)]
    return builder.fmul(total, builder.fmul(builder.fmul(a, b), builder.fmul(c, d)))


# -- extremes: a NaN stays, of zeros any -----------------------------------------------------------


def _extreme(order: str, last: Callable[..., Any]) -> _Fold:
    def nearer(builder: Any, x: Any, y: Any) -> Any:
        return builder.select(builder.fcmp_ordered(order, x, y), x, y)  # y if one is NaN

    def found(builder: Any, values: list[Any], best: Any) -> Any:
        odd = [builder.fcmp_unordered("uno", *pair) for pair in values]
        odd = odd[0] if len(odd) == 1 else builder.or_(*odd)
        kind = best.type
        nan = float("nan")
        lanes = [nan] * kind.count if isinstance(kind, ir.VectorType) else nan
        # Not the NaN that was met: LLVM would make one choice of two, which waits for a comparison.
        return builder.select(odd, ir.Constant(kind, lanes), best)

    def take(builder: Any, total: Any, value: Any) -> Any:
        return found(builder, [(value, value)], nearer(builder, value, total))

    def take_four(builder: Any, total: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        best = nearer(builder, nearer(builder, a, b), nearer(builder, c, d))
        return found(builder, [(a, b), (c, d)], nearer(builder, best, total))

    begin = float("-inf" if order == ">" else "inf")
    return _Fold(
        begin=begin,
        one=take,
        four=take_four,
        join=take,
        last=last,
        widens=False,
        short=2 * VECTOR_BYTES,
    )


def _same(builder: Any, value: Any) -> Any:
    return value


def _negative(builder: Any, value: Any) -> Any:
    return builder.fneg(value)


_SUM = _Fold(
    begin=0.0,
    one=_add,
    four=_add_four,
    join=_add,
    last=_same,
    widens=True,
    short=8 * VECTOR_BYTES,
)

_NUMBERS = _SUM._replace(one=_add_number, four=_add_four_numbers)

_PRODUCT = _Fold(
    begin=1.0,
    one=_multiply,
    four=_multiply_four,
    join=_multiply,
    last=_same,
    widens=True,
    short=2 * VECTOR_BYTES,
)

# -- rows of arrays: of floats by these, of others by lanes ----------------------------------------


def _of_array(fold: _Fold, name: str) -> Any:
    """``by_lanes`` for compiled code, which takes floats in by ``fold``."""
    whole_row, short = in_machine_code(_row(fold), name), fold.short

    def row(x, i, end, begin, step, four, merge, p):
        return by_lanes(x, i, end, begin, step, four, merge, p)

    def in_vectors(x, i, end, begin, step, four, merge, p):
        if end - i >= short // max(itemsize(x), 4):  # halves as the float32 that they become
            total = stack(1, begin(x))
            whole_row(x, end - i, address(x) + i * itemsize(x), start(total))
            return total[0]
        acc = begin(x)
        for j in range(i, end):
            acc = step(acc, load(x, j), p)
        return acc

    def choose(x, i, end, begin, step, four, merge, p):
        vectors = VECTOR_BYTES > 0 and computed(x.dtype) in (types.float32, types.float64)
        return in_vectors if vectors else row

    overload(row, strict=False, jit_options=OPTIONS | {"forceinline": True})(choose)

    def of_row(x, i, end, begin, step, four, merge, p):
        return row(x, i, end, begin, step, four, merge, p)

    of_row.__doc__ = f"``by_lanes``, of floats by ``{name}``."
    return inlined(of_row)


sum_row = _of_array(_SUM, "sum_of_row")
number_row = _of_array(_NUMBERS, "sum_of_numbers_of_row")
product_row = _of_array(_PRODUCT, "product_of_row")
most_row = _of_array(_extreme(">", _same), "most_of_row")
least_row = _of_array(_extreme("<", _negative), "least_of_row")  # negated, as ``lowered`` has it
