"""Images larger and smaller: interpolate, pixel_shuffle; exported by ``nn.functional``."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DTypeError, ShapeError
from ..tensor import Tensor
from .adaptive_pool import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .base import as_operand, constant
from .index import index_select
from .remembered import remembered
from .resample import Taps, resampled, taps
from .warned import warn_user

__all__ = [
    "interpolate",
    "pixel_shuffle",
    "pixel_unshuffle",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

SMOOTH = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
"""The number of spatial dimensions of each mode that lies between elements."""


def _per_dimension(name: str, value: Any, count: int) -> list[Any]:
    if not isinstance(value, Sequence):
        return [value] * count
    if len(value) != count:
        raise ShapeError(
            f"interpolate: Input and output must have the same number of spatial dimensions, but "
            f"got input with spatial dimensions of {count} and {name} of {list(value)}."
        )
    return list(value)


def _nearest(n: int, size: int, scale: float, exact: bool) -> np.ndarray:
    """Each place takes the element below it, as PyTorch computes it in float32."""
    places = np.arange(size, dtype=np.float32) + np.float32(0.5 if exact else 0)
    at = np.minimum(np.floor(places * np.float32(scale)), n - 1)
    return at.astype(np.int64)


def _centres(n: int, size: int, scale: float, corners: bool) -> np.ndarray:
    """Where the elements of the result lie among the n of the input."""
    if corners:
        return np.arange(size) * ((n - 1) / (size - 1) if size > 1 else 0.0)
    return (np.arange(size) + 0.5) * scale - 0.5


def _cubic(n: int, size: int, scale: float, corners: bool) -> Taps:
    """Each place takes from the four elements around it (Keys, 1981, with a = -3/4)."""
    places = _centres(n, size, scale, corners)
    below = np.floor(places)
    around = np.arange(-1, 3)[:, None]
    away = np.abs(places - below - around)
    near = (1.25 * away - 2.25) * away * away + 1
    far = ((-0.75 * away + 3.75) * away - 6) * away + 3
    at = np.clip(below + around, 0, n - 1).astype(np.int64)
    return taps(n, at, np.where(away <= 1, near, far))


def _linear(n: int, size: int, scale: float, corners: bool) -> Taps:
    """Each place lies between two elements and takes from both."""
    places = np.maximum(_centres(n, size, scale, corners), 0)
    below = np.minimum(places.astype(np.int64), n - 1)
    part = places - below
    both = np.stack([below, np.minimum(below + 1, n - 1)])
    return taps(n, both, np.stack([1 - part, part]))


def _weighed(n: int, size: int, scale: float, corners: bool, cubic: bool) -> Taps:
    """Each place takes from all elements around it, over a width that grows with the scale.

    A triangle or a cubic (Keys, 1981, with a = -1/2), cut at the borders and scaled to sum to 1.
    """
    if corners:
        scale = (n - 1) / (size - 1) if size > 1 else 0.0
    width = max(scale, 1.0)
    reach = (2.0 if cubic else 1.0) * width
    centres = scale * (np.arange(size)[:, None] + 0.5)
    places = np.arange(n)
    first = np.maximum((centres - reach + 0.5).astype(np.int64), 0)
    last = np.minimum((centres + reach + 0.5).astype(np.int64), n)
    away = np.abs(places - centres + 0.5) / width
    if cubic:
        near = (1.5 * away - 2.5) * away * away + 1
        far = ((-0.5 * away + 2.5) * away - 4) * away + 2
        weight = np.where(away < 1, near, np.where(away < 2, far, 0.0))
    else:
        weight = np.maximum(1 - away, 0.0)
    weight = np.where((places >= first) & (places < last), weight, 0.0)
    at = np.broadcast_to(places[:, None], (n, size))
    return taps(n, at, (weight / weight.sum(1, keepdims=True)).T)


@functools.lru_cache(maxsize=256)
def _taps_of(mode: str, n: int, size: int, scale: float, corners: bool, antialias: bool) -> Taps:
    """What each of ``size`` places takes from which of ``n``."""
    if antialias:
        return _weighed(n, size, scale, corners, mode == "bicubic")
    if mode in SMOOTH:
        return (_cubic if mode == "bicubic" else _linear)(n, size, scale, corners)
    return taps(n, _nearest(n, size, scale, mode == "nearest-exact")[None], np.ones((1, size)))


def _resized(x: Tensor, dim: int, how: tuple[str, int, int, float, bool, bool]) -> Tensor:
    """``x`` with dimension ``dim`` as ``_taps_of(*how)`` has it."""
    if x._dtype.is_floating_point:
        return resampled(x, dim, _taps_of(*how))
    mode, n, size, scale, *_ = how
    if mode in SMOOTH:  # rounded, and cut off where a cubic goes beyond
        limits = dtypes.iinfo(x._dtype)
        between = _resized(x.float(), dim, how) + 0.5
        return between.floor().clamp(limits.min, limits.max).to(x._dtype)
    at = _nearest(n, size, scale, mode == "nearest-exact")
    return index_select(x, dim, constant(at, dtypes.int64, x))


@remembered
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """``input`` (n, c, ...) with other sizes of the spatial dimensions, of which there are 1 to 3.

    size or scale_factor: one number for all of them, or one for each. mode: "nearest", or
    "nearest-exact", "area" (means, ``adaptive_avg_pool``), or by the number of spatial dimensions
    "linear", "bilinear" or "bicubic", "trilinear".
    align_corners: whether the corner elements of input and result lie on one another, or their
    outer edges. recompute_scale_factor: use the ratio of the sizes, not scale_factor, to find
    places. antialias: where an image becomes smaller, each place takes from all the elements that
    it stands for, for "bilinear" and "bicubic". What lies between whole numbers is rounded.
    Differentiable to any order. Raises ShapeError, or
    ValueError for another mode.

    >>> interpolate(tensor([[[1.0, 2.0]]]), scale_factor=2).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """
    shape = as_operand("interpolate", input)._array.shape
    count = len(shape) - 2
    if not 1 <= count <= 3:
        raise ShapeError(
            f"interpolate: Input Error: Only 3D, 4D and 5D input Tensors supported (got "
            f"{len(shape)}D)."
        )
    if mode not in SMOOTH and mode not in ("nearest", "nearest-exact", "area"):
        raise ValueError(
            f"interpolate: mode {mode!r} is not supported; use 'nearest', 'nearest-exact', "
            f"'area', 'linear', 'bilinear', 'bicubic' or 'trilinear'."
        )
    if mode in SMOOTH and SMOOTH[mode] != count:
        raise ShapeError(
            f"interpolate: Got {len(shape)}D input, but {mode} mode needs {SMOOTH[mode] + 2}D input"
        )
    if mode in SMOOTH and input._dtype is dtypes.bool_:
        raise DTypeError(f"interpolate: {mode} is not for bools. Convert them with .float().")
    if align_corners is not None and mode not in SMOOTH:
        raise ValueError(
            "interpolate: align_corners option can only be set with the interpolating modes: "
            "linear | bilinear | bicubic | trilinear"
        )
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError(
            f"interpolate: Anti-alias option is restricted to bilinear and bicubic modes and "
            f"requires a 4-D tensor as input, got mode {mode!r} and {len(shape)}-D input."
        )
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: exactly one of size or scale_factor should be defined")
    if scale_factor is not None:
        factors = [float(f) for f in _per_dimension("scale_factor", scale_factor, count)]
        sizes = [math.floor(n * f) for n, f in zip(shape[2:], factors, strict=True)]
    else:
        factors = []
        sizes = [int(n) for n in _per_dimension("output size", size, count)]
    if min(sizes) < 1 or min(shape[1:]) < 1:
        raise ShapeError(
            f"interpolate: Input and output sizes should be greater than 0, but got input "
            f"{list(shape)} and output {sizes}."
        )
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[count - 1](
            input, sizes
        )
    steps = []
    for k, (n, target) in enumerate(zip(shape[2:], sizes, strict=True)):
        if n == target and "linear" in mode and not antialias:
            continue  # whatever the scale, as in PyTorch
        given = factors and not recompute_scale_factor
        scale = 1 / factors[k] if given else n / target
        steps.append((k + 2, (mode, n, target, scale, bool(align_corners), antialias)))
    # Rows are vectors, columns are not: the last dimension goes where there are fewest numbers.
    # Whole numbers are rounded in between, for which PyTorch begins with the last.
    smaller = math.prod(sizes) < math.prod(shape[2:]) and input._dtype.is_floating_point
    out = input
    for dim, how in steps if smaller else reversed(steps):
        out = _resized(out, dim, how)
    return out.clone() if out is input else out


def _deprecated(name: str) -> None:
    warn_user(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.")


def upsample(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """``interpolate`` by its old name; warns."""
    _deprecated("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """``interpolate`` with mode "nearest"; deprecated, warns."""
    _deprecated("upsample_nearest")
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """``interpolate`` with mode "bilinear", the corners kept in place; deprecated, warns."""
    _deprecated("upsample_bilinear")
    return interpolate(input, size, scale_factor, "bilinear", True)


@remembered
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(..., c r r, h, w) to (..., c, h r, w r): channels become places (Shi et al., 2016).

    Raises ShapeError unless r = upscale_factor is positive and its square divides the channels.
    """
    shape, r = as_operand("pixel_shuffle", input)._array.shape, upscale_factor
    if len(shape) < 3 or r < 1 or shape[-3] % (r * r):
        raise ShapeError(
            f"pixel_shuffle: expects input (..., channels, height, width) whose number of channels "
            f"is divisible by the square of upscale_factor {r}, but got {list(shape)}."
        )
    *batch, c, h, w = shape
    x = input.reshape(*batch, c // (r * r), r, r, h, w)
    b = len(batch)
    x = x.permute(*range(b), b, b + 3, b + 1, b + 4, b + 2)
    return x.reshape(*batch, c // (r * r), h * r, w * r)


@remembered
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(..., c, h r, w r) to (..., c r r, h, w): the inverse of ``pixel_shuffle``."""
    shape, r = as_operand("pixel_unshuffle", input)._array.shape, downscale_factor
    if len(shape) < 3 or r < 1 or shape[-2] % r or shape[-1] % r:
        raise ShapeError(
            f"pixel_unshuffle: expects input (..., channels, height, width) whose height and width "
            f"are divisible by downscale_factor {r}, but got {list(shape)}."
        )
    *batch, c, h, w = shape
    x = input.reshape(*batch, c, h // r, r, w // r, r)
    b = len(batch)
    x = x.permute(*range(b), b, b + 2, b + 4, b + 1, b + 3)
    return x.reshape(*batch, c * r * r, h // r, w // r)
