"""The garbage collector in work that makes a great many objects: imports and compilations.

Its passes took a fifth of the time of our import and a seventh of Numba's compilations.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["paused", "seldom"]

OBJECTS = 50_000  # between passes over the young ones; Python's own number is 700 to 2000


@contextmanager
def paused() -> Iterator[None]:
    """No collections in the block; what it makes is then treated as old, not as new.

    Imports make hundreds of thousands of objects that live on. Without the second half the first
    collection behind the block would look at all of them at once.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # else unfreeze would undo what someone wanted
            gc.freeze()
            gc.unfreeze()
        gc.enable()


@contextmanager
def seldom() -> Iterator[None]:
    """Fewer passes in the block, which may be inside another such block."""
    before, *others = gc.get_threshold()
    if not 0 < before < OBJECTS:  # 0: never
        yield
        return
    gc.set_threshold(OBJECTS, *others)
    try:
        yield
    finally:
        gc.set_threshold(before, *others)
