"""``ng.linalg``: products of vectors, diagonals, powers of numbers."""

from __future__ import annotations

from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .autocasting import lowered
from .base import as_operand
from .einsum import cross as _cross
from .elementwise import mul
from .factorise import powers
from .part import diagonal as _diagonal
from .reduce import sum as sum_
from .remembered import remembered
from .view import reshape

__all__ = ["cross", "diagonal", "vander", "vecdot"]


def cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The cross products of vectors of three along ``dim``.

    >>> cross(tensor([1.0, 0.0, 0.0]), tensor([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, 1.0]
    """
    ranks = [as_operand("linalg.cross", v, i)._array.ndim for i, v in enumerate((x, y))]
    if ranks[0] != ranks[1]:
        raise ShapeError(
            f"linalg.cross: inputs must have the same number of dimensions, got {ranks[0]} and "
            f"{ranks[1]}."
        )
    return _cross(x, y, dim)


def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sums of the products of vectors along ``dim``; the other dimensions broadcast.

    >>> vecdot(tensor([[1.0, 2.0], [3.0, 4.0]]), tensor([1.0, 1.0])).tolist()
    [3.0, 7.0]
    """
    if machine.autocasting:
        x, y = lowered(x, y)
    dtypes_given = [as_operand("linalg.vecdot", v, i)._dtype for i, v in enumerate((x, y))]
    if dtypes_given[0] is not dtypes_given[1] or not dtypes_given[0].is_floating_point:
        raise DTypeError(
            f"linalg.vecdot: Expected floating point vectors of the same dtype, got "
            f"{dtypes_given[0]} and {dtypes_given[1]}. Convert them with .float()."
        )
    return sum_(mul(x, y), dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A view of the diagonals of matrices, in the last two dimensions unless told otherwise.

    >>> diagonal(tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [1.0, 4.0]
    """
    return _diagonal(as_operand("linalg.diagonal", A), offset, dim1, dim2)


@remembered
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers ``x ** 0`` to ``x ** (N - 1)`` along a new last dimension.

    N: how many, by default as many as the last dimension of x has. (``ng.vander`` decreases.)

    >>> vander(tensor([2, 3, 4])).tolist()
    [[1, 2, 4], [1, 3, 9], [1, 4, 16]]
    """
    if not as_operand("linalg.vander", x)._array.ndim:
        x = reshape(x, (1,))
    count = x._array.shape[-1] if N is None else N
    if count < 1:
        raise ShapeError(f"linalg.vander: N must be greater than 1, got {count}.")
    return powers(x, range(count))
