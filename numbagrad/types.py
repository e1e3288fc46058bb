"""Types for annotations, by the names that PyTorch's programs import."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, Any

from .devices import Device as _device
from .dtypes import DType
from .shaped import Size
from .tensor import Tensor

__all__ = ["Device", "FileLike", "Number", "Size", "Tensor"]

Number = int | float | bool
"""A number of Python's."""

Device = _device | str | int | None
"""What may be given as a device."""

FileLike = str | os.PathLike[str] | IO[bytes]
"""What may be given as a file."""

_int = builtins.int
_float = builtins.float
_bool = builtins.bool
_size = Size | list[int] | tuple[int, ...]
_TensorOrTensors = Tensor | Sequence[Tensor]
_layout = Any
_dtype = DType
