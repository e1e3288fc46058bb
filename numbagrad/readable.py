"""A tensor's elements as Python numbers, NumPy arrays and other libraries' arrays.

``Readable`` is the part of ``Tensor`` that has these. Each says to a recording that elements are
read, which most cannot allow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import devices, dlpack, dtypes
from .dtypes import DType
from .errors import DTypeError, GradError
from .kernels.halves import decoded
from .kernels.machine import deciding, reading

__all__ = ["Readable"]


class Readable:
    """An array whose elements can be read from outside, unless it has a history."""

    _array: Any
    _dtype: DType
    _device: devices.Device
    _edge: Any

    def item(self) -> float | int | bool:
        """The only element as a Python number."""
        deciding("item", self._array)
        if self._array.size != 1:
            raise GradError(
                f"item: a Tensor with {self._array.size} elements cannot be converted to Scalar."
            )
        if self._dtype is dtypes.bfloat16:
            return self._numbers().item()
        return self._array.item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        deciding("tolist", self._array)
        return self._numbers().tolist()

    def _numbers(self) -> np.ndarray:
        """The elements on the host, as NumPy's numbers."""
        array = self._array if self._device is devices.cpu else self._array.get()
        return decoded(array)

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The elements as a NumPy array on the same memory. Raises if it requires grad."""
        reading("numpy", self._array)
        if self._dtype is dtypes.bfloat16:
            raise DTypeError("numpy: NumPy has no bfloat16. Use tensor.float().numpy().")
        if self._edge is not None and not force:
            raise GradError(
                "numpy: Can't call numpy() on Tensor that requires grad. Use "
                "tensor.detach().numpy() instead."
            )
        if self._device is not devices.cpu:
            return self._array.get() if force else self._array.__array__()
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """How CuPy, Numba and PyTorch see a tensor on a GPU, without a copy."""
        if self._device is devices.cpu:
            raise AttributeError("__cuda_array_interface__: this tensor is on the CPU; use .cuda()")
        if self._edge is not None:
            raise GradError(
                "__cuda_array_interface__: this tensor requires grad. Use tensor.detach()."
            )
        return self._array.__cuda_array_interface__

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's type and number of the device: (1, 0) for the CPU, (2, 0) for the GPU."""
        return dlpack.device_of(self._array)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The memory as a DLPack capsule, which ``torch.from_dlpack`` and its like take.

        stream: of the taker, on a GPU. dl_device: where the taker wants it; another device is a
        copy. Raises BufferError if it requires grad, or if what is asked for is not possible.
        """
        reading("__dlpack__", self._array)
        if self._edge is not None:
            raise BufferError(
                "__dlpack__: Can't export tensors that require gradient, use tensor.detach()."
            )
        return dlpack.export(self._array, stream, max_version, dl_device, copy)

    def __bool__(self) -> bool:
        deciding("bool", self._array)
        if self._array.size != 1:
            several = "more than one value" if self._array.size else "no values"
            raise GradError(
                f"bool: Boolean value of Tensor with {several} is ambiguous. Use .any() or .all()."
            )
        return bool(self._numbers().item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        deciding("__index__", self._array)
        if self._dtype.is_floating_point or self._array.size != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self._array.item())
