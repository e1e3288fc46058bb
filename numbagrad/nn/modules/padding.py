"""Layers that put elements around sequences (..., l), images (..., h, w) and volumes."""

from __future__ import annotations

from ...errors import ShapeError
from ...tensor import Tensor
from .. import functional as F
from .module import Module

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]

SIDES = ("left", "right", "top", "bottom", "front", "back")


class _Pad(Module):
    """padding: one width, or two for each dimension, the last one first."""

    dims = 1
    mode = "constant"

    def __init__(self, padding: int | tuple[int, ...]):
        super().__init__()
        count = 2 * self.dims
        self.padding = (padding,) * count if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != count:
            raise ShapeError(
                f"{type(self).__name__}: padding is a number, or {', '.join(SIDES[:count])}; got "
                f"{padding}."
            )

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """A value around."""

    def __init__(self, padding: int | tuple[int, ...], value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The padded input."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ZeroPad1d(_Pad):
    """Zeros around sequences.

    padding: one width, or (left, right).
    """


class ZeroPad2d(_Pad):
    """Zeros around images.

    padding: one width, or (left, right, top, bottom).
    """

    dims = 2


class ZeroPad3d(_Pad):
    """Zeros around volumes.

    padding: one width, or (left, right, top, bottom, front, back).
    """

    dims = 3


class ConstantPad1d(_ConstantPad):
    """A value around sequences.

    padding: one width, or (left, right).
    """


class ConstantPad2d(_ConstantPad):
    """A value around images.

    padding: one width, or (left, right, top, bottom).
    """

    dims = 2


class ConstantPad3d(_ConstantPad):
    """A value around volumes.

    padding: one width, or (left, right, top, bottom, front, back).
    """

    dims = 3


class ReflectionPad1d(_Pad):
    """What is inside, mirrored at the edges of sequences.

    padding: one width, or (left, right).
    """

    mode = "reflect"


class ReflectionPad2d(_Pad):
    """What is inside, mirrored at the edges of images.

    padding: one width, or (left, right, top, bottom).
    """

    dims = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """What is inside, mirrored at the edges of volumes.

    padding: one width, or (left, right, top, bottom, front, back).
    """

    dims = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """The edges repeated around sequences.

    padding: one width, or (left, right).
    """

    mode = "replicate"


class ReplicationPad2d(_Pad):
    """The edges repeated around images.

    padding: one width, or (left, right, top, bottom).
    """

    dims = 2
    mode = "replicate"


class ReplicationPad3d(_Pad):
    """The edges repeated around volumes.

    padding: one width, or (left, right, top, bottom, front, back).
    """

    dims = 3
    mode = "replicate"


class CircularPad1d(_Pad):
    """What is inside, once more around sequences.

    padding: one width, or (left, right).
    """

    mode = "circular"


class CircularPad2d(_Pad):
    """What is inside, once more around images.

    padding: one width, or (left, right, top, bottom).
    """

    dims = 2
    mode = "circular"


class CircularPad3d(_Pad):
    """What is inside, once more around volumes.

    padding: one width, or (left, right, top, bottom, front, back).
    """

    dims = 3
    mode = "circular"
