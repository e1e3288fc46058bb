"""``pad``: more elements at the edges of the last dimensions. Exported as ``nn.functional.pad``."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .base import Op, as_operand, copy_kernel, full
from .join import cat
from .part import narrow
from .shape import flip

__all__ = ["pad"]


class Pad(Op):
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


def _reflect(x: Tensor, d: int, n: int, before: int, after: int) -> list[Tensor]:
    """x without its edge, turned round, on both sides."""
    return [flip(narrow(x, d, 1, before), d), x, flip(narrow(x, d, n - 1 - after, after), d)]


def _replicate(x: Tensor, d: int, n: int, before: int, after: int) -> list[Tensor]:
    """The edges again and again."""
    return [*[narrow(x, d, 0, 1)] * before, x, *[narrow(x, d, n - 1, 1)] * after]


def _circular(x: Tensor, d: int, n: int, before: int, after: int) -> list[Tensor]:
    """The other end of x on each side."""
    return [narrow(x, d, n - before, before), x, narrow(x, d, 0, after)]


EDGES: dict[str, tuple[Callable[..., list[Tensor]], int]] = {
    "reflect": (_reflect, 1),
    "replicate": (_replicate, 0),
    "circular": (_circular, 0),
}
"""What stands at the edges, and how much smaller than the dimension the padding must be."""


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
        return _constant(input, widths, 0 if value is None else value)
    if mode not in EDGES:
        raise ValueError(
            f"pad: Unrecognised padding mode {mode}; use 'constant', {', '.join(map(repr, EDGES))}."
        )
    if value is not None:
        raise ValueError(f"pad: Padding mode {mode!r} doesn't take in value argument.")
    if not 1 <= len(numbers) // 2 <= builtins.min(3, len(shape) - 1):
        raise ShapeError(
            f"pad: Only the last one to three of at least two dimensions can be padded with mode "
            f"{mode!r}; got padding {numbers} of an input of {len(shape)} dimensions."
        )
    return _by_edges(input, widths, mode)


def _by_edges(x: Tensor, widths: list[tuple[int, int]], mode: str) -> Tensor:
    pieces, smaller = EDGES[mode]
    cuts = [(builtins.min(before, 0), builtins.min(after, 0)) for before, after in widths]
    if mode == "circular":  # what is cut off does not come back at the other end
        x = _constant(x, cuts, 0)
    for d, (before, after) in enumerate(widths):
        n = x._array.shape[d]
        if mode != "replicate" and builtins.max(before, after, 0) > builtins.max(n - smaller, 0):
            raise ShapeError(
                f"pad: Padding size should be less than the corresponding input dimension with "
                f"mode {mode!r}, but got padding ({before}, {after}) at dimension {d} of size {n}."
            )
        before, after = builtins.max(before, 0), builtins.max(after, 0)
        if before or after:
            x = cat(pieces(x, d, n, before, after), d)
    return x if mode == "circular" else _constant(x, cuts, 0)
