"""Batches between processes: what is large travels in memory that both of them map.

A parcel is a pickle whose buffers, the arrays of tensors, lie outside of it. Small ones follow the
pickle through the pipe; large ones are written into a file in memory, which the receiver maps and
unlinks at once, so that its pages live as long as the tensors on them. Start reading at
``wrap_up``.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import tempfile
from dataclasses import dataclass
from typing import Any

__all__: list[str] = []

LARGE = 4096
"""Bytes from which a parcel goes into a file. A pipe holds 64 KiB: a process that writes less than
its share of that never waits for the reader, so two of them cannot wait for each other."""

ALIGNMENT = 64


@dataclass(frozen=True)
class Parcel:
    """A pickle, and its buffers or the file they are in with their places."""

    pickle: bytes
    buffers: tuple[bytes, ...] = ()
    path: str | None = None
    places: tuple[tuple[int, int], ...] = ()


def make_directory() -> str:
    """A folder for parcels, in memory where the system has such a place."""
    memory = "/dev/shm"
    usable = os.path.isdir(memory) and os.access(memory, os.W_OK | os.X_OK)
    return tempfile.mkdtemp(prefix="numbagrad-", dir=memory if usable else None)


def wrap_up(value: Any, directory: str) -> Parcel:
    """``value`` as a parcel; its file, if it needs one, is made in ``directory``."""
    found: list[pickle.PickleBuffer] = []
    text = pickle.dumps(value, protocol=5, buffer_callback=found.append)
    views = [b.raw() for b in found]
    if len(text) + sum(v.nbytes for v in views) < LARGE:
        return Parcel(text, tuple([v.tobytes() for v in views]))
    places, end = [], 0
    for view in (memoryview(text), *views):
        places.append((end, view.nbytes))
        end += -(-view.nbytes // ALIGNMENT) * ALIGNMENT
    try:
        path = _write(directory, end, places, [memoryview(text), *views])
    except OSError:  # no room: containers often have 64 MB of such memory
        return Parcel(text, tuple([v.tobytes() for v in views]))
    return Parcel(b"", (), path, tuple(places))


def _write(directory: str, size: int, places: list, views: list[memoryview]) -> str:
    number, path = tempfile.mkstemp(dir=directory)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(number, 0, size)  # an error here, not a signal at the first write
        else:
            os.ftruncate(number, size)
        with mmap.mmap(number, size) as memory:
            for (start, length), view in zip(places, views, strict=True):
                memory[start : start + length] = view
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(number)
    return path


def unwrap(parcel: Parcel) -> Any:
    """The value again; its arrays are writable and belong to it alone."""
    if parcel.path is None:
        # Arrays on bytes could not be written to.
        return pickle.loads(parcel.pickle, buffers=[bytearray(b) for b in parcel.buffers])
    with open(parcel.path, "r+b") as file:
        memory = memoryview(mmap.mmap(file.fileno(), 0))
    discard(parcel)
    text, *rest = [memory[start : start + length] for start, length in parcel.places]
    return pickle.loads(text, buffers=rest)


def discard(parcel: Parcel) -> None:
    """Drop the file of a parcel; where the system keeps open files, its folder does so later."""
    if parcel.path is not None:
        with contextlib.suppress(OSError):
            os.unlink(parcel.path)
