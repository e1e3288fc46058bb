"""Sorting and selection along one dim. NaN is the greatest value, as in PyTorch."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..errors import DimError, ShapeError
from ..kernels import machine
from ..kernels.cpu import sort as kernels
from ..tensor import Tensor, wrap
from .axes import Axes, Pick, Place, axes, form_along, permuted
from .base import (
    Op,
    as_operand,
    contiguous,
    copy_kernel,
    full,
    new_empty,
    normalize_dim,
    reshaped,
)
from .extreme import Amax
from .remembered import remembered

__all__ = [
    "argsort",
    "kthvalue",
    "median",
    "msort",
    "sort",
    "topk",
]


class Sorted(NamedTuple):
    """What sort, topk, kthvalue and median along a dim return."""

    values: Tensor
    indices: Tensor


def _rows(x: Tensor, form: tuple[int, int, int]) -> Any:
    """``x`` as contiguous rows along the middle axis of ``form``."""
    outer, n, inner = form
    array = contiguous(x)._array
    if inner == 1:
        return array.reshape((outer, n))
    rows = machine.empty((outer, inner, n), array.dtype, x._device)
    machine.launch(copy_kernel, rows, permuted(array.reshape(form), [0, 2, 1]))
    return rows.reshape((outer * inner, n))


def _unrows(rows: Any, x: Tensor, form: tuple[int, int, int], shape: tuple[int, ...]) -> Tensor:
    """Rows of results as a tensor of ``shape``; the inverse of ``_rows``."""
    outer, _, inner = form
    dtype = dtypes.from_numpy(rows.dtype)
    if inner == 1:
        return wrap(rows.reshape(shape), dtype)
    out = new_empty(shape, dtype, x._device)
    k = rows.shape[1]
    source = permuted(rows.reshape((outer, inner, k)), [0, 2, 1])
    machine.launch(copy_kernel, out._array.reshape((outer, k, inner)), source)
    return out


def _ordered(
    x: Tensor, form: tuple[int, int, int], k: int, descending: bool, top: bool
) -> tuple[Any, Any]:
    """The first k of each sorted row, and their places."""
    rows = _rows(x, form)
    shape = (rows.shape[0], k)
    values = machine.empty(shape, rows.dtype, x._device)
    places = machine.empty(shape, np.dtype(np.int64), x._device)
    if top and 4 * k < rows.shape[1]:
        machine.launch(kernels.topk, values, places, rows, not descending)
    else:
        machine.launch(kernels.sort, values, places, rows, descending)
    return values, places


class Sort(Op, remembers=True):
    """The first k in order along ``form``'s middle axis, with their indices."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, form: Any, shape: tuple[int, ...], descending: bool, top: bool
    ) -> tuple:
        ctx.form, ctx.shape = form, x._array.shape
        outer, _, inner = form
        if 0 in shape:
            values = new_empty(shape, x._dtype, x._device)
            indices = new_empty(shape, dtypes.int64, x._device)
            ctx.save(indices)
            return values, indices
        k = math.prod(shape) // (outer * inner)
        values, places = _ordered(x, form, k, descending, top)
        indices = _unrows(places, x, form, shape)
        ctx.save(indices)
        return _unrows(values, x, form, shape), indices

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Tensor:
        (indices,) = ctx.saved_tensors
        return Place.apply(g, indices, ctx.form, ctx.shape)


class TopK(Sort):
    """The k largest or smallest along one dim, with their indices."""


@remembered
def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Sorted:
    """``x`` in order along ``dim``, as ``(values, indices)``; equal elements keep their order.

    Gradient: each g goes back to where its value came from. Raises IndexError if dim is out of
    range.

    >>> sort(tensor([3.0, 1.0, 2.0])).values.tolist()
    [1.0, 2.0, 3.0]
    """
    shape = as_operand("sort", x)._array.shape
    form = form_along("sort", shape, dim)
    return Sorted(*Sort.apply(x, form, shape, bool(descending), False))


@remembered
def msort(x: Tensor) -> Tensor:
    """``x`` in order along the first dim.

    >>> msort(tensor([3.0, 1.0])).tolist()
    [1.0, 3.0]
    """
    return sort(x, 0).values


@remembered
def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices that put ``x`` in order along ``dim``; int64.

    >>> argsort(tensor([3.0, 1.0, 2.0])).tolist()
    [1, 2, 0]
    """
    return sort(as_operand("argsort", x).detach(), dim, descending).indices


@remembered
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Sorted:
    """The k largest (or smallest) along ``dim``, best first, as ``(values, indices)``.

    Gradient: each g goes back to where its value came from. Raises ShapeError unless
    0 <= k <= size.

    >>> topk(tensor([1.0, 3.0, 2.0]), 2).indices.tolist()
    [1, 2]
    """
    shape = as_operand("topk", x)._array.shape
    form = form_along("topk", shape, dim)
    if not 0 <= k <= form[1]:
        raise ShapeError(
            f"topk: selected index k out of range: k is {k}, dim {dim} has size {form[1]}. Use at "
            f"most that many."
        )
    cut = list(shape)
    if cut:
        cut[dim] = k
    elif k == 0:
        cut = [0]
    return Sorted(*TopK.apply(x, form, tuple(cut), bool(largest), True))


def _kth(
    x: Tensor, k: int, form: tuple[int, int, int], shape: tuple[int, ...], nan_wins: bool
) -> Sorted:
    """Element k of the sorted order along ``form``'s middle axis, as tensors of ``shape``."""
    if 0 in shape:
        indices = new_empty(shape, dtypes.int64, x._device)
    else:
        rows = _rows(x, form)
        at = machine.empty((rows.shape[0], 1), np.dtype(np.int64), x._device)
        machine.launch(kernels.kth, at, rows, k, nan_wins and x._dtype.is_floating_point)
        indices = reshaped(wrap(at, dtypes.int64), shape)
    return Sorted(Pick.apply(x, indices, form), indices)


def _result(name: str, x: Tensor, dim: int, keepdim: bool) -> tuple[int, ...]:
    """The shape without (or with 1 for) ``dim``, which must have elements."""
    shape = x._array.shape
    at = normalize_dim(name, dim, len(shape))
    if not shape:
        return ()
    if shape[at] == 0:
        raise DimError(f"{name}(): Expected reduction dim {at} to have non-zero size.")
    return (*shape[:at], 1, *shape[at + 1 :]) if keepdim else (*shape[:at], *shape[at + 1 :])


@remembered
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Sorted:
    """The k-th smallest along ``dim``, counted from 1, as ``(values, indices)``.

    Gradient: to that element. Raises ShapeError unless 1 <= k <= size.

    >>> kthvalue(tensor([3.0, 1.0, 2.0]), 2).values.item()
    2.0
    """
    shape = _result("kthvalue", as_operand("kthvalue", x), dim, keepdim)
    form = form_along("kthvalue", x._array.shape, dim)
    if not 1 <= k <= form[1]:
        raise ShapeError(
            f"kthvalue(): selected number k out of range for dimension {dim}: k is {k}, the size "
            f"is {form[1]}. Count from 1."
        )
    return _kth(x, k - 1, form, shape, False)


class Median(Op, remembers=True):
    """The lower middle value of all elements; ties share the gradient, as of a maximum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, where: Axes) -> Tensor:
        ctx.axes = where
        out = _kth(x, (where.n - 1) // 2, (1, where.n, 1), (), True).values
        ctx.save(x, out)
        return out

    backward = staticmethod(Amax.backward)


@remembered
def median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower of the two middle values; along ``dim`` as ``(values, indices)``. NaN wins.

    Gradient: over all elements, shared by ties; along a dim, to the element at the index. Of no
    elements the median is NaN.

    >>> median(tensor([4.0, 1.0, 3.0, 2.0])).item()
    2.0
    """
    if dim is None:
        n = as_operand("median", x)._array.size
        if n == 0:
            nothing = full((), float("nan"), x._dtype, x._device)
            return nothing if x._edge is None else nothing + x.sum()
        return Median.apply(x, axes("median", x, None))
    shape = _result("median", as_operand("median", x), dim, keepdim)
    form = form_along("median", x._array.shape, dim)
    return _kth(x, (form[1] - 1) // 2, form, shape, True)


METHODS: dict[str, Any] = {
    "argsort": argsort,
    "kthvalue": kthvalue,
    "median": median,
    "msort": msort,
    "sort": sort,
    "topk": topk,
}
