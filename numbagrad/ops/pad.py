"""``pad``: more elements at the edges of the last dimensions. Exported as ``nn.functional.pad``."""

from __future__ import annotations

import builtins
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .base import Op, as_operand, copy_kernel, full, new_empty
from .formulas import Add
from .operand import number_of
from .part import narrow
from .remembered import remembered

__all__ = ["pad"]

_ALL = builtins.slice(None)


class Pad(Op, remembers=True):
    """``x`` amid a constant; gradient: the middle of g."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, before: tuple, after: tuple, value: Any) -> Tensor:
        ctx.before, ctx.sizes = before, tuple(x._array.shape)
        shape = [b + n + a for b, n, a in zip(before, ctx.sizes, after, strict=True)]
        out = full(shape, value, x._dtype, x._device)
        region = [builtins.slice(b, b + n) for b, n in zip(before, ctx.sizes, strict=True)]
        machine.launch(copy_kernel, out._array[tuple(region)], x._array)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        for d, (b, n) in enumerate(zip(ctx.before, ctx.sizes, strict=True)):
            if n != g._array.shape[d]:
                g = narrow(g, d, b, n)
        return g


def _constant(x: Tensor, widths: list[tuple[int, int]], value: Any) -> Tensor:
    """``x`` with ``(before, after)`` more elements in each dimension; fewer where negative."""
    for d, (before, after) in enumerate(widths):
        if before < 0 or after < 0:
            left, right = builtins.max(-before, 0), builtins.max(-after, 0)
            x = narrow(x, d, left, x._array.shape[d] - left - right)
    lows = tuple(builtins.max(b, 0) for b, _ in widths)
    highs = tuple(builtins.max(a, 0) for _, a in widths)
    return Pad.apply(x, lows, highs, value) if any(lows + highs) else x.clone()


Strips = list[tuple[builtins.slice, builtins.slice]]


def _backwards(first: int, last: int) -> builtins.slice:
    """The places from ``first`` down to ``last``."""
    return builtins.slice(first, last - 1 if last else None, -1)


def _reflect(n: int, before: int, after: int) -> Strips:
    """The input without its edge, turned round, on both sides."""
    end = before + n
    return [
        (builtins.slice(0, before), _backwards(2 * before, before + 1)),
        (builtins.slice(end, end + after), _backwards(end - 2, end - 1 - after)),
    ]


def _replicate(n: int, before: int, after: int) -> Strips:
    """The edges again and again."""
    first, last = (builtins.slice(i, i + 1) for i in (before, before + n - 1))
    places = [*range(before), *range(before + n, before + n + after)]
    return [(builtins.slice(i, i + 1), first if i < before else last) for i in places]


def _circular(n: int, before: int, after: int) -> Strips:
    """The other end of the input on each side."""
    end = before + n
    return [
        (builtins.slice(0, before), builtins.slice(n, end)),
        (builtins.slice(end, end + after), builtins.slice(before, before + after)),
    ]


EDGES: dict[str, tuple[Callable[[int, int, int], Strips], int]] = {
    "reflect": (_reflect, 1),
    "replicate": (_replicate, 0),
    "circular": (_circular, 0),
}
"""What stands at the edges of a dimension of n: which places of the result are which others; and
how much smaller than the dimension the padding must be."""


@dataclass(frozen=True)
class Border:
    """How a dimension of ``n`` is padded."""

    n: int
    before: int
    after: int
    mode: str

    @functools.cached_property
    def middle(self) -> builtins.slice:
        """Where in the result the input is."""
        return builtins.slice(self.before, self.before + self.n)

    @functools.cached_property
    def strips(self) -> Strips:
        """What of the result is what other part of it, inside ``middle``; none is empty."""
        found = EDGES[self.mode][0](self.n, self.before, self.after)
        return [pair for pair in found if pair[0].stop > pair[0].start]

    @functools.cached_property
    def origins(self) -> Strips:
        """``strips``, the others counted from the beginning of the input."""
        return [(strip, self._moved(other)) for strip, other in self.strips]

    def _moved(self, part: builtins.slice) -> builtins.slice:
        stop = -1 if part.stop is None else part.stop
        stop -= self.before
        return builtins.slice(part.start - self.before, None if stop < 0 else stop, part.step)


class PadEdges(Op, remembers=True):
    """``x`` amid what its edges are."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, borders: tuple[Border, ...]) -> Tensor:
        ctx.borders = borders
        shape = [b.before + b.n + b.after for b in borders]
        out = new_empty(shape, x._dtype, x._device)
        array, middle = out._array, tuple([b.middle for b in borders])
        machine.launch(copy_kernel, array[middle], x._array)
        for d in reversed(range(len(borders))):  # what comes after d is padded already
            for strip, other in borders[d].strips:
                machine.launch(
                    copy_kernel, array[(*middle[:d], strip)], array[(*middle[:d], other)]
                )
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return PadEdgesGrad.apply(g, ctx.borders)


class PadEdgesGrad(Op, remembers=True):
    """The middle of g, plus at its edges what they were copied to."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, borders: tuple[Border, ...]) -> Tensor:
        ctx.borders = borders
        gx = new_empty([b.n for b in borders], g._dtype, g._device)
        every = [[(b.middle, _ALL), *b.origins] for b in borders]
        for k, parts in enumerate(itertools.product(*every)):
            source = g._array[tuple([part for part, _ in parts])]
            target = gx._array[tuple([to for _, to in parts])]
            if k:
                machine.launch(Add.op.kernel, target, target, source)
            else:
                machine.launch(copy_kernel, target, source)
        return gx

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> Tensor:
        return PadEdges.apply(h, ctx.borders)


@remembered
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: Any = None) -> Tensor:
    """``input`` with more elements at the edges of its last dimensions.

    pad: ``(before, after)`` of the last dimension, then of the one before it, and so on; negative
    ones cut off: with mode "circular" before the rest is padded, else after it. mode: "constant"
    (``value``, by default 0), or "reflect" (around the edge, which is not repeated), "replicate",
    "circular" of the last one to three of at least two dimensions.
    Gradient: g where it stands; what was copied adds up. Raises ShapeError where pad does not fit.

    >>> pad(tensor([1, 2]), (1, 2)).tolist()
    [0, 1, 2, 0, 0]
    >>> pad(tensor([[1, 2, 3]]), (2, 0), mode="reflect").tolist()
    [[3, 2, 1, 2, 3]]
    """
    shape = as_operand("pad", input)._array.shape
    numbers = [int(n) for n in pad]
    if len(numbers) % 2:
        raise ShapeError(f"pad: Padding length must be divisible by 2, got {numbers}.")
    if len(numbers) > 2 * len(shape):
        raise ShapeError(
            f"pad: Padding length should be less than or equal to two times the input dimension "
            f"but got padding length {len(numbers)} and input of dimension {len(shape)}."
        )
    widths = [(0, 0)] * len(shape)
    for k in range(len(numbers) // 2):
        widths[-1 - k] = (numbers[2 * k], numbers[2 * k + 1])
    for d, (n, (before, after)) in enumerate(zip(shape, widths, strict=True)):
        if n + before + after < 0 or -before > n or -after > n:
            raise ShapeError(
                f"pad: The input size {n}, plus negative padding {before} and {after} resulted in "
                f"a negative output size in dimension {d}."
            )
    if mode == "constant":
        value = 0 if value is None else number_of("pad", value, input._dtype)
        return _constant(input, widths, value)
    if mode not in EDGES:
        raise ValueError(
            f"pad: Unrecognised padding mode {mode}; use 'constant', {', '.join(map(repr, EDGES))}."
        )
    if value is not None and value != 0:
        raise ValueError(f"pad: Padding mode {mode!r} doesn't take in value argument.")
    if not 1 <= len(numbers) // 2 <= builtins.min(3, len(shape) - 1):
        raise ShapeError(
            f"pad: Only the last one to three of at least two dimensions can be padded with mode "
            f"{mode!r}; got padding {numbers} of an input of {len(shape)} dimensions."
        )
    return _by_edges(input, widths, mode)


def _by_edges(x: Tensor, widths: list[tuple[int, int]], mode: str) -> Tensor:
    smaller = EDGES[mode][1]
    cuts = [(builtins.min(before, 0), builtins.min(after, 0)) for before, after in widths]
    cut = any(before or after for before, after in cuts)
    if mode == "circular" and cut:  # what is cut off does not come back at the other end
        x, cut, cuts = _constant(x, cuts, 0), False, [(0, 0)] * len(cuts)
    borders = []
    for d, (n, (before, after)) in enumerate(zip(x._array.shape, widths, strict=True)):
        if not n and builtins.max(before, after) > 0:
            raise ShapeError(
                f"pad: mode {mode!r} expected dimensions of non-zero size where it pads, but got "
                f"padding ({before}, {after}) at dimension {d} of size 0."
            )
        if mode != "replicate" and builtins.max(before, after, 0) > builtins.max(n - smaller, 0):
            raise ShapeError(
                f"pad: Padding size should be less than the corresponding input dimension with "
                f"mode {mode!r}, but got padding ({before}, {after}) at dimension {d} of size {n}."
            )
        borders.append(Border(n, builtins.max(before, 0), builtins.max(after, 0), mode))
    rounds = _rounds(borders)
    for together in rounds:
        x = PadEdges.apply(x, together)
    return _constant(x, cuts, 0) if cut or not rounds else x


def _rounds(borders: list[Border]) -> list[tuple[Border, ...]]:
    """``borders``, together where a gradient has few parts then, else one dimension at a time."""
    many = math.prod([1 + len(b.strips) for b in borders])
    if many <= MOST_PARTS:
        return [tuple(borders)] if many > 1 else []
    rounds, whole = [], [Border(b.n, 0, 0, b.mode) for b in borders]
    for d, border in enumerate(borders):
        if border.strips:
            rounds.append((*whole[:d], border, *whole[d + 1 :]))
        whole[d] = Border(border.n + border.before + border.after, 0, 0, border.mode)
    return rounds


MOST_PARTS = 64
"""Most parts of a gradient that are added one by one: with more, to write it twice is faster."""
