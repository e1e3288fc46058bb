"""Maxima and minima, and where they stand.

Over all elements, or by ``amax`` and ``amin``, ties share the gradient; ``max(x, dim)`` gives it
to the one element whose index it returns: the first, and the first NaN before all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import dtypes
from ..errors import DimError, DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import along
from ..kernels.cpu import reduce as kernels
from ..kernels.cuda.runtime.array import DeviceArray
from ..kernels.shares import pieces
from ..tensor import Tensor
from .argument_names import by_other_names
from .axes import Axes, Place, axes, fold, in_memory_order, spread
from .base import Op, as_operand, contiguous, new_empty
from .elementwise import maximum, minimum
from .from_formula import Elementwise
from .reduce import Sum
from .remembered import remembered

__all__ = ["amax", "amin", "aminmax", "argmax", "argmin", "max", "min"]


class Extreme(NamedTuple):
    """What max and min along a dim return."""

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """What aminmax returns."""

    min: Tensor
    max: Tensor


class Ties(Elementwise):
    """1 where x is the extreme ``out``, else 0."""

    result = "float"

    def formula(x, out):
        return 1.0 if x == out or (x != x and out != out) else 0.0


ties = Ties.function


class Amax(Op, remembers=True):
    """The largest element over some dims; Amin with its kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, where: Axes, kernel: Any) -> Tensor:
        ctx.axes = where
        out = fold(x, where, x._dtype, (kernel,))
        ctx.save(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, out = ctx.saved_tensors
        return _amax_grad(g, x, out, ctx.axes)


@remembered
def _amax_grad(g: Tensor, x: Tensor, out: Tensor, where: Axes) -> Tensor:
    """The gradient of ``Amax``, as differentiable functions."""
    mask = ties(x.detach(), spread(out.detach(), where))
    count = Sum.apply(mask, where)
    return mask * spread(g / count, where)


class Amin(Amax):
    """The smallest element over some dims."""


def _over(op: type[Amax], x: Tensor, where: Axes, kernel: Any) -> Tensor:
    if x._edge is None:  # no node would be made: then an op costs 1.5 us for nothing
        return fold(x, where, x._dtype, (kernel,))
    return op.apply(x, where, kernel)


def find(x: Tensor, where: Axes, kernel: Any) -> tuple[Tensor, Tensor]:
    """Values and indices of the extremes along the one group of ``where``."""
    values = new_empty(where.out, x._dtype, x._device)
    indices = new_empty(where.out, dtypes.int64, x._device)
    if indices._array.size:
        if len(where.dims) == 1 and not x._flat:  # an index over several dims counts in x's order
            x, where = in_memory_order(x, where)
        form = where.groups[0]
        outer, _, inner = form
        best, at = values._array.reshape((outer, 1, inner)), indices._array
        at = at.reshape(best.shape)
        x3 = contiguous(x)._array.reshape(form)
        cut = pieces(*form)
        if cut == 1:
            machine.launch(kernel, best, at, x3)
        else:
            partial = machine.empty((outer, cut, inner), x3.dtype, x._device)
            places = machine.empty((outer, cut, inner), at.dtype, x._device)
            which = machine.empty(best.shape, at.dtype, x._device)
            machine.launch(kernel, partial, places, x3)
            machine.launch(kernel, best, which, partial)
            machine.launch(along.pick, at, places, which)
    return values, indices


class Max(Op, remembers=True):
    """The largest along one dim and its index; Min with its kernel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, where: Axes, kernel: Any) -> tuple:
        ctx.axes = where
        values, indices = find(x, where, kernel)
        ctx.save(indices)
        return values, indices

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Tensor:
        (indices,) = ctx.saved_tensors
        return Place.apply(g, indices, ctx.axes.groups[0], ctx.axes.shape)


class Min(Max):
    """The smallest along one dim and its index."""


def _check(name: str, x: Tensor, where: Axes, every: bool, error: type[Exception]) -> None:
    """Refuse to look for the extreme of nothing."""
    if where.n == 0:
        if every:
            raise error(
                f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify "
                f"the reduction dim with the 'dim' argument, one whose size is not 0."
            )
        for dim in where.dims:
            if where.shape[dim] == 0:
                raise DimError(
                    f"{name}(): Expected reduction dim {dim} to have non-zero size. Received shape "
                    f"{list(where.shape)}."
                )


@remembered
def amax(x: Tensor, dim: Any = None, keepdim: bool = False, **names: Any) -> Tensor:
    """The largest element, over all or ``dim`` (an int or a tuple); NaN if there is one.

    Gradient: g, shared evenly by ties. Raises IndexError where a reduced dim has no elements.

    >>> amax(tensor([[1.0, 2.0], [4.0, 3.0]]), 1).tolist()
    [2.0, 4.0]
    """
    if names:
        return by_other_names(amax, names, x, dim, keepdim)
    where = axes("amax", as_operand("amax", x), dim, keepdim)
    _check("amax", x, where, dim is None or dim == (), ShapeError)
    return _over(Amax, x, where, kernels.amax)


@remembered
def amin(x: Tensor, dim: Any = None, keepdim: bool = False, **names: Any) -> Tensor:
    """The smallest element; see ``amax``.

    >>> amin(tensor([[1.0, 2.0], [4.0, 3.0]]), 1).tolist()
    [1.0, 3.0]
    """
    if names:
        return by_other_names(amin, names, x, dim, keepdim)
    where = axes("amin", as_operand("amin", x), dim, keepdim)
    _check("amin", x, where, dim is None or dim == (), ShapeError)
    return _over(Amin, x, where, kernels.amin)


def extremes(name: str, x: Tensor) -> tuple[Any, Any]:
    """The least and the largest element as Python numbers, by which ``name`` decides what it runs.

    Not for empty x. A recorded function reads them of what it closes over, and compares it later.
    """
    if type(x._array) is not DeviceArray and machine.deciding(name, x._array):
        return x._array.min().item(), x._array.max().item()
    return amin(x).item(), amax(x).item()


@remembered
def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """``(amin, amax)`` over all or one dim.

    >>> aminmax(tensor([3.0, 1.0, 2.0])).max.item()
    3.0
    """
    where = axes("aminmax", as_operand("aminmax", x), dim, keepdim)
    _check("aminmax", x, where, dim is None, ShapeError)
    return MinMax(_over(Amin, x, where, kernels.amin), _over(Amax, x, where, kernels.amax))


@remembered
def max(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None, **names: Any
) -> Any:
    """The largest element; along ``dim`` as ``(values, indices)``; of two tensors, ``maximum``.

    NaN is the largest. Gradient: over all elements, shared by ties; along a dim, to the element at
    the index. Raises where there are no elements.

    >>> max(tensor([[1.0, 5.0], [4.0, 3.0]]), 1).indices.tolist()
    [1, 0]
    """
    if names:
        return by_other_names(max, names, x, dim, keepdim, other=other)
    return _extreme("max", x, dim, keepdim, other)


@remembered
def min(
    x: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None, **names: Any
) -> Any:
    """The smallest element; along ``dim`` as ``(values, indices)``; of two tensors, ``minimum``.

    See ``max``; NaN counts as the smallest.

    >>> min(tensor([[1.0, 5.0], [4.0, 3.0]]), 1).values.tolist()
    [1.0, 3.0]
    """
    if names:
        return by_other_names(min, names, x, dim, keepdim, other=other)
    return _extreme("min", x, dim, keepdim, other)


def _extreme(name: str, x: Tensor, dim: Any, keepdim: bool, other: Tensor | None) -> Any:
    as_operand(name, x)
    largest = name == "max"
    if isinstance(dim, Tensor) and other is None:
        dim, other = None, dim
    if other is not None:
        if dim is not None or keepdim is not False:
            raise TypeError(f"{name}(): of two tensors there is neither dim nor keepdim.")
        return maximum(x, other) if largest else minimum(x, other)
    where = axes(name, x, dim, keepdim)
    _check(name, x, where, dim is None, ShapeError)
    if dim is None:
        if largest:
            return _over(Amax, x, where, kernels.amax)
        return _over(Amin, x, where, kernels.amin)
    if len(where.dims) > 1 or isinstance(dim, (tuple, list)):
        raise TypeError(f"{name}: dim must be an int, got {dim!r}. For several use a{name}.")
    op, kernel = (Max, kernels.argmax) if largest else (Min, kernels.argmin)
    return Extreme(*(find if x._edge is None else op.apply)(x, where, kernel))


def _index(name: str, x: Tensor, dim: int | None, keepdim: bool, kernel: Any) -> Tensor:
    if as_operand(name, x)._dtype is dtypes.bool_:
        raise DTypeError(f"{name}: does not support bool input. Convert with x.int().")
    where = axes(name, x, dim, keepdim)
    _check(name, x, where, dim is None, DimError)
    return find(x, where, kernel)[1]


@remembered
def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False, **names: Any) -> Tensor:
    """Index of the largest element along ``dim``, or in the flattened tensor; int64.

    The first of equals; the first NaN before all. Raises where there are no elements.

    >>> argmax(tensor([1.0, 3.0, 2.0])).item()
    1
    """
    if names:
        return by_other_names(argmax, names, x, dim, keepdim)
    return _index("argmax", x, dim, keepdim, kernels.argmax)


@remembered
def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False, **names: Any) -> Tensor:
    """Index of the smallest element along ``dim``, or in the flattened tensor; see ``argmax``.

    >>> argmin(tensor([2.0, 1.0, 3.0])).item()
    1
    """
    if names:
        return by_other_names(argmin, names, x, dim, keepdim)
    return _index("argmin", x, dim, keepdim, kernels.argmin)


METHODS: dict[str, Any] = {
    "amax": amax,
    "amin": amin,
    "aminmax": aminmax,
    "argmax": argmax,
    "argmin": argmin,
    "max": max,
    "min": min,
}
