"""Gated linear units: ``glu``."""

from __future__ import annotations

import functools
from typing import Any

from ..errors import ShapeError
from ..kernels import formula as scalar
from ..kernels import machine
from ..kernels.formula import Formula
from ..kernels.loops import ElementwiseKernel
from ..tape import grad_mode
from ..tensor import Tensor
from .base import Op, as_operand, new_empty
from .from_formula import Elementwise
from .join import cat, chunk
from .remembered import remembered

__all__ = ["glu"]


class Gated(Elementwise):
    """x * sigmoid(gate): the two halves of glu."""

    result = "float"

    def formula(x, gate):
        return x * scalar.sigmoid(gate)

    def grad_x(g, gate):
        return g * scalar.sigmoid(gate)

    def grad_gate(g, x, gate):
        s = scalar.sigmoid(gate)
        return g * x * s * (1 - s)


@functools.cache
def _grads() -> ElementwiseKernel:
    """The gradients by both halves at once; of g, x and gate."""
    bodies = [Formula.from_function(f).body for f in (Gated.grad_x, Gated.grad_gate)]
    return ElementwiseKernel(*[Formula("glu_grad", ("g", "x", "gate"), body) for body in bodies])


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
            by_value, by_gate = [rule.apply for rule in Gated.op.rules]
            return cat([by_value(g, gate), by_gate(g, value, gate)], ctx.dim)
        gx = new_empty(x._array.shape, x._dtype, x._device)
        halves = *_halves(gx._array, ctx.dim), g._array, *_halves(x._array, ctx.dim)
        machine.launch(_grads(), *halves)
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
