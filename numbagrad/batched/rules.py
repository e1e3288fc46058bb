"""Kernels that run for a batch of elements at once, and how: ``RULES``.

Most kernels take rows, or planes, that do not know of each other: the elements' are put one below
the other. Products with a matrix that all elements share are one product, others a stack of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..kernels import machine
from ..kernels.cpu import (
    along,
    bias,
    conv,
    cross,
    half_norm,
    layer_norm,
    matmul,
    norm,
    pool,
    reduce,
    resample,
    scan,
    sort,
    triangle,
)
from ..kernels.cpu import whole_numbers as whole
from ..ops.base import copy_kernel
from ..ops.formulas import Add, Mul

Rule = Callable[[Any, tuple[Any, ...], list[Any]], bool]

_add, _mul = Add.op.kernel, Mul.op.kernel


def _below(array: Any) -> Any:
    """The first two dims as one; None where that would be a copy."""
    size, n, *rest = array.shape
    step = array.itemsize
    strides = [s // step for s in array.strides]
    if n == 1:
        strides[1] = strides[0]
    elif size > 1 and strides[0] != n * strides[1]:
        return None
    return machine.view(array, (size * n, *rest), tuple(strides[1:]), 0)


def dense(batch: Any, array: Any) -> Any:
    """``array``, or a copy of it where it has gaps."""
    if array.flags.c_contiguous:
        return array
    copy = batch.beside(array.shape, array.dtype)
    batch.run(copy_kernel, copy, array)
    return copy


def _for_each(size: int, array: Any) -> Any:
    """What all elements share as if each had it."""
    strides = [s // array.itemsize for s in array.strides]
    return machine.view(array, (size, *array.shape), (0, *strides), 0)


def _rows(kernel: Any, count: int | None = None) -> Rule:
    """The rule of a kernel whose arrays, or the first ``count`` of them, are rows or planes; what
    follows those is for all rows."""

    def rule(batch: Any, args: tuple[Any, ...], given: list[Any]) -> bool:
        found = list(given)
        for k, (arg, array) in enumerate(zip(args, given, strict=True)):
            if not isinstance(array, np.ndarray):
                continue
            if count is not None and k >= count:
                if array.ndim != arg.ndim:
                    return False
                continue
            if array.ndim == arg.ndim:
                array = _for_each(batch.size, array)
            if k < kernel.outputs:
                found[k] = _below(array)
                if found[k] is None:
                    return False
            else:
                found[k] = _below(dense(batch, array))
        batch.run(kernel, *found)
        return True

    return rule


def _product(batch: Any, args: tuple[Any, ...], given: list[Any]) -> bool:
    """``mm``: one product where only the rows of the left factor belong to elements, or nothing."""
    out, x, y, transx, transy, accumulate = given
    if accumulate:
        return False
    if x.ndim == y.ndim == 2:  # only a bias differs, or factors without elements
        once = batch.beside(out.shape[1:], out.dtype)
        batch.run(matmul.mm, once, x, y, transx, transy, 0)
        batch.run(copy_kernel, out, _for_each(batch.size, once))
        return True
    if args[1].shape[0 if transx else 1] == 1:  # of a column and a row
        x, y = x.swapaxes(-1, -2) if transx else x, y.swapaxes(-1, -2) if transy else y
        batch.run(_mul, out, x, y)
        return True
    if y.ndim == 2 and not transx and (rows := _below(x)) is not None:
        batch.run(matmul.mm, _below(out), rows, y, 0, transy, 0)
        return True
    x, y = [_for_each(batch.size, a) if a.ndim == 2 else a for a in (x, y)]
    batch.run(matmul.bmm, out, x, y, transx, transy)
    return True


def _affine(batch: Any, args: tuple[Any, ...], given: list[Any]) -> bool:
    """``addmm``, likewise."""
    out, x, y, start, transx, transy = given
    if y.ndim == 2 and start.ndim == 1 and not transx and (rows := _below(x)) is not None:
        batch.run(matmul.addmm, _below(out), rows, y, start, 0, transy)
        return True
    _product(batch, args, [out, x, y, transx, transy, 0])
    start = start[:, None] if start.ndim == 2 else start
    batch.run(_add, out, out, start)
    return True


def _products(batch: Any, args: tuple[Any, ...], given: list[Any]) -> bool:
    """``bmm``: a stack of all elements' matrices."""
    out, x, y, transx, transy = given
    if math.prod(out.shape) == 0:
        return False
    x, y = [_for_each(batch.size, a) if a.ndim == 3 else a for a in (x, y)]
    x, y = [_below(a) if _below(a) is not None else _below(dense(batch, a)) for a in (x, y)]
    batch.run(matmul.bmm, _below(out), x, y, transx, transy)
    return True


def _weight_grad(batch: Any, args: tuple[Any, ...], given: list[Any]) -> bool:
    """``conv_weight_grad`` of one image for each element: the elements are groups of channels."""
    out, g, x, groups, *form = given
    shared = [a for a in (g, x) if a.ndim < 6]
    if args[1].shape[0] != 1 or shared or not out.flags.c_contiguous:
        return False
    g, x = [dense(batch, a).reshape(1, -1, *a.shape[3:]) for a in (g, x)]
    batch.run(conv.conv_weight_grad, _below(out), g, x, groups * batch.size, *form)
    return True


def _column_sum(batch: Any, args: tuple[Any, ...], given: list[Any]) -> bool:
    out, x = given
    batch.run(reduce.sum, out[:, None], dense(batch, x))
    return True


_ALL = """
    sum mean prod any all count_nonzero amax amin abs_amax abs_amin norm1 norm2 norm3 norm nansum
    squares argmax argmin softmax_rows softmax_rows_grad log_softmax_rows log_softmax_rows_grad
    logsumexp_rows logsumexp_axis softmax_axis softmax_axis_grad log_softmax_axis
    log_softmax_axis_grad softmax_rows_of_halves softmax_axis_of_halves cumsum cumprod
    logcumsumexp cummax cummin sort topk kth triangle gcd pick place cross
""".split()
_FIRST = {
    "layer_norm": 4, "conv": 2, "conv_input_grad": 2, "max_pool": 3, "max_pool_grad": 3,
    "avg_pool": 2, "avg_pool_grad": 2, "resample": 2,
}  # fmt: skip


def _by_name(name: str) -> Any:
    rows = reduce, norm, half_norm, layer_norm, scan, sort
    for module in (*rows, triangle, whole, along, pool, conv, cross, resample):
        if name in vars(module):
            return vars(module)[name]
    raise KeyError(name)


RULES: dict[Any, Rule] = {
    matmul.mm: _product,
    matmul.addmm: _affine,
    matmul.bmm: _products,
    bias.column_sum: _column_sum,
    conv.conv_weight_grad: _weight_grad,
    **{(kernel := _by_name(name)): _rows(kernel) for name in _ALL},
    **{(kernel := _by_name(name)): _rows(kernel, count) for name, count in _FIRST.items()},
}
"""By kernel: a function of the batch, the arguments of one element, and those for all, that runs it
for all and returns True, or does nothing and returns False."""
