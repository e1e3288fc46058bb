"""Positions counted through all elements: ``put``, ``unravel_index``, ``nonzero_static``."""

from __future__ import annotations

import operator
from typing import Any

from .. import dtypes
from ..errors import DimError, DTypeError, ShapeError
from ..tensor import Tensor
from .base import as_operand, full, same_device
from .comparison import ne
from .create import arange
from .elementwise import cast, where
from .gather import scatter
from .index import index_tensor, put_slices
from .join import stack
from .part import narrow
from .remembered import remembered
from .scan import cumsum
from .view import reshape

__all__ = ["nonzero_static", "put", "unravel_index"]


@remembered
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """``x`` with the elements of ``source`` at positions ``index``, counted through all elements.

    index: int64, negative ones count from the end; source: as many elements, of x's dtype.
    accumulate: added to what is there, and repeats add up. Raises IndexError if a position is out
    of range.

    >>> put(tensor([[1, 2], [3, 4]]), tensor([0, -1]), tensor([9, 8])).tolist()
    [[9, 2], [3, 8]]
    """
    same_device("put", [as_operand("put", v, i) for i, v in enumerate((x, index, source))])
    at = index_tensor("put", index)
    if source._dtype is not x._dtype:
        raise DTypeError(
            f"put: self and source expected to have the same dtype, but got {x._dtype} and "
            f"{source._dtype}. Convert source with .to(x.dtype)."
        )
    if source._array.size != at._array.size:
        raise DimError(
            f"put: Expected source and index to have the same number of elements, but got "
            f"{source._array.size} and {at._array.size}."
        )
    flat, values = reshape(x, (x._array.size,)), reshape(source, (source._array.size,))
    at = reshape(at, (at._array.size,))
    out = put_slices(flat, values, at, 0, 1, bool(accumulate), "put")
    return reshape(out, x._array.shape)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The coordinates in a tensor of ``shape`` of positions counted through all its elements.

    indices: ints of any shape, which each coordinate has too, int64; positions beyond begin again.

    >>> [c.tolist() for c in unravel_index(tensor([3, 5]), (2, 3))]
    [[1, 1], [0, 2]]
    """
    if as_operand("unravel_index", indices)._dtype.category != 1:
        raise DTypeError(
            f"unravel_index: expected 'indices' to be integer dtype, but got {indices._dtype}. "
            f"Convert it with .long()."
        )
    sizes = tuple(map(operator.index, (shape,) if isinstance(shape, int) else shape))
    if any([n < 0 for n in sizes]):
        raise ShapeError(f"unravel_index: 'shape' cannot have negative values, but got {sizes}.")
    if 0 in sizes and indices._array.size:
        raise ShapeError(f"unravel_index: a tensor of shape {sizes} has no positions.")
    indices, found = cast(indices, dtypes.int64), []
    for n in reversed(sizes):
        found.append(indices % max(n, 1))
        indices = indices // max(n, 1)
    return tuple(reversed(found))


def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """(size, x.dim()) int64: coordinates of the first ``size`` entries that are not 0, in order.

    Rows that are left over have ``fill_value``. The shape depends on no element, so a compiled
    function takes it where it refuses ``nonzero``.

    >>> nonzero_static(tensor([0, 3, 4]), size=3).tolist()
    [[1], [2], [-1]]
    """
    shape = as_operand("nonzero_static", x)._array.shape
    if size < 0:
        raise ShapeError(
            f"nonzero_static: 'size' must be an non-negative integer, got {size}. Use 0 or more."
        )
    n = x._array.size
    if not (shape and n and size):
        return full((size, len(shape)), fill_value, dtypes.int64, x._device)
    there = reshape(ne(x.detach(), 0), (n,))
    number = cumsum(cast(there, dtypes.int64), 0) - 1
    # What is not asked for goes to one row more, which is cut off.
    row = where(there & (number < size), number, size)
    rows = full((size + 1,), -1, dtypes.int64, x._device)
    position = narrow(scatter(rows, 0, row, arange(n, device=x._device)), 0, 0, size)
    found = stack(unravel_index(position, shape), 1)
    return where((position < 0).unsqueeze(1), fill_value, found)


METHODS: dict[str, Any] = {"nonzero_static": nonzero_static, "put": put}
INPLACE: dict[str, Any] = {"put_": put}
