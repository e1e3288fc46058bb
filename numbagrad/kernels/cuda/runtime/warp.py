"""Exchange between the threads of a warp and of a block, with a stand-in for the simulator.

Every function must be called by all threads of the block together. ``warp_sum`` and ``block_sum``
take the same arguments, so that a kernel can be made for teams of either size. The simulator has
no warp operations: there values go through a table of the block, between two barriers.
"""

from __future__ import annotations

import threading
from typing import Any

from numba import cuda, int64, uint32

from .shape import SIMULATED, WARP, WARPS

__all__ = [
    "barrier",
    "block_max",
    "block_sum",
    "called",
    "inlined",
    "pasted",
    "shuffle_down",
    "shuffle_xor",
    "split",
    "warp_max",
    "warp_sum",
]

_EVERY = 0xFFFFFFFF

if SIMULATED:
    # Without the global name ``cuda``, which the simulator would exchange under running threads.

    def inlined(function: Any) -> Any:
        """Decorator of a function that kernels call."""
        return function

    called = pasted = inlined

    def barrier():
        """All threads of the block wait for each other."""
        threading.current_thread().syncthreads()

    def split(at, size):
        """Quotient and rest of two ints that are not negative."""
        return at // size, at % size

    def exchange(value):
        """The values of all threads of the block, and the number of this one; only simulated."""
        thread = threading.current_thread()
        manager = thread._manager
        table = manager.__dict__.setdefault("numbagrad_exchange", {})
        table[thread.thread_id] = value
        thread.syncthreads()
        values = [table[i] for i in range(len(table))]
        thread.syncthreads()
        return values, thread.thread_id

    def _of_warp(value):
        values, me = exchange(value)
        first = me - me % WARP
        return values[first : first + WARP], me % WARP

    def shuffle_down(value, delta):
        """The value of the thread ``delta`` lanes above; its own where there is none."""
        values, lane = _of_warp(value)
        return values[lane + delta] if lane + delta < WARP else value

    def shuffle_xor(value, mask):
        """The value of the thread whose lane differs in the bits of ``mask``."""
        values, lane = _of_warp(value)
        return values[lane ^ mask]

    def warp_sum(value, shared):
        """The sum of ``value`` over the warp, in every thread of it."""
        values, _ = _of_warp(value)
        total = values[0]
        for other in values[1:]:
            total = total + other
        return total

    def warp_max(value, shared):
        """The largest ``value`` of the warp, NaN if there is one, in every thread of it."""
        values, _ = _of_warp(value)
        return _largest(values)

    def block_sum(value, shared):
        """The sum of ``value`` over the block, in every thread; shared: (WARPS,) of its type."""
        values, _ = exchange(value)
        total = values[0]
        for other in values[1:]:
            total = total + other
        return total

    def block_max(value, shared):
        """The largest ``value`` of the block, NaN if there is one, in every thread."""
        values, _ = exchange(value)
        return _largest(values)

    def _largest(values):
        best = values[0]
        for other in values[1:]:
            best = other if other > best or other != other else best
        return best

else:
    inlined = cuda.jit(device=True, inline="always")
    # For what stands many times in a kernel: Numba compiles it once, and LLVM always inlines it.
    pasted = cuda.jit(device=True, forceinline=True)
    # For longer functions: Numba compiles them once, and LLVM inlines them where it pays.
    called = cuda.jit(device=True)

    @inlined
    def barrier():
        """All threads of the block wait for each other."""
        cuda.syncthreads()

    @cuda.jit(device=True)
    def split(at, size):
        """Quotient and rest of two ints that are not negative, by 32 bits where they fit.

        A division of 64 bits takes a GPU some hundred instructions, one of 32 about twenty.
        """
        if at <= 0xFFFFFFFF and size <= 0xFFFFFFFF:
            narrow = int64(uint32(at) // uint32(size))
            return narrow, at - narrow * size
        wide = at // size
        return wide, at - wide * size

    @cuda.jit(device=True)
    def shuffle_down(value, delta):
        """The value of the thread ``delta`` lanes above; its own where there is none."""
        return cuda.shfl_down_sync(_EVERY, value, delta)

    @cuda.jit(device=True)
    def shuffle_xor(value, mask):
        """The value of the thread whose lane differs in the bits of ``mask``."""
        return cuda.shfl_xor_sync(_EVERY, value, mask)

    @cuda.jit(device=True)
    def warp_sum(value, shared):
        """The sum of ``value`` over the warp, in every thread of it."""
        mask = WARP // 2
        while mask > 0:
            value = value + cuda.shfl_xor_sync(_EVERY, value, mask)
            mask //= 2
        return value

    @cuda.jit(device=True)
    def warp_max(value, shared):
        """The largest ``value`` of the warp, NaN if there is one, in every thread of it."""
        mask = WARP // 2
        while mask > 0:
            other = cuda.shfl_xor_sync(_EVERY, value, mask)
            value = other if other > value or other != other else value
            mask //= 2
        return value

    @cuda.jit(device=True)
    def block_sum(value, shared):
        """The sum of ``value`` over the block, in every thread; shared: (WARPS,) of its type."""
        value = warp_sum(value, shared)
        lane = cuda.threadIdx.x % WARP
        if lane == 0:
            shared[cuda.threadIdx.x // WARP] = value
        cuda.syncthreads()
        value = shared[lane % WARPS]
        cuda.syncthreads()
        mask = WARPS // 2
        while mask > 0:
            value = value + cuda.shfl_xor_sync(_EVERY, value, mask)
            mask //= 2
        return value

    @cuda.jit(device=True)
    def block_max(value, shared):
        """The largest ``value`` of the block, NaN if there is one, in every thread."""
        value = warp_max(value, shared)
        lane = cuda.threadIdx.x % WARP
        if lane == 0:
            shared[cuda.threadIdx.x // WARP] = value
        cuda.syncthreads()
        value = shared[lane % WARPS]
        cuda.syncthreads()
        mask = WARPS // 2
        while mask > 0:
            other = cuda.shfl_xor_sync(_EVERY, value, mask)
            value = other if other > value or other != other else value
            mask //= 2
        return value
