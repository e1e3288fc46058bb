"""Rows of tables beyond ``embedding``: sums, means or maxima of groups, and limits of length."""

from __future__ import annotations

from typing import Any

from ..autograd.modes import no_grad
from ..errors import ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .base import as_operand, full
from .brackets import setitem
from .create import arange
from .elementwise import cast, where
from .index import _INTS, embedding, index_add, index_tensor
from .moments import norm
from .search import searchsorted

__all__ = ["embedding_bag"]


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
    with n if include_last_offset. mode: "sum", "mean", or for two-dimensional input "max"; of an
    empty bag zeros. per_sample_weights: factors of the rows for "sum", shaped as input. Rows at
    padding_idx do not count. max_norm, scale_grad_by_freq and sparse are not supported.

    >>> embedding_bag(tensor([[0, 1]]), tensor([[1.0], [3.0]])).tolist()
    [[2.0]]
    """
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise ValueError(
            "embedding_bag: max_norm, scale_grad_by_freq and sparse are not supported. Scale the "
            "weight, or the gradient in a hook."
        )
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"embedding_bag: mode has to be one of sum, mean or max, got {mode!r}.")
    index = index_tensor("embedding_bag", input, _INTS)
    if index._array.ndim not in (1, 2):
        raise ShapeError(
            f"embedding_bag: input has to be 1D or 2D Tensor, but got Tensor of dimension "
            f"{index._array.ndim}."
        )
    if (index._array.ndim == 1) == (offsets is None):
        raise ShapeError(
            f"embedding_bag: offsets is for 1-D input, where it has to be a 1-D Tensor; got input "
            f"of {index._array.ndim} dimensions and offsets {offsets}."
        )
    rows = embedding(index, weight, padding_idx)
    counted = full(index._array.shape, 1, weight._dtype, weight._device)
    if padding_idx is not None:
        counted = cast(index.ne(padding_idx % weight._array.shape[0]), weight._dtype)
        rows = rows * counted.unsqueeze(-1)
    if per_sample_weights is not None:
        if mode != "sum" or per_sample_weights._array.shape != index._array.shape:
            raise ShapeError(
                f"embedding_bag: per_sample_weights is for mode 'sum' and must have the same shape "
                f"as the input {list(index._array.shape)}; got mode {mode!r}."
            )
        rows = rows * per_sample_weights.unsqueeze(-1)
    if offsets is None:
        if mode == "max":
            return _largest(rows, counted)
        total, count = rows.sum(1), counted.sum(1)
    else:
        total, count = _by_offsets(rows, counted, offsets, include_last_offset, mode)
    return total if mode == "sum" else total / count.clamp(min=1).unsqueeze(-1)


def _largest(rows: Tensor, counted: Tensor) -> Tensor:
    if not rows._array.shape[1]:
        return rows.sum(1)
    some = counted.unsqueeze(-1).gt(0)
    best = where(some, rows, -float("inf")).max(1).values
    return where(some.any(1), best, 0.0)


def _by_offsets(
    rows: Tensor, counted: Tensor, offsets: Any, include_last: bool, mode: str
) -> tuple[Tensor, Tensor]:
    if mode == "max":
        raise ValueError(
            "embedding_bag: mode 'max' needs bags of one length, as a 2-D input. Pad them, with "
            "padding_idx."
        )
    starts = index_tensor("embedding_bag", as_operand("embedding_bag", offsets, 2), _INTS)
    if starts._array.ndim != 1:
        raise ShapeError(
            f"embedding_bag: offsets has to be a 1D Tensor, got {list(starts._array.shape)}."
        )
    if not machine.is_recording():
        _check_offsets(starts._array.tolist(), rows._array.shape[0])
    starts = starts[:-1] if include_last else starts
    bags = starts._array.shape[0]
    place = arange(rows._array.shape[0], device=starts._device)
    bag = searchsorted(starts, place, right=True) - 1
    bag = where(bag.lt(0), bags, bag)  # index_add refuses it, in a recorded step too
    zeros = full((bags, rows._array.shape[1]), 0, rows._dtype, rows._device)
    nothing = full((bags,), 0, rows._dtype, rows._device)
    return index_add(zeros, 0, bag, rows), index_add(nothing, 0, bag, counted)


def _check_offsets(starts: list[int], count: int) -> None:
    if starts and starts[0]:
        raise ShapeError(
            f"embedding_bag: offsets[0] has to be 0: the first sequence in the mini-batch has "
            f"to start from position 0. However, got {starts[0]}."
        )
    if starts != sorted(starts) or (starts and starts[-1] > count):
        raise ShapeError(
            f"embedding_bag: offsets have to increase and must not be greater than input's length "
            f"{count}, got {starts}."
        )


def limit_rows_(weight: Tensor, index: Tensor, longest: float, order: float) -> None:
    """Scale the rows at ``index`` whose norm of ``order`` is above ``longest`` to it, in place.

    weight (v, d); index: integers of any shape.
    """
    with no_grad():
        at = index.reshape((-1,))
        rows = embedding(at, weight)
        lengths = norm(rows, order, 1, keepdim=True)
        scaled = rows * (longest / (lengths + 1e-7))
        setitem(weight, at, where(lengths > longest, scaled, rows))
