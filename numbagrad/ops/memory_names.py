"""How a tensor lies in memory, and copies where others give views: PyTorch's rarer names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import dtypes, memory_formats
from ..devices import place_of
from ..errors import ShapeError
from ..kernels import machine
from ..tensor import Tensor, wrap
from .base import as_operand
from .create import shape_of
from .elementwise import clone
from .part import narrow
from .view import sizes_of

__all__ = ["detach_copy", "empty_permuted", "empty_strided", "is_inference", "narrow_copy"]


def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of any strides, in elements; its elements are whatever was in memory.

    >>> empty_strided((2, 3), (1, 2)).stride()
    (1, 2)
    """
    memory_formats.check_layout("empty_strided", layout)
    shape, steps = shape_of("empty_strided", (tuple(size),)), sizes_of("empty_strided", (stride,))
    if len(shape) != len(steps):
        raise ShapeError(
            f"empty_strided: dimensionality of sizes ({len(shape)}) must match dimensionality of "
            f"strides ({len(steps)})."
        )
    if min(steps, default=0) < 0:
        raise ShapeError(f"empty_strided: strides must not be negative, got {list(steps)}.")
    kind = dtypes.get_default_dtype() if dtype is None else dtypes.to_dtype(dtype)
    pairs = zip(shape, steps, strict=True)
    count = 0 if 0 in shape else 1 + sum([(n - 1) * s for n, s in pairs])
    memory = machine.empty((count,), kind.numpy, place_of(device))
    out = wrap(machine.view(memory, shape, steps, 0), kind)
    out._flat = out._array.flags.c_contiguous
    return out.requires_grad_() if requires_grad else out


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:
    """A tensor without gaps whose dimensions lie in the order ``physical_layout``, the outermost
    first; its elements are whatever was in memory. Options as for ``empty_strided``.

    >>> empty_permuted((2, 3, 5, 7), (0, 2, 3, 1)).stride()
    (105, 1, 21, 3)
    """
    shape, order = shape_of("empty_permuted", (tuple(size),)), tuple(physical_layout)
    if sorted(order) != list(range(len(shape))):
        raise ShapeError(
            f"empty_permuted: physical_layout must name each of the {len(shape)} dimensions of "
            f"size {list(shape)} once, from 0 on, got {list(order)}."
        )
    steps, step = [0] * len(shape), 1
    for d in reversed(order):
        steps[d] = step
        step *= max(shape[d], 1)
    return empty_strided(shape, steps, **options)


def new_empty_strided(
    x: Tensor, size: Sequence[int], stride: Sequence[int], dtype: Any = None, **options: Any
) -> Tensor:
    """``empty_strided`` with the dtype and device of this tensor."""
    options.setdefault("device", x._device)
    return empty_strided(size, stride, dtype=x._dtype if dtype is None else dtype, **options)


def narrow_copy(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """A copy of what ``narrow`` shows.

    >>> narrow_copy(tensor([1, 2, 3]), 0, 1, 2).tolist()
    [2, 3]
    """
    return clone(narrow(as_operand("narrow_copy", x), dim, start, length))


def detach_copy(x: Tensor) -> Tensor:
    """A copy of ``x`` without its history.

    >>> detach_copy(tensor([1.0], requires_grad=True)).requires_grad
    False
    """
    return clone(as_operand("detach_copy", x).detach())


def to_dense(x: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """``x`` itself, or in another dtype: tensors are dense. masked_grad changes nothing."""
    return x if dtype is None else x.to(dtype)


def is_inference(x: Tensor) -> bool:
    """False: tensors that ``inference_mode`` makes are as others, and may be used anywhere.

    >>> is_inference(tensor([1.0]))
    False
    """
    as_operand("is_inference", x)
    return False


def is_set_to(x: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same elements of the same memory: sizes, strides and place."""
    if x is tensor:
        return True
    mine, other = x._array, as_operand("is_set_to", tensor, 1)._array
    same = mine.shape == other.shape and mine.strides == other.strides
    same = same and x._dtype is tensor._dtype and x._device is tensor._device
    return bool(same and x.data_ptr() == tensor.data_ptr())


def dim_order(x: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions from that of the largest stride to that of the smallest.

    ambiguity_check: accepted, and changes nothing; among equal strides the first is the outer one.
    """
    array = x._array
    order = sorted(range(array.ndim), key=lambda d: (-array.strides[d], d))
    return tuple(order) if not array.flags.c_contiguous else tuple(range(array.ndim))


METHODS: dict[str, Any] = {
    "dim_order": dim_order,
    "is_inference": is_inference,
    "is_set_to": is_set_to,
    "narrow_copy": narrow_copy,
    "new_empty_strided": new_empty_strided,
    "to_dense": to_dense,
}
