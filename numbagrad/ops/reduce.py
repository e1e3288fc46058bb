"""Sums, means, products and tests of all elements or along dims; extremes are in extreme.py."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError
from ..kernels import machine
from ..kernels.cpu import reduce as kernels
from ..tensor import Tensor
from .argument_names import by_other_names
from .autocasting import BOTH, raised
from .axes import DTYPE_WORDS, Axes, axes, fold, once, spread
from .base import SHORT, Op, as_operand, contiguous
from .comparison import isnan, logical_not
from .elementwise import cast, masked_fill
from .remembered import remembered
from .scan import Recurrence

__all__ = ["all", "any", "count_nonzero", "mean", "nanmean", "nansum", "prod", "sum"]


ADD = (kernels.sum,)


def _few_in_order(x: Tensor) -> Tensor:
    """``x``, or a copy where it is a short vector with gaps, such as the diagonal of a matrix:
    planning costs more than copying."""
    if x._flat or x._array.ndim != 1 or x._array.size >= SHORT:
        return x
    if machine.recording and not machine.on_host(x):
        return x
    return contiguous(x)


def total(x: Tensor, where: Axes) -> Tensor:
    """The sum without history; int64 of ints and bools."""
    x, where, times = once(_few_in_order(x), where)
    if not x._dtype.is_floating_point:
        out = fold(x, where, dtypes.int64, ADD)
        return out if times == 1 else out * times
    last = None if times == 1 else (kernels.mean, 1 / times)
    return fold(x, where, x._dtype, ADD, ADD, last)


def average(x: Tensor, where: Axes) -> Tensor:
    """The mean without history."""
    x, where, _ = once(_few_in_order(x), where)
    return fold(x, where, x._dtype, ADD, ADD, (kernels.mean, where.n))


class Sum(Op, remembers=True):
    """The sum over some dims."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, where: Axes) -> Tensor:
        ctx.axes = where
        return total(x, where)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return spread(g, ctx.axes)


class Mean(Op, remembers=True):
    """The mean over some dims."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, where: Axes) -> Tensor:
        ctx.axes = where
        return average(x, where)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return spread(g * (1.0 / (ctx.axes.n or 1)), ctx.axes)


class Prod(Op, remembers=True):
    """The product over one dim, or all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, where: Axes, dtype: DType) -> Tensor:
        ctx.axes = where
        ctx.save(x)
        return fold(x, where, dtype, (kernels.prod,))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        # Of each element the product of those before and of those after: right with zeros.
        (x,) = ctx.saved_tensors
        form = ctx.axes.groups[0]
        before = Recurrence.apply(x, None, form, 1.0, False)
        after = Recurrence.apply(x, None, form, 1.0, True)
        return spread(g, ctx.axes) * before * after


@remembered
def sum(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, **names: Any
) -> Tensor:
    """The sum of all elements, or over ``dim``: an int or a tuple of ints.

    Ints and bools give int64; float32 is added by fours, then in float64. dtype: convert first.
    Gradient: g, repeated over the summed dims. Raises IndexError if dim is out of range.

    >>> sum(tensor([[1.0, 2.0], [3.0, 4.0]]), 0).tolist()
    [4.0, 6.0]
    """
    if names:
        return by_other_names(sum, names, x, dim, keepdim, dtype=dtype)
    if machine.autocasting:
        (x,) = raised(x)
    where = axes("sum", as_operand("sum", x), dim, keepdim)
    if dtype is not None:
        dtype = dtypes.to_dtype(dtype)
        if dtype.is_floating_point or dtype is dtypes.int64:
            x = cast(x, dtype)
        else:  # sums of small ints wrap as their dtype does
            return cast(Sum.apply(cast(x, dtypes.int64), where), dtype)
    return total(x, where) if x._edge is None else Sum.apply(x, where)


@remembered
def mean(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, **names: Any
) -> Tensor:
    """The mean of all elements, or over ``dim``: an int or a tuple of ints.

    Gradient: g / n, repeated. NaN where there are no elements. Raises DTypeError for ints and
    bools unless a floating ``dtype`` is given.

    >>> mean(tensor([1.0, 2.0, 6.0])).item()
    3.0
    """
    if names:
        return by_other_names(mean, names, x, dim, keepdim, dtype=dtype)
    where = axes("mean", as_operand("mean", x), dim, keepdim)
    if dtype is not None:
        x = cast(x, dtypes.to_dtype(dtype))
    if not x._dtype.is_floating_point:
        raise DTypeError(
            f"mean: could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {DTYPE_WORDS[x._dtype.name]}. Convert with x.float(), or pass "
            f"dtype=ng.float32."
        )
    return average(x, where) if x._edge is None else Mean.apply(x, where)


@remembered
def prod(
    x: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None, **names: Any
) -> Tensor:
    """The product of all elements, or along ``dim``; 1 where there are none.

    Ints and bools give int64. Gradient: g times the product of the other elements, exact also
    where some are zero, at every order. Raises IndexError if dim is out of range.

    >>> prod(tensor([2.0, 3.0, 4.0])).item()
    24.0
    """
    if names:
        return by_other_names(prod, names, x, dim, keepdim, dtype=dtype)
    if machine.autocasting:
        (x,) = raised(x, on=BOTH)
    if isinstance(dim, (tuple, list)):
        raise TypeError(f"prod: dim must be an int or None, got {dim!r}. Reduce one dim at a time.")
    where = axes("prod", as_operand("prod", x), dim, keepdim)
    if dtype is not None:
        x = cast(x, dtypes.to_dtype(dtype))
    out = x._dtype if x._dtype.is_floating_point or dtype is not None else dtypes.int64
    return Prod.apply(x, where, out)


@remembered
def any(x: Tensor, dim: Any = None, keepdim: bool = False, **names: Any) -> Tensor:
    """Whether any element is not zero; a bool (for uint8, as in PyTorch, uint8).

    >>> any(tensor([0.0, 2.0])).item()
    True
    """
    if names:
        return by_other_names(any, names, x, dim, keepdim)
    where = axes("any", as_operand("any", x), dim, keepdim)
    return _as_truth(x, fold(x, where, dtypes.bool_, (kernels.any,)))


@remembered
def all(x: Tensor, dim: Any = None, keepdim: bool = False, **names: Any) -> Tensor:
    """Whether no element is zero; a bool (for uint8, as in PyTorch, uint8).

    >>> all(tensor([0.0, 2.0])).item()
    False
    """
    if names:
        return by_other_names(all, names, x, dim, keepdim)
    where = axes("all", as_operand("all", x), dim, keepdim)
    return _as_truth(x, fold(x, where, dtypes.bool_, (kernels.all,)))


def _as_truth(x: Tensor, out: Tensor) -> Tensor:
    return cast(out, dtypes.uint8) if x._dtype is dtypes.uint8 else out


@remembered
def count_nonzero(x: Tensor, dim: Any = None) -> Tensor:
    """How many elements are not zero, as int64.

    >>> count_nonzero(tensor([0.0, 2.0, 3.0])).item()
    2
    """
    where = axes("count_nonzero", as_operand("count_nonzero", x), dim)
    return fold(x, where, dtypes.int64, (kernels.count_nonzero,), ADD)


@remembered
def nansum(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum, counting NaN as zero.

    >>> nansum(tensor([1.0, float("nan")])).item()
    1.0
    """
    if as_operand("nansum", x)._dtype.is_floating_point:
        if (
            x._edge is None
            and dtype is None
            and not (machine.is_recording() or machine.autocasting)
        ):
            return fold(x, axes("nansum", x, dim, keepdim), x._dtype, (kernels.nansum,), ADD)
        x = masked_fill(x, isnan(x), 0.0)
    return sum(x, dim, keepdim, dtype=dtype)


@remembered
def nanmean(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Tensor:
    """The mean of the elements that are not NaN. dtype: they are converted before.

    >>> nanmean(tensor([1.0, float("nan")])).item()
    1.0
    """
    count = sum(logical_not(isnan(as_operand("nanmean", x))), dim, keepdim)
    return nansum(x, dim, keepdim, dtype=dtype) / count


METHODS: dict[str, Any] = {
    "all": all,
    "any": any,
    "count_nonzero": count_nonzero,
    "mean": mean,
    "nanmean": nanmean,
    "nansum": nansum,
    "prod": prod,
    "sum": sum,
}
