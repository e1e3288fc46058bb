"""Max pooling over windows at random places: ``FractionalMaxPool2d FractionalMaxPool3d``."""

from __future__ import annotations

from typing import Any

from ...tensor import Tensor
from .. import functional
from .module import Module

__all__ = ["FractionalMaxPool2d", "FractionalMaxPool3d"]


class _Fractional(Module):
    rank: int
    _random_samples: Tensor | None

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ):
        super().__init__()
        name = type(self).__name__
        if (output_size is None) == (output_ratio is None):
            raise ValueError(
                f"{name} requires specifying either an output size, or a pooling ratio, not both."
            )

        def each(value: Any) -> Any:
            return (value,) * self.rank if isinstance(value, (int, float)) else value

        self.kernel_size = each(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = each(output_size)
        self.output_ratio = each(output_ratio)
        if output_ratio is not None and not all([0 < ratio < 1 for ratio in self.output_ratio]):
            raise ValueError(f"{name}: output_ratio must be between 0 and 1 (got {output_ratio}).")

    def forward(self, input: Tensor) -> Any:
        """``input`` pooled."""
        function = getattr(functional, f"fractional_max_pool{self.rank}d")
        sizes = self.kernel_size, self.output_size, self.output_ratio
        return function(input, *sizes, self.return_indices, self._random_samples)


class FractionalMaxPool2d(_Fractional):
    """``functional.fractional_max_pool2d`` of (n, c, h, w), the places anew in each call.

    >>> FractionalMaxPool2d(2, output_ratio=0.6)(ng.ones(1, 1, 10, 5)).shape
    ng.Size([1, 1, 6, 3])
    """

    rank = 2


class FractionalMaxPool3d(_Fractional):
    """``functional.fractional_max_pool3d`` of (n, c, d, h, w), the places anew in each call."""

    rank = 3
