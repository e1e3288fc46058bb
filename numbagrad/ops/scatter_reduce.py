"""``scatter_reduce`` and ``index_reduce``: what meets in one place becomes one number.

Sums and means are made of ``scatter_add``; products and extremes have a kernel. Start reading at
``Join``.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import GradError
from ..kernels import machine
from ..kernels.cpu import index as kernels
from ..tape import grad_mode
from ..tensor import Tensor
from .base import Op, as_operand, normalize_dim, ones_like, zeros_like
from .comparison import eq
from .elementwise import cast, div, floor_divide, masked_fill, maximum, where
from .gather import (
    Scatter,
    _indexed,
    _leading,
    _source,
    gather,
    scatter_add,
    untouched,
    write_elements,
)
from .index import INTS, _flat_index, _slices, index_tensor, to_write
from .reduce import any as any_
from .remembered import remembered
from .view import expand, reshape

JOINS = {"prod": 1, "amax": 2, "amin": 3}
"""What the kernel calls them."""


class Join(Op, plain_notes=True):
    """A copy of ``x`` with each element of ``value`` multiplied in, or compared, at its place."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dim: int, index: Tensor, value: Tensor, how: str, name: str
    ) -> Tensor:
        out = to_write(x, index, value)
        write_elements(name, kernels.scatter_join, out, value, dim, index, JOINS[how])
        ctx.how = (dim, how, name)
        ctx.save(x, index, value, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple:
        x, index, value, out = ctx.saved_tensors
        dim, how, _ = ctx.how
        if how == "prod":
            gx, gvalue = _product_grads(ctx, g, x, index, value, out)
        else:
            gx, gvalue = _extreme_grads(g, dim, x, index, value, out)
        needs = ctx.needs_input_grad
        return gx if needs[0] else None, None, None, gvalue if needs[3] else None


def _extreme_grads(
    g: Tensor, dim: int, x: Tensor, index: Tensor, value: Tensor, out: Tensor
) -> tuple[Tensor, Tensor]:
    """Equals share the gradient."""
    ours = cast(eq(x, out), g._dtype)
    theirs = cast(eq(value, gather(out, dim, index)), g._dtype)
    share = g / maximum(scatter_add(ours, dim, index, theirs), 1)  # none is equal to a NaN
    return ours * share, theirs * gather(share, dim, index)


def _product_grads(
    ctx: Any, g: Tensor, x: Tensor, index: Tensor, value: Tensor, out: Tensor
) -> tuple[Any, Any]:
    """The product over each factor; a factor 0 that is alone in its place gets that of the others.

    With two zeros in a place all first derivatives there are 0, but not the second ones.
    """
    dim, how, name = ctx.how
    gx = gvalue = None
    if ctx.needs_input_grad[0]:
        factor = masked_fill(x, eq(x, 0), 1)
        gx = g * Join.apply(factor, dim, index, value, how, name) / factor
    if ctx.needs_input_grad[3]:
        zero = eq(value, 0)
        count = scatter_add(zeros_like(x), dim, index, cast(zero, x._dtype))
        alone = zero & eq(gather(count, dim, index), 1)
        if grad_mode.enabled:
            _refuse_zeros(name, count)
        others = Join.apply(x, dim, index, masked_fill(value, alone, 1), how, name)
        rest = gather(g * out, dim, index) / masked_fill(value, zero, 1)
        gvalue = where(alone, gather(g * others, dim, index), rest)
    return gx, gvalue


def _refuse_zeros(name: str, count: Tensor) -> None:
    """Raise where more than one zero was multiplied into one place."""
    found = cast(any_(count > 1), dtypes.int64) - 1

    def fail(_: int) -> None:
        raise GradError(
            f"{name}: Double backward is unsupported for src when more than one zero of src is "
            f"scattered to the same position. Use a sum of logarithms, or once_differentiable."
        )

    machine.check(found._array.reshape(1), fail)


def _limit(x: Tensor, how: str) -> Any:
    """What changes nothing when joined."""
    if how in ("sum", "mean", "prod"):
        return int(how == "prod")
    if x._dtype.is_floating_point:
        return float("-inf" if how == "amax" else "inf")
    info = dtypes.iinfo(x._dtype)
    return info.min if how == "amax" else info.max


def _reduced(
    name: str, x: Tensor, dim: int, index: Tensor, src: Tensor, how: str, include_self: bool
) -> Tensor:
    """index and src of one shape, checked."""
    start = x
    if not include_self:
        limit = _source(name, x, index, _limit(x, how))
        start = Scatter.apply(x, dim, index, limit, False, name)
    if how in JOINS:
        return Join.apply(start, dim, index, src, how, name)
    total = Scatter.apply(start, dim, index, src, True, name)
    if how == "sum":
        return total
    ones = ones_like(src).detach()
    here = ones_like(x) if include_self else zeros_like(x)
    count = maximum(scatter_add(here, dim, index, ones), 1)
    return div(total, count) if x._dtype.is_floating_point else floor_divide(total, count)


@remembered
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """``x`` with each ``src[i][j]`` joined to ``out[index[i][j]][j]`` for ``dim`` 0.

    reduce: "sum", "prod", "mean", "amax" or "amin" of all that meets in one place, in order;
    without include_self the element of ``x`` there does not count. index, int64, is no larger than
    src, nor than ``x`` but along dim. Gradients: equal extremes share it (in PyTorch even with an
    element of ``x`` that does not count); second ones of "prod" raise where two zeros of src meet.
    The mean of ints is rounded down.
    Raises IndexError for an index out of range.

    >>> scatter_reduce(tensor([1, 2]), 0, tensor([0, 0]), tensor([5, 3]), "amax").tolist()
    [5, 2]
    """
    if reduce not in ("sum", "mean", *JOINS):
        raise ValueError(
            f"scatter_reduce: reduce argument must be either sum, prod, mean, amax or amin, got "
            f"{reduce}."
        )
    dim, index, slices = _indexed("scatter_reduce", x, dim, index)
    if slices is not None:
        index = index_tensor("scatter_reduce", index, INTS)
    src = _source("scatter_reduce", x, index, as_operand("scatter_reduce", src, 3))
    if not index._array.size:
        return untouched(x, src)
    out = _reduced("scatter_reduce", _leading(x), dim, index, src, reduce, include_self)
    return out if x._array.ndim else reshape(out, ())


@remembered
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """``x`` with the slices of ``source`` joined to its slices ``index`` of ``dim``.

    reduce: "prod", "mean", "amax" or "amin"; otherwise as ``scatter_reduce``.

    >>> index_reduce(tensor([1, 2]), 0, tensor([0, 0]), tensor([5, 3]), "prod").tolist()
    [15, 2]
    """
    if reduce not in ("mean", *JOINS):
        raise ValueError(
            f"index_reduce: reduce argument must be either prod, mean, amax or amin, got {reduce}."
        )
    dim = normalize_dim("index_reduce", dim, as_operand("index_reduce", x)._array.ndim)
    index = _flat_index("index_reduce", index)
    source = _slices("index_reduce", x, dim, index, source)
    if not source._array.size:
        return untouched(x, source)
    sizes = [1] * source._array.ndim
    sizes[dim] = index._array.size
    index = expand(reshape(index, sizes), source._array.shape).contiguous()
    out = _reduced("index_reduce", _leading(x), dim, index, source, reduce, include_self)
    return out if x._array.ndim else reshape(out, ())


_PUBLIC = ("index_reduce", "scatter_reduce")
__all__ = [*_PUBLIC]

METHODS: dict[str, Any] = {name: globals()[name] for name in _PUBLIC}
INPLACE: dict[str, Any] = {f"{name}_": globals()[name] for name in _PUBLIC}
