"""The workers of a loader, seen from the process that uses it: start, feed, collect, end.

Task k goes to the next worker in turn, and its batch is awaited from that worker, so that batches
come in the order of the tasks. A worker's end is noticed by waiting for its process as well. Start
reading at ``WorkerBatches.__next__``.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from ..errors import WorkerError
from ..kernels import machine
from .fetch import Fetcher
from .loader import refuse
from .parcel import Parcel, discard, make_directory, unwrap, wrap_up
from .worker import END, Failure, Start, run

__all__: list[str] = []

GRACE = 1.0
"""Seconds that a worker gets to finish what it does before it is terminated."""


@dataclass
class Worker:
    """A process and the ends of its pipes here."""

    process: Any
    tasks: Connection
    results: Connection
    over: bool = False  # whether its stream has ended in this epoch


class Crew:
    """The workers of a loader and the folder of their parcels."""

    def __init__(self, fetcher: Fetcher, loader: Any, base_seed: int):
        context = loader.multiprocessing_context or multiprocessing.get_context()
        self.forks = context.get_start_method() == "fork"
        self.directory = make_directory()
        self.workers: list[Worker] = []
        # Also where starting fails half way, and when the interpreter ends.
        self.end = weakref.finalize(self, _end, os.getpid(), self.workers, self.directory)
        start = Start(
            fetcher, 0, loader.num_workers, base_seed, loader.worker_init_fn, self.directory, ()
        )
        try:
            for k in range(loader.num_workers):
                self._start(context, replace(start, id=k))
        except BaseException:
            self.end()
            raise

    def _start(self, context: Any, start: Start) -> None:
        given, tasks = context.Pipe(duplex=False)
        results, made = context.Pipe(duplex=False)
        if self.forks:
            ends = [(w.tasks, w.results) for w in self.workers]
            start = replace(start, inherited=(tasks, results, *itertools.chain(*ends)))
        process = context.Process(target=run, args=(start, given, made), daemon=True)
        process.start()
        given.close()
        made.close()
        self.workers.append(Worker(process, tasks, results))

    def send(self, k: int, task: Any) -> None:
        """Give worker k a task."""
        try:
            self.workers[k].tasks.send(task)
        except OSError:
            self.lost()

    def receive(self, k: int, timeout: float) -> Any:
        """What worker k sends next; an error if a worker ends, or after ``timeout`` seconds."""
        results = self.workers[k].results
        ends = [w.process.sentinel for w in self.workers]
        ready = wait([results, *ends], timeout or None)
        if results in ready:
            try:
                return results.recv()
            except (EOFError, OSError):
                self.lost()
        if ready:
            self.lost()
        raise WorkerError(f"DataLoader timed out after {timeout} seconds, waiting for worker {k}.")

    def lost(self) -> None:
        """Raise for the workers that have ended."""
        ended = wait([w.process.sentinel for w in self.workers], GRACE)
        told = []
        for k, w in enumerate(self.workers):
            if w.process.sentinel in ended:
                w.process.join(GRACE)  # the sentinel is a little ahead of the exit code
                code = w.process.exitcode
                how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
                told.append(f"worker {k} (pid {w.process.pid}) with {how}")
        self.end()
        raise WorkerError(
            f"DataLoader: {' and '.join(told) or 'a worker'} exited unexpectedly. It was killed "
            f"(out of memory?), crashed in native code, or called exit. num_workers=0 shows "
            f"errors where they happen; multiprocessing_context='spawn' avoids what a forked "
            f"process cannot do, such as run threads of OpenMP or use a GPU."
        )


def _end(owner: int, workers: list[Worker], directory: str) -> None:
    """Let the workers finish, or make them; nobody and nothing of them is left."""
    if os.getpid() != owner:  # a fork has a copy of this
        return
    for w in workers:
        try:
            w.tasks.send(None)
        except OSError:
            pass
        w.results.close()
    deadline = time.monotonic() + GRACE
    for w in workers:
        w.process.join(max(0.0, deadline - time.monotonic()))
    for stop in ("terminate", "kill"):
        late = [w for w in workers if w.process.is_alive()]
        for w in late:
            getattr(w.process, stop)()
        for w in late:
            w.process.join(GRACE)
    for w in workers:
        w.tasks.close()
    shutil.rmtree(directory, ignore_errors=True)


class WorkerBatches:
    """Iterator over the batches that workers make, in order."""

    def __init__(self, loader: Any, fetcher: Fetcher, base_seed: int):
        self._crew = Crew(fetcher, loader, base_seed)
        self._timeout = loader.timeout
        self._ahead = loader.prefetch_factor * loader.num_workers
        self._stream = fetcher.is_stream
        self._lasting = loader.persistent_workers
        self._epoch = 0
        self.restart(loader)

    def restart(self, loader: Any) -> None:
        """Begin another epoch; what is left of the last one is dropped as it comes."""
        self._epoch += 1
        self._indices: Iterator[Any] = (
            itertools.repeat(None) if self._stream else loader.index_source()
        )
        self._turns = itertools.cycle(range(len(self._crew.workers)))
        self._sent = self._received = 0
        self._owner: dict[int, int] = {}  # who does which task
        for w in self._crew.workers:
            w.over = False
        for _ in range(self._ahead):
            self._give()

    @property
    def alive(self) -> bool:
        """Whether there are workers to go on with."""
        return self._crew.end.alive

    def _give(self) -> None:
        """Send the next task to the next worker that still has something to do."""
        workers = self._crew.workers
        k = next(
            (k for k in itertools.islice(self._turns, len(workers)) if not workers[k].over), -1
        )
        if k < 0:
            return
        try:
            indices = next(self._indices)
        except StopIteration:
            return
        self._owner[self._sent] = k
        parcel = None if self._stream else wrap_up(indices, self._crew.directory)
        self._crew.send(k, (self._epoch, self._sent, parcel))
        self._sent += 1

    def __iter__(self) -> WorkerBatches:
        return self

    def __next__(self) -> Any:
        if machine.recording:
            refuse()
        while self._received < self._sent:
            k = self._owner.pop(self._received)
            if self._crew.workers[k].over:
                self._received += 1
                continue
            try:
                found = self._receive(k)
            except BaseException:
                self._owner[self._received] = k
                raise
            self._received += 1
            if found is END:
                self._crew.workers[k].over = True
                self._give()
                continue
            self._give()
            (batch,) = found
            if isinstance(batch, Failure):
                batch.raise_again()
            return batch
        if not self._lasting:
            self._crew.end()
        raise StopIteration

    def _receive(self, k: int) -> Any:
        if not self.alive:
            raise WorkerError("DataLoader: the workers of this iterator have ended.")
        while True:
            epoch, _, found = self._crew.receive(k, self._timeout)
            if epoch == self._epoch:
                if isinstance(found, str):  # END, which has lost its identity on the way
                    return END
                return (unwrap(found),) if isinstance(found, Parcel) else (found,)
            if isinstance(found, Parcel):
                discard(found)
