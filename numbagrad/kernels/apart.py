"""Kernels compiled by helper processes, into the cache, while this one compiles others.

Numba compiles one function at a time, for it holds Python's lock. A program that needs ten kernels
which are not in the cache therefore asks other processors: each helper is a Python of its own that
takes the longest kernel left, while this process takes them in its order. It changes nothing but
time: what a helper does not finish is compiled here, as if there were none.

``helped`` is for a program whose kernels are known; ``begin`` for kernels that will be needed in a
moment, while this process compiles what makes the parameters. ``NUMBAGRAD_COMPILE_PROCESSES`` says
how many helpers there may be; 0 for none. Start reading at ``helped``.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import os
import pickle
import re
import struct
import subprocess
import sys
import threading
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba

from . import store

__all__ = ["begin", "helped"]

FEWEST = 3
"""Kernels that must be missing before a helper pays: it needs 0.7 s until it has compiled one."""

MOST = 4
"""Helpers at a time: each takes 200 MB."""

LONGEST = 120.0
"""Seconds after which a kernel is compiled here though a helper has not given it up."""

Wanted = tuple[Any, tuple[Any, ...]]
"""A dispatcher, and Numba types of its arguments."""

_HEAD = struct.Struct("<q")


@dataclass
class Task:
    """One signature of a function. module, text: where it stands, or the generated text of it.

    length: bytes of Python's code for it, to which the time that Numba takes is in proportion.
    """

    module: str
    text: str | None
    name: str
    source: str | None
    options: dict[str, Any]
    signature: tuple[Any, ...]
    length: int


def helpers_allowed() -> int:
    """How many helper processes may run beside this one."""
    chosen = os.environ.get("NUMBAGRAD_COMPILE_PROCESSES", "")
    if chosen.isdecimal():
        return int(chosen)
    if numba.config.DISABLE_JIT or not sys.executable or getattr(sys, "frozen", False):
        return 0
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        return 0  # one of several workers: its siblings have the other processors
    here = getattr(os, "sched_getaffinity", None)
    return min(MOST, (len(here(0)) if here else os.cpu_count() or 1) - 1)


@contextmanager
def helped(wanted: Sequence[Wanted]) -> Iterator[Iterator[Wanted]]:
    """For a block that compiles ``wanted``: helpers compile the longest of it meanwhile.

    wanted: dispatchers and signatures. Those of users, and those in the cache, are no work for a
    helper. Of what ``begin`` was told, the rest is not made.

    Gives what of ``wanted`` is work for helpers, in its order, but last what a helper has begun:
    a block that compiles in this order waits for nobody while there is something to do.
    """
    missing = _missing(wanted)
    tasks = {path: task for path, (task, _) in missing.items()}
    work = _begun.pop(os.getpid(), None) or _Work()
    try:
        work.replace(dict(sorted(tasks.items(), key=lambda item: item[1].length)))
        if len(tasks) >= FEWEST:
            work.start(min(helpers_allowed(), len(tasks) // 2))
        yield (missing[path][1] for path in work.free_first(list(tasks)))
    finally:
        work.stop()


def begin(wanted: Sequence[Wanted]) -> None:
    """Let a helper compile ``wanted`` in its order, from now until this process needs them.

    wanted: as in ``helped``.
    """
    if tasks := {path: task for path, (task, _) in _missing(wanted).items()}:
        work = _begun.get(os.getpid())
        if work is None:
            work = _begun[os.getpid()] = _Work()
        work.prepend(tasks)
        work.start(1)


_begun: dict[int, _Work] = {}
"""The work of ``begin``, by process: a fork does not inherit the threads that do it."""


@atexit.register
def _end() -> None:
    if work := _begun.pop(os.getpid(), None):
        work.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=store.elsewhere.clear)


def _missing(wanted: Sequence[Wanted]) -> dict[Path, tuple[Task, Wanted]]:
    """The files to be made; none where there is no helper to make them."""
    found: dict[Path, tuple[Task, Wanted]] = {}
    if not helpers_allowed() or store.writable_folder(store.cache_folder()) is None:
        return found
    for dispatcher, signature in wanted:
        cache = getattr(dispatcher, "_cache", None)
        if isinstance(cache, store.KernelCache) and not store.made(dispatcher, signature):
            task = _task(cache, signature)
            if task is not None:
                found[cache.path(signature, dispatcher.targetctx)] = task, (dispatcher, signature)
    return found


_IMPORTS = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)
_HARMLESS = {"numbagrad", "numba", "numpy", "math"}


def _task(cache: store.KernelCache, signature: tuple[Any, ...]) -> Task | None:
    """What another process needs to know; None where it would have to import a user's module."""
    function, source, options = cache.recipe
    module, name = function.__module__, function.__name__
    text = store.text_of_module(module)
    if text is not None:
        if not set(_IMPORTS.findall(text)) <= _HARMLESS:
            return None
    elif not module.startswith("numbagrad."):
        return None
    elif _plain(getattr(sys.modules[module], name, None)) is not function:
        return None
    return Task(module, text, name, source, options, signature, len(function.__code__.co_code))


def _plain(found: Any) -> Any:
    """The Python function of a kernel, of a dispatcher, or the function itself."""
    return getattr(found, "function", getattr(found, "py_func", found))


class _Work:
    """The tasks that nobody has taken, those that helpers have, and the helpers."""

    def __init__(self) -> None:
        self._left: dict[Path, Task] = {}  # helpers take from the end
        self._taken: dict[Path, threading.Event] = {}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._stopped = False
        store.elsewhere.append(self.wait_for)

    def replace(self, tasks: dict[Path, Task]) -> None:
        """Nothing is left but ``tasks``; the last is taken first."""
        with self._lock:
            self._left = {p: task for p, task in tasks.items() if p not in self._taken}

    def prepend(self, tasks: dict[Path, Task]) -> None:
        """``tasks`` are done after what is left, the first of them first."""
        with self._lock:
            new = {p: tasks[p] for p in reversed(tasks) if p not in self._taken}
            self._left = {**new, **self._left}

    def start(self, count: int) -> None:
        """Let there be ``count`` helpers."""
        running = [thread for thread in self._threads if thread.is_alive()]
        for _ in range(count - len(running)):
            self._threads.append(threading.Thread(target=self._help, daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        """Nothing more is wanted: end what still runs."""
        store.elsewhere.remove(self.wait_for)
        with self._lock:
            self._left.clear()
            self._stopped = True
            for process in self._processes:
                process.kill()
        for thread in self._threads:
            thread.join()

    def free_first(self, paths: Iterable[Path]) -> Iterator[Path]:
        """``paths``, and last those of them that a helper has taken before their turn."""
        taken = []
        for path in paths:
            with self._lock:
                free = path not in self._taken
            if free:
                yield path
            else:
                taken.append(path)
        yield from taken

    def wait_for(self, path: Path) -> None:
        """This process is about to compile ``path``: unless a helper does, nobody else will."""
        with self._lock:
            self._left.pop(path, None)
            done = self._taken.get(path)
        if done is not None:
            done.wait(LONGEST)

    def _help(self) -> None:
        """Let one process compile until nothing is left, or until it fails."""
        with suppress(OSError), _start() as process:
            with self._lock:
                self._processes.append(process)
            while taken := self._take():
                task, done = taken
                try:
                    answer = _ask(process, task)
                finally:
                    done.set()
                if answer != b".":
                    break
            process.kill()

    def _take(self) -> tuple[Task, threading.Event] | None:
        with self._lock:
            if self._stopped or not self._left:
                return None
            path, task = self._left.popitem()
            done = self._taken[path] = threading.Event()
        return task, done


def _start() -> subprocess.Popen[bytes]:
    """A process that runs ``_serve``; it finds numbagrad where this one did.

    It needs the kernels, not the package around them, which would take 0.1 s to import.
    """
    package = __name__.partition(".")[0]
    code = (
        f"import sys, types; sys.path[:] = {sys.path!r}; "
        f"package = sys.modules[{package!r}] = types.ModuleType({package!r}); "
        f"package.__path__ = {list(sys.modules[package].__path__)!r}; "
        f"from {__name__} import _serve; _serve()"
    )
    environment = {**os.environ, "NUMBAGRAD_COMPILE_PROCESSES": "0"}
    if numba.config.CACHE_DIR:
        environment["NUMBA_CACHE_DIR"] = numba.config.CACHE_DIR
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),  # Windows would show one
    )


def _ask(process: subprocess.Popen[bytes], task: Task) -> bytes:
    """What a process answers; nothing where it has ended."""
    assert process.stdin is not None and process.stdout is not None
    content = pickle.dumps(task)
    process.stdin.write(_HEAD.pack(len(content)) + content)
    process.stdin.flush()
    return process.stdout.read(1)


def _serve() -> None:
    """Compile what comes in, answer each with a dot, until nothing comes."""
    from .machine import threads

    tasks, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # what a module prints is no answer
    threads()
    _stand_ins()
    while len(head := tasks.read(_HEAD.size)) == _HEAD.size:
        task: Task = pickle.loads(tasks.read(*_HEAD.unpack(head)))
        _compile(task)
        answers.write(b".")


def _compile(task: Task) -> None:
    if task.text is None:
        module: types.ModuleType = importlib.import_module(task.module)
    else:
        module = store.load_source(task.text, task.name)
    function = _plain(getattr(module, task.name))
    store.jit(function, task.source, **task.options).compile(task.signature)


def _stand_ins() -> None:
    """Addresses for the symbols of BLAS: nothing that is compiled here is run."""
    from .blas import SYMBOLS

    address = ctypes.cast(ctypes.pythonapi.Py_IncRef, ctypes.c_void_p).value
    for name in SYMBOLS:
        llvmlite.binding.add_symbol(name, address)
