"""Locks that a fork waits for: what another thread holds, nobody would release in the child.

Numba compiles under a lock, and each call of LLVM has one. A child that was forked while another
thread compiled waited for ever as soon as it compiled, or loaded, anything itself.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from llvmlite.binding import ffi
from numba.core.compiler_lock import global_compiler_lock

__all__ = ["COMPILING", "LLVM", "held_during_forks"]

PATIENCE = 60.0
"""Seconds that a fork waits for one of them; the child then makes it anew, and hopes."""


def held_during_forks(*locks: Any) -> None:
    """Hold ``locks`` while this process forks, taken in the order in which threads take them."""
    if not hasattr(os, "register_at_fork"):
        return
    mine = threading.local()

    def before() -> None:
        mine.held = [lock.acquire(timeout=PATIENCE) for lock in locks]

    def release() -> None:
        for lock, held in reversed(list(zip(locks, mine.held, strict=True))):
            if held:
                lock.release()

    def in_child() -> None:
        release()
        for lock, held in zip(locks, mine.held, strict=True):
            if not held:
                lock._at_fork_reinit()

    os.register_at_fork(before=before, after_in_parent=release, after_in_child=in_child)


COMPILING = [lock for lock in [getattr(global_compiler_lock, "_lock", None)] if lock is not None]
LLVM = [
    lock for lock in [getattr(getattr(ffi.lib, "_lock", None), "_lock", None)] if lock is not None
]
"""Numba's lock, and LLVM's, as far as these versions have them."""
