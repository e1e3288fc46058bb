"""Float16 and bfloat16 on the host: what their words mean, in NumPy.

NumPy has no bfloat16; an array of it holds words of two bytes that no library computes with, so
that nothing can take them for integers. Kernels compute with halves in float32, see ``half_type``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes

__all__ = ["HALVES", "arithmetic", "decoded", "encoded", "half_name", "is_floating"]

FLOAT16, BFLOAT16 = dtypes.float16.numpy, dtypes.bfloat16.numpy
FLOAT32 = dtypes.float32.numpy
HALVES = frozenset({FLOAT16, BFLOAT16})


def is_floating(dtype: np.dtype) -> bool:
    """Whether the elements of ``dtype`` are floating point numbers."""
    return dtype.kind == "f" or dtype == BFLOAT16


def arithmetic(dtype: Any) -> Any:
    """What kernels compute with where memory holds ``dtype``: float32 for halves, else itself."""
    return FLOAT32 if isinstance(dtype, np.dtype) and dtype in HALVES else dtype


def half_name(dtype: np.dtype) -> str:
    """The name of a half dtype; nothing for others."""
    return dtypes.from_numpy(dtype).name if dtype in HALVES else ""


def decoded(array: np.ndarray) -> np.ndarray:
    """The numbers of ``array``: bfloat16 as float32, anything else as it is."""
    if array.dtype != BFLOAT16:
        return array
    words = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32)
    return (words << 16).view(np.float32).reshape(array.shape)


def encoded(values: Any, dtype: np.dtype) -> np.ndarray:
    """Numbers as an array of ``dtype``, rounded to the nearest, ties to even.

    bfloat16 is rounded from float32, as a GPU does it.
    """
    if dtype != BFLOAT16:
        with np.errstate(over="ignore"):
            return np.asarray(values).astype(dtype)
    with np.errstate(over="ignore"):
        floats = np.ascontiguousarray(np.asarray(values).astype(np.float32))
    bits = floats.view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16
    out = np.empty(np.shape(values), BFLOAT16)  # memory of its own, as recordings tell it
    words = np.where(np.isnan(floats), (bits >> 16) | 0x40, rounded)
    out.view(np.uint16)[...] = words.reshape(out.shape)
    return out
