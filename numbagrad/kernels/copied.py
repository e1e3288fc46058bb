"""Deep copies of arrays: those on one memory lie on one memory again, at the same places.

Start reading at ``copied``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .cuda.runtime.array import DeviceArray
from .machine import address_of
from .traced_array import root_of_host

__all__ = ["copied"]


def copied(array: Any, memo: dict[int, Any]) -> Any:
    """A copy of ``array`` with its strides, on a copy of all the memory that it is part of.

    memo: ``copy.deepcopy``'s; knows the memory that has been copied, by its id. On a GPU a copy is
    contiguous, and has memory of its own.
    """
    if type(array) is DeviceArray:
        return array.copy()  # its memory may hold what has nothing to do with it
    root = root_of_host(array)
    whole = memo.get(id(root))
    if whole is None:
        whole = root.copy(order="K")
    order = sorted(range(root.ndim), key=lambda d: -root.strides[d])
    rows = whole.transpose(order)  # one after another, unless there are gaps
    if whole.strides != root.strides or not rows.flags.c_contiguous:
        return array.copy(order="K")  # of another library's array
    memo[id(root)] = whole
    if array is root:
        return whole
    # Bytes, because NumPy hands out no buffer of every dtype.
    words = rows.reshape(-1).view(np.uint8)
    start = address_of(array) - address_of(root) if array.size else 0
    return np.ndarray(array.shape, array.dtype, words, start, array.strides)
