"""What is said of an argument that should be a tensor, or a number that a dtype holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError, class_name
from ..kernels.traced_float import TracedFloat
from ..tape import NUMBERS
from ..tensor import Tensor
from .selected import Selected

__all__: list[str] = []  # nothing that users call

HELD = 65504.0
"""The largest float16: every floating dtype has numbers up to it."""


def no_operand(name: str, value: Any, position: int = 0) -> TypeError:
    """The error for ``value``, which came to the function ``name`` where it takes a tensor."""
    if type(value) is Selected:
        value.refuse(name)
    return TypeError(
        f"{name}(): argument {position + 1} must be Tensor, not {class_name(value)}. "
        f"Convert it with ng.tensor(...)."
    )


def check_operands(name: str, error: AttributeError, args: Sequence[Any]) -> None:
    """Raise that an argument must be a Tensor, where ``error`` says that it lacks what one has.

    Many functions take the attributes of a tensor and do not look whether it is one: to do so
    would cost each call time, and to catch what they raise costs none.
    """
    for position, value in enumerate(args):
        if value is error.obj and not isinstance(value, Tensor) and _has(error.name):
            raise no_operand(name, value, position) from None


def _has(attribute: str | None) -> bool:
    return attribute is not None and (
        hasattr(Tensor, attribute) or attribute in Tensor.__annotations__
    )


def number_of(name: str, value: Any, dtype: DType) -> Any:
    """``value``, which came to the function ``name``, as ``dtype`` holds it: a bool whether it is
    not 0, ints without its fraction, unsigned ones from below 0 again from above."""
    if type(value) is float and dtype.is_floating_point and -HELD <= value <= HELD:
        return value
    if type(value) is int and 0 <= value < 128 and dtype is not dtypes.bool_:
        return value
    if isinstance(value, np.generic):
        value = value.item()
    elif type(value) is TracedFloat:
        whole = type(value.value) is int
        if dtype.itemsize >= 4 and (dtype.is_floating_point or (whole and dtype is dtypes.int64)):
            return value  # which it holds, whatever it is in each call
        value = value.asked()
    elif type(value) not in NUMBERS and isinstance(value, (int, float)):
        value = dtypes.plain_number(value)
    if type(value) is not complex:
        if dtype is dtypes.bool_:
            return bool(value)
        if dtype.is_floating_point:
            if not math.isfinite(value) or abs(value) <= float(dtypes.finfo(dtype).max):
                return value
        elif math.isfinite(value):
            whole, limits = math.trunc(value), dtypes.iinfo(dtype)
            if (limits.min or -limits.max) <= whole <= limits.max:
                return whole if limits.min or whole >= 0 else whole + int(limits.max) + 1
    raise DTypeError(
        f"{name}: value {value!r} cannot be converted to {dtype} without overflow. Convert x first."
    )
