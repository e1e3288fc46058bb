"""In-place forms of formulas where the tape needs nothing: one launch, which writes where it reads.

Each function tells whether it has done the work; the long way, in ``inplace.py``, computes a result
and copies it. Start reading at ``written``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..kernels import machine
from ..kernels.blocks import Block
from ..tape import NUMBERS, grad_mode
from ..tensor import Tensor
from . import device_way
from .formulas import AddScaled
from .pointwise import PointwiseOp


def has_history(x: Tensor) -> bool:
    """Whether ``x``, or what it is a view of, is on the tape."""
    return x._edge is not None or (x._base is not None and x._base._edge is not None)


def _apart(array: Any, other: Any) -> bool:
    """Whether writing ``array`` element by element changes nothing of ``other`` that is yet to be
    read: it is ``array`` itself, or elsewhere."""
    if array is other:
        return True
    roots = array.base, other.base
    if all([root is None or type(root) is Block for root in roots]):
        return True
    return not np.may_share_memory(array, other)


def _on_itself(op: Any, x: Tensor, entry: Any, operands: Sequence[Any]) -> bool:
    """Whether ``x`` has become ``op`` of ``operands``, which are apart from it or itself.

    entry: the form for a few numbers of one shape.
    """
    array = x._array
    if not entry(array, *operands):
        shape = array.shape
        for y in operands:
            if type(y) is np.ndarray and y.shape != shape:
                lead = len(shape) - y.ndim
                if lead < 0 or any([n not in (1, shape[lead + i]) for i, n in enumerate(y.shape)]):
                    return False
        if not x._flat and 0 in array.strides:  # perhaps several elements in one place
            return False
        op.kernel(array, *operands)
    (x._counter or x._version_counter()).bump()
    return True


def written(op: Any, x: Tensor, y: Any) -> bool:
    """Whether ``x`` has become ``op(x, y)`` by one launch, which wrote where it read.

    That is so where there is no history, and where both are all of their memory.
    """
    recording = grad_mode.enabled
    if recording and has_history(x):
        return False
    if machine.recording and not machine.on_host(x, y):
        return device_way.written(op, x, y)
    array, dtype = x._array, x._dtype
    if dtype is dtypes.bool_:
        return False
    key: Any
    if isinstance(y, Tensor):
        other, key, operand, kind = y._array, dtype, dtype, array.dtype
        if y._dtype is not dtype or (recording and y._edge is not None):
            return False
        if other is not array and not _apart(array, other):
            return False
    elif type(y) in NUMBERS:
        other, key, operand, kind = y, (dtype, type(y)), y, type(y)
    else:
        return False
    found = op.fast.get(key)
    if found is None:
        found = op.prepare(key, (dtype, operand), (array.dtype, kind))
    entry, out_dtype, _, _ = found
    return out_dtype is dtype and _on_itself(op, x, entry, (array, other))


def all_written(op: Any, x: Tensor, args: tuple, kwargs: dict) -> bool:
    """``written`` for a floating ``x`` and an op of one operand, or of three and more; or one
    that a function ``op`` gives for the arguments."""
    recording, dtype, array = grad_mode.enabled, x._dtype, x._array
    if machine.autocasting or (recording and has_history(x)):
        return False
    if machine.recording and not machine.all_on_host((x, *args, *kwargs.values())):
        return False
    if not isinstance(op, PointwiseOp):
        try:
            op, args = op(*args, **kwargs)
        except TypeError:
            return False
        kwargs = {}
        if op is None:
            return False
    if kwargs:
        if len(kwargs) > 1 or op.inputs[-1] not in kwargs:
            return False
        args = (*args, kwargs[op.inputs[-1]])
    missing = len(op.inputs) - 1 - len(args)
    if missing and 0 < missing <= len(op.defaults):
        args = (*args, *op.defaults[len(op.defaults) - missing :])
        missing = 0
    if missing or not dtype.is_floating_point:
        return False
    key: list[Any] = [dtype]
    values: list[Any] = [array]
    for y in args:
        if isinstance(y, Tensor):
            other = y._array
            if y._dtype is not dtype and not (
                y._dtype is dtypes.bool_ and op.name == "masked_fill"
            ):
                return False
            if (recording and y._edge is not None) or not _apart(array, other):
                return False
            key.append(y._dtype)
            values.append(other)
        elif type(y) in NUMBERS:
            key.append(type(y))
            values.append(y)
        else:
            return False
    known: Any = tuple(key) if args else dtype
    found = op.fast.get(known)
    if found is None:
        operands = [k if isinstance(k, DType) else v for k, v in zip(key, values, strict=True)]
        found = op.prepare(known, tuple(operands), tuple([getattr(k, "numpy", k) for k in key]))
    entry, out_dtype, _, _ = found
    return out_dtype is dtype and _on_itself(op, x, entry, values)


SCALED = {"add_": 1, "sub_": -1, "subtract_": -1}
"""In-place forms that take a factor ``alpha``, and its sign."""


def scaled(sign: int, x: Tensor, y: Any = None, *more: Any, alpha: Any = None, **_: Any) -> bool:
    """``all_written`` of ``x + sign * alpha * y``."""
    if more or _ or not isinstance(y, Tensor) or type(alpha) not in NUMBERS:
        return False
    return all_written(AddScaled.op, x, (y, sign * alpha), {})
