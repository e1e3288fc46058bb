"""How a tensor and some dims of it become ``(outer, n, inner)``, the form reducing kernels take.

Dims that stand side by side are one middle axis, without moving data. Dims apart are reduced one
group after the other. Start reading at ``Axes`` and ``fold``.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..dtypes import DType
from ..kernels import machine
from ..kernels.cpu import along
from ..kernels.halves import arithmetic
from ..kernels.shares import GRAIN, pieces
from ..tape import grad_mode
from ..tensor import Tensor, wrap
from .base import Op, contiguous, copy_kernel, full, new_empty, normalize_dim, normalize_dims

DTYPE_WORDS = {
    "int64": "Long",
    "int32": "Int",
    "int16": "Short",
    "int8": "Char",
    "uint8": "Byte",
    "bool": "Bool",
}
"""PyTorch's names of the dtypes that are not floating, as its messages have them."""


@dataclass(frozen=True, eq=False)
class Axes:
    """Dims of a shape, seen for a reduction.

    groups: (outer, n, inner) of each run of neighbouring dims, the last run first; each form
    counts what the runs before it have reduced as 1. n: elements per result. kept, dropped: the
    shape of the result with keepdim and without. out: the one that was asked for. forms: of a
    reduction of one group, what the input, its pieces (None where it is not cut) and the result are
    seen as; None for more groups. small: whether it needs no threads.
    """

    shape: tuple[int, ...]
    dims: tuple[int, ...]
    groups: tuple[tuple[int, int, int], ...]
    n: int
    kept: tuple[int, ...]
    dropped: tuple[int, ...]
    out: tuple[int, ...]
    forms: Any
    small: bool

    def keeping(self) -> Axes:
        """The same with the reduced dims kept as 1."""
        return self._keeping

    @functools.cached_property
    def _keeping(self) -> Axes:
        return replace(self, out=self.kept)


def axes(name: str, x: Tensor, dim: Any, keepdim: bool = False) -> Axes:
    """The Axes of ``x`` for ``dim``: an int, a sequence of ints, or None for all."""
    dim = tuple(dim) if type(dim) is list else dim
    if type(dim) is tuple:
        for each in dim:
            if type(each) is not int:  # 0.0 would be found where 0 is
                return _axes.__wrapped__(name, x._array.shape, dim, keepdim)
    elif isinstance(dim, np.integer):
        dim = int(dim)
    return _axes(name, x._array.shape, dim, keepdim)


@functools.lru_cache(maxsize=4096, typed=True)
def _axes(name: str, shape: tuple[int, ...], dim: Any, keepdim: bool) -> Axes:
    dims = normalize_dims(name, None if dim == () else dim, len(shape))
    if not shape:
        one = (1, 1, 1)
        return Axes(shape, (), (one,), 1, (), (), (), (one, None, one), True)
    runs: list[list[int]] = []
    for d in dims:
        if runs and all(shape[k] == 1 for k in range(runs[-1][1] + 1, d)):
            runs[-1][1] = d
        else:
            runs.append([d, d])
    groups, sizes = [], list(shape)
    for first, last in reversed(runs):
        groups.append(_form(sizes, first, last))
        sizes[first : last + 1] = [1] * (last + 1 - first)
    kept = tuple([1 if d in dims else size for d, size in enumerate(shape)])
    dropped = tuple([size for d, size in enumerate(shape) if d not in dims])
    n = math.prod([shape[d] for d in dims])
    out = kept if keepdim else dropped
    forms = None if len(groups) > 1 or 0 in shape else _forms(*groups[0])
    small = math.prod(shape) < GRAIN
    return Axes(shape, dims, tuple(groups), n, kept, dropped, out, forms, small)


def _forms(outer: int, n: int, inner: int) -> Any:
    cut = pieces(outer, n, inner)
    return (outer, n, inner), (outer, cut, inner) if cut > 1 else None, (outer, 1, inner)


def _form(shape: Any, first: int, last: int) -> tuple[int, int, int]:
    return (
        math.prod(shape[:first]),
        math.prod(shape[first : last + 1]),
        math.prod(shape[last + 1 :]),
    )


@functools.lru_cache(maxsize=4096, typed=True)
def form_along(name: str, shape: tuple[int, ...], dim: int) -> tuple[int, int, int]:
    """(outer, n, inner) around one dim; (1, 1, 1) for a 0-d tensor."""
    dim = normalize_dim(name, dim, len(shape))
    return _form(shape, dim, dim) if shape else (1, 1, 1)


def joined(x: Tensor, where: Axes) -> np.ndarray:
    """``x`` as one (outer, n, inner) array, copied only if its dims stand apart or are strided."""
    if len(where.groups) == 1:
        return contiguous(x)._array.reshape(where.groups[0])
    kept = [d for d in range(len(where.shape)) if d not in where.dims]
    array = permuted(x._array, kept + list(where.dims))
    out = machine.empty(array.shape, array.dtype, x._device)
    machine.launch(copy_kernel, out, array)
    return out.reshape((-1, where.n, 1)) if out.size else out.reshape(_empty_form(where))


def _empty_form(where: Axes) -> tuple[int, int, int]:
    return math.prod(where.dropped), where.n, 1


def permuted(array: Any, order: list[int]) -> Any:
    """A view of ``array`` with its dims in ``order``."""
    step = array.itemsize
    shape, strides = array.shape, array.strides
    strides = tuple([strides[d] // step for d in order])
    return machine.view(array, tuple([shape[d] for d in order]), strides, 0)


def in_memory_order(x: Tensor, where: Axes) -> tuple[Tensor, Axes]:
    """``x`` with its dims permuted so that it is contiguous, if that keeps the result's order."""
    strides = x._array.strides
    order = sorted(range(len(strides)), key=lambda d: -strides[d])
    kept = [d for d in order if d not in where.dims]
    if kept == sorted(kept):
        array = permuted(x._array, order)
        if array.flags.c_contiguous:
            dims = tuple([i for i, d in enumerate(order) if d in where.dims])
            return reshaped_as(x, array), _axes("", array.shape, dims, False)
    return contiguous(x), where


def once(x: Tensor, where: Axes) -> tuple[Tensor, Axes, int]:
    """``x`` without the dims in ``where`` along which it repeats itself, their Axes, and how often.

    Nothing is taken away where all is in memory, where nothing repeats, or while a step is
    recorded, for what is compiled reads one number again at no cost.
    """
    array = x._array
    if x._flat or machine.is_recording() or 0 in array.shape or x._device.type != "cpu":
        return x, where, 1
    strides, shape = array.strides, array.shape
    repeated = [d for d in where.dims if strides[d] == 0 and shape[d] > 1]
    if not repeated:
        return x, where, 1
    sizes = tuple([1 if d in repeated else size for d, size in enumerate(shape)])
    steps = tuple([stride // array.itemsize for stride in strides])
    single = reshaped_as(x, machine.view(array, sizes, steps, 0))
    fewer = replace(_axes("", sizes, where.dims, False), out=where.out)
    return single, fewer, where.n // fewer.n


def reshaped_as(x: Tensor, array: Any) -> Tensor:
    """Another Tensor on ``array``, which is memory of ``x``; no history."""
    out = x.data
    out._array = array
    out._flat = array.flags.c_contiguous
    return out


def fold(
    x: Tensor,
    where: Axes,
    dtype: DType,
    first: Any,
    then: Any = None,
    last: Any = None,
) -> Tensor:
    """Reduce ``x`` over ``where`` by kernels, given as tuples ``(kernel, *arguments)``.

    A reduction takes several stages where dims stand apart, or where a long one is cut into pieces
    for threads. first: reduces elements. then: reduces the results of stages before, by default
    as ``first`` does. last: does the last stage instead, also when it is the only one.
    """
    then = then or first
    if where.forms is not None and x._flat and not machine.closed:
        source = x._array
        if type(source) is np.ndarray:  # the common cases, without detours
            return _fold_here(source, where, dtype, first, then, last)
    out = new_empty(where.out, dtype, x._device)
    if out._array.size == 0:
        return out
    if not (x._flat or x._array.flags.c_contiguous):
        x, where = in_memory_order(x, where)
    source, stage = x._array, first
    final = len(where.groups) - 1
    for k, (outer, n, inner) in enumerate(where.groups):
        source = source.reshape((outer, n, inner))
        # A compiled step cuts by itself, and so do the kernels of a GPU.
        whole = machine.is_recording() or x._device.type != "cpu"
        cut = 1 if whole else pieces(outer, n, inner)
        if cut > 1:
            source, stage = _stage(stage, source, (outer, cut, inner), x, dtype), then
        if k < final:
            source, stage = _stage(stage, source, (outer, 1, inner), x, dtype), then
    kernel, *arguments = last or stage
    machine.launch(kernel, out._array.reshape((outer, 1, inner)), source, *arguments)
    return out


def _fold_here(
    source: np.ndarray, where: Axes, dtype: DType, first: Any, then: Any, last: Any
) -> Tensor:
    """``fold`` of one group of a contiguous array on the host."""
    whole, cut, result = where.forms
    if where.small:
        kernel, *arguments = last or first
        array = np.empty(where.out, dtype.numpy)
        kernel.run_small(array.reshape(result), source.reshape(whole), *arguments)
        return wrap(array, dtype)
    array, stage = machine.empty(where.out, dtype.numpy), first
    source = source.reshape(whole)
    if cut is not None:
        kernel, *arguments = first
        parts, stage = np.empty(cut, arithmetic(dtype.numpy)), then
        kernel(parts, source, *arguments)
        source = parts
    kernel, *arguments = last or stage
    kernel(array.reshape(result), source, *arguments)
    return wrap(array, dtype)


def _stage(stage: Any, source: Any, shape: tuple, x: Tensor, dtype: DType) -> Any:
    kernel, *arguments = stage
    out = machine.empty(shape, arithmetic(dtype.numpy), x._device)
    machine.launch(kernel, out, source, *arguments)
    return out


# -- moving between a reduced tensor and the whole -------------------------------------------------


LONG = 1 << 16
"""Elements from which a repeated gradient is not written down: what reads it takes the number."""


class Spread(Op, remembers=True):
    """Repeat the results of a reduction over the reduced dims; Sum's adjoint."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, where: Axes) -> Tensor:
        ctx.axes = where
        return _repeated(x, where)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        from .reduce import Sum

        return Sum.apply(g, ctx.axes)


def _repeated(x: Tensor, where: Axes) -> Tensor:
    """``Spread`` without history."""
    if type(x._array) is np.ndarray and x._array.size == 1 and not machine.closed:
        return full(where.shape, x.item(), x._dtype)  # the gradient of a loss
    out = new_empty(where.shape, x._dtype, x._device)
    machine.launch(copy_kernel, out._array, contiguous(x)._array.reshape(where.kept))
    return out


def spread(x: Tensor, where: Axes) -> Tensor:
    """``Spread``, or ``x`` itself when nothing was reduced."""
    if x._array.shape == where.shape:
        return x
    if x._edge is None or not grad_mode.enabled:
        if where.n * x._array.size >= LONG and type(x._array) is np.ndarray:
            if not machine.closed:
                return _repeated_without_copy(x, where)
        return _repeated(x, where)
    return Spread.apply(x, where)


def _repeated_without_copy(x: Tensor, where: Axes) -> Tensor:
    """``_repeated`` as a view, whose strides are 0 along the reduced dims."""
    strides, step = [], 1
    for kept in reversed(where.kept):
        strides.append(step if kept > 1 else 0)
        step *= kept
    array = machine.view(contiguous(x)._array, where.shape, tuple(reversed(strides)), 0)
    out = wrap(array, x._dtype)
    out._flat = bool(array.flags.c_contiguous)
    return out


class Pick(Op, remembers=True):
    """Elements of ``x`` at ``indices`` along the middle axis of ``form``; Place's adjoint."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, indices: Tensor, form: tuple[int, int, int]) -> Tensor:
        ctx.form, ctx.shape = form, x._array.shape
        ctx.save(indices)
        outer, _, inner = form
        out = new_empty(indices._array.shape, x._dtype, x._device)
        which = contiguous(indices)._array.reshape((outer, -1, inner)) if out._array.size else None
        if which is not None:
            x3 = contiguous(x)._array.reshape(form)
            machine.launch(along.pick, out._array.reshape(which.shape), x3, which)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (indices,) = ctx.saved_tensors
        return Place.apply(g, indices, ctx.form, ctx.shape)


class Place(Op, remembers=True):
    """Zeros of ``shape``, plus the elements of ``x`` at ``indices`` along ``form``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, indices: Tensor, form: tuple[int, int, int], shape: tuple[int, ...]
    ) -> Tensor:
        ctx.form = form
        ctx.save(indices)
        outer, _, inner = form
        out = new_empty(shape, x._dtype, x._device)
        if out._array.size:
            picked = (outer, x._array.size // (outer * inner), inner)
            which = contiguous(indices)._array.reshape(picked)
            x3 = contiguous(x)._array.reshape(picked)
            machine.launch(along.place, out._array.reshape(form), x3, which)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (indices,) = ctx.saved_tensors
        return Pick.apply(g, indices, ctx.form)
