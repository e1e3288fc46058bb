"""Layers that move elements of images: padding, pixel shuffles, resizing. No parameters."""

from __future__ import annotations

from typing import Any

from ...errors import ShapeError
from ...tensor import Tensor
from .. import functional as F
from .module import Module

__all__ = [
    "ConstantPad2d",
    "PixelShuffle",
    "PixelUnshuffle",
    "ReflectionPad2d",
    "ReplicationPad2d",
    "Upsample",
    "ZeroPad2d",
]


class _Pad2d(Module):
    """padding: one width, or (left, right, top, bottom)."""

    mode = "constant"

    def __init__(self, padding: int | tuple[int, int, int, int]):
        super().__init__()
        self.padding = (padding,) * 4 if isinstance(padding, int) else tuple(padding)
        if len(self.padding) != 4:
            raise ShapeError(
                f"{type(self).__name__}: padding is a number, or left, right, top, bottom; got "
                f"{padding}."
            )

    def forward(self, input: Tensor) -> Tensor:
        """The padded (..., height, width)."""
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(_Pad2d):
    """Zeros around images. padding: one width, or (left, right, top, bottom)."""


class ReflectionPad2d(_Pad2d):
    """What is inside, mirrored at the edges. padding: one width, or (left, right, top, bottom)."""

    mode = "reflect"


class ReplicationPad2d(_Pad2d):
    """The edges repeated. padding: one width, or (left, right, top, bottom)."""

    mode = "replicate"


class ConstantPad2d(_Pad2d):
    """A value around images. padding: one width, or (left, right, top, bottom)."""

    def __init__(self, padding: int | tuple[int, int, int, int], value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The padded (..., height, width)."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class PixelShuffle(Module):
    """(..., c r r, h, w) to (..., c, h r, w r), r = upscale_factor."""

    def __init__(self, upscale_factor: int):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Channels become places."""
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(..., c, h r, w r) to (..., c r r, h, w), r = downscale_factor."""

    def __init__(self, downscale_factor: int):
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Places become channels."""
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class Upsample(Module):
    """Resizes (n, c, ...) images to size, or by scale_factor; ``functional.interpolate``."""

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ):
        super().__init__()
        self.size = size
        if isinstance(scale_factor, tuple):
            scale_factor = tuple(float(factor) for factor in scale_factor)
        elif scale_factor:
            scale_factor = float(scale_factor)
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        """The resized images."""
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        name = "size" if self.scale_factor is None else "scale_factor"
        return f"{name}={getattr(self, name)!r}, mode={self.mode!r}"
