"""Max pooling over windows at random places (Graham, 2014); exported by ``nn.functional``.

The windows of a channel are ``kernel_size`` large; their starts along a dimension lie apart by one
of two distances, in an order that one random number decides. Start reading at ``_pooled``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..tensor import Tensor
from .base import as_operand
from .create import arange
from .elementwise import cast, floor
from .gather import gather
from .random import rand

__all__ = [
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
]


def _sizes(name: str, what: str, value: Any, rank: int) -> tuple[Any, ...]:
    found = tuple(value) if isinstance(value, Sequence) else (value,) * rank
    if len(found) != rank:
        raise ValueError(f"{name}: {what} must be a number or {rank} of them, got {value!r}.")
    return found


def _starts(sample: Tensor, size: int, out: int, window: int) -> Tensor:
    """Where the windows of one dimension begin: (..., out) int64, for random numbers (...)."""
    if out == 1:
        return sample.unsqueeze(-1).long() * 0 + (size - window)
    apart = (size - window) / (out - 1)
    sample = sample.unsqueeze(-1)
    steps = arange(out, dtype=sample.dtype, device=sample.device)
    found = cast(floor((steps + sample) * apart) - floor(sample * apart), dtypes.int64)
    return found.where(steps < out - 1, size - window)


def _pooled(
    rank: int,
    input: Tensor,
    kernel_size: Any,
    output_size: Any,
    output_ratio: Any,
    samples: Tensor | None,
) -> tuple[Tensor, Tensor]:
    name = f"fractional_max_pool{rank}d"
    shape = as_operand(name, input)._array.shape
    if len(shape) not in (rank + 1, rank + 2) or 0 in shape[-rank - 1 :]:
        raise ShapeError(
            f"{name}: Expected {rank + 1}D or {rank + 2}D input without empty dimensions, but got "
            f"{list(shape)}."
        )
    if not input._dtype.is_floating_point:
        raise DTypeError(f"{name}: expected floating input, got {input._dtype}. Use x.float().")
    sizes, windows = shape[-rank:], _sizes(name, "kernel_size", kernel_size, rank)
    if (output_size is None) == (output_ratio is None):
        raise ValueError(
            f"{name}: requires specifying either an output_size or an output_ratio, not both."
        )
    if output_size is None:
        ratios = _sizes(name, "output_ratio", output_ratio, rank)
        output_size = [int(n * ratio) for n, ratio in zip(sizes, ratios, strict=True)]
    outs = _sizes(name, "output_size", output_size, rank)
    for n, out, window in zip(sizes, outs, windows, strict=True):
        if out < 1 or window < 1 or out + window - 1 > n:
            raise ShapeError(
                f"{name}: pool size {window} and output size {out} are too large relative to the "
                f"input size {n}: they must be positive and output + pool - 1 at most the input."
            )
    x = input if len(shape) == rank + 2 else input.unsqueeze(0)
    lead = x._array.shape[:2]
    if samples is None:
        samples = rand(*lead, rank, dtype=input._dtype, device=input._device)
    elif samples._array.shape != (*lead, rank):
        raise ShapeError(
            f"{name}: _random_samples must be {[*lead, rank]}, got {list(samples.shape)}."
        )
    places: Any = 0
    for d, (n, out, window) in enumerate(zip(sizes, outs, windows, strict=True)):
        # PyTorch gives the first number to the last of two dimensions, and to the first of three.
        sample = samples[..., d if rank == 3 else rank - 1 - d]
        along = _starts(sample, n, out, window).unsqueeze(-1)
        along = along + arange(window, device=x._device)
        spread = [1] * (2 * rank)
        spread[d], spread[rank + d] = out, window
        places = places * n + along.reshape(*lead, *spread)
    flat = places.reshape(*lead, math.prod(outs) * math.prod(windows))
    values = gather(x.reshape(*lead, math.prod(sizes)), 2, flat)
    best = values.reshape(*lead, *outs, -1).max(-1)
    at = gather(flat.reshape(*lead, *outs, -1), -1, best.indices.unsqueeze(-1)).squeeze(-1)
    if len(shape) == rank + 2:
        return best.values, at
    return best.values.squeeze(0), at.squeeze(0)


def _of(rank: int, always: bool) -> Callable[..., Any]:
    def pool(
        input: Tensor,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> Any:
        found = _pooled(rank, input, kernel_size, output_size, output_ratio, _random_samples)
        return found if always or return_indices else found[0]

    pool.__name__ = pool.__qualname__ = f"fractional_max_pool{rank}d" + "_with_indices" * always
    axes = "h, w" if rank == 2 else "d, h, w"
    pool.__doc__ = f"""The largest numbers of windows at random places.

    input (n, c, {axes}) or (c, {axes}), floating. kernel_size: of the windows, which may
    overlap. output_size: how many there are; or output_ratio, in (0, 1): how many of the
    input's size. _random_samples (n, c, {rank}): numbers in [0, 1) instead of random ones.
    Returns {"" if always else "the values, or with return_indices "}values and their places in each
    channel (int64). Gradient: to the largest numbers; any order.
    Raises ShapeError for sizes that do not fit, ValueError unless the size or the ratio is given.
    """
    return pool


fractional_max_pool2d = _of(2, False)
fractional_max_pool3d = _of(3, False)
fractional_max_pool2d_with_indices = _of(2, True)
fractional_max_pool3d_with_indices = _of(3, True)
