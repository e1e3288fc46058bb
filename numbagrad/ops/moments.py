"""Variance, standard deviation and norms."""

from __future__ import annotations

import math
from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import reduce as kernels
from ..kernels.halves import arithmetic
from ..kernels.shares import pieces
from ..tensor import Tensor
from .argument_names import by_other_names
from .autocasting import raised
from .axes import DTYPE_WORDS, Axes, axes, fold, joined, spread
from .base import Op, as_operand, new_empty, zeros_like
from .comparison import eq
from .elementwise import abs, cast, masked_fill, sign, sqrt
from .extreme import ties
from .reduce import Mean, Sum, mean
from .remembered import remembered

__all__ = ["norm", "std", "std_mean", "var", "var_mean"]


class Var(Op, remembers=True):
    """The mean square distance from the mean, by two passes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, where: Axes, correction: float) -> Tensor:
        ctx.axes, ctx.divisor = where, divisor(where, correction)
        ctx.save(x)
        return variance(x, where, ctx.divisor)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return variance_grad(g, x, ctx.axes, ctx.divisor)


class Std(Op, remembers=True):
    """The root of the variance."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, where: Axes, correction: float) -> Tensor:
        ctx.axes, ctx.divisor = where, divisor(where, correction)
        # The square of what a half holds may be more than it does.
        kind = dtypes.float32 if x._dtype in dtypes.HALVES else x._dtype
        out = cast(sqrt(variance(x, where, ctx.divisor, kind)), x._dtype)
        ctx.save(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, out = ctx.saved_tensors
        zero = eq(out, 0.0)
        g = masked_fill(g / (2.0 * masked_fill(out, zero, 1.0)), zero, 0.0)
        return variance_grad(g, x, ctx.axes, ctx.divisor)


def divisor(where: Axes, correction: float) -> float:
    """What the sum of squares is divided by."""
    return float(max(where.n - correction, 0))


def variance(x: Tensor, where: Axes, divisor: float, dtype: DType | None = None) -> Tensor:
    """The variance of ``x``, in its dtype or another; no history."""
    out = new_empty(where.out, x._dtype if dtype is None else dtype, x._device)
    if out._array.size == 0:
        return out
    x3 = joined(x, where)
    outer, n, inner = x3.shape
    cut = pieces(outer, n, inner)
    wide = arithmetic(x3.dtype)
    center = machine.empty((outer, 1, inner), wide, x._device)
    out3 = out._array.reshape((outer, 1, inner))
    if cut == 1:
        machine.launch(kernels.mean, center, x3, n)
        machine.launch(kernels.squares, out3, x3, center, divisor)
    else:
        partial = machine.empty((outer, cut, inner), wide, x._device)
        machine.launch(kernels.sum, partial, x3)
        machine.launch(kernels.mean, center, partial, n)
        machine.launch(kernels.squares, partial, x3, center, 1.0)
        machine.launch(kernels.mean, out3, partial, divisor)
    return out


@remembered
def variance_grad(g: Tensor, x: Tensor, where: Axes, divisor: float) -> Tensor:
    """2 / divisor (x - mean) g."""
    centered = x - Mean.apply(x, where.keeping())
    return centered * spread(g * (2.0 / divisor if divisor else math.nan), where)


def _arguments(
    name: str, x: Tensor, dim: Any, unbiased: bool, keepdim: bool, correction: float | None
) -> tuple[Axes, float]:
    if not as_operand(name, x)._dtype.is_floating_point:
        raise DTypeError(
            f"{name}: std and var only support floating point and complex dtypes. Got "
            f"{DTYPE_WORDS[x._dtype.name]}; convert with x.float()."
        )
    if isinstance(dim, bool):  # var(x, False) is var(x, unbiased=False)
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased else 0
    return axes(name, x, dim, keepdim), correction


@remembered
def var(
    x: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    **names: Any,
) -> Tensor:
    """The variance over all elements, or over ``dim``: an int or a tuple of ints.

    The sum of squared distances from the mean, divided by n - correction (1, or 0 with
    unbiased=False). Gradient: ``2 / (n - correction) (x - mean) g``. Raises DTypeError for ints.

    >>> var(tensor([1.0, 2.0, 3.0])).item()
    1.0
    """
    if names:
        return by_other_names(var, names, x, dim, unbiased, keepdim, correction=correction)
    where, correction = _arguments("var", x, dim, unbiased, keepdim, correction)
    return Var.apply(x, where, correction)


@remembered
def std(
    x: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
    **names: Any,
) -> Tensor:
    """The root of ``var``. Gradient: 0 where all elements are equal.

    >>> std(tensor([1.0, 2.0, 3.0])).item()
    1.0
    """
    if names:
        return by_other_names(std, names, x, dim, unbiased, keepdim, correction=correction)
    where, correction = _arguments("std", x, dim, unbiased, keepdim, correction)
    return Std.apply(x, where, correction)


@remembered
def var_mean(
    x: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """``(var(x), mean(x))`` over the same dims.

    >>> [t.item() for t in var_mean(tensor([1.0, 2.0, 3.0]))]
    [1.0, 2.0]
    """
    out = var(x, dim, unbiased, keepdim, correction=correction)
    return out, mean(x, None if isinstance(dim, bool) else dim, keepdim)


@remembered
def std_mean(
    x: Tensor,
    dim: Any = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:
    """``(std(x), mean(x))`` over the same dims.

    >>> [t.item() for t in std_mean(tensor([1.0, 2.0, 3.0]))]
    [1.0, 2.0]
    """
    out = std(x, dim, unbiased, keepdim, correction=correction)
    return out, mean(x, None if isinstance(dim, bool) else dim, keepdim)


class Norm(Op, remembers=True):
    """The p-norm over some dims: 0 counts elements, the infinities give extreme magnitudes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, where: Axes, p: float) -> Tensor:
        ctx.axes, ctx.p = where, p
        if p == 0:
            count = fold(x, where, dtypes.int64, (kernels.count_nonzero,), (kernels.sum,))
            return cast(count, x._dtype)
        special = {
            1.0: kernels.norm1,
            2.0: kernels.norm2,
            3.0: kernels.norm3,
            math.inf: kernels.abs_amax,
            -math.inf: kernels.abs_amin,
        }
        stage = (special[p],) if p in special else (kernels.norm, p)
        out = fold(x, where, x._dtype, stage)
        ctx.save(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor | None:
        if ctx.p == 0:
            return zeros_like(spread(g, ctx.axes))
        x, out = ctx.saved_tensors
        return _norm_grad(g, x, out, ctx.axes, ctx.p)


@remembered
def _norm_grad(g: Tensor, x: Tensor, out: Tensor, where: Axes, p: float) -> Tensor:
    """The gradient of ``Norm``, as differentiable functions."""
    if p == 1:
        return sign(x) * spread(g, where)
    if math.isinf(p):
        mask = ties(abs(x.detach()), spread(out.detach(), where))
        count = Sum.apply(mask, where)
        return sign(x) * mask * spread(g / count, where)
    kind = x._dtype
    if kind in dtypes.HALVES:  # in which 1 / norm may be infinite, where x / norm is not
        g, out = cast(g, dtypes.float32), cast(out, dtypes.float32)
        x = x if p == 2 else cast(x, dtypes.float32)
    # Where the norm is 0 the gradient is 0; 1 stands in so that no order divides by it.
    zero = eq(out, 0.0)
    safe = masked_fill(out, zero, 1.0)
    if p == 2:
        return cast(x * spread(masked_fill(g / safe, zero, 0.0), where), kind)
    scale = masked_fill(g * safe ** (1.0 - p), zero, 0.0)
    if p == 3:
        return cast(x * abs(x) * spread(scale, where), kind)
    size = masked_fill(abs(x), eq(x, 0.0), 1.0)
    return cast(sign(x) * size ** (p - 1.0) * spread(scale, where), kind)


@remembered
def norm(
    x: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The p-norm of all elements, or over ``dim``: ``(sum |x|**p) ** (1/p)``.

    p: a number, ``inf``, ``-inf``, 0 (how many are not zero) or "fro", which is 2. Gradient: 0
    where the norm is 0; of an infinity, shared by ties. Raises DTypeError for ints.

    >>> norm(tensor([3.0, 4.0])).item()
    5.0
    """
    if machine.autocasting:
        (x,) = raised(x)
    if dtype is not None:
        x = cast(as_operand("norm", x), dtypes.to_dtype(dtype))
    if not as_operand("norm", x)._dtype.is_floating_point:
        raise DTypeError(
            f"norm: linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{DTYPE_WORDS[x._dtype.name]}. Convert with x.float()."
        )
    if p == "nuc":
        from .lapack_norm import matrix_norm

        return matrix_norm(x, p, (-2, -1) if dim is None else dim, keepdim)
    if p is None or p == "fro":
        p = 2
    if isinstance(p, str):
        raise ValueError(f"norm: p must be a number or 'fro', got {p!r}; see ng.linalg.norm.")
    where = axes("norm", x, dim, keepdim)
    if where.n == 0 and (math.isinf(p) or p < 0):
        raise ShapeError(
            f"norm: linalg.vector_norm cannot compute the {float(p)} norm on an empty tensor "
            f"because the operation does not have an identity. Received shape {list(x.shape)}."
        )
    return Norm.apply(x, where, float(p))


METHODS: dict[str, Any] = {"norm": norm, "std": std, "var": var}
