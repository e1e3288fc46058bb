"""Compiling a kernel for the types of its arguments, and launching it.

A kernel is a plain function of pointers and numbers that uses the global name ``cuda``. An array
goes in as one pointer to its first element; its sizes and strides are numbers. Bools are bytes. A
number that lies in device memory goes in as a pointer too: see ``by_reference``.
``start(kernel, grid, block, *args)`` does the rest; start reading there.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any

import numpy as np
from numba import cuda, float32, float64, types

from ....errors import DeviceError
from . import device, intrinsics, simulator
from .array import DeviceArray
from .numbers import DeviceNumber
from .shape import BLOCK, FILL, SIMULATED, SIMULATED_GRID

__all__ = [
    "kind_of",
    "launcher_of",
    "launches",
    "made",
    "note_memory",
    "note_use",
    "prepared",
    "start",
    "strided_grid",
]

BYTE = np.dtype(np.uint8)
_BOOL = np.dtype(np.bool_)

launches: dict[tuple[Callable[..., None], tuple[Any, ...]], int] = {}
"""Threads of the largest block that each kernel was started with, for each set of Numba types,
while nobody is the device."""

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
    """Numba's type for an array of a dtype, a Python number, or a number in device memory."""
    if isinstance(kind, np.dtype):
        if kind in intrinsics.HALF_POINTERS:
            return intrinsics.HALF_POINTERS[kind]
        return types.CPointer(getattr(types, "uint8" if kind == _BOOL else str(kind)))
    if isinstance(kind, str):
        return types.CPointer(getattr(types, kind))
    if issubclass(kind, (bool, int, np.integer, np.bool_)):
        return types.int64
    if issubclass(kind, (float, np.floating)):
        return types.float64
    raise _not_an_argument(kind)


def _not_an_argument(kind: type) -> Exception:
    """The error for what no kernel takes."""
    if issubclass(kind, np.ndarray):
        return DeviceError(
            "cuda: a kernel was given an array in host memory, which it cannot read. Move it with "
            "x.cuda() first."
        )
    return TypeError(f"a kernel takes arrays on the GPU and numbers, not {kind.__name__}")


def kind_of(a: Any) -> Any:
    """What decides the type of an argument: a dtype, a class, or where a number lies."""
    kind = type(a)
    return a.dtype if kind is DeviceArray else a.kind if kind is DeviceNumber else kind


@functools.cache
def by_reference(kernel: Callable[..., None], places: tuple[int, ...], count: int) -> Any:
    """``kernel`` with ``count`` arguments, of which those at ``places`` are read by pointer."""
    names = [f"a{k}" for k in range(count)]
    passed = [f"a{k}[0]" if k in places else f"a{k}" for k in range(count)]
    name = f"{kernel.__name__}_by_reference"
    text = f"def {name}({', '.join(names)}):\n    inner({', '.join(passed)})\n"
    inner = cuda.jit(device=True, forceinline=True)(kernel)
    namespace: dict[str, Any] = {"inner": inner, "__name__": kernel.__module__}
    exec(text, namespace)
    return namespace[name]


def _form(kernel: Callable[..., None], kinds: list[Any]) -> Callable[..., None]:
    """The form of ``kernel`` for arguments of these kinds."""
    places = tuple([k for k, kind in enumerate(kinds) if kind.__class__ is str])
    return by_reference(kernel, places, len(kinds)) if places else kernel


def start(kernel: Callable[..., None], grid: Any, block: Any, *args: Any, shared: int = 0) -> None:
    """Run ``kernel`` on the current stream: ``grid`` blocks of ``block`` threads.

    shared: bytes of shared memory for each block, beside the kernel's own arrays.
    """
    if SIMULATED:
        _simulate(kernel, grid, block, args)
        return
    watch = device.watch()
    if watch is not None:
        watch.launched.append((kernel, grid, block, shared, args))
    queue = device.current_queue()
    values: list[Any] = []
    kinds: list[Any] = []
    for a in args:
        if a.__class__ is DeviceArray:
            values.append(a.pointer)
            kinds.append(a.dtype)
            memory = a.memory
            if memory.stream is not queue:
                _note(memory, queue)
        elif a.__class__ is DeviceNumber:
            values.append(a.pointer)
            kinds.append(a.kind)
            if a.memory.stream is not queue:
                _note(a.memory, queue)
        else:
            values.append(a)
            kinds.append(a.__class__)
    launchers = _here.launchers
    key = kernel, grid, block, shared, queue, *kinds
    launcher = launchers.get(key)
    if launcher is None:
        if len(launchers) >= 8192:
            launchers.clear()
        launcher = launchers[key] = launcher_of(kernel, kinds, grid, block, shared, queue)
    launcher(*values)


class _Here(threading.local):
    """What launches of this thread: a launcher has a place for the values of one call."""

    def __init__(self) -> None:
        self.launchers: dict[Any, Any] = {}


_here = _Here()


def prepared(kernel: Callable[..., None], grid: int, block: int) -> Callable[..., None]:
    """``start`` of ``kernel`` for arguments whose kinds are the same in each call."""
    if SIMULATED:
        return functools.partial(start, kernel, grid, block)
    launchers: dict[Any, Any] = {}  # a launcher belongs to a thread, and launches on one queue

    def start_prepared(*args: Any) -> None:
        watch = device.watch()
        if watch is not None:
            watch.launched.append((kernel, grid, block, 0, args))
        queue = device.current_queue()
        launcher = launchers.get((get_ident(), queue))
        if launcher is None:
            if len(launchers) >= 64:
                launchers.clear()
            kinds = [kind_of(a) for a in args]
            launcher = launcher_of(kernel, kinds, grid, block, 0, queue)
            launchers[get_ident(), queue] = launcher
        values = []
        for a in args:
            if a.__class__ is DeviceArray:
                values.append(a.pointer)
                if a.memory.stream is not queue:
                    _note(a.memory, queue)
            else:
                values.append(a)
        launcher(*values)

    return start_prepared


def launcher_of(
    kernel: Callable[..., None], kinds: list[Any], grid: Any, block: Any, shared: int, queue: Any
) -> Any:
    """What launches ``kernel`` on arguments of these kinds."""
    driver = device.driver()
    form, signature = _form(kernel, kinds), tuple([_type_of(k) for k in kinds])
    if driver.name == "none":
        compiled = form, signature
        launches[compiled] = max(launches.get(compiled, 0), int(np.prod(block)))
        return _nothing
    return driver.launcher(form, signature, grid, block, shared, queue)


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
    values: list[Any] = []
    for a in args:
        if type(a) is DeviceArray:
            dtype = BYTE if a.dtype == _BOOL else a.dtype
            values.append(intrinsics.Pointer(a.pointer, dtype, *_extent(a)))
        elif isinstance(a, (DeviceNumber, bool, int, float, np.generic)):
            values.append(a)
        else:
            raise _not_an_argument(type(a))
    driver = device.driver()
    if driver.capturing is not None:
        for a in args:
            if type(a) in (DeviceArray, DeviceNumber):
                note_memory(a.memory, device.current_queue())
        driver.capturing.append(functools.partial(_run_simulated, kernel, grid, block, values))
        return
    _run_simulated(kernel, grid, block, values)


def _run_simulated(kernel: Callable[..., None], grid: Any, block: Any, values: list[Any]) -> None:
    intrinsics.blocks[:] = device.driver().blocks()
    values = [v.read() if type(v) is DeviceNumber else v for v in values]
    with np.errstate(all="ignore"):
        cuda.jit(kernel)[grid, block](*values)
