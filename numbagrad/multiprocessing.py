"""The standard library's ``multiprocessing``, and ``spawn``. Tensors are sent as copies."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from multiprocessing.connection import wait
from typing import Any

__all__ = [
    "ProcessContext",
    "ProcessExitedException",
    "ProcessRaisedException",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
    *multiprocessing.__all__,
]


def get_all_sharing_strategies() -> set[str]:
    """How tensors reach other processes: they are copied."""
    return {"copy"}


def get_sharing_strategy() -> str:
    """That of ``get_all_sharing_strategies``."""
    return "copy"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accept PyTorch's strategies, which are about files that are not used here."""
    if new_strategy not in ("copy", "file_descriptor", "file_system"):
        raise ValueError(
            f"set_sharing_strategy: expected 'file_descriptor' or 'file_system', got "
            f"{new_strategy!r}."
        )


class ProcessExitedException(Exception):
    """A process ended with an exit code other than 0, or by a signal."""


class ProcessRaisedException(Exception):
    """A function raised in its process; the message has its traceback."""


def _run(fn: Callable, index: int, args: tuple, errors: Any) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent was told too
    except Exception:
        errors.put(traceback.format_exc())
        raise SystemExit(1) from None


class ProcessContext:
    """The processes that ``spawn`` started without waiting for them."""

    def __init__(self, processes: list[Any], errors: list[Any]):
        self.processes = processes
        self._errors = errors

    def pids(self) -> list[int]:
        """The numbers of the processes."""
        return [process.pid for process in self.processes]

    def join(self, timeout: float | None = None) -> bool:
        """Wait for one or all; whether all have ended well.

        timeout: seconds to wait for one. If one has failed, the others are ended, and
        ProcessRaisedException has its traceback, or ProcessExitedException its exit code.
        """
        alive = [process.sentinel for process in self.processes if process.exitcode is None]
        if alive:  # of none, wait would never come back
            wait(alive, timeout)
        failed = [i for i, process in enumerate(self.processes) if process.exitcode]
        if not failed:
            return all([process.exitcode == 0 for process in self.processes])
        for process in self.processes:
            if process.is_alive():
                process.terminate()
            process.join()
        first = failed[0]
        if not self._errors[first].empty():
            raise ProcessRaisedException(
                f"\n\n-- Process {first} terminated with the following error:\n"
                f"{self._errors[first].get()}"
            )
        raise ProcessExitedException(
            f"process {first} terminated with exit code {self.processes[first].exitcode}"
        )


def start_processes(
    fn: Callable,
    args: tuple = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """``spawn`` by another start method: "fork" or "forkserver"."""
    context = multiprocessing.get_context(start_method)
    processes: list[Any] = []
    errors: list[Any] = []
    for index in range(nprocs):
        held = context.SimpleQueue()
        process = context.Process(target=_run, args=(fn, index, args, held), daemon=daemon)  # type: ignore[attr-defined]
        process.start()
        processes.append(process)
        errors.append(held)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable, args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False
) -> ProcessContext | None:
    """Run ``fn(i, *args)`` in ``nprocs`` new processes, i from 0 on; waits for them.

    join: False gives the processes at once. Raises what ``ProcessContext.join`` raises.
    """
    return start_processes(fn, args, nprocs, join, daemon, "spawn")
