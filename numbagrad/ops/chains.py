"""Products of many matrices: powers, and chains in the order that costs least."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ..errors import DTypeError, ShapeError
from ..tensor import Tensor
from .base import as_operand
from .create import eye
from .elementwise import clone
from .linalg import matmul
from .remembered import remembered

__all__ = ["matrix_power", "multi_dot"]


@remembered
def matrix_power(x: Tensor, n: int) -> Tensor:
    """The product of ``n`` times the square matrices of the last two dimensions.

    n: 0 gives identities, a negative number the power of the inverse. By repeated squares: for n
    there are at most ``2 log2(n)`` products.

    >>> matrix_power(tensor([[2.0]]), 5).tolist()
    [[32.0]]
    """
    shape = as_operand("matrix_power", x)._array.shape
    if type(n) is not int:
        raise TypeError(
            f"matrix_power(): argument 'n' (position 2) must be int, not {type(n).__name__}."
        )
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(
            f"linalg.matrix_power: A must be batches of square matrices, but got shape "
            f"{list(shape)}."
        )
    if n == 0:
        ones = eye(shape[-1], dtype=x._dtype, device=x._device)
        return clone(ones.expand(shape))
    if n < 0:
        from .lapack import inv  # which has this function among its own

        x, n = inv(x), -n
    square, found = x, None
    while n:
        if n & 1:
            found = square if found is None else matmul(found, square)
        n >>= 1
        if n:
            square = matmul(square, square)
    assert found is not None
    return clone(found) if found is x else found


def _cheapest(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where to cut the chain from matrix i to j, for each i < j; matrix i is sizes[i] by
    sizes[i + 1].

    The classic dynamic programme over lengths (Cormen et al., 15.2).
    """
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j], cuts[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k)
                for k in range(i, j)
            )
    return cuts


@functools.partial(remembered, spread="tensors")
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of two or more matrices, in the order that takes the fewest multiplications.

    The first may be a vector, a row, and the last one too, a column; the result then lacks that
    dimension. All of one dtype. Raises ShapeError where two neighbours do not fit.

    >>> ng.linalg.multi_dot([tensor([1.0, 2.0]), ng.eye(2), tensor([3.0, 4.0])]).item()
    11.0
    """
    found = [as_operand("multi_dot", t, i) for i, t in enumerate(tensors)]
    last = len(found) - 1
    if last < 1:
        raise ShapeError(f"multi_dot: expected at least 2 tensors but got {len(found)}.")
    for i, t in enumerate(found):
        rank = t._array.ndim
        if rank != 2 and not (rank == 1 and i in (0, last)):
            name = {0: "the first tensor", last: "the last tensor"}.get(i, f"tensor {i}")
            allowed = "1D or 2D" if i in (0, last) else "2D"
            raise ShapeError(f"multi_dot: {name} must be {allowed} but got {rank}D.")
        if t._dtype is not found[0]._dtype:
            raise DTypeError(
                f"multi_dot: all tensors must have the same dtype, but tensor 0 is "
                f"{found[0]._dtype} and tensor {i} {t._dtype}."
            )
    row, column = found[0]._array.ndim == 1, found[last]._array.ndim == 1
    if row:
        found[0] = found[0].unsqueeze(0)
    if column:
        found[last] = found[last].unsqueeze(1)
    for i in range(last):
        if found[i]._array.shape[1] != found[i + 1]._array.shape[0]:
            raise ShapeError(
                f"multi_dot: tensors {i} and {i + 1} with shapes {list(found[i]._array.shape)} and "
                f"{list(found[i + 1]._array.shape)} cannot be multiplied."
            )
    cuts = _cheapest([found[0]._array.shape[0], *[t._array.shape[1] for t in found]])

    def product(i: int, j: int) -> Any:
        return found[i] if i == j else matmul(product(i, cuts[i, j]), product(cuts[i, j] + 1, j))

    out = product(0, last)
    out = out.squeeze(0) if row else out
    return out.squeeze(-1) if column else out
