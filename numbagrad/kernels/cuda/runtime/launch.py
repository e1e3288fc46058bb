"""Compiling a kernel for the types of its arguments, and launching it.

A kernel is a plain function of pointers and numbers that uses the global name ``cuda``. An array
goes in as one pointer to its first element; its sizes and strides are numbers. Bools are bytes. A
number that lies in device memory goes in as a pointer too: see ``by_reference``.
``start(kernel, grid, block, *args)`` does the rest; start reading there.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, float32, float64, types

from ....collector import seldom
from ....errors import DeviceError
from . import device, intrinsics, kept, simulator
from .array import DeviceArray
from .numbers import DeviceNumber
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
"""Threads of the largest block that each kernel was started with, for each set of Numba types,
while nobody is the device."""

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


def _kind_of(a: Any) -> Any:
    """What decides the type of an argument: a dtype, a class, or where a number lies."""
    kind = type(a)
    return a.dtype if kind is DeviceArray else a.kind if kind is DeviceNumber else kind


def types_of(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numba's types of the arguments of a kernel."""
    return tuple([_type_of(_kind_of(a)) for a in args])


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


def _launcher(
    kernel: Callable[..., None], args: tuple[Any, ...], grid: Any, block: Any, queue: Any,
    shared: int,
) -> Any:  # fmt: skip
    """What launches ``kernel`` on arguments like these, compiled or loaded on first use."""
    signature = types_of(args)
    found = _compiled.get((kernel, signature))
    if found is None:
        with seldom():
            found = kept.specialised(kernel, signature, device.driver().capability)
        _compiled[kernel, signature] = found
    if shared > 48 << 10:
        _allow(found.overloads[signature], shared)
    with warnings.catch_warnings():  # small grids are what small tensors need
        warnings.simplefilter("ignore")
        return found[grid, block, queue, shared]


def _allow(compiled: Any, shared: int) -> None:
    """Let blocks of a kernel ask for more than 48 KB of shared memory."""
    from cuda.bindings.driver import CUfunction_attribute
    from numba.cuda.cudadrv.driver import driver

    attribute = CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    function = compiled._codelibrary.get_cufunc()
    driver.cuKernelSetAttribute(attribute, shared, function.handle, function.device.id)


def start(
    kernel: Callable[..., None], grid: Any, block: Any, *args: Any, shared: int = 0
) -> None:
    """Run ``kernel`` on the current stream: ``grid`` blocks of ``block`` threads.

    shared: bytes of shared memory that a block has beside the kernel's own arrays.
    """
    if SIMULATED:
        _simulate(kernel, grid, block, args)
        return
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
    key = kernel, grid, block, queue, shared, *kinds
    launcher = _launchers.get(key)
    if launcher is None:
        driver = device.driver()
        form = _form(kernel, kinds)
        if driver.name == "none":
            compiled = form, types_of(args)
            launches[compiled] = max(launches.get(compiled, 0), int(np.prod(block)))
            launcher = _nothing
        elif hasattr(driver, "launcher"):  # a stand-in that runs kernels in its own way
            launcher = driver.launcher(form, types_of(args), grid, block, queue, shared)
        else:
            driver.enter()
            launcher = _launcher(form, args, grid, block, queue, shared)
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
