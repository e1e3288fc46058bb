"""What runs in a worker process of a loader: it takes tasks, makes batches, and sends them.

Start reading at ``run``. A worker ends when it is told to, and at once when the process that
started it is gone.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import random
import shutil
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ..kernels.machine import set_threads
from ..random import manual_seed
from . import worker_info
from .fetch import Fetcher
from .parcel import LARGE, unwrap, wrap_up

__all__: list[str] = []


@dataclass(frozen=True)
class Start:
    """What a worker is started with. inherited: ends of pipes that a fork has copied here."""

    fetcher: Fetcher
    id: int
    num_workers: int
    base_seed: int
    init: Callable[[int], Any] | None
    directory: str
    inherited: tuple[Connection, ...]


class Failure:
    """An error in a worker: its class, as a pickle where it has one, and what to say."""

    def __init__(self, error: BaseException, what: str):
        kind = type(error)
        text = "".join(traceback.format_exception(kind, error, error.__traceback__))
        self.message = f"Caught {kind.__name__} in {what}.\nOriginal {text}"
        try:
            self.kind: bytes | None = pickle.dumps(kind)
        except Exception:
            self.kind = None

    def raise_again(self) -> None:
        """Raise an error of the same class where that is possible, else RuntimeError."""
        message = self.message
        try:
            kind = RuntimeError if self.kind is None else pickle.loads(self.kind)
            error = kind(_Lines(message) if issubclass(kind, KeyError) else message)
        except Exception:  # it needs other arguments, or is not known here
            error = RuntimeError(message)
        raise error


class _Lines(str):
    """Text that a KeyError, which shows its argument's repr, shows with its line ends."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


END = "end"
"""Sent instead of a batch when a worker's stream is over."""


class Inbox:
    """Tasks that have come; ``closed`` once there shall be no more work."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue = queue.SimpleQueue()
        self.closed = False

    def take(self) -> Any:
        """The next task; None at the end, whatever still waits."""
        task = self.queue.get()
        return None if self.closed else task


def _read(tasks: Connection, inbox: Inbox, directory: str) -> None:
    """Move tasks from the pipe to the inbox, so that the sender never waits."""
    try:
        while (task := tasks.recv()) is not None:
            inbox.queue.put(task)
        inbox.closed = True
        inbox.queue.put(None)
    except (EOFError, OSError):  # nobody is left to work for, or to clean up after us
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(1)


def run(start: Start, tasks: Connection, results: Connection) -> None:
    """Serve tasks, ``(epoch, number, indices)``, until None comes."""
    for connection in start.inherited:
        connection.close()
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the loader's process decides
    set_threads(1)  # the workers are what runs side by side
    seed = start.base_seed + start.id
    random.seed(seed)
    manual_seed(seed)
    low, high = start.base_seed & 0xFFFFFFFF, start.base_seed >> 32
    words = np.random.SeedSequence([start.id, low, high, 0]).generate_state(4)
    np.random.seed(words)  # noqa: NPY002  the generator that datasets use without naming one
    worker_info.current = worker_info.WorkerInfo(
        start.id, start.num_workers, seed, start.fetcher.dataset
    )
    inbox = Inbox()
    reader = threading.Thread(target=_read, args=(tasks, inbox, start.directory), daemon=True)
    reader.start()
    with contextlib.suppress(BrokenPipeError):
        _serve(start, inbox, results)


def _serve(start: Start, inbox: Inbox, results: Connection) -> None:
    where = f"DataLoader worker process {start.id}"
    broken = None
    if start.init is not None:
        try:
            start.init(start.id)
        except Exception as error:
            broken = Failure(error, f"worker_init_fn of {where}")
    stream: Iterator[Any] | None = None
    running = -1
    while (task := inbox.take()) is not None:
        epoch, number, parcel = task
        if epoch != running:
            running, stream = epoch, None
        try:
            if broken is not None:
                value: Any = broken
            elif start.fetcher.is_stream:
                stream = start.fetcher.stream() if stream is None else stream
                value = _next(stream, where)
            else:
                value = _batch(start.fetcher, unwrap(parcel), where)
            found = value
            if not isinstance(value, Failure) and value is not END:
                found = wrap_up(value, start.directory)
        except Exception as error:  # the batch cannot be pickled
            found = Failure(error, where)
        if isinstance(found, Failure) and len(found.message) > LARGE:
            found = wrap_up(found, start.directory)
        results.send((epoch, number, found))


def _next(stream: Iterator[Any], where: str) -> Any:
    try:
        return next(stream)
    except StopIteration:
        return END
    except Exception as error:
        return Failure(error, where)


def _batch(fetcher: Fetcher, indices: Any, where: str) -> Any:
    try:
        return fetcher.batch(indices)
    except Exception as error:
        shown = indices.tolist() if hasattr(indices, "tolist") else indices
        shown = list(range(shown.start, shown.stop)) if isinstance(shown, slice) else shown
        text = repr(shown)
        if isinstance(shown, list) and len(shown) > 10:
            text = f"{repr(shown[:10])[:-1]}, ...]"
        return Failure(error, f"{where}, at the indices {text}")
