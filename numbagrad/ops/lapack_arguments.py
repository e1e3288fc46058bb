"""What ``ng.linalg`` asks of matrices; the error where a result does not exist."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .autocasting import CPU, raised
from .base import as_operand, broadcast_shape, full, same_device

__all__ = ["LinAlgError"]


class LinAlgError(np.linalg.LinAlgError, RuntimeError):
    """A matrix is singular, or not positive definite: the result does not exist."""


@functools.cache
def named(kernel: Any, name: str) -> Any:
    """``kernel``, which raises LinAlgError in the name of an op where LAPACK finds no result."""

    @functools.wraps(kernel)
    def run(*args: Any) -> None:
        try:
            kernel(*args)
        except np.linalg.LinAlgError as error:
            raise LinAlgError(f"linalg.{name}: {error}.") from None

    return run


def matrix(name: str, x: Any, *, square: bool = False) -> Tensor:
    """``x``, checked to be floating matrices."""
    if machine.autocasting:
        (x,) = raised(x, on=CPU)
    shape = as_operand(f"linalg.{name}", x)._array.shape
    if len(shape) < 2 and not square:
        raise ShapeError(
            f"linalg.{name}: The input tensor A must have at least 2 dimensions, got {list(shape)}."
        )
    if square and (len(shape) < 2 or shape[-1] != shape[-2]):
        raise ShapeError(
            f"linalg.{name}: A must be batches of square matrices, but got shape {list(shape)}."
        )
    if not x._dtype.is_floating_point:
        raise DTypeError(
            f"linalg.{name}: Expected a floating point tensor as input. Got {x._dtype}. Convert it "
            f"with .float()."
        )
    return x


def equation(name: str, A: Any, B: Any, left: bool) -> tuple[Tensor, Tensor, bool]:
    """Matrices x and y of one batch with ``x @ out == y``, and whether B are vectors.

    B (..., n, m), or one vector (n), or a stack of vectors beside a stack of matrices. left=False:
    of ``out @ A == B``, so that x, y and out are transposed.
    """
    x, y = matrix(name, A, square=True), as_operand(f"linalg.{name}", B, 1)
    same_device(f"linalg.{name}", (x, y))
    if x._dtype is not y._dtype:
        raise DTypeError(
            f"linalg.{name}: Expected A and B of the same dtype, got {x._dtype} and {y._dtype}."
        )
    n = x._array.shape[-1]
    vector = y._array.ndim == 1 or y._array.shape == x._array.shape[:-1]
    if vector and not left:
        raise ShapeError(
            f"linalg.{name}: Incompatible shapes of A {list(A.shape)} and B {list(B.shape)}: with "
            f"left=False B must be matrices, not vectors. Add a dimension with B.unsqueeze(-2)."
        )
    if vector:
        y = y.unsqueeze(-1)
    if not left:
        x, y = x.mT, y.mT
    if y._array.ndim < 2 or y._array.shape[-2] != n:
        raise ShapeError(
            f"linalg.{name}: Incompatible shapes of A {list(A.shape)} and B {list(B.shape)}: B "
            f"must have {n} {'rows' if left else 'columns'}."
        )
    batch = broadcast_shape(f"linalg.{name}", x._array.shape[:-2], y._array.shape[:-2])
    return of_batch(x, batch), of_batch(y, batch), vector


def of_batch(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Matrices expanded to ``batch``; themselves where that is theirs, for views take time."""
    shape = x._array.shape
    return x if shape[:-2] == batch else x.expand((*batch, *shape[-2:]))


def of_each(numbers: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Of numbers of a batch that matrices were expanded to, those of the matrices themselves."""
    if numbers._array.shape == batch:
        return numbers
    if not numbers._array.size:
        return full(batch, 0, numbers._dtype, numbers._device)
    parts = [slice(0, 1) if n == 1 else slice(None) for n in batch]
    return numbers[(*[0] * (numbers._array.ndim - len(batch)), *parts)]
