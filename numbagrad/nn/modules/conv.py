"""Convolutions: ``Conv1d Conv2d Conv3d`` and their transposes. Start reading at ``_ConvNd``."""

from __future__ import annotations

import math
from typing import Any

from ...ops.conv import per_dimension
from ...tensor import Tensor
from .. import functional, init
from ..parameter import Parameter
from .made import new_parameter
from .module import Module

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
]


PADDING_MODES = "zeros", "reflect", "replicate", "circular"


class _ConvNd(Module):
    """What all share: sizes, and parameters uniform within ``1 / sqrt(fan in)``."""

    rank: int
    transposed = False
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        name = type(self).__name__
        if groups < 1:
            raise ValueError(f"{name}: groups must be a positive integer, got {groups}.")
        for what, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels < 1 or channels % groups:
                raise ValueError(
                    f"{name}: {what} must be divisible by groups, got {channels} and {groups}."
                )
        if padding_mode not in PADDING_MODES:
            raise ValueError(
                f"{name}: padding_mode must be one of {', '.join(map(repr, PADDING_MODES))}, but "
                f"got padding_mode={padding_mode!r}."
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = self._sizes("kernel_size", kernel_size, 1)
        self.stride = self._sizes("stride", stride, 1)
        self.padding: Any = (
            padding if isinstance(padding, str) else self._sizes("padding", padding, 0)
        )
        self.dilation = self._sizes("dilation", dilation, 1)
        self.output_padding = (0,) * self.rank
        self.groups = groups
        self.padding_mode = padding_mode
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(
                    f"{name}: Invalid padding string {padding!r}, should be one of 'valid', 'same'."
                )
            if padding == "same" and set(self.stride) != {1}:
                raise ValueError(f"{name}: padding='same' is not supported for strided ones.")
        outer, inner = out_channels, in_channels
        if self.transposed:
            outer, inner = inner, outer
        shape = (outer, inner // groups, *self.kernel_size)
        self.weight = new_parameter(*shape, device=device, dtype=dtype)
        made = new_parameter(out_channels, device=device, dtype=dtype)
        self.register_parameter("bias", made if bias else None)
        self.reset_parameters()

    def _sizes(self, what: str, value: Any, least: int) -> tuple[int, ...]:
        word = "non-positive" if least else "negative"
        return per_dimension(type(self).__name__, what, value, self.rank, least, word)

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(math.prod(self.weight.shape[1:]))
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        ]
        rest: list[tuple[str, Any, Any]] = [
            ("padding", self.padding, (0,) * self.rank),
            ("dilation", self.dilation, (1,) * self.rank),
            ("output_padding", self.output_padding, (0,) * self.rank),
            ("groups", self.groups, 1),
            ("bias", self.bias is not None, True),
            ("padding_mode", self.padding_mode, "zeros"),
        ]
        parts += [f"{name}={value}" for name, value, usual in rest if value != usual]
        return ", ".join(parts)


class _Straight(_ConvNd):
    """A convolution."""

    def forward(self, input: Tensor) -> Tensor:
        """``input`` convolved."""
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``input`` convolved with other weights: layers that make their own call it."""
        function = getattr(functional, f"conv{self.rank}d")
        padding = self.padding
        if self.padding_mode != "zeros":
            input, padding = functional.pad(input, self._widths(), self.padding_mode), 0
        options = self.stride, padding, self.dilation, self.groups
        return function(input, weight, bias, *options)

    def _widths(self) -> list[int]:
        """What is padded in front of and behind each dimension, the last one first."""
        if self.padding == "valid":
            return [0, 0] * self.rank
        if self.padding == "same":
            spans = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            pairs = [(span // 2, span - span // 2) for span in spans]
        else:
            pairs = [(p, p) for p in self.padding]
        return [width for pair in reversed(pairs) for width in pair]


class Conv1d(_Straight):
    """Cross-correlation along one dimension; arguments as for Conv2d."""

    rank = 1


class Conv2d(_Straight):
    """Cross-correlation of images: (n, in_channels, h, w) to (n, out_channels, oh, ow).

    weight (out_channels, in_channels / groups, *kernel_size); bias (out_channels). kernel_size,
    stride, padding, dilation: ints or pairs; padding also "same" or "valid". padding_mode: "zeros",
    "reflect", "replicate" or "circular", as of ``functional.pad``.

    >>> Conv2d(1, 6, 5)
    Conv2d(1, 6, kernel_size=(5, 5), stride=(1, 1))
    """

    rank = 2


class Conv3d(_Straight):
    """Cross-correlation of volumes; arguments as for Conv2d."""

    rank = 3


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ):
        name = type(self).__name__
        if padding_mode != "zeros":
            raise ValueError(
                f'{name}: Only "zeros" padding mode is supported for {name}, got {padding_mode!r}.'
            )
        if isinstance(padding, str):
            raise ValueError(f"{name}: padding must be ints, got {padding!r}.")
        sizes = in_channels, out_channels, kernel_size, stride, padding, dilation
        super().__init__(*sizes, groups, bias, padding_mode, device, dtype)
        self.output_padding = self._sizes("output_padding", output_padding, 0)

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """``input`` spread out; output_size: of the result's space, instead of output_padding."""
        more = self.output_padding
        if output_size is not None:
            more = self._padding_for(input, tuple(output_size)[-self.rank :])
        function = getattr(functional, f"conv_transpose{self.rank}d")
        options = self.stride, self.padding, more, self.groups, self.dilation
        return function(input, self.weight, self.bias, *options)

    def _padding_for(self, input: Tensor, size: tuple[int, ...]) -> tuple[int, ...]:
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                input.shape[-self.rank :],
                self.stride,
                self.padding,
                self.dilation,
                self.kernel_size,
                strict=True,
            )
        ]
        more = [n - m for n, m in zip(size, least, strict=True)]
        if any(not 0 <= m < s for m, s in zip(more, self.stride, strict=True)):
            most = [m + s - 1 for m, s in zip(least, self.stride, strict=True)]
            raise ValueError(
                f"{type(self).__name__}: requested an output size of {list(size)}, but valid sizes "
                f"range from {least} to {most}."
            )
        return tuple(more)


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution along one dimension; arguments as for ConvTranspose2d."""

    rank = 1


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution, the gradient of Conv2d: it makes images larger.

    weight (in_channels, out_channels / groups, *kernel_size); arguments as for Conv2d, and
    output_padding: lines more behind. See ``functional.conv_transpose2d``.

    >>> ConvTranspose2d(6, 1, 5, stride=2)
    ConvTranspose2d(6, 1, kernel_size=(5, 5), stride=(2, 2))
    """

    rank = 2


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution of volumes; arguments as for ConvTranspose2d."""

    rank = 3
