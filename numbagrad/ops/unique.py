"""Elements without those that come again: ``unique`` and ``unique_consecutive``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DimError
from ..kernels import machine
from ..kernels.cpu import runs as kernels
from ..kernels.halves import encoded
from ..tensor import Tensor, wrap
from .base import SHORT, as_operand, normalize_dim
from .sort import sort

__all__ = ["unique", "unique_consecutive"]

CLOSE = 1
"""Whole numbers whose range is at most so many times as long as they are many are counted: at 2 it
takes as long as sorting."""


def unique(
    x: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements (or slices along ``dim``), sorted; no gradient.

    return_inverse: also where in the result each element is. return_counts: also how often each
    occurs. Each NaN is different from all others.

    >>> unique(tensor([3, 1, 3]), return_counts=True)[1].tolist()
    [1, 2]
    """
    array = _comparable("unique", x)
    if dim is None and array.size >= SHORT:
        parts = _by_counting(array, return_inverse, return_counts)
        if parts is None:
            parts = _by_sorting(array, return_inverse, return_counts)
    else:
        parts = _by_numpy(array, return_inverse, return_counts, dim)
    return _tensors(parts, x)


def _tensors(parts: list[np.ndarray], x: Tensor) -> Any:
    """Values of the dtype of ``x``, then indices or counts: one tensor or a tuple."""
    if parts[0].dtype != x._dtype.numpy:
        parts[0] = encoded(parts[0], x._dtype.numpy)
    out = [wrap(np.asarray(p, order="C"), dtypes.from_numpy(p.dtype)) for p in parts]
    return out[0] if len(out) == 1 else tuple(out)


def _by_counting(
    array: np.ndarray, return_inverse: bool, return_counts: bool
) -> list[np.ndarray] | None:
    """``unique`` of whole numbers that lie close together, else None: 5 to 20 times as fast as
    sorting them where each comes often, half as long where hardly any does."""
    if array.dtype.kind == "f":
        return None
    flat = array.reshape(-1)
    if array.dtype.kind == "b":
        flat = flat.view(np.uint8)
    low = int(flat.min())
    if int(flat.max()) - low > CLOSE * flat.size:
        return None
    places = flat if low == 0 else np.subtract(flat, low, dtype=np.int64)
    counts = np.bincount(places)
    found = np.flatnonzero(counts)
    parts = [(found + low).astype(array.dtype)]
    if return_inverse:
        ranks = np.empty(counts.size, np.int64)
        ranks[found] = np.arange(found.size)
        parts.append(ranks[places].reshape(array.shape))
    if return_counts:
        parts.append(counts[found])
    return parts


def _by_sorting(array: np.ndarray, return_inverse: bool, return_counts: bool) -> list[np.ndarray]:
    """``unique`` as the runs of what is sorted."""
    x = wrap(np.ascontiguousarray(array).reshape(-1), dtypes.from_numpy(array.dtype))
    values, order = sort(x)
    parts = _runs(values._array, return_inverse, return_counts)
    if return_inverse:
        inverse = np.empty(array.size, np.int64)
        inverse[order._array] = parts[1]
        parts[1] = inverse.reshape(array.shape)
    return parts


def _by_numpy(
    array: np.ndarray, return_inverse: bool, return_counts: bool, dim: int | None
) -> list[np.ndarray]:
    """``unique`` of few elements, or of slices."""
    if dim is not None:
        dim = _axis("unique", dim, array)
    found: Any = np.unique(  # type: ignore[call-overload]
        array,
        return_inverse=return_inverse,
        return_counts=return_counts,
        axis=dim,
        equal_nan=False,
    )
    parts = list(found) if isinstance(found, tuple) else [found]
    if return_inverse:
        parts[1] = parts[1].reshape(array.shape if dim is None else -1)
    return parts


def _axis(name: str, dim: int, array: np.ndarray) -> int:
    """``dim``, counted from the front, of an array that has one."""
    axis = normalize_dim(name, dim, array.ndim)
    if array.ndim == 0:
        raise DimError(f"{name}: dim is {dim}, but the tensor has no dimensions.")
    return axis


def _comparable(name: str, x: Tensor) -> np.ndarray:
    """The elements of ``x`` as NumPy can compare them: bfloat16 as float32."""
    x = as_operand(name, x).detach()
    return (x.float() if x._dtype is dtypes.bfloat16 else x).numpy()


def unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """``x`` without the elements (or slices along ``dim``) that equal the one before them.

    return_inverse: also where in the result each is. return_counts: also how many each stands for.
    No gradient.

    >>> unique_consecutive(tensor([1, 1, 2, 1])).tolist()
    [1, 2, 1]
    """
    array = _comparable("unique_consecutive", x)
    if dim is None and array.size >= SHORT:
        out = _runs(array, return_inverse, return_counts)
    else:
        out = _different(array, return_inverse, return_counts, dim)
    return _tensors(out, x)


def _runs(array: np.ndarray, return_inverse: bool, return_counts: bool) -> list[np.ndarray]:
    """``unique_consecutive`` of all elements, of which there is one or more."""
    flat, number = array.reshape(-1), np.dtype(np.int64)
    many = machine.empty((1,), number)
    machine.launch(kernels.count_runs, many, flat)
    j = int(many[0])
    values = machine.empty((j,), flat.dtype)
    inverse = machine.empty((flat.size if return_inverse else 0,), number)
    counts = machine.empty((j if return_counts else 0,), number)
    machine.launch(kernels.runs, values, inverse, counts, flat)
    found = [values]
    if return_inverse:
        found.append(inverse.reshape(array.shape))
    if return_counts:
        found.append(counts)
    return found


def _different(
    array: np.ndarray, return_inverse: bool, return_counts: bool, dim: int | None
) -> list[np.ndarray]:
    """``unique_consecutive`` by NumPy, which compiles nothing."""
    if dim is None:
        shape, axis, array = array.shape, 0, array.reshape(-1)
    else:
        axis = _axis("unique_consecutive", dim, array)
        shape = array.shape[axis : axis + 1]
    n = array.shape[axis]
    rows = np.moveaxis(array, axis, 0).reshape(n, array.size // n if n else 0)
    new = np.ones(n, bool)
    if rows.shape[1] == 1:  # each by itself: any of one costs five times as much
        np.not_equal(rows[1:, 0], rows[:-1, 0], out=new[1:])
    else:
        new[1:] = (rows[1:] != rows[:-1]).any(1)
    found = [np.compress(new, array, axis) if array.ndim > 1 else array[new]]
    if return_inverse:
        found.append((np.cumsum(new) - 1).reshape(shape))
    if return_counts:
        found.append(np.diff(np.append(np.flatnonzero(new), n)))
    return found


METHODS: dict[str, Any] = {"unique": unique, "unique_consecutive": unique_consecutive}
