"""Locks that a fork waits for: what another thread holds, nobody would release in the child.

Numba compiles under a lock, and each call of LLVM has one. A child that was forked while another
thread compiled waited for ever as soon as it compiled, or loaded, anything itself.
"""

from __future__ import annotations

import os
from typing import Any

from llvmlite.binding import ffi
from numba.core.compiler_lock import global_compiler_lock

__all__ = ["COMPILING", "LLVM", "held_during_forks"]

COMPILING = getattr(global_compiler_lock, "_lock", None)
LLVM = getattr(getattr(ffi.lib, "_lock", None), "_lock", None)
"""Numba's lock, and LLVM's; None where a version has none of that name."""


def held_during_forks(*locks: Any) -> None:
    """Hold ``locks`` while this process forks, taken in the order in which threads take them."""
    if not hasattr(os, "register_at_fork"):
        return
    known = [lock for lock in locks if lock is not None]

    def take() -> None:
        for lock in known:
            lock.acquire()

    def release() -> None:
        for lock in reversed(known):
            lock.release()

    os.register_at_fork(before=take, after_in_parent=release, after_in_child=release)
