"""The intrinsics of kernels in plain Python, with the same meaning: to read and debug kernels by.

``intrinsics.py`` takes them where Numba compiles nothing.
"""

from __future__ import annotations

import ctypes
import math

import numpy as np

from .halves import BFLOAT16, FLOAT16, FLOAT32, decoded, encoded

__all__ = [
    "added",
    "address",
    "call",
    "call_for",
    "call_python",
    "dense",
    "fits",
    "itemsize",
    "larger",
    "lesser",
    "load",
    "load_apart",
    "load_at",
    "parted",
    "picked",
    "plus",
    "pointer",
    "signum",
    "smaller",
    "stack",
    "start",
    "store",
    "store_apart",
    "store_at",
    "strided",
    "unknown",
    "wide",
    "widened",
]


def _flat(array, i):
    """The memory of ``array`` as one dimension, at least to element ``i``."""
    if array.flags.c_contiguous:
        return array if array.ndim == 1 else array.reshape(-1)
    return np.lib.stride_tricks.as_strided(array, (int(i) + 1,), (array.itemsize,))


def load(array, i):
    """Element ``i`` of the memory from the first element of ``array`` on."""
    if i < 0:  # a view of negative strides starts at its last element in memory
        found = _memory(address(array), int(i), array)
    else:
        found = _flat(array, i)[i : i + 1]
    return decoded(found)[0] if array.dtype != FLOAT16 else FLOAT32.type(found[0])


def store(array, i, value):
    """Write element ``i`` of the memory from the first element of ``array`` on."""
    if array.dtype == BFLOAT16:
        value = encoded(value, BFLOAT16)
    if i < 0:
        _memory(address(array), int(i), array)[0] = value
    else:
        _flat(array, i)[i] = value


def load_apart(array, i, scope):
    """``load``."""
    return load(array, i)


def store_apart(array, i, value, scope):
    """``store``."""
    store(array, i, value)


def address(array):
    """Address of the first element."""
    return array.ctypes.data


def _memory(where, i, like):
    size = like.dtype.itemsize
    buffer = (ctypes.c_char * size).from_address(int(where + i * size))
    return np.frombuffer(buffer, like.dtype)


def load_at(where, i, like):
    """Element ``i`` of the memory at ``where``, of the dtype of the array ``like``."""
    return _memory(where, i, like)[0]


def store_at(where, i, value, like):
    """Write element ``i`` of the memory at ``where``."""
    _memory(where, i, like)[0] = value


_FAR = 1 << 40  # elements: a pointer does not know where its memory ends


def pointer(where, dtype):
    """Elements of ``dtype`` from the address ``where`` on; ``load`` reads those of bfloat16."""
    name = str(dtype)
    if name == "bfloat16":
        dtype = BFLOAT16
    elif not isinstance(dtype, type):
        dtype = np.dtype(name.replace("boolean", "bool"))
    return np.lib.stride_tricks.as_strided(_memory(where, 0, np.empty(0, dtype)), (_FAR,))


def itemsize(like):
    """Bytes of an element."""
    return like.dtype.itemsize


def start(array):
    """Address of the first element."""
    return array.__array_interface__["data"][0]


def fits(array, shape):
    """Whether an array is C-contiguous and of ``shape``."""
    return array.shape == shape and array.flags.c_contiguous


def dense(pointer, shape):
    """The C-contiguous array of ``shape`` at ``pointer``."""
    return pointer[: math.prod(shape)].reshape(shape)


def strided(pointer, shape, strides):
    """The array of ``shape`` and ``strides`` at ``pointer``."""
    steps = [s * pointer.itemsize for s in strides]
    return np.lib.stride_tricks.as_strided(pointer, shape, steps)


def call(function, arguments):
    """Call the Python function whose id stands for its address."""
    ctypes.cast(int(function), ctypes.py_object).value(*arguments)


def call_for(function, arguments):
    """``call`` of a function that returns a number."""
    return ctypes.cast(int(function), ctypes.py_object).value(*arguments)


def call_python(function, number):
    """Call the C function at an address."""
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(int(function))(number)


def larger(x, y):
    """The larger of two numbers, NaN if one is NaN."""
    return np.maximum(x, y)


def picked(condition, x, y):
    """``x`` where the condition holds, else ``y``."""
    return x if condition else y


def smaller(x, y):
    """The smaller of two numbers, NaN if one is NaN."""
    return np.minimum(x, y)


def signum(x):
    """1 or -1 with the sign of a number, 0 and NaN as they are."""
    return np.sign(x) if x else x


def unknown(number):
    """The number."""
    return number


def lesser(x, y):
    """The lesser of two whole numbers."""
    return min(x, y)


def widened(number):
    """A float as float64, any other number as int64."""
    return np.float64(number) if isinstance(number, np.floating) else np.int64(number)


def added(x, y):
    """The sum: of floats in their own width, else of int64."""
    return x + y if isinstance(x, np.floating) else np.int64(x) + np.int64(y)


def stack(count, like):
    """Memory for so many values of a type."""
    return np.empty(count, np.asarray(like).dtype)


def parted(number, size):
    """Quotient and rest."""
    return divmod(number, size)


def plus(total, x):
    """The sum."""
    return total + x


def wide():
    """Nothing."""
