"""Gated linear units: ``glu``."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..kernels import formula as scalar
from ..kernels import machine
from ..kernels.loops import ElementwiseKernel
from ..tape import grad_mode
from ..tensor import Tensor
from .activation import Gated
from .base import Op, as_operand, new_empty
from .elementwise import sigmoid
from .join import cat, chunk
from .remembered import remembered

__all__ = ["glu"]


def value_grad(g, value, gate):
    """The gradient by the first half."""
    return g * scalar.sigmoid(gate)


def gate_grad(g, value, gate):
    """The gradient by the second half."""
    share = scalar.sigmoid(gate)
    return g * value * share * (1 - share)


_GRADS = ElementwiseKernel(*map(scalar.Formula.from_function, (value_grad, gate_grad)))


class Glu(Op, remembers=True):
    """The first half along a dimension times the sigmoid of the second."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        ctx.save(x)
        ctx.dim = dim
        value, gate = _halves(x._array, dim)
        out = new_empty(value.shape, x._dtype, x._device)
        machine.launch(Gated.op.kernel, out._array, value, gate)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        if grad_mode.enabled or machine.is_compiling():
            value, gate = chunk(x, 2, ctx.dim)
            share = sigmoid(gate)
            by_value = g * share
            return cat([by_value, by_value * value * (1 - share)], ctx.dim)
        gx = new_empty(x._array.shape, x._dtype, x._device)
        halves = *_halves(gx._array, ctx.dim), g._array, *_halves(x._array, ctx.dim)
        machine.launch(_GRADS, *halves)
        return gx


def _halves(array: Any, dim: int) -> tuple[Any, Any]:
    """Views of the first and the second half along ``dim``."""
    step = array.itemsize
    strides = tuple([s // step for s in array.strides])
    shape = list(array.shape)
    shape[dim] //= 2
    first = machine.view(array, tuple(shape), strides, 0)
    return first, machine.view(array, tuple(shape), strides, shape[dim] * strides[dim])


@remembered
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along ``dim`` times the sigmoid of the second (Dauphin et al., 2017).

    Raises ShapeError for a 0-d tensor, ValueError where the size along ``dim`` is odd.

    >>> glu(tensor([3.0, 1.0, 0.0, 0.0])).tolist()
    [1.5, 0.5]
    """
    if not as_operand("glu", input)._array.ndim:
        raise ShapeError("glu: does not support 0-dimensional tensors; there are no halves.")
    size = input.size(dim)
    if size % 2:
        raise ValueError(
            f"glu: Halving dimension must be even, but dimension {dim} is size {size}."
        )
    if machine.is_compiling() or not input._dtype.is_floating_point:
        # A compiled step has one loop for what the halves come from and where they go.
        return Gated.function(*chunk(input, 2, dim))
    return Glu.apply(input, dim % input._array.ndim)
