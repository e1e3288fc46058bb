"""The garbage collector, and imports: a fifth of their time was passes that freed nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["paused"]


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
