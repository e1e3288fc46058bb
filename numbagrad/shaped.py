"""What a tensor says of itself without its elements: sizes, dtype, device, where they lie.

``Shaped`` is the part of ``Tensor`` that has these; ``Size`` is what a shape is.
"""

from __future__ import annotations

import math
from typing import Any

from . import devices, memory_formats
from .dtypes import DType
from .kernels import machine
from .kernels.machine import address_of

__all__ = ["Shaped", "Size"]


class Size(tuple):
    """A shape: a tuple of ints that prints as ``ng.Size([2, 3])``."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"ng.Size({list(self)})"

    def __getitem__(self, key: Any) -> Any:
        found = tuple.__getitem__(self, key)
        return Size(found) if isinstance(key, slice) else found

    def __add__(self, other: Any) -> Size:
        return Size(tuple(self) + tuple(other))

    def __radd__(self, other: Any) -> Size:
        return Size(tuple(other) + tuple(self))

    def __mul__(self, times: Any) -> Size:
        return Size(tuple(self) * times)

    def __reduce__(self) -> Any:
        return Size, (tuple(self),)


class Shaped:
    """An array with a dtype on a device."""

    _array: Any
    _dtype: DType
    _device: devices.Device
    _base: Any

    @property
    def shape(self) -> Size:
        """The size of each dimension."""
        return Size(self._array.shape)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._dtype

    @property
    def layout(self) -> memory_formats.Layout:
        """``ng.strided``: tensors are dense."""
        return memory_formats.strided

    @property
    def device(self) -> devices.Device:
        """Where the elements are."""
        return self._device

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self._dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._array.size * self._dtype.itemsize

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are on a GPU."""
        return self._device.type == "cuda"

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of dimension ``dim``."""
        if dim is None:
            return Size(self._array.shape)
        shape = self._array.shape
        if not -len(shape) <= dim < len(shape):
            from .ops.base import normalize_dim

            normalize_dim("size", dim, len(shape))
        return shape[dim]

    def dim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    ndimension = dim

    def numel(self) -> int:
        """The number of elements."""
        return self._array.size

    nelement = numel

    def element_size(self) -> int:
        """Bytes of one element."""
        return self._dtype.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """Steps between neighbours along each dimension (or ``dim``), in elements."""
        step = self._dtype.itemsize
        strides = tuple(s // step for s in self._array.strides)
        return strides if dim is None else strides[dim]

    def _is_view(self) -> bool:
        """Whether this shows the memory of another tensor, its base."""
        return self._base is not None

    def storage_offset(self) -> int:
        """Elements between the start of the memory and the first element; 0 if there is none."""
        if self._base is None or not self._array.size:
            return 0
        distance = address_of(self._array) - address_of(self._base._array)
        return distance // self._dtype.itemsize

    def data_ptr(self) -> int:
        """Address of the first element."""
        if machine.recording and machine.is_traced(self._array):
            machine.reading("data_ptr", self._array)
        return address_of(self._array)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements lie in row-major order without gaps.

        memory_format: whether they lie as that name says: ``ng.channels_last`` is (n, h, w, c).
        """
        memory_formats.check("is_contiguous", memory_format)
        order = None if memory_format is None else memory_format.order
        if order is None:
            return self._array.flags.c_contiguous
        return self._array.ndim == len(order) and self._array.transpose(order).flags.c_contiguous

    def is_floating_point(self) -> bool:
        """Whether the dtype is float32, float64, float16 or bfloat16."""
        return self._dtype.is_floating_point
