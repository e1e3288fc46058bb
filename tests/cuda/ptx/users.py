"""Kernels that a user starts by ``kernel[grid, block](...)``: past numbagrad, through Numba.

Numba would ask the driver of NVIDIA for everything. Start reading at ``take_over``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from numbagrad.kernels.cuda.runtime.array import DeviceArray

__all__ = ["take_over"]


def _words(array: DeviceArray) -> list[int]:
    """An array as Numba passes it: two pointers of its own, sizes, the data, shape, strides."""
    shape, strides = map(list, (array.shape, array.strides))
    return [0, 0, array.size, array.itemsize, array.pointer, *shape, *strides]


def take_over(driver: Any) -> None:
    """Let Numba's dispatchers start kernels on ``driver``."""
    from numba import types
    from numba.cuda import dispatcher as numbas
    from numba.np.numpy_support import from_dtype

    def call(self: Any, args: tuple[Any, ...], launch: Any) -> None:
        signature: list[Any] = []
        values: list[Any] = []
        for a in args:
            if isinstance(a, DeviceArray):
                layout = "C" if a.c_contiguous else "A"
                signature.append(types.Array(from_dtype(a.dtype), len(a.shape), layout))
                values += _words(a)
            elif isinstance(a, (np.generic, int, float)):
                kind = from_dtype(a.dtype) if isinstance(a, np.generic) else None
                signature.append(kind or (types.float64 if type(a) is float else types.int64))
                values.append(a)
            else:
                raise TypeError(f"the machine for PTX takes no {type(a).__name__}")
        shape = launch.griddim, launch.blockdim
        driver.launcher(self.py_func, tuple(signature), *shape, 0, driver.queue)(*values)

    numbas.CUDADispatcher.call = call
