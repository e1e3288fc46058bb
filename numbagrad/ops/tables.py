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
from .base import Op, as_operand, full, new_empty
from .bracket_writes import setitem
from .elementwise import where
from .extreme import extremes
from .index import INTS, Take, TakeGrad, _read, index_add, index_tensor
from .moments import norm
from .remembered import remembered
from .selected import RULES, Selected

__all__ = ["embedding", "one_hot"]


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
    index, padding = entries("embedding", input, weight, *how)
    return Embedding.apply(weight, index, padding, scale_grad_by_freq, "embedding")


def entries(
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
    index = index_tensor(name, input, INTS)
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
        with out_of_range(name):
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

    @staticmethod
    def may_add(ctx: Any, whole: Tensor, g: Tensor) -> bool:
        """Whether ``add_into`` may be called."""
        return not ctx.by_frequency and Take.may_add(ctx, whole, g)

    add_into = Take.add_into


@contextmanager
def out_of_range(name: str) -> Iterator[None]:
    """Bad indices in the words of PyTorch."""
    try:
        yield
    except DimError as error:
        found = str(error).removeprefix(f"{name}: ")
        raise DimError(f"{name}: index out of range in self: {found}") from None


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
    if type(input) is Selected and num_classes > 0:
        found: Tensor = RULES["one_hot"](one_hot, input, num_classes)
        return found
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
