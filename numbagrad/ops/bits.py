"""The memory of a tensor seen as numbers of another dtype: ``x.view(ng.int32)``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import DType
from ..errors import GradError, RecordingError, ShapeError
from ..kernels import machine
from ..kernels.cuda.runtime.array import DeviceArray
from ..tape import show_location, user_location
from ..tensor import Tensor

__all__: list[str] = []


def viewed_as(x: Tensor, dtype: DType) -> Tensor:
    """The bits of ``x`` as numbers of ``dtype``, on the same memory and without a history; as its
    own dtype a view like any other.

    The last dimension has as many times more or fewer numbers as these are smaller or larger.
    Raises ShapeError where it cannot be so divided or has gaps.
    """
    if dtype is x._dtype:
        return x.view(x._array.shape)
    if machine.is_recording():
        raise RecordingError(
            f"view: the bits of a tensor as another dtype are not to be had inside a compiled "
            f"function, at {show_location(user_location())}. Call view({dtype}) outside of it."
        )
    if x._edge is not None and dtype.is_floating_point:
        raise GradError(
            f"view: the bits of a tensor that requires grad as {dtype} have no gradient. Call "
            f"detach() first, or to({dtype}) to convert the numbers."
        )
    out = x.detach()
    out._array = array = _seen_as(x._array, dtype.numpy)
    out._dtype, out._flat = dtype, array.flags.c_contiguous
    return out


def _seen_as(array: Any, dtype: np.dtype) -> Any:
    old, new = array.itemsize, dtype.itemsize
    shape, strides = list(array.shape), list(array.strides)
    if old != new:
        if not shape:
            raise ShapeError(
                f"view: a tensor of no dimensions cannot be seen as a dtype of another size, got "
                f"{old} and {new} bytes. Call unsqueeze(0) first."
            )
        length = shape[-1] * old
        gaps = array.size and shape[-1] > 1 and strides[-1] != old
        parts = any([s % new for s, n in zip(strides[:-1], shape, strict=False) if n > 1])
        if gaps or length % new or (new > old and (parts or machine.address_of(array) % new)):
            raise ShapeError(
                f"view: rows of {shape[-1]} numbers of {old} bytes with strides "
                f"{[s // old for s in strides]} cannot be seen as numbers of {new} bytes. Call "
                f"contiguous() first, or choose rows of a multiple of {max(new // old, 1)}."
            )
        shape[-1], strides[-1] = length // new, new
    if type(array) is not DeviceArray:
        return array.view(dtype) if array.size else np.ndarray(tuple(shape), dtype)
    return DeviceArray(
        array.memory, array.pointer, tuple(shape), dtype, array.device, tuple(strides)
    )
