"""Products in which a vector takes part, by names of their own; ``matmul`` is in ``linalg.py``."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import float32, float64
from ..errors import ShapeError
from ..kernels import machine
from ..kernels.cpu import matmul as kernels
from ..tensor import Tensor
from .autocasting import GPU, lowered, widest
from .base import Op, as_operand, new_empty
from .linalg import _mm, _operands, _ranked, plain_floats, product_of, times_vector
from .remembered import remembered

__all__ = ["dot", "inner", "mv", "outer"]


@remembered
def mv(x: Tensor, y: Tensor) -> Tensor:
    """The product of a matrix (n, k) and a vector (k)."""
    if machine.autocasting:
        x, y = lowered(x, y, on=GPU)
    _operands("mv", x, y)
    if x._array.ndim != 2 or y._array.ndim != 1 or x._array.shape[1] != y._array.shape[0]:
        raise ShapeError(
            f"mv: size mismatch, expected a matrix (n, k) and a vector (k), got "
            f"{list(x._array.shape)} and {list(y._array.shape)}."
        )
    return product_of(x, y)


class Dot(Op, remembers=True):
    """The product of two vectors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        needs = ctx.needs_input_grad
        ctx.save(x if needs[1] else None, y if needs[0] else None)
        out = new_empty((), x._dtype, x._device)
        a, b = x._array[None], y._array[None]
        machine.launch(kernels.mm, out._array.reshape(1, 1), a, b, 0, 1, 0)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, y = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return g * y if needs[0] else None, g * x if needs[1] else None


@remembered
def dot(x: Tensor, y: Tensor) -> Tensor:
    """The sum of the products of the elements of two vectors."""
    if machine.autocasting:
        x, y = widest(x, y)
    _operands("dot", x, y)
    (n, m), ranks = (x._array.size, y._array.size), (x._array.ndim, y._array.ndim)
    if ranks != (1, 1):
        raise ShapeError(f"dot: 1D tensors expected, but got {ranks[0]}D and {ranks[1]}D tensors.")
    if n != m:
        raise ShapeError(
            f"dot: inconsistent tensor size, expected both vectors to have the same number of "
            f"elements, but got {n} and {m} elements respectively."
        )
    if plain_floats(x, y):
        return times_vector(x._array.reshape(1, n), y, ())
    if x._dtype.is_floating_point and n:
        return Dot.apply(x, y)
    return _mm("dot", x.unsqueeze(0), y.unsqueeze(1)).reshape(())


def are_floats(*tensors: Tensor) -> bool:
    """Whether all are of one dtype, float32 or float64."""
    dtype = tensors[0]._dtype
    return dtype in (float32, float64) and all([x._dtype is dtype for x in tensors])


class Outer(Op, remembers=True):
    """The products of the elements of two vectors of one floating dtype; gradient: two products of
    a matrix and a vector, where that of a broadcast would make two matrices and sum them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save(x, y)
        return x.unsqueeze(1) * y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, y = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return mv(g, y) if needs[0] else None, mv(g.t(), x) if needs[1] else None


@remembered
def outer(x: Tensor, y: Tensor) -> Tensor:
    """The matrix of the products of the elements of two vectors."""
    as_operand("outer", x)
    as_operand("outer", y, 1)
    _ranked("outer", 1, "must be a 1-D vector", x, y)
    if (
        are_floats(x, y)
        and (x._edge is not None or y._edge is not None)
        and not machine.is_recording()
    ):
        return Outer.apply(x, y)
    return x.unsqueeze(1) * y


@remembered
def inner(x: Tensor, y: Tensor) -> Tensor:
    """Sums of products along the last dimensions of both; with a number, a multiple."""
    as_operand("inner", x)
    as_operand("inner", y, 1)
    if machine.autocasting:
        x, y = lowered(x, y) if x.dim() > 1 or y.dim() > 1 else widest(x, y)
    if x._array.ndim == 0 or y._array.ndim == 0:
        return x * y
    _operands("inner", x, y)
    shapes = x._array.shape, y._array.shape
    k = shapes[0][-1]
    if k != shapes[1][-1]:
        raise ShapeError(
            f"inner: the last dimension must match on both input tensors but got shapes "
            f"{list(shapes[0])} and {list(shapes[1])}."
        )
    flat = x.reshape((math.prod(shapes[0][:-1]), k)), y.reshape((math.prod(shapes[1][:-1]), k))
    return _mm("inner", flat[0], flat[1].t()).reshape((*shapes[0][:-1], *shapes[1][:-1]))


METHODS = {name: globals()[name] for name in __all__}
