"""How a loop goes over arrays of any strides: what is gathered, how much at a time, in which order.

``walk.py`` runs the plans that are made here. Start reading at ``layout``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from operator import eq

from .strides import common_order

__all__ = ["WORTH", "by_value", "layout"]

LONGEST = 8192
"""Elements of a call where nothing is gathered: less than the flat form's limit."""
ROOM = 4 * 1024
"""Words of eight bytes for all that is gathered together: they lie on the stack, of which a thread
may have only 128 KB."""
AFTER = 8
"""Words after each array that is gathered, which may be written."""
TILE = 1024
"""Elements gathered at a time."""
SHORT, SHORT_APART = 31, 64
"""Inner dimensions up to these are gathered several together, the second where something must be
gathered anyway: a call costs 15 ns."""
MIDDLE = 256
"""The same where what is gathered once serves for all, as a bias does."""
WORTH = 1 << 15
"""Elements from which a float that stands for a whole row enters the formula as a number: to fill
a tile with it costs up to half of the call, and the formula is compiled for a number."""
HEIGHT, WIDTH = 16, 64
"""Most rows and columns of a block of an array that is stored by columns: a tile. A line of memory
is so read once, where a row of 1024 would read as many of them, and each 16 times over."""
UNIT = 64
"""Elements that threads share out together."""
DIRECT, EACH, ONCE, NUMBER, TURNED = range(5)
"""What is done of an array: nothing, gather each piece, gather the first piece, read a number,
gather a block of as many rows as the next dimension has."""

LINE = 512
"""Bytes of the longest rows that are copied several together: a call for one costs 15 ns."""
MOVED, LINES = 1, 2
"""How a copy is made without the formula: of what would be gathered; of short rows."""

# Places in a plan: a head, the sizes of the outer dimensions, and of each array a record, with its
# steps along those dimensions at the end.
ADDRESS, OPERANDS, INNER, DIMS, ARRAYS, OUTPUTS, ROWS, PIECE = range(8)
TOTAL, PERIOD, UNITS, PLAIN, COPIES, HEAD = range(8, 14)
SLOT, SIZE, STEP, MODE, OFFSET, RECORD = range(6)


def _merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[list[int]]:
    """The loop nest over ``shape``: of each dimension its size and each array's step, innermost
    last: those along which the first array has its smallest steps. Neighbours that every array
    walks as one are one."""
    dims: list[list[int]] = []
    lengths = tuple([tuple(map(abs, steps)) for steps in strides])
    for d in common_order(tuple(shape), lengths) or range(len(shape)):
        size = shape[d]
        if size == 1:
            continue
        steps = [s[d] for s in strides]
        if dims and all(o == s * size for o, s in zip(dims[-1][1:], steps, strict=True)):
            dims[-1] = [dims[-1][0] * size, *steps]
        else:
            dims.append([size, *steps])
    return dims or [[1] + [0] * len(strides)]


@functools.lru_cache(maxsize=4096)
def layout(
    shape: tuple[int, ...],
    strides: tuple[tuple[int, ...], ...],
    sizes: tuple[int, ...],
    slots: tuple[int, ...],
    outputs: int,
    operands: int,
    floats: frozenset[int] = frozenset(),
    copying: bool = False,
) -> tuple[int, ...]:
    """The words of a plan by which ``walk.py`` goes over arrays, the first of which are outputs.

    strides: per array, in bytes, 0 where it is broadcast; sizes: bytes of an element; slots: the
    place of each array among so many operands; floats: slots of floats that may enter as numbers;
    copying: whether the formula is to copy the second array, of the first one's dtype.
    """
    dims = _merged(shape, strides)
    numbers = [slot in floats for slot in slots]
    tile, modes, rows, period = _modes(dims, sizes, outputs, numbers)
    unit = rows * dims[-1][0] or UNIT
    if tile == TILE and not rows and EACH in modes[outputs:] and dims[-1][0] > WIDTH:
        blocks = _in_blocks(dims, sizes, outputs)
        if blocks is not dims:
            dims, unit = blocks, blocks[-1][0] * blocks[-2][0]
            tile, modes, rows, period = _modes(dims, sizes, outputs, numbers, False)
            for k in range(outputs, len(sizes)):
                if modes[k] == EACH and dims[-2][1 + k] == sizes[k]:
                    modes[k] = TURNED
    *outer, (n, *steps) = dims
    outer.reverse()
    total = math.prod([d[0] for d in dims])
    piece = tile if EACH in modes or ONCE in modes else LONGEST
    words = [0, operands, n, len(outer), len(sizes), outputs, rows, piece, total, period, unit]
    plain = bool(outer) and n <= piece and not {*modes} - {DIRECT, NUMBER}
    copies = 0
    # What lies apart is gathered sooner in a memory that is near, and copied by vectors; a number
    # that stands for a row would be written behind the row.
    straight = abs(steps[-1]) == sizes[-1] or (modes[0] != DIRECT and steps[-1] != 0)
    if copying and modes[1] == EACH and straight:
        copies = MOVED
    elif copying and plain and DIRECT == modes[1] and n * sizes[1] <= LINE:
        copies = LINES
    words += [plain, copies, *[d[0] for d in outer]]
    room = 0
    for k, size in enumerate(sizes):
        words += [slots[k], size, steps[k], modes[k], room, *[d[1 + k] for d in outer]]
        if modes[k] in (EACH, ONCE, TURNED):
            room += 8 * (tile + AFTER)
    return (*words, 0)  # where there are no outer dimensions, a step is read and not used


def _modes(
    dims: Sequence[Sequence[int]],
    sizes: Sequence[int],
    outputs: int,
    numbers: Sequence[bool],
    several: bool = True,
) -> tuple[int, list[int], int, int]:
    """Elements that are gathered at a time, what is done of each array, how many rows are gathered
    together, 0 where a row is cut into pieces, and after how many rows all that is gathered repeats
    itself, 0 where something does not. several: whether rows may be gathered together."""
    n, *steps = dims[-1]
    dense, periods = [], []  # whether rows follow on one another; after how many rows they repeat
    for k, size in enumerate(sizes):
        step, lies, rows, period = n * size, steps[k] == size, 1, 1
        for d in reversed(dims[:-1]):
            lies = lies and d[1 + k] == step
            step *= d[0]
            rows *= d[0]
            period = rows if d[1 + k] else period
        dense.append(lies)
        periods.append(1 if lies else period)
    several = several and len(dims) > 1
    gathered = dense.count(False) if several else len(sizes) - list(map(eq, steps, sizes)).count(1)
    tile = min(TILE, ROOM // max(gathered, 1) - AFTER) // 8 * 8
    together = math.lcm(*periods)
    if several and together * n <= tile and n <= MIDDLE and all(dense[:outputs]):
        once = [DIRECT if lies else ONCE for lies in dense]
        return tile, once, tile // n // together * together, together
    plain = all([s == z or (s == 0 and q) for s, z, q in zip(steps, sizes, numbers, strict=True)])
    if several and n <= (SHORT if plain else SHORT_APART):
        modes = [
            DIRECT if lies else ONCE if p == 1 and k >= outputs else EACH
            for k, (lies, p) in enumerate(zip(dense, periods, strict=True))
        ]
        return tile, modes, tile // n, 0
    modes = []
    for step, size, period, number in zip(steps, sizes, periods, numbers, strict=True):
        if step == size or step:
            modes.append(DIRECT if step == size else EACH)
        else:
            modes.append(NUMBER if number else ONCE if period == 1 else EACH)
    return tile, modes, 0, 0


def _in_blocks(dims: list[list[int]], sizes: Sequence[int], outputs: int) -> list[list[int]]:
    """``dims`` with two of them cut into blocks that are turned in the cache, where an input is
    stored along another dimension than the innermost; else as they are."""
    *outer, inner = dims
    for k in range(outputs, len(sizes)):
        along = [d for d, (_, *steps) in enumerate(outer) if steps[k] == sizes[k]]
        if not along or inner[1 + k] in (0, sizes[k]):
            continue
        across = outer.pop(along[0])
        height, width = _divisor(across[0], HEIGHT), _divisor(inner[0], WIDTH)
        if height < 4 or width < 8:
            return dims
        blocks = [
            [n // m, *[s * m for s in steps]]
            for (n, *steps), m in ((inner, width), (across, height))
        ]
        return [*outer, *blocks, [height, *across[1:]], [width, *inner[1:]]]
    return dims


def _divisor(number: int, most: int) -> int:
    """The greatest divisor up to ``most``."""
    return next(d for d in range(most, 0, -1) if number % d == 0)


def by_value(words: Sequence[int]) -> tuple[int, ...]:
    """The slots of what enters as a number."""
    width, first = RECORD + words[DIMS], HEAD + words[DIMS]
    records = [words[first + k * width :] for k in range(words[ARRAYS])]
    return tuple([r[SLOT] for r in records if r[MODE] == NUMBER])
