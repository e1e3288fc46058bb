"""Rows of tables at integers: alone, in sums, means or maxima of groups, and of the identity."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

from .. import dtypes
from ..autograd.modes import no_grad
from ..errors import DimError, ShapeError
from ..kernels import machine
from ..kernels.cpu import index as kernels
from ..tensor import Tensor
from .base import Op, as_operand, contiguous, full, new_empty
from .bracket_writes import setitem
from .create import arange
from .elementwise import cast, where
from .extreme import extremes
from .index import _INTS, TakeGrad, _read, index_add, index_tensor, launch_checked
from .moments import norm
from .remembered import remembered
from .scatter_reduce import index_reduce
from .search import searchsorted

__all__ = ["embedding", "embedding_bag", "one_hot"]


@remembered
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of ``weight`` (v, d) at the integers ``input``, of any shape: (*, d).

    max_norm: rows that are looked up and whose ``norm_type``-norm is larger are scaled to it first,
    in ``weight`` itself. Gradient: the rows of g added at their indices, in order; none for row
    ``padding_idx``; scale_grad_by_freq: divided by how often the index is in ``input``. Raises
    IndexError if an index is not in [0, v), ValueError for ``sparse``: gradients are dense.

    >>> embedding(tensor([1, 0]), tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[3.0, 4.0], [1.0, 2.0]]
    """
    how = padding_idx, max_norm, norm_type, sparse
    index, padding = _entries("embedding", input, weight, *how)
    return Embedding.apply(weight, index, padding, scale_grad_by_freq, "embedding")


def _entries(
    name: str,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None,
    max_norm: float | None,
    norm_type: float,
    sparse: bool,
) -> tuple[Tensor, int]:
    """The index and what of it is padding, or -1; rows that are too long have been scaled."""
    if sparse:
        raise ValueError(f"{name}: gradients are dense here. Leave out sparse=True.")
    index = index_tensor(name, input, _INTS)
    if as_operand(name, weight, 1)._array.ndim != 2:
        raise ShapeError(f"{name}: 'weight' must be 2-D, got {weight._array.ndim} dims.")
    padding = _padding(name, padding_idx, weight._array.shape[0])
    if max_norm is not None:
        if not isinstance(max_norm, Real):
            raise TypeError(f"{name}: max_norm must be a number or None, got {max_norm!r}.")
        _limit_rows_(name, weight, index, max_norm, norm_type)
    return index, padding


def _padding(name: str, padding_idx: int | None, rows: int) -> int:
    if padding_idx is None:
        return -1
    if not -rows <= padding_idx < rows:
        raise ShapeError(
            f"{name}: Padding_idx must be within num_embeddings ({rows}), got {padding_idx}."
        )
    return padding_idx % rows


class Embedding(Op, remembers=True):
    """Rows of a table; one of them may get no gradient."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, index: Tensor, padding: int, by_frequency: bool, name: str
    ) -> Tensor:
        ctx.save(index)
        ctx.how = (weight._array.shape, 0, 1, padding, name)
        ctx.by_frequency = by_frequency
        with _out_of_range(name):
            return _read(name, weight, index, 0, 1, False, -1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (index,) = ctx.saved_tensors
        if ctx.by_frequency:
            nothing = full((ctx.how[0][0],), 0, g._dtype, g._device)
            at = index.reshape((-1,))
            counts = index_add(nothing, 0, at, full(at._array.shape, 1, g._dtype, g._device))
            g = g / counts[index].unsqueeze(-1)
        return TakeGrad.apply(g, index, *ctx.how)


@contextmanager
def _out_of_range(name: str) -> Iterator[None]:
    """Bad indices in the words of PyTorch."""
    try:
        yield
    except DimError as error:
        found = str(error).removeprefix(f"{name}: ")
        raise DimError(f"{name}: index out of range in self: {found}") from None


class Bag(Op):
    """Sums of rows of a table over ``divisor``: of those at each row of index, but ``padding``."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, index: Tensor, padding: int, divisor: int) -> Tensor:
        ctx.save(index)
        (v, d), bags = weight._array.shape, index._array.shape[0]
        ctx.v, ctx.padding, ctx.divisor = v, padding, divisor
        out = new_empty((bags, d), weight._dtype, weight._device)
        at, x = index._array, contiguous(weight)._array
        with _out_of_range("embedding_bag"):
            launch_checked(
                *("embedding_bag", kernels.take_mean, out._array, x, at, divisor, padding),
                where=(at, 0, v),
            )
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        g = g if ctx.divisor == 1 else g / ctx.divisor
        return BagGrad.apply(g, *ctx.saved_tensors, ctx.v, ctx.padding)


class BagGrad(Op):
    """Zeros (v, d) with each row of ``g`` added where ``Bag`` read for it."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, index: Tensor, v: int, padding: int) -> Tensor:
        ctx.save(index)
        ctx.padding = padding
        bags, d = g._array.shape
        out, at = full((v, d), 0, g._dtype, g._device), index._array.reshape(-1)
        rows = contiguous(g)._array.reshape(1, bags, d)
        launch_checked(
            *("embedding_bag", kernels.add_at, out._array.reshape(1, v, d), rows, at),
            *(False, padding),
            where=(at, 0, v),
        )
        return out

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> Tensor:
        return Bag.apply(h, *ctx.saved_tensors, ctx.padding, 1)


def _limit_rows_(name: str, weight: Tensor, index: Tensor, longest: float, order: float) -> None:
    """Scale the rows at ``index`` whose norm of ``order`` is above ``longest`` to it, in place.

    weight (v, d); index: integers of any shape.
    """
    with no_grad():
        at = index.reshape((-1,))
        rows = Embedding.apply(weight, at, -1, False, name)
        lengths = norm(rows, order, 1, keepdim=True)
        scaled = rows * (longest / (lengths + 1e-7))
        setitem(weight, at, where(lengths > longest, scaled, rows))


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """int64 zeros with a one in the column that each integer says: (*, num_classes).

    num_classes: -1 for the largest integer plus 1.

    >>> one_hot(tensor([1, 0]), 3).tolist()
    [[0, 1, 0], [1, 0, 0]]
    """
    index = index_tensor("one_hot", input)
    at = index._array.reshape(-1)
    if num_classes == -1:
        if not at.size:
            raise ShapeError("one_hot: Can not infer total number of classes from empty tensor.")
        num_classes = extremes("one_hot", index)[1] + 1
    if num_classes <= 0 and at.size:
        raise ShapeError("one_hot: num_classes should be positive; Class values must be >= 0.")
    out = new_empty((*index._array.shape, num_classes), dtypes.int64, index._device)
    table = out._array.reshape(at.size, num_classes)
    bad = machine.flag(table)
    machine.launch(kernels.one_hot, table, bad, at)

    def fail(position: int) -> None:
        if machine.is_traced(at):
            raise ShapeError(f"one_hot: Class values must be 0 to {num_classes - 1}.")
        rule = "non-negative" if at[position] < 0 else "smaller than num_classes"
        raise ShapeError(f"one_hot: Class values must be {rule}, got {at[position]}.")

    machine.check(bad, fail)
    return out


_SUMMED = (dtypes.float32, dtypes.float64)
"""Dtypes of tables whose bags are summed as they are read."""


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
    count. max_norm, norm_type, scale_grad_by_freq (not for "max") and sparse as in ``embedding``.

    >>> embedding_bag(tensor([[0, 1]]), tensor([[1.0], [3.0]])).tolist()
    [[2.0]]
    """
    if scale_grad_by_freq and mode == "max":
        raise ValueError(
            "embedding_bag: max mode does not support scaling the gradient by frequency."
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
    how = padding_idx, max_norm, norm_type, sparse
    index, padding = _entries("embedding_bag", index, weight, *how)
    simple = per_sample_weights is None and not scale_grad_by_freq and weight._dtype in _SUMMED
    if simple and offsets is None and mode != "max" and index._array.size:
        divisor = index._array.shape[1] if mode == "mean" and padding < 0 else 1
        total = Bag.apply(weight, index, padding, divisor)
        if mode == "sum" or padding < 0:
            return total
        return _total(total, cast(index.ne(padding), weight._dtype).sum(1), mode)
    rows = Embedding.apply(weight, index, padding, scale_grad_by_freq, "embedding_bag")
    counted = full(index._array.shape, 1, weight._dtype, weight._device)
    if padding_idx is not None:
        counted = cast(index.ne(padding), weight._dtype)
        rows = rows * counted.unsqueeze(-1)
    if per_sample_weights is not None:
        if mode != "sum" or per_sample_weights._array.shape != index._array.shape:
            raise ShapeError(
                f"embedding_bag: per_sample_weights is for mode 'sum' and must have the same shape "
                f"as the input {list(index._array.shape)}; got mode {mode!r}."
            )
        rows = rows * per_sample_weights.unsqueeze(-1)
    if offsets is not None:
        return _by_offsets(rows, counted, offsets, include_last_offset, mode)
    if mode == "max":
        return _largest(rows, counted)
    return _total(rows.sum(1), counted.sum(1), mode)


def _total(total: Tensor, count: Tensor, mode: str) -> Tensor:
    return total if mode == "sum" else total / count.clamp(min=1).unsqueeze(-1)


def _largest(rows: Tensor, counted: Tensor) -> Tensor:
    if not rows._array.shape[1]:
        return rows.sum(1)
    some = counted.unsqueeze(-1).gt(0)
    best = where(some, rows, -float("inf")).max(1).values
    return where(some.any(1), best, 0.0)


def _by_offsets(
    rows: Tensor, counted: Tensor, offsets: Any, include_last: bool, mode: str
) -> Tensor:
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
    count = index_add(full((bags,), 0, rows._dtype, rows._device), 0, bag, counted)
    if mode == "max":
        some = where(counted.unsqueeze(-1).gt(0), rows, -float("inf"))
        best = index_reduce(zeros, 0, bag, some, "amax", include_self=False)
        return where(count.unsqueeze(-1).gt(0), best, 0.0)
    return _total(index_add(zeros, 0, bag, rows), count, mode)


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
