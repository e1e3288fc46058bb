"""``ng.poisson`` and ``ng.binomial``: drawn by ``sampling.py``, checked as PyTorch checks them."""

from __future__ import annotations

from typing import Any

from ..errors import DTypeError, GradError, ShapeError
from ..kernels import machine
from ..random import Generator
from ..tensor import Tensor
from .base import Op, as_operand, zeros_like
from .sampling import draw_binomial, draw_poisson
from .view import broadcast_tensors

__all__ = ["binomial", "poisson"]


class Poisson(Op):
    """Counts; how they move with their rate is unknown, and taken for nothing."""

    @staticmethod
    def forward(ctx: Any, rate: Tensor, generator: Any) -> Tensor:
        return draw_poisson(rate, generator=generator)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return zeros_like(g)


class Binomial(Op):
    """Counts without a gradient."""

    @staticmethod
    def forward(ctx: Any, count: Tensor, p: Tensor, generator: Any) -> Tensor:
        return draw_binomial(count, p, generator=generator)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        raise GradError("binomial: the derivative is not implemented. Detach count and prob.")


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """A Poisson count for each rate in ``input``, in its shape and dtype.

    Gradient: zeros. Raises DTypeError for ints, ShapeError if a rate is negative or NaN; in a
    compiled step, which does not look, such a rate gives NaN.

    >>> poisson(ng.zeros(2)).tolist()
    [0.0, 0.0]
    """
    dtype = as_operand("poisson", input)._dtype
    if not dtype.is_floating_point:
        raise DTypeError(f"poisson: not implemented for {dtype}. Convert the rates with .float().")
    if not machine.is_recording() and not bool(input.detach().ge(0).all()):
        raise ShapeError(
            "poisson: invalid Poisson rate, expected rate to be non-negative. Use rate.clamp(0)."
        )
    return Poisson.apply(input, generator)


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of ``count`` draws succeed, each with chance ``prob``; tensors that broadcast.

    NaN where count is negative or prob outside of [0, 1]. Backward raises GradError. Raises
    DTypeError unless both are of one floating dtype.

    >>> binomial(tensor([3.0, 5.0]), tensor([1.0])).tolist()
    [3.0, 5.0]
    """
    as_operand("binomial", count)
    as_operand("binomial", prob, 1)
    for name, value in (("count", count), ("prob", prob)):
        if not value._dtype.is_floating_point:
            raise ValueError(
                f"binomial: only supports floating-point dtypes for {name}, got {value._dtype}. "
                f"Convert it with .float()."
            )
    if count._dtype is not prob._dtype:
        raise DTypeError(
            f"binomial: Found dtype {prob._dtype} of prob but expected {count._dtype}, that of "
            f"count. Convert one of them."
        )
    return Binomial.apply(*broadcast_tensors(count, prob), generator)
