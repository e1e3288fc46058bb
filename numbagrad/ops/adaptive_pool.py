"""Pooling whose windows cover the input, so many along each axis as the output is to have.

Start reading at ``_adaptive``; the operations are those of ``pool.py``.
"""

from __future__ import annotations

import functools
from typing import Any

from ..errors import ShapeError
from ..kernels import machine
from ..tensor import Tensor
from .autocasting import CPU, raised
from .conv import per_dimension
from .pool import AvgPool, MaxPool, Pooled, Windows, _input, _windows
from .remembered import remembered

__all__: list[str] = []  # in nn.functional alone


@functools.lru_cache(maxsize=1024)
def _axis(size: int, count: int, largest: bool) -> tuple:
    """Windows of nearly equal size that cover the axis; the third number: a step or a divisor."""
    bounds = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
    return tuple([(a, b, 1 if largest else b - a) for a, b in bounds])


def _adaptive(
    name: str, rank: int, input: Any, output_size: Any, largest: bool
) -> tuple[Tensor, Windows]:
    """The input and its windows, checked."""
    x = _input(name, rank, input)
    large = x._array.shape[-rank:]
    wanted = (output_size,) * rank if output_size is None else output_size
    if isinstance(wanted, (tuple, list)):
        if len(wanted) != rank:
            raise ShapeError(f"{name}: output_size must be one int or {rank}, got {output_size!r}.")
        wanted = [n if w is None else w for w, n in zip(wanted, large, strict=True)]
    counts = per_dimension(name, "output_size", wanted, rank, 0, "negative")
    axes = [_axis(n, c, largest) for n, c in zip(large, counts, strict=True)]
    return x, _windows(large, axes)


def _adaptive_avg(rank: int, input: Any, output_size: Any) -> Tensor:
    x, windows = _adaptive(f"adaptive_avg_pool{rank}d", rank, input, output_size, False)
    if set(windows.small) == {1}:  # one window: a reduction has the faster kernel
        return x.mean(tuple(range(-rank, 0)), keepdim=True)
    return AvgPool.apply(x, windows)


@remembered
def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """The means of output_size windows that cover the last dimension.

    >>> adaptive_avg_pool1d(tensor([[1.0, 3.0, 2.0]]), 2).tolist()
    [[2.0, 2.5]]
    """
    return _adaptive_avg(1, input, output_size)


@remembered
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """The means of windows that cover an image: output_size of them, an int or two, None: as many.

    Window i of n along a size goes from ``i size // n`` to ``(i + 1) size / n``, rounded up.

    >>> adaptive_avg_pool2d(tensor([[[1.0, 3.0], [2.0, 0.0]]]), 1).tolist()
    [[[1.5]]]
    """
    return _adaptive_avg(2, input, output_size)


@remembered
def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """The means of windows that cover a volume; windows as for ``adaptive_avg_pool2d``.

    >>> adaptive_avg_pool3d(tensor([[[[1.0, 3.0]], [[2.0, 0.0]]]]), (1, None, 2)).tolist()
    [[[[1.5, 1.5]]]]
    """
    if machine.autocasting:
        (input,) = raised(input, on=CPU)
    return _adaptive_avg(3, input, output_size)


def _adaptive_max(rank: int, input: Any, output_size: Any, return_indices: bool) -> Any:
    name = f"adaptive_max_pool{rank}d"
    values, indices = MaxPool.apply(*_adaptive(name, rank, input, output_size, True))
    return Pooled(values, indices) if return_indices else values


@remembered
def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest of output_size windows that cover the last dimension.

    >>> adaptive_max_pool1d(tensor([[1.0, 3.0, 2.0]]), 2).tolist()
    [[3.0, 3.0]]
    """
    return _adaptive_max(1, input, output_size, return_indices)


@remembered
def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest of windows that cover an image; windows as for ``adaptive_avg_pool2d``.

    >>> adaptive_max_pool2d(tensor([[[1.0, 3.0], [2.0, 0.0]]]), 1).tolist()
    [[[3.0]]]
    """
    return _adaptive_max(2, input, output_size, return_indices)


@remembered
def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest of windows that cover a volume; windows as for ``adaptive_avg_pool2d``.

    >>> adaptive_max_pool3d(tensor([[[[1.0, 3.0]], [[2.0, 0.0]]]]), (1, None, 2)).tolist()
    [[[[2.0, 3.0]]]]
    """
    if machine.autocasting:
        (input,) = raised(input, on=CPU)
    return _adaptive_max(3, input, output_size, return_indices)
