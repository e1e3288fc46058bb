"""Moving a module: ``to``, ``double``, ``cuda`` and their kin, over parameters and buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import memory_formats
from ...autograd.modes import no_grad
from ...devices import Device, to_device
from ...dtypes import DType, bfloat16, float16, float32, float64, to_dtype
from ...errors import DTypeError
from ...tensor import Tensor
from ..parameter import Uninitialized

__all__ = ["Convertible"]


class Convertible:
    """The part of ``Module`` that replaces the memory of what is registered."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Put ``fn(x)`` in place of each parameter's memory, gradient and each buffer, of the
        modules within first. Modules override it that have tensors beside."""
        if recurse:
            for module in self.children():  # type: ignore[attr-defined]
                module._apply(fn)
        with no_grad():
            for parameter in self._parameters.values():  # type: ignore[attr-defined]
                if parameter is None:
                    continue
                if isinstance(parameter, Uninitialized):
                    parameter._convert(fn)
                    continue
                grad, parameter.grad = parameter.grad, None
                parameter.data = fn(parameter.data)
                if grad is not None:
                    parameter.grad = fn(grad)
            for name, buffer in self._buffers.items():  # type: ignore[attr-defined]
                if isinstance(buffer, Uninitialized):
                    buffer._convert(fn)
                elif buffer is not None:
                    self._put("_buffers", name, fn(buffer))  # type: ignore[attr-defined]
        return self

    def _to_dtype(self, dtype: DType) -> Any:
        return self._apply(lambda x: x.to(dtype) if x.is_floating_point() else x)

    def to(
        self,
        *args: Any,
        device: Any = None,
        dtype: Any = None,
        non_blocking: bool = False,
        memory_format: Any = None,
    ) -> Any:
        """Move to a device, a floating dtype, or both; or to those of a tensor. In place.

        Integer tensors keep their dtype. ``to("cpu")``, ``to(ng.float64)``, ``to(x)``.
        memory_format: a hint, which changes nothing. non_blocking: as in ``Tensor.to``.
        """
        memory_formats.check("to", memory_format)
        for value in args:
            if isinstance(value, Tensor):
                device, dtype = value.device, value.dtype
            elif isinstance(value, DType):
                dtype = value
            elif isinstance(value, (str, Device)):
                device = value
            elif isinstance(value, bool):
                non_blocking = value
            elif value is not None:
                raise TypeError(f"to: expected a device, dtype or Tensor, got {value!r}.")
        if dtype is not None:
            dtype = to_dtype(dtype)
            if not dtype.is_floating_point:
                raise DTypeError(f"to: Module.to only accepts floating point dtypes, got {dtype}.")
        if device is not None:
            place = to_device(device)
            self._apply(lambda x: x.to(place, non_blocking=non_blocking))
        return self if dtype is None else self._to_dtype(dtype)

    def float(self) -> Any:
        """Convert floating parameters and buffers to float32."""
        return self._to_dtype(float32)

    def double(self) -> Any:
        """Convert floating parameters and buffers to float64."""
        return self._to_dtype(float64)

    def half(self) -> Any:
        """Convert floating parameters and buffers to float16, which only a GPU multiplies."""
        return self._to_dtype(float16)

    def bfloat16(self) -> Any:
        """Convert floating parameters and buffers to bfloat16, which only a GPU multiplies."""
        return self._to_dtype(bfloat16)

    def cpu(self) -> Any:
        """Move to the CPU."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None) -> Any:
        """Move to a GPU; a DeviceError where there is none."""
        if isinstance(device, int):
            device = f"cuda:{device}"
        return self.to(device=device or "cuda")
