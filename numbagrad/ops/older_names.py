"""PyTorch's older and rarer names: what they do is another function's work, or a question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import devices, dtypes
from ..devices import place_of
from ..errors import ShapeError
from ..kernels.cpu import create as kernels
from ..shaped import Size
from ..tensor import Tensor
from .base import as_operand, full, launch, new_empty, sum_to_shape
from .create import empty
from .elementwise import clone, type_
from .from_data import as_tensor, from_numpy, tensor
from .join import chunk, split
from .overwrite import copy_, fill_
from .rearranged import split_with_sizes
from .remembered import remembered
from .view import sizes_of

__all__ = [
    "detach",
    "fill",
    "frombuffer",
    "get_device",
    "is_complex",
    "is_same_size",
    "is_signed",
    "range",
    "scalar_tensor",
    "typename",
    "unsafe_chunk",
    "unsafe_split",
    "unsafe_split_with_sizes",
]


def detach(x: Tensor) -> Tensor:
    """``x`` without its history, on the same memory.

    >>> detach(tensor([1.0], requires_grad=True)).requires_grad
    False
    """
    return as_operand("detach", x).detach()


@remembered
def fill(x: Tensor, value: Any) -> Tensor:
    """A tensor like ``x`` with every element ``value``, a number or a 0-d tensor.

    Gradient: to ``value``, the sum of g.

    >>> fill(tensor([1.0, 2.0]), 3).tolist()
    [3.0, 3.0]
    """
    out = new_empty(as_operand("fill", x)._array.shape, x._dtype, x._device)
    if isinstance(value, Tensor) and value._array.ndim:
        raise ShapeError(
            f"fill: only supports 0-dimension value tensor but got tensor with "
            f"{value._array.ndim} dimensions. Use x.expand or copy_."
        )
    return copy_(out, value) if isinstance(value, Tensor) else fill_(out, value)


def range(
    start: Any,
    end: Any,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from ``start`` to ``end``, which is included if met; floating unless told otherwise.

    ``arange`` leaves the end out, as Python does, and is what to use.

    >>> range(1, 4).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    if not step:
        raise ShapeError("range: step must be nonzero.")
    if not all(map(math.isfinite, (start, end))):
        raise ShapeError(f"range: unsupported range: {start} -> {end}.")
    if (end - start) * step < 0:
        raise ShapeError(
            f"range: upper bound and lower bound inconsistent with step sign: from {start} to "
            f"{end} by {step}."
        )
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.to_dtype(dtype)
    place = place_of(device)
    out = new_empty((math.floor((end - start) / step) + 1,), kind, place)
    if kind.is_floating_point:
        start, step = float(start), float(step)
    launch(kernels.arange, out, start, step)
    return out.requires_grad_() if requires_grad else out


def scalar_tensor(
    s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A number as a 0-d tensor; floating unless told otherwise.

    >>> scalar_tensor(3).item()
    3.0
    """
    if not isinstance(s, (int, float, np.generic)):
        raise TypeError(
            f"scalar_tensor(): argument 's' must be Number, not {type(s).__name__}. Use ng.tensor."
        )
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.to_dtype(dtype)
    place = place_of(device)
    out = full((), s.item() if isinstance(s, np.generic) else s, kind, place)
    return out.requires_grad_() if requires_grad else out


def frombuffer(
    buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A vector on the memory of ``buffer``, a bytearray say; read-only memory is copied.

    count: how many elements, by default all after ``offset`` bytes. Raises ValueError where they
    do not fit, and for what has no memory to show, such as text.

    >>> import numbagrad as ng
    >>> frombuffer(bytearray([1, 2, 3]), dtype=ng.uint8, offset=1).tolist()
    [2, 3]
    """
    kind = dtypes.to_dtype(dtype)
    try:
        length, size = memoryview(buffer).nbytes, kind.itemsize
    except TypeError:
        raise ValueError(
            f"frombuffer: {type(buffer).__name__} object does not implement Python buffer "
            f"protocol. Give bytes or a bytearray; text has text.encode()."
        ) from None
    rest = length - offset
    if not length or not count:
        raise ValueError(
            f"frombuffer: both buffer length ({length}) and count ({count}) must not be 0."
        )
    if not 0 <= offset < length:
        raise ValueError(
            f"frombuffer: offset ({offset} bytes) must be non-negative and no greater than buffer "
            f"length ({length} bytes) minus 1."
        )
    if count > 0 and count * size > rest:
        raise ValueError(
            f"frombuffer: requested buffer length ({count} * {size} bytes) after offset ({offset} "
            f"bytes) must not be greater than actual buffer length ({length} bytes)."
        )
    if count < 0 and rest % size:
        raise ValueError(
            f"frombuffer: buffer length ({rest} bytes) after offset ({offset} bytes) must be a "
            f"multiple of element size ({size})."
        )
    out = from_numpy(np.frombuffer(buffer, kind.numpy, count, offset))
    return out.requires_grad_() if requires_grad else out


def unsafe_chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """The same as ``chunk``.

    >>> [part.tolist() for part in unsafe_chunk(tensor([1, 2, 3]), 2)]
    [[1, 2], [3]]
    """
    return chunk(as_operand("unsafe_chunk", x), chunks, dim)


def unsafe_split(x: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """The same as ``split``.

    >>> [part.tolist() for part in unsafe_split(tensor([1, 2, 3]), 2)]
    [[1, 2], [3]]
    """
    return split(as_operand("unsafe_split", x), split_size, dim)


def unsafe_split_with_sizes(
    x: Tensor, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Tensor, ...]:
    """The same as ``split_with_sizes``.

    >>> [part.tolist() for part in unsafe_split_with_sizes(tensor([1, 2, 3]), [1, 2])]
    [[1], [2, 3]]
    """
    return split_with_sizes(as_operand("unsafe_split_with_sizes", x), split_sizes, dim)


# -- questions -------------------------------------------------------------------------------------


def is_signed(x: Tensor) -> bool:
    """Whether the dtype has negative numbers.

    >>> is_signed(tensor([True]))
    False
    """
    return as_operand("is_signed", x)._dtype not in (dtypes.uint8, dtypes.bool_)


def is_complex(x: Tensor) -> bool:
    """False: there are no complex numbers. Optimisers of one's own ask.

    >>> is_complex(tensor([1.0]))
    False
    """
    as_operand("is_complex", x)
    return False


def is_same_size(x: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one shape.

    >>> is_same_size(tensor([1]), tensor([2]))
    True
    """
    mine, theirs = (as_operand("is_same_size", v, i)._array for i, v in enumerate((x, other)))
    return bool(mine.shape == theirs.shape)


def get_device(x: Tensor) -> int:
    """The number of the GPU that has the elements, -1 for the CPU.

    >>> get_device(tensor([1]))
    -1
    """
    place = as_operand("get_device", x)._device
    return -1 if place is devices.cpu else place.index or 0


def typename(obj: Any) -> str:
    """The name of a tensor's type, or of another object's class with its module.

    >>> typename(tensor([1]))
    'ng.LongTensor'
    """
    if isinstance(obj, Tensor):
        return str(type_(obj))
    own = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(own, "__module__", "")
    return own.__qualname__ if module in ("", "builtins") else f"{module}.{own.__qualname__}"


def _never(x: Tensor) -> bool:
    """False: tensors are dense, and have memory."""
    return False


def _on_cpu(x: Tensor) -> bool:
    """Whether the elements are on the CPU."""
    return x._device is devices.cpu


def new(x: Tensor, *data: Any, device: Any = None) -> Tensor:
    """A tensor of this dtype, on this device: of data, or uninitialised of sizes.

    ``new_tensor`` and ``new_empty`` say which of them is meant.
    """
    place = place_of(device, x)
    if len(data) == 1 and not isinstance(data[0], (int, Size)):
        if isinstance(data[0], Tensor):
            return clone(as_tensor(data[0].detach(), x._dtype, place))
        return tensor(data[0], dtype=x._dtype, device=place)
    return empty(*(data or (0,)), dtype=x._dtype, device=place)


def sum_to_size(x: Tensor, *size: Any) -> Tensor:
    """The sum over the dimensions in which ``size`` broadcasts to this shape."""
    shape, own = sizes_of("sum_to_size", size), x._array.shape
    tail = own[len(own) - len(shape) :] if shape else ()
    fits = len(shape) <= len(own) and all([a in (1, b) for a, b in zip(shape, tail, strict=True)])
    if not fits:
        raise ShapeError(
            f"sum_to_size: size {list(shape)} is not expandable to size {list(own)}. Each size "
            f"must be that of the tensor, counted from the last, or 1."
        )
    return sum_to_shape(x, shape)


METHODS: dict[str, Any] = {
    "get_device": get_device,
    "is_complex": is_complex,
    "is_cpu": property(_on_cpu),
    "is_meta": property(_never),
    "is_quantized": property(_never),
    "is_same_size": is_same_size,
    "is_signed": is_signed,
    "is_sparse": property(_never),
    "new": new,
    "sum_to_size": sum_to_size,
    "unsafe_chunk": unsafe_chunk,
    "unsafe_split": unsafe_split,
    "unsafe_split_with_sizes": unsafe_split_with_sizes,
}
