"""Windows for spectra: curves that rise from both ends to the middle. Start at ``_made``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from .. import dtypes
from ..devices import place_of
from ..errors import DTypeError, ShapeError
from ..tensor import Tensor
from .base import full
from .bessel import i0
from .create import arange
from .elementwise import abs as abs_
from .elementwise import cast, clamp, cos, sqrt
from .remembered import remembered

__all__ = [
    "bartlett_window",
    "blackman_window",
    "hamming_window",
    "hann_window",
    "kaiser_window",
]


def _made(
    name: str, n: int, periodic: bool, curve: Callable[[Tensor], Tensor], options: dict[str, Any]
) -> Tensor:
    """``curve`` at n points from 0 to 1; periodic: with one more point, which is left out.

    options: dtype, device and requires_grad. Computed in float64.
    """
    dtype, device = options.pop("dtype", None), options.pop("device", None)
    requires_grad = options.pop("requires_grad", False)
    if options:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(options))}'")
    dtype = dtypes.get_default_dtype() if dtype is None else dtypes.to_dtype(dtype)
    if not dtype.is_floating_point:
        raise DTypeError(f"{name}: expects floating point dtypes, got {dtype}. Use ng.float32.")
    n = operator.index(n)
    if n < 0:
        raise ShapeError(f"{name}: requires non-negative window_length, got window_length={n}.")
    device = place_of(device)
    if n < 2:
        out = full((n,), 1, dtype, device)
    else:
        points = arange(n, dtype=dtypes.float64, device=device)
        out = cast(curve(points / (n if periodic else n - 1)), dtype)
    return out.requires_grad_() if requires_grad else out


def _cosines(*weights: float) -> Callable[[Tensor], Tensor]:
    """``weights[0] - weights[1] cos(2 pi t) + weights[2] cos(4 pi t)``."""

    def curve(t: Tensor) -> Tensor:
        found = cos(t * (2 * math.pi)) * -weights[1] + weights[0]
        return found + cos(t * (4 * math.pi)) * weights[2] if len(weights) > 2 else found

    return curve


@remembered
def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """A triangle: 0 at the ends, 1 in the middle.

    periodic: without the last point, as the transform repeats it. options: dtype (floating),
    device, requires_grad.

    >>> bartlett_window(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    curve = lambda t: 1 - abs_(t * 2 - 1)  # noqa: E731
    return _made("bartlett_window", window_length, periodic, curve, options)


@remembered
def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """``0.5 - 0.5 cos(2 pi t)``, t from 0 to 1; arguments as for ``bartlett_window``.

    >>> hann_window(2).tolist()
    [0.0, 1.0]
    """
    return _made("hann_window", window_length, periodic, _cosines(0.5, 0.5), options)


@remembered
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    **options: Any,
) -> Tensor:
    """``alpha - beta cos(2 pi t)``, t from 0 to 1; other arguments as for ``bartlett_window``.

    >>> hamming_window(2, alpha=0.5, beta=0.5).tolist()
    [0.0, 1.0]
    """
    return _made("hamming_window", window_length, periodic, _cosines(alpha, beta), options)


@remembered
def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """``0.42 - 0.5 cos(2 pi t) + 0.08 cos(4 pi t)``; arguments as for ``bartlett_window``.

    >>> blackman_window(2)[1].item()
    1.0
    """
    return _made("blackman_window", window_length, periodic, _cosines(0.42, 0.5, 0.08), options)


@remembered
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any
) -> Tensor:
    """``i0(beta sqrt(1 - (2 t - 1) ** 2)) / i0(beta)``; other arguments as for ``bartlett_window``.

    >>> kaiser_window(2)[1].item()
    1.0
    """

    def curve(t: Tensor) -> Tensor:
        height = i0(full((), float(beta), dtypes.float64, t._device))
        aside = t * 2 - 1
        return i0(sqrt(clamp(1 - aside * aside, 0.0)) * float(beta)) / height

    return _made("kaiser_window", window_length, periodic, curve, options)
