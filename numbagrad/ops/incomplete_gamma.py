"""The regularised incomplete gamma functions ``igamma`` and ``igammac``, with both gradients."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import DTypeError
from ..kernels.cpu import draws as kernels
from ..tensor import Tensor
from .base import Op, as_operand, broadcast_shape
from .comparison import eq
from .elementwise import cast, exp, where
from .gamma import lgamma
from .remembered import remembered
from .sampling import StandardGammaGrad, filled
from .special import xlogy
from .view import expand

__all__ = ["igamma", "igammac"]


class IncompleteGamma(Op, plain_notes=True):
    """The lower one, or the upper one; of tensors of one shape and dtype."""

    @staticmethod
    def forward(ctx: Any, shape: Tensor, x: Tensor, upper: bool) -> Tensor:
        ctx.save(shape, x)
        ctx.upper = upper
        return filled(kernels.gammainc, (shape, x), upper)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        shape, x = ctx.saved_tensors
        density = (-g if ctx.upper else g) * exp(xlogy(shape - 1, x) - x - lgamma(shape))
        gshape = None
        if ctx.needs_input_grad[0]:
            slope = StandardGammaGrad.apply(shape, x, False)
            gshape = where(eq(x, 0), 0.0, -density * slope)
        return gshape, density


def _of_any(name: str, x: Tensor, y: Tensor, upper: bool) -> Tensor:
    """``IncompleteGamma`` of tensors that broadcast, in the dtype that holds both."""
    given = []
    for i, value in enumerate((x, y)):
        given.append((as_operand(name, value, i)._dtype, 2 if value._array.ndim else 1))
    dtype = dtypes.result_type(given)
    if not dtype.is_floating_point:
        raise DTypeError(f"{name}: not implemented for {dtype}. Convert one of them with .float().")
    wanted = broadcast_shape(name, x._array.shape, y._array.shape)
    both = [t if t._array.shape == wanted else expand(t, wanted) for t in (x, y)]
    return IncompleteGamma.apply(*[cast(t, dtype) for t in both], upper)


@remembered
def igamma(x: Tensor, y: Tensor) -> Tensor:
    """The chance that a gamma number of shape ``x`` and scale 1 is at most ``y``.

    The regularised lower incomplete gamma function, of tensors that broadcast; NaN where one is
    negative or both are 0, or infinite. Gradients: by both, which PyTorch has by the second alone;
    the second by ``x`` raises NotImplementedError. Raises DTypeError unless one is floating.

    >>> round(igamma(tensor([1.0]), tensor([1.0])).item(), 4)
    0.6321
    """
    return _of_any("igamma", x, y, False)


@remembered
def igammac(x: Tensor, y: Tensor) -> Tensor:
    """The chance that a gamma number of shape ``x`` and scale 1 is more than ``y``.

    The regularised upper incomplete gamma function, ``1 - igamma(x, y)`` with all digits where that
    is small. Gradients and errors: as ``igamma``.

    >>> igammac(tensor([1.0]), tensor([50.0])).item() - math.exp(-50) < 1e-27
    True
    """
    return _of_any("igammac", x, y, True)


METHODS: dict[str, Any] = {"igamma": igamma, "igammac": igammac}
INPLACE: dict[str, Any] = {"igamma_": igamma, "igammac_": igammac}
