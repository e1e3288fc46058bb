"""``Parameter`` and ``Buffer``, which a module lists as its own, and kinds without a shape yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..devices import place_of
from ..dtypes import get_default_dtype, to_dtype
from ..errors import UninitializedError
from ..kernels import machine
from ..kernels.cuda.runtime.array import DeviceArray
from ..ops.base import new_empty
from ..ops.plans import TENSORS
from ..tensor import Tensor

__all__ = ["Buffer", "Parameter", "Uninitialized", "UninitializedBuffer", "UninitializedParameter"]


def _take_memory(x: Tensor, kind: str, data: Tensor | None) -> Tensor:
    """Let ``x`` share the memory of ``data``, which is returned; of None an empty tensor."""
    if data is None:
        data = new_empty((0,), get_default_dtype())
    if not isinstance(data, Tensor):
        raise TypeError(
            f"{kind}: data must be a Tensor, got {type(data).__name__}. Convert it with "
            f"ng.tensor(...)."
        )
    x._share(data)
    x._counter = data._version_counter()
    return data


class Parameter(Tensor):
    """A tensor that a module registers when it is assigned to an attribute.

    data: shares its memory, not its history; None: an empty tensor. requires_grad: True unless
    told, so ``data`` must be floating then.

    >>> Parameter(Tensor([1.0, 2.0]))
    Parameter containing:
    tensor([1., 2.], requires_grad=True)
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Parameter:
        return object.__new__(cls)

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True):
        _take_memory(self, "Parameter", data)
        self.requires_grad_(requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if machine.is_compiling():
            machine.outside(
                "deepcopy of a Parameter",
                "Copy it, or its module, before the compiled step; ng.func.functional_call(module, "
                "weights, args) calls one module with other weights.",
            )
        copied = super().__deepcopy__(memo)
        copied._grad = None  # a copy of a model starts anew, as PyTorch's does
        return copied

    def _deep_copied(self, memo: dict[int, Any]) -> Any:
        array = self._array  # memory of its own, as PyTorch's
        return array.copy() if isinstance(array, DeviceArray) else array.copy(order="K")

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


TENSORS.append(Parameter)


class Buffer(Tensor):
    """A tensor that a module registers as a buffer when it is assigned to an attribute.

    data: shares its memory, not its history; None: an empty tensor. persistent: False keeps it
    out of ``state_dict``. Converting the module puts an ordinary tensor in its place.

    >>> Buffer(Tensor([1.0, 2.0]), persistent=False)
    tensor([1., 2.])
    """

    persistent = True

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Buffer:
        return object.__new__(cls)

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True):
        data = _take_memory(self, "Buffer", data)
        self.requires_grad_(data.requires_grad)
        self.persistent = persistent


class Uninitialized(Tensor):
    """A tensor with a dtype and a device, to which ``materialize`` will give a shape.

    Whatever needs its shape or elements raises UninitializedError. The object stays the same, so
    an optimiser may be given it before.
    """

    _initialized: type[Tensor] = Tensor
    _stand_in: Tensor

    def _stand(self, stand_in: Tensor) -> None:
        self._stand_in, self._dtype, self._device = stand_in, stand_in._dtype, stand_in._device

    def _convert(self, convert: Callable[[Tensor], Tensor]) -> None:
        """Change dtype and device as ``convert`` changes those of a tensor."""
        self._stand(convert(self._stand_in))

    @property
    def _array(self) -> Any:
        raise UninitializedError(
            f"{type(self).__name__}: an uninitialized parameter or buffer has no shape and no "
            f"elements. Call its module once, which makes them, or load a state dict into it."
        )

    @_array.setter
    def _array(self, array: Any) -> None:
        raise AssertionError("an uninitialized tensor takes elements by materialize alone")

    def materialize(self, shape: Sequence[int], device: Any = None, dtype: Any = None) -> None:
        """Become a tensor of ``shape``, its elements not set; other options as they are."""
        kind = self._dtype if dtype is None else to_dtype(dtype)
        made = new_empty(tuple(shape), kind, place_of(device, self))
        del self._stand_in
        self.__class__ = self._initialized  # type: ignore[assignment]
        self._share(made)
        machine.changed()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = object.__new__(type(self))
        copied._stand(self._stand_in)
        if self.requires_grad:
            copied.requires_grad_()
        memo[id(self)] = copied
        return copied

    def __copy__(self) -> Any:
        return self.__deepcopy__({})

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (type(self), self._stand_in, self.requires_grad)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


def _rebuild(cls: type, stand_in: Tensor, requires_grad: bool) -> Any:
    made: Any = object.__new__(cls)
    made._stand(stand_in)
    return made.requires_grad_(requires_grad)


class UninitializedParameter(Uninitialized, Parameter):
    """A Parameter that gets its shape in the first call of its lazy module.

    >>> UninitializedParameter()
    <UninitializedParameter>
    """

    _initialized = Parameter

    def __new__(
        cls, requires_grad: bool = True, device: Any = None, dtype: Any = None
    ) -> UninitializedParameter:
        return object.__new__(cls)

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None):
        kind = get_default_dtype() if dtype is None else to_dtype(dtype)
        self._stand(new_empty((0,), kind, place_of(device)))
        self.requires_grad_(requires_grad)


class UninitializedBuffer(Uninitialized, Buffer):
    """A Buffer that gets its shape in the first call of its lazy module."""

    def __new__(
        cls, device: Any = None, dtype: Any = None, *, persistent: bool = True
    ) -> UninitializedBuffer:
        return object.__new__(cls)

    def __init__(self, device: Any = None, dtype: Any = None, *, persistent: bool = True):
        kind = get_default_dtype() if dtype is None else to_dtype(dtype)
        self._stand(new_empty((0,), kind, place_of(device)))
        self.persistent = persistent
