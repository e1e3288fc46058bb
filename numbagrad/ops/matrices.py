"""Functions of square matrices under PyTorch's short names, and products of many matrices.

``ng.linalg`` has the same under its own names: see ``lapack.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import DTypeError, ShapeError
from ..tensor import Tensor
from . import lapack
from .base import as_operand
from .chains import matrix_power, multi_dot
from .elementwise import where

__all__ = ["chain_matmul", "det", "inverse", "logdet", "matrix_power", "slogdet"]


def det(x: Tensor) -> Tensor:
    """The determinants of square matrices, ``ng.linalg.det``.

    >>> det(tensor([[2.0, 0.0], [0.0, 3.0]])).item()
    6.0
    """
    return lapack.det(x)


def inverse(x: Tensor) -> Tensor:
    """The inverses of square matrices, ``ng.linalg.inv``. Raises LinAlgError for a singular one.

    >>> inverse(tensor([[2.0]])).tolist()
    [[0.5]]
    """
    return lapack.inv(x)


def slogdet(x: Tensor) -> lapack.SlogdetResult:
    """The sign of determinants and the logarithms of their absolute values, ``ng.linalg.slogdet``.

    >>> slogdet(tensor([[-1.0]])).sign.item()
    -1.0
    """
    return lapack.slogdet(x)


def logdet(x: Tensor) -> Tensor:
    """The logarithms of determinants: NaN where one is negative, -inf where it is 0.

    Square matrices in the last two dimensions. Gradient: ``g inv(x).T``.

    >>> logdet(tensor([[1.0]])).item()
    0.0
    """
    sign, logabsdet = lapack.slogdet(x)
    return where(sign < 0, float("nan"), logabsdet)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of matrices, in the cheapest order; ``ng.linalg.multi_dot`` takes a list.

    >>> chain_matmul(tensor([[2.0]]), tensor([[3.0]]), tensor([[4.0]])).tolist()
    [[24.0]]
    """
    given: Sequence[Any] = matrices
    if len(given) == 1 and isinstance(given[0], (list, tuple)):
        given = given[0]
    for position, matrix in enumerate(given):
        shape = as_operand("chain_matmul", matrix, position)._array.shape
        if len(shape) != 2:
            raise ShapeError(f"chain_matmul: expected matrices of two dimensions, got {shape}.")
    if not given:
        raise DTypeError("chain_matmul: Expected one or more matrices.")
    return given[0] if len(given) == 1 else multi_dot(given)


METHODS: dict[str, Any] = {n: globals()[n] for n in __all__ if n != "chain_matmul"}
