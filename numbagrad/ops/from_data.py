"""New tensors from numbers, nested lists and arrays, here and in other libraries: ``tensor``."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import devices, dlpack, dtypes
from ..devices import place_of
from ..dtypes import DType
from ..errors import ShapeError
from ..kernels import machine
from ..kernels.cuda.runtime import foreign
from ..kernels.halves import encoded
from ..kernels.traced_float import TracedFloat
from ..tensor import Tensor, wrap, wrap_any
from .base import contiguous
from .create import _finish, full
from .elementwise import cast
from .operand import number_of
from .transfer import transfer


def _ragged(data: Any, shape: tuple[int, ...], dim: int = 0) -> None:
    """Raise where nested lists first differ from ``shape``, that of their first entries."""
    sequence = isinstance(data, (list, tuple))
    if dim == len(shape):
        if sequence:
            raise ShapeError(f"tensor: expected a number at dim {dim}, got a list.")
        return
    if not sequence:
        raise TypeError(f"tensor: expected a sequence at dim {dim}, got {data!r}.")
    if len(data) != shape[dim]:
        raise ShapeError(
            f"tensor: expected sequence of length {shape[dim]} at dim {dim} (got {len(data)}). All "
            f"lists of a dimension need one length."
        )
    for entry in data:
        _ragged(entry, shape, dim + 1)


def _first_shape(data: Any) -> tuple[int, ...]:
    shape = []
    while isinstance(data, (list, tuple)):
        shape.append(len(data))
        if not data:
            break
        data = data[0]
    return tuple(shape)


def _leaf(data: Any) -> Any:
    """The first entry of nested lists, or of other sequences."""
    while _is_sequence(data) and data:
        data = data[0]
    return data


def _plain(data: Any) -> Any:
    """Nested lists with their Tensors as NumPy arrays; of one element, as numbers."""
    if isinstance(data, Tensor):
        array = data._numbers()
        return array.reshape(()) if array.size == 1 else array
    if _is_sequence(data):
        return [_plain(entry) for entry in data]
    return data


def _has_double(data: Any) -> bool:
    """Whether nested lists hold a float64 that says so: a number of NumPy's, not Python's."""
    if not _is_sequence(data):
        return getattr(data, "dtype", None) == np.float64
    kinds = set(map(type, data))  # at the speed of C: lists of Python's numbers may be long
    return np.float64 in kinds or (not kinds <= _PYTHONS and any(map(_has_double, data)))


_PYTHONS = {float, int, bool}


def _is_sequence(data: Any) -> bool:
    """Whether ``data`` is a list, a tuple, or another sequence, such as a deque; no string."""
    return isinstance(data, (list, tuple)) or (
        isinstance(data, Sequence) and not isinstance(data, (str, bytes, bytearray, memoryview))
    )


def _array_of(data: Any, dtype: DType | None) -> np.ndarray:
    """A fresh C-contiguous array of numbers, nested lists, arrays or tensors."""
    if isinstance(data, Tensor):
        machine.reading("tensor", data._array)
        dtype = data._dtype if dtype is None else dtype
        data = data._numbers()
    if dtype is dtypes.bfloat16:
        return encoded(_array_of(data, dtypes.float32), dtype.numpy)
    if isinstance(data, (np.ndarray, np.generic)):
        target = dtypes.from_numpy(data.dtype) if dtype is None else dtype
        return np.array(data, target.numpy, order="C")
    if hasattr(data, "__array__") and not isinstance(data, (list, tuple)):
        return _array_of(np.asarray(data), dtype)
    leaf = _leaf(data)
    if isinstance(leaf, Tensor):
        data = _plain(data)
    elif not (isinstance(leaf, (numbers.Real, np.ndarray, np.generic)) or _is_sequence(leaf)):
        raise TypeError(
            f"tensor: new(): invalid data type '{type(leaf).__name__}'. Pass numbers, nested lists "
            f"of numbers, or an array."
        )
    try:
        array = np.array(data, order="C")
    except OverflowError as error:
        raise ShapeError(f"tensor: Overflow when unpacking long: {error}.") from None
    except ValueError:
        _ragged(data, _first_shape(data))
        raise
    if array.dtype.kind not in "fiub":
        _ragged(data, _first_shape(data))
        kind = array.dtype
        if kind.kind == "O":
            try:
                # Ints beyond int64, or arguments of a compiled function, which are floats.
                floating = any([isinstance(v, float) for v in array.flat])
                plain = np.float64 if floating else np.int64
                array = array.astype(plain if dtype is None else dtype.numpy)
            except OverflowError as error:
                raise ShapeError(f"tensor: Overflow when unpacking long: {error}.") from None
        else:
            raise TypeError(f"tensor: too many dimensions or invalid data type '{kind}'.")
    if dtype is not None:
        if dtype.numpy.kind in "iu" and array.size and array.dtype.kind in "iuf":
            for each in (array.min(), array.max()):
                number_of("tensor", each, dtype)
        return array.astype(dtype.numpy, copy=False)
    if array.dtype == np.float64 and not _has_double(data):
        return _array_of(array, dtypes.get_default_dtype())
    if array.dtype == np.uint64 and not isinstance(leaf, (np.generic, np.ndarray)):
        raise ShapeError("tensor: Overflow when unpacking long: an int needs over 63 bits.")
    return array.astype(dtypes.from_numpy(array.dtype).numpy, copy=False)


def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A new tensor with a copy of ``data``: a number, nested lists, an array or a tensor.

    dtype: by default int64, bool or the default floating dtype, as the numbers are; arrays keep
    theirs. The result is a leaf. Raises ShapeError for lists of unequal length.

    >>> tensor([[1.0, 2.0], [3.0, 4.0]]).shape
    ng.Size([2, 2])
    """
    if dtype is not None:
        dtype = dtypes.to_dtype(dtype)
    if isinstance(data, Tensor):
        if device is None:
            device = data._device
        warnings.warn(
            "tensor: To copy construct from a tensor, it is recommended to use x.detach().clone() "
            "rather than ng.tensor(x).",
            stacklevel=2,
        )
    device = place_of(device)
    if type(data) is TracedFloat:
        return full((), data, dtype=dtype, device=device, requires_grad=requires_grad)
    if machine.recording and isinstance(data, np.ndarray) and data.nbytes <= machine.MOST_COMPARED:
        machine.depends(data.tobytes)
    array = _array_of(data, dtype)
    return _finish(wrap(array, dtypes.from_numpy(array.dtype)), requires_grad, device)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """``data`` as a tensor: itself, or on the memory of an array, or a copy where needed."""
    dtype = None if dtype is None else dtypes.to_dtype(dtype)
    if isinstance(data, Tensor):
        return _finish(data if dtype is None else cast(data, dtype), False, device)
    if hasattr(data, "__cuda_array_interface__"):
        machine.open_cuda()
        found = wrap_any(machine.bind(foreign.borrow(data)))
        return _finish(found if dtype is None else cast(found, dtype), False, device)
    if isinstance(data, np.ndarray):
        found = from_numpy(data)
        found = found if dtype is None else cast(found, dtype)
    elif type(data) is TracedFloat:
        found = full((), data, dtype=dtype)
    else:
        array = _array_of(data, dtype)
        found = wrap(array, dtypes.from_numpy(array.dtype))
    return _finish(found, False, place_of(device))


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor on the memory of a NumPy array: a change of one shows in the other.

    An array that is read-only, or that repeats elements by a stride of 0, is copied.
    Raises ValueError for negative strides.

    >>> a = np.zeros(2, np.float32); x = from_numpy(a); a[0] = 1; x.tolist()
    [1.0, 0.0]
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy: expected np.ndarray (got {type(array).__name__}).")
    dtypes.from_numpy(array.dtype)
    if any([s < 0 for s in array.strides]):
        raise ShapeError(
            "from_numpy: At least one stride in the given numpy array is negative, and tensors "
            "with negative strides are not supported. Make a copy with array.copy()."
        )
    odd = any(
        [
            s % array.itemsize or (s == 0 and n > 1)
            for n, s in zip(array.shape, array.strides, strict=True)
        ]
    )
    if odd or not (array.flags.writeable and array.flags.aligned):
        array = array.copy()
    return wrap_any(machine.bind(np.asarray(array)))


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array, through DLPack.

    ext_tensor: an object with ``__dlpack__`` (PyTorch, NumPy, CuPy, JAX), or an unused capsule. Its
    memory lives as long as the tensor. Memory that is read-only, or that repeats elements by a
    stride of 0, is copied. device: move it there. copy: True always copies, False never does.

    Raises BufferError where sharing is not possible, or would need a copy that ``copy`` forbids;
    ShapeError or DeviceError for negative strides.

    >>> a = np.zeros(2, np.float32); x = from_dlpack(a); a[0] = 1; x.tolist()
    [1.0, 0.0]
    """
    place = None if device is None else devices.to_device(device)
    array, shared = dlpack.taken(ext_tensor, place is devices.cpu and copy is not False)
    if isinstance(array, np.ndarray):
        found = from_numpy(array)
        shared = found._array.size == 0 or found._array.ctypes.data == array.ctypes.data
    else:
        found = wrap_any(machine.bind(array))
    moved = found if place is None else transfer(found, place)
    if copy is False and (moved is not found or not shared):
        raise BufferError("from_dlpack: this needs a copy, and copy=False forbids one.")
    if moved is not found:
        return moved
    return found.clone() if copy and shared else found


def to_dlpack(x: Tensor) -> Any:
    """A capsule of DLPack on the memory of ``x``, for one taker: ``x.__dlpack__()``.

    >>> from_dlpack(to_dlpack(tensor([1.0]))).tolist()
    [1.0]
    """
    return x.__dlpack__()


def new_tensor(x: Tensor, data: Any, *, dtype: Any = None, **options: Any) -> Tensor:
    """``tensor(data)`` with the dtype of this tensor."""
    options.setdefault("device", x._device)
    return tensor(data, dtype=x._dtype if dtype is None else dtype, **options)


def asarray(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """``as_tensor``, or a copy.

    copy: True always copies; False raises ValueError where the memory of ``data`` cannot be shared.
    requires_grad: whether the result asks for a gradient; False without the history of ``data``; by
    default a tensor keeps its own.

    >>> a = np.zeros(2, np.float32); x = asarray(a, copy=False); a[0] = 1; x.tolist()
    [1.0, 0.0]
    """
    found = as_tensor(data, dtype, device)
    shared = found is data or (hasattr(data, "__cuda_array_interface__") and dtype is None)
    if isinstance(data, np.ndarray) and isinstance(found._array, np.ndarray):
        shared = not data.size or np.may_share_memory(found._array, data)
    if copy is False and not shared:
        raise ValueError(
            f"asarray: can't alias {type(data).__name__} as it is: this needs a copy, and "
            f"copy=False forbids one."
        )
    if copy and shared:
        found = contiguous(found).clone()
    if requires_grad is None or (requires_grad and found.requires_grad):
        return found
    return found.detach().requires_grad_(requires_grad)


__all__ = ["as_tensor", "asarray", "from_dlpack", "from_numpy", "tensor", "to_dlpack"]

METHODS: dict[str, Any] = {"new_tensor": new_tensor}
