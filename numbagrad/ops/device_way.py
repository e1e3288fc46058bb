"""The short way from a call of an elementwise op to its kernel on a GPU.

The device works while Python prepares the next launch, and small tensors are done before it has:
what a call costs the host is what it costs. What ``PointwiseOp.general`` finds out about operands
is kept by their dtypes, shapes and strides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..kernels import machine
from ..kernels.cuda.runtime.array import DeviceArray
from ..tape import NUMBERS, grad_mode
from ..tensor import Tensor

if TYPE_CHECKING:
    from .pointwise import PointwiseOp

MOST = 512
"""Kinds of operands that an op remembers."""

_new = object.__new__


def _layout(args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Dtype, shape and strides of each operand, one after another; None unless all tensors lie on
    the GPU."""
    key: list[Any] = []
    for a in args:
        if isinstance(a, Tensor):
            array = a._array
            if array.__class__ is not DeviceArray:
                return None
            key += (a._dtype, array.shape, array.strides)
        else:
            key.append(a.__class__)
    return tuple(key)


def seen_before(op: PointwiseOp, args: tuple[Any, ...]) -> Tensor | None:
    """The result for operands on the GPU such as have come before, else None."""
    key = _layout(args)
    if key is None:
        return None
    found = op.walks.get(key)
    if found is None:
        return None
    walk, like, dtype, floating = found
    out = _new(Tensor)
    out._array = array = machine.away.another(like)
    out._dtype, out._device = dtype, like.device
    out._counter = out._edge = None
    if not array.c_contiguous:
        out._flat = False
    walk(array, *[a._array if isinstance(a, Tensor) else a for a in args])
    if floating and grad_mode.enabled:
        edges = tuple([a._edge if isinstance(a, Tensor) else None for a in args])
        for edge in edges:
            if edge is not None:
                op.record(args, edges, out)
                break
    return out


def written(op: PointwiseOp, x: Tensor, y: Any) -> bool:
    """Whether ``x``, which has no history, has become ``op(x, y)`` by a launch such as has come
    before: where the result is as ``x``, and ``y`` elsewhere, ``x`` itself or a number."""
    if machine.autocasting or machine.away is None or machine.recorder.current is not None:
        return False
    key = _layout((x, y))
    found = None if key is None else op.walks.get(key)
    if found is None or not x._flat or x._dtype is not found[2]:
        return False
    walk, like, _, _ = found
    array, other = x._array, y
    if array.shape != like.shape:
        return False
    if isinstance(y, Tensor):
        other = y._array
        if y._edge is not None and grad_mode.enabled:
            return False
        if other is not array and other.memory is array.memory:
            return False
    walk(array, array, other)
    (x._counter or x._version_counter()).bump()
    return True


def remember(op: PointwiseOp, args: tuple[Any, ...], out: Tensor) -> None:
    """Keep what a call of ``general`` has found out for ``seen_before``."""
    key = _layout(args)
    if key is None or not all([isinstance(a, Tensor) or type(a) in NUMBERS for a in args]):
        return
    dtype = out._dtype
    if dtype.is_floating_point and not any([getattr(a, "_dtype", 0) is dtype for a in args]):
        return  # the default dtype decided, which may change
    from ..kernels.cuda.runtime.elementwise import on_device

    if len(op.walks) >= MOST:
        op.walks.clear()
    operands = [a._array if isinstance(a, Tensor) else a for a in args]
    walk = on_device(op.kernel).walk((out._array, *operands))  # which ran just now
    array = out._array
    like = DeviceArray(None, 0, array.shape, dtype.numpy, array.device, array.strides)
    op.walks[key] = walk, like, dtype, dtype.is_floating_point
