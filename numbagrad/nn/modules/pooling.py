"""Pooling: ``MaxPool*d AvgPool*d LPPool*d``, the adaptive ones, which are told the output's size,
and ``MaxUnpool*d``, which goes back.
"""

from __future__ import annotations

from typing import Any

from ...ops.conv import per_dimension
from ...tensor import Tensor
from .. import functional
from .module import Module
from .utils import _single

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class _MaxPoolNd(Module):
    """The largest of each window."""

    rank: int

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        """``input`` pooled."""
        function = getattr(functional, f"max_pool{self.rank}d")
        moves = self.kernel_size, self.stride, self.padding, self.dilation
        return function(input, *moves, self.ceil_mode, self.return_indices)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """The largest of each window along the last dimension; see ``functional.max_pool1d``."""

    rank = 1


class MaxPool2d(_MaxPoolNd):
    """The largest of each window of images; see ``functional.max_pool2d``.

    >>> MaxPool2d(2)
    MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)
    """

    rank = 2


class MaxPool3d(_MaxPoolNd):
    """The largest of each window of volumes; see ``functional.max_pool3d``."""

    rank = 3


class _MaxUnpool(Module):
    """Zeros, and each element at the place that max pooling took it from."""

    rank: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0):
        super().__init__()
        self.kernel_size = self._sizes("kernel_size", kernel_size, 1)
        self.stride = self._sizes("stride", kernel_size if stride is None else stride, 1)
        self.padding = self._sizes("padding", padding, 0)

    def _sizes(self, what: str, value: Any, least: int) -> tuple[int, ...]:
        word = "non-positive" if least else "negative"
        return per_dimension(type(self).__name__, what, value, self.rank, least, word)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """``input`` at ``indices``; output_size: of the result's space, or its whole shape."""
        function = getattr(functional, f"max_unpool{self.rank}d")
        moves = self.kernel_size, self.stride, self.padding
        return function(input, indices, *moves, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """MaxPool1d undone, given its values and indices; see ``functional.max_unpool1d``."""

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """MaxPool2d undone, given its values and indices; see ``functional.max_unpool2d``.

    >>> MaxUnpool2d(2, stride=3)
    MaxUnpool2d(kernel_size=(2, 2), stride=(3, 3), padding=(0, 0))
    """

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """MaxPool3d undone, given its values and indices; see ``functional.max_unpool3d``."""

    rank = 3


class _AvgPoolNd(Module):
    """The mean of each window."""

    kernel_size: Any
    stride: Any
    padding: Any

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean of each window along the last dimension; see ``functional.avg_pool1d``."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        super().__init__()
        self.kernel_size = _single(kernel_size)
        self.stride = self.kernel_size if stride is None else _single(stride)
        self.padding = _single(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        """``input`` pooled."""
        moves = self.kernel_size, self.stride, self.padding
        return functional.avg_pool1d(input, *moves, self.ceil_mode, self.count_include_pad)


class _AvgPool(_AvgPoolNd):
    """The mean of each window of images or volumes."""

    rank: int

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        """``input`` pooled."""
        function = getattr(functional, f"avg_pool{self.rank}d")
        moves = self.kernel_size, self.stride, self.padding
        modes = self.ceil_mode, self.count_include_pad, self.divisor_override
        return function(input, *moves, *modes)


class AvgPool2d(_AvgPool):
    """The mean of each window of images; see ``functional.avg_pool2d``."""

    rank = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of volumes; see ``functional.avg_pool3d``."""

    rank = 3


class _LPPoolNd(Module):
    """The p-norm of each window."""

    rank: int

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ):
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """``input`` pooled."""
        function = getattr(functional, f"lp_pool{self.rank}d")
        return function(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """The p-norm of each window along the last dimension; see ``functional.lp_pool1d``."""

    rank = 1


class LPPool2d(_LPPoolNd):
    """The p-norm of each window of images; see ``functional.lp_pool2d``.

    >>> LPPool2d(2, 3, stride=2)
    LPPool2d(norm_type=2, kernel_size=3, stride=2, ceil_mode=False)
    """

    rank = 2


class LPPool3d(_LPPoolNd):
    """The p-norm of each window of volumes; see ``functional.lp_pool3d``."""

    rank = 3


class _Adaptive(Module):
    """Windows that cover the input: output_size of them, for each dimension or all."""

    def __init__(self, output_size: Any):
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPoolNd(_Adaptive):
    """The means of windows that cover the input."""


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """The means of output_size windows that cover the last dimension."""

    def forward(self, input: Tensor) -> Tensor:
        """``input`` pooled."""
        return functional.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """The means of output_size windows that cover an image: an int or a pair, None: as many."""

    def forward(self, input: Tensor) -> Tensor:
        """``input`` pooled."""
        return functional.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """The means of output_size windows that cover a volume: an int or three, None: as many."""

    def forward(self, input: Tensor) -> Tensor:
        """``input`` pooled."""
        return functional.adaptive_avg_pool3d(input, self.output_size)


class _AdaptiveMaxPoolNd(_Adaptive):
    """The largest of windows that cover the input."""

    rank: int

    def __init__(self, output_size: Any, return_indices: bool = False):
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        """``input`` pooled."""
        function = getattr(functional, f"adaptive_max_pool{self.rank}d")
        return function(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The largest of output_size windows that cover the last dimension."""

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The largest of output_size windows that cover an image."""

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The largest of output_size windows that cover a volume."""

    rank = 3
