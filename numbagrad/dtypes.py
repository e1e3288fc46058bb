"""Element types and PyTorch's promotion rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import DTypeError

if TYPE_CHECKING:
    from .float_limits import FloatLimits

__all__ = ["DType", "finfo", "get_default_dtype", "iinfo", "set_default_dtype"]


class DType:
    """An element type: ``ng.float32`` and its kin. One object each, compared by identity.

    numpy: the NumPy dtype of its memory; NumPy has no bfloat16, whose words are there two bytes
    without meaning. category: 0 bool, 1 integer, 2 floating; a higher one wins promotion.
    """

    __slots__ = ("category", "is_floating_point", "itemsize", "name", "numpy")

    def __init__(self, name: str, category: int, memory: str | None = None):
        self.name = name
        self.numpy = np.dtype(memory or name)
        self.category = category
        self.is_floating_point = category == 2
        self.itemsize = self.numpy.itemsize

    def __repr__(self) -> str:
        return f"ng.{self.name}"

    def __reduce__(self) -> Any:
        return named, (self.name,)


float32 = DType("float32", 2)
float64 = DType("float64", 2)
float16 = DType("float16", 2)
bfloat16 = DType("bfloat16", 2, "V2")
int64 = DType("int64", 1)
int32 = DType("int32", 1)
int16 = DType("int16", 1)
int8 = DType("int8", 1)
uint8 = DType("uint8", 1)
bool_ = DType("bool", 0)

ALL = (float32, float64, float16, bfloat16, int64, int32, int16, int8, uint8, bool_)
FLOATING = (float32, float64)
HALVES = (float16, bfloat16)
"""Kept in 16 bits and computed with in float32."""
_by_numpy = {d.numpy: d for d in ALL}
_default = float32


def from_numpy(numpy_dtype: Any) -> DType:
    """The DType of a NumPy dtype (object, class or name)."""
    found = _by_numpy.get(np.dtype(numpy_dtype))
    if found is None:
        raise DTypeError(
            f"dtype: NumPy's {np.dtype(numpy_dtype)} has no counterpart; numbagrad has "
            f"{', '.join(d.name for d in ALL)}. Convert the array with .astype first."
        )
    return found


def named(name: str) -> DType:
    """The DType called ``name``."""
    return next(d for d in ALL if d.name == name)


def to_dtype(value: Any) -> DType:
    """``value`` as a DType: a DType, one of Python's ``float int bool``, or NumPy's dtypes."""
    if type(value) is DType:
        return value
    if value is float:
        return float64
    named = getattr(value, "tensor_dtype", None)
    if named is not None:  # FloatTensor and its kin
        return named
    if value is int:
        return int64
    if value is bool:
        return bool_
    if value == "bfloat16":
        return bfloat16
    try:
        return from_numpy(value)
    except TypeError:
        raise DTypeError(
            f"dtype: expected one of {', '.join(map(repr, ALL))}, got {value!r}."
        ) from None


def get_default_dtype() -> DType:
    """The dtype of new floating tensors, ``ng.float32`` until changed."""
    return _default


def set_default_dtype(dtype: DType) -> None:
    """Make ``dtype``, a floating one, that of new floating tensors; float32 at first.

    >>> set_default_dtype(ng.bfloat16)
    >>> tensor([0.5]).dtype
    ng.bfloat16
    >>> set_default_dtype(ng.float32)
    """
    global _default
    dtype = to_dtype(dtype)
    if not dtype.is_floating_point:
        raise DTypeError(
            f"set_default_dtype: only floating-point types are supported as the default type, got "
            f"{dtype}."
        )
    _default = dtype
    for tell in when_default_changes:
        tell()


when_default_changes: list[Callable[[], None]] = []
"""What has to know of another default dtype."""


def plain_number(value: Any) -> Any:
    """A number of a class of its own, as a member of an ``IntEnum`` is, as Python's."""
    return int(value) if isinstance(value, int) else float(value)


def of_number(value: Any) -> DType:
    """The dtype that a Python number brings to promotion."""
    if value is True or value is False or isinstance(value, np.bool_):
        return bool_
    if isinstance(value, (float, np.floating)):
        return _default
    return int64


_SIGNED = {8: int8, 16: int16, 32: int32, 64: int64}


def promote_types(x: DType, y: DType) -> DType:
    """The smallest dtype that both convert to; PyTorch's table."""
    if x is y:
        return x
    if x.category != y.category:
        return x if x.category > y.category else y
    if x.itemsize == y.itemsize:  # int8 with uint8, float16 with bfloat16
        return float32 if x.is_floating_point else int16
    return x if x.itemsize > y.itemsize else y


def result_type(operands: list[tuple[DType, int]]) -> DType:
    """Promotion of ``(dtype, rank)`` pairs; rank is 2 for tensors with dimensions, 1 for tensors
    without, 0 for Python numbers. A lower rank decides only when its category is higher.
    """
    groups: list[DType | None] = [None, None, None]
    for dtype, rank in operands:
        held = groups[rank]
        groups[rank] = dtype if held is None else promote_types(held, dtype)
    result: DType | None = None
    for found in (groups[2], groups[1], groups[0]):
        # A number brings only its category: int tensor with 1.5 gives the default float.
        if found is not None and (result is None or found.category > result.category):
            result = found
    if result is None:
        raise ValueError("result_type needs at least one operand")
    return result


def finfo(dtype: DType | None = None) -> FloatLimits:
    """Limits of a floating dtype, by default the default one: eps, tiny, max, min."""
    from .float_limits import FloatLimits

    dtype = _default if dtype is None else to_dtype(dtype)
    if not dtype.is_floating_point:
        raise DTypeError(f"finfo: requires a floating point dtype, got {dtype}; use ng.iinfo.")
    if dtype is bfloat16:
        most, least = (2 - 2.0**-7) * 2.0**127, 2.0**-126
        return FloatLimits(16, 2.0**-7, most, -most, least, least, 0.01, dtype.name)
    found = np.finfo(dtype.numpy)
    least, resolution = float(found.tiny), float(found.resolution)
    limits = float(found.eps), float(found.max), float(found.min)
    return FloatLimits(found.bits, *limits, least, least, resolution, dtype.name)


def iinfo(dtype: DType) -> np.iinfo:
    """Limits of an integer dtype, as NumPy's iinfo (max, min)."""
    return np.iinfo(to_dtype(dtype).numpy)
