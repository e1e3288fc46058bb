"""Compiling a kernel for the types of its arguments, and launching it.

A kernel is a plain function of pointers and numbers that uses the global name ``cuda``. An array
goes in as one pointer to its first element; its sizes and strides are numbers. Bools are bytes.
``start(kernel, grid, block, *args)`` does the rest; start reading there.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, float32, float64, types

from . import device, intrinsics, simulator
from .array import DeviceArray
from .shape import BLOCK, FILL, SIMULATED, SIMULATED_GRID

__all__ = [
    "launches",
    "made",
    "note_memory",
    "note_use",
    "start",
    "strided_grid",
    "types_of",
]

BYTE = np.dtype(np.uint8)
_BOOL = np.dtype(np.bool_)

launches: dict[tuple[Callable[..., None], tuple[Any, ...]], int] = {}
"""How often each kernel was started for each set of Numba types, while nobody is the device."""

_compiled: dict[Any, Any] = {}
_launchers: dict[Any, Any] = {}

if SIMULATED:
    simulator.mend()


def strided_grid(n: int, block: int = BLOCK) -> int:
    """Blocks for a walk over ``n`` elements in strides of the grid."""
    most = SIMULATED_GRID if SIMULATED else FILL * device.driver().multiprocessors
    return max(1, min(-(-n // block), most))


@functools.cache
def made(make: Callable[..., Any], itemsize: int, *options: Any) -> Any:
    """``make(real, *options)``, once; real: the float of so many bytes."""
    return make(float64 if itemsize == 8 else float32, *options)


def _type_of(kind: Any) -> Any:
    """Numba's type for an array of a dtype, or for a Python number."""
    if isinstance(kind, np.dtype):
        if kind in intrinsics.HALF_POINTERS:
            return intrinsics.HALF_POINTERS[kind]
        return types.CPointer(getattr(types, "uint8" if kind == _BOOL else str(kind)))
    if issubclass(kind, (bool, int, np.integer, np.bool_)):
        return types.int64
    if issubclass(kind, (float, np.floating)):
        return types.float64
    raise TypeError(f"a kernel takes arrays and numbers, not {kind.__name__}")


def types_of(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numba's types of the arguments of a kernel."""
    return tuple([_type_of(a.dtype if type(a) is DeviceArray else type(a)) for a in args])


def _launcher(
    kernel: Callable[..., None], args: tuple[Any, ...], grid: Any, block: Any, queue: Any
) -> Any:
    """What launches ``kernel`` on arguments like these, compiled on first use."""
    signature = types_of(args)
    found = _compiled.get((kernel, signature))
    if found is None:
        found = cuda.jit(types.void(*signature))(kernel)
        _compiled[kernel, signature] = found
    with warnings.catch_warnings():  # small grids are what small tensors need
        warnings.simplefilter("ignore")
        return found[grid, block, queue]


def start(kernel: Callable[..., None], grid: Any, block: Any, *args: Any) -> None:
    """Run ``kernel`` on the current stream: ``grid`` blocks of ``block`` threads."""
    if SIMULATED:
        _simulate(kernel, grid, block, args)
        return
    queue = device.current_queue()
    values = []
    kinds = []
    for a in args:
        if a.__class__ is DeviceArray:
            values.append(a.pointer)
            kinds.append(a.dtype)
            memory = a.memory
            if memory.stream is not queue:
                _note(memory, queue)
        else:
            values.append(a)
            kinds.append(a.__class__)
    key = kernel, grid, block, queue, *kinds
    launcher = _launchers.get(key)
    if launcher is None:
        driver = device.driver()
        if driver.name == "none":
            compiled = kernel, types_of(args)
            launches[compiled] = launches.get(compiled, 0) + 1
            launcher = _nothing
        else:
            driver.enter()
            launcher = _launcher(kernel, args, grid, block, queue)
        if len(_launchers) >= 8192:
            _launchers.clear()
        _launchers[key] = launcher
    launcher(*values)


def _nothing(*values: Any) -> None:
    """Stands for a launch where there is no device."""


def _note(memory: Any, queue: Any) -> None:
    """Remember that ``queue``, not the stream of the memory, works on it."""
    if queue in device.captures:
        device.captures[queue].append(memory)
    if memory.stream is None:  # borrowed: its owner knows
        return
    if memory.others is None:
        memory.others = set()
    memory.others.add(queue)


def note_use(array: DeviceArray) -> None:
    """Note that the current stream works on ``array``, which a kernel finds through a table."""
    note_memory(array.memory, device.current_queue())


def note_memory(memory: Any, queue: Any) -> None:
    """Note that ``queue`` works on ``memory``."""
    if memory.stream is not queue:
        _note(memory, queue)


def _extent(array: DeviceArray) -> tuple[int, int]:
    """The first address of ``array``, and how many bytes its elements span."""
    if not array.size:
        return array.pointer, 0
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    low = sum([s for s in steps if s < 0])
    return array.pointer + low, array.itemsize + sum(map(abs, steps))


def _simulate(kernel: Callable[..., None], grid: Any, block: Any, args: tuple[Any, ...]) -> None:
    values = []
    for a in args:
        if type(a) is DeviceArray:
            dtype = BYTE if a.dtype == _BOOL else a.dtype
            values.append(intrinsics.Pointer(a.pointer, dtype, *_extent(a)))
        else:
            values.append(a)
    driver = device.driver()
    if driver.capturing is not None:
        for a in args:
            if type(a) is DeviceArray:
                note_use(a)
        driver.capturing.append(functools.partial(_run_simulated, kernel, grid, block, values))
        return
    _run_simulated(kernel, grid, block, values)


def _run_simulated(kernel: Callable[..., None], grid: Any, block: Any, values: list[Any]) -> None:
    intrinsics.blocks[:] = device.driver().blocks()
    with np.errstate(all="ignore"):
        cuda.jit(kernel)[grid, block](*values)
