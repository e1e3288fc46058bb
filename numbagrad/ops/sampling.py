"""What distributions draw beyond uniform and normal numbers, element by element of parameters.

Counts are drawn here without a check and without a history; ``counts.py`` has ``ng.poisson`` and
``ng.binomial``, which are these with both.

``standard_gamma`` has a gradient by its shape, by implicit differentiation (Figurnov, Mohamed,
Mnih, NeurIPS 2018): of F(a, x) = u, where u is the quantile drawn, ``dx/da = -(dF/da) / p``.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import DTypeError
from ..kernels.cpu import draws as kernels
from ..random import Generator
from ..tensor import Tensor
from .base import Op, contiguous, launch, new_empty, reshaped
from .elementwise import cast
from .random import state_for

__all__ = ["draw_binomial", "draw_poisson", "standard_gamma"]


def filled(kernel: Any, inputs: tuple[Tensor, ...], *scalars: Any) -> Tensor:
    """What ``kernel`` makes of inputs of one shape and dtype; halves by way of float32."""
    first = inputs[0]
    dtype = first._dtype
    if not dtype.is_floating_point:
        raise DTypeError(
            f"{kernel.__name__}: not implemented for {dtype}. Convert the parameters with .float()."
        )
    if dtype in dtypes.HALVES:
        wide = tuple([cast(x, dtypes.float32) for x in inputs])
        return cast(filled(kernel, wide, *scalars), dtype)
    out = new_empty(first._array.shape, dtype, first._device)
    if first._array.size:
        flat = [reshaped(contiguous(x), (-1,)) for x in inputs]
        launch(kernel, reshaped(out, (-1,)), *flat, *scalars)
    return out


class StandardGamma(Op):
    """Gamma numbers of scale 1, or their logarithms."""

    @staticmethod
    def forward(ctx: Any, shape: Tensor, state: Any, logarithm: bool) -> Tensor:
        out = filled(kernels.standard_gamma, (shape,), state, logarithm)
        ctx.save(shape, out)
        ctx.logarithm = logarithm
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * StandardGammaGrad.apply(*ctx.saved_tensors, ctx.logarithm)


class StandardGammaGrad(Op):
    """The derivative of gamma numbers, or their logarithms, by their shape; has none itself."""

    @staticmethod
    def forward(ctx: Any, shape: Tensor, x: Tensor, logarithm: bool) -> Tensor:
        return filled(kernels.standard_gamma_grad, (shape, x), logarithm)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        raise NotImplementedError(
            "standard_gamma: the second derivative by the shape is not implemented. Take the "
            "shape's gradient without create_graph=True, or detach the shape."
        )


def standard_gamma(
    shape: Tensor, *, logarithm: bool = False, generator: Generator | None = None
) -> Tensor:
    """A gamma number of scale 1 for each element of ``shape``; NaN where that is not positive.

    logarithm: their logarithms, which small shapes need: most numbers of shape 0.01 are too small
    for a float32, and come out as the least normal one. Gradient: by implicit differentiation,
    accurate to 1e-9 of its value; the second raises NotImplementedError.

    >>> import numbagrad as ng
    >>> standard_gamma(ng.full((2, 3), 4.0)).shape
    ng.Size([2, 3])
    """
    return StandardGamma.apply(shape, state_for(generator, shape._array.size, 4), logarithm)


def draw_poisson(rate: Tensor, *, generator: Generator | None = None) -> Tensor:
    """A Poisson count for each element of ``rate``, in its dtype; NaN where that is negative.

    >>> import numbagrad as ng
    >>> draw_poisson(ng.zeros(2)).tolist()
    [0.0, 0.0]
    """
    rate = rate.detach()
    return filled(kernels.poisson, (rate,), state_for(generator, rate._array.size, 4))


def draw_binomial(count: Tensor, p: Tensor, *, generator: Generator | None = None) -> Tensor:
    """How many of ``count`` draws succeed, each with probability ``p``: of one shape and dtype.

    >>> import numbagrad as ng
    >>> draw_binomial(ng.tensor([3.0, 3.0]), ng.tensor([0.0, 1.0])).tolist()
    [0.0, 3.0]
    """
    count, p = count.detach(), p.detach()
    return filled(kernels.binomial, (count, p), state_for(generator, count._array.size, 4))
