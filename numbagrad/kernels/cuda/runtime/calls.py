"""Launches by the driver's own call, without the layers of Python above it.

Every argument of our kernels has 8 bytes: a pointer, an int64 or a float64. A launcher owns the
words that the driver reads them from; a call writes them and calls ``cuLaunchKernel``, which copies
them. numba-cuda's launch takes ten times as long. A launcher belongs to one thread.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any

from numba import types

__all__ = ["launcher"]

_WORD = 8
_uint, _pointer = ctypes.c_uint, ctypes.c_void_p


@functools.cache
def _launch_kernel() -> Any:
    """The driver's ``cuLaunchKernel``, which runs without Python's lock."""
    from cuda.bindings import driver

    status, address, *_ = driver.cuGetProcAddress(b"cuLaunchKernel", 4000, 0)
    if status != driver.CUresult.CUDA_SUCCESS or not address:
        raise RuntimeError(f"the CUDA driver has no cuLaunchKernel ({status!s})")
    return ctypes.CFUNCTYPE(ctypes.c_int)(int(address))


def launcher(
    function: int,
    signature: tuple[Any, ...],
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    stream: int,
    failed: Callable[[int], None],
) -> Callable[..., None]:
    """What launches a loaded kernel on the values of its arguments.

    function: the driver's handle; signature: Numba's types; shared: bytes of dynamic shared memory;
    stream: the driver's handle; failed: raises for a status that is not 0.
    """
    words = struct.Struct("=" + "".join(["d" if t == types.float64 else "q" for t in signature]))
    buffer = (ctypes.c_char * max(words.size, _WORD))()
    first = ctypes.addressof(buffer)
    places = (_pointer * max(len(signature), 1))(
        *[first + _WORD * k for k in range(len(signature))]
    )
    sizes = [_uint(n) for n in (*grid, *block, shared)]
    start = functools.partial(
        _launch_kernel(), _pointer(function), *sizes, _pointer(stream), places, None
    )
    write = words.pack_into

    def launch(*values: Any) -> None:
        try:
            write(buffer, 0, *values)
        except (struct.error, TypeError):
            write(buffer, 0, *map(_as_word, values, signature))
        status = start()
        if status:
            failed(status)

    return launch


def _as_word(value: Any, kind: Any) -> Any:
    """A number that is no Python number, or too large for its sign, as what is written."""
    return float(value) if kind == types.float64 else ctypes.c_int64(int(value)).value
