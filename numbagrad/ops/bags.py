"""Bags of rows of a table: each one's sum, mean or largest numbers, as one op."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ShapeError
from ..kernels import machine
from ..kernels.cpu import bags as kernels
from ..tensor import Tensor
from .base import Op, as_operand, constant, contiguous, full, new_empty
from .elementwise import cast, where
from .gather import scatter_add
from .index import INTS, index_add, index_tensor, launch_checked
from .remembered import remembered
from .tables import entries, out_of_range

__all__ = ["embedding_bag"]


@remembered
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The rows of ``weight`` (v, d) at each bag of indices, summed up: (bags, d).

    input: (bags, n) integers; or (n), cut into bags that start at ``offsets`` (bags), which ends
    with n if include_last_offset. mode: "sum", "mean" or "max"; of an empty bag zeros.
    per_sample_weights: factors of the rows for "sum", shaped as input. Rows at padding_idx do not
    count. Gradient of "max": to the first of the largest. max_norm, norm_type, scale_grad_by_freq
    (not for "max") and sparse as in ``embedding``.

    >>> embedding_bag(tensor([[0, 1]]), tensor([[1.0], [3.0]])).tolist()
    [[2.0]]
    """
    if scale_grad_by_freq and mode == "max":
        raise ValueError(
            "embedding_bag: max mode does not support scaling the gradient by frequency."
        )
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"embedding_bag: mode has to be one of sum, mean or max, got {mode!r}.")
    index = index_tensor("embedding_bag", input, INTS)
    shape = index._array.shape
    if len(shape) not in (1, 2):
        raise ShapeError(
            f"embedding_bag: input has to be 1D or 2D Tensor, but got Tensor of dimension "
            f"{len(shape)}."
        )
    if (len(shape) == 1) == (offsets is None):
        raise ShapeError(
            f"embedding_bag: offsets is for 1-D input, where it has to be a 1-D Tensor; got input "
            f"of {len(shape)} dimensions and offsets {offsets}."
        )
    factors = per_sample_weights
    if factors is not None:
        if mode != "sum" or as_operand("embedding_bag", factors, 9)._array.shape != shape:
            raise ShapeError(
                f"embedding_bag: per_sample_weights is for mode 'sum' and must have the same shape "
                f"as the input {list(shape)}; got mode {mode!r} and {factors}."
            )
        factors = cast(factors, weight._dtype).reshape((-1,))
    index, padding = entries(
        "embedding_bag", index, weight, padding_idx, max_norm, norm_type, sparse
    )
    starts, bags = _starts(offsets, include_last_offset, index)
    index = index.reshape((-1,))
    if mode == "max":
        return LargestOfBags.apply(weight, index, starts, bags, padding)[0]
    how = bags, padding, mode == "mean", scale_grad_by_freq
    return Bags.apply(weight, factors, index, starts, *how)


def _starts(offsets: Any, include_last: bool, index: Tensor) -> tuple[Tensor, int]:
    """Where bags start, nothing where all are of one size; and how many there are."""
    if offsets is None:
        return constant(np.empty(0, np.int64), dtypes.int64, index), index._array.shape[0]
    starts = index_tensor("embedding_bag", as_operand("embedding_bag", offsets, 2), INTS)
    if starts._array.ndim != 1:
        raise ShapeError(
            f"embedding_bag: offsets has to be a 1D Tensor, got {list(starts._array.shape)}."
        )
    count = starts._array.shape[0]
    if include_last and not count:
        raise ShapeError("embedding_bag: include_last_offset: 'offsets' should be at least 1-long.")
    return starts, count - 1 if include_last else count


def _launch(kernel: Any, out: Tensor, index: Tensor, starts: Tensor, v: int, *args: Any) -> None:
    """Launch a kernel of bags, which looks at ``index`` and ``starts`` before it reads."""
    at, begins = index._array, starts._array

    def misplaced(position: int) -> Exception | None:
        """What is wrong with the starts, if the index is right."""
        if position < at.shape[0]:
            return None
        if machine.is_traced(begins):
            return ShapeError(f"embedding_bag: offsets have to increase from 0 to {at.shape[0]}.")
        return ShapeError(_of_starts(begins.tolist(), at.shape[0]))

    with out_of_range("embedding_bag"):
        launch_checked(
            *("embedding_bag", kernel, out._array, *args), where=(at, 0, v), other=misplaced
        )


def _of_starts(starts: list[int], count: int) -> str:
    if starts[0]:
        return (
            f"embedding_bag: offsets[0] has to be 0: the first sequence in the mini-batch has "
            f"to start from position 0. However, got {starts[0]}."
        )
    return (
        f"embedding_bag: offsets have to increase and must not be greater than input's length "
        f"{count}, got {starts}."
    )


def _factors(factors: Tensor | None, beside: Tensor) -> Any:
    if factors is None:
        return constant(np.empty(0, beside._dtype.numpy), beside._dtype, beside)._array
    return contiguous(factors)._array


class Bags(Op, remembers=True):
    """Sums of rows of a table, times factors, or their means."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        factors: Tensor | None,
        index: Tensor,
        starts: Tensor,
        bags: int,
        padding: int,
        mean: bool,
        by_frequency: bool,
    ) -> Tensor:
        ctx.save(weight if ctx._needs[1] else None, factors, index, starts)
        ctx.how, ctx.by_frequency = (bags, padding, mean), by_frequency
        ctx.v = v = weight._array.shape[0]
        out = new_empty((bags, weight._array.shape[1]), weight._dtype, weight._device)
        given = contiguous(weight)._array, index._array, starts._array, _factors(factors, weight)
        _launch(kernels.sum_bags, out, index, starts, v, *given, padding, mean)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        weight, factors, index, starts = ctx.saved_tensors
        gweight = gfactors = None
        if ctx._needs[0]:
            gweight = BagsGrad.apply(g, factors, index, starts, ctx.v, *ctx.how)
            if ctx.by_frequency:
                found = full((ctx.v,), 0, g._dtype, g._device)
                once = full(index._array.shape, 1, g._dtype, g._device)
                counts = index_add(found, 0, index, once)
                gweight = gweight / counts.clamp(min=1).unsqueeze(-1)
        if ctx._needs[1]:
            gfactors = BagDots.apply(g, weight, index, starts, *ctx.how[:2])
        return gweight, gfactors


class BagsGrad(Op, remembers=True):
    """Zeros (v, d) to which each row of ``g`` is added where ``Bags`` read for it."""

    @staticmethod
    def forward(
        ctx: Any,
        g: Tensor,
        factors: Tensor | None,
        index: Tensor,
        starts: Tensor,
        v: int,
        bags: int,
        padding: int,
        mean: bool,
    ) -> Tensor:
        ctx.save(g if ctx._needs[1] else None, factors, index, starts)
        ctx.how = (bags, padding, mean)
        out = full((v, g._array.shape[1]), 0, g._dtype, g._device)
        given = contiguous(g)._array, index._array, starts._array, _factors(factors, g)
        _launch(kernels.add_bags, out, index, starts, v, *given, padding, mean)
        return out

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple:
        g, factors, index, starts = ctx.saved_tensors
        gg = gfactors = None
        if ctx._needs[0]:
            gg = Bags.apply(h, factors, index, starts, *ctx.how, False)
        if ctx._needs[1]:
            gfactors = BagDots.apply(g, h, index, starts, *ctx.how[:2])
        return gg, gfactors


class BagDots(Op, remembers=True):
    """The gradients of factors: products of rows of ``g`` and of the table."""

    @staticmethod
    def forward(
        ctx: Any, g: Tensor, weight: Tensor, index: Tensor, starts: Tensor, bags: int, padding: int
    ) -> Tensor:
        ctx.save(g if ctx._needs[1] else None, weight if ctx._needs[0] else None, index, starts)
        ctx.how = (bags, padding, False)
        ctx.v = v = weight._array.shape[0]
        out = full(index._array.shape, 0, g._dtype, g._device)  # there may be no bag
        given = contiguous(g)._array, contiguous(weight)._array, index._array, starts._array
        _launch(kernels.bag_dots, out, index, starts, v, *given, padding)
        return out

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple:
        g, weight, index, starts = ctx.saved_tensors
        gg = gweight = None
        if ctx._needs[0]:
            gg = Bags.apply(weight, h, index, starts, *ctx.how, False)
        if ctx._needs[1]:
            gweight = BagsGrad.apply(g, h, index, starts, ctx.v, *ctx.how)
        return gg, gweight


class LargestOfBags(Op, remembers=True):
    """The largest number in each column of a bag's rows, and the row it is from, or -1."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, index: Tensor, starts: Tensor, bags: int, padding: int
    ) -> tuple:
        ctx.v = v = weight._array.shape[0]
        shape = bags, weight._array.shape[1]
        out = new_empty(shape, weight._dtype, weight._device)
        rows = new_empty(shape, dtypes.int64, weight._device)
        given = rows._array, contiguous(weight)._array, index._array, starts._array
        _launch(kernels.largest_of_bags, out, index, starts, v, *given, padding)
        ctx.save(rows)
        return out, rows

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Tensor:
        (rows,) = ctx.saved_tensors
        found = where(rows.ge(0), g, 0.0)
        nothing = full((ctx.v, g._array.shape[1]), 0, g._dtype, g._device)
        return scatter_add(nothing, 0, rows.clamp(min=0), found) if ctx.v else nothing
