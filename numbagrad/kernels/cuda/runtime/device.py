"""The doorway to CUDA: the one GPU of this process, its memory, streams and copies.

``numba.cuda`` is imported when a GPU is first asked for. Which driver stands behind is decided
then: the GPU, Numba's simulator where ``NUMBA_ENABLE_CUDASIM=1`` is set, or, for compiling all
kernels without a GPU, nobody (``pretend``). Several GPUs in one process are not supported: choose
one with ``CUDA_VISIBLE_DEVICES``.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .... import devices
from ....errors import DeviceError
from .allocator import BlockCache
from .array import Captured, DeviceArray, Lasting, Memory
from .driver import GPU, Absent, Simulated

__all__ = [
    "Stream",
    "current_stream",
    "default_stream",
    "device_count",
    "duplicate",
    "empty",
    "is_available",
    "is_initialized",
    "lent",
    "pinned",
    "pretend",
    "problem",
    "stream",
    "synchronize",
    "table",
    "to_device",
    "to_host",
    "zeros",
]


class _State(threading.local):
    stream: Any = None  # None: the default stream
    watch: Any = None  # what notes the launches of a twin; see again.py


_here = _State()
_lock = threading.Lock()
_driver: Any = None
_cache: Any = None
_pretending = False
_stand_in: tuple[Any, Any] | None = None


def simulating() -> bool:
    """Whether Numba's simulator stands in for a GPU in this process."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0")


def problem() -> str | None:
    """Why there is no GPU to compute on, in words; None if there is one."""
    if _driver is not None or _pretending or _stand_in is not None:
        return None
    try:
        from numba import cuda
    except ImportError as error:
        return f"numba-cuda is not installed ({error}); pip install 'numbagrad[cuda]'"
    if simulating():
        return None
    if getattr(cuda, "implementation", "Built-in") != "NVIDIA":
        return "numba-cuda is not installed; pip install 'numbagrad[cuda]'"
    try:
        if cuda.is_available():
            return None
        reason = getattr(cuda, "cuda_error", lambda: None)()
    except Exception as error:  # a broken driver installation may raise anything
        reason = error
    words = f" ({' '.join(str(reason).split())})" if reason else ""
    return f"no NVIDIA driver with a GPU was found{words}"


def is_available() -> bool:
    """Whether tensors can be moved to a GPU here.

    >>> isinstance(is_available(), bool)
    True
    """
    return problem() is None


def device_count() -> int:
    """How many GPUs numbagrad can use: one or none."""
    return 1 if is_available() else 0


def is_initialized() -> bool:
    """Whether this process has begun to use the GPU."""
    return _driver is not None


def driver() -> Any:
    """The driver, started on first use. Raises DeviceError, saying why, where there is no GPU."""
    global _driver, _cache
    if _driver is None:
        with _lock:
            if _driver is None:
                reason = problem()
                if reason is not None:
                    raise DeviceError(f"cuda is not available: {reason}. Use device='cpu'.")
                found, cache = _stand_in or (_found(), BlockCache)
                _cache = cache(found)
                atexit.register(_cache.close)
                _driver = found
    return _driver


def pretend() -> None:
    """Let nobody stand behind the doorway: kernels compile, nothing runs, memory is zeros."""
    global _pretending
    if _driver is not None:
        raise DeviceError("pretend: a device is in use already; call it first.")
    _pretending = True


def _found() -> Any:
    return Absent() if _pretending else Simulated() if simulating() else GPU()


def stand_in(chosen: Any, cache: Any = BlockCache) -> None:
    """Let ``chosen`` stand behind the doorway, for tests; cache: what hands out its memory."""
    global _stand_in
    if _driver is not None:
        raise DeviceError("stand_in: a device is in use already; call it first.")
    _stand_in = chosen, cache


def run(kernel: Any, args: tuple[Any, ...]) -> bool:
    """Run ``kernel``, if an argument is on the device, and say so."""
    for a in args:
        if type(a) is DeviceArray or (type(a) is list and DeviceArray in map(type, a)):
            (_run_twin or _twins())(kernel, args)
            return True
    return False


_run_twin: Any = None


def _twins() -> Any:
    """``twins.run_twin``, imported with numba.cuda when it is first needed."""
    global _run_twin
    from .twins import run_twin

    _run_twin = run_twin
    return run_twin


# -- streams ---------------------------------------------------------------------------------------


class Stream:
    """A queue of work on the GPU; work on different streams may overlap.

    Use it with ``with ng.cuda.stream(s):``. Memory made on one stream and used on another is kept
    until both have finished.
    """

    def __init__(self) -> None:
        self.queue = driver().new_stream()

    def synchronize(self) -> None:
        """Wait until all work on this stream is done."""
        driver().synchronize(self.queue)
        _raise_flags()

    def wait_stream(self, other: Stream) -> None:
        """Let work launched here from now on wait for what ``other`` has been given so far."""
        driver().wait(self.queue, other.queue)

    def query(self) -> bool:
        """Whether all work that this stream has been given is done."""
        return driver().record(self.queue)()

    def record_event(self, event: Any = None) -> Any:
        """Mark this point of the stream with ``event``, by default a new one; returns it."""
        from .events import Event

        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Let work launched here from now on wait for ``event``."""
        event.wait(self)

    def __repr__(self) -> str:
        return f"<ng.cuda.Stream {self.queue!r}>"


class _DefaultStream(Stream):
    def __init__(self) -> None:
        self.queue = driver().default_stream()

    def __repr__(self) -> str:
        return "<ng.cuda.Stream default>"


def check_named(given: Any) -> None:
    """Raise DeviceError unless ``given`` (0, "cuda", a device) names the GPU there is."""
    named = devices.Device("cuda", given) if isinstance(given, int) else given
    if devices.to_device(named).type != "cuda":
        raise DeviceError(f"cuda: expected a GPU, such as 0 or 'cuda', but got {given!r}.")


def current_stream(device: Any = None) -> Stream:
    """The stream that this thread launches on."""
    if device is not None:
        check_named(device)
    if _here.stream is None:
        _here.stream = _DefaultStream()
        driver().enter()  # the context is current in a thread from its first use on
    return _here.stream


def default_stream(device: Any = None) -> Stream:
    """The stream that a thread launches on unless told otherwise."""
    if device is not None:
        check_named(device)
    return _DefaultStream()


def current_queue() -> Any:
    """The driver's object of the current stream."""
    return (_here.stream or current_stream()).queue


@contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Launch on ``stream`` inside the ``with`` block; None changes nothing."""
    held = current_stream()
    _here.stream = held if stream is None else stream
    try:
        yield
    finally:
        _here.stream = held


def stream_number() -> int:
    """The current stream as ``__cuda_array_interface__`` names it; 1 is the default one."""
    queue = current_stream().queue
    return int(queue) if queue and not simulating() else 1


captures: dict[Any, Captured] = {}
"""Queues whose launches are being captured, with the memory that these work on; see graph.py."""


def capturing() -> bool:
    """Whether this thread's launches are being captured."""
    return bool(captures) and current_queue() in captures


def watch() -> Any:
    """What notes this thread's launches, or None."""
    return _here.watch


def once() -> None:
    """Note that what this thread does now depends on more than the kinds of arguments."""
    if _here.watch is not None:
        _here.watch.other = True


@contextmanager
def watching(notes: Any) -> Iterator[None]:
    """Have this thread's launches noted by ``notes``; None: by nobody."""
    held, _here.watch = _here.watch, notes
    try:
        yield
    finally:
        _here.watch = held


def _refuse_capture(what: str) -> None:
    once()
    if capturing():
        raise DeviceError(f"{what}: the host and the device cannot meet while a graph is captured.")


def synchronize(device: Any = None) -> None:
    """Wait for all work; raises what kernels have found wrong meanwhile."""
    if device is not None:
        check_named(device)
    _refuse_capture("synchronize")
    driver().synchronize()
    _raise_flags()


# -- what kernels find wrong -----------------------------------------------------------------------

_flags: list[tuple[DeviceArray, Callable[[int], None]]] = []
MOST_FLAGS = 64
"""Flags that may wait to be looked at; then one synchronisation looks at all."""

FEW_FLAGS, _FLAG = 4, np.dtype(np.int64)
"""As many are copied to the host by themselves."""


def check_later(flag: DeviceArray, fail: Callable[[int], None]) -> None:
    """Call ``fail(value)`` when the host next waits for the device, if ``flag`` is then >= 0.

    Looking now would make the host wait for every indexing.
    """
    if _here.watch is not None:
        _here.watch.checks.append((flag, fail))
    if _pretending:
        return
    _flags.append((flag, fail))
    if len(_flags) >= MOST_FLAGS:
        driver().synchronize()
        _raise_flags()


def _raise_flags() -> None:
    """Look at all waiting flags; raises for the first that is set."""
    waiting, _flags[:] = _flags[:], []
    held, _here.watch = _here.watch, None
    try:
        values = _numbers([flag for flag, _ in waiting])
    finally:
        _here.watch = held
    for value, (_, fail) in zip(values, waiting, strict=True):
        if value >= 0:
            fail(value)


def _numbers(flags: list[DeviceArray]) -> list[int]:
    """What flags hold; by one copy to the host, which takes longer than many within the device."""
    if len(flags) < FEW_FLAGS or any([f.dtype != _FLAG for f in flags]):
        return [int(_copied(f)[0]) for f in flags]
    from .copies import copy_all

    found = empty((len(flags),), _FLAG, flags[0].device)
    first, size = found.pointer, _FLAG.itemsize
    copy_all([(first + k * size, f.pointer, size) for k, f in enumerate(flags)])
    return _copied(found).tolist()


# -- memory ----------------------------------------------------------------------------------------


def empty(shape: tuple[int, ...], dtype: np.dtype, device: Any) -> DeviceArray:
    """Uninitialised memory on the GPU."""
    if _cache is None:
        driver()
    size = dtype.itemsize
    for n in shape:
        size *= n
    queue = current_queue()
    memory = Memory(_cache, size, queue)
    if captures and queue in captures:
        captures[queue].append(memory)
    out = DeviceArray(memory, memory.address, tuple(shape), dtype, device)
    if _here.watch is not None:
        _here.watch.asked.append(out)
    return out


def another(like: DeviceArray) -> DeviceArray:
    """Uninitialised memory for an array as ``like``, which has no gaps."""
    taken = memory(like.size * like.dtype.itemsize)
    return like.elsewhere(taken, taken.address)


def memory(size: int) -> Memory:
    """Uninitialised memory of so many bytes."""
    queue = (_here.stream or current_stream()).queue
    found = Memory(_cache, size, queue)
    if captures and queue in captures:
        captures[queue].append(found)
    return found


def zeros(shape: tuple[int, ...], dtype: np.dtype, device: Any) -> DeviceArray:
    """Memory of zeros on the GPU."""
    from .elementwise import fill

    out = empty(shape, dtype, device)
    fill(out, 0)
    return out


def to_device(array: np.ndarray, device: Any) -> DeviceArray:
    """A copy on the GPU. Asynchronous if the host memory is page-locked."""
    _refuse_capture("to")
    source = np.ascontiguousarray(array)
    out = empty(array.shape, source.dtype, device)
    if source.size:
        queue = current_stream().queue
        driver().copy_in(out.pointer, source, queue)
        if source is not array:
            driver().synchronize(queue)  # the copy must not outlive its source
    return out


def table(values: np.ndarray) -> DeviceArray:
    """A copy of a small array on the GPU, kept by its content and never written."""
    return _table(values.tobytes(), values.shape, values.dtype.str)


@functools.lru_cache(maxsize=512)
def _table(content: bytes, shape: tuple[int, ...], dtype: str) -> DeviceArray:
    values = np.frombuffer(content, dtype).reshape(shape)
    with watching(None):
        out = to_device(values, devices.to_device("cuda"))
    out.memory.__class__ = Lasting
    driver().synchronize(current_queue())  # any stream may read it next
    return out


def to_host(array: DeviceArray) -> np.ndarray:
    """A copy on the host; waits for the device, and raises what kernels have found wrong."""
    if _flags:
        driver().synchronize(current_stream().queue)
        _raise_flags()
    return _copied(array)


def _copied(array: DeviceArray) -> np.ndarray:
    _refuse_capture("reading")
    if not array.c_contiguous:
        array = duplicate(array)
    out = np.empty(array.shape, array.dtype)
    if out.size:
        driver().copy_out(out, array.pointer, current_stream().queue)
    return out


def duplicate(array: DeviceArray) -> DeviceArray:
    """A contiguous copy on the same device."""
    from .elementwise import copy

    out = empty(array.shape, array.dtype, array.device)
    copy(out, array)
    return out


def pinned(array: np.ndarray) -> np.ndarray:
    """A copy in page-locked host memory, from and to which copies are asynchronous."""
    source = np.ascontiguousarray(array)
    buffer = driver().pinned(max(source.nbytes, 1))
    out = buffer[: source.nbytes].view(source.dtype).reshape(array.shape)
    out[...] = source
    return out


def lent(array: Any) -> Any:
    """``array`` as a user's own CUDA kernel takes it: as it is, or in the simulator an ndarray."""
    if type(array) is not DeviceArray or not simulating():
        return array
    memory = array.memory
    whole = (ctypes.c_uint8 * memory.size).from_address(memory.address)
    start = array.pointer - memory.address
    return np.ndarray(array.shape, array.dtype, whole, start, array.strides)
