"""Tensors cut by other names of ``split``, written into copies of others, and combined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ShapeError
from ..tensor import Tensor, wrap
from .base import as_operand, full, normalize_dim, same_device
from .elementwise import cast, clone
from .index import index_select
from .join import split, stack, tensor_split
from .overwrite import copy_
from .part import as_strided, diag_embed, diagonal, narrow, select
from .remembered import remembered
from .shape import meshgrid
from .transpose import transpose
from .view import reshape

__all__ = [
    "adjoint",
    "as_strided_scatter",
    "block_diag",
    "cartesian_prod",
    "combinations",
    "diagflat",
    "diagonal_scatter",
    "dsplit",
    "hsplit",
    "select_scatter",
    "slice_scatter",
    "split_with_sizes",
    "vsplit",
]


def adjoint(x: Tensor) -> Tensor:
    """Matrices turned: a view with the last two dimensions exchanged.

    >>> adjoint(tensor([[1.0, 2.0]])).tolist()
    [[1.0], [2.0]]
    """
    rank = as_operand("adjoint", x)._array.ndim
    if rank < 2:
        raise ShapeError(
            f"adjoint: only supported on matrices or batches of matrices. Got {rank}-D tensor."
        )
    return transpose(x, -2, -1)


def _split_along(name: str, x: Tensor, at: Any, least: int, dim: int) -> tuple[Tensor, ...]:
    """``tensor_split`` into equal parts only, of a tensor of ``least`` dimensions or more."""
    shape = as_operand(name, x)._array.shape
    if len(shape) < least:
        raise ShapeError(
            f"{name}: requires a tensor with at least {least} dimension{'s' * (least > 1)}, but "
            f"got a tensor with {len(shape)} dimensions!"
        )
    if isinstance(at, int) and (at <= 0 or shape[dim] % at):
        raise ShapeError(
            f"{name}: attempted to split along dimension {dim}, but the size of the dimension "
            f"{shape[dim]} is not divisible by the split_size {at}! tensor_split does so."
        )
    return tensor_split(x, at, dim)


def hsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Views along dimension 1, of a vector along 0: so many equal ones, or cut at indices.

    >>> [part.tolist() for part in hsplit(tensor([1, 2, 3, 4]), 2)]
    [[1, 2], [3, 4]]
    """
    dim = 0 if as_operand("hsplit", x)._array.ndim == 1 else 1
    return _split_along("hsplit", x, indices_or_sections, 1, dim)


def vsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Views along dimension 0 of a tensor of two or more: so many equal ones, or cut at indices.

    >>> [part.tolist() for part in vsplit(tensor([[1], [2]]), 2)]
    [[[1]], [[2]]]
    """
    return _split_along("vsplit", x, indices_or_sections, 2, 0)


def dsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """Views along dimension 2 of a tensor of three or more: so many equal ones, or cut at indices.

    >>> [part.tolist() for part in dsplit(tensor([[[1, 2]]]), [1])]
    [[[[1]]], [[[2]]]]
    """
    return _split_along("dsplit", x, indices_or_sections, 3, 2)


def split_with_sizes(x: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of the given sizes along ``dim``, which add up to its own.

    >>> [part.tolist() for part in split_with_sizes(tensor([1, 2, 3]), [1, 2])]
    [[1], [2, 3]]
    """
    return split(as_operand("split_with_sizes", x), tuple(split_sizes), dim)


# -- copies with a part replaced -------------------------------------------------------------------


def _replaced(name: str, out: Tensor, part: Tensor, src: Tensor) -> Tensor:
    """``out``, a copy, with its view ``part`` overwritten by ``src``."""
    same_device(name, (out, as_operand(name, src, 1)))
    if src._array.shape != part._array.shape:
        raise ShapeError(
            f"{name}: expected src to have a size equal to the slice of input. src size = "
            f"{list(src.shape)}, slice size = {list(part.shape)}."
        )
    copy_(part, src)
    return out


@remembered
def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy of ``x`` whose entry ``index`` of ``dim`` is ``src``.

    >>> select_scatter(tensor([[1, 2], [3, 4]]), tensor([5, 6]), 0, 1).tolist()
    [[1, 2], [5, 6]]
    """
    out = clone(x)
    return _replaced("select_scatter", out, select(out, dim, index), src)


@remembered
def slice_scatter(
    x: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """A copy of ``x`` whose entries ``start:end:step`` of ``dim`` are ``src``.

    >>> slice_scatter(tensor([1, 2, 3]), tensor([7, 8]), start=1).tolist()
    [1, 7, 8]
    """
    out = clone(x)
    dim = normalize_dim("slice_scatter", dim, out._array.ndim)
    if step < 1:
        raise ShapeError(f"slice_scatter: step must be positive, got {step}.")
    part = out[(slice(None),) * dim + (slice(start, end, step),)]
    return _replaced("slice_scatter", out, part, src)


@remembered
def diagonal_scatter(
    x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy of ``x`` whose diagonal is ``src``.

    >>> diagonal_scatter(tensor([[1, 2], [3, 4]]), tensor([5, 6])).tolist()
    [[5, 2], [3, 6]]
    """
    out = clone(x)
    return _replaced("diagonal_scatter", out, diagonal(out, offset, dim1, dim2), src)


def as_strided_scatter(
    x: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """A copy of ``x`` whose ``as_strided`` elements are ``src``; where these meet, the last one.

    storage_offset counts from the start of the memory that ``x`` lies in; by default where it does.

    >>> as_strided_scatter(tensor([1, 2, 3, 4]), tensor([8, 9]), (2,), (2,)).tolist()
    [8, 2, 9, 4]
    """
    out = clone(x)
    offset = 0 if storage_offset is None else storage_offset - x.storage_offset()
    return _replaced("as_strided_scatter", out, as_strided(out, size, stride, offset), src)


@remembered
def diagflat(x: Tensor, offset: int = 0) -> Tensor:
    """The matrix with all elements of ``x`` on a diagonal, and zeros.

    >>> diagflat(tensor([[1, 2]])).tolist()
    [[1, 0], [0, 2]]
    """
    return diag_embed(reshape(as_operand("diagflat", x), (-1,)), offset)


@remembered
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices one after another along the diagonal of one, zeros elsewhere.

    Vectors count as matrices of one row, numbers as matrices of one element.

    >>> block_diag(tensor([[1, 2]]), tensor(3)).tolist()
    [[1, 2, 0], [0, 0, 3]]
    """
    blocks = []
    for i, x in enumerate(tensors):
        shape = as_operand("block_diag", x, i)._array.shape
        if len(shape) > 2:
            raise ShapeError(
                f"block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has "
                f"{len(shape)} dimensions."
            )
        blocks.append(reshape(x, (1, math.prod(shape))) if len(shape) < 2 else x)
    if not blocks:
        return full((1, 0), 0, dtypes.get_default_dtype())
    same_device("block_diag", blocks)
    dtype = dtypes.result_type([(x._dtype, 2 if x._array.ndim else 1) for x in tensors])
    rows, columns = [sum([x._array.shape[d] for x in blocks]) for d in (0, 1)]
    out = full((rows, columns), 0, dtype, blocks[0]._device)
    i = j = 0
    for x in blocks:
        height, width = x._array.shape
        copy_(narrow(narrow(out, 0, i, height), 1, j, width), cast(x, dtype))
        i, j = i + height, j + width
    return out


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All rows that take an element from each vector, the last changing fastest.

    >>> cartesian_prod(tensor([1, 2]), tensor([3, 4])).tolist()
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    for i, x in enumerate(tensors):
        if as_operand("cartesian_prod", x, i)._array.ndim != 1:
            raise ShapeError(
                f"cartesian_prod: Expect a 1D vector, but got shape {list(x.shape)}. Flatten it."
            )
    if len(tensors) == 1:
        return tensors[0]
    return reshape(stack(meshgrid(*tensors, indexing="ij"), -1), (-1, len(tensors)))


def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All rows of ``r`` elements of a vector, in its order; an element may come again if told so.

    >>> combinations(tensor([1, 2, 3])).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    shape = as_operand("combinations", x)._array.shape
    if len(shape) != 1:
        raise ShapeError(f"combinations: Expect a 1D vector, but got shape {list(shape)}.")
    if r < 0:
        raise ShapeError(f"combinations: Expect a non-negative number, but got {r}.")
    if not r:
        return full((0,), 0, x._dtype, x._device)
    chosen = np.arange(shape[0])[:, None]
    for _ in range(r - 1):  # each row goes on with every element after its last
        first = chosen[:, -1] + (not with_replacement)
        many = shape[0] - first
        row = np.repeat(np.arange(len(chosen)), many)
        begin = np.cumsum(many) - many
        more = first[row] + np.arange(len(row)) - begin[row]
        chosen = np.concatenate([chosen[row], more[:, None]], 1)
    index = wrap(chosen.reshape(-1), dtypes.int64).to(x._device)
    return reshape(index_select(x, 0, index), (-1 if chosen.size else 0, r))


METHODS: dict[str, Any] = {
    name: globals()[name]
    for name in __all__
    if name not in ("block_diag", "cartesian_prod", "combinations")
}
