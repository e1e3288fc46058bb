"""The drivers behind the doorway: a GPU, Numba's simulator, or nobody.

Each has memory, copies and streams. ``GPU`` calls the CUDA driver through ``cuda.bindings``;
``Simulated`` keeps device memory in host memory, where the simulator's kernels work on it;
``Absent`` does too, but runs no kernel: it is how all kernels are compiled without a GPU.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ....collector import seldom
from ....errors import DeviceError
from .newer_numpy import load_device_functions

__all__ = ["GPU", "Absent", "Simulated"]

STATIC_SHARED = 48 << 10
"""Bytes of shared memory that a block may have without asking."""


class _Moment:
    """A mark where there are no queues: the time at which it was recorded."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def record(self, stream: Any = 0) -> None:
        self.seconds = time.perf_counter()

    def query(self) -> bool:
        return True

    def wait(self, stream: Any = 0) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: _Moment) -> float:
        return (end.seconds - self.seconds) * 1e3


class Simulated:
    """Device memory in host memory, for Numba's CUDA simulator; everything happens at once."""

    simulated = True
    name = "simulator"
    capability = (9, 0)
    multiprocessors = 2
    total = 1 << 30

    def __init__(self) -> None:
        self._segments: dict[int, Any] = {}
        self._used = 0
        self.capturing: list[Callable[[], None]] | None = None

    def malloc(self, size: int) -> int | None:
        """The address of ``size`` bytes, or None if there are not so many."""
        if self._used + size > self.total:
            return None
        segment = np.full(size + 512, 0x5A, np.uint8)  # that nothing relies on zeros
        address = (segment.__array_interface__["data"][0] + 511) // 512 * 512
        self._segments[address] = segment
        self._used += size
        return address

    def free(self, address: int) -> None:
        """Give back what ``malloc`` returned."""
        self._used -= self._segments.pop(address).size - 512

    def blocks(self) -> list[tuple[int, int]]:
        """Address and size of all memory given out."""
        return [(address, segment.size - 512) for address, segment in self._segments.items()]

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and in all."""
        return self.total - self._used, self.total

    def enter(self) -> None:
        """Make the device current in this thread."""

    def copy_in(self, address: int, source: np.ndarray, stream: Any) -> None:
        """From the contiguous host array to the device."""
        ctypes.memmove(address, source.ctypes.data, source.nbytes)

    def copy_out(self, target: np.ndarray, address: int, stream: Any) -> None:
        """From the device to the contiguous host array; returns when it is there."""
        ctypes.memmove(target.ctypes.data, address, target.nbytes)

    def copy_within(self, address: int, source: int, size: int, stream: Any) -> None:
        """``size`` bytes from one place of the device to another."""
        ctypes.memmove(address, source, size)

    def begin_capture(self, stream: Any) -> None:
        """Let launches on ``stream`` be noted, not run, until ``end_capture``."""
        self.capturing = []

    def end_capture(self, stream: Any) -> Any:
        """The launches since, for ``replay``."""
        captured, self.capturing = self.capturing, None
        return captured

    def replay(self, graph: Any, stream: Any) -> None:
        """Run what was captured."""
        for each in graph:
            each()

    def pinned(self, size: int) -> Any:
        """A writable buffer of host memory that the device can read while the host works."""
        return np.empty(size, np.uint8)

    def is_pinned(self, address: int) -> bool:
        """Whether the host memory at ``address`` is page-locked."""
        return False

    def new_stream(self) -> Any:
        """A queue of work of its own."""
        from numba import cuda

        return cuda.stream()

    def default_stream(self) -> Any:
        """The queue that all work goes to unless said otherwise."""
        return 0

    def known_stream(self, number: int) -> Any:
        """Another library's queue by its handle; 1 is the default one, 2 that of the thread."""
        return 0

    def handle(self, stream: Any) -> int:
        """A queue as other libraries take it; 0 is the default one."""
        return 0

    def record(self, stream: Any) -> Callable[[], bool]:
        """Mark this point of ``stream``; the result says whether the device has passed it."""
        return lambda: True

    def event(self, timing: bool) -> Any:
        """A mark for streams, with ``record query wait synchronize elapsed_time``."""
        return _Moment()

    def synchronize(self, stream: Any = None) -> None:
        """Wait for ``stream``, or for all work."""

    def wait(self, stream: Any, other: Any) -> None:
        """Let later work on ``stream`` wait for what is on ``other`` now."""


class Absent(Simulated):
    """No device: memory of zeros, and kernels that are compiled but never run."""

    simulated = False
    name = "none"
    multiprocessors = 132

    def malloc(self, size: int) -> int | None:
        address = super().malloc(size)
        if address is not None:
            self._segments[address][:] = 0
        return address

    def copy_in(self, address: int, source: np.ndarray, stream: Any) -> None:
        pass  # a block that is used again must be zeros still

    def new_stream(self) -> Any:
        return 0


class _Graph:
    """What holds the driver's executable graph."""

    def __init__(self, handle: Any):
        self.handle = handle


class GPU:
    """An NVIDIA GPU through the CUDA driver."""

    simulated = False

    def __init__(self) -> None:
        from cuda.bindings import driver
        from numba import cuda

        load_device_functions()  # also users' own kernels need them
        self._driver, self._cuda = driver, cuda
        status, address, *_ = driver.cuGetProcAddress(b"cuLaunchKernel", 4000, 0)
        self._launch = int(self._checked("cuGetProcAddress", (status, address)))
        self._functions: dict[Any, int] = {}
        self._kept: list[Any] = []  # Numba's kernels, which own the loaded code
        device = cuda.get_current_device()
        name = device.name
        self.name = name.decode() if isinstance(name, bytes) else name
        self.capability = tuple(device.compute_capability)
        self.multiprocessors = device.MULTIPROCESSOR_COUNT

    def _checked(self, what: str, result: tuple) -> Any:
        """The values of a driver call; a DeviceError that names it if it failed."""
        status, *values = result
        if status != self._driver.CUresult.CUDA_SUCCESS:
            _, text = self._driver.cuGetErrorString(status)
            words = text.decode() if isinstance(text, bytes) else str(text)
            raise DeviceError(
                f"CUDA error: {words} ({status!s}, in {what}). Kernels run later than they are "
                f"launched, so an earlier one may be the cause: CUDA_LAUNCH_BLOCKING=1 shows it."
            )
        return values[0] if len(values) == 1 else tuple(values)

    def enter(self) -> None:
        """Make the device's context current in this thread."""
        self._cuda.current_context()

    def launcher(
        self, kernel: Callable[..., None], signature: tuple[Any, ...], grid: Any, block: Any,
        shared: int, queue: Any,
    ) -> Callable[..., None]:  # fmt: skip
        """What runs ``kernel`` on the values of its arguments, compiled or loaded here."""
        from .calls import launcher

        self.enter()
        function = self._functions.get((kernel, signature, shared))
        if function is None:
            function = self._loaded(kernel, signature, shared)
            self._functions[kernel, signature, shared] = function
        sizes = [n if isinstance(n, tuple) else (n,) for n in (grid, block)]
        grid, block = ((*map(int, n), 1, 1)[:3] for n in sizes)
        stream, failed = self.handle(queue), self._not_launched
        return launcher(self._launch, function, signature, grid, block, shared, stream, failed)

    def _loaded(self, kernel: Any, signature: tuple[Any, ...], shared: int) -> int:
        """The driver's handle of a kernel for arguments of these types."""
        from .kept import specialised

        with seldom():
            found = specialised(kernel, signature, self.capability)
        (compiled,) = found.overloads.values()
        loaded = compiled._codelibrary.get_cufunc().kernel.handle
        function = self._checked("cuKernelGetFunction", self._driver.cuKernelGetFunction(loaded))
        if shared > STATIC_SHARED:
            most = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            set_attribute = self._driver.cuFuncSetAttribute
            self._checked("cuFuncSetAttribute", set_attribute(function, most, shared))
        self._kept.append(found)
        return int(function)

    def _not_launched(self, status: int) -> None:
        self._checked("cuLaunchKernel", (self._driver.CUresult(status),))

    def malloc(self, size: int) -> int | None:
        """The address of ``size`` bytes, or None if there are not so many."""
        self.enter()
        result = self._driver.cuMemAlloc(size)
        if result[0] == self._driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            return None
        return int(self._checked("cuMemAlloc", result))

    def free(self, address: int) -> None:
        """Give back what ``malloc`` returned."""
        self.enter()
        self._checked("cuMemFree", self._driver.cuMemFree(address))

    def memory_info(self) -> tuple[int, int]:
        """Bytes free and in all."""
        self.enter()
        free, total = self._checked("cuMemGetInfo", self._driver.cuMemGetInfo())
        return int(free), int(total)

    def handle(self, stream: Any) -> int:
        """A queue as other libraries take it; 0 is the default one."""
        return int(getattr(stream, "handle", stream) or 0)

    def copy_in(self, address: int, source: np.ndarray, stream: Any) -> None:
        """From the contiguous host array to the device, asynchronous if it is page-locked."""
        self.enter()
        self._checked(
            "cuMemcpyHtoDAsync",
            self._driver.cuMemcpyHtoDAsync(
                address, source.ctypes.data, source.nbytes, self.handle(stream)
            ),
        )

    def copy_out(self, target: np.ndarray, address: int, stream: Any) -> None:
        """From the device to the contiguous host array; returns when it is there."""
        self.enter()
        self._checked(
            "cuMemcpyDtoHAsync",
            self._driver.cuMemcpyDtoHAsync(
                target.ctypes.data, address, target.nbytes, self.handle(stream)
            ),
        )
        self.synchronize(stream)

    def copy_within(self, address: int, source: int, size: int, stream: Any) -> None:
        """``size`` bytes from one place of the device to another."""
        self._checked(
            "cuMemcpyDtoDAsync",
            self._driver.cuMemcpyDtoDAsync(address, source, size, self.handle(stream)),
        )

    def begin_capture(self, stream: Any) -> None:
        """Let launches on ``stream`` become nodes of a graph, not run, until ``end_capture``."""
        self.enter()
        mode = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        handle = self.handle(stream)
        self._checked("cuStreamBeginCapture", self._driver.cuStreamBeginCapture(handle, mode))

    def end_capture(self, stream: Any) -> Any:
        """The launches since as one executable graph; destroyed with the last reference."""
        driver = self._driver
        captured = self._checked(
            "cuStreamEndCapture", driver.cuStreamEndCapture(self.handle(stream))
        )
        graph = self._checked("cuGraphInstantiate", driver.cuGraphInstantiate(captured, 0))
        self._checked("cuGraphDestroy", driver.cuGraphDestroy(captured))
        holder = _Graph(graph)
        weakref.finalize(holder, driver.cuGraphExecDestroy, graph)
        return holder

    def replay(self, graph: Any, stream: Any) -> None:
        """Start everything that was captured."""
        handle = self.handle(stream)
        self._checked("cuGraphLaunch", self._driver.cuGraphLaunch(graph.handle, handle))

    def pinned(self, size: int) -> Any:
        """A writable buffer of page-locked host memory; freed with the last array on it."""
        self.enter()
        address = int(self._checked("cuMemHostAlloc", self._driver.cuMemHostAlloc(size, 0)))
        buffer: Any = (ctypes.c_ubyte * size).from_address(address)
        weakref.finalize(buffer, self._driver.cuMemFreeHost, address)
        return np.ndarray((size,), np.uint8, buffer)

    def is_pinned(self, address: int) -> bool:
        """Whether the host memory at ``address`` is page-locked."""
        self.enter()
        status, _ = self._driver.cuMemHostGetFlags(address)
        return status == self._driver.CUresult.CUDA_SUCCESS

    def new_stream(self) -> Any:
        """A queue of work of its own."""
        return self._cuda.stream()

    def default_stream(self) -> Any:
        """The queue that all work goes to unless said otherwise."""
        return 0

    def known_stream(self, number: int) -> Any:
        """Another library's queue by its handle; 1 is the default one, 2 that of the thread."""
        self.enter()
        if number == 1:
            return self._cuda.legacy_default_stream()
        if number == 2:
            return self._cuda.per_thread_default_stream()
        return self._cuda.external_stream(number)

    def record(self, stream: Any) -> Callable[[], bool]:
        """Mark this point of ``stream``; the result says whether the device has passed it."""
        event = self.event(timing=False)
        event.record(stream or 0)
        return event.query

    def event(self, timing: bool) -> Any:
        """A mark for streams, with ``record query wait synchronize elapsed_time``."""
        self.enter()
        return self._cuda.event(timing=timing)

    def synchronize(self, stream: Any = None) -> None:
        """Wait for ``stream``, or for all work."""
        self.enter()
        if stream is None:
            self._checked("cuCtxSynchronize", self._driver.cuCtxSynchronize())
        else:
            handle = self.handle(stream)
            self._checked("cuStreamSynchronize", self._driver.cuStreamSynchronize(handle))

    def wait(self, stream: Any, other: Any) -> None:
        """Let later work on ``stream`` wait for what is on ``other`` now."""
        event = self.event(timing=False)
        event.record(other or 0)
        event.wait(stream or 0)
