"""Mends Numba's CUDA simulator: shared arrays are one for the block, and threads take turns.

Numba's finds a shared array by the caller's line, looks it up and, if it is new, makes it, without
a lock: now and then two threads each make one of their own, and a correct kernel gives wrong
numbers. And it starts a Python thread for each thread of a block; all run at once, while another
asks them without a pause whether they wait. Where greenlet is installed (extra ``dev``) they are
greenlets here, of which each runs to its next barrier. Who goes first changes from barrier to
barrier, so that one that is missing shows.

Start reading at ``_run``.
"""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import suppress
from typing import Any, cast

import numpy as np

_lock = threading.Lock()


def _shared_array(self: Any, shape: Any, dtype: Any, alignment: Any = None) -> np.ndarray:
    """The array of the block that belongs to the line of the caller."""
    from numba import types
    from numba.np.numpy_support import as_dtype

    kind = as_dtype(dtype) if isinstance(dtype, types.Type) else np.dtype(dtype)
    frame = sys._getframe(1)
    caller = frame.f_code.co_filename, frame.f_lineno
    with _lock:
        found = self._allocations.get(caller)
        if found is None:
            found = self._allocations[caller] = np.empty(shape, kind)
    return found


def _local_array(self: Any, shape: Any, dtype: Any, alignment: Any = None) -> np.ndarray:
    """The array of one thread; Numba's refuses to be told an alignment."""
    from numba import types
    from numba.np.numpy_support import as_dtype

    return np.empty(shape, as_dtype(dtype) if isinstance(dtype, types.Type) else dtype)


def _run(manager: Any, block: tuple[int, ...], *args: Any) -> None:
    """Run the threads of one block; stands in for ``BlockManager.run``.

    Kernels ask the current Python thread who they are: it is told before each turn.
    """
    from greenlet import getcurrent, greenlet
    from numba.cuda.simulator.kernel import BlockThread, Dim3

    shape, here = Dim3(*manager._block_dim), cast(Any, threading.current_thread())
    here._manager, here.blockIdx, here.syncthreads = manager, Dim3(*block), getcurrent().switch
    for name in ("syncthreads_count", "syncthreads_and", "syncthreads_or"):
        setattr(here, name, functools.partial(getattr(BlockThread, name), here))
    points = (Dim3(*point) for point in np.ndindex(*manager._block_dim))
    live = [(point, greenlet(lambda: manager._f(*args))) for point in points]
    try:
        while live:
            for point, thread in live:
                here.threadIdx = point
                here.thread_id = point.x + shape.x * (point.y + shape.y * point.z)
                thread.switch()
            live = [(point, thread) for point, thread in reversed(live) if not thread.dead]
    except Exception as error:
        at = f"tid={list(here.threadIdx)} ctaid={list(here.blockIdx)}"
        raise type(error)(f"{at}: {error}" if str(error) else at) from error


def mend() -> None:
    """Replace what is wrong; in a process that simulates."""
    from numba.cuda.simulator import kernel, kernelapi

    kernelapi.FakeCUDAShared.array = _shared_array
    kernelapi.FakeCUDALocal.array = _local_array
    with suppress(ImportError):
        import greenlet  # noqa: F401

        kernel.BlockManager.run = _run
