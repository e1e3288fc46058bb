"""Compiling a kernel for the types of its arguments, and launching it.

A kernel is a plain function of pointers and numbers that uses the global name ``cuda``. An array
goes in as one pointer to its first element; its sizes and strides are numbers. Bools are bytes.
``start(kernel, grid, block, *args)`` does the rest; start reading there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, types

from . import device, intrinsics
from .array import DeviceArray
from .shape import BLOCK, FILL, SIMULATED, SIMULATED_GRID

__all__ = ["arguments_of", "compiled", "launches", "note_use", "start", "strided_grid"]

BYTE = np.dtype(np.uint8)
_BOOL = np.dtype(np.bool_)

launches: dict[tuple[Callable[..., None], tuple[Any, ...]], int] = {}
"""How often each kernel was started for each set of Numba types, while nobody is the device."""

_compiled: dict[Any, Any] = {}
_configured: dict[Any, Any] = {}


def strided_grid(n: int, block: int = BLOCK) -> int:
    """Blocks for a walk over ``n`` elements in strides of the grid."""
    most = SIMULATED_GRID if SIMULATED else FILL * device.driver().multiprocessors
    return max(1, min(-(-n // block), most))


def _type_of(value: Any) -> Any:
    if type(value) is DeviceArray:
        name = "uint8" if value.dtype == _BOOL else str(value.dtype)
        return types.CPointer(getattr(types, name))
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        return types.int64
    if isinstance(value, (float, np.floating)):
        return types.float64
    raise TypeError(f"a kernel takes arrays and numbers, not {type(value).__name__}")


def arguments_of(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numba's types of the arguments of a kernel."""
    return tuple([_type_of(a) for a in args])


def compiled(kernel: Callable[..., None], argument_types: tuple[Any, ...]) -> Any:
    """``kernel`` for these types, compiled once."""
    key = kernel, argument_types
    found = _compiled.get(key)
    if found is None:
        found = _compiled[key] = cuda.jit(types.void(*argument_types))(kernel)
    return found


def start(kernel: Callable[..., None], grid: Any, block: Any, *args: Any) -> None:
    """Run ``kernel`` on the current stream: ``grid`` blocks of ``block`` threads."""
    if SIMULATED:
        _simulate(kernel, grid, block, args)
        return
    key = kernel, arguments_of(args)
    driver = device.driver()
    if driver.name == "none":
        launches[key] = launches.get(key, 0) + 1
        return
    driver.enter()
    queue = device.current_stream().queue
    values = []
    for a in args:
        if type(a) is DeviceArray:
            values.append(a.pointer)
            memory = a.memory
            if memory.stream is not queue:
                _note(memory, queue)
        else:
            values.append(a)
    configuration = key, grid, block, queue
    launcher = _configured.get(configuration)
    if launcher is None:
        if len(_configured) >= 8192:
            _configured.clear()
        with warnings.catch_warnings():  # small grids are what small tensors need
            warnings.simplefilter("ignore")
            launcher = compiled(*key)[grid, block, queue]
        _configured[configuration] = launcher
    launcher(*values)


def _note(memory: Any, queue: Any) -> None:
    """Remember that ``queue``, not the stream of the memory, works on it."""
    if memory.stream is None:  # borrowed: its owner knows
        return
    if memory.others is None:
        memory.others = set()
    memory.others.add(queue)


def note_use(array: DeviceArray) -> None:
    """Note that the current stream works on ``array``, which a kernel finds through a table."""
    queue = device.current_stream().queue
    if array.memory.stream is not queue:
        _note(array.memory, queue)


def _simulate(kernel: Callable[..., None], grid: Any, block: Any, args: tuple[Any, ...]) -> None:
    values = []
    for a in args:
        if type(a) is DeviceArray:
            memory = a.memory
            dtype = BYTE if a.dtype == _BOOL else a.dtype
            values.append(intrinsics.Pointer(a.pointer, dtype, memory.address, memory.size))
        else:
            values.append(a)
    intrinsics.blocks[:] = device.driver().blocks()
    with np.errstate(all="ignore"):
        cuda.jit(kernel)[grid, block](*values)
