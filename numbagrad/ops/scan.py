"""Running sums, products and extremes along one dim."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import scan as kernels
from ..tensor import Tensor
from .autocasting import raised
from .axes import Place, form_along
from .base import Op, as_operand, contiguous, new_empty
from .comparison import logical_xor
from .elementwise import cast, exp, where
from .join import cat
from .part import narrow
from .remembered import remembered

__all__ = ["cummax", "cummin", "cumprod", "cumsum", "diff", "logcumsumexp"]


class CumSum(Op, remembers=True):
    """Running sums along ``form``'s middle axis, from the end if ``reverse``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, form: Any, reverse: bool, dtype: DType) -> Tensor:
        ctx.form, ctx.reverse = form, reverse
        out = new_empty(x._array.shape, dtype, x._device)
        if out._array.size:
            x3 = contiguous(x)._array.reshape(form)
            machine.launch(kernels.cumsum, out._array.reshape(form), x3, reverse)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return CumSum.apply(g, ctx.form, not ctx.reverse, g._dtype)


class Recurrence(Op, remembers=True):
    """out[0] = start, out[j] = a[j-1] out[j-1] + b[j-1] along ``form``; b None stands for zeros.

    Its gradient is a recurrence in the other direction, so products have exact derivatives of any
    order where factors are zero.
    """

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, b: Tensor | None, form: Any, start: float, reverse: bool
    ) -> Tensor:
        ctx.form, ctx.reverse = form, reverse
        out = new_empty(a._array.shape, a._dtype, a._device)
        ctx.save(a, out)
        if out._array.size:
            a3 = contiguous(a)._array.reshape(form)
            b3 = a3 if b is None else contiguous(b)._array.reshape(form)
            out3 = out._array.reshape(form)
            machine.launch(kernels.recurrence, out3, a3, b3, b is not None, float(start), reverse)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        a, out = ctx.saved_tensors
        gb = Recurrence.apply(a, g, ctx.form, 0.0, not ctx.reverse)
        return gb * out, gb


class CumProd(Op, remembers=True):
    """Running products along ``form``'s middle axis."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, form: Any, dtype: DType) -> Tensor:
        ctx.form = form
        ctx.save(x)
        out = new_empty(x._array.shape, dtype, x._device)
        if out._array.size:
            x3 = contiguous(x)._array.reshape(form)
            machine.launch(kernels.cumprod, out._array.reshape(form), x3)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        before = Recurrence.apply(x, None, ctx.form, 1.0, False)
        after = Recurrence.apply(x, x * g, ctx.form, 0.0, True)
        return before * (g + after)


class LogCumSumExp(Op, remembers=True):
    """Logarithms of running sums of exponentials along ``form``'s middle axis.

    Gradient: ``exp(x - out)`` times a recurrence from the end, whose factors
    ``exp(out[j] - out[j + 1])`` are at most 1: nothing overflows, and it differentiates again.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, form: Any, dim: int) -> Tensor:
        ctx.form, ctx.dim = form, dim
        out = new_empty(x._array.shape, x._dtype, x._device)
        ctx.save(x, out)
        if out._array.size:
            x3 = contiguous(x)._array.reshape(form)
            machine.launch(kernels.logcumsumexp, out._array.reshape(form), x3)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, out = ctx.saved_tensors
        if not out._array.size:
            return g
        out = where(out == -math.inf, 0.0, out)  # where x is -inf too, and has no part
        n = ctx.form[1]
        later = narrow(out, ctx.dim, min(1, n - 1), max(n - 1, 1))
        later = later if n == 1 else cat([later, narrow(out, ctx.dim, n - 1, 1)], ctx.dim)
        factor = exp(out - later)
        after = Recurrence.apply(factor, g, ctx.form, 0.0, True)
        return exp(x - out) * (g + factor * after)


class _Running(Op, remembers=True):
    """Values and indices of a running extreme; subclasses name the kernel."""

    kernel: Any

    @classmethod
    def of(cls, x: Tensor, form: Any) -> tuple[Tensor, Tensor]:
        values = new_empty(x._array.shape, x._dtype, x._device)
        indices = new_empty(x._array.shape, dtypes.int64, x._device)
        if values._array.size:
            x3 = contiguous(x)._array.reshape(form)
            v3, i3 = values._array.reshape(form), indices._array.reshape(form)
            machine.launch(cls.kernel, v3, i3, x3)
        return values, indices

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Tensor:
        (indices,) = ctx.saved_tensors
        return Place.apply(g, indices, ctx.form, g._array.shape)


class CumMax(_Running, remembers=True):
    """Running maxima along ``form``'s middle axis, and where they stand."""

    kernel = kernels.cummax

    @staticmethod
    def forward(ctx: Any, x: Tensor, form: Any) -> tuple:
        ctx.form = form
        values, indices = CumMax.of(x, form)
        ctx.save(indices)
        return values, indices


class CumMin(_Running, remembers=True):
    """Running minima along ``form``'s middle axis, and where they stand."""

    kernel = kernels.cummin

    @staticmethod
    def forward(ctx: Any, x: Tensor, form: Any) -> tuple:
        ctx.form = form
        values, indices = CumMin.of(x, form)
        ctx.save(indices)
        return values, indices


class Running(NamedTuple):
    """What cummax and cummin return."""

    values: Tensor
    indices: Tensor


def _accumulating(x: Tensor, dtype: Any) -> tuple[Tensor, DType]:
    """x cast to a chosen dtype; the dtype of its running sums, int64 for ints and bools."""
    if dtype is not None:
        x = cast(x, dtypes.to_dtype(dtype))
        return x, x._dtype
    return x, x._dtype if x._dtype.is_floating_point else dtypes.int64


@remembered
def cumsum(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running sums along ``dim``; ints and bools give int64.

    Gradient: the running sum of g from the end. Raises IndexError if dim is out of range.

    >>> cumsum(tensor([1.0, 2.0, 3.0]), 0).tolist()
    [1.0, 3.0, 6.0]
    """
    if machine.autocasting:
        (x,) = raised(x)
    form = form_along("cumsum", as_operand("cumsum", x)._array.shape, dim)
    x, dtype = _accumulating(x, dtype)
    return CumSum.apply(x, form, False, dtype)


@remembered
def cumprod(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running products along ``dim``; ints and bools give int64.

    Gradient: exact also where elements are zero. Raises IndexError if dim is out of range.

    >>> cumprod(tensor([2.0, 3.0]), 0).tolist()
    [2.0, 6.0]
    """
    if machine.autocasting:
        (x,) = raised(x)
    form = form_along("cumprod", as_operand("cumprod", x)._array.shape, dim)
    x, dtype = _accumulating(x, dtype)
    return CumProd.apply(x, form, dtype)


@remembered
def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """Logarithms of running sums of exponentials along ``dim``, without overflow.

    x: floating. Gradient: ``exp(x - out)`` times sums of g from the end, scaled. Raises IndexError
    if dim is out of range, DTypeError for ints.

    >>> logcumsumexp(tensor([0.0, -float("inf")]), 0).tolist()
    [0.0, 0.0]
    """
    shape = as_operand("logcumsumexp", x)._array.shape
    form = form_along("logcumsumexp", shape, dim)
    if not x._dtype.is_floating_point:
        raise DTypeError(f"logcumsumexp: not implemented for {x._dtype}. Convert with .float().")
    if not shape:
        return x.clone()
    return LogCumSumExp.apply(x, form, dim)


@remembered
def cummax(x: Tensor, dim: int) -> Running:
    """Running maxima along ``dim``, as ``(values, indices)``; the last of equals, NaN stays.

    Gradient: each g goes to the element its maximum came from.

    >>> cummax(tensor([1.0, 3.0, 2.0]), 0).indices.tolist()
    [0, 1, 1]
    """
    form = form_along("cummax", as_operand("cummax", x)._array.shape, dim)
    return Running(*CumMax.apply(x, form))


@remembered
def cummin(x: Tensor, dim: int) -> Running:
    """Running minima along ``dim``, as ``(values, indices)``; see ``cummax``.

    >>> cummin(tensor([2.0, 1.0, 3.0]), 0).values.tolist()
    [2.0, 1.0, 1.0]
    """
    form = form_along("cummin", as_operand("cummin", x)._array.shape, dim)
    return Running(*CumMin.apply(x, form))


@remembered
def diff(
    x: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Differences of neighbours along ``dim``, taken ``n`` times; ``cumsum`` undoes it.

    prepend, append: what stands before and after x along dim, of its other sizes.
    Raises IndexError if dim is out of range, ShapeError for negative n.

    >>> diff(tensor([1.0, 3.0, 6.0])).tolist()
    [2.0, 3.0]
    """
    if as_operand("diff", x).ndim == 0:
        raise ShapeError("diff: expects input to be at least one-dimensional. Use x.reshape(1).")
    form_along("diff", x._array.shape, dim)
    if n < 0:
        raise ShapeError(f"diff: order must be non-negative but got {n}.")
    if n == 0:
        return x.clone()
    beside = [part for part in (prepend, x, append) if part is not None]
    if len(beside) > 1:
        x = cat(beside, dim)
    for _ in range(n):
        size = max(x._array.shape[dim] - 1, 0)
        after = narrow(x, dim, min(1, x._array.shape[dim]), size)
        before = narrow(x, dim, 0, size)
        x = logical_xor(after, before) if x._dtype is dtypes.bool_ else after - before
    return x


METHODS: dict[str, Any] = {
    "cummax": cummax,
    "cummin": cummin,
    "cumprod": cumprod,
    "cumsum": cumsum,
    "diff": diff,
    "logcumsumexp": logcumsumexp,
}
INPLACE = {"cumsum_": cumsum, "cumprod_": cumprod}
