"""PyTorch's second names of max pooling, of functions that always return the places too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensor import Tensor
from .adaptive_pool import _adaptive_max
from .pool import _max_pool
from .remembered import remembered

__all__: list[str] = []  # in nn.functional alone


def _named(rank: int, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = f"{name}{rank}d_with_indices"
    function.__doc__ = (
        f"``{name}{rank}d`` with ``return_indices``: ``(values, indices)``, whatever is said."
    )
    return remembered(function)


def _fixed(rank: int) -> Callable[..., Any]:
    def pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        return _max_pool(rank, input, kernel_size, stride, padding, dilation, ceil_mode, True)

    return _named(rank, "max_pool", pool)


def _adaptive(rank: int) -> Callable[..., Any]:
    def pool(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        return _adaptive_max(rank, input, output_size, True)

    return _named(rank, "adaptive_max_pool", pool)


max_pool1d_with_indices = _fixed(1)
max_pool2d_with_indices = _fixed(2)
max_pool3d_with_indices = _fixed(3)
adaptive_max_pool1d_with_indices = _adaptive(1)
adaptive_max_pool2d_with_indices = _adaptive(2)
adaptive_max_pool3d_with_indices = _adaptive(3)
